// SPDX-License-Identifier: Apache-2.0
#include "agent/daemon/identity.h"

#include <cstring>
#include <utility>

namespace inferwire::daemon {
namespace {

std::string under(const std::string& root, std::string_view path) {
  return root + (root.ends_with('/') ? "" : "/") + std::string(path);
}

}  // namespace

IdentityResolver::IdentityResolver(IdentityOptions options)
    : options_(std::move(options)),
      cgroups_(options_.cgroup_root),
      pods_(options_.logs.empty() ? under(options_.host_root, "var/log") : options_.logs, options_.node),
      processes_(under(options_.host_root, "proc")) {}

// On a hybrid host a container may live in v1 hierarchies only: in v2 it is in the root, or where its runtime is.
host::CgroupOwner IdentityResolver::owner_of(std::uint64_t cgroup_id, const host::Process* process, Time now) {
  std::optional<std::string> path;
  if (cgroup_id != 0) path = cgroups_.path_of(cgroup_id, now);
  host::CgroupOwner owner = host::parse_cgroup_path(path.value_or(""));
  if (process == nullptr || !owner.pod.empty() || !owner.container.empty()) return owner;
  const host::ProcessCgroups& seen = process->cgroups;
  const bool same_place = path && seen.unified == *path;
  return same_place || path.value_or("/") == "/" ? seen.owner : owner;
}

std::string IdentityResolver::pods_problem() const {
  const bool watched = options_.pod_watch != nullptr && options_.pod_watch->problem().empty();
  return watched ? "" : pods_.problem();
}

std::optional<host::PodName> IdentityResolver::name_of_pod(const std::string& uid, const std::string& short_id,
                                                           Time now) {
  std::optional<host::PodName> watched;
  if (options_.pod_watch != nullptr) watched = options_.pod_watch->find(uid, short_id);
  if (watched && (short_id.empty() || !watched->container.empty())) return watched;
  std::optional<host::PodName> named = pods_.find(uid, short_id, now);
  if (!watched) return named;
  if (named) watched->container = std::move(named->container);  // the kubelet is first to know
  return watched;
}

model::Identity IdentityResolver::of_process(std::uint64_t cgroup_id, std::uint32_t pid, std::string_view comm,
                                             Time now) {
  const host::Process* process = processes_.find(pid, comm, now);
  host::CgroupOwner owner = owner_of(cgroup_id, process, now);
  model::Identity identity;
  identity.node = options_.node;
  identity.pid = pid;
  identity.comm = process != nullptr ? process->comm : std::string(comm);
  identity.workload = owner.workload.empty() ? identity.comm : std::move(owner.workload);
  if (identity.workload.empty()) identity.workload = "unknown";
  identity.pod = std::move(owner.pod);
  identity.container = std::move(owner.container);
  if (identity.pod.empty()) return identity;

  // From uid and container id to names, where the kubelet has given them.
  met_pods_ = true;
  std::optional<host::PodName> name = name_of_pod(identity.pod, identity.container, now);
  if (!name) return identity;
  identity.name_space = std::move(name->name_space);
  identity.pod = std::move(name->pod);
  identity.workload = std::move(name->workload);
  if (!name->container.empty()) identity.container = std::move(name->container);
  return identity;
}

model::Identity IdentityResolver::of_connection(const iw_conn& connection, Time now) {
  const std::uint64_t cgroup =
      connection.owner_cgroup_id != 0 ? connection.owner_cgroup_id : connection.socket_cgroup_id;
  return of_process(cgroup, connection.owner_pid, {connection.comm, strnlen(connection.comm, sizeof connection.comm)},
                    now);
}

model::Identity IdentityResolver::of_count(const iw_count_key& key, const iw_count& count, Time now) {
  return of_process(key.cgroup_id, key.pid, {count.comm, strnlen(count.comm, sizeof count.comm)}, now);
}

}  // namespace inferwire::daemon
