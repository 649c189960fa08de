// SPDX-License-Identifier: Apache-2.0
#include "exporters/prometheus/text_format.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "agent/metrics/registry.h"

namespace inferwire::prometheus {
namespace {

using metrics::Family;
using metrics::FamilyId;
using metrics::MetricType;
using metrics::Registry;

// A snapshot with one series of a family made for the test.
metrics::Snapshot snapshot_of(const Family& family, metrics::LabelValues values, double value) {
  metrics::Snapshot snapshot;
  auto& out = snapshot.families.emplace_back();
  out.family = &family;
  out.series.push_back({std::make_shared<const metrics::LabelValues>(std::move(values)), value, 0});
  return snapshot;
}

const Family kPlain{FamilyId::kMapMemoryBytes,
                    metrics::Section::kAgent,
                    MetricType::kGauge,
                    metrics::EdgesId::kNone,
                    "",
                    "plain",
                    "Help.",
                    {},
                    0};

std::string number_text(double value) {
  const std::string text = write_text(snapshot_of(kPlain, {}, value));
  const auto start = text.rfind(' ') + 1;
  return text.substr(start, text.size() - start - 1);
}

TEST(TextFormat, ACounterIsHelpTypeAndOneLineForEachSeries) {
  Registry registry;
  registry.add(FamilyId::kRecordsTotal, {"request"}, 3);
  registry.add(FamilyId::kRecordsTotal, {"delivery"}, 4);
  const std::string text = write_text(*registry.snapshot());
  EXPECT_TRUE(
      text.starts_with("# HELP inferwire_records_total Records made: those exported and those lost.\n"
                       "# TYPE inferwire_records_total counter\n"
                       "inferwire_records_total{kind=\"delivery\"} 4\n"
                       "inferwire_records_total{kind=\"request\"} 3\n"
                       "# HELP "))
      << text;
}

TEST(TextFormat, AHistogramIsCumulativeAndEndsWithInfSumAndCount) {
  Registry registry;
  for (const double burst : {1.0, 1.0, 3.0, 100.0}) {
    registry.observe(FamilyId::kChunksPerDelivery, {"default", "chat", "main", "server"}, burst);
  }
  const std::string text = write_text(*registry.snapshot());
  const std::string labels = "namespace=\"default\",workload=\"chat\",container=\"main\",role=\"server\"";
  EXPECT_NE(text.find("inferwire_chunks_per_delivery_bucket{" + labels + ",le=\"1\"} 2\n" +
                      "inferwire_chunks_per_delivery_bucket{" + labels + ",le=\"2\"} 2\n" +
                      "inferwire_chunks_per_delivery_bucket{" + labels + ",le=\"4\"} 3\n"),
            std::string::npos)
      << text;
  EXPECT_NE(text.find("inferwire_chunks_per_delivery_bucket{" + labels + ",le=\"64\"} 3\n" +
                      "inferwire_chunks_per_delivery_bucket{" + labels + ",le=\"+Inf\"} 4\n" +
                      "inferwire_chunks_per_delivery_sum{" + labels + "} 105\n" +
                      "inferwire_chunks_per_delivery_count{" + labels + "} 4\n"),
            std::string::npos)
      << text;
}

TEST(TextFormat, AHistogramWithoutLabelsHasOnlyLe) {
  Registry registry;
  registry.observe(FamilyId::kScrapeSeconds, {}, .002);
  const std::string text = write_text(*registry.snapshot());
  EXPECT_NE(text.find("inferwire_scrape_seconds_bucket{le=\"0.0005\"} 0\n"), std::string::npos) << text;
  EXPECT_NE(text.find("\ninferwire_scrape_seconds_sum 0.002\ninferwire_scrape_seconds_count 1\n"), std::string::npos);
}

TEST(TextFormat, EdgesAreNeverScientific) {
  Registry registry;
  registry.observe(FamilyId::kTimePerOutputTokenSeconds, {"", "a", "", "server", "m"}, .01);
  registry.observe(FamilyId::kRequestBodyBytes, {"", "a", "", "server", "other"}, 1);
  const std::string text = write_text(*registry.snapshot());
  EXPECT_NE(text.find("le=\"0.0005\""), std::string::npos);
  EXPECT_NE(text.find("le=\"67108864\""), std::string::npos);
  for (auto at = text.find(",le=\""); at != std::string::npos; at = text.find(",le=\"", at + 1)) {
    const auto value = text.substr(at + 5, text.find('"', at + 5) - at - 5);
    EXPECT_EQ(value.find('e'), std::string::npos) << value;
  }
}

TEST(TextFormat, LabelValuesAreEscaped) {
  Family family = kPlain;
  family.label_storage[0] = "a";
  family.label_count = 1;
  const std::string text = write_text(snapshot_of(family, {"back\\slash \"quote\" new\nline"}, 1));
  EXPECT_NE(text.find("plain{a=\"back\\\\slash \\\"quote\\\" new\\nline\"} 1\n"), std::string::npos) << text;
}

TEST(TextFormat, HelpIsEscaped) {
  Family family = kPlain;
  family.help = "back\\slash \"quote\" new\nline";
  const std::string text = write_text(snapshot_of(family, {}, 1));
  EXPECT_TRUE(text.starts_with("# HELP plain back\\\\slash \"quote\" new\\nline\n# TYPE plain gauge\n")) << text;
}

TEST(TextFormat, NumbersReadBackExactly) {
  EXPECT_EQ(number_text(0), "0");
  EXPECT_EQ(number_text(1000000), "1000000");
  EXPECT_EQ(number_text(-3), "-3");
  EXPECT_EQ(number_text(9007199254740992.0), "9007199254740992");
  EXPECT_EQ(number_text(.1), "0.1");
  EXPECT_EQ(number_text(1e300), "1e+300");
  EXPECT_EQ(number_text(std::nan("")), "NaN");
  EXPECT_EQ(number_text(std::numeric_limits<double>::infinity()), "+Inf");
  EXPECT_EQ(number_text(-std::numeric_limits<double>::infinity()), "-Inf");
  for (const double value : {1.0 / 3, 3e-308, 1754412345.123456}) EXPECT_EQ(std::stod(number_text(value)), value);
}

TEST(TextFormat, TheSameSnapshotGivesTheSameBytes) {
  Registry registry;
  for (int i = 0; i < 100; ++i) registry.add(FamilyId::kRecordsTotal, {std::to_string(i)});
  const auto snapshot = registry.snapshot();
  EXPECT_EQ(write_text(*snapshot), write_text(*snapshot));
}

TEST(TextFormat, LinesAreAsManyAsTheSnapshotSays) {
  Registry registry;
  registry.observe(FamilyId::kScrapeSeconds, {}, .002);
  registry.observe(FamilyId::kTimePerOutputTokenSeconds, {"", "a", "", "server", "m"}, .01);
  registry.add(FamilyId::kRecordsTotal, {"request"});
  const auto snapshot = registry.snapshot();
  const std::string text = write_text(*snapshot);
  std::size_t samples = 0;
  for (std::size_t at = 0; at < text.size(); at = text.find('\n', at) + 1) samples += text[at] != '#';
  EXPECT_EQ(samples, snapshot->samples());
}

}  // namespace
}  // namespace inferwire::prometheus
