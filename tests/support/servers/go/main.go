// SPDX-License-Identifier: Apache-2.0

// The scripted server on Go's net/http, as Ollama uses it: one Flush a step. Plays the scripts of
// tests/support/README.md, whose log it writes. Prints `ready PORT`; SIGTERM ends it with exit 0.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"
	"unsafe"
)

const clockMonotonic = 1

// nowNs reads CLOCK_MONOTONIC. Go's own monotonic readings are relative to the start of the process.
func nowNs() int64 {
	var now syscall.Timespec
	syscall.RawSyscall(syscall.SYS_CLOCK_GETTIME, clockMonotonic, uintptr(unsafe.Pointer(&now)), 0)
	return now.Nano()
}

func sleepUntil(dueNs int64) {
	for left := dueNs - nowNs(); left > 0; left = dueNs - nowNs() {
		time.Sleep(time.Duration(left))
	}
}

type step struct {
	waitMs float64
	kinds  string
}

func (s *step) UnmarshalJSON(text []byte) error {
	return json.Unmarshal(text, &[]any{&s.waitMs, &s.kinds})
}

type script struct {
	Steps       []step            `json:"steps"`
	Texts       map[string]string `json:"texts"`
	ChunkKinds  string            `json:"chunk_kinds"`
	ContentType string            `json:"content_type"`
	Status      int               `json:"status"`
	Headers     map[string]string `json:"headers"`
	Head        string            `json:"head"`
	Body        string            `json:"body"`
	Split       any               `json:"split"` // "whole", "single" or a number of bytes
	End         string            `json:"end"`
}

// stepLog is [before_ns, after_ns, kinds].
type stepLog [3]any

type line struct {
	Server        string    `json:"server"`
	Tag           string    `json:"tag"`
	LocalPort     int       `json:"local_port"`
	Remote        string    `json:"remote"`
	RemotePort    int       `json:"remote_port"`
	Ordinal       int64     `json:"ordinal"`
	AcceptedNs    *int64    `json:"accepted_ns"`
	HeadNs        int64     `json:"head_ns"`
	RequestReadNs int64     `json:"request_read_ns"`
	Status        int       `json:"status"`
	HeadWrite     *[2]int64 `json:"head_write"`
	Steps         []stepLog `json:"steps"`
	End           string    `json:"end"`
	EndNs         int64     `json:"end_ns"`
	BodyBytes     int       `json:"body_bytes"`
	Error         *string   `json:"error"`
}

type connection struct {
	acceptedNs int64
	requests   int64
	socket     net.Conn
}

type connectionKey struct{}

type player struct {
	script  script
	line    *line
	startNs int64
	number  int
}

func (p *player) text(kind rune) string {
	text := p.script.Texts[string(kind)]
	if strings.ContainsRune(p.script.ChunkKinds, kind) {
		text = strings.ReplaceAll(text, "%i", strconv.Itoa(p.number))
		p.number++
	}
	return text
}

func (p *player) pieces(kinds string) [][]byte {
	var pieces [][]byte
	for _, kind := range kinds {
		pieces = append(pieces, []byte(p.text(kind)))
	}
	size, split := p.script.Split.(float64)
	if !split {
		return pieces
	}
	var all []byte
	for _, piece := range pieces {
		all = append(all, piece...)
	}
	pieces = nil
	for len(all) > 0 {
		n := int(size)
		if n > len(all) {
			n = len(all)
		}
		pieces, all = append(pieces, all[:n]), all[n:]
	}
	return pieces
}

type dueStep struct {
	dueNs int64
	kinds string
}

func (p *player) dueSteps() []dueStep {
	var steps []dueStep
	due, kinds := p.startNs, ""
	for _, step := range p.script.Steps {
		due += int64(step.waitMs * 1e6)
		kinds += step.kinds
		steps = append(steps, dueStep{due, step.kinds})
	}
	if p.script.Split == "single" || p.script.Body == "length" {
		return []dueStep{{due, kinds}}
	}
	return steps
}

// write sends one step: one flush, or one for each piece.
func (p *player) write(w http.ResponseWriter, flusher http.Flusher, kinds string) error {
	pieces := p.pieces(kinds)
	_, split := p.script.Split.(float64)
	if p.script.Body == "length" {
		total := 0
		for _, piece := range pieces {
			total += len(piece)
		}
		w.Header().Set("Content-Length", strconv.Itoa(total))
		w.WriteHeader(p.script.Status)
	}
	before := nowNs()
	for _, piece := range pieces {
		n, err := w.Write(piece)
		p.line.BodyBytes += n
		if err != nil {
			return err
		}
		if split {
			flusher.Flush()
		}
	}
	flusher.Flush()
	p.line.Steps = append(p.line.Steps, stepLog{before, nowNs(), kinds})
	return nil
}

func (p *player) play(w http.ResponseWriter, r *http.Request, c *connection) error {
	flusher := w.(http.Flusher)
	w.Header().Set("Content-Type", p.script.ContentType)
	for name, value := range p.script.Headers {
		w.Header().Set(name, value)
	}
	if p.script.Head == "early" && p.script.Body != "length" {
		before := nowNs()
		w.WriteHeader(p.script.Status)
		flusher.Flush()
		p.line.HeadWrite = &[2]int64{before, nowNs()}
	}
	for i, step := range p.dueSteps() {
		sleepUntil(step.dueNs)
		if r.Context().Err() != nil {
			return r.Context().Err()
		}
		if i == 0 && p.line.HeadWrite == nil && p.script.Body != "length" {
			w.WriteHeader(p.script.Status)
		}
		if err := p.write(w, flusher, step.kinds); err != nil {
			return err
		}
	}
	p.line.End = p.script.End
	switch p.script.End {
	case "rst":
		c.socket.(*net.TCPConn).SetLinger(0)
		c.socket.Close()
	case "fin":
		panic(http.ErrAbortHandler) // net/http closes the connection without the last chunk
	}
	return nil
}

type server struct {
	log *os.File
}

func (s *server) append(l *line) {
	if s.log == nil {
		return
	}
	text, err := json.Marshal(l)
	if err != nil {
		log.Fatal(err)
	}
	s.log.Write(append(text, '\n'))
}

func (s *server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	headNs := nowNs()
	if r.Method != http.MethodPost {
		io.WriteString(w, "ok")
		return
	}
	c := r.Context().Value(connectionKey{}).(*connection)
	local, remote := c.socket.LocalAddr().(*net.TCPAddr), c.socket.RemoteAddr().(*net.TCPAddr)
	l := &line{Server: "go", Tag: r.Header.Get("x-tag"), LocalPort: local.Port, Remote: remote.IP.String(),
		RemotePort: remote.Port, Ordinal: atomic.AddInt64(&c.requests, 1), HeadNs: headNs, End: "aborted", Steps: []stepLog{}}
	if l.Ordinal == 1 {
		l.AcceptedNs = &c.acceptedNs
	}
	defer func() {
		l.EndNs = nowNs()
		s.append(l)
	}()
	fail := func(err error) {
		text := err.Error()
		l.Error = &text
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		fail(err)
		return
	}
	l.RequestReadNs = nowNs()
	var request struct {
		Script script `json:"script"`
	}
	if header := r.Header.Get("x-script"); header != "" {
		err = json.Unmarshal([]byte(header), &request.Script)
	} else {
		err = json.Unmarshal(body, &request)
	}
	if err != nil {
		fail(err)
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	l.Status = request.Script.Status
	if request.Script.Body == "close" {
		http.Error(w, "this server cannot stream until close", http.StatusNotImplemented)
		return
	}
	p := &player{script: request.Script, line: l, startNs: l.RequestReadNs}
	if err := p.play(w, r, c); err != nil {
		fail(err)
	}
}

func main() {
	host := flag.String("host", "127.0.0.1", "address to listen on")
	port := flag.Int("port", 0, "port, 0 for any")
	logPath := flag.String("log", "", "JSON lines are appended here")
	flag.Parse()

	s := &server{}
	if *logPath != "" {
		file, err := os.OpenFile(*logPath, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o644)
		if err != nil {
			log.Fatal(err)
		}
		s.log = file
	}
	listener, err := net.Listen("tcp", net.JoinHostPort(*host, strconv.Itoa(*port)))
	if err != nil {
		log.Fatal(err)
	}
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, syscall.SIGTERM)
	go func() {
		<-stop
		os.Exit(0)
	}()
	fmt.Println("ready", listener.Addr().(*net.TCPAddr).Port)
	httpServer := &http.Server{
		Handler: s,
		ConnContext: func(ctx context.Context, socket net.Conn) context.Context {
			return context.WithValue(ctx, connectionKey{}, &connection{acceptedNs: nowNs(), socket: socket})
		},
		ErrorLog: log.New(io.Discard, "", 0),
	}
	log.Fatal(httpServer.Serve(listener))
}
