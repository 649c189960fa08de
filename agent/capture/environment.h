// SPDX-License-Identifier: Apache-2.0
// What the machine must have before any program can be loaded: the host's cgroup v2 root, BTF, capabilities. Each check
// says what is missing and how to mend it.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "agent/base/handle.h"
#include "agent/base/result.h"

namespace inferwire::capture {

// Mount points of cgroup v2 in the text of /proc/<pid>/mountinfo, in its order, octal escapes undone. Found by the type
// of file system, never by path: a hybrid host has it at /sys/fs/cgroup/unified.
std::vector<std::string> cgroup2_mounts(std::string_view mountinfo);

// The root of the host's cgroup v2 hierarchy, open.
struct CgroupRoot {
  std::string path;
  base::UniqueFd fd;
};

// `cgroup_root`: the user's --cgroup-root, empty to look for it. `host_root`: where the host's file system is seen, "/"
// or a mount of it. The root of a cgroup namespace is refused: programs attached there would see only its own sockets.
// A process in a cgroup namespace of its own must be told the root.
base::Result<CgroupRoot> open_cgroup_root(const std::string& cgroup_root, const std::string& host_root);

// The kernel's type information, which CO-RE and typed tracepoints need.
base::Result<void> check_btf(const std::string& path = "/sys/kernel/btf/vmlinux");

// Bits of CapEff in the text of /proc/<pid>/status.
std::uint64_t effective_capabilities(std::string_view status);

// Of CAP_BPF, CAP_PERFMON, CAP_NET_ADMIN those that are missing. CAP_SYS_ADMIN includes the first two.
std::vector<std::string> missing_capabilities(std::uint64_t effective);

// Capabilities of this process, in the initial user namespace.
base::Result<void> check_capabilities();

// This kernel's names of reset reasons (enum sk_rst_reason), by value, as "tcp_abort_on_close"; empty before 6.10.
std::vector<std::string> reset_reasons();

}  // namespace inferwire::capture
