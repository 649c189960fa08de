#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The main job, shown: a real model (llama.cpp, random weights) behind nginx is asked by the real OpenAI SDK; four streams
# come over loopback and a fifth over a lossy, delayed wire from another network namespace. Ends with what
# `inferwire show` prints of the records. Progress goes to standard error. Leaves nothing running and nothing behind.
#
# ./run demo builds, installs and then calls this.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
export PATH="$PATH:/usr/sbin:/sbin" # nginx, ip

usage() {
  cat <<'TEXT'
usage: demo.sh [--json FILE] [--client-log FILE]

  --json FILE         keep the records of the demo's requests (JSON lines)
  --client-log FILE   keep the clients' own account: when each token came, by their clock (JSON lines)

environment: DEMO_AGENT (the inferwire program; default build/release/inferwire), DEMO_WIRE (an inferwire-wire program)
TEXT
}

readonly near_streams=4 far_streams=1
readonly records_per_request=4 # client, nginx as server, nginx as client, model server
readonly tokens=200
readonly near_address=192.0.2.1 far_address=192.0.2.2 # TEST-NET-1, in namespaces of our own
readonly delay_ms=20 loss=0.03 seed=7
readonly gateway_user=nobody

agent=${DEMO_AGENT:-build/release/inferwire}
keep_records='' keep_client_log=''
work='' records='' near='' far=''

say() { printf '[%3d s] %s\n' "$SECONDS" "$*" >&2; }
die() {
  printf 'demo: %s\n' "$*" >&2
  exit 1
}

# --- What ends with us -------------------------------------------------------------------------------------------------

running() { kill -0 "$1" 2>/dev/null; }

# stop PID [SECONDS]: SIGTERM, then SIGKILL after so long. Returns the exit status; 124 if it had to be killed.
stop() {
  local pid=$1 deadline=$((SECONDS + ${2:-5})) status=0
  kill "$pid" 2>/dev/null || true
  while running "$pid"; do
    if [ "$SECONDS" -gt "$deadline" ]; then
      kill -KILL "$pid" 2>/dev/null || true
      wait "$pid" 2>/dev/null || true
      return 124
    fi
    sleep 0.05
  done
  wait "$pid" 2>/dev/null || status=$?
  return "$status"
}

remove_namespaces() {
  local namespace
  for namespace in $near $far; do
    ip netns delete "$namespace" 2>/dev/null || true
  done
  near='' far=''
}

cleanup() {
  local status=$? pid
  trap '' INT TERM HUP
  trap - EXIT
  for pid in $(jobs -pr | tac); do
    stop "$pid" || true
  done
  remove_namespaces
  [ -z "$work" ] || rm -rf "$work"
  exit "$status"
}

# start NAME COMMAND...: in the background; its output goes to $work/NAME.out and NAME.err. Sets $started.
start() {
  local name=$1
  shift
  : >"$work/$name.out" # both exist before anybody waits for a line in them
  : >"$work/$name.err"
  "$@" >"$work/$name.out" 2>"$work/$name.err" </dev/null &
  started=$!
}

# explain NAME: why a part failed, in its own words.
explain() {
  say "the end of what $1 said:"
  cat "$work/$1.out" "$work/$1.err" | tail -n 20 | sed 's/^/    /' >&2
}

# await_ready NAME PID out|err SECONDS: until the part prints a line that starts with `ready`. If it does not, says why.
await_ready() {
  local name=$1 pid=$2 file=$work/$1.$3 deadline=$((SECONDS + $4))
  until grep -q '^ready' "$file"; do
    if ! running "$pid" || [ "$SECONDS" -gt "$deadline" ]; then
      explain "$name"
      return 1
    fi
    sleep 0.05
  done
}

# --- What must be there ------------------------------------------------------------------------------------------------

parse_arguments() {
  while [ "$#" -gt 0 ]; do
    case $1 in
    --json | --client-log)
      [ "$#" -ge 2 ] || die "$1 needs a file name"
      if [ ! -d "$(dirname "$2")" ] || [ -d "$2" ]; then die "$1 $2: not a file in a folder that exists"; fi
      if [ "$1" = --json ]; then keep_records=$(realpath -m "$2"); else keep_client_log=$(realpath -m "$2"); fi
      shift 2
      ;;
    -h | --help)
      usage
      exit 0
      ;;
    *)
      usage >&2
      exit 2
      ;;
    esac
  done
}

check_machine() {
  [ "$(id -u)" -eq 0 ] || die "loading kernel programs and making network namespaces needs root: sudo ./run demo"
  [ -r /sys/kernel/btf/vmlinux ] ||
    die "this kernel has no BTF (/sys/kernel/btf/vmlinux): use a kernel built with CONFIG_DEBUG_INFO_BTF=y, as Debian's are"
  grep -q ' cgroup2 ' /proc/mounts || die "cgroup v2 is not mounted: mount -t cgroup2 none /sys/fs/cgroup/unified"
  [ -x "$agent" ] || die "$agent is missing: ./run demo builds it"
  [ -d deploy/demo/node_modules/openai ] || die "npm packages are missing: ./run demo installs them"
  local program
  for program in node nginx python3 setpriv nsenter ip; do
    command -v "$program" >/dev/null || die "$program is missing: ./run demo installs it"
  done
}

# --- The wire ----------------------------------------------------------------------------------------------------------

# The tests' wire, built by itself: the release build has no tests.
build_wire() {
  wire=${DEMO_WIRE:-build/demo/rigs/inferwire-wire}
  [ -z "${DEMO_WIRE:-}" ] || return 0
  [ -x "$wire" ] || say "building the wire (a delay and loss rig of the tests)"
  { cmake -S tests/support -B build/demo -G Ninja -D CMAKE_BUILD_TYPE=Release &&
    cmake --build build/demo --target inferwire-wire; } >"$work/wire-build.out" 2>"$work/wire-build.err" || {
    explain wire-build
    return 1
  }
}

# make_namespace NAME: with its loopback up.
make_namespace() {
  ip netns add "$1" && nsenter --net="/run/netns/$1" ip link set lo up
} >>"$work/netns.out" 2>>"$work/netns.err"

# Makes two namespaces and a wire between them, or says why not; the caller removes what a failure leaves.
try_wire() {
  build_wire || return
  near=inferwire-demo-$$-near far=inferwire-demo-$$-far
  if ! make_namespace "$near" || ! make_namespace "$far"; then
    explain netns
    return 1
  fi
  start wire "$wire" --a "$near" --b "$far" --a-addr "$near_address" --b-addr "$far_address" \
    --delay-ms "$delay_ms" --loss "$loss" --seed "$seed"
  await_ready wire "$started" out 10
}

lay_wire() {
  if try_wire; then
    say "wire: $far_address to $near_address, $delay_ms ms each way, loss $loss, two network namespaces"
  else
    remove_namespaces
    say "NO WIRE: it needs network namespaces and TUN devices. Going on with loopback only: no delay, no loss."
  fi
}

# in_namespace NAMESPACE COMMAND...: replaces itself; an empty name is the namespace that we are in.
in_namespace() {
  local namespace=$1
  shift
  if [ -n "$namespace" ]; then exec nsenter --net="/run/netns/$namespace" "$@"; else exec "$@"; fi
}

# --- The traffic -------------------------------------------------------------------------------------------------------

free_port() {
  in_namespace "$near" python3 -c 'import socket; s = socket.create_server(("127.0.0.1", 0)); print(s.getsockname()[1])'
}

start_model() {
  python3 deploy/demo/mkgguf.py "$work/model.gguf"
  start model in_namespace "$near" node deploy/demo/server.mjs "$work/model.gguf"
  await_ready model "$started" out 20 || die "the model server did not start"
  model_port=$(awk '/^ready/ { print $2 }' "$work/model.out")
  say "model: llama.cpp, $(($(stat -c %s "$work/model.gguf") / 1000)) KB of random weights, one thread, port $model_port"
}

gateway_listens() { # PORT
  in_namespace "$near" python3 -c 'import socket, sys; socket.create_connection(("127.0.0.1", int(sys.argv[1])), 1)' "$1" 2>/dev/null
}

start_gateway() {
  local listen attempt deadline
  install -d -o "$gateway_user" "$work/gateway"
  for attempt in 1 2 3; do # somebody else may take the port first
    gateway_port=$(free_port)
    listen="listen 127.0.0.1:$gateway_port;"
    [ -z "$far" ] || listen+=" listen $near_address:$gateway_port;"
    sed "s|@WORK@|$work/gateway|; s|@MODEL_PORT@|$model_port|; s|@LISTEN@|$listen|" deploy/demo/nginx.conf.in |
      install -m 644 /dev/stdin "$work/gateway/nginx.conf"
    start gateway in_namespace "$near" setpriv --reuid "$gateway_user" --regid nogroup --clear-groups \
      nginx -e stderr -p "$work/gateway" -c "$work/gateway/nginx.conf"
    deadline=$((SECONDS + 10))
    while running "$started" && [ "$SECONDS" -le "$deadline" ]; do
      if (gateway_listens "$gateway_port"); then
        say "gateway: $(nginx -v 2>&1 | sed 's/.*: //'), as user $gateway_user, port $gateway_port"
        return 0
      fi
      sleep 0.1
    done
    grep -q 'Address already in use' "$work/gateway.err" || break
    say "attempt $attempt: port $gateway_port was taken meanwhile"
  done
  explain gateway
  die "nginx did not start"
}

start_agent() {
  say "agent: $agent, loading its programs"
  : >"$records"
  start agent "$agent" agent --listen 127.0.0.1:0 --socket "$work/agent.sock" --records "$records"
  agent_pid=$started
  await_ready agent "$agent_pid" err 60 || die "the agent did not become ready"
  say "agent: ready"
}

# ask NAME NAMESPACE ADDRESS STREAMS
ask() {
  start "client-$1" in_namespace "$2" node deploy/demo/client.mjs --base-url "http://$3:$gateway_port/v1" --name "$1" \
    --streams "$4" --tokens "$tokens" --start-at "$start_at" --log "$work/client.jsonl"
}

# answered NAME PID: waits for a client and shows its account.
answered() {
  local line
  wait "$2" || {
    explain "client-$1"
    explain gateway
    die "the client '$1' failed"
  }
  while read -r line; do say "  $line"; done <"$work/client-$1.out"
}

run_traffic() {
  local near_client far_client=''
  start_at=$(($(date +%s%3N) + 1000)) # both clients have loaded by then
  requests=$near_streams
  ask near "$near" 127.0.0.1 "$near_streams"
  near_client=$started
  if [ -n "$far" ]; then
    requests=$((near_streams + far_streams))
    ask far "$far" "$near_address" "$far_streams"
    far_client=$started
  fi
  say "asking: $requests streams of $tokens tokens at once, by the OpenAI SDK"
  answered near "$near_client"
  [ -z "$far_client" ] || answered far "$far_client"
}

keep_files() {
  [ -z "$keep_client_log" ] || cp "$work/client.jsonl" "$keep_client_log"
  [ -n "$keep_records" ] || return 0
  cp "$work/demo.jsonl" "$keep_records"
  say "kept the records in $keep_records"
}

collect_records() {
  local found others wanted=$((requests * records_per_request)) status=0 stopped=0
  node deploy/demo/records.mjs "$records" "$work/client.jsonl" "$records_per_request" 10 "$work/demo.jsonl" >"$work/count" || status=1
  read -r found others <"$work/count"
  say "records: $found of $wanted ($requests requests, each seen at $records_per_request sockets)"
  [ "$others" -eq 0 ] || say "records: left out $others of other requests on this machine"
  stop "$agent_pid" 5 || stopped=$?
  [ "$stopped" -eq 0 ] || {
    explain agent
    die "the agent did not stop cleanly within 5 s of SIGTERM (exit status $stopped)"
  }
  say "agent: stopped"
  keep_files
  if [ "$status" -ne 0 ]; then
    explain agent
    say "the records that there are:"
    "$agent" show "$work/demo.jsonl" >&2 || true
    die "expected $wanted records, got $found"
  fi
}

# ------------------------------------------------------------------------------------------------------------------------

parse_arguments "$@"
check_machine
trap cleanup EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP
work=$(mktemp -d /tmp/inferwire-demo.XXXXXX) # not $TMPDIR, which may be closed to the gateway's user
chmod 711 "$work"
records=$work/records.jsonl

lay_wire
start_model
start_gateway
start_agent
run_traffic
collect_records
say "inferwire show:"
"$agent" show "$work/demo.jsonl"
