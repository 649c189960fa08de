// SPDX-License-Identifier: Apache-2.0
#include "tests/bench/load/client.h"

#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <random>
#include <string_view>
#include <vector>

#include "tests/bench/load/event.h"
#include "tests/support/base/clock.h"
#include "tests/support/base/socket.h"

namespace inferwire::bench {

namespace {

constexpr std::size_t kEchoBytes = 64;

struct Asker {
  rig::Fd fd;
  bool connected = false;
  std::size_t got = 0;  // bytes of the answer so far
  std::string tail;     // last bytes of a stream
  std::string request;
};

class Client {
 public:
  Client(const ClientPlan& plan, Report& report)
      : plan_(plan), report_(report), epoll_(epoll_create1(EPOLL_CLOEXEC)), askers_(plan.connections) {
    if (!epoll_.valid()) rig::fatal_errno("epoll_create1");
  }

  void run() {
    std::mt19937_64 random(plan_.seed);
    end_ns_ = rig::monotonic_ns() + static_cast<std::int64_t>(plan_.seconds * 1e9);
    std::size_t opened = 0;
    open_ = 0;
    while (rig::monotonic_ns() < end_ns_ && (opened < askers_.size() || open_ > 0)) {
      // Few handshakes at a time: the listener's queue never overflows.
      for (int i = 0; i < 32 && opened < askers_.size() && connecting_ < 64; i++) open(opened++, random);
      poll(opened < askers_.size() ? 1 : 50);
    }
    report_.failed += open_ * (plan_.traffic == Traffic::kStream ? 1 : 0) + (askers_.size() - opened);
  }

 private:
  void open(std::size_t index, std::mt19937_64& random) {
    Asker& a = askers_[index];
    a.fd = rig::Fd(socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
    if (!a.fd.valid()) rig::fatal_errno("socket");
    rig::set_option(a.fd.get(), IPPROTO_TCP, TCP_NODELAY, 1, "TCP_NODELAY");
    const unsigned delay_ms = plan_.stagger_ms ? static_cast<unsigned>(random() % plan_.stagger_ms) : 0;
    a.request = plan_.traffic == Traffic::kStream  ? stream_request(plan_.events, plan_.per_second, delay_ms)
                : plan_.traffic == Traffic::kSmall ? small_request()
                                                   : std::string(kEchoBytes, '\x01');
    socklen_t length = 0;
    const sockaddr_storage to = rig::make_address({"127.0.0.1", plan_.port}, length);
    if (connect(a.fd.get(), reinterpret_cast<const sockaddr*>(&to), length) != 0 && errno != EINPROGRESS) {
      rig::fatal_errno("connecting to the load's server");
    }
    epoll_event event{};
    event.events = EPOLLOUT;
    event.data.u64 = index;
    if (epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, a.fd.get(), &event) != 0) rig::fatal_errno("epoll_ctl");
    open_++;
    connecting_++;
  }

  void send_request(Asker& a) {
    a.got = 0;
    if (send(a.fd.get(), a.request.data(), a.request.size(), MSG_NOSIGNAL) != static_cast<ssize_t>(a.request.size())) {
      return close(a, false);
    }
    report_.requests++;
  }

  void close(Asker& a, bool complete) {
    if (complete) {
      report_.completed++;
    } else {
      report_.failed++;
    }
    a.fd.reset();
    open_--;
  }

  void poll(int wait_ms) {
    std::array<epoll_event, 256> ready{};
    const int n = epoll_wait(epoll_.get(), ready.data(), static_cast<int>(ready.size()), wait_ms);
    if (n < 0 && errno != EINTR) rig::fatal_errno("epoll_wait");
    for (int i = 0; i < n; i++) {
      const auto& event = ready[static_cast<std::size_t>(i)];
      Asker& a = askers_[event.data.u64];
      if (!a.fd.valid()) continue;
      if (!a.connected) {
        a.connected = true;
        connecting_--;
        report_.connections++;
        epoll_event change{};
        change.events = EPOLLIN;
        change.data.u64 = event.data.u64;
        if (epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, a.fd.get(), &change) != 0) rig::fatal_errno("epoll_ctl");
        send_request(a);
        continue;
      }
      take(a);
    }
  }

  void take(Asker& a) {
    const ssize_t n = read(a.fd.get(), buffer_.data(), buffer_.size());
    if (n <= 0) {
      if (n == 0 || (errno != EAGAIN && errno != EINTR)) close(a, false);
      return;
    }
    const std::string_view got(buffer_.data(), static_cast<std::size_t>(n));
    a.got += got.size();
    report_.bytes += got.size();
    if (plan_.traffic == Traffic::kStream) {
      a.tail += got.substr(got.size() > 16 ? got.size() - 16 : 0);
      if (a.tail.size() > 16) a.tail.erase(0, a.tail.size() - 16);
      if (a.tail.ends_with("\r\n0\r\n\r\n")) {
        if (a.got != stream_bytes_) {
          close(a, false);
          return;
        }
        report_.events += plan_.events;
        close(a, true);
      }
      return;
    }
    const std::size_t whole = plan_.traffic == Traffic::kSmall ? kSmallAnswer.size() : kEchoBytes;
    if (a.got >= whole) {
      report_.completed++;
      send_request(a);
    }
  }

  const ClientPlan& plan_;
  Report& report_;
  rig::Fd epoll_;
  std::vector<Asker> askers_;
  std::array<char, 65536> buffer_{};
  std::uint64_t open_ = 0;
  unsigned connecting_ = 0;
  std::int64_t end_ns_ = 0;
  const std::size_t stream_bytes_ =
      kStreamHead.size() + role_event().size() + plan_.events * content_event().size() + last_events().size();
};

}  // namespace

void ask(const ClientPlan& plan, Report& report) { Client(plan, report).run(); }

}  // namespace inferwire::bench
