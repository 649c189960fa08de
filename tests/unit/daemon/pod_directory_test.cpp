// SPDX-License-Identifier: Apache-2.0
#include "agent/daemon/pod_directory.h"

#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>

namespace inferwire::daemon {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr char kUid[] = "0a1b2c3d-1111-2222-3333-444455556666";
constexpr char kOtherUid[] = "ffffffff-1111-2222-3333-444455556666";

TEST(WorkloadOfPod, FollowsTheControllersPatterns) {
  EXPECT_EQ(workload_of_pod("vllm-6d4cf56db6-x7k2p"), "vllm");  // Deployment
  EXPECT_EQ(workload_of_pod("llm-d-modelservice-7b9f8c5c4d-zq8rt"), "llm-d-modelservice");
  EXPECT_EQ(workload_of_pod("inferwire-x7k2p"), "inferwire");  // DaemonSet, Job
  EXPECT_EQ(workload_of_pod("vllm-0"), "vllm");                // StatefulSet
  EXPECT_EQ(workload_of_pod("vllm-12"), "vllm");
  EXPECT_EQ(workload_of_pod("lws-0-1"), "lws-0");               // a group's member
  EXPECT_EQ(workload_of_pod("batch-28904520-x7k2p"), "batch");  // CronJob
}

TEST(WorkloadOfPod, ANameThatFitsNothingStaysWhole) {
  EXPECT_EQ(workload_of_pod("my-bench"), "my-bench");  // a vowel: not generated
  EXPECT_EQ(workload_of_pod("web-proxy"), "web-proxy");
  EXPECT_EQ(workload_of_pod("debug"), "debug");
  EXPECT_EQ(workload_of_pod("gpu-20261201"), "gpu-20261201");  // no ordinal is so long
  EXPECT_EQ(workload_of_pod("-x7k2p"), "-x7k2p");
  EXPECT_EQ(workload_of_pod(""), "");
}

TEST(WorkloadOfPod, OfAStaticPodTheNodeIsTakenOff) {
  EXPECT_EQ(workload_of_pod("kube-proxy-gpu-node-1", "gpu-node-1"), "kube-proxy");
  EXPECT_EQ(workload_of_pod("gpu-node-1", "gpu-node-1"), "gpu-node");  // not a suffix of something
}

class PodDirectoryTest : public testing::Test {
 protected:
  PodDirectoryTest() {
    char folder[] = "/tmp/pod_directory_test.XXXXXX";
    root_ = mkdtemp(folder);
  }
  ~PodDirectoryTest() override { std::filesystem::remove_all(root_); }

  void make_pod(const std::string& name) { std::filesystem::create_directories(root_ + "/pods/" + name + "/main"); }
  void remove_pod(const std::string& name) { std::filesystem::remove_all(root_ + "/pods/" + name); }
  void make_container(const std::string& name) {
    std::filesystem::create_directories(root_ + "/containers");
    std::ofstream(root_ + "/containers/" + name);
  }

  std::string root_;
  PodDirectory::Time now_ = PodDirectory::Time() + seconds(1000);
};

TEST_F(PodDirectoryTest, AUidGivesNamespaceAndName) {
  make_pod(std::string("prod_vllm-6d4cf56db6-x7k2p_") + kUid);
  PodDirectory pods(root_);
  const auto name = pods.pod(kUid, now_);
  ASSERT_TRUE(name);
  EXPECT_EQ(name->name_space, "prod");
  EXPECT_EQ(name->pod, "vllm-6d4cf56db6-x7k2p");
  EXPECT_FALSE(pods.pod(kOtherUid, now_));
  EXPECT_EQ(pods.problem(), "");
}

TEST_F(PodDirectoryTest, APodThatWasThereForAMomentIsRemembered) {
  PodDirectory pods(root_);
  make_pod(std::string("a_b_") + kOtherUid);
  pods.refresh(now_);
  make_pod(std::string("prod_short_") + kUid);
  pods.refresh(now_ + milliseconds(20));
  remove_pod(std::string("prod_short_") + kUid);
  pods.refresh(now_ + milliseconds(40));
  const auto name = pods.pod(kUid, now_ + seconds(60));
  ASSERT_TRUE(name);
  EXPECT_EQ(name->pod, "short");
}

TEST_F(PodDirectoryTest, PodsOfTheSameNameInSuccessionAreToldByTheirUid) {
  make_pod(std::string("prod_vllm-0_") + kUid);
  PodDirectory pods(root_);
  ASSERT_TRUE(pods.pod(kUid, now_));
  remove_pod(std::string("prod_vllm-0_") + kUid);
  make_pod(std::string("prod_vllm-0_") + kOtherUid);
  ASSERT_TRUE(pods.pod(kOtherUid, now_));
  EXPECT_EQ(pods.pod(kOtherUid, now_)->pod, pods.pod(kUid, now_)->pod);
}

TEST_F(PodDirectoryTest, ContainersHaveTheNamesOfTheirLogs) {
  const std::string id(64, 'a');
  make_container("vllm-0_prod_server-" + id + ".log");
  make_container("vllm-0_prod_istio-proxy-" + std::string(64, 'b') + ".log");
  make_container("unrelated.log");
  PodDirectory pods(root_);
  EXPECT_EQ(pods.container("aaaaaaaaaaaa", now_), "server");
  EXPECT_EQ(pods.container("bbbbbbbbbbbb", now_), "istio-proxy");
  EXPECT_EQ(pods.container("cccccccccccc", now_), "");
}

TEST_F(PodDirectoryTest, WithoutTheFolderTheReasonIsTold) {
  PodDirectory pods(root_);
  EXPECT_FALSE(pods.pod(kUid, now_));
  EXPECT_EQ(pods.problem(), root_ + "/pods: No such file or directory");
  make_pod(std::string("prod_vllm-0_") + kUid);
  EXPECT_TRUE(pods.pod(kUid, now_));
  EXPECT_EQ(pods.problem(), "");
}

TEST_F(PodDirectoryTest, NoMorePodsAreKeptThanAllowed) {
  PodDirectory pods(root_, 2);
  for (int i = 0; i < 5; ++i) {
    make_pod("n_p" + std::to_string(i) + "_uid-" + std::to_string(i));
    pods.refresh(now_ + seconds(i));
    remove_pod("n_p" + std::to_string(i) + "_uid-" + std::to_string(i));
  }
  EXPECT_TRUE(pods.pod("uid-4", now_ + seconds(5)));
  EXPECT_FALSE(pods.pod("uid-0", now_ + seconds(5)));
}

}  // namespace
}  // namespace inferwire::daemon
