// SPDX-License-Identifier: Apache-2.0
#include "agent/metrics/edges.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

namespace inferwire::metrics {
namespace {

std::string error_of(const base::Result<std::vector<double>>& result) {
  return result ? "no error" : result.error().to_string();
}

TEST(Edges, TheDefaultsRiseAndFitTheKernel) {
  for (std::size_t id = 1; id < kEdgesIdCount; ++id) {
    const auto edges = default_edges(static_cast<EdgesId>(id));
    EXPECT_FALSE(edges.empty()) << id;
    EXPECT_LE(edges.size(), kEdgesMax) << id;
    EXPECT_TRUE(std::is_sorted(edges.begin(), edges.end(), std::less_equal<>())) << id;
  }
  EXPECT_EQ(default_edges(EdgesId::kDurations).size(), 23u);
  EXPECT_EQ(default_edges(EdgesId::kGaps).size(), 23u);
  EXPECT_EQ(default_edges(EdgesId::kPhases).size(), 12u);
  EXPECT_EQ(default_edges(EdgesId::kTcp).size(), static_cast<std::size_t>(IW_TCP_EDGES_COUNT));
  EXPECT_DOUBLE_EQ(default_edges(EdgesId::kTcp).front(), 50e-6);
  EXPECT_DOUBLE_EQ(default_edges(EdgesId::kTcp).back(), 5);
}

TEST(Edges, AUsersEdgeComesToItsPlace) {
  const double added[] = {.35, 15};
  const auto edges = edges_with(EdgesId::kDurations, added);
  ASSERT_TRUE(edges.has_value());
  EXPECT_EQ(edges->size(), 25u);
  EXPECT_TRUE(std::is_sorted(edges->begin(), edges->end()));
  EXPECT_NE(std::find(edges->begin(), edges->end(), .35), edges->end());
}

TEST(Edges, OneThatExistsChangesNothing) {
  const double added[] = {.2};
  EXPECT_EQ(edges_with(EdgesId::kDurations, added)->size(), 23u);
}

TEST(Edges, AtMost32AreTaken) {
  std::vector<double> added;
  for (int i = 0; i < 9; ++i) added.push_back(200 + i);
  EXPECT_EQ(edges_with(EdgesId::kDurations, added)->size(), 32u);
  added.push_back(300);
  EXPECT_EQ(error_of(edges_with(EdgesId::kDurations, added)),
            "cannot add histogram edges to durations: 33 edges, at most 32 are possible; add at most 9");
}

TEST(Edges, WrongOnesAreNamed) {
  const double falling[] = {.3, .25};
  EXPECT_EQ(error_of(edges_with(EdgesId::kGaps, falling)),
            "cannot add histogram edges to gaps: 0.25 does not come after 0.3; give every edge once, in rising order");
  const double twice[] = {.3, .3};
  EXPECT_FALSE(edges_with(EdgesId::kGaps, twice).has_value());
  for (const double bad : {0.0, -1.0, std::nan(""), std::numeric_limits<double>::infinity()}) {
    EXPECT_NE(error_of(edges_with(EdgesId::kGaps, {&bad, 1})).find("is not a positive number"), std::string::npos);
  }
}

TEST(Edges, TheKernelGetsExactNanoseconds) {
  const auto edges = edges_in_ns(default_edges(EdgesId::kGaps));
  EXPECT_EQ(edges.front(), 500'000u);
  EXPECT_EQ(edges[7], 12'500'000u);
  EXPECT_EQ(edges.back(), 10'000'000'000u);
}

TEST(Edges, AValueOnAnEdgeBelongsBelowIt) {
  const double edges[] = {1, 2, 4};
  EXPECT_EQ(bucket_of(edges, 0), 0u);
  EXPECT_EQ(bucket_of(edges, 1), 0u);
  EXPECT_EQ(bucket_of(edges, 1.5), 1u);
  EXPECT_EQ(bucket_of(edges, 4), 2u);
  EXPECT_EQ(bucket_of(edges, 4.001), 3u);
}

}  // namespace
}  // namespace inferwire::metrics
