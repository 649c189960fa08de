// SPDX-License-Identifier: Apache-2.0
#include "agent/capture/environment.h"

#include <bpf/btf.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <sys/stat.h>
#include <sys/vfs.h>

#include <cctype>
#include <cerrno>
#include <charconv>
#include <memory>
#include <sstream>

#include "agent/base/file.h"

namespace inferwire::capture {
namespace {

constexpr ino_t kHostRootInode = 1;
constexpr char kInitialCgroupNamespace[] = "cgroup:[4026531835]";  // PROC_CGROUP_INIT_INO, the same on every kernel
constexpr int kCapNetAdmin = 12, kCapSysAdmin = 21, kCapPerfmon = 38, kCapBpf = 39;

constexpr char kGiveRoot[] =
    "run the agent in the host's cgroup namespace (docker: --cgroupns=host), or mount the host's cgroup hierarchy into "
    "it "
    "and name it with --cgroup-root DIR, or the host's file system with --host-root DIR";

std::string undo_octal_escapes(std::string_view text) {
  std::string plain;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '\\' && i + 3 < text.size()) {
      plain += static_cast<char>((text[i + 1] - '0') * 64 + (text[i + 2] - '0') * 8 + (text[i + 3] - '0'));
      i += 3;
    } else {
      plain += text[i];
    }
  }
  return plain;
}

bool in_private_cgroup_namespace() {
  char target[64];
  const ssize_t length = readlink("/proc/self/ns/cgroup", target, sizeof target);
  return length > 0 && std::string_view(target, static_cast<std::size_t>(length)) != kInitialCgroupNamespace;
}

// `why` for a folder that is no host root, or the open folder.
base::Result<CgroupRoot> open_root(const std::string& path) {
  constexpr char kWhat[] = "use the cgroup v2 root";
  base::UniqueFd fd(open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!fd) return base::fail(kWhat, path, base::errno_text(errno), kGiveRoot);
  struct statfs file_system {};
  if (fstatfs(fd.get(), &file_system) != 0) return base::fail(kWhat, path, base::errno_text(errno), kGiveRoot);
  if (file_system.f_type != CGROUP2_SUPER_MAGIC) {
    return base::fail(kWhat, path, "it is no cgroup v2 file system",
                      "name the cgroup v2 mount; `grep cgroup2 /proc/self/mountinfo` lists them");
  }
  struct stat status {};
  if (fstat(fd.get(), &status) != 0) return base::fail(kWhat, path, base::errno_text(errno), kGiveRoot);
  if (status.st_ino != kHostRootInode) {
    return base::fail(
        kWhat, path,
        "it is not the host's root (inode " + std::to_string(status.st_ino) +
            " instead of 1): it is a cgroup below it, or the private root of a cgroup namespace; streams of "
            "other cgroups would not be seen",
        kGiveRoot);
  }
  return CgroupRoot{path, std::move(fd)};
}

}  // namespace

std::vector<std::string> cgroup2_mounts(std::string_view mountinfo) {
  // 41 31 0:38 / /sys/fs/cgroup/unified rw,relatime shared:4 - cgroup2 cgroup2 rw        (proc_pid_mountinfo(5))
  std::vector<std::string> mounts;
  std::istringstream lines{std::string(mountinfo)};
  for (std::string line; std::getline(lines, line);) {
    std::istringstream fields(line);
    std::string id, parent, device, root, point, field, type;
    fields >> id >> parent >> device >> root >> point;
    while (fields >> field && field != "-") {
    }
    if (fields >> type && type == "cgroup2") mounts.push_back(undo_octal_escapes(point));
  }
  return mounts;
}

base::Result<CgroupRoot> open_cgroup_root(const std::string& cgroup_root, const std::string& host_root) {
  if (!cgroup_root.empty()) return open_root(cgroup_root);

  constexpr char kWhat[] = "find the host's cgroup v2 root";
  auto mountinfo = base::read_text("/proc/self/mountinfo");
  if (!mountinfo) return tl::unexpected(mountinfo.error());
  const bool host_given = !host_root.empty() && host_root != "/";
  const std::string prefix = host_given ? (host_root.back() == '/' ? host_root : host_root + "/") : "/";

  std::string refused;
  int mounts = 0;
  std::string found;
  for (const std::string& mount : cgroup2_mounts(*mountinfo)) {
    if (host_given && mount.rfind(prefix, 0) != 0) continue;
    ++mounts;
    auto root = open_root(mount);
    if (!root) {
      refused = mount + ": " + root.error().why;
      continue;
    }
    // Told nothing, an agent in a namespace of its own would depend on which mounts happen to be inherited.
    if (!host_given && in_private_cgroup_namespace()) {
      found = mount;
      continue;
    }
    return std::move(*root);
  }
  if (!found.empty()) {
    return base::fail(kWhat, "", "the agent runs in a cgroup namespace of its own",
                      std::string("the host's root can be seen at ") + found + ": pass --cgroup-root " + found +
                          ", or run the agent in the host's cgroup namespace (docker: --cgroupns=host)");
  }
  if (mounts == 0) {
    return base::fail(kWhat, host_given ? host_root : std::string(),
                      host_given ? "no cgroup v2 is mounted below it" : "no cgroup v2 is mounted",
                      "mount it (mount -t cgroup2 none /sys/fs/cgroup/unified), or " + std::string(kGiveRoot));
  }
  return base::fail(kWhat, "", refused, kGiveRoot);
}

base::Result<void> check_btf(const std::string& path) {
  if (access(path.c_str(), R_OK) == 0) return {};
  return base::fail(
      "read the kernel's type information (BTF)", path, base::errno_text(errno),
      "use a kernel built with CONFIG_DEBUG_INFO_BTF=y (Debian 12, Ubuntu 22.04, RHEL 9 and newer have it), "
      "and mount /sys into the agent's container");
}

std::uint64_t effective_capabilities(std::string_view status) {
  constexpr std::string_view kKey = "CapEff:";
  const std::size_t at = status.find(kKey);
  if (at == std::string_view::npos) return 0;
  std::size_t begin = at + kKey.size();
  while (begin < status.size() && (status[begin] == '\t' || status[begin] == ' ')) ++begin;
  std::uint64_t bits = 0;
  std::from_chars(status.data() + begin, status.data() + status.size(), bits, 16);
  return bits;
}

std::vector<std::string> missing_capabilities(std::uint64_t effective) {
  const auto has = [&](int capability) { return (effective >> capability & 1) != 0; };
  std::vector<std::string> missing;
  if (!has(kCapBpf) && !has(kCapSysAdmin)) missing.emplace_back("CAP_BPF");
  if (!has(kCapPerfmon) && !has(kCapSysAdmin)) missing.emplace_back("CAP_PERFMON");
  if (!has(kCapNetAdmin)) missing.emplace_back("CAP_NET_ADMIN");
  return missing;
}

base::Result<void> check_capabilities() {
  auto status = base::read_text("/proc/self/status");
  if (!status) return tl::unexpected(status.error());
  const std::vector<std::string> missing = missing_capabilities(effective_capabilities(*status));
  if (!missing.empty()) {
    std::string names;
    for (const std::string& name : missing) names += (names.empty() ? "" : ", ") + name;
    return base::fail("load kernel programs", "",
                      "missing " + std::string(missing.size() == 1 ? "capability " : "capabilities ") + names,
                      "run as root, or grant CAP_BPF, CAP_PERFMON and CAP_NET_ADMIN (systemd: AmbientCapabilities=, "
                      "Kubernetes: securityContext.capabilities.add)");
  }
  // Capabilities of another user namespace say nothing to bpf(2).
  auto uid_map = base::read_text("/proc/self/uid_map");
  std::uint64_t inside = 1, outside = 1, count = 0;
  if (uid_map) std::istringstream(*uid_map) >> inside >> outside >> count;
  if (uid_map && (inside != 0 || outside != 0 || count != 4294967295ull)) {
    return base::fail("load kernel programs", "", "the agent runs in a user namespace of its own",
                      "run it in the host's user namespace (docker: --userns=host, Kubernetes: hostUsers: true)");
  }
  return {};
}

std::vector<std::string> reset_reasons() {
  constexpr std::string_view kPrefix = "SK_RST_REASON_";
  std::vector<std::string> names;
  const std::unique_ptr<btf, decltype(&btf__free)> types(btf__load_vmlinux_btf(), btf__free);
  const int id = types ? btf__find_by_name_kind(types.get(), "sk_rst_reason", BTF_KIND_ENUM) : -1;
  if (id < 0) return names;
  const btf_type* type = btf__type_by_id(types.get(), static_cast<std::uint32_t>(id));
  for (std::uint32_t i = 0; i < btf_vlen(type); ++i) {
    const auto& value = btf_enum(type)[i];
    std::string_view name = btf__name_by_offset(types.get(), value.name_off);
    if (!name.starts_with(kPrefix) || value.val < 0 || value.val > 255) continue;
    name.remove_prefix(kPrefix.size());
    const auto at = static_cast<std::size_t>(value.val);
    if (names.size() <= at) names.resize(at + 1);
    for (const char c : name) names[at] += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  }
  return names;
}

}  // namespace inferwire::capture
