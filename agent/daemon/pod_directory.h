// SPDX-License-Identifier: Apache-2.0
// Names of pods and containers on this node, from the names that the kubelet gives its log folders: no access to the
// API is needed. Used by the reader thread.
//
//   <logs>/pods/<namespace>_<pod>_<uid>/<container>/
//   <logs>/containers/<pod>_<namespace>_<container>-<64 hex>.log
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>

namespace inferwire::daemon {

struct PodName {
  std::string name_space;
  std::string pod;
};

class PodDirectory {
 public:
  using Time = std::chrono::steady_clock::time_point;

  // `logs`: /var/log as the agent sees it. Names of pods that are gone are kept for a while, at most `pods_max` in all.
  explicit PodDirectory(std::string logs, std::size_t pods_max = 4096);

  // Looks whether folders have come or gone: one system call each when not. To be called often, so that a pod that
  // lives for a moment is met.
  void refresh(Time now);

  // `uid` as in the cgroup's name, with dashes; of a static pod 32 hex digits without.
  std::optional<PodName> pod(std::string_view uid, Time now);

  // `short_id`: the first 12 digits of the container's id. Empty if it has no log.
  std::string container(std::string_view short_id, Time now);

  // Why pods cannot be named; empty while they can. Only meaningful when some were asked for.
  const std::string& problem() const { return problem_; }

 private:
  static constexpr std::chrono::seconds kRemember{600};
  struct Pod {
    PodName name;
    Time seen;
  };
  struct Container {
    std::string name;
    Time seen;
  };
  // What a folder's change looks like from outside.
  struct Stamp {
    ino_t inode = 0;
    timespec changed{};
    bool operator==(const Stamp& other) const {
      return inode == other.inode && changed.tv_sec == other.changed.tv_sec && changed.tv_nsec == other.changed.tv_nsec;
    }
  };

  void scan_pods(Time now);
  void scan_containers(Time now);

  std::string pods_folder_;
  std::string containers_folder_;
  std::size_t pods_max_;
  std::unordered_map<std::string, Pod> pods_;              // by uid
  std::unordered_map<std::string, Container> containers_;  // by short id
  Stamp pods_stamp_, containers_stamp_;
  std::string problem_;
};

// The workload that a pod's name says it belongs to, by the patterns of Kubernetes' own controllers (docs/identity.md):
// "vllm-6d4cf56db6-x7k2p" is "vllm" (Deployment), "vllm-x7k2p" is "vllm" (DaemonSet, Job, ReplicaSet), "vllm-0" is
// "vllm" (StatefulSet), "batch-28904520-x7k2p" is "batch" (CronJob); of a static pod the node's name is taken off. A
// name that fits none is its own workload.
std::string workload_of_pod(std::string_view pod, std::string_view node = {});

}  // namespace inferwire::daemon
