// SPDX-License-Identifier: Apache-2.0
// /metrics: the last published snapshot as text. The writer of the registry never waits for a scrape, and a scrape
// never for the writer: they share one pointer.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "agent/metrics/registry.h"
#include "agent/metrics/snapshot.h"
#include "exporters/prometheus/http_server.h"

namespace inferwire::prometheus {

class PrometheusExporter : public metrics::Exporter {
 public:
  // `scrape_edges_seconds`: registry.edges(FamilyId::kScrapeSeconds).
  explicit PrometheusExporter(std::span<const double> scrape_edges_seconds);

  // By the registry's thread.
  void publish(std::shared_ptr<const metrics::Snapshot> snapshot) override;

  // By the registry's thread: adds the scrapes since the last call to inferwire_scrape_seconds.
  void report_scrapes(metrics::Registry& registry);

  // The handler of /metrics, by any thread. 503 before the first publish(). Scrapes of one snapshot share one text.
  HttpResponse scrape();

 private:
  std::shared_ptr<const std::string> text_of(const std::shared_ptr<const metrics::Snapshot>& snapshot);

  std::mutex snapshot_mutex_;  // held for the copy or swap of a pointer only
  std::shared_ptr<const metrics::Snapshot> snapshot_;

  std::mutex text_mutex_;  // never taken by publish()
  std::shared_ptr<const metrics::Snapshot> text_snapshot_;
  std::shared_ptr<const std::string> text_;

  std::mutex times_mutex_;  // held for a few additions only
  const std::vector<double> scrape_edges_seconds_;
  std::vector<std::uint64_t> scrape_counts_;
  double scrape_seconds_sum_ = 0;
};

}  // namespace inferwire::prometheus
