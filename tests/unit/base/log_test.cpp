// SPDX-License-Identifier: Apache-2.0
#include "agent/base/log.h"

#include <gtest/gtest.h>

#include <string>

namespace inferwire::base {
namespace {

class LogTest : public testing::Test {
 protected:
  void TearDown() override { set_log_level(LogLevel::kInfo); }
};

TEST_F(LogTest, ALineHasTimeLevelAndMessageOnStandardError) {
  testing::internal::CaptureStderr();
  log_warn("the ring buffer is full");
  const std::string line = testing::internal::GetCapturedStderr();
  EXPECT_NE(line.find("Z warning the ring buffer is full\n"), std::string::npos) << line;
}

TEST_F(LogTest, LinesBelowTheLevelAreDropped) {
  testing::internal::CaptureStderr();
  set_log_level(LogLevel::kError);
  log_warn("quiet");
  log_error("loud");
  const std::string lines = testing::internal::GetCapturedStderr();
  EXPECT_EQ(lines.find("quiet"), std::string::npos);
  EXPECT_NE(lines.find("loud"), std::string::npos);
}

TEST_F(LogTest, AMessageStaysOneLineWithoutEscapes) {
  testing::internal::CaptureStderr();
  log_info("name {} \x1B[31m\xC2\x9B\nsecond");
  const std::string line = testing::internal::GetCapturedStderr();
  EXPECT_NE(line.find("name {} \uFFFD[31m\uFFFD\uFFFDsecond\n"), std::string::npos) << line;
}

TEST_F(LogTest, AStateIsLoggedOnceUntilItMends) {
  testing::internal::CaptureStderr();
  EXPECT_TRUE(log_once(LogLevel::kWarn, "test-key", "degraded"));
  EXPECT_FALSE(log_once(LogLevel::kWarn, "test-key", "degraded"));
  log_again("test-key");
  EXPECT_TRUE(log_once(LogLevel::kWarn, "test-key", "degraded"));
  testing::internal::GetCapturedStderr();
}

TEST_F(LogTest, LevelsHaveNames) {
  EXPECT_EQ(parse_log_level("debug"), LogLevel::kDebug);
  EXPECT_EQ(parse_log_level("error"), LogLevel::kError);
  EXPECT_FALSE(parse_log_level("loud").has_value());
}

}  // namespace
}  // namespace inferwire::base
