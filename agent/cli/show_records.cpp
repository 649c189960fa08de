// SPDX-License-Identifier: Apache-2.0
#include "agent/cli/show_records.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <tuple>

namespace inferwire::cli {
namespace {

using Json = nlohmann::json;

constexpr std::size_t kLineBytesMax = 1u << 20;
// The order of time; phases that are not here come last.
constexpr std::string_view kPhaseOrder[] = {"send", "upload",         "accept_wait", "read_wait", "server", "wait",
                                            "hold", "first_delivery", "first_read",  "stream",    "drain"};

const Json* member(const Json& object, const char* name) {
  if (!object.is_object()) return nullptr;
  const auto found = object.find(name);
  return found == object.end() ? nullptr : &*found;
}

OptionalNumber number(const Json& object, const char* name) {
  const Json* value = member(object, name);
  if (value == nullptr) return std::nullopt;
  if (value->is_number_unsigned()) return value->get<std::uint64_t>();
  if (value->is_number_float()) {
    const double real = value->get<double>();
    if (real >= 0 && real < 1.8e19) return static_cast<std::uint64_t>(real);
  }
  return std::nullopt;
}

OptionalNumber number_in(const Json& object, const char* outer, const char* name) {
  const Json* inner = member(object, outer);
  return inner == nullptr ? std::nullopt : number(*inner, name);
}

std::string text(const Json& object, const char* name) {
  const Json* value = member(object, name);
  return value != nullptr && value->is_string() ? value->get<std::string>() : std::string();
}

bool truth(const Json& object, const char* name, bool otherwise) {
  const Json* value = member(object, name);
  return value != nullptr && value->is_boolean() ? value->get<bool>() : otherwise;
}

std::size_t place_in_time(std::string_view phase) {
  return static_cast<std::size_t>(std::find(std::begin(kPhaseOrder), std::end(kPhaseOrder), phase) -
                                  std::begin(kPhaseOrder));
}

void read_phases(const Json& object, ShownRequest& request) {
  if (const Json* phases = member(object, "phases_ns"); phases != nullptr && phases->is_object()) {
    for (const auto& [name, value] : phases->items()) {
      if (const OptionalNumber ns = number(*phases, name.c_str())) request.phases.push_back({name, *ns});
    }
  }
  std::stable_sort(request.phases.begin(), request.phases.end(), [](const ShownPhase& a, const ShownPhase& b) {
    return place_in_time(a.name) < place_in_time(b.name);
  });
  if (const Json* missing = member(object, "phases_missing"); missing != nullptr && missing->is_array()) {
    for (const Json& name : *missing) {
      if (name.is_string()) request.phases_missing.push_back(name.get<std::string>());
    }
  }
}

ShownGaps read_gaps(const Json& object, const char* view) {
  const Json* gaps = member(object, "gap_ns");
  if (gaps == nullptr) return {};
  const std::uint64_t count = number_in(*gaps, view, "count").value_or(0);
  OptionalNumber mean_ns = number_in(*gaps, view, "sum");
  if (mean_ns) mean_ns = count != 0 ? OptionalNumber(*mean_ns / count) : std::nullopt;
  return {mean_ns, number_in(*gaps, view, "p50"), number_in(*gaps, view, "p99"), number_in(*gaps, view, "max")};
}

void read_retransmits(const Json& object, ShownRequest& request) {
  request.retransmitted = number(object, "retransmitted_segments");
  const Json* by_phase = member(object, "retransmits");
  if (by_phase == nullptr || !by_phase->is_object()) return;
  std::uint64_t sum = 0;
  for (const auto& [phase, types] : by_phase->items()) {
    if (!types.is_object()) continue;
    for (const auto& [type, count] : types.items()) {
      if (!count.is_number_unsigned()) continue;
      request.retransmits[phase][type] = count.get<std::uint64_t>();
      sum += count.get<std::uint64_t>();
    }
  }
  if (!request.retransmitted) request.retransmitted = sum;
}

ShownOwner read_owner(const Json& object) {
  return {.node = text(object, "node"),
          .name_space = text(object, "namespace"),
          .workload = text(object, "workload"),
          .pod = text(object, "pod"),
          .comm = text(object, "comm"),
          .pid = number(object, "pid").value_or(0)};
}

void read_who(const Json& object, ShownRequest& request) {
  request.role = text(object, "role");
  request.owner = read_owner(object);
  request.local = text(object, "local");
  request.remote = text(object, "remote");
  request.conn_id = text(object, "conn_id");
  request.ordinal = number(object, "ordinal").value_or(0);
  request.trace_id = text(object, "trace_id");
  request.response_id = text(object, "response_id");
}

void read_what(const Json& object, ShownRequest& request) {
  request.method = text(object, "method");
  request.route = text(object, "route");
  request.model = text(object, "model");
  request.outcome = text(object, "outcome");
  request.finish_reason = text(object, "finish_reason");
  request.closed_first = text(object, "closed_first");
  request.reset_by = text(object, "reset_by");
  request.code = number(object, "code").value_or(0);
  request.stream = truth(object, "stream", false);
  request.approximate = truth(object, "approximate", false);
  request.early_response = truth(object, "early_response", false);
  request.request_bytes = number(object, "request_body_bytes");
  request.response_bytes = number(object, "response_body_bytes");
}

void read_numbers(const Json& object, ShownRequest& request) {
  request.handshake_ns = number_in(object, "connect_ns", "handshake");
  request.accept_wait_ns = number_in(object, "connect_ns", "accept_wait");
  request.idle_before_ns = number(object, "idle_before_ns");
  request.ttfb_ns = number(object, "ttfb_ns");
  request.ttft_server_ns = number_in(object, "ttft_ns", "server");
  request.ttft_user_ns = number_in(object, "ttft_ns", "user");
  request.delivered = text(object, "delivered");
  request.queue_ns = number_in(object, "server_split", "queue_ns");
  request.load_ns = number_in(object, "server_split", "load_ns");
  request.prefill_ns = number_in(object, "server_split", "prefill_ns");
  request.chunks = number(object, "chunks");
  request.deliveries = number(object, "deliveries");
  request.tokens_output = number_in(object, "tokens", "output");
  request.tokens_input = number_in(object, "tokens", "input");
  request.time_per_token_ns = number(object, "time_per_token_ns");
  request.sent = read_gaps(object, "sent");
  request.delivered_gaps = read_gaps(object, "delivered");
  request.rtt_min_us = number_in(object, "rtt_us", "min");
  request.rtt_mean_us = number_in(object, "rtt_us", "mean");
  request.rtt_max_us = number_in(object, "rtt_us", "max");
}

constexpr std::uint64_t kTimeMax = std::numeric_limits<std::int64_t>::max() / 2;

// A start time and a duration that can be added.
bool read_time(const Json& object, ShownRequest& request, std::string& why) {
  const OptionalNumber start_ns = number(object, "start_unix_ns");
  const OptionalNumber duration_ns = number(object, "duration_ns");
  if (!start_ns || !duration_ns || *start_ns > kTimeMax || *duration_ns > kTimeMax) {
    why = "start_unix_ns or duration_ns is missing or no time";
    return false;
  }
  request.start_unix_ns = static_cast<std::int64_t>(*start_ns);
  request.duration_ns = *duration_ns;
  return true;
}

bool read_time(const Json& object, std::int64_t& time_unix_ns, std::string& why) {
  const OptionalNumber time_ns = number(object, "time_unix_ns");
  if (!time_ns || *time_ns > kTimeMax) {
    why = "time_unix_ns is missing or no time";
    return false;
  }
  time_unix_ns = static_cast<std::int64_t>(*time_ns);
  return true;
}

bool read_request(const Json& object, ShownRequest& request, std::string& why) {
  if (!read_time(object, request, why)) return false;
  request.final = truth(object, "final", true);
  read_who(object, request);
  read_what(object, request);
  read_phases(object, request);
  read_numbers(object, request);
  read_retransmits(object, request);
  return true;
}

bool read_reset(const Json& object, ShownReset& reset, std::string& why) {
  if (!read_time(object, reset.time_unix_ns, why)) return false;
  reset.owner = read_owner(object);
  reset.direction = text(object, "direction");
  reset.cause = text(object, "cause");
  reset.role = text(object, "role");
  reset.local = text(object, "local");
  reset.remote = text(object, "remote");
  reset.closed_first = text(object, "closed_first");
  reset.kernel_reason = text(object, "kernel_reason");
  reset.request_open = truth(object, "request_open", false);
  reset.age_ns = number(object, "age_ns");
  reset.idle_ns = number(object, "idle_ns");
  reset.ordinal = number(object, "ordinal");
  reset.chunks = number(object, "chunks");
  return true;
}

bool read_listen_drop(const Json& object, ShownListenDrop& drop, std::string& why) {
  if (!read_time(object, drop.time_unix_ns, why)) return false;
  drop.owner = read_owner(object);
  drop.listener = text(object, "listener");
  drop.reason = text(object, "reason");
  drop.limit_name = text(object, "limit_name");
  drop.fix = text(object, "fix");
  drop.count = number(object, "count").value_or(0);
  drop.limit_value = number(object, "limit_value");
  drop.accept_queue_length = number(object, "accept_queue_length");
  drop.accept_queue_limit = number(object, "accept_queue_limit");
  drop.syn_queue_length = number(object, "syn_queue_length");
  return true;
}

// An object with a type.
bool parse(std::string_view line, Json& object, std::string& type, std::string& why) {
  if (line.size() > kLineBytesMax) {
    why = "longer than a record can be";
    return false;
  }
  object = Json::parse(line, nullptr, /*allow_exceptions=*/false);
  type = object.is_discarded() ? std::string() : text(object, "type");
  if (object.is_discarded()) {
    why = "no valid JSON";
  } else if (!object.is_object()) {
    why = "no JSON object";
  } else if (type.empty()) {
    why = "no record: it has no type";
  }
  return !type.empty();
}

// Node, connection, ordinal -> place in ReadRecords::requests.
using KnownRequests = std::map<std::tuple<std::string, std::string, std::uint64_t>, std::size_t>;

// Records of an open request come again, with more in them; nothing comes after the final one.
void add_request(ShownRequest request, ReadRecords& read, KnownRequests& known) {
  if (!request.conn_id.empty()) {
    const auto [at, is_new] =
        known.try_emplace({request.owner.node, request.conn_id, request.ordinal}, read.requests.size());
    if (!is_new) {
      ShownRequest& before = read.requests[at->second];
      if (!before.final || request.final) before = std::move(request);
      return;
    }
  }
  read.requests.push_back(std::move(request));
}

bool read_line(std::string_view line, ReadRecords& read, KnownRequests& known, std::string& why) {
  Json object;
  std::string type;
  if (!parse(line, object, type, why)) return false;
  if (type == "request") {
    ShownRequest request;
    if (!read_request(object, request, why)) return false;
    add_request(std::move(request), read, known);
  } else if (type == "reset") {
    ShownReset reset;
    if (!read_reset(object, reset, why)) return false;
    read.resets.push_back(std::move(reset));
  } else if (type == "listen_drop") {
    ShownListenDrop drop;
    if (!read_listen_drop(object, drop, why)) return false;
    read.listen_drops.push_back(std::move(drop));
  } else {
    ++read.other_types[type];
  }
  return true;
}

}  // namespace

bool parse_request(std::string_view line, ShownRequest& request, std::string& why) {
  Json object;
  std::string type;
  if (!parse(line, object, type, why)) return false;
  if (type != "request") why = "a record of another type";
  return type == "request" && read_request(object, request, why);
}

ReadRecords read_records(std::istream& lines) {
  ReadRecords read;
  KnownRequests known;
  std::string line, why;
  for (std::size_t number = 1; std::getline(lines, line); ++number) {
    if (line.find_first_not_of(" \t\r") == line.npos) continue;
    if (!read_line(line, read, known, why)) read.bad_lines.push_back({number, why});
  }
  return read;
}

}  // namespace inferwire::cli
