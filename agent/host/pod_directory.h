// SPDX-License-Identifier: Apache-2.0
// Names of pods and containers on this node, from the names that the kubelet gives its log folders: no access to the
// API is needed. Used by one thread.
//
//   <logs>/pods/<namespace>_<pod>_<uid>/<container>/          made before the container's first process
//   <logs>/containers/<pod>_<namespace>_<container>-<64 hex>.log   made when it has started
#pragma once

#include <sys/types.h>
#include <time.h>

#include <chrono>
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>

namespace inferwire::host {

struct PodName {
  std::string name_space;
  std::string pod;
  std::string workload;   // of the pod's owner, docs/identity.md
  std::string container;  // empty: not known

  bool operator==(const PodName&) const = default;
};

// Whether a folder may have changed since one asked last: one system call.
class FolderStamp {
 public:
  explicit FolderStamp(std::string path) : path_(std::move(path)) {}
  // True the first time, and for a moment after each change: what happens within one tick of the file system's clock
  // does not show.
  bool changed();
  const std::string& path() const { return path_; }

 private:
  std::string path_;
  bool settled_ = false;
  ino_t inode_ = 0;
  timespec changed_{};
};

class PodDirectory {
 public:
  using Time = std::chrono::steady_clock::time_point;

  // `logs`: /var/log as the agent sees it. `node`: its name is taken off those of static pods. Names of pods that are
  // gone are kept for ten minutes, at most `pods_max` in all.
  PodDirectory(const std::string& logs, std::string node, std::size_t pods_max = 4096);

  // Looks whether folders have come or gone. To be called often, so that a pod that lives for a moment is met.
  void refresh(Time now);

  // `uid` as in the cgroup's name, with dashes; of a static pod 32 hex digits without. `short_id`: the first 12 digits
  // of the container's id, or empty.
  std::optional<PodName> find(std::string_view uid, std::string_view short_id, Time now);

  // Why pods cannot be named; empty while they can.
  const std::string& problem() const { return problem_; }

 private:
  struct Known {
    std::string name;  // of a pod's folder, of a container
    bool present = true;
    Time gone_at{};
  };
  using KnownByKey = std::unordered_map<std::string, Known>;
  static void forget(KnownByKey& known, std::size_t most, Time now);
  template <class Visit>
  static int scan(const std::string& folder, KnownByKey& known, std::size_t most, Time now, const Visit& visit);

  void scan_pods(Time now);
  void scan_containers(Time now);
  std::string container(const std::string& folder, const std::string& short_id, Time now);

  FolderStamp pods_folder_;
  FolderStamp containers_folder_;
  std::string node_;
  std::size_t pods_max_;
  KnownByKey pods_;                                 // by uid
  KnownByKey containers_;                           // by short id
  std::unordered_map<std::string, Time> nameless_;  // short id -> when its pod's folder is looked into again
  std::string problem_;
};

// The workload that a pod's name says it belongs to, by the patterns of Kubernetes' own controllers (docs/identity.md):
// "vllm-6d4cf56db6-x7k2p" is "vllm" (Deployment), "vllm-x7k2p" is "vllm" (DaemonSet, Job, ReplicaSet), "vllm-0" is
// "vllm" (StatefulSet), "batch-28904520-x7k2p" is "batch" (CronJob). A name that fits none is its own workload.
std::string workload_of_pod(std::string_view pod);

// Of a static pod, "<name>-<node>".
std::string workload_of_static_pod(std::string_view pod, std::string_view node);

}  // namespace inferwire::host
