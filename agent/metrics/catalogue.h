// SPDX-License-Identifier: Apache-2.0
// Every metric family that inferwire exports, declared once (families.inc). docs/metrics.md is made from this.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "agent/metrics/edges.h"

namespace inferwire::metrics {

enum class MetricType : std::uint8_t { kCounter, kGauge, kHistogram };

enum class Section : std::uint8_t { kRequests, kTcp, kAgent };

enum class FamilyId : std::uint16_t {
#define IW_FAMILY(id, ...) id,
#include "agent/metrics/families.inc"
#undef IW_FAMILY
};

inline constexpr std::size_t kLabelsMax = 12;

struct Family {
  FamilyId id;
  Section section;
  MetricType type;
  EdgesId edges;          // kNone unless a histogram
  std::string_view unit;  // "seconds", "bytes", or empty: a plain number
  std::string_view name;
  std::string_view help;
  std::array<std::string_view, kLabelsMax> label_storage;
  std::size_t label_count;

  constexpr std::span<const std::string_view> labels() const { return std::span(label_storage.data(), label_count); }
  // Position of a label, or -1.
  constexpr int label_index(std::string_view label) const {
    for (std::size_t i = 0; i < label_count; ++i) {
      if (label_storage[i] == label) return static_cast<int>(i);
    }
    return -1;
  }
};

// All families, in the order of FamilyId.
std::span<const Family> catalogue();

const Family& family_of(FamilyId id);

// "counter", "gauge", "histogram".
std::string_view type_name(MetricType type);

// What a label says and which values it has; empty for a label that no family has.
std::string_view label_meaning(std::string_view label);

// docs/metrics.md.
std::string catalogue_markdown();

}  // namespace inferwire::metrics
