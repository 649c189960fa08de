// SPDX-License-Identifier: Apache-2.0
// Names of what kernel records hold as numbers (event_abi.h). Unknown numbers give "": hostile or newer records must
// not break anything.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace inferwire::model {

// What the loader told the kernel programs, needed to read their records.
struct Settings {
  // Upper edges of the gap histogram's buckets, ascending, at most IW_GAP_EDGES_MAX; one bucket more is beyond the
  // last.
  std::vector<std::uint64_t> gap_edges_ns;
  // Paths of the routes IW_ROUTE_CONFIGURED, IW_ROUTE_CONFIGURED + 1, ...
  std::vector<std::string> configured_routes;
  // The program that times reads works: a request that was not read yet waits for its application. The tracker
  // finds out by itself.
  bool reads_seen = false;

  Settings();  // the default edges, no configured routes
};

std::vector<std::uint64_t> default_gap_edges_ns();

std::string_view role_name(std::uint8_t role);          // "server", "client", ""
std::string_view method_name(std::uint8_t method);      // "POST", ""
std::string_view encoding_name(std::uint8_t encoding);  // "identity", "gzip", ...
std::string_view outcome_name(std::uint8_t outcome);    // "complete", ...; "" while open
std::string_view side_name(std::uint8_t side);          // "server", "client", ""

// The path of a known or configured route, else "other".
std::string_view route_name(std::uint8_t route, const Settings& settings);

// Phase IW_PHASE_* as that role calls it ("server" / "wait"); "" where the role has no such phase.
std::string_view phase_name(std::uint8_t role, int phase);

// IW_RETRANS_TYPES in order: "fast", "rto", "tlp", "other".
std::string_view retransmit_type_name(int type);

// Kinds that come through the ring buffer, IW_REC_FINAL to IW_REC_KINDS - 1: "final", "partial", ...
std::string_view record_kind_name(std::size_t kind);

// The TCP families' labels: docs/metrics.md.
std::string_view direction_name(std::size_t direction);     // IW_DIRECTION_*
std::string_view segment_type_name(std::size_t type);       // IW_RETRANSMIT_*: "syn", "synack", "fast", ...
std::string_view connect_result_name(std::size_t result);   // IW_CONNECT_*
std::string_view reset_cause_name(std::size_t cause);       // IW_RESET_*
std::string_view drop_reason_name(std::size_t reason);      // IW_DROP_*
std::string_view socket_state_name(std::size_t state);      // the kernel's number: 1 "established", 8 "close_wait"
std::string_view packet_path_event_name(std::size_t stat);  // IW_STAT_*; "" for those that are no events

// Label value of a status code: exact for the codes of the contract, else its class ("2xx"), "" without a response.
std::string code_label(std::uint16_t code);

// "127.0.0.1:8000", "[::1]:8000". `address` is IPv4 as v4-mapped; `port` in host order.
std::string address_text(const std::uint8_t (&address)[16], std::uint16_t port);

}  // namespace inferwire::model
