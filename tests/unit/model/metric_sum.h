// SPDX-License-Identifier: Apache-2.0
// What a registry shows, summed over the series that match.
#pragma once

#include <gtest/gtest.h>

#include <map>
#include <string>

#include "agent/metrics/registry.h"

namespace inferwire::test {

using Wanted = std::map<std::string, std::string>;

inline double metric_sum(metrics::Registry& registry, metrics::FamilyId id, const Wanted& wanted, bool counts) {
  const auto snapshot = registry.snapshot();
  const auto* family = snapshot->find(id);
  double sum = 0;
  if (family == nullptr) return 0;
  for (const auto& series : family->series) {
    bool matches = true;
    for (const auto& [label, value] : wanted) {
      const int index = family->family->label_index(label);
      EXPECT_GE(index, 0) << label;
      matches = matches && (*series.label_values)[static_cast<std::size_t>(index)] == value;
    }
    if (!matches) continue;
    const bool count = family->family->type == metrics::MetricType::kHistogram && counts;
    sum += count ? static_cast<double>(series.count) : series.value;
  }
  return sum;
}

}  // namespace inferwire::test
