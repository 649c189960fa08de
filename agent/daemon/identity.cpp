// SPDX-License-Identifier: Apache-2.0
#include "agent/daemon/identity.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>
#include <memory>
#include <sstream>
#include <vector>

#include "agent/base/handle.h"
#include "agent/capture/environment.h"
#include "agent/daemon/cgroup_path.h"

namespace inferwire::daemon {
namespace {

constexpr int kDepthMax = 32;
constexpr std::size_t kFoldersMax = 100'000;
constexpr std::size_t kProcessesMax = 4096;
constexpr std::chrono::seconds kProcessFresh{10};
constexpr char kInitialPidNamespace[] = "pid:[4026531836]";  // PROC_PID_INIT_INO, the same on every kernel

struct DirCloser {
  void operator()(DIR* folder) const { closedir(folder); }
};

// Pid 2 is kthreadd in the initial namespace and nowhere else. (The link /proc/1/ns/pid needs ptrace rights.)
bool shows_initial_pid_namespace(const std::string& proc) {
  auto name = capture::read_text(proc + "/2/comm");
  if (name && *name == "kthreadd\n") return true;
  if (proc != "/proc") return false;
  char target[64];
  const ssize_t length = readlink("/proc/self/ns/pid", target, sizeof target);
  return length > 0 && std::string_view(target, static_cast<std::size_t>(length)) == kInitialPidNamespace;
}

std::string under(const std::string& root, std::string_view path) {
  return root + (root.ends_with('/') ? "" : "/") + std::string(path);
}

std::string without_line_end(std::string text) {
  while (!text.empty() && text.back() == '\n') text.pop_back();
  return text;
}

template <class Visit>
void walk_folder(const std::string& root, const std::string& path, int depth, std::size_t& left, const Visit& visit) {
  std::unique_ptr<DIR, DirCloser> folder(opendir((root + path).c_str()));
  if (folder == nullptr) return;
  while (const dirent* entry = readdir(folder.get())) {
    if (entry->d_type != DT_DIR || entry->d_name[0] == '.') continue;
    if (left == 0 || depth == kDepthMax) return;
    --left;
    const std::string child = path + "/" + entry->d_name;
    visit(entry->d_ino, child);
    walk_folder(root, child, depth + 1, left, visit);
  }
}

}  // namespace

CgroupDirectory::CgroupDirectory(std::string root, std::size_t paths_max)
    : root_(std::move(root)), paths_max_(paths_max) {}

void CgroupDirectory::walk() {
  ++walks_;
  struct stat status {};
  if (stat(root_.c_str(), &status) == 0) paths_[status.st_ino] = {"/", walks_};
  std::size_t left = kFoldersMax;
  walk_folder(root_, "", 0, left, [this](std::uint64_t id, const std::string& path) { paths_[id] = {path, walks_}; });
  if (paths_.size() <= paths_max_) return;
  std::erase_if(paths_, [this](const auto& entry) { return entry.second.walk != walks_; });
}

std::optional<std::string> CgroupDirectory::path_of(std::uint64_t id, Time now) {
  if (const auto found = paths_.find(id); found != paths_.end()) return found->second.path;
  if (const auto unknown = unknown_.find(id); unknown != unknown_.end() && now < unknown->second) return std::nullopt;
  if (now < next_walk_) return std::nullopt;
  const Time began = std::chrono::steady_clock::now();
  walk();
  next_walk_ = now + (std::chrono::steady_clock::now() - began) * kWalkShare;
  if (const auto found = paths_.find(id); found != paths_.end()) return found->second.path;
  if (unknown_.size() >= paths_max_) unknown_.clear();
  unknown_[id] = now + kRemainUnknown;
  return std::nullopt;
}

std::string cgroup_path_of_process(std::string_view text) {
  std::string unified, systemd, any;
  std::istringstream lines{std::string(text)};
  for (std::string line; std::getline(lines, line);) {
    const std::size_t first = line.find(':');
    const std::size_t second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    const std::string path = line.substr(second + 1);
    if (line.starts_with("0::")) unified = path;
    if (controllers == "name=systemd") systemd = path;
    if (any.size() < path.size()) any = path;
  }
  if (unified.size() > 1) return unified;
  if (systemd.size() > 1) return systemd;
  return any;
}

IdentityResolver::IdentityResolver(IdentityOptions options)
    : options_(std::move(options)),
      cgroups_(options_.cgroup_root),
      pods_(options_.logs.empty() ? under(options_.host_root, "var/log") : options_.logs) {
  const std::string host_proc = under(options_.host_root, "proc");
  proc_ = shows_initial_pid_namespace(host_proc) ? host_proc : "/proc";
  pids_are_the_hosts_ = shows_initial_pid_namespace(proc_);
}

// What /proc says of a process, remembered: it may be gone at the next record, and pids are used again.
const IdentityResolver::Process& IdentityResolver::process(std::uint32_t pid, std::string_view comm, Time now) {
  if (processes_.size() > kProcessesMax) {
    std::erase_if(processes_, [&](const auto& entry) { return now - entry.second.read_at > kProcessFresh; });
    if (processes_.size() > kProcessesMax) processes_.clear();
  }
  const auto [at, added] = processes_.try_emplace(pid);
  Process& process = at->second;
  if (!added && now - process.read_at < kProcessFresh) return process;
  process.read_at = now;
  const std::string folder = proc_ + "/" + std::to_string(pid);
  if (auto text = capture::read_text(folder + "/comm"); text && !text->empty()) {
    process.comm = without_line_end(std::move(*text));
    auto cgroups = capture::read_text(folder + "/cgroup");
    process.cgroup_path = cgroups ? cgroup_path_of_process(*cgroups) : "";
  } else if (added || process.comm.empty()) {
    process.comm = std::string(comm);
  }
  return process;
}

model::Identity IdentityResolver::of_process(std::uint64_t cgroup_id, std::uint32_t pid, std::string_view comm,
                                             Time now) {
  model::Identity identity;
  identity.node = options_.node;
  identity.pid = pid;
  identity.comm = std::string(comm);
  const Process* known = nullptr;
  if (pid != 0 && pids_are_the_hosts_) {
    known = &process(pid, comm, now);
    identity.comm = known->comm;
  }
  std::optional<std::string> path;
  if (cgroup_id != 0) path = cgroups_.path_of(cgroup_id, now);
  CgroupOwner owner = parse_cgroup_path(path.value_or(""));
  // On a hybrid host containers may live in v1 hierarchies only: then everything is in the v2 root.
  if (owner.workload.empty() && known != nullptr && path.value_or("/") == "/") {
    owner = parse_cgroup_path(known->cgroup_path);
  }
  identity.workload = owner.workload.empty() ? identity.comm : owner.workload;
  if (identity.workload.empty()) identity.workload = "unknown";
  identity.pod = std::move(owner.pod);
  identity.container = std::move(owner.container);
  if (!identity.pod.empty()) name_pod(identity, now);
  return identity;
}

// From uid and container id to names, where the kubelet has given them.
void IdentityResolver::name_pod(model::Identity& identity, Time now) {
  constexpr std::chrono::seconds kAskAgainAfter{1};
  met_pods_ = true;
  const auto unnamed = unnamed_.find(identity.pod);
  if (unnamed != unnamed_.end() && now < unnamed->second) return;
  const std::optional<PodName> name = pods_.pod(identity.pod, now);
  if (!name) {
    if (unnamed_.size() > kProcessesMax) unnamed_.clear();
    unnamed_[identity.pod] = now + kAskAgainAfter;
    return;
  }
  if (!identity.container.empty()) {
    if (std::string container = pods_.container(identity.container, now); !container.empty()) {
      identity.container = std::move(container);
    }
  }
  identity.name_space = name->name_space;
  identity.pod = name->pod;
  identity.workload = workload_of_pod(name->pod, options_.node);
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
