// SPDX-License-Identifier: Apache-2.0
#include "tests/bench/load/server.h"

#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <memory>
#include <queue>
#include <string>
#include <unordered_map>
#include <vector>

#include "tests/bench/load/event.h"
#include "tests/support/base/clock.h"
#include "tests/support/base/socket.h"

namespace inferwire::bench {

namespace {

volatile std::sig_atomic_t stop_asked = 0;

void ask_stop(int) { stop_asked = 1; }

struct Connection {
  rig::Fd fd;
  std::string input;
  std::string unsent;  // what the socket did not take
  bool echo = false;
  // The stream being written.
  bool streaming = false;
  unsigned events_left = 0;
  std::int64_t period_ns = 0;
  std::int64_t due_ns = 0;
};

struct Due {
  std::int64_t at_ns;
  int fd;
  bool operator<(const Due& other) const { return at_ns > other.at_ns; }
};

class Server {
 public:
  Server(int listener, Report& report) : listener_(listener), report_(report), epoll_(epoll_create1(EPOLL_CLOEXEC)) {
    if (!epoll_.valid()) rig::fatal_errno("epoll_create1");
    watch(listener_, EPOLLIN);
  }

  void run() {
    std::array<epoll_event, 256> ready{};
    while (!stop_asked) {
      const std::int64_t now_ns = rig::monotonic_ns();
      std::int64_t wait_ns = 200'000'000;
      if (!due_.empty()) wait_ns = std::clamp<std::int64_t>(due_.top().at_ns - now_ns, 0, wait_ns);
      if (!flat_out_.empty()) wait_ns = 0;
      const timespec wait{wait_ns / 1'000'000'000, wait_ns % 1'000'000'000};
      const int n = epoll_pwait2(epoll_.get(), ready.data(), static_cast<int>(ready.size()), &wait, nullptr);
      if (n < 0 && errno != EINTR) rig::fatal_errno("epoll_pwait2");
      for (int i = 0; i < n; i++) {
        const auto& event = ready[static_cast<std::size_t>(i)];
        if (event.data.fd == listener_) {
          accept_all();
        } else {
          on_ready(event.data.fd, event.events);
        }
      }
      write_due();
      write_flat_out();
    }
  }

 private:
  void watch(int fd, std::uint32_t events) {
    epoll_event event{};
    event.events = events;
    event.data.fd = fd;
    if (epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event) != 0) rig::fatal_errno("epoll_ctl");
  }

  void rewatch(int fd, std::uint32_t events) {
    epoll_event event{};
    event.events = events;
    event.data.fd = fd;
    if (epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, fd, &event) != 0) rig::fatal_errno("epoll_ctl");
  }

  void accept_all() {
    // A few at a time: streams that are due do not wait for a burst of new ones.
    for (int i = 0; i < 16; i++) {
      rig::Fd fd(accept4(listener_, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
      if (!fd.valid()) {
        if (errno == EAGAIN || errno == EINTR || errno == ECONNABORTED) return;
        rig::fatal_errno("accept4");
      }
      rig::set_option(fd.get(), IPPROTO_TCP, TCP_NODELAY, 1, "TCP_NODELAY");
      const int number = fd.get();
      watch(number, EPOLLIN);
      auto connection = std::make_unique<Connection>();
      connection->fd = std::move(fd);
      connections_[number] = std::move(connection);
      report_.connections++;
    }
  }

  void close_connection(int fd) {
    const auto found = connections_.find(fd);
    if (found == connections_.end()) return;
    if (found->second->streaming) report_.failed++;
    connections_.erase(found);
  }

  void on_ready(int fd, std::uint32_t events) {
    const auto found = connections_.find(fd);
    if (found == connections_.end()) return;
    Connection& c = *found->second;
    if (events & EPOLLOUT && !c.unsent.empty()) {
      std::string text;
      text.swap(c.unsent);
      if (!put(c, text)) return;
      if (c.unsent.empty()) rewatch(fd, EPOLLIN);
    }
    if (!(events & (EPOLLIN | EPOLLHUP | EPOLLERR))) return;
    std::array<char, 65536> buffer;  // NOLINT: filled by read
    const ssize_t n = read(fd, buffer.data(), buffer.size());
    if (n <= 0) {
      if (n == 0 || (errno != EAGAIN && errno != EINTR)) close_connection(fd);
      return;
    }
    report_.bytes += static_cast<std::uint64_t>(n);
    const std::string_view got(buffer.data(), static_cast<std::size_t>(n));
    if (c.input.empty() && !c.echo && got[0] != 'P' && got[0] != 'G') c.echo = true;
    if (c.echo) {
      report_.requests++;
      put(c, got);
      return;
    }
    c.input += got;
    take_requests(c);
  }

  void take_requests(Connection& c) {
    while (!c.streaming) {
      const std::size_t head = c.input.find("\r\n\r\n");
      if (head == std::string::npos) return;
      std::size_t whole = head + 4;
      if (const std::size_t at = c.input.find("content-length: "); at < head) {
        whole += std::stoul(c.input.substr(at + 16, 12));
      }
      if (c.input.size() < whole) return;
      report_.requests++;
      if (c.input[0] == 'G') {
        c.input.erase(0, whole);
        if (!put(c, kSmallAnswer)) return;
        report_.completed++;
        continue;
      }
      unsigned events = 1;
      unsigned delay_ms = 0;
      double per_second = 10;
      if (const std::size_t at = c.input.find("x-pace: "); at < head) {
        if (std::sscanf(c.input.c_str() + at, "x-pace: %u %lf %u", &events, &per_second, &delay_ms) != 3) {
          rig::fatal("a request with a strange x-pace header");
        }
      }
      c.input.erase(0, whole);
      c.streaming = true;
      c.events_left = events;
      c.period_ns = per_second > 0 ? static_cast<std::int64_t>(1e9 / per_second) : 0;
      c.due_ns = rig::monotonic_ns() + static_cast<std::int64_t>(delay_ms) * 1'000'000;
      if (!put(c, kStreamHead) || !put(c, role_)) return;
      if (c.period_ns) {
        due_.push({c.due_ns, c.fd.get()});
      } else {
        flat_out_.push_back(c.fd.get());
      }
    }
  }

  // Returns false when the connection is gone.
  bool put(Connection& c, std::string_view text) {
    if (!c.unsent.empty()) {
      c.unsent += text;
      return true;
    }
    const ssize_t n = send(c.fd.get(), text.data(), text.size(), MSG_NOSIGNAL);
    if (n < 0 && errno != EAGAIN) {
      close_connection(c.fd.get());
      return false;
    }
    const std::size_t sent = n < 0 ? 0 : static_cast<std::size_t>(n);
    if (sent < text.size()) {
      report_.blocked++;
      c.unsent = text.substr(sent);
      rewatch(c.fd.get(), EPOLLIN | EPOLLOUT);
    }
    return true;
  }

  // One event of a stream, or its end. Returns false when there is nothing more to write.
  bool write_event(Connection& c) {
    if (c.events_left == 0) {
      c.streaming = false;
      report_.completed++;
      if (put(c, last_)) take_requests(c);
      return false;
    }
    c.events_left--;
    if (!put(c, content_)) return false;
    report_.events++;
    return true;
  }

  void write_due() {
    std::int64_t now_ns = rig::monotonic_ns();
    // Bounded, so that new connections are served while the load is too much.
    for (int i = 0; i < 512 && !due_.empty() && due_.top().at_ns <= now_ns; i++) {
      const Due due = due_.top();
      due_.pop();
      const auto found = connections_.find(due.fd);
      if (found == connections_.end() || !found->second->streaming || found->second->due_ns != due.at_ns) continue;
      Connection& c = *found->second;
      if (c.events_left) report_.lag.add(now_ns - due.at_ns);
      if (write_event(c)) {
        c.due_ns += c.period_ns;
        due_.push({c.due_ns, due.fd});
      }
      if (i % 16 == 15) now_ns = rig::monotonic_ns();
    }
  }

  void write_flat_out() {
    std::vector<int> still;
    for (const int fd : flat_out_) {
      const auto found = connections_.find(fd);
      if (found == connections_.end() || !found->second->streaming) continue;
      if (!found->second->unsent.empty() || write_event(*found->second)) still.push_back(fd);
    }
    flat_out_.swap(still);
  }

  int listener_;
  Report& report_;
  rig::Fd epoll_;
  std::unordered_map<int, std::unique_ptr<Connection>> connections_;
  std::priority_queue<Due> due_;
  std::vector<int> flat_out_;
  const std::string role_ = role_event();
  const std::string content_ = content_event();
  const std::string last_ = last_events();
};

}  // namespace

void serve(int listener, Report& report) {
  std::signal(SIGTERM, ask_stop);
  std::signal(SIGINT, ask_stop);
  Server(listener, report).run();
}

}  // namespace inferwire::bench
