// SPDX-License-Identifier: Apache-2.0
#include "agent/metrics/registry.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <numeric>
#include <random>
#include <string>

#include "agent/base/label.h"

namespace inferwire::metrics {
namespace {

using std::chrono::seconds;

base::MonotonicTime at(int second) { return base::MonotonicTime(seconds(second)); }

double value_of(const Snapshot& snapshot, FamilyId id, const LabelValues& labels) {
  const FamilySnapshot* family = snapshot.find(id);
  if (family == nullptr) return std::nan("");
  for (const auto& series : family->series) {
    if (*series.label_values == labels) return series.value;
  }
  return std::nan("");
}

double sum_of(const Snapshot& snapshot, FamilyId id) {
  const FamilySnapshot* family = snapshot.find(id);
  if (family == nullptr) return 0;
  double sum = 0;
  for (const auto& series : family->series) sum += series.value;
  return sum;
}

std::size_t series_of(const Snapshot& snapshot, FamilyId id) {
  const FamilySnapshot* family = snapshot.find(id);
  return family == nullptr ? 0 : family->series.size();
}

// One chunk of `workload`, of `model`.
void add_chunk(Registry& registry, std::string_view workload, std::string_view model, double chunks = 1) {
  registry.add(FamilyId::kOutputChunksTotal, {"default", workload, "main", "pod-1", "server", model}, chunks);
}

TEST(Registry, ANewOneHasNothingToSay) {
  Registry registry;
  EXPECT_TRUE(registry.snapshot()->families.empty());
}

TEST(Registry, CountersAddUp) {
  Registry registry;
  add_chunk(registry, "chat", "llama", 2);
  add_chunk(registry, "chat", "llama", 3);
  EXPECT_EQ(value_of(*registry.snapshot(), FamilyId::kOutputChunksTotal,
                     {"default", "chat", "main", "pod-1", "server", "llama"}),
            5);
}

TEST(Registry, ASnapshotDoesNotChangeAfterwards) {
  Registry registry;
  add_chunk(registry, "chat", "llama");
  const auto before = registry.snapshot();
  add_chunk(registry, "chat", "llama");
  EXPECT_EQ(sum_of(*before, FamilyId::kOutputChunksTotal), 1);
  EXPECT_EQ(sum_of(*registry.snapshot(), FamilyId::kOutputChunksTotal), 2);
}

TEST(Registry, SeriesAreOrderedByTheirLabels) {
  Registry registry;
  for (const auto name : {"c", "a", "b"}) add_chunk(registry, name, "m");
  const auto snapshot = registry.snapshot();
  const auto& series = snapshot->find(FamilyId::kOutputChunksTotal)->series;
  ASSERT_EQ(series.size(), 3u);
  EXPECT_EQ((*series[0].label_values)[1], "a");
  EXPECT_EQ((*series[1].label_values)[1], "b");
  EXPECT_EQ((*series[2].label_values)[1], "c");
}

TEST(Registry, ATotalFromElsewhereNeverFalls) {
  Registry registry;
  registry.set(FamilyId::kRecordsTotal, {"request"}, 10);
  registry.set(FamilyId::kRecordsTotal, {"request"}, 7);
  EXPECT_EQ(value_of(*registry.snapshot(), FamilyId::kRecordsTotal, {"request"}), 10);
}

TEST(Registry, GaugesRiseAndFall) {
  Registry registry;
  registry.set(FamilyId::kMapEntries, {"sockets"}, 10);
  registry.set(FamilyId::kMapEntries, {"sockets"}, 7);
  registry.add(FamilyId::kMapEntries, {"sockets"}, -2);
  EXPECT_EQ(value_of(*registry.snapshot(), FamilyId::kMapEntries, {"sockets"}), 5);
}

TEST(Registry, AGaugeCountedAnewStartsFromZero) {
  Registry registry;
  registry.raise(FamilyId::kStreamSilenceSecondsMax, {"", "chat", "", "", "server"}, 3);
  registry.raise(FamilyId::kStreamSilenceSecondsMax, {"", "chat", "", "", "server"}, 2);
  EXPECT_EQ(sum_of(*registry.snapshot(), FamilyId::kStreamSilenceSecondsMax), 3);
  registry.zero(FamilyId::kStreamSilenceSecondsMax);
  EXPECT_EQ(sum_of(*registry.snapshot(), FamilyId::kStreamSilenceSecondsMax), 0);
}

TEST(Registry, AClearedGaugeForgetsItsLabels) {
  Registry registry;
  registry.set(FamilyId::kSignalUp, {"reads", "no rights"}, 0);
  registry.clear(FamilyId::kSignalUp);
  registry.set(FamilyId::kSignalUp, {"reads", ""}, 1);
  const auto snapshot = registry.snapshot();
  EXPECT_EQ(series_of(*snapshot, FamilyId::kSignalUp), 1u);
  EXPECT_EQ(value_of(*snapshot, FamilyId::kSignalUp, {"reads", ""}), 1);
  EXPECT_DEATH(registry.clear(FamilyId::kStreamsInFlight), "broken invariant");
  EXPECT_DEATH(registry.clear(FamilyId::kRecordsTotal), "broken invariant");
}

TEST(Registry, ObservationsFallIntoTheirBuckets) {
  Registry registry;
  for (const double gap : {.0005, .0006, 100.0}) {
    registry.observe(FamilyId::kTimePerOutputChunkSeconds, {"", "chat", "", "server", "m", "sent"}, gap);
  }
  const auto snapshot = registry.snapshot();
  const FamilySnapshot& family = *snapshot->find(FamilyId::kTimePerOutputChunkSeconds);
  const auto buckets = family.buckets_of(0);
  ASSERT_EQ(buckets.size(), 24u);
  EXPECT_EQ(buckets[0], 1u) << "on the edge";
  EXPECT_EQ(buckets[1], 1u);
  EXPECT_EQ(buckets[23], 1u) << "beyond the last edge";
  EXPECT_EQ(family.series[0].count, 3u);
  EXPECT_DOUBLE_EQ(family.series[0].value, 100.0011);
}

TEST(Registry, CountsFromTheKernelMergeBucketByBucket) {
  Registry registry;
  std::vector<std::uint64_t> counts(registry.edges(FamilyId::kTimePerOutputChunkSeconds).size() + 1);
  counts[3] = 5;
  counts.back() = 2;
  const std::string_view labels[] = {"", "chat", "", "server", "m", "sent"};
  registry.observe_counts(FamilyId::kTimePerOutputChunkSeconds, labels, counts, 21.5);
  registry.observe_counts(FamilyId::kTimePerOutputChunkSeconds, labels, counts, 21.5);
  registry.observe(FamilyId::kTimePerOutputChunkSeconds, labels, .004);
  const auto snapshot = registry.snapshot();
  const FamilySnapshot& family = *snapshot->find(FamilyId::kTimePerOutputChunkSeconds);
  EXPECT_EQ(family.buckets_of(0)[3], 11u);
  EXPECT_EQ(family.buckets_of(0).back(), 4u);
  EXPECT_EQ(family.series[0].count, 15u);
  EXPECT_DOUBLE_EQ(family.series[0].value, 43.004);
}

TEST(Registry, UsersEdgesAreUsedByEveryFamilyOfTheirKind) {
  RegistryOptions options;
  const double added[] = {.35};
  options.edges[static_cast<std::size_t>(EdgesId::kDurations)] = *edges_with(EdgesId::kDurations, added);
  Registry registry(std::move(options));
  EXPECT_EQ(registry.edges(FamilyId::kTimeToFirstChunkSeconds).size(), 24u);
  EXPECT_EQ(registry.edges(FamilyId::kRequestDurationSeconds).size(), 24u);
  EXPECT_EQ(registry.edges(FamilyId::kTimePerOutputChunkSeconds).size(), 23u);
  registry.observe(FamilyId::kTimeToFirstByteSeconds, {"", "chat", "", "server", "/v1/completions"}, .34);
  const auto snapshot = registry.snapshot();
  const auto& family = *snapshot->find(FamilyId::kTimeToFirstByteSeconds);
  EXPECT_EQ(family.buckets_of(0)[9], 1u);
  EXPECT_EQ((*family.edges)[9], .35);
}

TEST(Registry, NonsenseIsLeftOutAndCounted) {
  Registry registry;
  const double nan = std::nan("");
  const double infinite = std::numeric_limits<double>::infinity();
  const std::string_view histogram[] = {"", "chat", "", "server", "/v1/completions"};
  registry.observe(FamilyId::kTimeToFirstByteSeconds, histogram, nan);
  registry.observe(FamilyId::kTimeToFirstByteSeconds, histogram, infinite);
  registry.observe(FamilyId::kTimeToFirstByteSeconds, histogram, -1);
  registry.add(FamilyId::kRecordsTotal, {"request"}, -1);
  registry.set(FamilyId::kMapEntries, {"sockets"}, nan);
  const auto snapshot = registry.snapshot();
  EXPECT_EQ(series_of(*snapshot, FamilyId::kTimeToFirstByteSeconds), 0u);
  EXPECT_EQ(value_of(*snapshot, FamilyId::kRejectedValuesTotal, {"inferwire_time_to_first_byte_seconds"}), 3);
  EXPECT_EQ(value_of(*snapshot, FamilyId::kRejectedValuesTotal, {"inferwire_records_total"}), 1);
  EXPECT_EQ(value_of(*snapshot, FamilyId::kRejectedValuesTotal, {"inferwire_map_entries"}), 1);
}

TEST(Registry, AWrongNumberOfLabelsIsADefect) {
  Registry registry;
  EXPECT_DEATH(registry.add(FamilyId::kRecordsTotal, {"request", "extra"}), "broken invariant");
}

TEST(RegistryLabels, DirtyAndCleanedValuesAreOneSeries) {
  Registry registry;
  add_chunk(registry, "bad\xFFname\n", "m");
  add_chunk(registry, "bad\xFFname\n", "m");
  add_chunk(registry, base::sanitize_label("bad\xFFname\n"), "m");
  const auto snapshot = registry.snapshot();
  EXPECT_EQ(series_of(*snapshot, FamilyId::kOutputChunksTotal), 1u);
  EXPECT_EQ(sum_of(*snapshot, FamilyId::kOutputChunksTotal), 3);
}

TEST(RegistryLabels, ASeparatorInAValueIsNotASeparator) {
  Registry registry;
  registry.add(FamilyId::kRecordsLostTotal, {"a\xFF"
                                             "b",
                                             "c"});
  registry.add(FamilyId::kRecordsLostTotal, {"a",
                                             "b\xFF"
                                             "c"});
  registry.add(FamilyId::kRecordsLostTotal, {"a", "b"});
  EXPECT_EQ(series_of(*registry.snapshot(), FamilyId::kRecordsLostTotal), 3u);
}

TEST(RegistryLabels, HostileValuesComeOutClean) {
  Registry registry;
  std::mt19937 random(7);
  for (int round = 0; round < 2000; ++round) {
    std::string raw(random() % 300, '\0');
    for (char& c : raw) c = static_cast<char>(random());
    add_chunk(registry, raw, raw);
  }
  const auto snapshot = registry.snapshot();
  for (const auto& series : snapshot->find(FamilyId::kOutputChunksTotal)->series) {
    for (const auto& value : *series.label_values) EXPECT_TRUE(base::is_clean_label(value));
  }
  EXPECT_EQ(sum_of(*snapshot, FamilyId::kOutputChunksTotal), 2000);
}

TEST(RegistryLimits, LabelSetsBeyondTheLimitShareOneAndTheSumStaysExact) {
  Registry registry;
  for (int round = 0; round < 3; ++round) {
    for (int workload = 0; workload < 300; ++workload) add_chunk(registry, "w" + std::to_string(workload), "m");
  }
  const auto snapshot = registry.snapshot();
  EXPECT_EQ(series_of(*snapshot, FamilyId::kOutputChunksTotal), 257u);
  EXPECT_EQ(sum_of(*snapshot, FamilyId::kOutputChunksTotal), 900);
  EXPECT_EQ(value_of(*snapshot, FamilyId::kOutputChunksTotal, LabelValues(6, "overflow")), 44 * 3);
  EXPECT_EQ(value_of(*snapshot, FamilyId::kSeriesLimitHitsTotal, {"inferwire_output_chunks_total"}), 44 * 3);
  EXPECT_EQ(value_of(*snapshot, FamilyId::kSeries, {"inferwire_output_chunks_total"}), 257);
}

TEST(RegistryLimits, HistogramsOverflowExactlyToo) {
  RegistryOptions options;
  options.label_sets_max = 2;
  Registry registry(std::move(options));
  for (int i = 0; i < 10; ++i) {
    registry.observe(FamilyId::kChunksPerDelivery, {"", "w" + std::to_string(i), "", "server"}, i + 1);
  }
  const auto snapshot = registry.snapshot();
  const FamilySnapshot& family = *snapshot->find(FamilyId::kChunksPerDelivery);
  ASSERT_EQ(family.series.size(), 3u);
  std::uint64_t in_buckets = 0;
  for (std::size_t i = 0; i < 3; ++i) {
    const auto buckets = family.buckets_of(i);
    in_buckets = std::accumulate(buckets.begin(), buckets.end(), in_buckets);
  }
  EXPECT_EQ(in_buckets, 10u);
  EXPECT_EQ(sum_of(*snapshot, FamilyId::kChunksPerDelivery), 55);
}

TEST(RegistryLimits, OneFamilysLimitLeavesTheOthersAlone) {
  RegistryOptions options;
  options.label_sets_max = 2;
  Registry registry(std::move(options));
  for (const auto name : {"a", "b", "c"}) add_chunk(registry, name, "m");
  registry.observe(FamilyId::kChunksPerDelivery, {"", "c", "", "server"}, 1);
  const auto snapshot = registry.snapshot();
  EXPECT_EQ((*snapshot->find(FamilyId::kChunksPerDelivery)->series[0].label_values)[1], "c");
}

TEST(RegistryLimits, AGaugeThatIsSetIsLeftOutInsteadOfShowingTheLast) {
  RegistryOptions options;
  options.label_sets_max = 2;
  Registry registry(std::move(options));
  for (const auto map : {"a", "b", "c"}) registry.set(FamilyId::kMapEntries, {map}, 5);
  const auto snapshot = registry.snapshot();
  EXPECT_EQ(value_of(*snapshot, FamilyId::kMapEntries, {"overflow"}), 0);
  EXPECT_EQ(value_of(*snapshot, FamilyId::kSeriesLimitHitsTotal, {"inferwire_map_entries"}), 1);
}

TEST(RegistryLimits, GaugesCountedAnewAreExactInTheOverflowSet) {
  RegistryOptions options;
  options.label_sets_max = 1;
  Registry registry(std::move(options));
  for (int round = 0; round < 3; ++round) {
    registry.zero(FamilyId::kStreamsInFlight);
    for (const auto name : {"a", "b", "c"}) {
      registry.add(FamilyId::kStreamsInFlight, {"", name, "", "", "server", "8000"}, 2);
    }
  }
  EXPECT_EQ(value_of(*registry.snapshot(), FamilyId::kStreamsInFlight, LabelValues(6, "overflow")), 4);
}

TEST(RegistryLimits, ModelNamesBeyondTheirLimitBecomeOverflowInEveryFamily) {
  Registry registry;
  for (int model = 0; model < 70; ++model) add_chunk(registry, "chat", "m" + std::to_string(model));
  registry.observe(FamilyId::kTimePerOutputChunkSeconds, {"", "chat", "", "server", "m69", "sent"}, .01);
  registry.observe(FamilyId::kTimePerOutputChunkSeconds, {"", "chat", "", "server", "m3", "sent"}, .01);
  registry.observe(FamilyId::kTimePerOutputChunkSeconds, {"", "chat", "", "server", "", "sent"}, .01);
  const auto snapshot = registry.snapshot();
  EXPECT_EQ(series_of(*snapshot, FamilyId::kOutputChunksTotal), 65u);
  EXPECT_EQ(
      value_of(*snapshot, FamilyId::kOutputChunksTotal, {"default", "chat", "main", "pod-1", "server", "overflow"}), 6);
  EXPECT_EQ(sum_of(*snapshot, FamilyId::kOutputChunksTotal), 70);
  EXPECT_EQ(value_of(*snapshot, FamilyId::kSeriesLimitHitsTotal, {"inferwire_output_chunks_total"}), 6);
  EXPECT_EQ(series_of(*snapshot, FamilyId::kTimePerOutputChunkSeconds), 3u);
}

TEST(RegistryLimits, AWorkloadThatIsReallyCalledOverflowDoesNoHarm) {
  RegistryOptions options;
  options.label_sets_max = 1;
  Registry registry(std::move(options));
  registry.touch({}, at(0));
  registry.observe(FamilyId::kChunksPerDelivery, {"overflow", "overflow", "overflow", "overflow"}, 1);
  registry.observe(FamilyId::kChunksPerDelivery, {"", "a", "", "server"}, 1);
  registry.observe(FamilyId::kChunksPerDelivery, {"", "b", "", "server"}, 1);
  registry.retire(at(1));
  registry.retire(at(100));
  registry.observe(FamilyId::kChunksPerDelivery, {"", "c", "", "server"}, 1);
  registry.observe(FamilyId::kChunksPerDelivery, {"", "d", "", "server"}, 1);
  EXPECT_EQ(sum_of(*registry.snapshot(), FamilyId::kChunksPerDelivery), 5 - 1)
      << "b had taken the free place and was retired";
}

TEST(RegistryRetire, SeriesOfAGoneWorkloadStaySixtySeconds) {
  Registry registry;
  registry.retire(at(1000));
  add_chunk(registry, "chat", "m");
  registry.observe(FamilyId::kChunksPerDelivery, {"default", "chat", "main", "server"}, 1);
  registry.retire(at(1001));
  registry.retire(at(1060));
  EXPECT_EQ(series_of(*registry.snapshot(), FamilyId::kOutputChunksTotal), 1u);
  registry.retire(at(1061));
  const auto snapshot = registry.snapshot();
  EXPECT_EQ(series_of(*snapshot, FamilyId::kOutputChunksTotal), 0u);
  EXPECT_EQ(series_of(*snapshot, FamilyId::kChunksPerDelivery), 0u);
  EXPECT_EQ(series_of(*snapshot, FamilyId::kSeries), 0u) << "no longer counted either";
}

TEST(RegistryRetire, AnIdleWorkloadThatIsTouchedStays) {
  Registry registry;
  add_chunk(registry, "chat", "m");
  add_chunk(registry, "other", "m");
  registry.retire(at(1));
  for (int second = 2; second < 300; second += 30) {
    registry.touch({"default", "chat", "main", "pod-1"}, at(second));
    registry.retire(at(second));
  }
  const auto snapshot = registry.snapshot();
  ASSERT_EQ(series_of(*snapshot, FamilyId::kOutputChunksTotal), 1u);
  EXPECT_EQ((*snapshot->find(FamilyId::kOutputChunksTotal)->series[0].label_values)[1], "chat");
}

TEST(RegistryRetire, WritingIsASignOfLife) {
  Registry registry;
  for (int second = 0; second < 300; second += 50) {
    add_chunk(registry, "chat", "m");
    registry.retire(at(second));
  }
  EXPECT_EQ(sum_of(*registry.snapshot(), FamilyId::kOutputChunksTotal), 6);
}

TEST(RegistryRetire, APodGoesWhileItsWorkloadStays) {
  Registry registry;
  registry.add(FamilyId::kOutputChunksTotal, {"n", "chat", "main", "old", "server", "m"});
  registry.add(FamilyId::kOutputChunksTotal, {"n", "chat", "main", "new", "server", "m"});
  registry.observe(FamilyId::kChunksPerDelivery, {"n", "chat", "main", "server"}, 1);
  registry.retire(at(0));
  registry.touch({"n", "chat", "main", "new"}, at(59));
  registry.retire(at(60));
  const auto snapshot = registry.snapshot();
  ASSERT_EQ(series_of(*snapshot, FamilyId::kOutputChunksTotal), 1u);
  EXPECT_EQ((*snapshot->find(FamilyId::kOutputChunksTotal)->series[0].label_values)[3], "new");
  EXPECT_EQ(series_of(*snapshot, FamilyId::kChunksPerDelivery), 1u);
}

TEST(RegistryRetire, PlaceAndModelNamesBecomeFreeAgain) {
  RegistryOptions options;
  options.label_sets_max = 1;
  options.model_names_max = 1;
  Registry registry(std::move(options));
  add_chunk(registry, "old", "m-old");
  registry.retire(at(0));
  registry.retire(at(60));
  add_chunk(registry, "new", "m-new");
  const auto snapshot = registry.snapshot();
  ASSERT_EQ(series_of(*snapshot, FamilyId::kOutputChunksTotal), 1u);
  EXPECT_EQ((*snapshot->find(FamilyId::kOutputChunksTotal)->series[0].label_values)[5], "m-new");
}

TEST(RegistryRetire, TheAgentsOwnSeriesAndTheOverflowSetStay) {
  RegistryOptions options;
  options.label_sets_max = 1;
  Registry registry(std::move(options));
  registry.add(FamilyId::kRecordsTotal, {"request"});
  add_chunk(registry, "a", "m");
  add_chunk(registry, "b", "m");
  registry.retire(at(0));
  registry.retire(at(1000));
  const auto snapshot = registry.snapshot();
  EXPECT_EQ(series_of(*snapshot, FamilyId::kRecordsTotal), 1u);
  EXPECT_EQ(value_of(*snapshot, FamilyId::kOutputChunksTotal, LabelValues(6, "overflow")), 1);
}

TEST(RegistryRetire, TouchingTheUnknownRemembersNothing) {
  Registry registry;
  for (int i = 0; i < 1000; ++i) registry.touch({"n", "w" + std::to_string(i), "", ""}, at(i));
  EXPECT_TRUE(registry.snapshot()->families.empty());
}

}  // namespace
}  // namespace inferwire::metrics
