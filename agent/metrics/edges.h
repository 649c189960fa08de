// SPDX-License-Identifier: Apache-2.0
// Upper bounds of histogram buckets. A value belongs to the first bucket whose edge is not below it (Prometheus'
// `le`); one more bucket, +Inf, takes the rest, so n edges have n + 1 counts.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "agent/base/result.h"
#include "inferwire/event_abi.h"

namespace inferwire::metrics {

// As many as the kernel's histograms hold.
inline constexpr std::size_t kEdgesMax = IW_GAP_EDGES_MAX;

enum class EdgesId : std::uint8_t {
  kNone,        // not a histogram
  kDurations,   // seconds: TTFT and other times of a request
  kGaps,        // seconds: between chunks
  kPhases,      // seconds
  kDeliveries,  // chunks
  kBytes,
  kScrapes,  // seconds
  kTcp,      // seconds: round trips, handshakes, waits; the kernel's own, nobody can add to them
};
inline constexpr std::size_t kEdgesIdCount = 8;

std::span<const double> default_edges(EdgesId id);

// "durations", "gaps", ...: as configuration and docs call them.
std::string_view edges_name(EdgesId id);

// The default edges and the user's, so that a service-level objective can sit on an edge. `added` must be positive
// and strictly increasing; an edge that exists already changes nothing; at most kEdgesMax in all.
base::Result<std::vector<double>> edges_with(EdgesId id, std::span<const double> added);

// Seconds to nanoseconds, for the kernel's histograms.
std::vector<std::uint64_t> edges_in_ns(std::span<const double> edges_seconds);

// Which bucket `value` belongs to: 0 .. edges.size().
std::size_t bucket_of(std::span<const double> edges, double value);

}  // namespace inferwire::metrics
