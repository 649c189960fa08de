// SPDX-License-Identifier: Apache-2.0
// From kernel records to metrics, and what `inferwire top` shows. Pure: the time is an argument. One thread.
//
// Partial records are cumulative: the tracker remembers what it has counted of every open request, (cookie, ordinal),
// and adds only what is new, so TTFT counts once, at the first chunk, and gaps count while the stream is open. The
// final record adds the rest. Nothing ever goes down, in whatever order records come.
//
//   each drain of the ring buffer   on_record() for each record
//   every few seconds               on_record(.., final = false, ..) for each record of the iterator, on_count() for
//                                   each entry of `counts`, on_stats(), then end_iteration()
//   before each snapshot            tick()
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <tuple>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "agent/metrics/registry.h"
#include "agent/model/history.h"
#include "agent/model/identity.h"
#include "agent/model/names.h"
#include "agent/model/request.h"
#include "agent/model/tcp.h"
#include "inferwire/event_abi.h"

namespace inferwire::model {

struct TrackerOptions {
  Settings settings;  // its gap edges must be those of the registry
  // A client's `port` label is the peer's port if it is below 1024, a usual port of LLM servers, or one of these.
  std::vector<std::uint16_t> known_ports;
  std::size_t open_max = 20'000;               // open requests followed; about 1 KB each
  std::size_t finished_bytes_max = 16u << 20;  // finished requests kept
  int forget_after_iterations = 3;             // an open request that so many iterations did not report is forgotten
};

struct TrackerStatus {
  std::size_t open_requests = 0;
  std::size_t open_streams = 0;
  std::uint64_t finished_total = 0;
  std::uint64_t forgotten_total = 0;   // open requests whose socket vanished without a final record
  std::uint64_t stale_total = 0;       // records that came after their request's final one
  std::uint64_t unfollowed_total = 0;  // partial records beyond open_max: counted with their final record
};

// What one record gave.
struct Recorded {
  Request request;
  std::string line;  // final records: the JSON record, without line end
};

class RequestTracker {
 public:
  RequestTracker(metrics::Registry& registry, TrackerOptions options);

  // `now_ns`: CLOCK_MONOTONIC. A record of a finished request changes nothing.
  Recorded on_record(const iw_record& record, bool final, std::uint64_t now_ns, const Identity& identity,
                     const Clock& clock = {});

  // `delta`: what is new in this entry of `counts`. The chunks and tokens of LLM routes there are those of requests
  // whose final record was lost; their partial records may have added some already. That is known for sure when the
  // open request is forgotten, so they are held back for a few iterations and added then, less what was added.
  void on_count(const iw_count_key& key, const iw_count& delta, const Identity& identity);

  // The kernel's counters, IW_STAT_MAX of them, summed over CPUs.
  void on_stats(std::span<const std::uint64_t> stats);

  // The iterator came by this connection, with an open request or without.
  void on_connection(const iw_conn& conn, const Identity& identity);

  // The workload is alive, if idle: its series stay.
  void touch(const Identity& identity, std::uint64_t now_ns);

  // The iterator has reported all open requests: those it did not are nearer to being forgotten.
  void end_iteration(std::uint64_t now_ns);

  // Gauges: what is open, the longest silence.
  void tick(std::uint64_t now_ns);

  // Adds what on_count() holds back. Before the last snapshot.
  void flush_counts();

  // What is open now and the last minute's worst: docs/records.md. At most `open_shown` open requests, those with the
  // longest silence first. With `tcp` also listeners and connections.
  std::string top_json(std::uint64_t now_ns, const TcpModel* tcp = nullptr, std::size_t open_shown = 200) const;

  TrackerStatus status() const;
  const History& history() const { return history_; }

 private:
  using GaugeLabels = std::array<std::string, 6>;  // namespace workload container pod role port

  struct Key {
    std::uint64_t cookie;
    std::uint32_t ordinal;
    bool operator==(const Key&) const = default;
  };
  struct KeyHash {
    std::size_t operator()(const Key& key) const {
      return std::hash<std::uint64_t>{}((key.cookie + key.ordinal) * 0x9E3779B97F4A7C15ull);
    }
  };

  // What metrics have been given of a request so far.
  struct Counted {
    std::uint32_t chunks = 0;
    std::uint32_t tokens_output = 0;
    std::uint32_t tokens_input = 0;
    bool ttfb = false;
    bool ttft_server = false;
    bool ttft_user = false;
    std::uint64_t gap_sent_sum_ns = 0;
    std::uint64_t gap_delivered_sum_ns = 0;
    std::array<std::uint32_t, IW_GAP_EDGES_MAX + 1> gap_sent{};
    std::array<std::uint32_t, IW_GAP_EDGES_MAX + 1> gap_delivered{};
    std::array<std::uint32_t, IW_BURST_BUCKETS> bursts{};
    std::array<std::uint32_t, IW_PHASES_MAX> retransmits{};
  };

  // What `top` and the gauges need of an open request.
  struct View {
    std::uint64_t start_ns = 0;
    std::uint64_t seen_ns = 0;
    std::uint64_t content_ns = 0;
    std::uint64_t last_content_ns = 0;
    std::uint64_t ttft_ns = 0;
    std::uint64_t gap_max_ns = 0;
    std::uint64_t recent_gap_ns = 0;  // mean gap since the previous report; 0 = not known
    std::uint32_t chunks = 0;
    std::uint32_t ordinal = 0;
    std::uint16_t port = 0;  // the listener's
    std::uint16_t code = 0;
    std::uint8_t role = 0;
    std::uint8_t route = 0;
    std::uint8_t phase = 0;
    bool stream = false;
    bool ended = false;  // the end marker has passed
    std::string model;
    std::string local;
    std::string remote;
  };

  struct Open {
    std::shared_ptr<const Identity> who;
    Counted counted;
    View view;
    int iterations_unseen = 0;
  };
  using OpenMap = std::unordered_map<Key, Open, KeyHash>;

  struct Amounts {
    double chunks = 0;
    double tokens_output = 0;
    double tokens_input = 0;
  };
  struct Twice {
    Amounts amounts;
    std::uint64_t iteration = 0;  // of the latest request
  };
  // Namespace, workload, container, pod, role.
  using OwnerKey = std::tuple<std::string, std::string, std::string, std::string, std::uint8_t>;
  struct Held {
    std::shared_ptr<const Identity> who;
    std::uint8_t role = 0;
    Amounts amounts;
    std::uint64_t due_iteration = 0;
  };
  struct IdentityOrder {
    using is_transparent = void;
    bool operator()(const std::shared_ptr<const Identity>& a, const std::shared_ptr<const Identity>& b) const;
    bool operator()(const std::shared_ptr<const Identity>& a, const Identity& b) const;
    bool operator()(const Identity& a, const std::shared_ptr<const Identity>& b) const;
  };

  std::shared_ptr<const Identity> intern(const Identity& identity);
  Open* find_or_follow(const Key& key, const Identity& identity);
  void add_progress(const Request& request, const Identity& who, Counted& counted);
  void add_chunks(const Request& request, const Identity& who, std::string_view model, Counted& counted);
  void add_first_times(const Request& request, const Identity& who, std::string_view model, Counted& counted);
  void add_gaps(const Request& request, const Identity& who, std::string_view model, Counted& counted);
  void add_retransmits(const Request& request, const Identity& who, Counted& counted);
  void add_request(const Request& request, const Identity& who);
  void add_ended(const Request& request, const Identity& who);
  void add_amounts(const Identity& who, std::uint8_t role, std::string_view model, const Amounts& amounts);
  void update_view(const iw_request& raw, const Request& request, std::uint64_t now_ns, View& view) const;
  void remember_finished(const Key& key);
  void forget(OpenMap::iterator open);
  void release_counts(bool all);
  std::uint64_t held_iterations() const;
  static OwnerKey owner_key(const Identity& who, std::uint8_t role);
  std::string port_label(std::uint8_t role, std::uint16_t port) const;

  metrics::Registry& registry_;
  TrackerOptions options_;
  std::size_t edges_;  // of gaps
  History history_;
  OpenMap open_;
  OpenMap forgotten_;  // may still get their final record; bounded
  std::deque<Key> forgotten_order_;
  std::unordered_set<Key, KeyHash> finished_;  // the latest ones, against records that come late; bounded
  std::deque<Key> finished_order_;
  std::set<std::shared_ptr<const Identity>, IdentityOrder> identities_;
  std::map<OwnerKey, Twice> counted_twice_;  // by forgotten requests, to be taken off what is held
  std::deque<Held> held_;
  std::uint64_t iteration_ = 0;
  Clock clock_;
  std::map<GaugeLabels, std::uint64_t> connections_;  // of the iteration that is going on
  TrackerStatus status_;
};

}  // namespace inferwire::model
