// SPDX-License-Identifier: Apache-2.0
#include "tests/support/servers/raw/connection.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <utility>

#include "tests/support/base/clock.h"

namespace inferwire::rig {
namespace {

constexpr std::size_t kMaxHeadBytes = 64 * 1024;

std::string lower(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return text;
}

std::string hex(std::size_t number) {
  std::array<char, 20> text{};
  std::snprintf(text.data(), text.size(), "%zx", number);
  return text.data();
}

std::string chunked(const std::string& bytes) {
  return bytes.empty() ? "" : hex(bytes.size()) + "\r\n" + bytes + "\r\n";
}

}  // namespace

Connection::Connection(Fd socket, Endpoint remote, std::int64_t accepted_ns, const ServeOptions& options,
                       JsonLines& log)
    : socket_(std::move(socket)), remote_(std::move(remote)), accepted_ns_(accepted_ns), options_(options), log_(log) {}

void Connection::serve() {
  if (options_.read_delay_ns > 0) sleep_until_ns(monotonic_ns() + options_.read_delay_ns);
  while (auto request = read_head()) {
    if (!answer(*request)) return;
  }
}

bool Connection::fill() {
  std::array<char, 65536> bytes;
  const ssize_t count = recv(socket_.get(), bytes.data(), bytes.size(), 0);
  if (count <= 0) return false;
  buffer_.append(bytes.data(), static_cast<std::size_t>(count));
  return true;
}

std::optional<Connection::Request> Connection::read_head() {
  std::size_t end = 0;
  while ((end = buffer_.find("\r\n\r\n")) == std::string::npos) {
    if (buffer_.size() > kMaxHeadBytes || !fill()) return std::nullopt;
  }
  Request request;
  request.head_ns = monotonic_ns();
  std::size_t at = buffer_.find("\r\n");
  request.method = buffer_.substr(0, buffer_.find(' '));
  while (at < end) {
    const std::size_t start = at + 2;
    at = buffer_.find("\r\n", start);
    const std::string header = buffer_.substr(start, at - start);
    const std::size_t colon = header.find(':');
    if (colon == std::string::npos) return std::nullopt;
    const std::size_t value = header.find_first_not_of(' ', colon + 1);
    request.headers[lower(header.substr(0, colon))] = value == std::string::npos ? "" : header.substr(value);
  }
  buffer_.erase(0, end + 4);
  if (const auto length = request.headers.find("content-length"); length != request.headers.end()) {
    request.body_bytes_left = std::stoul(length->second);
  }
  return request;
}

bool Connection::read_body(Request& request) {
  if (lower(request.headers["expect"]) == "100-continue" && buffer_.empty()) {
    const std::string proceed = "HTTP/1.1 100 Continue\r\n\r\n";
    if (!send_all(proceed.data(), proceed.size(), 0)) return false;
  }
  while (buffer_.size() < request.body_bytes_left) {
    if (!fill()) return false;
  }
  request.read_ns = monotonic_ns();
  request.body = buffer_.substr(0, request.body_bytes_left);
  buffer_.erase(0, request.body_bytes_left);
  request.body_bytes_left = 0;
  return true;
}

bool Connection::answer(const Request& head) {
  Request request = head;
  const auto header = request.headers.find("x-script");
  line_ = {{"server", "cpp"},
           {"tag", request.headers["x-tag"]},
           {"local_port", local_endpoint(socket_.get()).port},
           {"remote", remote_.address},
           {"remote_port", remote_.port},
           {"ordinal", ++ordinal_},
           {"accepted_ns", ordinal_ == 1 ? nlohmann::ordered_json(accepted_ns_) : nullptr},
           {"head_ns", request.head_ns},
           {"request_read_ns", nullptr},
           {"status", 0},
           {"head_write", nullptr},
           {"steps", nlohmann::ordered_json::array()},
           {"end", "aborted"},
           {"end_ns", 0},
           {"body_bytes", 0},
           {"error", nullptr}};
  bool alive = false;
  try {
    Script script;
    if (header != request.headers.end()) script = parse_script(nlohmann::json::parse(header->second));
    if (!script.early_answer) {
      if (!read_body(request)) throw std::runtime_error("the request ended early");
      line_["request_read_ns"] = request.read_ns;
      if (header == request.headers.end()) {
        script = parse_script(nlohmann::json::parse(request.body).at("script"));
      }
    }
    line_["status"] = script.status;
    alive = play(script, request);
  } catch (const std::exception& error) {
    line_["error"] = error.what();
  }
  line_["end_ns"] = monotonic_ns();
  log_.append(line_);
  return alive;
}

bool Connection::play(const Script& script, const Request& request) {
  const std::int64_t start_ns = script.early_answer ? request.head_ns : request.read_ns;
  if (script.interim != 0) {
    const std::string interim = "HTTP/1.1 " + std::to_string(script.interim) + " Interim\r\n\r\n";
    if (!send_all(interim.data(), interim.size(), 0)) return false;
  }
  std::size_t body_bytes = 0;
  std::uint64_t number = 0;
  for (const auto& step : script.steps) body_bytes += render(script, step.kinds, number).size();
  line_["body_bytes"] = body_bytes;

  std::string head = response_head(script, body_bytes);
  if (script.head_early) {
    const std::int64_t before = monotonic_ns();
    if (!send_all(head.data(), head.size(), script.more ? MSG_MORE : 0)) return false;
    line_["head_write"] = {before, monotonic_ns()};
    head.clear();
  }
  if (!write_steps(script, start_ns, head)) return false;
  line_["end"] = script.end;
  if (script.end == "rst") reset_on_close(socket_.get());
  if (script.early_answer) drain_upload(request.body_bytes_left);
  return script.end == "clean" && script.body != "close" && !script.early_answer;
}

std::string Connection::response_head(const Script& script, std::size_t body_bytes) const {
  std::string head = "HTTP/1.1 " + std::to_string(script.status) + " Scripted\r\n";
  head += "content-type: " + script.content_type + "\r\n";
  for (const auto& [name, value] : script.headers) head += name + ": " + value + "\r\n";
  if (script.body == "chunked") head += "transfer-encoding: chunked\r\n";
  if (script.body == "length") head += "content-length: " + std::to_string(body_bytes) + "\r\n";
  if (script.body == "close" || script.early_answer) head += "connection: close\r\n";
  return head + "\r\n";
}

bool Connection::write_steps(const Script& script, std::int64_t start_ns, const std::string& held_head) {
  std::vector<Step> steps = script.steps;
  if (script.single) {
    Step all;
    for (const auto& step : steps) {
      all.wait_ns += step.wait_ns;
      all.kinds += step.kinds;
    }
    steps = {all};
  }
  std::int64_t due_ns = start_ns;
  std::uint64_t number = 0;
  for (std::size_t i = 0; i < steps.size(); ++i) {
    const bool last = i + 1 == steps.size();
    std::string bytes = render(script, steps[i].kinds, number);
    if (script.body == "chunked") bytes = chunked(bytes);
    if (i == 0) bytes.insert(0, held_head);
    if (last && script.end == "clean" && script.body == "chunked") bytes += "0\r\n\r\n";
    due_ns += steps[i].wait_ns;
    sleep_until_ns(due_ns);
    const std::int64_t before = monotonic_ns();
    const bool written = write_pieces(script, bytes, last);
    line_["steps"].push_back({before, monotonic_ns(), steps[i].kinds});
    if (!written) return false;
  }
  return true;
}

bool Connection::write_pieces(const Script& script, const std::string& bytes, bool last) {
  const std::size_t piece = script.piece_bytes == 0 ? bytes.size() : script.piece_bytes;
  for (std::size_t at = 0; at < bytes.size(); at += piece) {
    const std::size_t count = std::min(piece, bytes.size() - at);
    const bool more = script.more && !(last && at + count == bytes.size());
    if (!send_all(bytes.data() + at, count, more ? MSG_MORE : 0)) return false;
  }
  return true;
}

bool Connection::send_all(const char* bytes, std::size_t count, int flags) {
  while (count > 0) {
    const ssize_t sent = send(socket_.get(), bytes, count, flags | MSG_NOSIGNAL);
    if (sent < 0) {
      line_["error"] = std::string("sending: ") + std::strerror(errno);
      return false;
    }
    bytes += sent;
    count -= static_cast<std::size_t>(sent);
  }
  return true;
}

// Reads the rest of an upload that was answered early: closing with unread bytes would send RST and
// could take the answer away from the client.
void Connection::drain_upload(std::size_t bytes) {
  shutdown(socket_.get(), SHUT_WR);
  std::size_t drained = std::min(bytes, buffer_.size());
  while (drained < bytes) {
    buffer_.clear();
    if (!fill()) return;
    drained += buffer_.size();
  }
}

}  // namespace inferwire::rig
