// SPDX-License-Identifier: Apache-2.0
#include "agent/model/json.h"

#include <array>
#include <cstdio>

namespace inferwire::model {
namespace {

void write_who(JsonWriter& json, const Request& request, const Identity& identity) {
  Identity who = identity;
  if (who.pid == 0) who.pid = request.pid;
  if (who.comm.empty()) who.comm = request.comm;
  write_owner(json, who);
  json.member("local", request.local);
  json.member("remote", request.remote);
  json.member("conn_id", connection_id(request.cookie));
  json.member("ordinal", request.ordinal);
  json.known_member("trace_id", request.trace_id);
}

void write_what(JsonWriter& json, const Request& request) {
  json.known_member("response_id", request.response_id);
  json.known_member("method", request.method);
  json.member("route", request.route_path);
  json.known_member("model", request.model);
  if (request.code != 0) json.member("code", request.code);
  json.known_member("outcome", outcome_name(request.outcome));
  json.member("stream", request.stream);
  json.known_member("encoding", request.encoding);
  json.known_member("finish_reason", request.finish_reason);
  json.member("end_marker", request.end_marker);
  json.member("early_response", request.early_response);
  json.member("approximate", request.approximate);
  json.member("request_body_bytes", request.request_body_bytes);
  json.member("response_body_bytes", request.response_body_bytes);
}

void write_connect(JsonWriter& json, const Request& request) {
  if (request.handshake_ns || request.accept_wait_before_ns) {
    json.begin_object("connect_ns");
    json.optional_member("handshake", request.handshake_ns);
    json.optional_member("accept_wait", request.accept_wait_before_ns);
    json.end_object();
  }
  if (request.accept_is_bound) json.member("accepted", "upper_bound");
  json.optional_member("idle_before_ns", request.idle_before_ns);
  json.known_member("closed_first", request.closed_first);
  json.known_member("reset_by", request.reset_by);
}

void write_phases(JsonWriter& json, const Request& request) {
  json.begin_object("phases_ns");
  for (int phase = 0; phase < IW_PHASES_MAX; ++phase) {
    json.optional_member(phase_name(request.role, phase), request.phases_ns[static_cast<std::size_t>(phase)]);
  }
  json.end_object();
  json.begin_array("phases_missing");
  for (int phase = 0; phase < IW_PHASES_MAX; ++phase) {
    if ((request.phases_missing & (1u << phase)) != 0) json.value(phase_name(request.role, phase));
  }
  json.end_array();
}

void write_first_times(JsonWriter& json, const Request& request) {
  json.optional_member("ttfb_ns", request.ttfb_ns);
  if (request.ttft_server_ns || request.ttft_user_ns) {
    json.begin_object("ttft_ns");
    json.optional_member("server", request.ttft_server_ns);
    json.optional_member("user", request.ttft_user_ns);
    json.end_object();
  }
  json.optional_member("first_output_ns", request.first_output_ns);
  json.known_member("delivered", request.delivered);
  if (request.queue_ns || request.prefill_ns || request.load_ns) {
    json.begin_object("server_split");
    json.optional_member("queue_ns", request.queue_ns);
    json.optional_member("prefill_ns", request.prefill_ns);
    json.optional_member("load_ns", request.load_ns);
    json.member("source", "wire");
    json.end_object();
  }
}

void write_chunks(JsonWriter& json, const Request& request) {
  if (!request.stream) return;
  json.member("chunks", request.chunks);
  json.member("chunks_reasoning", request.chunks_reasoning);
  json.member("chunks_tool", request.chunks_tool);
  json.member("comments", request.comments);
  json.member("events", request.events);
  json.member("deliveries", request.deliveries);
  if (request.deliveries == 0) return;
  json.begin_array("bursts");
  for (const std::uint32_t bucket : request.bursts) json.value(bucket);
  json.end_array();
}

void write_tokens(JsonWriter& json, const Request& request) {
  if (request.tokens_output || request.tokens_input) {
    json.begin_object("tokens");
    json.optional_member("output", request.tokens_output);
    json.optional_member("input", request.tokens_input);
    json.end_object();
  }
  json.optional_member("time_per_token_ns", request.time_per_token_ns);
}

void write_gap_view(JsonWriter& json, std::string_view view, const Gaps& gaps, const Request& request) {
  if (gaps.count == 0) return;
  json.begin_object(view);
  json.member("p50", gaps.quantile_ns(0.5, request.gap_edges_ns));
  json.member("p99", gaps.quantile_ns(0.99, request.gap_edges_ns));
  json.member("max", gaps.max_ns);
  json.member("sum", gaps.sum_ns);
  json.member("count", gaps.count);
  json.begin_array("buckets");
  for (const std::uint32_t bucket : gaps.buckets) json.value(bucket);
  json.end_array();
  json.end_object();
}

void write_gaps(JsonWriter& json, const Request& request) {
  if (request.gaps_sent.count == 0 && request.gaps_delivered.count == 0) return;
  json.begin_object("gap_ns");
  write_gap_view(json, "sent", request.gaps_sent, request);
  write_gap_view(json, "delivered", request.gaps_delivered, request);
  json.begin_array("edges");
  for (const std::uint64_t edge : request.gap_edges_ns) json.value(edge);
  json.end_array();
  json.end_object();
}

void write_retransmits(JsonWriter& json, const Request& request) {
  json.member("retransmitted_segments", request.retransmitted_segments);
  json.begin_object("retransmits");
  for (int phase = 0; phase < IW_PHASES_MAX; ++phase) {
    const auto& by_type = request.retransmits[static_cast<std::size_t>(phase)];
    const std::string_view name = phase_name(request.role, phase);
    if (name.empty() || by_type == std::array<std::uint16_t, IW_RETRANS_TYPES>{}) continue;
    json.begin_object(name);
    for (int type = 0; type < IW_RETRANS_TYPES; ++type) {
      const std::uint16_t segments = by_type[static_cast<std::size_t>(type)];
      if (segments != 0) json.member(retransmit_type_name(type), segments);
    }
    json.end_object();
  }
  json.end_object();
}

void write_path(JsonWriter& json, const Request& request) {
  if (request.rtt) {
    json.begin_object("rtt_us");
    json.member("min", request.rtt->min_us);
    json.member("mean", request.rtt->mean_us);
    json.member("max", request.rtt->max_us);
    json.end_object();
  }
  write_retransmits(json, request);
}

}  // namespace

std::string connection_id(std::uint64_t cookie) {
  char digits[17];
  std::snprintf(digits, sizeof digits, "%016llx", static_cast<unsigned long long>(cookie));
  return digits;
}

void write_owner(JsonWriter& json, const Identity& who) {
  json.known_member("node", who.node);
  json.known_member("namespace", who.name_space);
  json.known_member("workload", who.workload);
  json.known_member("pod", who.pod);
  json.known_member("container", who.container);
  if (who.pid != 0) json.member("pid", who.pid);
  json.known_member("comm", who.comm);
}

std::string to_json_line(const Request& request, const Identity& identity) {
  JsonWriter json;
  json.begin_object();
  json.member("type", "request");
  json.member("v", kSchemaVersion);
  json.member("final", request.final);
  json.member("start_unix_ns", request.start_unix_ns);
  json.member("duration_ns", request.duration_ns);
  json.known_member("role", role_name(request.role));
  json.member("protocol", "http1");
  write_who(json, request, identity);
  write_what(json, request);
  write_connect(json, request);
  write_phases(json, request);
  write_first_times(json, request);
  write_chunks(json, request);
  write_tokens(json, request);
  write_gaps(json, request);
  write_path(json, request);
  json.end_object();
  return json.take();
}

}  // namespace inferwire::model
