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
