// SPDX-License-Identifier: Apache-2.0
#include "agent/daemon/pod_directory.h"

#include <dirent.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <memory>
#include <vector>

#include "agent/base/result.h"

namespace inferwire::daemon {
namespace {

constexpr std::size_t kContainerIdDigits = 64;
constexpr std::size_t kShortIdDigits = 12;

struct DirCloser {
  void operator()(DIR* folder) const { closedir(folder); }
};

bool is_hex(char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); }
bool is_digit(char c) { return c >= '0' && c <= '9'; }

// The alphabet of Kubernetes' generated names: no vowels, nothing that looks like another character.
bool is_generated(std::string_view word) {
  return std::all_of(word.begin(), word.end(), [](char c) {
    return std::string_view("bcdfghjklmnpqrstvwxz2456789").find(c) != std::string_view::npos;
  });
}

bool is_number(std::string_view word) { return !word.empty() && std::all_of(word.begin(), word.end(), is_digit); }

// Takes the last word of "a-b-c" off; empty if there is no dash, or nothing before it.
std::string_view take_last_word(std::string_view& name) {
  const std::size_t dash = name.rfind('-');
  if (dash == std::string_view::npos || dash == 0) return {};
  const std::string_view word = name.substr(dash + 1);
  name = name.substr(0, dash);
  return word;
}

template <class Visit>
bool each_entry(const std::string& path, const Visit& visit) {
  const std::unique_ptr<DIR, DirCloser> folder(opendir(path.c_str()));
  if (folder == nullptr) return false;
  while (const dirent* entry = readdir(folder.get())) {
    if (entry->d_name[0] != '.') visit(std::string_view(entry->d_name));
  }
  return true;
}

template <class Map, class Time>
void forget_old(Map& map, std::size_t most, Time now, std::chrono::seconds remember) {
  std::erase_if(map, [&](const auto& entry) { return now - entry.second.seen > remember; });
  while (map.size() > most) {
    map.erase(std::min_element(map.begin(), map.end(),
                               [](const auto& a, const auto& b) { return a.second.seen < b.second.seen; }));
  }
}

}  // namespace

std::string workload_of_pod(std::string_view pod, std::string_view node) {
  if (!node.empty() && pod.size() > node.size() + 1 && pod.ends_with(node) &&
      pod[pod.size() - node.size() - 1] == '-') {
    return std::string(pod.substr(0, pod.size() - node.size() - 1));
  }
  constexpr std::size_t kSuffixDigits = 5, kHashLeast = 6, kHashMost = 10, kMinuteDigits = 8;
  std::string_view name = pod;
  const std::string_view last = take_last_word(name);
  if (last.empty()) return std::string(pod);
  if (last.size() == kSuffixDigits && is_generated(last)) {
    std::string_view owner = name;
    const std::string_view before = take_last_word(owner);
    const bool hash = before.size() >= kHashLeast && before.size() <= kHashMost && is_generated(before);
    const bool minute = before.size() == kMinuteDigits && is_number(before);
    return std::string(hash || minute ? owner : name);
  }
  constexpr std::size_t kOrdinalDigits = 4;
  if (is_number(last) && last.size() <= kOrdinalDigits) return std::string(name);
  return std::string(pod);
}

PodDirectory::PodDirectory(std::string logs, std::size_t pods_max)
    : pods_folder_(logs + "/pods"), containers_folder_(logs + "/containers"), pods_max_(pods_max) {}

void PodDirectory::scan_pods(Time now) {
  const bool read = each_entry(pods_folder_, [&](std::string_view name) {
    // Neither a namespace's nor a pod's name nor a uid can have a '_'.
    const std::size_t first = name.find('_'), second = name.find('_', first + 1);
    if (first == std::string_view::npos || second == std::string_view::npos) return;
    Pod& pod = pods_[std::string(name.substr(second + 1))];
    pod = {{std::string(name.substr(0, first)), std::string(name.substr(first + 1, second - first - 1))}, now};
  });
  problem_ = read ? "" : pods_folder_ + ": " + base::errno_text(errno);
  forget_old(pods_, pods_max_, now, kRemember);
}

void PodDirectory::scan_containers(Time now) {
  each_entry(containers_folder_, [&](std::string_view name) {
    if (!name.ends_with(".log")) return;
    name.remove_suffix(4);
    if (name.size() < kContainerIdDigits + 1 || name[name.size() - kContainerIdDigits - 1] != '-') return;
    const std::string_view id = name.substr(name.size() - kContainerIdDigits);
    if (!std::all_of(id.begin(), id.end(), is_hex)) return;
    name.remove_suffix(kContainerIdDigits + 1);
    const std::size_t last = name.rfind('_');
    if (last == std::string_view::npos) return;
    containers_[std::string(id.substr(0, kShortIdDigits))] = {std::string(name.substr(last + 1)), now};
  });
  forget_old(containers_, pods_max_ * 4, now, kRemember);
}

void PodDirectory::refresh(Time now) {
  const auto changed = [](const std::string& folder, Stamp& stamp) {
    struct stat status {};
    if (stat(folder.c_str(), &status) != 0) status = {};
    const Stamp seen{status.st_ino, status.st_mtim};
    if (seen == stamp) return false;
    stamp = seen;
    return true;
  };
  if (changed(pods_folder_, pods_stamp_)) scan_pods(now);
  if (changed(containers_folder_, containers_stamp_)) scan_containers(now);
}

std::optional<PodName> PodDirectory::pod(std::string_view uid, Time now) {
  auto found = pods_.find(std::string(uid));
  if (found == pods_.end()) {
    scan_pods(now);  // a change within the file system's clock tick does not show
    found = pods_.find(std::string(uid));
  }
  if (found == pods_.end()) return std::nullopt;
  found->second.seen = now;
  return found->second.name;
}

std::string PodDirectory::container(std::string_view short_id, Time now) {
  auto found = containers_.find(std::string(short_id));
  if (found == containers_.end()) {
    scan_containers(now);
    found = containers_.find(std::string(short_id));
  }
  if (found == containers_.end()) return "";
  found->second.seen = now;
  return found->second.name;
}

}  // namespace inferwire::daemon
