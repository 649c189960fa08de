// SPDX-License-Identifier: Apache-2.0
#include "agent/host/pod_objects.h"

#include <gtest/gtest.h>

#include <string>

namespace inferwire::host {
namespace {

// A pod of the API; `metadata` and `status` are further members, written as JSON.
std::string pod(const std::string& name, const std::string& metadata = "", const std::string& status = "") {
  return R"({"kind":"Pod","metadata":{"name":")" + name + R"(","namespace":"prod","uid":"u-1","resourceVersion":"7")" +
         (metadata.empty() ? "" : "," + metadata) + R"(},"spec":{"containers":[{"env":[{"value":"x"}]}]},"status":{)" +
         status + "}}";
}

std::string owned_by(const std::string& kind, const std::string& name) {
  return R"("ownerReferences":[{"kind":"Other","name":"not-in-control"},{"kind":")" + kind + R"(","name":")" + name +
         R"(","controller":true}])";
}

PodObject read(const std::string& json) {
  auto list = parse_pod_list(R"({"kind":"PodList","metadata":{"resourceVersion":"9"},"items":[)" + json + "]}");
  EXPECT_TRUE(list);
  if (!list || list->pods.size() != 1) return {};
  EXPECT_EQ(list->resource_version, "9");
  return list->pods.front();
}

std::string workload(const std::string& name, const std::string& metadata) {
  return read(pod(name, metadata)).name.workload;
}

TEST(PodObjects, TheOwnerIsWhoControlsThePod) {
  EXPECT_EQ(workload("gpu-8", ""), "gpu-8") << "nobody: its name is not looked at";
  EXPECT_EQ(workload("gpu-8", R"("ownerReferences":[{"kind":"Thing","name":"t"}])"), "gpu-8");
  EXPECT_EQ(workload("vllm-0", owned_by("StatefulSet", "vllm")), "vllm");
  EXPECT_EQ(workload("agent-x7k2p", owned_by("DaemonSet", "agent")), "agent");
  EXPECT_EQ(workload("train-0-x7k2p", owned_by("Job", "train")), "train") << "an indexed Job";
  EXPECT_EQ(workload("embed-28904520-x7k2p", owned_by("Job", "embed-28904520")), "embed") << "a CronJob's";
  EXPECT_EQ(workload("worker-0", owned_by("PyTorchJob", "llama")), "llama");
  EXPECT_EQ(workload("gateway-n1", owned_by("Node", "n1")), "gateway");
}

TEST(PodObjects, AReplicaSetIsItsDeploymentsByTheHashInItsLabel) {
  const std::string owner = owned_by("ReplicaSet", "vllm-6d4cf56db6");
  EXPECT_EQ(workload("vllm-6d4cf56db6-x7k2p", owner + R"(,"labels":{"pod-template-hash":"6d4cf56db6"})"), "vllm");
  EXPECT_EQ(workload("vllm-6d4cf56db6-x7k2p", owner + R"(,"labels":{"rollouts-pod-template-hash":"6d4cf56db6"})"),
            "vllm");
  EXPECT_EQ(workload("vllm-6d4cf56db6-x7k2p", owner), "vllm-6d4cf56db6") << "a ReplicaSet of its own";
  EXPECT_EQ(workload("x", owner + R"(,"labels":{"app.kubernetes.io/name":"other"})"), "vllm-6d4cf56db6");
}

TEST(PodObjects, GroupsOfSetsAndJobsGiveTheirName) {
  EXPECT_EQ(
      workload("lws-0-1", owned_by("StatefulSet", "lws-0") + R"(,"labels":{"leaderworkerset.sigs.k8s.io/name":"lws"})"),
      "lws");
  EXPECT_EQ(workload("t-w-0-0-x7k2p", owned_by("Job", "t-w-0") + R"(,"labels":{"jobset.sigs.k8s.io/jobset-name":"t"})"),
            "t");
}

TEST(PodObjects, AStaticPodHasTheUidOfItsManifest) {
  EXPECT_EQ(read(pod("gateway-n1", R"("annotations":{"kubernetes.io/config.hash":"0123"})")).uid, "0123");
  EXPECT_EQ(read(pod("vllm-0")).uid, "u-1");
}

TEST(PodObjects, ContainersOfEveryKindAndTheirPredecessorsAreKnown) {
  const PodObject object = read(pod("vllm-0", "", R"(
    "initContainerStatuses":[{"name":"fetch","containerID":"containerd://aaaaaaaaaaaaffff"}],
    "containerStatuses":[{"name":"server","containerID":"cri-o://bbbbbbbbbbbbffff",
                          "lastState":{"terminated":{"containerID":"cri-o://ccccccccccccffff"}}},
                         {"name":"waiting","containerID":""}],
    "ephemeralContainerStatuses":[{"name":"debug","containerID":"containerd://ddddddddddddffff"}])"));
  const std::unordered_map<std::string, std::string> expected = {
      {"aaaaaaaaaaaa", "fetch"}, {"bbbbbbbbbbbb", "server"}, {"cccccccccccc", "server"}, {"dddddddddddd", "debug"}};
  EXPECT_EQ(object.containers, expected);
}

TEST(PodObjects, EventsOfAWatch) {
  auto added = parse_pod_event(R"({"type":"ADDED","object":)" + pod("vllm-0") + "}");
  ASSERT_TRUE(added);
  EXPECT_EQ(added->kind, PodEvent::Kind::kThere);
  EXPECT_EQ(added->resource_version, "7");
  EXPECT_EQ(added->pod.name.pod, "vllm-0");
  EXPECT_EQ(parse_pod_event(R"({"type":"DELETED","object":)" + pod("vllm-0") + "}")->kind, PodEvent::Kind::kGone);
  auto bookmark = parse_pod_event(R"({"type":"BOOKMARK","object":{"kind":"Pod","metadata":{"resourceVersion":"80"}}})");
  EXPECT_EQ(bookmark->kind, PodEvent::Kind::kBookmark);
  EXPECT_EQ(bookmark->resource_version, "80");
  auto error = parse_pod_event(R"({"type":"ERROR","object":{"kind":"Status","code":410,"message":"too old"}})");
  EXPECT_EQ(error->kind, PodEvent::Kind::kError);
  EXPECT_EQ(error->code, 410);
  EXPECT_EQ(error->message, "too old");
}

TEST(PodObjects, WhatIsNoPodIsRefused) {
  for (const char* text :
       {"", "[]", "{}", "null", "{\"type\":1}", R"({"type":"ADDED"})", R"({"type":"ADDED","object":{}})",
        R"({"type":"ADDED","object":{"metadata":[]}})", R"({"type":"NEW","object":{"metadata":{}}})"}) {
    EXPECT_FALSE(parse_pod_event(text)) << text;
    EXPECT_FALSE(parse_pod_list(text)) << text;
  }
  EXPECT_FALSE(parse_pod_list(R"({"kind":"PodList","items":7})"));
  auto empty = parse_pod_list(R"({"kind":"PodList","metadata":{"resourceVersion":"1"},"items":null})");
  ASSERT_TRUE(empty);
  EXPECT_TRUE(empty->pods.empty());
  EXPECT_EQ(parse_pod_list(R"({"kind":"PodList","items":[{}, 7, {"metadata":{"uid":5}}]})")->pods.size(), 0u);
  EXPECT_EQ(status_message(R"({"kind":"Status","message":"no"})"), "no");
  EXPECT_EQ(status_message("<html>"), "");
}

}  // namespace
}  // namespace inferwire::host
