// SPDX-License-Identifier: Apache-2.0
// The one thread that reads records, keeps the model and writes metrics: nothing else touches registry or tracker, so
// nothing is locked. Others see published snapshots, Readiness and the answers of the unix socket.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "agent/capture/kernel_source.h"
#include "agent/daemon/config.h"
#include "agent/daemon/control_socket.h"
#include "agent/daemon/identity.h"
#include "agent/daemon/readiness.h"
#include "agent/daemon/self_check.h"
#include "agent/metrics/registry.h"
#include "agent/model/tcp.h"
#include "agent/model/tracker.h"
#include "exporters/jsonl/record_writer.h"
#include "exporters/prometheus/prometheus_exporter.h"

namespace inferwire::daemon {

class Reader {
 public:
  struct Parts {
    Config config;
    std::string node;
    std::string cgroup_root;
    std::string listen_address;  // as bound
    std::unique_ptr<capture::KernelSource> source;
    std::unique_ptr<SelfCheck> self_check;
    std::unique_ptr<ControlSocket> control;               // may be null
    std::unique_ptr<jsonl::RecordWriter> records;         // may be null
    std::unique_ptr<jsonl::RecordWriter> delivery_trace;  // may be null
    const host::PodWatch* pod_watch = nullptr;            // may be null
    metrics::Registry* registry = nullptr;                // ours alone from now on
    prometheus::PrometheusExporter* exporter = nullptr;
    Readiness* readiness = nullptr;
  };

  explicit Reader(Parts parts);
  ~Reader();

  // By any thread: opens the files of records anew (log rotation).
  void reopen_files();

  // Until `stop_fd` becomes readable; then takes what is left in the kernel, writes a last partial record of each open
  // request and a last snapshot. An error ends it early.
  base::Result<void> run(int stop_fd);

 private:
  using Time = std::chrono::steady_clock::time_point;

  void begin();
  base::Result<void> turn(Time now);  // everything that is due
  base::Result<void> drain(Time now);
  base::Result<void> read_open(Time now);
  base::Result<void> finish();
  void on_record(const iw_header& header, std::span<const std::byte> bytes, Time now);
  void on_request(const iw_record& record, Time now);
  void on_connection(const iw_record& record, Time now);
  void on_delivery(const iw_delivery& delivery);
  void on_reset(const iw_reset& reset, Time now);
  void on_listener(const iw_listener& listener, Time now);
  void on_socket(const iw_socket_state& socket, Time now);
  void on_walked(const iw_header& header, std::span<const std::byte> bytes, Time now);
  void note_llm(const model::Request& request, const model::Identity& who);
  void read_sums(Time now);
  void write_record(std::string line, std::uint32_t kind);
  void touch_living();
  bool is_own_scrape(const iw_count_key& key) const;
  void advance_self_check(Time now);
  base::Result<void> publish(Time now);
  void report_records(capture::KernelStats stats);
  void report_signals();
  void report_maps();
  Time next_deadline() const;
  std::string answer(std::string_view request);
  std::string status_json();

  Parts parts_;
  model::Settings settings_;
  model::RequestTracker tracker_;
  model::TcpModel tcp_;
  IdentityResolver identities_;
  model::Clock clock_;
  static constexpr std::size_t kLivingMax = 4096;
  std::unordered_map<std::uint32_t, model::Identity> living_;  // by pid: whose requests were seen
  std::vector<capture::MapUse> maps_;
  std::array<std::uint64_t, IW_REC_KINDS> delivered_{};  // from the ring buffer, by kind
  std::array<std::uint64_t, IW_REC_KINDS> excluded_{};   // of these, the self-check's
  capture::KernelStats stats_{};
  std::uint64_t own_cgroup_id_ = 0;
  std::uint16_t own_port_ = 0;
  bool sees_open_requests_ = false;
  bool finishing_ = false;
  SelfCheck::State last_check_ = SelfCheck::State::kWaiting;
  Time started_{};
  Time next_drain_{}, next_read_open_{}, next_publish_{}, next_maps_{}, next_check_{};
};

}  // namespace inferwire::daemon
