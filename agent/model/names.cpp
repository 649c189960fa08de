// SPDX-License-Identifier: Apache-2.0
#include "agent/model/names.h"

#include <arpa/inet.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "agent/metrics/edges.h"
#include "inferwire/event_abi.h"

namespace inferwire::model {
namespace {

template <std::size_t N>
std::string_view at_or_empty(const std::array<std::string_view, N>& names, std::size_t index) {
  return index < N ? names[index] : std::string_view();
}

constexpr std::array<std::string_view, 3> kRoles = {"", "server", "client"};
constexpr std::array<std::string_view, 10> kMethods = {"",       "GET",     "HEAD",  "POST",    "PUT",
                                                       "DELETE", "OPTIONS", "PATCH", "CONNECT", "TRACE"};
constexpr std::array<std::string_view, 6> kEncodings = {"identity", "gzip", "br", "deflate", "zstd", "other"};
constexpr std::array<std::string_view, 9> kOutcomes = {
    "",      "complete",          "error_in_stream", "truncated_clean", "truncated_abrupt", "client_abort",
    "reset", "reset_stale_reuse", "no_response"};
constexpr std::array<std::string_view, IW_PHASES_MAX> kServerPhases = {
    "upload", "accept_wait", "read_wait", "server", "hold", "first_delivery", "stream", "drain"};
constexpr std::array<std::string_view, IW_PHASES_MAX> kClientPhases = {"send", "",           "",       "wait",
                                                                       "",     "first_read", "stream", "drain"};
constexpr std::array<std::string_view, IW_RETRANS_TYPES> kRetransmitTypes = {"fast", "rto", "tlp", "other"};

constexpr std::array<std::string_view, IW_REC_KINDS> kRecordKinds = {"",         "final", "partial",
                                                                     "delivery", "reset", "listen_drop"};
constexpr std::array<std::string_view, 2> kDirections = {"received", "sent"};
constexpr std::array<std::string_view, IW_RETRANSMIT_TYPES> kSegmentTypes = {"syn", "synack", "fast",
                                                                             "rto", "tlp",    "other"};
constexpr std::array<std::string_view, IW_CONNECT_RESULTS> kConnectResults = {
    "ok", "refused", "reset", "timeout", "unreachable", "aborted", "no_port"};
constexpr std::array<std::string_view, IW_RESET_CAUSES> kResetCauses = {"no_listener",
                                                                        "listen_queue_full",
                                                                        "abort_on_close",
                                                                        "abort_on_linger",
                                                                        "abort_on_data",
                                                                        "on_data_after_close",
                                                                        "stale_reuse",
                                                                        "keepalive_timeout",
                                                                        "user_timeout",
                                                                        "memory",
                                                                        "invalid_segment",
                                                                        "firewall",
                                                                        "peer",
                                                                        "unknown"};
constexpr std::array<std::string_view, IW_DROP_REASONS> kDropReasons = {"accept_queue_full", "syn_queue_full",
                                                                        "max_syn_backlog", "other"};
// include/net/tcp_states.h.
constexpr std::array<std::string_view, 13> kSocketStates = {
    "",      "established", "syn_sent", "syn_recv", "fin_wait1", "fin_wait2",   "time_wait",
    "close", "close_wait",  "last_ack", "listen",   "closing",   "new_syn_recv"};

struct StatName {
  std::size_t stat;
  std::string_view name;
};
constexpr StatName kPacketPathEvents[] = {{IW_STAT_NO_SLOT, "no_slot"},
                                          {IW_STAT_LOCK_BUSY, "lock_busy"},
                                          {IW_STAT_HOLE_DROPPED, "hole_dropped"},
                                          {IW_STAT_HOLE_KEPT, "hole_kept"},
                                          {IW_STAT_RESYNC, "resync"},
                                          {IW_STAT_SUSPECT, "suspect"},
                                          {IW_STAT_SUSPECT_DROPPED, "suspect_dropped"},
                                          {IW_STAT_NOT_HTTP, "not_http"},
                                          {IW_STAT_PIPELINE_FULL, "pipeline_full"},
                                          {IW_STAT_STORAGE_FAILED, "storage_failed"},
                                          {IW_STAT_COUNTS_FULL, "counts_full"},
                                          {IW_STAT_IGNORED, "ignored"},
                                          {IW_STAT_LISTENER_BYTES, "listener_bytes"},
                                          {IW_STAT_OVERLONG, "overlong"},
                                          {IW_STAT_FOLLOWED, "followed"},
                                          {IW_STAT_MALFORMED, "malformed"},
                                          {IW_STAT_FLOWS, "flows"},
                                          {IW_STAT_SUMS_FULL, "sums_full"},
                                          {IW_STAT_RESETS_NO_SOCKET, "resets_no_socket"}};

struct RouteName {
  std::uint8_t id;
  std::string_view path;
};
constexpr RouteName kRoutes[] = {
#define IW_ROUTE_NAME(id, path) {id, path},
    IW_ROUTES(IW_ROUTE_NAME)
#undef IW_ROUTE_NAME
};

// Codes that the contract counts one by one.
constexpr std::uint16_t kExactCodes[] = {200, 400, 401, 403, 404, 408, 413, 422, 429, 499, 500, 502, 503, 504, 529};

}  // namespace

std::vector<std::uint64_t> default_gap_edges_ns() {
  return metrics::edges_in_ns(metrics::default_edges(metrics::EdgesId::kGaps));
}

Settings::Settings() : gap_edges_ns(default_gap_edges_ns()) {}

std::string_view role_name(std::uint8_t role) { return at_or_empty(kRoles, role); }
std::string_view method_name(std::uint8_t method) { return at_or_empty(kMethods, method); }
std::string_view encoding_name(std::uint8_t encoding) { return at_or_empty(kEncodings, encoding); }
std::string_view outcome_name(std::uint8_t outcome) { return at_or_empty(kOutcomes, outcome); }
std::string_view side_name(std::uint8_t side) { return at_or_empty(kRoles, side); }

std::string_view route_name(std::uint8_t route, const Settings& settings) {
  for (const RouteName& known : kRoutes) {
    if (known.id == route) return known.path;
  }
  const std::size_t configured = route - std::size_t{IW_ROUTE_CONFIGURED};
  if (route >= IW_ROUTE_CONFIGURED && configured < settings.configured_routes.size()) {
    return settings.configured_routes[configured];
  }
  return "other";
}

std::string_view phase_name(std::uint8_t role, int phase) {
  const auto index = static_cast<std::size_t>(phase);
  return role == IW_ROLE_CLIENT ? at_or_empty(kClientPhases, index) : at_or_empty(kServerPhases, index);
}

std::string_view retransmit_type_name(int type) {
  return at_or_empty(kRetransmitTypes, static_cast<std::size_t>(type));
}

std::string_view record_kind_name(std::size_t kind) { return at_or_empty(kRecordKinds, kind); }
std::string_view direction_name(std::size_t direction) { return at_or_empty(kDirections, direction); }
std::string_view segment_type_name(std::size_t type) { return at_or_empty(kSegmentTypes, type); }
std::string_view connect_result_name(std::size_t result) { return at_or_empty(kConnectResults, result); }
std::string_view reset_cause_name(std::size_t cause) { return at_or_empty(kResetCauses, cause); }
std::string_view drop_reason_name(std::size_t reason) { return at_or_empty(kDropReasons, reason); }
std::string_view socket_state_name(std::size_t state) { return at_or_empty(kSocketStates, state); }

std::string_view packet_path_event_name(std::size_t stat) {
  for (const StatName& event : kPacketPathEvents) {
    if (event.stat == stat) return event.name;
  }
  return {};
}

std::string code_label(std::uint16_t code) {
  if (std::find(std::begin(kExactCodes), std::end(kExactCodes), code) != std::end(kExactCodes)) {
    return std::to_string(code);
  }
  if (code >= 100 && code < 600) return std::to_string(code / 100) + "xx";
  return code == 0 ? "" : "other";
}

std::string address_text(const std::uint8_t (&address)[16], std::uint16_t port) {
  constexpr std::uint8_t kMappedPrefix[12] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};
  char text[INET6_ADDRSTRLEN] = "";
  if (std::memcmp(address, kMappedPrefix, sizeof kMappedPrefix) == 0) {
    inet_ntop(AF_INET, address + 12, text, sizeof text);
    return std::string(text) + ":" + std::to_string(port);
  }
  inet_ntop(AF_INET6, address, text, sizeof text);
  return "[" + std::string(text) + "]:" + std::to_string(port);
}

}  // namespace inferwire::model
