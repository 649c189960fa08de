// SPDX-License-Identifier: Apache-2.0
#include "agent/host/processes.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

namespace inferwire::host {
namespace {

using std::chrono::seconds;

const std::string kId(64, 'a');
const std::string kShort(12, 'a');

TEST(ProcessCgroups, TheHierarchyThatSaysMostWins) {
  const auto workload = [](const std::string& text) { return parse_process_cgroups(text).owner.workload; };
  EXPECT_EQ(workload("0::/system.slice/a.service\n"), "a.service");
  EXPECT_EQ(workload("1:name=systemd:/system.slice/old.service\n0::/system.slice/a.service\n"), "a.service");
  EXPECT_EQ(workload("1:name=systemd:/system.slice/old.service\n0::/\n"), "old.service");
  EXPECT_EQ(workload("0::/\n"), "");
  EXPECT_EQ(workload("nonsense\n:\n::\n"), "");
  EXPECT_EQ(workload(""), "");
}

TEST(ProcessCgroups, AContainerInV1HierarchiesIsFoundBesideItsRuntimesUnit) {
  const ProcessCgroups docker = parse_process_cgroups("5:memory:/docker/" + kId + "\n1:name=systemd:/docker/" + kId +
                                                      "\n0::/system.slice/containerd.service\n");
  EXPECT_EQ(docker.owner.container, kShort);
  EXPECT_EQ(docker.unified, "/system.slice/containerd.service");
  const ProcessCgroups pod = parse_process_cgroups("5:memory:/kubepods/burstable/pod0123456789abcdef0123456789abcdef/" +
                                                   kId + "\n0::/system.slice/crio.service\n");
  EXPECT_EQ(pod.owner.pod, "0123456789abcdef0123456789abcdef");
  EXPECT_EQ(pod.owner.container, kShort);
}

// A /proc of folders; process 2 says that it is the host's.
class ProcessesTest : public testing::Test {
 protected:
  ProcessesTest() {
    char folder[] = "/tmp/processes_test.XXXXXX";
    proc_ = mkdtemp(folder);
    make(2, "kthreadd", "0::/\n");
  }
  ~ProcessesTest() override { std::filesystem::remove_all(proc_); }

  void make(int pid, const std::string& comm, const std::string& cgroups) {
    const std::string folder = proc_ + "/" + std::to_string(pid);
    std::filesystem::create_directories(folder);
    std::ofstream(folder + "/comm") << comm << "\n";
    std::ofstream(folder + "/cgroup") << cgroups;
  }

  std::string proc_;
  Processes::Time now_ = Processes::Time() + seconds(1000);
};

TEST_F(ProcessesTest, AProcessIsRememberedWhenItIsGoneAndReadAgainAfterAWhile) {
  make(10, "vllm", "0::/system.slice/vllm.service\n");
  Processes processes(proc_);
  EXPECT_EQ(processes.find(10, "thread-1", now_)->comm, "vllm");
  std::filesystem::remove_all(proc_ + "/10");
  EXPECT_EQ(processes.find(10, "thread-1", now_ + seconds(11))->comm, "vllm");
  EXPECT_EQ(processes.find(10, "thread-1", now_ + seconds(11))->cgroups.owner.workload, "vllm.service");
  make(10, "curl", "0::/\n");
  EXPECT_EQ(processes.find(10, "curl", now_ + seconds(30))->comm, "curl");
  EXPECT_EQ(processes.find(10, "curl", now_ + seconds(30))->cgroups.owner.workload, "");
}

TEST_F(ProcessesTest, AProcessThatIsGoneHasTheNameThatTheKernelGave) {
  Processes processes(proc_);
  EXPECT_EQ(processes.find(77, "curl", now_)->comm, "curl");
  EXPECT_EQ(processes.find(0, "curl", now_), nullptr);
}

}  // namespace
}  // namespace inferwire::host
