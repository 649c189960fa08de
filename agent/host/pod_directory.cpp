// SPDX-License-Identifier: Apache-2.0
#include "agent/host/pod_directory.h"

#include <dirent.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <ctime>
#include <memory>
#include <vector>

#include "agent/base/result.h"

namespace inferwire::host {
namespace {

constexpr std::size_t kContainerIdDigits = 64;
constexpr std::size_t kShortIdDigits = 12;
constexpr std::size_t kStaticUidDigits = 32;  // a hash of its manifest; others have dashes
constexpr std::size_t kContainersOfPod = 4;   // on average
constexpr std::chrono::seconds kRememberGone{600};
constexpr std::chrono::seconds kLookAgainAfter{1};

struct DirCloser {
  void operator()(DIR* folder) const { closedir(folder); }
};

bool is_hex(char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); }
bool is_digit(char c) { return c >= '0' && c <= '9'; }

bool is_of(std::string_view alphabet, std::string_view word) {
  return std::all_of(word.begin(), word.end(),
                     [alphabet](char c) { return alphabet.find(c) != std::string_view::npos; });
}

// The end of a generated name (metadata.generateName): no vowels, nothing that looks like another character.
bool is_generated(std::string_view word) { return word.size() == 5 && is_of("bcdfghjklmnpqrstvwxz2456789", word); }

// A ReplicaSet's pod-template-hash is a 32-bit number, decimal, each digit encoded as one of ten letters; shorter ones
// than of six digits are one in four thousand.
bool is_template_hash(std::string_view word) {
  return word.size() >= 6 && word.size() <= 10 && is_of("456789bcdf", word);
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

// 0, or errno.
template <class Visit>
int each_entry(const std::string& path, const Visit& visit) {
  const std::unique_ptr<DIR, DirCloser> folder(opendir(path.c_str()));
  if (folder == nullptr) return errno;
  while (const dirent* entry = readdir(folder.get())) {
    if (entry->d_name[0] != '.') visit(std::string_view(entry->d_name));
  }
  return 0;
}

}  // namespace

bool FolderStamp::changed() {
  // Two ticks of the slowest kernel (CONFIG_HZ=100), and some.
  constexpr double kTickSeconds = 0.05;
  struct stat status {};
  timespec now{};
  clock_gettime(CLOCK_REALTIME, &now);
  if (stat(path_.c_str(), &status) != 0) status = {};
  const bool same = settled_ && status.st_ino == inode_ && status.st_mtim.tv_sec == changed_.tv_sec &&
                    status.st_mtim.tv_nsec == changed_.tv_nsec;
  if (same) return false;
  inode_ = status.st_ino;
  changed_ = status.st_mtim;
  const double age =
      static_cast<double>(now.tv_sec - changed_.tv_sec) + static_cast<double>(now.tv_nsec - changed_.tv_nsec) / 1e9;
  settled_ = age > kTickSeconds || age < -kTickSeconds;
  return true;
}

std::string workload_of_pod(std::string_view pod) {
  constexpr std::size_t kMinuteDigits = 8, kOrdinalDigits = 4;
  std::string_view name = pod;
  const std::string_view last = take_last_word(name);
  if (is_generated(last)) {
    std::string_view owner = name;
    const std::string_view before = take_last_word(owner);
    const bool minute = before.size() == kMinuteDigits && is_number(before);
    return std::string(is_template_hash(before) || minute ? owner : name);
  }
  return std::string(is_number(last) && last.size() <= kOrdinalDigits ? name : pod);
}

std::string workload_of_static_pod(std::string_view pod, std::string_view node) {
  std::string_view name = pod;
  if (node.empty() || !name.ends_with(node)) return std::string(pod);
  name.remove_suffix(node.size());
  if (name.size() < 2 || name.back() != '-') return std::string(pod);
  name.remove_suffix(1);
  return std::string(name);
}

PodDirectory::PodDirectory(const std::string& logs, std::string node, std::size_t pods_max)
    : pods_folder_(logs + "/pods"),
      containers_folder_(logs + "/containers"),
      node_(std::move(node)),
      pods_max_(pods_max) {}

// Those that a scan has not found again are gone; those that are gone for long, or are too many, are forgotten.
void PodDirectory::forget(KnownByKey& known, std::size_t most, Time now) {
  std::erase_if(known,
                [&](const auto& entry) { return !entry.second.present && now - entry.second.gone_at > kRememberGone; });
  while (known.size() > most) {
    const auto less = [](const auto& a, const auto& b) {
      return std::pair(a.second.present, a.second.gone_at) < std::pair(b.second.present, b.second.gone_at);
    };
    known.erase(std::min_element(known.begin(), known.end(), less));
  }
}

template <class Visit>
int PodDirectory::scan(const std::string& folder, KnownByKey& known, std::size_t most, Time now, const Visit& visit) {
  for (auto& [key, entry] : known) {
    if (entry.present) entry.gone_at = now;
    entry.present = false;
  }
  const int error = each_entry(folder, [&](std::string_view name) {
    if (known.size() < 2 * most) visit(name);
  });
  forget(known, most, now);
  return error;
}

void PodDirectory::scan_pods(Time now) {
  const int error = scan(pods_folder_.path(), pods_, pods_max_, now, [&](std::string_view name) {
    // Neither a namespace's nor a pod's name nor a uid can have a '_'.
    const std::size_t first = name.find('_'), second = name.find('_', first + 1);
    if (first == std::string_view::npos || second == std::string_view::npos) return;
    pods_[std::string(name.substr(second + 1))] = {.name = std::string(name)};
  });
  problem_ = error == 0 ? "" : pods_folder_.path() + ": " + base::errno_text(error);
}

void PodDirectory::scan_containers(Time now) {
  scan(containers_folder_.path(), containers_, pods_max_ * kContainersOfPod, now, [&](std::string_view name) {
    if (!name.ends_with(".log")) return;
    name.remove_suffix(4);
    if (name.size() < kContainerIdDigits + 1 || name[name.size() - kContainerIdDigits - 1] != '-') return;
    const std::string_view id = name.substr(name.size() - kContainerIdDigits);
    if (!std::all_of(id.begin(), id.end(), is_hex)) return;
    name.remove_suffix(kContainerIdDigits + 1);
    const std::size_t last = name.rfind('_');
    if (last == std::string_view::npos) return;
    containers_[std::string(id.substr(0, kShortIdDigits))] = {.name = std::string(name.substr(last + 1))};
  });
}

void PodDirectory::refresh(Time now) {
  if (pods_folder_.changed()) scan_pods(now);
  if (containers_folder_.changed()) scan_containers(now);
}

// Until its log is there, a container's name is that of the only folder in its pod's: that of each container is made
// before its first process.
std::string PodDirectory::container(const std::string& folder, const std::string& short_id, Time now) {
  if (const auto found = containers_.find(short_id); found != containers_.end()) return found->second.name;
  if (const auto tried = nameless_.find(short_id); tried != nameless_.end() && now < tried->second) return "";
  std::vector<std::string> names;
  each_entry(pods_folder_.path() + "/" + folder, [&](std::string_view name) { names.emplace_back(name); });
  if (names.size() != 1) {
    if (nameless_.size() > pods_max_) nameless_.clear();
    nameless_[short_id] = now + kLookAgainAfter;
    return "";
  }
  containers_[short_id] = {.name = names.front(), .present = false, .gone_at = now};
  return names.front();
}

std::optional<PodName> PodDirectory::find(std::string_view uid, std::string_view short_id, Time now) {
  auto found = pods_.find(std::string(uid));
  const bool container_known = short_id.empty() || containers_.contains(std::string(short_id));
  if (found == pods_.end() || !container_known) {
    refresh(now);
    found = pods_.find(std::string(uid));
  }
  if (found == pods_.end()) return std::nullopt;
  const std::string& folder = found->second.name;
  const std::size_t first = folder.find('_'), second = folder.find('_', first + 1);
  PodName name;
  name.name_space = folder.substr(0, first);
  name.pod = folder.substr(first + 1, second - first - 1);
  name.workload = uid.size() == kStaticUidDigits ? workload_of_static_pod(name.pod, node_) : workload_of_pod(name.pod);
  if (!short_id.empty()) name.container = container(folder, std::string(short_id), now);
  return name;
}

}  // namespace inferwire::host
