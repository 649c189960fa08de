// SPDX-License-Identifier: Apache-2.0
// Reads records (docs/records.md) back from JSON lines. Tolerant: what is absent or of another type is not
// known; records of other types and newer versions are no error.
#pragma once

#include <cstddef>
#include <cstdint>
#include <istream>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace inferwire::cli {

using OptionalNumber = std::optional<std::uint64_t>;

struct ShownGaps {
  OptionalNumber mean_ns, p50_ns, p99_ns, max_ns;
};

struct ShownPhase {
  std::string name;
  std::uint64_t ns = 0;
};

// Texts here are as the records have them: not safe for a terminal.

struct ShownOwner {
  std::string node, name_space, workload, pod, comm;
  std::uint64_t pid = 0;
};

struct ShownReset {
  std::int64_t time_unix_ns = 0;
  ShownOwner owner;
  std::string direction, cause, role, local, remote, closed_first, kernel_reason;
  bool request_open = false;
  OptionalNumber age_ns, idle_ns, ordinal, chunks;
};

struct ShownListenDrop {
  std::int64_t time_unix_ns = 0;
  ShownOwner owner;
  std::string listener, reason, limit_name, fix;
  std::uint64_t count = 0;
  OptionalNumber limit_value, accept_queue_length, accept_queue_limit, syn_queue_length;
};

struct ShownRequest {
  bool final = true;
  std::int64_t start_unix_ns = 0;
  std::uint64_t duration_ns = 0;
  ShownOwner owner;
  std::string role, closed_first, reset_by;
  std::string local, remote, conn_id, trace_id, response_id;
  std::uint64_t ordinal = 0;
  std::string method, route, model, outcome, finish_reason, delivered;
  std::uint64_t code = 0;
  bool stream = false;
  bool approximate = false;
  bool early_response = false;
  OptionalNumber request_bytes, response_bytes;
  OptionalNumber handshake_ns, accept_wait_ns, idle_before_ns;
  std::vector<ShownPhase> phases;  // in the order of time
  std::vector<std::string> phases_missing;
  OptionalNumber ttfb_ns, ttft_server_ns, ttft_user_ns;
  OptionalNumber queue_ns, load_ns, prefill_ns;
  OptionalNumber chunks, deliveries, tokens_output, tokens_input, time_per_token_ns;
  ShownGaps sent, delivered_gaps;
  OptionalNumber rtt_min_us, rtt_mean_us, rtt_max_us;
  OptionalNumber retransmitted;
  std::map<std::string, std::map<std::string, std::uint64_t>> retransmits;  // phase, type

  std::int64_t end_unix_ns() const { return start_unix_ns + static_cast<std::int64_t>(duration_ns); }
};

struct BadLine {
  std::size_t number = 0;  // from 1
  std::string why;
};

struct ReadRecords {
  std::vector<ShownRequest> requests;  // in the order of the file; of one that comes again, the last
  std::vector<ShownReset> resets;
  std::vector<ShownListenDrop> listen_drops;
  std::map<std::string, std::size_t> other_types;  // how many of each
  std::vector<BadLine> bad_lines;
};

ReadRecords read_records(std::istream& lines);

// One JSON text. False with the reason if it is no request record.
bool parse_request(std::string_view text, ShownRequest& request, std::string& why);

}  // namespace inferwire::cli
