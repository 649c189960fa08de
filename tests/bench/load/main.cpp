// SPDX-License-Identifier: Apache-2.0
// Load for the benchmarks.
//
//   inferwire-load server [--workers N]
//       prints {"ports":[...]} (one port a worker), serves until SIGTERM, then prints what it counted
//   inferwire-load client --ports A,B [--traffic stream|echo|small] [--connections N] [--events N] [--rate R]
//                         [--seconds S] [--stagger-ms MS] [--seed N]
//       one worker a port, connections shared among them; prints what it counted
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <csignal>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/bench/load/client.h"
#include "tests/bench/load/report.h"
#include "tests/bench/load/server.h"
#include "tests/support/base/clock.h"
#include "tests/support/base/socket.h"

namespace inferwire::bench {

namespace {

void raise_descriptor_limit() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) rig::fatal_errno("getrlimit");
  rlimit wanted{1 << 20, 1 << 20};
  if (setrlimit(RLIMIT_NOFILE, &wanted) == 0) return;
  limit.rlim_cur = limit.rlim_max;
  if (setrlimit(RLIMIT_NOFILE, &limit) != 0) rig::fatal_errno("setrlimit");
}

double cpu_seconds_of_children() {
  rusage usage{};
  getrusage(RUSAGE_CHILDREN, &usage);
  return static_cast<double>(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
         static_cast<double>(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) * 1e-6;
}

void print_report(const Report& report, double seconds) {
  nlohmann::ordered_json out;
  out["seconds"] = seconds;
  out["connections"] = report.connections.load();
  out["requests"] = report.requests.load();
  out["completed"] = report.completed.load();
  out["failed"] = report.failed.load();
  out["events"] = report.events.load();
  out["blocked_writes"] = report.blocked.load();
  out["bytes"] = report.bytes.load();
  out["cpu_seconds"] = cpu_seconds_of_children();
  if (report.lag.count()) {
    out["lag_us"] = {{"p50", report.lag.quantile_us(0.5)},
                     {"p99", report.lag.quantile_us(0.99)},
                     {"p999", report.lag.quantile_us(0.999)},
                     {"max", report.lag.quantile_us(1)}};
  }
  std::printf("%s\n", out.dump().c_str());
  std::fflush(stdout);
}

template <typename Work>
pid_t start(Work work) {
  const pid_t pid = fork();
  if (pid < 0) rig::fatal_errno("fork");
  if (pid == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    work();
    _exit(0);
  }
  return pid;
}

// Returns false if one of them failed.
bool wait_for(const std::vector<pid_t>& workers) {
  bool good = true;
  for (const pid_t pid : workers) {
    int status = 0;
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {
    }
    good = good && WIFEXITED(status) && WEXITSTATUS(status) == 0;
  }
  return good;
}

rig::Fd listen_on_loopback() {
  rig::Fd fd(socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!fd.valid()) rig::fatal_errno("socket");
  socklen_t length = 0;
  const sockaddr_storage at = rig::make_address({"127.0.0.1", 0}, length);
  if (bind(fd.get(), reinterpret_cast<const sockaddr*>(&at), length) != 0) rig::fatal_errno("bind");
  if (listen(fd.get(), 4096) != 0) rig::fatal_errno("listen");
  return fd;
}

std::vector<pid_t> serving;

void pass_on(int) {
  for (const pid_t pid : serving) kill(pid, SIGTERM);
}

int run_server(unsigned workers) {
  Report* report = make_shared_report();
  const std::int64_t began_ns = rig::monotonic_ns();
  std::vector<rig::Fd> listeners;
  nlohmann::ordered_json ports = nlohmann::ordered_json::array();
  for (unsigned i = 0; i < workers; i++) {
    listeners.push_back(listen_on_loopback());
    ports.push_back(rig::local_endpoint(listeners.back().get()).port);
  }
  for (auto& listener : listeners) {
    serving.push_back(start([&] { serve(listener.get(), *report); }));
  }
  struct sigaction action {};
  action.sa_handler = pass_on;
  sigaction(SIGTERM, &action, nullptr);
  sigaction(SIGINT, &action, nullptr);
  std::printf("%s\n", nlohmann::ordered_json{{"ports", ports}}.dump().c_str());
  std::fflush(stdout);
  const bool good = wait_for(serving);
  print_report(*report, static_cast<double>(rig::monotonic_ns() - began_ns) * 1e-9);
  return good ? 0 : 1;
}

int run_client(const ClientPlan& whole, const std::vector<std::uint16_t>& ports) {
  Report* report = make_shared_report();
  const std::int64_t began_ns = rig::monotonic_ns();
  std::vector<pid_t> workers;
  for (std::size_t i = 0; i < ports.size(); i++) {
    ClientPlan plan = whole;
    plan.port = ports[i];
    plan.seed = whole.seed + i;
    plan.connections =
        static_cast<unsigned>(whole.connections * (i + 1) / ports.size() - whole.connections * i / ports.size());
    if (plan.connections) workers.push_back(start([plan, report] { ask(plan, *report); }));
  }
  const bool good = wait_for(workers);
  print_report(*report, static_cast<double>(rig::monotonic_ns() - began_ns) * 1e-9);
  return good ? 0 : 1;
}

}  // namespace

}  // namespace inferwire::bench

int main(int argc, char** argv) {
  using namespace inferwire::bench;  // NOLINT: the program is part of it
  CLI::App app("Load for the benchmarks");
  app.require_subcommand(1);
  unsigned workers = 2;
  auto* server = app.add_subcommand("server", "streams, small answers, echo");
  server->add_option("--workers", workers, "processes, each with a port of its own");
  ClientPlan plan;
  std::vector<std::uint16_t> ports;
  std::string traffic = "stream";
  auto* client = app.add_subcommand("client", "asks the server");
  client->add_option("--ports", ports, "the server's ports")->delimiter(',')->required();
  client->add_option("--traffic", traffic, "what to ask for")->check(CLI::IsMember({"stream", "echo", "small"}));
  client->add_option("--connections", plan.connections, "connections of all workers");
  client->add_option("--events", plan.events, "content events a stream");
  client->add_option("--rate", plan.per_second, "events a second and stream; 0: as fast as they go");
  client->add_option("--seconds", plan.seconds, "how long, at most");
  client->add_option("--stagger-ms", plan.stagger_ms, "first events are spread over this time");
  client->add_option("--seed", plan.seed, "of the spread");
  CLI11_PARSE(app, argc, argv);
  raise_descriptor_limit();
  if (server->parsed()) return run_server(workers);
  plan.traffic = traffic == "echo" ? Traffic::kEcho : traffic == "small" ? Traffic::kSmall : Traffic::kStream;
  return run_client(plan, ports);
}
