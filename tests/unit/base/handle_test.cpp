// SPDX-License-Identifier: Apache-2.0
#include "agent/base/handle.h"

#include <fcntl.h>
#include <gtest/gtest.h>

#include <vector>

namespace inferwire::base {
namespace {

std::vector<int> g_closed;

struct Recorder {
  using value_type = int;
  static constexpr int kEmpty = 0;
  static void close(int value) { g_closed.push_back(value); }
};
using Recorded = Handle<Recorder>;

class HandleTest : public testing::Test {
 protected:
  void SetUp() override { g_closed.clear(); }
};

TEST_F(HandleTest, ClosesOnceAtTheEndOfItsLife) {
  { Recorded handle(7); }
  EXPECT_EQ(g_closed, (std::vector<int>{7}));
}

TEST_F(HandleTest, AnEmptyOneClosesNothing) {
  { Recorded handle; }
  EXPECT_TRUE(g_closed.empty());
}

TEST_F(HandleTest, MovingHandsTheDutyOver) {
  {
    Recorded first(7);
    Recorded second(std::move(first));
    EXPECT_FALSE(first);
    EXPECT_EQ(second.get(), 7);
  }
  EXPECT_EQ(g_closed, (std::vector<int>{7}));
}

TEST_F(HandleTest, AssigningClosesWhatWasHeld) {
  {
    Recorded handle(7);
    handle = Recorded(8);
    EXPECT_EQ(g_closed, (std::vector<int>{7}));
  }
  EXPECT_EQ(g_closed, (std::vector<int>{7, 8}));
}

TEST_F(HandleTest, AReleasedValueIsNotClosed) {
  {
    Recorded handle(7);
    EXPECT_EQ(handle.release(), 7);
  }
  EXPECT_TRUE(g_closed.empty());
}

TEST(UniqueFd, TheDescriptorIsClosed) {
  int raw = -1;
  {
    UniqueFd fd(::open("/dev/null", O_RDONLY | O_CLOEXEC));
    ASSERT_TRUE(fd);
    raw = fd.get();
    EXPECT_NE(::fcntl(raw, F_GETFD), -1);
  }
  EXPECT_EQ(::fcntl(raw, F_GETFD), -1);
}

}  // namespace
}  // namespace inferwire::base
