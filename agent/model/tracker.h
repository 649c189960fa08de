// SPDX-License-Identifier: Apache-2.0
// From kernel records to metrics, and what `inferwire top` shows. Pure: the time is an argument. One thread.
//
// Partial records are cumulative: the tracker keeps the last one of every open request, (cookie, ordinal), and adds
// only what is new, so TTFT counts once and gaps count while a stream is open. The final record adds the rest.
//
//   every drain of the ring buffer:  on_record() for each record, then to_json_line() for those to be exported
//   every few seconds:               on_record(partial) for each record of the iterator, on_count() for each entry of
//                                    `counts` (as delta), end_iteration()
//   every second:                    tick()
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <tuple>
#include <unordered_map>
#include <vector>

#include "agent/metrics/registry.h"
#include "agent/model/identity.h"
#include "agent/model/names.h"
#include "agent/model/request.h"
#include "inferwire/event_abi.h"

namespace inferwire::model {

struct TrackerOptions {
  Settings settings;  // gap edges must be those of the registry (edges_in_ns(registry.edges(EdgesId::kGaps)))
  // A client's `port` label is the peer's port if it is below 1024, one of the usual LLM ports, or one of these.
  std::vector<std::uint16_t> known_ports;
  std::size_t open_max = 20'000;               // open requests followed; about 1.3 KB each
  std::size_t finished_bytes_max = 16u << 20;  // finished requests kept for `top` and others
  int forget_after_iterations = 3;             // an open request unseen in so many is forgotten
};

// What a `counts` entry belongs to; the key's pid and cgroup are resolved by the daemon.
struct TrackerStatus {
  std::size_t open_requests = 0;
  std::size_t open_streams = 0;
  std::uint64_t forgotten_total = 0;        // open requests whose socket vanished without a final record
  std::uint64_t stale_partials_total = 0;   // partial records that came after their final one
  std::uint64_t unfollowed_total = 0;       // partial records beyond open_max
  std::uint64_t finished_total = 0;
  std::size_t finished_kept = 0;
  std::size_t finished_bytes = 0;
};

// Summary of a finished request, as `top` needs it.
struct Finished {
  std::uint64_t end_ns = 0;
  std::uint64_t ttft_ns = 0;  // user view; 0 = none
  std::uint64_t gap_max_ns = 0;
  std::string line;  // its JSON record
};

class RequestTracker {
 public:
  RequestTracker(metrics::Registry& registry, TrackerOptions options);

  // Returns the request that the record describes (for export).
  Request on_record(const iw_record& record, bool final, std::uint64_t now_ns, const Identity& identity,
                    const Clock& clock = {});

  // `delta`: what is new in this entry since the last call. Chunks and tokens of LLM routes are those of requests
  // whose final record was lost; what their partial records had already added is taken off, which is known for sure
  // only a few iterations later, so they are added then.
  void on_count(const iw_count_key& key, const iw_count& delta, const Identity& identity);

  // The kernel's counters (IW_STAT_*, summed over CPUs): records by kind and the lost ones.
  void on_stats(std::span<const std::uint64_t> stats);

  // All open requests have been reported since the last call: those that were not are nearer to being forgotten.
  void end_iteration(std::uint64_t now_ns);

  // Gauges: what is open, the longest silence.
  void tick(std::uint64_t now_ns);

  // Adds what on_count() holds back. Before the last snapshot.
  void flush_counts();

  // Open streams and the last minute's worst requests: docs/records.md, "top".
  std::string top_json(std::uint64_t now_ns) const;

  TrackerStatus status() const;

 private:
  struct Key {
    std::uint64_t cookie;
    std::uint32_t ordinal;
    bool operator==(const Key&) const = default;
  };
  struct KeyHash {
    std::size_t operator()(const Key& key) const {
      return std::hash<std::uint64_t>{}(key.cookie * 0x9E3779B97F4A7C15ull + key.ordinal);
    }
  };
  // What has been added to metrics for a request so far.
  struct Open {
    iw_conn conn;
    iw_request request;
    Identity identity;
    std::uint64_t seen_ns = 0;
    int iterations_unseen = 0;
    bool forgotten = false;
  };
  // Counters of one workload and role that lost final records may count twice.
  using OwnerKey = std::tuple<std::string, std::string, std::string, std::string, std::uint8_t>;
  struct Amounts {
    double chunks = 0;
    double tokens_output = 0;
    double tokens_input = 0;
  };
  struct HeldCount {
    OwnerKey owner;
    Amounts amounts;
    std::uint64_t due_iteration;
  };

  void add_delta(const iw_record& record, const iw_request* before, const Request& request, const Identity& identity);
  void add_final(const iw_record& record, const Request& request, const Identity& identity);
  void add_gaps(const iw_record& record, const iw_request* before, const Identity& identity, std::string_view model);
  void add_first_chunk(const iw_record& record, const iw_request* before, const Request& request,
                       const Identity& identity, std::string_view model);
  void add_retransmits(const iw_record& record, const iw_request* before, const Identity& identity);
  void forget(Open& open);
  void supersede(std::uint64_t cookie, std::uint32_t ordinal);
  void keep_finished(const Request& request, const Identity& identity, std::uint64_t now_ns);
  void release_counts(bool all);
  std::string port_label(std::uint8_t role, std::uint16_t port) const;

  metrics::Registry& registry_;
  TrackerOptions options_;
  TrackerStatus status_;
  std::unordered_map<Key, Open, KeyHash> open_;
};

}  // namespace inferwire::model
