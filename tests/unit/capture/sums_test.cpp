// SPDX-License-Identifier: Apache-2.0
#include "agent/capture/sums.h"

#include <gtest/gtest.h>

#include <cstring>

#include "inferwire/event_abi.h"

namespace inferwire::capture {
namespace {

TEST(SumsAdded, TakesEverySumAndKeepsTheName) {
  iw_tcp_sums before{}, now{};
  auto* earlier = reinterpret_cast<std::uint64_t*>(&before);
  auto* later = reinterpret_cast<std::uint64_t*>(&now);
  for (std::size_t i = 0; i < kSumsIn<iw_tcp_sums>; ++i) {
    earlier[i] = 1000 * i;
    later[i] = 1001 * i + 1;
  }
  std::strcpy(now.comm, "nginx");
  const iw_tcp_sums added = sums_added(now, before);
  const auto* sums = reinterpret_cast<const std::uint64_t*>(&added);
  for (std::size_t i = 0; i < kSumsIn<iw_tcp_sums>; ++i) EXPECT_EQ(sums[i], i + 1) << i;
  EXPECT_STREQ(added.comm, "nginx");
  EXPECT_TRUE(any_sum(added));
}

TEST(SumsAdded, OfAnUnchangedRowThereIsNothing) {
  iw_count row{.requests = 5, .chunks = 7, .tokens_output = 1, .tokens_input = 0, .comm = "curl"};
  EXPECT_FALSE(any_sum(sums_added(row, row)));
  iw_count more = row;
  more.tokens_input = 1;
  EXPECT_TRUE(any_sum(sums_added(more, row)));
}

TEST(SumsAdded, ARowThatWasMadeAnewIsAllNew) {
  const iw_count before{.requests = 500, .chunks = 10, .tokens_output = 0, .tokens_input = 0, .comm = "curl"};
  const iw_count now{.requests = 3, .chunks = 20, .tokens_output = 0, .tokens_input = 0, .comm = "curl"};
  const iw_count added = sums_added(now, before);
  EXPECT_EQ(added.requests, 3u);
  EXPECT_EQ(added.chunks, 20u);
}

}  // namespace
}  // namespace inferwire::capture
