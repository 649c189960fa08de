// SPDX-License-Identifier: Apache-2.0
// The state of all families at one moment, immutable: what exporters read. See docs/decisions/0002.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "agent/metrics/catalogue.h"

namespace inferwire::metrics {

using LabelValues = std::vector<std::string>;  // in the order of Family::labels()

struct SeriesSnapshot {
  std::shared_ptr<const LabelValues> label_values;  // clean (see base/label.h); shared with the registry
  double value = 0;                                 // counter, gauge; histogram: the sum of what was observed
  std::uint64_t count = 0;                          // histogram: how many were observed
};

struct FamilySnapshot {
  const Family* family = nullptr;
  std::shared_ptr<const std::vector<double>> edges;  // histogram only
  std::vector<SeriesSnapshot> series;                // ordered by label values
  std::vector<std::uint64_t> bucket_counts;          // edges + 1 for each series, not cumulative

  std::span<const std::uint64_t> buckets_of(std::size_t series_index) const;
};

struct Snapshot {
  std::vector<FamilySnapshot> families;  // those with series, in the catalogue's order

  const FamilySnapshot* find(FamilyId id) const;
  // Lines of the text format: a histogram has one for each bucket, +Inf, sum and count.
  std::size_t samples() const;
};

// What publishes snapshots: one for each way out of the process. publish() is called by the thread that owns the
// registry and must not wait for a reader.
class Exporter {
 public:
  virtual ~Exporter() = default;
  virtual void publish(std::shared_ptr<const Snapshot> snapshot) = 0;
};

}  // namespace inferwire::metrics
