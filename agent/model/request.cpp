// SPDX-License-Identifier: Apache-2.0
#include "agent/model/request.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "agent/base/label.h"
#include "agent/model/phases.h"

namespace inferwire::model {
namespace {

constexpr std::uint32_t kNotSaid32 = ~0u;
constexpr std::uint64_t kNotSaid64 = ~0ull;

// A connection that was opened longer than this before its first request was not opened for it (a pool, a browser's
// preconnect): its set-up and idle time are not part of what the user waited for.
constexpr std::uint64_t kOpenedBeforehandNs = 1'000'000'000;

bool has_flag(const iw_request& r, std::uint32_t flag) { return (r.head.flags & flag) != 0; }

// later - earlier where both are known and in order.
OptionalNs between(std::uint64_t earlier_ns, std::uint64_t later_ns) {
  if (earlier_ns == 0 || later_ns < earlier_ns) return std::nullopt;
  return later_ns - earlier_ns;
}

template <std::size_t N>
std::string text_of(const char (&field)[N]) {
  return base::sanitize_label(std::string_view(field, strnlen(field, N)));
}

// A name that fills its field may have been cut inside a character: the broken rest goes.
template <std::size_t N>
std::string cut_text_of(const char (&field)[N]) {
  std::string text = text_of(field);
  constexpr std::string_view kReplacement = "\xEF\xBF\xBD";
  if (strnlen(field, N) >= N - 1 && text.ends_with(kReplacement)) text.resize(text.size() - kReplacement.size());
  return text;
}

std::string trace_id_of(const iw_request_head& head) {
  if (head.has_trace == 0) return {};
  const std::string_view id(head.trace_id, sizeof head.trace_id);
  const bool hex = std::all_of(id.begin(), id.end(), [](char c) {
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F');
  });
  if (!hex || id.find_first_not_of('0') == id.npos) return {};
  std::string lower(id);
  for (char& c : lower) {
    if (c >= 'A' && c <= 'F') c = static_cast<char>(c - 'A' + 'a');
  }
  return lower;
}

Gaps gaps_of(const std::uint32_t (&buckets)[IW_GAP_EDGES_MAX + 1], std::size_t edges, std::uint64_t sum_ns,
             std::uint64_t max_ns) {
  Gaps gaps;
  for (const std::uint32_t bucket : buckets) gaps.count += bucket;
  if (gaps.count == 0) return gaps;
  gaps.sum_ns = sum_ns;
  gaps.max_ns = max_ns;
  gaps.buckets.assign(buckets, buckets + edges + 1);
  for (std::size_t beyond = edges + 1; beyond <= IW_GAP_EDGES_MAX; ++beyond) gaps.buckets[edges] += buckets[beyond];
  return gaps;
}

void set_gaps(const iw_record& record, const Settings& settings, Request& out) {
  const iw_request& r = record.request;
  out.gap_edges_ns = settings.gap_edges_ns;
  const std::size_t edges = std::min<std::size_t>(settings.gap_edges_ns.size(), IW_GAP_EDGES_MAX);
  out.gap_edges_ns.resize(edges);
  Gaps sent = gaps_of(r.gap_sent, edges, r.gap_sent_sum_ns, r.gap_sent_max_ns);
  Gaps delivered = gaps_of(r.gap_delivered, edges, r.gap_delivered_sum_ns, r.gap_delivered_max_ns);
  if (out.role == IW_ROLE_CLIENT) {
    // A client sees arrivals, which are its deliveries.
    out.gaps_delivered = delivered.count != 0 ? std::move(delivered) : std::move(sent);
  } else {
    out.gaps_sent = std::move(sent);
    out.gaps_delivered = std::move(delivered);
  }
}

OptionalNs handshake_of(const iw_conn& conn) {
  if (conn.role == IW_ROLE_CLIENT) return between(conn.syn_ns, conn.established_ns);
  if (conn.handshake_us == 0) return std::nullopt;
  return std::uint64_t{conn.handshake_us} * 1000;
}

void set_connection(const iw_record& record, std::uint64_t start_ns, Request& out) {
  const iw_conn& conn = record.conn;
  out.cookie = conn.cookie;
  out.pid = conn.owner_pid;
  out.comm = text_of(conn.comm);
  out.local = address_text(conn.local_addr, conn.local_port);
  out.remote = address_text(conn.remote_addr, conn.remote_port);
  out.local_port = conn.local_port;
  out.remote_port = conn.remote_port;
  out.accept_is_bound = (conn.flags & IW_CONN_ACCEPT_BOUND) != 0 && conn.accepted_ns != 0;
  out.is_new_connection = record.request.head.ordinal == 1 && (conn.flags & IW_CONN_MIDWAY) == 0;

  if (!out.is_new_connection) {
    if (record.request.head.idle_before_ns != 0) out.idle_before_ns = record.request.head.idle_before_ns;
    return;
  }
  out.handshake_ns = handshake_of(conn);
  std::uint64_t ready_ns = conn.established_ns;
  if (conn.role == IW_ROLE_SERVER && conn.accepted_ns != 0) {
    const std::uint64_t accepted_before_ns = std::min(conn.accepted_ns, start_ns);
    out.accept_wait_before_ns = between(conn.established_ns, accepted_before_ns);
    ready_ns = std::max(ready_ns, accepted_before_ns);
  }
  out.idle_before_ns = between(ready_ns, start_ns);
}

// What the user's wait began with: the SYN where the connection was opened for this request.
std::uint64_t user_start_ns(const iw_record& record, const Request& request) {
  const iw_conn& conn = record.conn;
  const std::uint64_t first_ns = request.start_ns;
  if (!request.is_new_connection || conn.established_ns == 0 || conn.established_ns > first_ns) return first_ns;
  if (first_ns - conn.established_ns > kOpenedBeforehandNs) return first_ns;
  if (conn.syn_ns != 0) return std::min(conn.syn_ns, first_ns);
  const std::uint64_t handshake_ns = request.handshake_ns.value_or(0);
  return conn.established_ns > handshake_ns ? conn.established_ns - handshake_ns : first_ns;
}

void set_first_times(const iw_record& record, Request& out) {
  const iw_request& r = record.request;
  std::uint64_t request_end_ns = r.head.last_byte_ns;
  if (out.early_response) request_end_ns = std::min(request_end_ns, r.response_ns);
  out.ttfb_ns = between(request_end_ns, r.response_ns);
  if (r.content_ns == 0) return;

  if (r.chunks_reasoning != 0) out.first_output_ns = between(request_end_ns, r.output_ns);
  if (out.role == IW_ROLE_CLIENT) {
    out.ttft_user_ns = between(user_start_ns(record, out), r.content_ns);
    out.delivered = "exact";
    return;
  }
  out.ttft_server_ns = between(request_end_ns, r.content_handed_ns != 0 ? r.content_handed_ns : r.content_ns);
  out.ttft_user_ns = between(user_start_ns(record, out), r.content_delivered_ns);
  if (r.content_delivered_ns == 0) return;
  const bool estimated = has_flag(r, IW_REQ_LATE_ACKS) || has_flag(r, IW_REQ_MARKS_MERGED);
  out.delivered = estimated ? "estimated" : "exact";
}

void set_tail(const iw_request& r, Request& out) {
  if (r.tokens_output != kNotSaid32) out.tokens_output = r.tokens_output;
  if (r.tokens_input != kNotSaid32) out.tokens_input = r.tokens_input;
  if (r.queue_ns != kNotSaid64) out.queue_ns = r.queue_ns;
  if (r.prefill_ns != kNotSaid64) out.prefill_ns = r.prefill_ns;
  if (r.load_ns != kNotSaid64) out.load_ns = r.load_ns;
  if (r.stream != 0 && out.tokens_output.value_or(0) >= 2) {
    const std::uint64_t first_ns = r.content_handed_ns != 0 ? r.content_handed_ns : r.content_ns;
    const OptionalNs streaming_ns = between(first_ns, r.last_content_ns);
    if (streaming_ns) out.time_per_token_ns = *streaming_ns / (*out.tokens_output - 1);
  }
}

void set_path(const iw_request& r, Request& out) {
  if (r.rtt_count != 0) {
    const auto mean_us = static_cast<std::uint32_t>(r.rtt_sum_us / r.rtt_count);
    out.rtt = Rtt{r.rtt_min_us, std::clamp(mean_us, r.rtt_min_us, std::max(r.rtt_min_us, r.rtt_max_us)),
                  std::max(r.rtt_min_us, r.rtt_max_us)};
  }
  out.retransmitted_segments = r.retransmitted_segments;
  for (std::size_t phase = 0; phase < IW_PHASES_MAX; ++phase) {
    std::copy_n(r.retransmits[phase], IW_RETRANS_TYPES, out.retransmits[phase].begin());
  }
}

}  // namespace

std::uint64_t Gaps::quantile_ns(double q, const std::vector<std::uint64_t>& edges_ns) const {
  if (count == 0) return 0;
  const auto rank = std::max<std::uint64_t>(1, static_cast<std::uint64_t>(std::ceil(q * static_cast<double>(count))));
  std::uint64_t seen = 0;
  for (std::size_t bucket = 0; bucket < buckets.size() && bucket < edges_ns.size(); ++bucket) {
    seen += buckets[bucket];
    if (seen >= rank) return std::min(edges_ns[bucket], max_ns);
  }
  return max_ns;
}

Request make_request(const iw_record& record, bool final, const Clock& clock, const Settings& settings,
                     std::uint64_t now_ns) {
  const iw_request& r = record.request;
  Request out;
  out.final = final;
  out.role = record.conn.role;
  out.route = r.head.route;
  out.outcome = final ? r.outcome : std::uint8_t{IW_OUTCOME_NONE};
  out.stream = r.stream != 0;
  out.approximate = has_flag(r, IW_REQ_APPROXIMATE);
  out.end_marker = has_flag(r, IW_REQ_END_MARKER);
  out.early_response = has_flag(r, IW_REQ_EARLY_RESPONSE) && r.response_ns != 0;
  out.ordinal = r.head.ordinal;

  const Phases phases = cut_into_phases(record, final, settings.reads_seen, now_ns);
  out.start_ns = phases.start_ns;
  out.start_unix_ns = static_cast<std::int64_t>(phases.start_ns) + clock.mono_to_unix_offset_ns;
  out.duration_ns = phases.end_ns - phases.start_ns;
  out.phases_ns = phases.ns;
  out.phases_missing = phases.missing;

  out.method = method_name(r.head.method);
  out.route_path = route_name(r.head.route, settings);
  out.encoding = r.response_ns != 0 ? encoding_name(r.encoding) : std::string_view();
  out.closed_first = side_name(r.closed_first);
  out.reset_by = side_name(r.reset);
  out.code = r.code;
  out.trace_id = trace_id_of(r.head);
  out.response_id = cut_text_of(r.response_id);
  out.model = cut_text_of(r.model);
  out.finish_reason = cut_text_of(r.finish_reason);
  out.request_body_bytes = r.head.body_bytes;
  out.response_body_bytes = r.response_body_bytes;

  out.chunks = r.chunks;
  out.chunks_reasoning = r.chunks_reasoning;
  out.chunks_tool = r.chunks_tool;
  out.comments = r.comments;
  out.events = r.events;
  out.deliveries = r.deliveries;
  std::copy_n(r.burst, IW_BURST_BUCKETS, out.bursts.begin());

  set_connection(record, phases.start_ns, out);
  set_first_times(record, out);
  set_tail(r, out);
  set_gaps(record, settings, out);
  set_path(r, out);
  return out;
}

}  // namespace inferwire::model
