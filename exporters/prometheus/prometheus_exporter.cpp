// SPDX-License-Identifier: Apache-2.0
#include "exporters/prometheus/prometheus_exporter.h"

#include <chrono>
#include <utility>

#include "exporters/prometheus/text_format.h"

namespace inferwire::prometheus {

PrometheusExporter::PrometheusExporter(std::span<const double> scrape_edges_seconds)
    : scrape_edges_seconds_(scrape_edges_seconds.begin(), scrape_edges_seconds.end()),
      scrape_counts_(scrape_edges_seconds.size() + 1) {}

void PrometheusExporter::publish(std::shared_ptr<const metrics::Snapshot> snapshot) {
  {
    const std::lock_guard lock(snapshot_mutex_);
    snapshot_.swap(snapshot);
  }
  // The old snapshot, if this was its last owner, is freed here, outside the lock.
}

void PrometheusExporter::report_scrapes(metrics::Registry& registry) {
  std::vector<std::uint64_t> counts(scrape_counts_.size());
  double sum = 0;
  {
    const std::lock_guard lock(times_mutex_);
    counts.swap(scrape_counts_);
    std::swap(sum, scrape_seconds_sum_);
  }
  registry.observe_counts(metrics::FamilyId::kScrapeSeconds, {}, counts, sum);
}

HttpResponse PrometheusExporter::scrape() {
  const auto begin = std::chrono::steady_clock::now();
  std::shared_ptr<const metrics::Snapshot> snapshot;
  {
    const std::lock_guard lock(snapshot_mutex_);
    snapshot = snapshot_;
  }
  if (!snapshot) return text_response(503, "no metrics yet: the agent is starting\n");
  HttpResponse response{200, text_of(snapshot), std::string(kTextContentType)};

  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
  const std::lock_guard lock(times_mutex_);
  ++scrape_counts_[metrics::bucket_of(scrape_edges_seconds_, took.count())];
  scrape_seconds_sum_ += took.count();
  return response;
}

std::shared_ptr<const std::string> PrometheusExporter::text_of(
    const std::shared_ptr<const metrics::Snapshot>& snapshot) {
  const std::lock_guard lock(text_mutex_);
  if (text_snapshot_ != snapshot) {
    text_ = std::make_shared<const std::string>(write_text(*snapshot));
    text_snapshot_ = snapshot;
  }
  return text_;
}

}  // namespace inferwire::prometheus
