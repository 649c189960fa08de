// SPDX-License-Identifier: Apache-2.0
// inferwire-client: asks scripted servers and logs when it read each event. It runs a plan (JSON,
// from --plan): many connections at once, a thread each, requests one after the other on each.
//
//   {"connections": [{"host": "127.0.0.1", "port": 8000, "start_ms": 0, "receive_buffer_bytes": 0,
//     "fast_open": false,           the first request goes with the SYN, where the kernel has or needs no cookie
//     "requests": [{"tag": "s1", "path": "/v1/chat/completions", "body": "...", "headers": {},
//       "method": "POST",
//       "wait_ms": 0,             before the request, after the connection or the last response
//       "pad_bytes": 0,           spaces behind the body, so that it is so long in all
//       "piece_bytes": 0, "piece_gap_ms": 0,    send the request in such pieces
//       "abort_after_events": 0, "abort": "fin" | "rst",
//       "pause_after_events": 0, "pause_ms": 0,  stop reading for a while
//       "timeout_ms": 60000}]}]}
//
// Exit 0 when every request got some logged outcome; the log says which.
#include <poll.h>
#include <sys/prctl.h>

#include <CLI/CLI.hpp>
#include <array>
#include <csignal>
#include <fstream>
#include <optional>
#include <thread>
#include <vector>

#include "tests/support/base/clock.h"
#include "tests/support/base/json_lines.h"
#include "tests/support/base/socket.h"
#include "tests/support/clients/response_reader.h"

namespace inferwire::rig {
namespace {

using Json = nlohmann::json;
constexpr std::size_t kMaxLoggedReads = 100'000;

std::int64_t milliseconds(const Json& object, const char* name, double fallback = 0) {
  return static_cast<std::int64_t>(object.value(name, fallback) * 1e6);
}

class ClientConnection {
 public:
  ClientConnection(const Json& plan, JsonLines& log) : plan_(plan), log_(log) {}

  void run(std::int64_t start_ns) {
    sleep_until_ns(start_ns + milliseconds(plan_, "start_ms"));
    open();
    std::uint64_t ordinal = 0;
    for (const auto& request : plan_.at("requests")) {
      if (!socket_.valid()) return;
      sleep_until_ns(monotonic_ns() + milliseconds(request, "wait_ms"));
      ask(request, ++ordinal);
    }
  }

 private:
  void open() {
    const Endpoint target{plan_.at("host"), plan_.at("port")};
    socklen_t length = 0;
    const sockaddr_storage address = make_address(target, length);
    socket_ = Fd(socket(address.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
    if (const int bytes = plan_.value("receive_buffer_bytes", 0); bytes > 0) {
      set_option(socket_.get(), SOL_SOCKET, SO_RCVBUF, bytes, "SO_RCVBUF");
    }
    if (plan_.value("fast_open", false)) {
      set_option(socket_.get(), IPPROTO_TCP, TCP_FASTOPEN_CONNECT, 1, "TCP_FASTOPEN_CONNECT");
    }
    connect_before_ns_ = monotonic_ns();
    if (connect(socket_.get(), reinterpret_cast<const sockaddr*>(&address), length) != 0) {
      log_.append({{"client", "cpp"},
                   {"tag", plan_.at("requests").at(0).at("tag")},
                   {"outcome", std::string("connect: ") + std::strerror(errno)}});
      socket_.reset();
      return;
    }
    connect_after_ns_ = monotonic_ns();
    set_option(socket_.get(), IPPROTO_TCP, TCP_NODELAY, 1, "TCP_NODELAY");
  }

  std::string request_bytes(const Json& request) const {
    std::string body = request.value("body", "");
    if (const auto pad = request.value("pad_bytes", std::size_t{0}); pad > body.size()) {
      body.resize(pad, ' ');
    }
    std::string bytes =
        request.value("method", "POST") + " " + request.value("path", "/v1/chat/completions") + " HTTP/1.1\r\n";
    bytes += "host: rig\r\nuser-agent: inferwire-client\r\ncontent-type: application/json\r\n";
    bytes += "x-tag: " + request.at("tag").get<std::string>() + "\r\n";
    const Json headers = request.value("headers", Json::object());
    for (const auto& [name, value] : headers.items()) {
      bytes += name + ": " + value.get<std::string>() + "\r\n";
    }
    bytes += "content-length: " + std::to_string(body.size()) + "\r\n\r\n";
    return bytes + body;
  }

  // False when the peer refuses more bytes: then the response says why.
  bool send_request(const Json& request, nlohmann::ordered_json& line) {
    const std::string bytes = request_bytes(request);
    const std::size_t piece = request.value("piece_bytes", bytes.size());
    const std::int64_t gap_ns = milliseconds(request, "piece_gap_ms");
    line["request_bytes"] = bytes.size();
    line["sent_first_ns"] = monotonic_ns();
    bool sent_all = true;
    for (std::size_t at = 0; at < bytes.size() && sent_all;) {
      const ssize_t sent = send(socket_.get(), bytes.data() + at, std::min(piece, bytes.size() - at), MSG_NOSIGNAL);
      sent_all = sent > 0;
      at += sent_all ? static_cast<std::size_t>(sent) : 0;
      if (gap_ns > 0 && at < bytes.size()) sleep_until_ns(monotonic_ns() + gap_ns);
    }
    line["sent_last_ns"] = monotonic_ns();
    return sent_all;
  }

  void ask(const Json& request, std::uint64_t ordinal) {
    nlohmann::ordered_json line{{"client", "cpp"},
                                {"tag", request.at("tag")},
                                {"local_port", local_endpoint(socket_.get()).port},
                                {"remote_port", plan_.at("port")},
                                {"ordinal", ordinal},
                                {"connect_ns", nullptr}};
    if (ordinal == 1) line["connect_ns"] = {connect_before_ns_, connect_after_ns_};
    line["sent_all"] = send_request(request, line);
    read_response(request, line);
    log_.append(line);
  }

  void read_response(const Json& request, nlohmann::ordered_json& line) {
    ResponseReader reader;
    auto reads = nlohmann::ordered_json::array();
    auto events = nlohmann::ordered_json::array();
    const std::size_t abort_after = request.value("abort_after_events", std::size_t{0});
    std::size_t pause_after = request.value("pause_after_events", std::size_t{0});
    std::int64_t end_ns = 0;
    std::string outcome;
    std::uint64_t taken = 0;
    const auto timeout_ms = static_cast<int>(request.value("timeout_ms", 60000));
    while (outcome.empty()) {
      const std::string error = receive(timeout_ms);
      const std::int64_t now_ns = monotonic_ns();
      if (!error.empty()) {
        // After data, the end of the response is its last byte; an error is an end of its own.
        outcome = error == "fin" && reader.end_of_connection() ? "complete" : error;
        if (end_ns == 0 || outcome != "complete") end_ns = now_ns;
        socket_.reset();
        break;
      }
      const std::size_t used = reader.feed(buffer_);
      buffer_.erase(0, used);
      taken += used;
      end_ns = now_ns;
      if (reads.size() < kMaxLoggedReads) reads.push_back({now_ns, taken});
      while (events.size() < reader.events().size()) {
        const auto& event = reader.events()[events.size()];
        events.push_back({now_ns, std::string(1, event.kind), received_before_ + event.end_byte});
      }
      if (reader.malformed()) outcome = "malformed";
      if (reader.complete()) outcome = "complete";
      if (outcome.empty() && abort_after > 0 && events.size() >= abort_after) {
        outcome = "aborted";
        if (request.value("abort", "fin") == "rst") reset_on_close(socket_.get());
        end_ns = monotonic_ns();
        socket_.reset();
      }
      if (pause_after > 0 && events.size() >= pause_after) {
        pause_after = 0;
        sleep_until_ns(monotonic_ns() + milliseconds(request, "pause_ms"));
      }
    }
    received_before_ += taken;
    line["status"] = reader.status();
    line["reads"] = std::move(reads);
    line["events"] = std::move(events);
    line["end_ns"] = end_ns;
    line["outcome"] = outcome;
    line["body_bytes"] = reader.body_bytes();
    line["body_hash"] = std::to_string(reader.body_hash());
  }

  // Appends what one recv gives to `buffer_`, unless bytes are left there. Empty, or what went wrong.
  std::string receive(int timeout_ms) {
    if (!buffer_.empty()) return "";
    pollfd wait{socket_.get(), POLLIN, 0};
    if (poll(&wait, 1, timeout_ms) == 0) return "timeout";
    std::array<char, 65536> bytes;
    const ssize_t count = recv(socket_.get(), bytes.data(), bytes.size(), 0);
    if (count < 0) return errno == ECONNRESET ? "rst" : std::strerror(errno);
    if (count == 0) return "fin";
    buffer_.append(bytes.data(), static_cast<std::size_t>(count));
    return "";
  }

  const Json& plan_;
  JsonLines& log_;
  Fd socket_;
  std::string buffer_;
  std::uint64_t received_before_ = 0;  // bytes of earlier responses of this connection
  std::int64_t connect_before_ns_ = 0;
  std::int64_t connect_after_ns_ = 0;
};

int run(int argc, char** argv) {
  std::string plan_path;
  std::string log_path;
  CLI::App app{"Asks scripted servers and logs when it read each event"};
  app.add_option("--plan", plan_path, "what to do (see the head of the source)")->required();
  app.add_option("--log", log_path, "append a JSON line per request")->required();
  CLI11_PARSE(app, argc, argv);

  std::ifstream file(plan_path);
  if (!file) fatal_errno("opening the plan " + plan_path);
  nlohmann::json plan;
  try {
    plan = nlohmann::json::parse(file);
  } catch (const nlohmann::json::exception& error) {
    fatal("reading the plan " + plan_path + ": " + error.what());
  }
  JsonLines log(log_path);
  const std::int64_t start_ns = monotonic_ns() + 10'000'000;
  std::vector<std::thread> threads;
  for (const auto& connection : plan.at("connections")) {
    threads.emplace_back([&connection, &log, start_ns] {
      prctl(PR_SET_TIMERSLACK, 1UL, 0UL, 0UL, 0UL);
      ClientConnection(connection, log).run(start_ns);
    });
  }
  for (auto& thread : threads) thread.join();
  return 0;
}

}  // namespace
}  // namespace inferwire::rig

int main(int argc, char** argv) { return inferwire::rig::run(argc, argv); }
