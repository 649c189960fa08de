// SPDX-License-Identifier: Apache-2.0
// From a cgroup id and a pid to a workload: reads the host's cgroup tree and /proc. Used by the reader thread.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>

#include "agent/daemon/pod_directory.h"
#include "agent/model/identity.h"
#include "inferwire/event_abi.h"

namespace inferwire::daemon {

// Paths of cgroups by id, which is the inode of their folder. Learns them by walking the tree when it meets an id that
// it does not know; ids of folders that are gone keep their path as long as there is room.
class CgroupDirectory {
 public:
  using Time = std::chrono::steady_clock::time_point;

  explicit CgroupDirectory(std::string root, std::size_t paths_max = 8192);

  // "/system.slice/nginx.service"; "/" for the root. Empty if there is no such folder. Walks for ids that it does not
  // know, for at most a twentieth of the time.
  std::optional<std::string> path_of(std::uint64_t id, Time now);

  std::size_t known() const { return paths_.size(); }
  std::uint64_t walks() const { return walks_; }

 private:
  static constexpr int kWalkShare = 20;
  static constexpr std::chrono::seconds kRemainUnknown{30};

  struct Entry {
    std::string path;
    std::uint64_t walk;  // the last one that saw it
  };
  void walk();

  std::string root_;
  std::size_t paths_max_;
  std::unordered_map<std::uint64_t, Entry> paths_;
  std::unordered_map<std::uint64_t, Time> unknown_;
  Time next_walk_{};
  std::uint64_t walks_ = 0;
};

struct IdentityOptions {
  std::string cgroup_root;
  std::string host_root = "/";
  std::string node;
  std::string logs;  // where pods/ and containers/ of the kubelet lie; empty: <host_root>/var/log
};

class IdentityResolver {
 public:
  using Time = CgroupDirectory::Time;

  explicit IdentityResolver(IdentityOptions options);

  // Learns of pods that have come: to be called often.
  void refresh(Time now) { pods_.refresh(now); }

  // Whether the cgroup of a pod was met, and why pods cannot be named (empty if they can).
  bool met_pods() const { return met_pods_; }
  const std::string& pods_problem() const { return pods_.problem(); }

  // The process that owns the connection, if the kernel could tell; else who made the socket.
  model::Identity of_connection(const iw_conn& connection, Time now);
  model::Identity of_count(const iw_count_key& key, const iw_count& count, Time now);
  // `pid` 0 and an empty `comm`: not known.
  model::Identity of_process(std::uint64_t cgroup_id, std::uint32_t pid, std::string_view comm, Time now);

 private:
  struct Process {
    std::string comm;
    std::string cgroup_path;  // hybrid hosts: from /proc/<pid>/cgroup
    Time read_at;
  };

  void name_pod(model::Identity& identity, Time now);
  const Process& process(std::uint32_t pid, std::string_view comm, Time now);

  IdentityOptions options_;
  CgroupDirectory cgroups_;
  PodDirectory pods_;
  bool met_pods_ = false;
  std::unordered_map<std::string, Time> unnamed_;  // pods without a log folder: when they are asked for again
  std::string proc_;
  bool pids_are_the_hosts_;  // else /proc shows other processes under the kernel's pids
  std::unordered_map<std::uint32_t, Process> processes_;
};

// The path below "0::" in the text of /proc/<pid>/cgroup; without it that of name=systemd, then of any line.
std::string cgroup_path_of_process(std::string_view text);

}  // namespace inferwire::daemon
