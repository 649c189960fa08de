// SPDX-License-Identifier: Apache-2.0
// What the host's /proc says of processes. Used by one thread.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>

#include "agent/host/cgroup_path.h"

namespace inferwire::host {

// What /proc/<pid>/cgroup says.
struct ProcessCgroups {
  std::string unified;  // path in the cgroup v2 hierarchy, as the agent's cgroup namespace shows it
  CgroupOwner owner;    // by the hierarchy that says most
};

struct Process {
  std::string comm;
  ProcessCgroups cgroups;
};

class Processes {
 public:
  using Time = std::chrono::steady_clock::time_point;

  // `proc`: the host's /proc as the agent sees it; /proc itself is used if that is none.
  explicit Processes(const std::string& proc);

  // Remembered for a while: it may be gone at the next record, and pids are used again. Of a process that is gone
  // `comm` is its name. Null if /proc shows another PID namespace than the host's, or pid is 0. The pointer holds until
  // the next call.
  const Process* find(std::uint32_t pid, std::string_view comm, Time now);

 private:
  struct Entry {
    Process process;
    Time read_at;
  };
  std::string proc_;
  bool pids_are_the_hosts_;  // else /proc shows other processes under the kernel's pids
  std::unordered_map<std::uint32_t, Entry> processes_;
};

// The path that says most is one with a pod, else one with a container, else that of the unified hierarchy, then
// systemd's, then any. On hybrid hosts a container may be in v1 hierarchies only, while its place in the unified one is
// its runtime's or the root.
ProcessCgroups parse_process_cgroups(std::string_view text);

}  // namespace inferwire::host
