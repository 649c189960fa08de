// SPDX-License-Identifier: Apache-2.0
#include "agent/daemon/agent.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <memory>
#include <optional>
#include <string>
#include <thread>

#include "agent/base/handle.h"
#include "agent/base/log.h"
#include "agent/capture/environment.h"
#include "agent/capture/kernel_source.h"
#include "agent/daemon/reader.h"
#include "agent/host/pod_watch.h"
#include "exporters/prometheus/http_server.h"

#ifndef INFERWIRE_REVISION
#define INFERWIRE_REVISION "unknown"
#endif

namespace inferwire::daemon {
namespace {

// Stopping takes less than the 5 s that are promised, whatever hangs.
constexpr int kStopPatienceMs = 4500;

std::string host_name() {
  char name[256] = "";
  return gethostname(name, sizeof name - 1) == 0 ? name : "";
}

metrics::RegistryOptions registry_options(const Config& config) {
  metrics::RegistryOptions options;
  options.label_sets_max = config.series_label_sets;
  options.model_names_max = config.series_models;
  const auto edges = [&](metrics::EdgesId id, std::vector<double> added, std::chrono::nanoseconds objective) {
    added.push_back(std::chrono::duration<double>(objective).count());
    std::sort(added.begin(), added.end());
    added.erase(std::unique(added.begin(), added.end()), added.end());
    auto all = metrics::edges_with(id, added);
    if (!all) base::log_warn(all.error().to_string());
    if (all) options.edges[static_cast<std::size_t>(id)] = std::move(*all);
  };
  edges(metrics::EdgesId::kGaps, config.gap_edges, config.slo_gap);
  edges(metrics::EdgesId::kDurations, config.ttft_edges, config.slo_ttft);
  return options;
}

base::Result<std::unique_ptr<jsonl::RecordWriter>> open_writer(const std::string& path) {
  if (path.empty()) return nullptr;
  return jsonl::RecordWriter::open({.path = path});
}

// Null if pods are not to be watched.
std::unique_ptr<host::PodWatch> pod_watch_of(const Config& config, const std::string& node) {
  if (config.pod_watch == Config::PodWatch::kOff) return nullptr;
  host::PodWatchOptions options;
  options.kubelet = config.pod_watch == Config::PodWatch::kKubelet;
  options.url = config.kubernetes_url;
  options.token_file = config.kubernetes_token_file;
  options.ca_file = config.kubernetes_ca_file;
  options.node = node;
  if (options.url.empty() && options.kubelet) options.url = "https://127.0.0.1:10250";
  if (options.url.empty()) {
    const char* name = getenv("KUBERNETES_SERVICE_HOST");
    const char* port = getenv("KUBERNETES_SERVICE_PORT");
    std::string address = name == nullptr ? "kubernetes.default.svc" : name;
    if (address.find(':') != std::string::npos) address = "[" + address + "]";
    options.url = "https://" + address + ":" + (port == nullptr ? "443" : port);
  }
  return std::make_unique<host::PodWatch>(std::move(options));
}

class Agent {
 public:
  explicit Agent(const Config& config) : config_(config), registry_(registry_options(config)) {}

  // In the order of what depends on what; the self-check's child first, while there are no threads and no descriptors.
  base::Result<void> start() {
    auto self_check = std::make_unique<SelfCheck>();
    if (auto right = capture::check_capabilities(); !right) return right;
    if (auto btf = capture::check_btf(); !btf) return btf;
    auto cgroup = capture::open_cgroup_root(config_.cgroup_root, config_.host_root);
    if (!cgroup) return tl::unexpected(cgroup.error());
    auto records = open_writer(config_.records);
    if (!records) return tl::unexpected(records.error());
    auto trace = open_writer(config_.trace_chunks);
    if (!trace) return tl::unexpected(trace.error());

    exporter_.emplace(registry_.edges(metrics::FamilyId::kScrapeSeconds));
    if (auto served = serve(); !served) return served;

    capture::ProgramOptions options;
    options.ringbuf_bytes = config_.ringbuf_bytes;
    options.gap_edges_ns = metrics::edges_in_ns(registry_.edges(metrics::EdgesId::kGaps));
    options.trace_deliveries = *trace != nullptr;
    options.routes = config_.routes;
    options.deny = config_.hooks_deny;
    auto programs = capture::PacketPrograms::load(cgroup->fd.get(), options);
    if (!programs) return tl::unexpected(programs.error());
    auto source = capture::KernelSource::open(std::move(*programs));
    if (!source) return tl::unexpected(source.error());

    std::unique_ptr<ControlSocket> control;
    if (!config_.socket.empty()) {
      auto opened = ControlSocket::open(config_.socket);
      if (opened)
        control = std::move(*opened);
      else
        base::log_warn(opened.error().to_string() + " (going on without it: `inferwire top` will not work)");
    }
    registry_.set(metrics::FamilyId::kBuildInfo, {INFERWIRE_VERSION, INFERWIRE_REVISION}, 1);

    Reader::Parts parts;
    parts.config = config_;
    parts.node = config_.node.empty() ? host_name() : config_.node;
    parts.cgroup_root = cgroup->path;
    pod_watch_ = pod_watch_of(config_, parts.node);
    parts.pod_watch = pod_watch_.get();
    parts.listen_address = server_->address();
    parts.source = std::move(*source);
    parts.self_check = std::move(self_check);
    parts.control = std::move(control);
    parts.records = std::move(*records);
    parts.delivery_trace = std::move(*trace);
    parts.registry = &registry_;
    parts.exporter = &*exporter_;
    parts.readiness = &readiness_;
    reader_ = std::make_unique<Reader>(std::move(parts));
    return {};
  }

  // Until a signal, or until the reader gives up.
  int run(int signals) {
    const base::UniqueFd stop(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    const base::UniqueFd ended(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    base::Result<void> result;
    std::thread watching;
    if (pod_watch_) watching = std::thread([this] { pod_watch_->run(); });
    std::thread thread([&] {
      result = reader_->run(stop.get());
      eventfd_write(ended.get(), 1);
    });
    pollfd fds[] = {{signals, POLLIN, 0}, {ended.get(), POLLIN, 0}};
    for (;;) {
      if (poll(fds, 2, -1) < 0) continue;
      if ((fds[1].revents & POLLIN) != 0) break;
      if ((fds[0].revents & POLLIN) == 0) continue;
      signalfd_siginfo signal{};
      if (read(signals, &signal, sizeof signal) != sizeof signal) continue;
      if (signal.ssi_signo == SIGHUP) {
        reader_->reopen_files();
        continue;
      }
      eventfd_write(stop.get(), 1);
      if (poll(&fds[1], 1, kStopPatienceMs) == 0) {
        base::log_warn("stopping took too long: what was left is lost");
        _exit(0);
      }
      break;
    }
    thread.join();
    if (pod_watch_) {
      pod_watch_->stop();
      watching.join();
    }
    if (!result) base::log_error(result.error().to_string());
    reader_.reset();
    server_.reset();
    return result ? 0 : 1;
  }

 private:
  base::Result<void> serve() {
    const auto ready = [this] {
      const std::string reason = readiness_.reason();
      return reason.empty() ? prometheus::text_response(200, "ready\n") : prometheus::text_response(503, reason + "\n");
    };
    const auto healthy = [this] {
      return readiness_.alive(std::chrono::steady_clock::now())
                 ? prometheus::text_response(200, "ok\n")
                 : prometheus::text_response(503, "the reader's loop does not turn\n");
    };
    readiness_.beat(std::chrono::steady_clock::now());
    auto server = prometheus::HttpServer::start(
        {.address = config_.listen},
        {{"/metrics", [this] { return exporter_->scrape(); }}, {"/healthz", healthy}, {"/readyz", ready}});
    if (!server) return tl::unexpected(server.error());
    server_ = std::move(*server);
    base::log_info("listening on " + server_->address());
    return {};
  }

  const Config& config_;
  metrics::Registry registry_;
  std::optional<prometheus::PrometheusExporter> exporter_;
  Readiness readiness_;
  std::unique_ptr<prometheus::HttpServer> server_;
  std::unique_ptr<host::PodWatch> pod_watch_;  // may be null; the reader asks it
  std::unique_ptr<Reader> reader_;
};

}  // namespace

int run_agent(const Config& config) {
  base::set_log_level(config.log_level);
  std::signal(SIGPIPE, SIG_IGN);
  // Blocked before the first thread, so that every thread inherits it and the signals come by descriptor only.
  sigset_t wanted;
  sigemptyset(&wanted);
  for (const int signal : {SIGTERM, SIGINT, SIGHUP}) sigaddset(&wanted, signal);
  sigprocmask(SIG_BLOCK, &wanted, nullptr);
  const base::UniqueFd signals(signalfd(-1, &wanted, SFD_CLOEXEC));
  if (!signals) {
    base::log_error("cannot listen to signals: " + base::errno_text(errno));
    return 1;
  }
  Agent agent(config);
  if (auto started = agent.start(); !started) {
    base::log_error(started.error().to_string());
    return 1;
  }
  return agent.run(signals.get());
}

}  // namespace inferwire::daemon
