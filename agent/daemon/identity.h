// SPDX-License-Identifier: Apache-2.0
// From a cgroup id and a pid to a workload (docs/identity.md). Used by the reader thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "agent/host/cgroup_directory.h"
#include "agent/host/pod_directory.h"
#include "agent/host/pod_watch.h"
#include "agent/host/processes.h"
#include "agent/model/identity.h"
#include "inferwire/event_abi.h"

namespace inferwire::daemon {

struct IdentityOptions {
  std::string cgroup_root;
  std::string host_root = "/";
  std::string node;
  std::string logs;  // where pods/ and containers/ of the kubelet lie; empty: <host_root>/var/log
  const host::PodWatch* pod_watch = nullptr;  // may be null; knows better than the folders
};

class IdentityResolver {
 public:
  using Time = host::CgroupDirectory::Time;

  explicit IdentityResolver(IdentityOptions options);

  // Learns of pods that have come: to be called often.
  void refresh(Time now) { pods_.refresh(now); }

  // Whether the cgroup of a pod was met, and why pods cannot be named (empty if they can). A watch that goes well names
  // them without the folders.
  bool met_pods() const { return met_pods_; }
  std::string pods_problem() const;

  // The process that owns the connection, if the kernel could tell; else who made the socket.
  model::Identity of_connection(const iw_conn& connection, Time now);
  model::Identity of_count(const iw_count_key& key, const iw_count& count, Time now);
  // `pid` 0 and an empty `comm`: not known.
  model::Identity of_process(std::uint64_t cgroup_id, std::uint32_t pid, std::string_view comm, Time now);

 private:
  std::optional<host::PodName> name_of_pod(const std::string& uid, const std::string& short_id, Time now);
  host::CgroupOwner owner_of(std::uint64_t cgroup_id, const host::Process* process, Time now);

  IdentityOptions options_;
  host::CgroupDirectory cgroups_;
  host::PodDirectory pods_;
  host::Processes processes_;
  bool met_pods_ = false;
};

}  // namespace inferwire::daemon
