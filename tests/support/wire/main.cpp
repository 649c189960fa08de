// SPDX-License-Identifier: Apache-2.0
// inferwire-wire: a cable between two network namespaces with delay, loss, reordering, duplication
// and corruption, for kernels without netem. It copies IP packets between two TUN devices through a
// line ordered by time. `ready` on standard output says that both ends are up; SIGTERM ends it with
// exit 0 and the devices are gone. With --control, lines on standard input change it while it runs:
// `black_hole on`, `black_hole off`, `delay_ms MILLISECONDS` (both directions; what is on its way keeps its delay).
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/timerfd.h>

#include <CLI/CLI.hpp>
#include <array>
#include <charconv>
#include <csignal>
#include <cstdio>
#include <string>
#include <vector>

#include "tests/support/base/clock.h"
#include "tests/support/base/fatal.h"
#include "tests/support/base/fd.h"
#include "tests/support/base/json_lines.h"
#include "tests/support/wire/delay_line.h"
#include "tests/support/wire/impairment.h"
#include "tests/support/wire/packet.h"
#include "tests/support/wire/tun.h"

namespace inferwire::wire {
namespace {

constexpr std::size_t kMaxPacketBytes = 65536;
constexpr std::size_t kMaxPacketsInLine = 100'000;  // beyond: dropped as `overflow`

struct Options {
  std::array<TunEnd, 2> ends;
  std::array<Impairment, 2> impairments;
  std::string device = "wire0";
  std::string log_path;
  int mtu = 1500;
  std::uint64_t seed = 1;
  bool control = false;
};

Time now() { return Time(rig::monotonic_ns()); }

std::uint64_t parse_number(const std::string& text) {
  std::uint64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size() || number == 0) {
    rig::fatal("not a number of at least 1: '" + text + "'");
  }
  return number;
}

double parse_real(const std::string& text) {
  char* end = nullptr;
  const double real = std::strtod(text.c_str(), &end);
  if (text.empty() || *end != '\0' || real < 0) rig::fatal("not a number: '" + text + "'");
  return real;
}

// Splits `a2b:VALUE`, `b2a:VALUE` or `VALUE` (both directions).
std::vector<std::size_t> take_directions(std::string& value) {
  if (value.rfind("a2b:", 0) == 0 || value.rfind("b2a:", 0) == 0) {
    const std::size_t direction = value[0] == 'a' ? 0 : 1;
    value.erase(0, 4);
    return {direction};
  }
  return {0, 1};
}

// Registers an option `--name [a2b:|b2a:]VALUE`, repeatable, that sets `apply` on its directions.
template <typename Apply>
void add_directed(CLI::App& app, Options& options, const std::string& name, const std::string& help, Apply apply) {
  app.add_option_function<std::vector<std::string>>(
      name,
      [&options, apply](const std::vector<std::string>& values) {
        for (std::string value : values) {
          for (const std::size_t direction : take_directions(value)) {
            apply(options.impairments[direction], value);
          }
        }
      },
      help);
}

void add_probability(CLI::App& app, Options& options, const std::string& name, const std::string& help,
                     double Impairment::*member) {
  add_directed(app, options, name, help, [member](Impairment& impairment, const std::string& text) {
    impairment.*member = parse_real(text);
    if (impairment.*member > 1) rig::fatal("a probability is at most 1, not " + text);
  });
}

Time milliseconds(const std::string& text) { return Time(static_cast<std::int64_t>(parse_real(text) * 1e6)); }

void hold_nth(Impairment& impairment, const std::string& text) {
  const auto colon = text.find(':');
  if (colon == std::string::npos) rig::fatal("--hold-nth takes DIR:N:MS, not " + text);
  impairment.hold_nth[parse_number(text.substr(0, colon))] = milliseconds(text.substr(colon + 1));
}

Options parse_options(int argc, char** argv) {
  Options options;
  CLI::App app{"A cable with faults between two network namespaces (values: [a2b:|b2a:]VALUE)"};
  app.add_option("--a", options.ends[0].network_namespace, "namespace of end A")->required();
  app.add_option("--b", options.ends[1].network_namespace, "namespace of end B")->required();
  app.add_option("--a-addr", options.ends[0].addresses, "address of end A, repeatable")->required();
  app.add_option("--b-addr", options.ends[1].addresses, "address of end B, repeatable")->required();
  app.add_option("--device", options.device, "name of both TUN devices");
  app.add_option("--mtu", options.mtu, "bytes, of both devices");
  app.add_option("--seed", options.seed, "of the random generators");
  app.add_option("--log", options.log_path, "append what was done to packets, as JSON lines");
  app.add_flag("--control", options.control, "read commands from standard input");
  add_directed(app, options, "--delay-ms", "one-way delay",
               [](Impairment& i, const std::string& text) { i.delay = milliseconds(text); });
  add_directed(app, options, "--reorder-hold-ms", "longest wait of a reordered packet",
               [](Impairment& i, const std::string& text) { i.reorder_hold = milliseconds(text); });
  add_probability(app, options, "--loss", "probability of loss", &Impairment::loss);
  add_probability(app, options, "--reorder", "probability of being overtaken", &Impairment::reorder);
  add_probability(app, options, "--duplicate", "probability of a copy", &Impairment::duplicate);
  add_probability(app, options, "--corrupt", "probability of a flipped payload bit", &Impairment::corrupt);
  add_directed(app, options, "--drop-nth", "lose the N-th TCP segment with payload",
               [](Impairment& i, const std::string& text) { i.drop_nth.insert(parse_number(text)); });
  add_directed(app, options, "--hold-nth", "delay the N-th segment with payload: [DIR:]N:MS", hold_nth);
  app.add_flag_callback(
      "--drop-third-ack",
      [&options] { options.impairments[0].drop_third_ack = options.impairments[1].drop_third_ack = true; },
      "lose the ACK that ends each handshake");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    std::exit(app.exit(error));
  }
  if (options.ends[0].addresses.size() != options.ends[1].addresses.size()) {
    rig::fatal("--a-addr and --b-addr must come in pairs");
  }
  options.ends[0].peers = options.ends[1].addresses;
  options.ends[1].peers = options.ends[0].addresses;
  return options;
}

class Wire {
 public:
  explicit Wire(const Options& options)
      : impairer_(options.impairments[0], options.impairments[1], options.seed),
        log_(options.log_path),
        devices_{open_tun(options.ends[0], options.device, options.mtu),
                 open_tun(options.ends[1], options.device, options.mtu)},
        buffer_(kMaxPacketBytes) {
    sigset_t signals;
    sigemptyset(&signals);
    sigaddset(&signals, SIGTERM);
    sigaddset(&signals, SIGINT);
    sigprocmask(SIG_BLOCK, &signals, nullptr);
    signals_ = rig::Fd(signalfd(-1, &signals, SFD_CLOEXEC | SFD_NONBLOCK));
    timer_ = rig::Fd(timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK));
    epoll_ = rig::Fd(epoll_create1(EPOLL_CLOEXEC));
    if (!signals_.valid() || !timer_.valid() || !epoll_.valid()) rig::fatal_errno("starting");
    watch(devices_[0].get());
    watch(devices_[1].get());
    watch(signals_.get());
    watch(timer_.get());
    if (options.control) watch(STDIN_FILENO);
  }

  // Runs until SIGTERM or SIGINT.
  void run() {
    while (!stopping_) {
      arm_timer();
      std::array<epoll_event, 8> events{};
      const int count = epoll_wait(epoll_.get(), events.data(), events.size(), -1);
      if (count < 0 && errno != EINTR) rig::fatal_errno("waiting for packets");
      for (int i = 0; i < count; ++i) handle(events[static_cast<std::size_t>(i)].data.fd);
      deliver_due();
    }
    log_.append({{"t_ns", rig::monotonic_ns()},
                 {"action", "end"},
                 {"packets", {{"a2b", received_[0]}, {"b2a", received_[1]}}},
                 {"delivered", {{"a2b", delivered_[0]}, {"b2a", delivered_[1]}}},
                 {"overtaken", line_.overtaken()},
                 {"left_in_line", line_.size()}});
  }

 private:
  void watch(int fd) {
    epoll_event event{};
    event.events = EPOLLIN;
    event.data.fd = fd;
    if (epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event) != 0) rig::fatal_errno("epoll_ctl");
  }

  void handle(int fd) {
    if (fd == signals_.get()) {
      stopping_ = true;
    } else if (fd == timer_.get()) {
      std::uint64_t expirations = 0;
      [[maybe_unused]] const ssize_t bytes = read(fd, &expirations, sizeof(expirations));
    } else if (fd == STDIN_FILENO) {
      read_command();
    } else {
      receive(fd == devices_[0].get() ? Direction::kAToB : Direction::kBToA);
    }
  }

  void receive(Direction direction) {
    const int fd = devices_[static_cast<std::size_t>(direction)].get();
    // Bounded per wake-up, so that due packets of the other direction leave in time.
    for (int i = 0; i < 64; ++i) {
      const ssize_t bytes = read(fd, buffer_.data(), buffer_.size());
      if (bytes < 0 && (errno == EAGAIN || errno == EINTR)) return;
      if (bytes < 0) rig::fatal_errno("reading a packet");
      ++received_[static_cast<std::size_t>(direction)];
      take(direction, Packet(buffer_.begin(), buffer_.begin() + bytes));
    }
  }

  void take(Direction direction, Packet packet) {
    const auto tcp = view_tcp(packet);
    Fate fate = impairer_.judge(direction, tcp);
    if (!fate.dropped && line_.size() >= kMaxPacketsInLine) {
      fate.dropped = true;
      fate.reason = "overflow";
    }
    if (!fate.reason.empty()) log_fate(direction, fate, tcp);
    if (fate.dropped) return;
    if (fate.corrupted) packet[fate.corrupt_byte] ^= fate.corrupt_mask;
    line_.push(now(), direction, fate, impairer_.impairment(direction).reorder_hold, std::move(packet));
  }

  void deliver_due() {
    while (auto delivery = line_.pop_due(now())) {
      const auto out = 1 - static_cast<std::size_t>(delivery->direction);
      const auto& packet = delivery->packet;
      const ssize_t bytes = write(devices_[out].get(), packet.data(), packet.size());
      // A device that refuses (gone down, or out of memory) loses the packet, as a cable would.
      if (bytes == static_cast<ssize_t>(packet.size())) {
        ++delivered_[static_cast<std::size_t>(delivery->direction)];
      }
    }
  }

  void arm_timer() {
    itimerspec when{};
    if (const auto due = line_.next_due()) {
      const std::int64_t ns = std::max<std::int64_t>(due->count(), 1);
      when.it_value = {ns / 1'000'000'000, ns % 1'000'000'000};
    }
    timerfd_settime(timer_.get(), TFD_TIMER_ABSTIME, &when, nullptr);
  }

  void read_command() {
    std::array<char, 256> text{};
    const ssize_t bytes = read(STDIN_FILENO, text.data(), text.size());
    if (bytes <= 0) {
      epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, STDIN_FILENO, nullptr);
      return;
    }
    commands_.append(text.data(), static_cast<std::size_t>(bytes));
    for (auto end = commands_.find('\n'); end != std::string::npos; end = commands_.find('\n')) {
      obey(commands_.substr(0, end));
      commands_.erase(0, end + 1);
    }
  }

  void obey(const std::string& command) {
    if (command == "black_hole on" || command == "black_hole off") {
      impairer_.set_black_hole(command == "black_hole on");
    } else if (command.starts_with("delay_ms ")) {
      impairer_.set_delay(milliseconds(command.substr(std::string("delay_ms ").size())));
    } else {
      std::fprintf(stderr, "unknown command: %s\n", command.c_str());
      return;
    }
    log_.append({{"t_ns", rig::monotonic_ns()}, {"action", "command"}, {"command", command}});
  }

  void log_fate(Direction direction, const Fate& fate, const std::optional<TcpView>& tcp) {
    if (!log_.enabled()) return;
    nlohmann::ordered_json object{{"t_ns", rig::monotonic_ns()},
                                  {"dir", direction_name(direction)},
                                  {"action", fate.dropped ? "drop" : fate.reason},
                                  {"reason", fate.reason}};
    if (tcp) {
      object["n"] = fate.data_number;
      object["src"] = tcp->source;
      object["sport"] = tcp->source_port;
      object["dst"] = tcp->destination;
      object["dport"] = tcp->destination_port;
      object["seq"] = tcp->sequence;
      object["ack"] = tcp->acknowledgment;
      object["flags"] = tcp->flags;
      object["payload_bytes"] = tcp->payload_bytes;
    }
    log_.append(object);
  }

  Impairer impairer_;
  DelayLine line_;
  rig::JsonLines log_;
  std::array<rig::Fd, 2> devices_;
  rig::Fd signals_;
  rig::Fd timer_;
  rig::Fd epoll_;
  Packet buffer_;
  std::string commands_;
  std::array<std::uint64_t, 2> received_{};
  std::array<std::uint64_t, 2> delivered_{};
  bool stopping_ = false;
};

}  // namespace
}  // namespace inferwire::wire

int main(int argc, char** argv) {
  const auto options = inferwire::wire::parse_options(argc, argv);
  // Both are best effort: they make the wire's jitter small on a busy machine.
  prctl(PR_SET_TIMERSLACK, 1UL, 0UL, 0UL, 0UL);
  setpriority(PRIO_PROCESS, 0, -15);
  inferwire::wire::Wire wire(options);
  std::puts("ready");
  std::fflush(stdout);
  wire.run();
  return 0;
}
