// SPDX-License-Identifier: Apache-2.0
// Paths of cgroups by id, which is the inode of their folder. Used by one thread.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <unordered_map>

#include "agent/base/handle.h"

namespace inferwire::host {

// Asks the kernel for the folder of an id that it does not know (needs CAP_DAC_READ_SEARCH), else walks the tree. Ids
// of folders that are gone keep their path as long as there is room.
class CgroupDirectory {
 public:
  using Time = std::chrono::steady_clock::time_point;

  // `root`: of the host's cgroup v2 hierarchy.
  explicit CgroupDirectory(std::string root, std::size_t paths_max = 8192);

  // "/system.slice/nginx.service"; "/" for the root. Empty if there is no such folder. Walks for at most a twentieth of
  // the time.
  std::optional<std::string> path_of(std::uint64_t id, Time now);

  std::size_t known() const { return paths_.size(); }
  std::uint64_t walks() const { return walks_; }

 private:
  static constexpr int kWalkShare = 20;
  static constexpr std::chrono::seconds kRemainUnknown{30};

  struct Entry {
    std::string path;
    std::uint64_t walk;  // the last one that saw it
  };
  void open_root();
  std::optional<std::string> ask_kernel(std::uint64_t id) const;
  void walk();
  void remember(std::uint64_t id, std::string path);

  std::string root_;
  std::size_t paths_max_;
  bool root_opened_ = false;
  base::UniqueFd by_handle_;  // the root, if the kernel tells folders by id; else none
  std::string mount_;         // the root's path as the kernel writes it
  std::unordered_map<std::uint64_t, Entry> paths_;
  std::unordered_map<std::uint64_t, Time> unknown_;
  Time next_walk_{};
  std::uint64_t walks_ = 0;
};

}  // namespace inferwire::host
