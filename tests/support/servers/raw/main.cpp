// SPDX-License-Identifier: Apache-2.0
// inferwire-scripted-server: the scripted server on raw sockets, a thread a connection. The rig for
// what the others cannot do exactly: pieces of given sizes, MSG_MORE, late accepts, small backlogs,
// TCP_DEFER_ACCEPT, answers before the upload ends, bodies until close. Prints `ready PORT`;
// SIGTERM ends it with exit 0.
#include <sys/prctl.h>

#include <CLI/CLI.hpp>
#include <csignal>
#include <cstdio>
#include <thread>

#include "tests/support/base/clock.h"
#include "tests/support/base/socket.h"
#include "tests/support/servers/raw/connection.h"

namespace inferwire::rig {
namespace {

struct Options {
  Endpoint listen{"127.0.0.1", 0};
  std::string log_path;
  int backlog = 4096;
  int defer_accept_s = 0;
  double accept_delay_ms = 0;
  double read_delay_ms = 0;
  bool nagle = false;
};

Options parse_options(int argc, char** argv) {
  Options options;
  CLI::App app{"The scripted server on raw sockets"};
  app.add_option("--host", options.listen.address, "address to listen on");
  app.add_option("--port", options.listen.port, "0: any");
  app.add_option("--log", options.log_path, "append a JSON line per request");
  app.add_option("--backlog", options.backlog, "of listen()");
  app.add_option("--defer-accept", options.defer_accept_s, "TCP_DEFER_ACCEPT, seconds");
  app.add_option("--accept-delay-ms", options.accept_delay_ms,
                 "accept a connection this long after it can be accepted");
  app.add_option("--read-delay-ms", options.read_delay_ms, "wait before a connection's first read");
  app.add_flag("--nagle", options.nagle, "leave TCP_NODELAY off");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    std::exit(app.exit(error));
  }
  return options;
}

Fd listen_on(const Options& options) {
  socklen_t length = 0;
  const sockaddr_storage address = make_address(options.listen, length);
  Fd fd(socket(address.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
  set_option(fd.get(), SOL_SOCKET, SO_REUSEADDR, 1, "SO_REUSEADDR");
  if (options.defer_accept_s > 0) {
    set_option(fd.get(), IPPROTO_TCP, TCP_DEFER_ACCEPT, options.defer_accept_s, "TCP_DEFER_ACCEPT");
  }
  if (bind(fd.get(), reinterpret_cast<const sockaddr*>(&address), length) != 0 ||
      listen(fd.get(), options.backlog) != 0) {
    fatal_errno("listening on " + options.listen.address);
  }
  return fd;
}

// Waits until a connection can be accepted, without accepting it.
void await_connection(int listener, std::int64_t delay_ns) {
  if (delay_ns == 0) return;
  fd_set readable;
  FD_ZERO(&readable);
  FD_SET(listener, &readable);
  select(listener + 1, &readable, nullptr, nullptr, nullptr);
  sleep_until_ns(monotonic_ns() + delay_ns);
}

[[noreturn]] void accept_forever(const Fd& listener, const Options& options, JsonLines& log) {
  const auto accept_delay_ns = static_cast<std::int64_t>(options.accept_delay_ms * 1e6);
  const ServeOptions serve{static_cast<std::int64_t>(options.read_delay_ms * 1e6)};
  while (true) {
    await_connection(listener.get(), accept_delay_ns);
    sockaddr_storage peer{};
    socklen_t length = sizeof(peer);
    Fd socket(accept4(listener.get(), reinterpret_cast<sockaddr*>(&peer), &length, SOCK_CLOEXEC));
    if (!socket.valid()) continue;
    const std::int64_t accepted_ns = monotonic_ns();
    if (!options.nagle) set_option(socket.get(), IPPROTO_TCP, TCP_NODELAY, 1, "TCP_NODELAY");
    std::thread([socket = std::move(socket), remote = endpoint_of(peer), accepted_ns, serve, &log]() mutable {
      prctl(PR_SET_TIMERSLACK, 1UL, 0UL, 0UL, 0UL);
      Connection(std::move(socket), remote, accepted_ns, serve, log).serve();
    }).detach();
  }
}

[[noreturn]] void run(int argc, char** argv) {
  std::signal(SIGTERM, [](int) { _exit(0); });
  std::signal(SIGPIPE, SIG_IGN);
  const Options options = parse_options(argc, argv);
  JsonLines log(options.log_path);
  const Fd listener = listen_on(options);
  std::printf("ready %u\n", local_endpoint(listener.get()).port);
  std::fflush(stdout);
  accept_forever(listener, options, log);
}

}  // namespace
}  // namespace inferwire::rig

int main(int argc, char** argv) { inferwire::rig::run(argc, argv); }
