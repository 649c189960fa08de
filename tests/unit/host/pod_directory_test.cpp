// SPDX-License-Identifier: Apache-2.0
#include "agent/host/pod_directory.h"

#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

namespace inferwire::host {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr char kUid[] = "0a1b2c3d-1111-2222-3333-444455556666";
constexpr char kStaticUid[] = "0123456789abcdef0123456789abcdef";
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
  EXPECT_EQ(workload_of_pod("cache-redis-x7k2p"), "cache-redis");  // no hash: it has letters that no digit becomes
  EXPECT_EQ(workload_of_pod("vllm-lmstdw-x7k2p"), "vllm-lmstdw");  // nor this
  EXPECT_EQ(workload_of_pod("x7k2p"), "x7k2p");
  EXPECT_EQ(workload_of_pod("debug"), "debug");
  EXPECT_EQ(workload_of_pod("gpu-20261201"), "gpu-20261201");  // no ordinal is so long
  EXPECT_EQ(workload_of_pod("-x7k2p"), "-x7k2p");
  EXPECT_EQ(workload_of_pod(""), "");
}

TEST(WorkloadOfPod, OfAStaticPodTheNodeIsTakenOff) {
  EXPECT_EQ(workload_of_static_pod("kube-proxy-gpu-node-1", "gpu-node-1"), "kube-proxy");
  EXPECT_EQ(workload_of_static_pod("gpu-node-1", "gpu-node-1"), "gpu-node-1");
  EXPECT_EQ(workload_of_static_pod("-gpu-node-1", "gpu-node-1"), "-gpu-node-1");
  EXPECT_EQ(workload_of_static_pod("kube-proxy-other", "gpu-node-1"), "kube-proxy-other");
  EXPECT_EQ(workload_of_static_pod("kube-proxy", ""), "kube-proxy");
}

class PodDirectoryTest : public testing::Test {
 protected:
  PodDirectoryTest() {
    char folder[] = "/tmp/pod_directory_test.XXXXXX";
    root_ = mkdtemp(folder);
  }
  ~PodDirectoryTest() override { std::filesystem::remove_all(root_); }

  void make_pod(const std::string& name, const std::vector<std::string>& containers = {"main"}) {
    for (const std::string& container : containers) {
      std::filesystem::create_directories(root_ + "/pods/" + name + "/" + container);
    }
  }
  void remove_pod(const std::string& name) { std::filesystem::remove_all(root_ + "/pods/" + name); }
  void make_container(const std::string& name) {
    std::filesystem::create_directories(root_ + "/containers");
    std::ofstream(root_ + "/containers/" + name);
  }

  std::string root_;
  PodDirectory::Time now_ = PodDirectory::Time() + seconds(1000);
};

TEST_F(PodDirectoryTest, AUidGivesNamespaceNameAndOwner) {
  make_pod(std::string("prod_vllm-6d4cf56db6-x7k2p_") + kUid);
  PodDirectory pods(root_, "node-1");
  EXPECT_EQ(pods.find(kUid, "", now_), (PodName{"prod", "vllm-6d4cf56db6-x7k2p", "vllm", ""}));
  EXPECT_FALSE(pods.find(kOtherUid, "", now_));
  EXPECT_EQ(pods.problem(), "");
}

TEST_F(PodDirectoryTest, OnlyAStaticPodHasItsNodeTakenOff) {
  make_pod(std::string("kube-system_gateway-node-1_") + kStaticUid);
  make_pod(std::string("prod_debug-node-1_") + kUid);
  PodDirectory pods(root_, "node-1");
  EXPECT_EQ(pods.find(kStaticUid, "", now_)->workload, "gateway");
  EXPECT_EQ(pods.find(kUid, "", now_)->workload, "debug-node");
}

TEST_F(PodDirectoryTest, APodThatWasThereForAMomentIsRemembered) {
  PodDirectory pods(root_, "");
  make_pod(std::string("a_b_") + kOtherUid);
  pods.refresh(now_);
  make_pod(std::string("prod_short_") + kUid);
  pods.refresh(now_ + milliseconds(20));
  remove_pod(std::string("prod_short_") + kUid);
  pods.refresh(now_ + milliseconds(40));
  ASSERT_TRUE(pods.find(kUid, "", now_ + seconds(60)));
  EXPECT_EQ(pods.find(kUid, "", now_ + seconds(60))->pod, "short");
}

TEST_F(PodDirectoryTest, APodThatGoesAfterALongQuietTimeIsRememberedFromThenOn) {
  make_pod(std::string("prod_vllm-0_") + kUid);
  PodDirectory pods(root_, "");
  pods.refresh(now_);
  remove_pod(std::string("prod_vllm-0_") + kUid);
  pods.refresh(now_ + seconds(5000));
  EXPECT_TRUE(pods.find(kUid, "", now_ + seconds(5060)));
  std::this_thread::sleep_for(milliseconds(60));  // so that the folder's time has settled
  pods.refresh(now_ + seconds(5060));
  make_pod(std::string("a_b_") + kOtherUid);
  pods.refresh(now_ + seconds(5700));
  EXPECT_FALSE(pods.find(kUid, "", now_ + seconds(5700)));
}

TEST_F(PodDirectoryTest, PodsOfTheSameNameInSuccessionAreToldByTheirUid) {
  make_pod(std::string("prod_vllm-0_") + kUid);
  PodDirectory pods(root_, "");
  ASSERT_TRUE(pods.find(kUid, "", now_));
  remove_pod(std::string("prod_vllm-0_") + kUid);
  make_pod(std::string("prod_vllm-0_") + kOtherUid);
  ASSERT_TRUE(pods.find(kOtherUid, "", now_));
  EXPECT_EQ(pods.find(kOtherUid, "", now_), pods.find(kUid, "", now_));
}

TEST_F(PodDirectoryTest, ContainersHaveTheNamesOfTheirLogs) {
  make_pod(std::string("prod_vllm-0_") + kUid, {"server", "istio-proxy"});
  make_container("vllm-0_prod_server-" + std::string(64, 'a') + ".log");
  make_container("vllm-0_prod_istio-proxy-" + std::string(64, 'b') + ".log");
  make_container("unrelated.log");
  PodDirectory pods(root_, "");
  EXPECT_EQ(pods.find(kUid, "aaaaaaaaaaaa", now_)->container, "server");
  EXPECT_EQ(pods.find(kUid, "bbbbbbbbbbbb", now_)->container, "istio-proxy");
  EXPECT_EQ(pods.find(kUid, "cccccccccccc", now_)->container, "");
  // Started again: another id.
  make_container("vllm-0_prod_server-" + std::string(64, 'c') + ".log");
  EXPECT_EQ(pods.find(kUid, "cccccccccccc", now_)->container, "server");
}

TEST_F(PodDirectoryTest, AContainerWithoutALogYetIsTheOnlyOneOfItsPod) {
  make_pod(std::string("prod_vllm-0_") + kUid, {"init"});
  PodDirectory pods(root_, "");
  EXPECT_EQ(pods.find(kUid, "aaaaaaaaaaaa", now_)->container, "init");
  make_pod(std::string("prod_vllm-0_") + kUid, {"server"});
  EXPECT_EQ(pods.find(kUid, "bbbbbbbbbbbb", now_)->container, "") << "one of two";
  EXPECT_EQ(pods.find(kUid, "aaaaaaaaaaaa", now_)->container, "init");
  make_container("vllm-0_prod_server-" + std::string(64, 'b') + ".log");
  EXPECT_EQ(pods.find(kUid, "bbbbbbbbbbbb", now_)->container, "server");
}

TEST_F(PodDirectoryTest, WithoutTheFolderTheReasonIsTold) {
  PodDirectory pods(root_, "");
  EXPECT_FALSE(pods.find(kUid, "", now_));
  EXPECT_EQ(pods.problem(), root_ + "/pods: No such file or directory");
  make_pod(std::string("prod_vllm-0_") + kUid);
  EXPECT_TRUE(pods.find(kUid, "", now_));
  EXPECT_EQ(pods.problem(), "");
}

TEST_F(PodDirectoryTest, NoMorePodsAreKeptThanAllowed) {
  PodDirectory pods(root_, "", 2);
  for (int i = 0; i < 5; ++i) {
    make_pod("n_p" + std::to_string(i) + "_uid-" + std::to_string(i));
    pods.refresh(now_ + seconds(i));
    remove_pod("n_p" + std::to_string(i) + "_uid-" + std::to_string(i));
  }
  EXPECT_TRUE(pods.find("uid-4", "", now_ + seconds(5)));
  EXPECT_FALSE(pods.find("uid-0", "", now_ + seconds(5)));
}

}  // namespace
}  // namespace inferwire::host
