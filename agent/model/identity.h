// SPDX-License-Identifier: Apache-2.0
// Whose socket it is. Resolved by the daemon (cgroup, process); the model only passes it on.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace inferwire::model {

// Empty = not known. `workload` follows docs/metrics.md: the Kubernetes owner, the systemd unit, the Docker name or id,
// else the process name.
struct Identity {
  std::string name_space;
  std::string workload;
  std::string pod;
  std::string container;
  std::string node;
  std::string comm;
  std::uint32_t pid = 0;

  bool operator==(const Identity&) const = default;
};

// The label `workload`.
inline std::string_view workload_of(const Identity& who) { return who.workload.empty() ? who.comm : who.workload; }

}  // namespace inferwire::model
