// SPDX-License-Identifier: Apache-2.0
#include "agent/host/cgroup_path.h"

#include <gtest/gtest.h>

#include <ostream>

namespace inferwire::host {

void PrintTo(const CgroupOwner& owner, std::ostream* out) {
  *out << "{workload " << owner.workload << ", pod " << owner.pod << ", container " << owner.container << "}";
}

namespace {

#define ID       \
  "3f4e5d6c7b8a" \
  "9f0e1d2c3b4a5f6e7d8c9b0a1f2e3d4c5b6a7f8e9d0c1b2a3f4e"
#define UID "1b2c3d4e-5f60-7182-93a4-b5c6d7e8f901"
#define UID_ "1b2c3d4e_5f60_7182_93a4_b5c6d7e8f901"
constexpr char kShort[] = "3f4e5d6c7b8a";

struct Row {
  const char* path;
  CgroupOwner owner;
};

const Row kRows[] = {
    // Kubernetes, systemd driver: containerd, cri-o, docker; burstable, best effort, guaranteed.
    {"/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod" UID_ ".slice/cri-containerd-" ID ".scope",
     {UID, UID, kShort}},
    {"/kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-pod" UID_ ".slice/crio-" ID ".scope",
     {UID, UID, kShort}},
    {"/kubepods.slice/kubepods-pod" UID_ ".slice/docker-" ID ".scope", {UID, UID, kShort}},
    // The pod's own folder, and cri-o's monitor in it.
    {"/kubepods.slice/kubepods-pod" UID_ ".slice", {UID, UID, ""}},
    {"/kubepods.slice/kubepods-pod" UID_ ".slice/crio-conmon-" ID ".scope", {UID, UID, ""}},
    // A folder that the container made for itself.
    {"/kubepods.slice/kubepods-pod" UID_ ".slice/cri-containerd-" ID ".scope/init", {UID, UID, kShort}},
    // Kubernetes, cgroupfs driver.
    {"/kubepods/burstable/pod" UID "/" ID, {UID, UID, kShort}},
    {"/kubepods/pod" UID "/" ID, {UID, UID, kShort}},
    // A static pod's uid is a hash without dashes.
    {"/kubepods/besteffort/pod0123456789abcdef0123456789abcdef/" ID,
     {"0123456789abcdef0123456789abcdef", "0123456789abcdef0123456789abcdef", kShort}},
    // A prefix by --cgroup-root of the kubelet; a kind node, which is a container itself.
    {"/kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-pod" UID_ ".slice/cri-containerd-" ID ".scope",
     {UID, UID, kShort}},
    {"/system.slice/docker-ffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff.scope/kubelet/kubepods/"
     "pod" UID "/" ID,
     {UID, UID, kShort}},
    {"/kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-pod" UID_ ".slice/cri-containerd-" ID
     ".scope/docker/ffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff",
     {UID, UID, kShort}},
    // The systemd driver's name handed to the cgroupfs driver.
    {"/system.slice/containerd.service/kubepods-burstable-pod" UID_ ".slice:cri-containerd:" ID, {UID, UID, kShort}},
    // CRI-O with the cgroupfs driver; crun's own folder below.
    {"/kubepods/burstable/pod" UID "/crio-" ID, {UID, UID, kShort}},
    {"/kubepods.slice/kubepods-pod" UID_ ".slice/crio-" ID ".scope/container", {UID, UID, kShort}},
    // Containers without Kubernetes.
    {"/system.slice/docker-" ID ".scope", {kShort, "", kShort}},
    {"/docker/" ID, {kShort, "", kShort}},
    {"/machine.slice/libpod-" ID ".scope", {kShort, "", kShort}},
    {"/machine.slice/machine-libpod_pod_" ID ".slice/libpod-" ID ".scope", {kShort, "", kShort}},
    {"/libpod_parent/libpod-" ID, {kShort, "", kShort}},
    {"/machine.slice/libpod-conmon-" ID ".scope", {}},
    {"/default/" ID, {kShort, "", kShort}},
    {"/machine.slice/libpod-" ID ".scope/container", {kShort, "", kShort}},
    {"/user.slice/user-1000.slice/user@1000.service/user.slice/libpod-" ID ".scope", {kShort, "", kShort}},
    {"/system.slice/nerdctl-" ID ".scope", {kShort, "", kShort}},
    // systemd units.
    {"/system.slice/ollama.service", {"ollama.service", "", ""}},
    {"/system.slice/vllm@8000.service", {"vllm@8000.service", "", ""}},
    {"/system.slice/system-vllm.slice/vllm@8000.service/workers", {"vllm@8000.service", "", ""}},
    {"/system.slice/llama\\x2dserver.service", {"llama-server.service", "", ""}},
    {"/user.slice/user-1000.slice/user@1000.service/app.slice/ollama.service", {"ollama.service", "", ""}},
    // What says nothing: the process's name is used.
    {"/", {}},
    {"", {}},
    {"/init.scope", {}},
    {"/user.slice/user-0.slice/session-1.scope", {}},
    {"/user.slice/user-1000.slice/user@1000.service/init.scope", {}},
    {"/user.slice/user-1000.slice/user@1000.service/app.slice/app-org.gnome.Terminal.slice/vte-spawn-1.scope", {}},
    {"/user.slice/user-1000.slice/user@1000.service/app.slice/app-gnome-code-4242.scope", {}},
    {"/my-own-group", {}},
    // Nearly.
    {"/docker/3f4e5d6c7b8a", {}},
    {"/docker/x" ID, {}},
    {"/podium/" UID, {}},
    {"/kubepods/podfoo/bar", {}},
    {"/a/../b//c/", {}},
};

TEST(CgroupPath, EveryKnownFormGivesItsOwner) {
  for (const Row& row : kRows) EXPECT_EQ(parse_cgroup_path(row.path), row.owner) << row.path;
}

}  // namespace
}  // namespace inferwire::host
