// SPDX-License-Identifier: Apache-2.0
#include "agent/host/processes.h"

#include <unistd.h>

#include <algorithm>
#include <cstddef>

#include "agent/base/file.h"

namespace inferwire::host {
namespace {

constexpr std::size_t kProcessesMax = 4096;
constexpr std::chrono::seconds kProcessFresh{10};
constexpr char kInitialPidNamespace[] = "pid:[4026531836]";  // PROC_PID_INIT_INO, the same on every kernel

// Pid 2 is kthreadd in the initial namespace and nowhere else. (The link /proc/1/ns/pid needs ptrace rights.)
bool shows_initial_pid_namespace(const std::string& proc) {
  auto name = base::read_text(proc + "/2/comm");
  if (name && *name == "kthreadd\n") return true;
  if (proc != "/proc") return false;
  char target[64];
  const ssize_t length = readlink("/proc/self/ns/pid", target, sizeof target);
  return length > 0 && std::string_view(target, static_cast<std::size_t>(length)) == kInitialPidNamespace;
}

std::string without_line_end(std::string text) {
  while (!text.empty() && text.back() == '\n') text.pop_back();
  return text;
}

}  // namespace

ProcessCgroups parse_process_cgroups(std::string_view text) {
  ProcessCgroups found;
  int best_rank = 0;
  while (!text.empty()) {
    const std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(text.size(), line.size() + 1));
    // hierarchy:controllers:path, as in "1:name=systemd:/docker/..." (cgroups(7)).
    const std::size_t first = line.find(':');
    const std::size_t second = first == std::string_view::npos ? first : line.find(':', first + 1);
    if (second == std::string_view::npos) continue;
    const std::string_view controllers = line.substr(first + 1, second - first - 1);
    const std::string_view path = line.substr(second + 1);
    if (line.starts_with("0::")) found.unified = path;
    CgroupOwner owner = parse_cgroup_path(path);
    int rank = 0;
    if (!owner.pod.empty()) {
      rank = 5;
    } else if (!owner.container.empty()) {
      rank = 4;
    } else if (!owner.workload.empty()) {
      rank = line.starts_with("0::") ? 3 : controllers == "name=systemd" ? 2 : 1;
    }
    if (rank <= best_rank) continue;
    found.owner = std::move(owner);
    best_rank = rank;
  }
  return found;
}

Processes::Processes(const std::string& proc)
    : proc_(shows_initial_pid_namespace(proc) ? proc : "/proc"),
      pids_are_the_hosts_(shows_initial_pid_namespace(proc_)) {}

const Process* Processes::find(std::uint32_t pid, std::string_view comm, Time now) {
  if (pid == 0 || !pids_are_the_hosts_) return nullptr;
  if (processes_.size() > kProcessesMax) {
    std::erase_if(processes_, [&](const auto& entry) { return now - entry.second.read_at > kProcessFresh; });
    if (processes_.size() > kProcessesMax) processes_.clear();
  }
  const auto [at, added] = processes_.try_emplace(pid);
  auto& [process, read_at] = at->second;
  if (!added && now - read_at < kProcessFresh) return &process;
  read_at = now;
  const std::string folder = proc_ + "/" + std::to_string(pid);
  if (auto text = base::read_text(folder + "/comm"); text && !text->empty()) {
    process.comm = without_line_end(std::move(*text));
    auto cgroups = base::read_text(folder + "/cgroup");
    process.cgroups = cgroups ? parse_process_cgroups(*cgroups) : ProcessCgroups{};
  } else if (added || process.comm.empty()) {
    process.comm = std::string(comm);
  }
  return &process;
}

}  // namespace inferwire::host
