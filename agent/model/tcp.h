// SPDX-License-Identifier: Apache-2.0
// What TCP did to every workload of the node: from the kernel's sums, listeners, sockets and resets to metrics and
// records. Pure: the time is an argument. One thread.
//
//   each drain of the ring buffer   on_reset(), on_listener() with kind IW_REC_LISTEN_DROP
//   every few seconds               on_listener() and on_socket() for all that the walk finds, then end_walk();
//                                   saw_llm() for what was followed, then on_sums() for each row of `tcp`
//
// A listener's counters are cumulative, and come by the ring buffer and by the walk in any order: only what is new is
// added. At most one record a second tells of a listener's drops; what it does not tell waits for the next one, so that
// the records' counts add up to the counters.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <unordered_map>
#include <vector>

#include "agent/metrics/registry.h"
#include "agent/model/identity.h"
#include "agent/model/json_writer.h"
#include "agent/model/peers.h"
#include "agent/model/request.h"
#include "inferwire/event_abi.h"

namespace inferwire::model {

struct TcpOptions {
  std::map<std::uint16_t, std::string> peers;  // port -> one of peer_classes()
  std::vector<std::string> reset_reasons;      // this kernel's names of enum sk_rst_reason, by value
  std::size_t listeners_max = 16'384;          // about 1 KB each
};

class TcpModel {
 public:
  TcpModel(metrics::Registry& registry, TcpOptions options);

  // The workload has LLM requests on this port: its round trips are worth a histogram, and its peer is `inference`.
  void saw_llm(const Identity& who, std::uint8_t role, std::uint16_t port) { peers_.saw_llm(who, role, port); }

  // `delta`: what is new in this row.
  void on_sums(const iw_tcp_key& key, const iw_tcp_sums& delta, const Identity& who);

  // The JSON record, without line end. (`resets_total` comes from the sums.)
  std::string on_reset(const iw_reset& reset, const Identity& who, const Clock& clock) const;

  // A listener as it is now, or (kind IW_REC_LISTEN_DROP) as it was when it dropped something. The JSON record of
  // drops, if one is due; else empty. `who`: its process; a ring buffer's record may not know it as well as a walk.
  std::string on_listener(const iw_listener& listener, const Identity& who, const Clock& clock);

  void on_socket(const iw_socket_state& socket, const Identity& who);

  // The walk has shown everything. Sets the gauges; listeners that several walks did not show are forgotten. The
  // records of drops that are due by now. `last`: of all drops that were not told yet.
  std::vector<std::string> end_walk(std::uint64_t now_ns, const Clock& clock, bool last = false);

  // Members `listeners` and `connections` of what `inferwire top` shows: docs/records.md.
  void write_top(JsonWriter& json) const;

  std::size_t listeners() const { return listeners_.size(); }
  std::size_t connections() const;

 private:
  using Drops = std::array<std::uint64_t, IW_DROP_REASONS>;
  using PodLabels = std::array<std::string, 4>;  // namespace workload container pod

  struct Listener {
    iw_listener now{};  // lengths and limits of the latest look
    Identity who;
    Drops counted{};
    Drops untold{};  // counted, and in no record yet
    std::uint64_t cookies = 0;
    std::uint64_t told_ns = 0;  // when the latest record was made
    bool walked = false;        // a walk has seen it
    int walks_unseen = 0;
  };

  void add_times(metrics::FamilyId id, metrics::Labels labels, const iw_tcp_times& times);
  void add_round_trips(const iw_tcp_key& key, const iw_tcp_sums& delta, const Identity& who, std::string_view peer);
  bool make_room();
  void count_drops(const iw_listener& listener, Listener& known);
  std::string drops_record(Listener& listener, std::uint64_t now_ns, const Clock& clock, bool even_if_early);
  void set_gauges();

  metrics::Registry& registry_;
  TcpOptions options_;
  Peers peers_;
  std::unordered_map<std::uint64_t, Listener> listeners_;               // by cookie
  std::map<PodLabels, std::map<std::uint8_t, std::uint64_t>> walking_;  // sockets by state, of the walk that goes on
  std::map<PodLabels, std::map<std::uint8_t, std::uint64_t>> sockets_;  // ... of the latest that has ended
};

}  // namespace inferwire::model
