// SPDX-License-Identifier: Apache-2.0
#include "agent/model/tcp.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "agent/base/result.h"
#include "agent/model/json.h"
#include "agent/model/names.h"

namespace inferwire::model {
namespace {

using metrics::FamilyId;

constexpr std::uint64_t kTellEveryNs = 1'000'000'000;
// A socket may be out of sight for a moment: on its way from one process to another.
constexpr int kWalksUntilForgotten = 3;
constexpr std::size_t kShownMax = 200;

double seconds(std::uint64_t us) { return static_cast<double>(us) / 1e6; }

std::uint64_t count_of(const iw_tcp_times& times) {
  return std::accumulate(std::begin(times.buckets), std::end(times.buckets), std::uint64_t{0});
}

// Which of the limits a listener ran into, and what to do about it.
struct Limit {
  std::string_view name;  // empty: none
  std::uint32_t value = 0;
  std::string_view fix;
};

Limit limit_of(const iw_listener& listener, std::size_t reason) {
  // The kernel keeps the lower of the two, as they were at listen().
  const bool system = listener.accept_queue_limit >= listener.somaxconn;
  switch (reason) {
    case IW_DROP_ACCEPT_QUEUE_FULL:
      if (system) {
        return {"somaxconn", listener.accept_queue_limit,
                "Raise net.core.somaxconn, and the server's own backlog if it is not higher; then restart the server."};
      }
      return {"backlog", listener.accept_queue_limit,
              "Raise the backlog that the server passes to listen(), or let it accept sooner."};
    case IW_DROP_SYN_QUEUE_FULL:
      if (system) {
        return {"somaxconn", listener.accept_queue_limit,
                "Turn net.ipv4.tcp_syncookies on, or raise net.core.somaxconn and restart the server."};
      }
      return {"backlog", listener.accept_queue_limit,
              "Turn net.ipv4.tcp_syncookies on, or raise the backlog that the server passes to listen()."};
    case IW_DROP_MAX_SYN_BACKLOG:
      return {"tcp_max_syn_backlog", listener.max_syn_backlog,
              "Turn net.ipv4.tcp_syncookies on, or raise net.ipv4.tcp_max_syn_backlog."};
    default:
      return {};
  }
}

void write_pod(JsonWriter& json, std::string_view name_space, std::string_view workload, std::string_view container,
               std::string_view pod) {
  json.known_member("namespace", name_space);
  json.known_member("workload", workload);
  json.known_member("container", container);
  json.known_member("pod", pod);
}

}  // namespace

TcpModel::TcpModel(metrics::Registry& registry, TcpOptions options)
    : registry_(registry), options_(std::move(options)), peers_(options_.peers) {
  // Kernel buckets are added to the registry's as they are.
  IW_CHECK(registry_.edges(metrics::EdgesId::kTcp).size() == IW_TCP_EDGES_COUNT);
}

// ---- Sums ----

void TcpModel::add_times(FamilyId id, metrics::Labels labels, const iw_tcp_times& times) {
  if (count_of(times) == 0) return;
  registry_.observe_counts(id, labels, times.buckets, seconds(times.sum_us));
}

void TcpModel::add_round_trips(const iw_tcp_key& key, const iw_tcp_sums& delta, const Identity& who,
                               std::string_view peer) {
  const std::uint64_t samples = count_of(delta.rtt);
  if (samples == 0) return;
  const std::string_view workload = workload_of(who), role = role_name(key.role);
  registry_.add(FamilyId::kTcpRttSamplesTotal, {who.name_space, workload, who.container, who.pod, role, peer},
                static_cast<double>(samples));
  registry_.add(FamilyId::kTcpRttSampleSecondsTotal, {who.name_space, workload, who.container, who.pod, role, peer},
                seconds(delta.rtt.sum_us));
  if (!peers_.has_llm(who)) return;
  add_times(FamilyId::kTcpRttSeconds, {who.name_space, workload, who.container, role, peer}, delta.rtt);
  add_times(FamilyId::kTcpQueueingDelaySeconds, {who.name_space, workload, who.container, peer}, delta.queueing);
}

void TcpModel::on_sums(const iw_tcp_key& key, const iw_tcp_sums& delta, const Identity& who) {
  const std::string_view workload = workload_of(who), role = role_name(key.role);
  const std::string_view peer = peers_.class_of(who, key.role, key.port);
  const auto add = [&](FamilyId id, double amount, std::string_view a, std::string_view b = {},
                       std::string_view c = {}) {
    if (amount == 0) return;
    const std::array<std::string_view, 7> values = {who.name_space, workload, who.container, who.pod, a, b, c};
    const std::size_t own = metrics::family_of(id).label_count;
    registry_.add(id, std::span<const std::string_view>(values.data(), own), amount);
  };
  for (const std::size_t direction : {IW_DIRECTION_SENT, IW_DIRECTION_RECEIVED}) {
    const std::string_view name = direction_name(direction);
    add(FamilyId::kTcpSegmentsTotal, static_cast<double>(delta.segments[direction]), role, name, peer);
    add(FamilyId::kTcpPayloadBytesTotal, static_cast<double>(delta.payload_bytes[direction]), role, name, peer);
    add(FamilyId::kTcpHeaderBytesTotal, static_cast<double>(delta.header_bytes[direction]), role, name, peer);
    add(FamilyId::kTcpZeroWindowSecondsTotal, seconds(delta.zero_window_us[direction]), name);
    for (std::size_t cause = 0; cause < IW_RESET_CAUSES; ++cause) {
      add(FamilyId::kTcpResetsTotal, static_cast<double>(delta.resets[direction][cause]), role, name,
          reset_cause_name(cause));
    }
  }
  for (std::size_t type = 0; type < IW_RETRANSMIT_TYPES; ++type) {
    add(FamilyId::kTcpRetransmittedSegmentsTotal, static_cast<double>(delta.retransmits[type]), role,
        segment_type_name(type));
  }
  for (std::size_t result = 0; result < IW_CONNECT_RESULTS; ++result) {
    add(FamilyId::kTcpConnectsTotal, static_cast<double>(delta.connects[result]), peer, connect_result_name(result));
  }
  add(FamilyId::kTcpConnectionsOpenedTotal, static_cast<double>(delta.opened), role, peer);
  add_round_trips(key, delta, who, peer);
  add_times(FamilyId::kTcpConnectSeconds, {who.name_space, workload, who.container, peer}, delta.connect);
  add_times(FamilyId::kTcpAcceptWaitSeconds, {who.name_space, workload, who.container}, delta.accept_wait);
}

// ---- Resets ----

std::string TcpModel::on_reset(const iw_reset& reset, const Identity& who, const Clock& clock) const {
  JsonWriter json;
  json.begin_object();
  json.member("type", "reset");
  json.member("v", kSchemaVersion);
  json.member("time_unix_ns", clock.unix_ns(reset.header.time_ns));
  json.known_member("direction", direction_name(reset.direction));
  json.known_member("cause", reset_cause_name(reset.cause));
  json.known_member("role", role_name(reset.role));
  write_owner(json, who);
  json.member("local", address_text(reset.local_addr, reset.local_port));
  json.member("remote", address_text(reset.remote_addr, reset.remote_port));
  if (reset.cookie != 0) json.member("conn_id", connection_id(reset.cookie));
  if (reset.established_ns != 0 && reset.established_ns <= reset.header.time_ns) {
    json.member("age_ns", reset.header.time_ns - reset.established_ns);
  }
  if (reset.idle_ns != 0) json.member("idle_ns", reset.idle_ns);
  json.known_member("closed_first", side_name(reset.closed_first));
  if (reset.ordinal != 0) {
    json.member("ordinal", reset.ordinal);
    json.member("request_open", reset.request_open != 0);
    json.member("chunks", reset.chunks);
  }
  if (reset.kernel_reason != 0) {
    const bool named = reset.kernel_reason < options_.reset_reasons.size();
    json.known_member("kernel_reason",
                      named ? options_.reset_reasons[reset.kernel_reason] : std::to_string(reset.kernel_reason));
  }
  json.end_object();
  return json.take();
}

// ---- Listeners ----

std::string TcpModel::on_listener(const iw_listener& listener, const Identity& who, const Clock& clock) {
  if (!listeners_.contains(listener.cookie) && !make_room()) return {};
  Listener& known = listeners_[listener.cookie];
  const bool by_walk = listener.header.kind == IW_REC_LISTENER;
  if (by_walk || !known.walked) known.who = who;
  if (by_walk) {
    known.walked = true;
    known.walks_unseen = -1;  // end_walk() makes it 0
  }
  if (listener.header.time_ns >= known.now.header.time_ns) known.now = listener;
  count_drops(listener, known);
  return drops_record(known, listener.header.time_ns, clock, false);
}

// One that no walk has ever seen is gone or out of sight. If it is the latter and comes again, its drops count again:
// so the one that was silent for longest goes first, and only when there is no room.
bool TcpModel::make_room() {
  if (listeners_.size() < options_.listeners_max) return true;
  auto oldest = listeners_.end();
  for (auto at = listeners_.begin(); at != listeners_.end(); ++at) {
    if (at->second.walked) continue;
    if (oldest == listeners_.end() || at->second.now.header.time_ns < oldest->second.now.header.time_ns) oldest = at;
  }
  if (oldest == listeners_.end()) return false;
  listeners_.erase(oldest);
  return true;
}

void TcpModel::count_drops(const iw_listener& listener, Listener& known) {
  const Identity& who = known.who;
  const std::string port = std::to_string(listener.local_port);
  const auto add_new = [&](std::uint64_t now, std::uint64_t& counted, FamilyId id, std::string_view reason) {
    const std::uint64_t added = now > counted ? now - std::exchange(counted, now) : 0;
    if (added == 0) return added;
    const std::array<std::string_view, 6> values = {who.name_space, workload_of(who), who.container, who.pod, port,
                                                    reason};
    const std::size_t own = metrics::family_of(id).label_count;
    registry_.add(id, std::span<const std::string_view>(values.data(), own), static_cast<double>(added));
    return added;
  };
  for (std::size_t reason = 0; reason < IW_DROP_REASONS; ++reason) {
    known.untold[reason] += add_new(listener.drops[reason], known.counted[reason], FamilyId::kTcpListenDropsTotal,
                                    drop_reason_name(reason));
  }
  add_new(listener.cookies, known.cookies, FamilyId::kTcpSyncookiesTotal, {});
}

// Of the reason with the most drops that were not told yet; the others wait for the next record.
std::string TcpModel::drops_record(Listener& listener, std::uint64_t now_ns, const Clock& clock, bool even_if_early) {
  const auto most = std::max_element(listener.untold.begin(), listener.untold.end());
  if (*most == 0) return {};
  const bool early = listener.told_ns != 0 && now_ns < listener.told_ns + kTellEveryNs;
  if (early && !even_if_early) return {};
  listener.told_ns = now_ns;
  const auto reason = static_cast<std::size_t>(most - listener.untold.begin());
  const iw_listener& now = listener.now;
  const Limit limit = limit_of(now, reason);

  JsonWriter json;
  json.begin_object();
  json.member("type", "listen_drop");
  json.member("v", kSchemaVersion);
  json.member("time_unix_ns", clock.unix_ns(now_ns));
  json.member("listener", address_text(now.local_addr, now.local_port));
  json.member("conn_id", connection_id(now.cookie));
  write_owner(json, listener.who);
  json.member("reason", drop_reason_name(reason));
  json.member("count", std::exchange(listener.untold[reason], 0));
  json.member("total", listener.counted[reason]);
  if (!limit.name.empty()) {
    json.member("limit_name", limit.name);
    json.member("limit_value", limit.value);
    json.member("fix", limit.fix);
  }
  json.member("accept_queue_length", now.accept_queue_length);
  json.member("accept_queue_limit", now.accept_queue_limit);
  json.member("syn_queue_length", now.syn_queue_length);
  json.member("somaxconn", now.somaxconn);
  json.member("max_syn_backlog", now.max_syn_backlog);
  if (now.netns != 0) json.member("netns", now.netns);
  json.end_object();
  return json.take();
}

// ---- The walk ----

void TcpModel::on_socket(const iw_socket_state& socket, const Identity& who) {
  ++walking_[{who.name_space, std::string(workload_of(who)), who.container, who.pod}][socket.state];
}

std::vector<std::string> TcpModel::end_walk(std::uint64_t now_ns, const Clock& clock, bool last) {
  sockets_ = std::exchange(walking_, {});
  std::vector<std::string> records;
  for (auto at = listeners_.begin(); at != listeners_.end();) {
    Listener& listener = at->second;
    ++listener.walks_unseen;
    // One that no walk has ever seen is out of sight: its counters must be remembered as long as there is room.
    const bool gone = listener.walked && listener.walks_unseen >= kWalksUntilForgotten;
    for (;;) {
      std::string record = drops_record(listener, now_ns, clock, last || gone);
      if (record.empty()) break;
      records.push_back(std::move(record));
    }
    at = gone ? listeners_.erase(at) : std::next(at);
  }
  set_gauges();
  return records;
}

void TcpModel::set_gauges() {
  for (const FamilyId id : {FamilyId::kTcpListeners, FamilyId::kTcpAcceptQueueLength, FamilyId::kTcpAcceptQueueLimit,
                            FamilyId::kTcpSynQueueLength, FamilyId::kTcpConnections}) {
    registry_.zero(id);
  }
  for (const auto& [cookie, listener] : listeners_) {
    if (!listener.walked || listener.walks_unseen != 0) continue;
    const Identity& who = listener.who;
    const std::string port = std::to_string(listener.now.local_port);
    const auto add = [&](FamilyId id, std::uint32_t amount) {
      registry_.add(id, {who.name_space, workload_of(who), who.container, who.pod, port}, amount);
    };
    add(FamilyId::kTcpListeners, 1);
    add(FamilyId::kTcpAcceptQueueLength, listener.now.accept_queue_length);
    add(FamilyId::kTcpAcceptQueueLimit, listener.now.accept_queue_limit);
    add(FamilyId::kTcpSynQueueLength, listener.now.syn_queue_length);
  }
  for (const auto& [pod, states] : sockets_) {
    for (const auto& [state, count] : states) {
      registry_.add(FamilyId::kTcpConnections, {pod[0], pod[1], pod[2], pod[3], socket_state_name(state)},
                    static_cast<double>(count));
    }
  }
}

std::size_t TcpModel::connections() const {
  std::size_t sum = 0;
  for (const auto& [pod, states] : sockets_) {
    for (const auto& [state, count] : states) sum += count;
  }
  return sum;
}

// ---- What `top` shows ----

void TcpModel::write_top(JsonWriter& json) const {
  std::vector<const Listener*> shown;
  for (const auto& [cookie, listener] : listeners_) {
    if (listener.walked && listener.walks_unseen == 0) shown.push_back(&listener);
  }
  const auto drops = [](const Listener& listener) {
    return std::accumulate(listener.counted.begin(), listener.counted.end(), std::uint64_t{0});
  };
  std::sort(shown.begin(), shown.end(), [&](const Listener* a, const Listener* b) {
    const auto rank = [&](const Listener& l) {
      return std::tuple(~drops(l), ~l.now.accept_queue_length, l.now.local_port, l.now.cookie);
    };
    return rank(*a) < rank(*b);
  });
  const std::size_t kept = std::min(shown.size(), kShownMax);
  json.member("listeners_omitted", shown.size() - kept);
  json.begin_array("listeners");
  for (std::size_t i = 0; i < kept; ++i) {
    const Listener& listener = *shown[i];
    json.begin_object();
    json.member("listener", address_text(listener.now.local_addr, listener.now.local_port));
    write_owner(json, listener.who);
    json.member("accept_queue_length", listener.now.accept_queue_length);
    json.member("accept_queue_limit", listener.now.accept_queue_limit);
    json.member("syn_queue_length", listener.now.syn_queue_length);
    json.begin_object("drops");
    for (std::size_t reason = 0; reason < IW_DROP_REASONS; ++reason) {
      if (listener.counted[reason] != 0) json.member(drop_reason_name(reason), listener.counted[reason]);
    }
    json.end_object();
    json.member("syncookies", listener.cookies);
    json.end_object();
  }
  json.end_array();

  using Row = const std::pair<const PodLabels, std::map<std::uint8_t, std::uint64_t>>*;
  std::vector<std::pair<std::uint64_t, Row>> rows;
  for (const auto& row : sockets_) {
    std::uint64_t sum = 0;
    for (const auto& [state, count] : row.second) sum += count;
    rows.emplace_back(sum, &row);
  }
  std::stable_sort(rows.begin(), rows.end(), [](const auto& a, const auto& b) { return a.first > b.first; });
  const std::size_t rows_kept = std::min(rows.size(), kShownMax);
  json.member("connections_omitted", rows.size() - rows_kept);
  json.begin_array("connections");
  for (std::size_t i = 0; i < rows_kept; ++i) {
    const PodLabels& pod = rows[i].second->first;
    json.begin_object();
    write_pod(json, pod[0], pod[1], pod[2], pod[3]);
    json.member("total", rows[i].first);
    json.begin_object("states");
    for (const auto& [state, count] : rows[i].second->second) {
      const std::string_view name = socket_state_name(state);
      if (!name.empty()) json.member(name, count);
    }
    json.end_object();
    json.end_object();
  }
  json.end_array();
}

}  // namespace inferwire::model
