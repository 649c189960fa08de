// SPDX-License-Identifier: Apache-2.0
#include "agent/metrics/snapshot.h"

namespace inferwire::metrics {

std::span<const std::uint64_t> FamilySnapshot::buckets_of(std::size_t series_index) const {
  if (!edges) return {};
  const std::size_t buckets = edges->size() + 1;
  return std::span(bucket_counts).subspan(series_index * buckets, buckets);
}

const FamilySnapshot* Snapshot::find(FamilyId id) const {
  for (const auto& family : families) {
    if (family.family->id == id) return &family;
  }
  return nullptr;
}

std::size_t Snapshot::samples() const {
  std::size_t total = 0;
  for (const auto& family : families) total += family.series.size() * (family.edges ? family.edges->size() + 3 : 1);
  return total;
}

}  // namespace inferwire::metrics
