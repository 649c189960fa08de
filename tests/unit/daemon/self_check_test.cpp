// SPDX-License-Identifier: Apache-2.0
// The self-check's child and its judgement, without a kernel program: the records are made here.
#include "agent/daemon/self_check.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <thread>

namespace inferwire::daemon {
namespace {

using State = SelfCheck::State;
using Time = SelfCheck::Time;
using std::chrono::milliseconds;
using std::chrono::seconds;

// A folder in place of the cgroup root: moving the child "works", into a plain file.
class SelfCheckTest : public testing::Test {
 protected:
  SelfCheckTest() {
    char folder[] = "/tmp/self_check_test.XXXXXX";
    root_ = mkdtemp(folder);
    cgroup_ = root_ + "/inferwire-self-check-" + std::to_string(getpid());
    std::filesystem::create_directory(cgroup_);
    std::ofstream(cgroup_ + "/cgroup.procs").flush();
  }
  ~SelfCheckTest() override { std::filesystem::remove_all(root_); }

  // Polls until the child has said that its stream is through; the ports it used are found by asking which records the
  // check takes.
  void let_stream_pass() {
    for (int i = 0; i < 200; ++i) {
      check_.poll(now_);
      std::this_thread::sleep_for(milliseconds(5));
    }
  }

  static iw_record record(std::uint8_t role, std::uint64_t cookie, std::uint32_t chunks = SelfCheck::kChunks) {
    iw_record record{};
    record.conn.role = role;
    record.conn.cookie = cookie;
    std::strncpy(record.conn.comm, "inferwire-check", sizeof record.conn.comm);
    record.request.chunks = chunks;
    record.request.code = 200;
    record.request.stream = 1;
    record.request.outcome = IW_OUTCOME_COMPLETE;
    return record;
  }

  SelfCheck check_;
  std::string root_;
  std::string cgroup_;
  Time now_ = Time() + seconds(1000);
};

TEST_F(SelfCheckTest, TheChildIsMovedToACgroupOfItsOwn) {
  check_.start(root_, now_);
  EXPECT_EQ(check_.state(), State::kRunning);
  std::string pid;
  std::ifstream(cgroup_ + "/cgroup.procs") >> pid;
  EXPECT_FALSE(pid.empty());
  EXPECT_EQ(check_.reason(), "");
}

TEST_F(SelfCheckTest, WhereNoCgroupCanBeMadeItGoesOnAndSaysWhy) {
  check_.start("/proc", now_);
  EXPECT_EQ(check_.state(), State::kRunning);
  EXPECT_NE(check_.reason().find("the agent's own cgroup: cannot make /proc/inferwire-self-check-"), std::string::npos)
      << check_.reason();
}

TEST_F(SelfCheckTest, ItFailsWhenNothingWasSeenAndMayBeTriedAgain) {
  check_.start(root_, now_);
  let_stream_pass();
  EXPECT_EQ(check_.state(), State::kRunning);
  check_.poll(now_ + seconds(6));
  EXPECT_EQ(check_.state(), State::kFailed);
  EXPECT_EQ(check_.reason(), "a stream was made from another cgroup, and it was not seen at all within 5 s");
  check_.start(root_, now_ + seconds(16));
  EXPECT_EQ(check_.state(), State::kRunning);
}

TEST_F(SelfCheckTest, RecordsOfOtherAgentsChecksAreTakenAndProveNothing) {
  check_.start(root_, now_);
  let_stream_pass();
  EXPECT_TRUE(check_.takes(record(IW_ROLE_SERVER, 77), true));
  EXPECT_TRUE(check_.takes(record(IW_ROLE_CLIENT, 78), true));
  check_.poll(now_);
  EXPECT_EQ(check_.state(), State::kRunning);
}

TEST_F(SelfCheckTest, RealTrafficIsNotTaken) {
  check_.start(root_, now_);
  let_stream_pass();
  iw_record real = record(IW_ROLE_SERVER, 5);
  std::strncpy(real.conn.comm, "vllm", sizeof real.conn.comm);
  real.conn.local_port = 8000;
  real.conn.remote_port = 40000;
  EXPECT_FALSE(check_.takes(real, true));
}

TEST_F(SelfCheckTest, SkippedIsSaid) {
  check_.skip();
  EXPECT_EQ(check_.state(), State::kSkipped);
  EXPECT_TRUE(check_.ended());
  EXPECT_NE(check_.reason(), "");
}

}  // namespace
}  // namespace inferwire::daemon
