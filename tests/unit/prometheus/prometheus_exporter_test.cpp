// SPDX-License-Identifier: Apache-2.0
#include "exporters/prometheus/prometheus_exporter.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "tests/unit/prometheus/http_client.h"

namespace inferwire::prometheus {
namespace {

using metrics::FamilyId;
using metrics::Registry;

std::size_t sample(const std::string& text, const std::string& name_and_labels) {
  const auto at = text.find("\n" + name_and_labels + " ");
  return at == std::string::npos ? 0 : std::stoul(text.substr(at + name_and_labels.size() + 2));
}

TEST(PrometheusExporter, BeforeTheFirstSnapshotItIsUnavailable) {
  Registry registry;
  PrometheusExporter exporter(registry.edges(FamilyId::kScrapeSeconds));
  EXPECT_EQ(exporter.scrape().status, 503);
}

TEST(PrometheusExporter, TheLastSnapshotIsServedOverHttp) {
  Registry registry;
  PrometheusExporter exporter(registry.edges(FamilyId::kScrapeSeconds));
  const auto server = HttpServer::start({.address = "127.0.0.1:0"}, {{"/metrics", [&] { return exporter.scrape(); }}});
  ASSERT_TRUE(server.has_value());
  registry.add(FamilyId::kRecordsTotal, {"request"}, 3);
  exporter.publish(registry.snapshot());
  registry.add(FamilyId::kRecordsTotal, {"request"}, 4);
  exporter.publish(registry.snapshot());
  const std::string answer = HttpClient::ask((*server)->address(), "GET", "/metrics");
  EXPECT_NE(answer.find("Content-Type: text/plain; version=0.0.4; charset=utf-8\r\n"), std::string::npos) << answer;
  EXPECT_EQ(sample(answer, "inferwire_records_total{kind=\"request\"}"), 7u);
}

TEST(PrometheusExporter, ScrapesOfOneSnapshotShareOneText) {
  Registry registry;
  PrometheusExporter exporter(registry.edges(FamilyId::kScrapeSeconds));
  exporter.publish(registry.snapshot());
  const auto first = exporter.scrape().body;
  EXPECT_EQ(exporter.scrape().body, first);
  exporter.publish(registry.snapshot());
  EXPECT_NE(exporter.scrape().body, first);
}

TEST(PrometheusExporter, EveryScrapeIsCountedOnce) {
  Registry registry;
  PrometheusExporter exporter(registry.edges(FamilyId::kScrapeSeconds));
  exporter.publish(registry.snapshot());
  for (int i = 0; i < 5; ++i) exporter.scrape();
  exporter.report_scrapes(registry);
  exporter.report_scrapes(registry);
  exporter.publish(registry.snapshot());
  EXPECT_EQ(sample(*exporter.scrape().body, "inferwire_scrape_seconds_count"), 5u);
}

TEST(PrometheusExporter, ScrapesDuringWritesAreConsistent) {
  Registry registry;
  PrometheusExporter exporter(registry.edges(FamilyId::kScrapeSeconds));
  exporter.publish(registry.snapshot());
  std::atomic<bool> stop{false};
  std::thread scraper([&] {
    std::size_t last = 0;
    while (!stop) {
      const auto body = exporter.scrape().body;
      const std::size_t records = sample(*body, "inferwire_records_total{kind=\"request\"}");
      const std::size_t lost = sample(*body, "inferwire_records_lost_total{kind=\"request\",where=\"jsonl\"}");
      EXPECT_EQ(records, lost) << "written together, so seen together";
      EXPECT_GE(records, last);
      last = records;
    }
  });
  for (int i = 0; i < 3000; ++i) {
    registry.add(FamilyId::kRecordsTotal, {"request"});
    registry.add(FamilyId::kRecordsLostTotal, {"request", "jsonl"});
    exporter.report_scrapes(registry);
    exporter.publish(registry.snapshot());
  }
  stop = true;
  scraper.join();
}

}  // namespace
}  // namespace inferwire::prometheus
