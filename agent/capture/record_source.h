// SPDX-License-Identifier: Apache-2.0
// Where records come from: the kernel here; recordings and captures are further sources.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "agent/base/result.h"
#include "inferwire/event_abi.h"

namespace inferwire::capture {

// One whole record, by `header.kind`: event_abi.h says which structure. Valid during the call only, 8-byte aligned.
using RecordSink = std::function<void(const iw_header& header, std::span<const std::byte> record)>;

// What was added to one row of the kernel's counts since the previous read.
using CountSink = std::function<void(const iw_count_key& key, const iw_count& delta)>;
using TcpSink = std::function<void(const iw_tcp_key& key, const iw_tcp_sums& delta)>;

// Sums over all CPUs since the programs were loaded, by IW_STAT_*.
using KernelStats = std::array<std::uint64_t, IW_STAT_MAX>;

struct MapUse {
  std::string map;
  std::optional<std::uint64_t> entries;  // what the kernel can tell
  std::uint64_t memory_bytes = 0;        // of the map and, for socket storage, of its elements
};

struct ProgramRun {
  std::string program;
  std::uint64_t runs = 0;
  std::uint64_t run_ns = 0;
};

class RecordSource {
 public:
  virtual ~RecordSource() = default;

  // Hands over every record that waits, oldest first.
  virtual base::Result<void> drain(const RecordSink& sink) = 0;

  // Walks over the sockets that processes have open, each once, whatever number of processes has it. Of every followed
  // connection an iw_record: the cumulative one of its open request (kind partial), or one without a request (kind
  // idle). Of every listener an iw_listener, of every other TCP socket an iw_socket_state. The header's time is now.
  virtual base::Result<void> read_open(const RecordSink& sink) = 0;

  virtual base::Result<void> read_counts(const CountSink& sink) = 0;
  virtual base::Result<void> read_tcp(const TcpSink& sink) = 0;

  virtual base::Result<KernelStats> read_stats() = 0;

  // Walks maps: not more often than every few seconds.
  virtual std::vector<MapUse> map_use() = 0;

  // Empty unless kernel.bpf_stats_enabled is on.
  virtual std::vector<ProgramRun> program_runs() = 0;

  // Records that had an unknown kind or a wrong size: always 0 with programs of this build.
  virtual std::uint64_t malformed_records() const = 0;
};

}  // namespace inferwire::capture
