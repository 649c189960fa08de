// SPDX-License-Identifier: Apache-2.0
#include "agent/base/result.h"

#include <gtest/gtest.h>

#include <cerrno>

namespace inferwire::base {
namespace {

Result<int> half(int value) {
  if (value % 2 != 0) return fail("halve", std::to_string(value), "it is odd", "pass an even number");
  return value / 2;
}

TEST(Result, AValueComesThrough) {
  ASSERT_TRUE(half(4).has_value());
  EXPECT_EQ(*half(4), 2);
}

TEST(Result, AnErrorSaysWhatOnWhatWhyAndWhatToDo) {
  const auto result = half(3);
  ASSERT_FALSE(result.has_value());
  EXPECT_EQ(result.error().to_string(), "cannot halve 3: it is odd; pass an even number");
}

TEST(Result, EmptyPartsLeaveNoPunctuation) {
  EXPECT_EQ((Error{"start", "", "", ""}).to_string(), "cannot start");
  EXPECT_EQ((Error{"start", "", "no rights", ""}).to_string(), "cannot start: no rights");
}

TEST(Result, ErrnoHasItsUsualText) { EXPECT_EQ(errno_text(EADDRINUSE), "Address already in use"); }

TEST(Check, ABrokenInvariantAbortsWithItsText) { EXPECT_DEATH(IW_CHECK(1 + 1 == 3), "broken invariant: 1 \\+ 1 == 3"); }

}  // namespace
}  // namespace inferwire::base
