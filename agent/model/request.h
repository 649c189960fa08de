// SPDX-License-Identifier: Apache-2.0
// One LLM request seen from one socket: what a kernel record means. Pure; all times are CLOCK_MONOTONIC nanoseconds
// unless the name says unix. What is not known is empty, never zero.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "agent/model/names.h"
#include "inferwire/event_abi.h"

namespace inferwire::model {

using OptionalNs = std::optional<std::uint64_t>;

struct Clock {
  std::int64_t mono_to_unix_offset_ns = 0;  // unix = monotonic + offset

  std::int64_t unix_ns(std::uint64_t mono_ns) const {
    return static_cast<std::int64_t>(mono_ns + static_cast<std::uint64_t>(mono_to_unix_offset_ns));
  }
};

// Gaps between deliveries with content, in one view.
struct Gaps {
  std::uint64_t count = 0;
  std::uint64_t sum_ns = 0;
  std::uint64_t max_ns = 0;
  std::vector<std::uint32_t> buckets;  // one more than there are edges; empty when there was no gap

  // Upper edge of the bucket with the q-quantile (0 < q <= 1), never above max_ns; 0 when empty.
  std::uint64_t quantile_ns(double q, const std::vector<std::uint64_t>& edges_ns) const;
};

struct Rtt {
  std::uint32_t min_us = 0;
  std::uint32_t mean_us = 0;
  std::uint32_t max_us = 0;
};

struct Request {
  bool final = false;
  std::uint8_t role = IW_ROLE_UNKNOWN;
  std::uint8_t route = IW_ROUTE_OTHER;
  std::uint8_t outcome = IW_OUTCOME_NONE;
  bool is_new_connection = false;  // the connection's first request, and the agent saw the connection begin
  bool stream = false;
  bool approximate = false;  // some bytes could not be put in order: counts and times may be off
  bool end_marker = false;
  bool early_response = false;  // answered before the request's last byte

  std::uint64_t start_ns = 0;  // first request byte
  std::int64_t start_unix_ns = 0;
  std::uint64_t duration_ns = 0;  // first request byte to last response byte acknowledged; open: so far

  std::uint64_t cookie = 0;
  std::uint32_t ordinal = 0;  // 1 = the connection's first request
  std::uint32_t pid = 0;
  std::string comm;
  std::string local;
  std::string remote;
  std::uint16_t local_port = 0;
  std::uint16_t remote_port = 0;

  std::string_view method;  // constant
  std::string route_path;
  std::string_view encoding;      // constant
  std::string_view closed_first;  // "server", "client", ""
  std::string_view reset_by;      // side that sent RST
  std::uint16_t code = 0;         // 0 = no response head
  std::string trace_id;
  std::string response_id;
  std::string model;
  std::string finish_reason;

  std::uint64_t request_body_bytes = 0;
  std::uint64_t response_body_bytes = 0;

  // Setup before the first request byte; of a new connection only.
  OptionalNs handshake_ns;
  OptionalNs accept_wait_before_ns;
  OptionalNs idle_before_ns;     // since the connection was ready, or since the previous response's end
  bool accept_is_bound = false;  // the time of accept() is an upper bound

  // By IW_PHASE_*. A phase the request did not reach, or that this role does not have, is empty; one whose end is not
  // known is empty and has its bit in phases_missing. Those that are there add up to duration_ns exactly.
  std::array<OptionalNs, IW_PHASES_MAX> phases_ns;
  std::uint32_t phases_missing = 0;  // bit IW_PHASE_*

  OptionalNs ttfb_ns;          // last request byte to response head
  OptionalNs ttft_server_ns;   // server: last request byte to first content handed to TCP
  OptionalNs ttft_user_ns;     // first request byte (new connection: SYN) to first content acknowledged (client: in)
  OptionalNs first_output_ns;  // last request byte to the first content that is not reasoning
  std::string_view delivered;  // "exact", "estimated", "" without content

  std::uint32_t chunks = 0;
  std::uint32_t chunks_reasoning = 0;
  std::uint32_t chunks_tool = 0;
  std::uint32_t comments = 0;
  std::uint32_t events = 0;
  std::uint64_t deliveries = 0;
  std::array<std::uint32_t, IW_BURST_BUCKETS> bursts{};  // deliveries with 1, 2, 3-4, 5-8, ... chunks

  std::optional<std::uint32_t> tokens_output;
  std::optional<std::uint32_t> tokens_input;
  OptionalNs queue_ns;  // what the response's tail says
  OptionalNs prefill_ns;
  OptionalNs load_ns;
  OptionalNs time_per_token_ns;  // (last - first content) / (tokens - 1); streams with at least 2 tokens

  Gaps gaps_sent;       // server role: transmitted
  Gaps gaps_delivered;  // server role: acknowledged; client role: came in
  std::vector<std::uint64_t> gap_edges_ns;

  std::optional<Rtt> rtt;
  std::uint32_t retransmitted_segments = 0;
  std::array<std::array<std::uint16_t, IW_RETRANS_TYPES>, IW_PHASES_MAX> retransmits{};
};

// `final`: the request has ended. An open one (whose header's kind and time may be stale) lasts until `now_ns`, or
// until its latest mark where `now_ns` is earlier or 0. Never fails: marks that contradict each other are clamped.
Request make_request(const iw_record& record, bool final, const Clock& clock, const Settings& settings = {},
                     std::uint64_t now_ns = 0);

}  // namespace inferwire::model
