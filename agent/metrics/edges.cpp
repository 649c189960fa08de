// SPDX-License-Identifier: Apache-2.0
#include "agent/metrics/edges.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <iterator>
#include <string>

namespace inferwire::metrics {
namespace {

constexpr double kDurationEdges[] = {.001, .0025, .005, .01, .025, .05, .1, .2, .3, .45, .5, .75,
                                     1,    1.5,   2,    3,   4.5,  6,   10, 20, 40, 80,  160};
constexpr double kGapEdges[] = {.0005, .001, .002, .004, .006, .008, .01, .0125, .015, .02, .025, .03,
                                .04,   .05,  .075, .1,   .15,  .2,   .5,  1,     2.5,  5,   10};
constexpr double kPhaseEdges[] = {.001, .005, .01, .05, .1, .25, .5, 1, 2.5, 5, 10, 60};
constexpr double kDeliveryEdges[] = {1, 2, 4, 8, 16, 32, 64};
constexpr double kByteEdges[] = {256, 1024, 4096, 16384, 65536, 262144, 1048576, 4194304, 16777216, 67108864};
constexpr double kScrapeEdges[] = {.0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1};
#define IW_EDGE_IN_SECONDS(edge_us) edge_us / 1e6,
constexpr double kTcpEdges[] = {IW_TCP_EDGES(IW_EDGE_IN_SECONDS)};
#undef IW_EDGE_IN_SECONDS
static_assert(std::size(kTcpEdges) == IW_TCP_EDGES_COUNT);

std::string number_text(double value) {
  char buffer[64];
  const auto end = std::to_chars(buffer, buffer + sizeof buffer, value).ptr;
  return std::string(buffer, end);
}

}  // namespace

std::span<const double> default_edges(EdgesId id) {
  switch (id) {
    case EdgesId::kNone:
      return {};
    case EdgesId::kDurations:
      return kDurationEdges;
    case EdgesId::kGaps:
      return kGapEdges;
    case EdgesId::kPhases:
      return kPhaseEdges;
    case EdgesId::kDeliveries:
      return kDeliveryEdges;
    case EdgesId::kBytes:
      return kByteEdges;
    case EdgesId::kScrapes:
      return kScrapeEdges;
    case EdgesId::kTcp:
      return kTcpEdges;
  }
  return {};
}

std::string_view edges_name(EdgesId id) {
  switch (id) {
    case EdgesId::kNone:
      return "none";
    case EdgesId::kDurations:
      return "durations";
    case EdgesId::kGaps:
      return "gaps";
    case EdgesId::kPhases:
      return "phases";
    case EdgesId::kDeliveries:
      return "deliveries";
    case EdgesId::kBytes:
      return "bytes";
    case EdgesId::kScrapes:
      return "scrapes";
    case EdgesId::kTcp:
      return "tcp";
  }
  return "none";
}

base::Result<std::vector<double>> edges_with(EdgesId id, std::span<const double> added) {
  const auto what = "add histogram edges to";
  double previous = 0;
  for (const double edge : added) {
    if (!std::isfinite(edge) || edge <= 0) {
      return base::fail(what, edges_name(id), number_text(edge) + " is not a positive number",
                        "give positive numbers in base units (seconds, bytes)");
    }
    if (edge <= previous) {
      return base::fail(what, edges_name(id), number_text(edge) + " does not come after " + number_text(previous),
                        "give every edge once, in rising order");
    }
    previous = edge;
  }

  const auto defaults = default_edges(id);
  std::vector<double> all;
  std::set_union(defaults.begin(), defaults.end(), added.begin(), added.end(), std::back_inserter(all));
  if (all.size() > kEdgesMax) {
    return base::fail(what, edges_name(id),
                      std::to_string(all.size()) + " edges, at most " + std::to_string(kEdgesMax) + " are possible",
                      "add at most " + std::to_string(kEdgesMax - defaults.size()));
  }
  return all;
}

std::vector<std::uint64_t> edges_in_ns(std::span<const double> edges_seconds) {
  std::vector<std::uint64_t> edges_ns;
  for (const double edge : edges_seconds) edges_ns.push_back(static_cast<std::uint64_t>(std::llround(edge * 1e9)));
  return edges_ns;
}

std::size_t bucket_of(std::span<const double> edges, double value) {
  return static_cast<std::size_t>(std::lower_bound(edges.begin(), edges.end(), value) - edges.begin());
}

}  // namespace inferwire::metrics
