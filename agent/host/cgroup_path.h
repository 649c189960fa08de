// SPDX-License-Identifier: Apache-2.0
// What the path of a cgroup says about who is in it. Pure; a table of paths in tests/unit/host shows every form.
#pragma once

#include <string>
#include <string_view>

namespace inferwire::host {

// Empty = the path does not say.
struct CgroupOwner {
  std::string workload;   // systemd unit, short container id, pod uid; empty: use the process name
  std::string pod;        // Kubernetes pod uid, 8-4-4-4-12
  std::string container;  // first 12 digits of the container id

  bool operator==(const CgroupOwner&) const = default;
};

// `path` is relative to the root of the hierarchy, "/system.slice/nginx.service".
//
//   Kubernetes, systemd driver   .../kubepods-burstable-pod<uid with _>.slice/cri-containerd-<64 hex>.scope
//   Kubernetes, cgroupfs driver  .../kubepods/burstable/pod<uid>/<64 hex>
//   docker, podman, nerdctl      docker-<64 hex>.scope, libpod-<64 hex>.scope, docker/<64 hex>
//   mixed up                     .../kubepods-pod<uid with _>.slice:cri-containerd:<64 hex>
//   systemd unit                 .../nginx.service, .../user@1000.service/app.slice/ollama.service
//   anything else                nothing: session-1.scope, init.scope, the root
CgroupOwner parse_cgroup_path(std::string_view path);

}  // namespace inferwire::host
