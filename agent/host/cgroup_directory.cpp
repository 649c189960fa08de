// SPDX-License-Identifier: Apache-2.0
#include "agent/host/cgroup_directory.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <climits>
#include <cstring>
#include <memory>

namespace inferwire::host {
namespace {

constexpr int kDepthMax = 32;
constexpr std::size_t kFoldersMax = 100'000;
constexpr nlink_t kLinksOfLeaf = 2;  // each folder in it would be one more; other file systems say 1 or count

struct DirCloser {
  void operator()(DIR* folder) const { closedir(folder); }
};

template <class Visit>
void walk_folder(const std::string& root, const std::string& path, int depth, std::size_t& left, const Visit& visit) {
  const std::unique_ptr<DIR, DirCloser> folder(opendir((root + path).c_str()));
  if (folder == nullptr) return;
  while (const dirent* entry = readdir(folder.get())) {
    if (entry->d_type != DT_DIR || entry->d_name[0] == '.') continue;
    if (left == 0 || depth == kDepthMax) return;
    --left;
    const std::string child = path + "/" + entry->d_name;
    visit(entry->d_ino, child);
    // Most are leaves, with a hundred files each to read past.
    struct stat status {};
    if (fstatat(dirfd(folder.get()), entry->d_name, &status, AT_SYMLINK_NOFOLLOW) == 0 &&
        status.st_nlink == kLinksOfLeaf) {
      continue;
    }
    walk_folder(root, child, depth + 1, left, visit);
  }
}

// Where an open descriptor is; empty if that cannot be told.
std::string path_of_descriptor(int fd) {
  char path[PATH_MAX];
  const ssize_t length = readlink(("/proc/self/fd/" + std::to_string(fd)).c_str(), path, sizeof path);
  return length > 0 ? std::string(path, static_cast<std::size_t>(length)) : "";
}

// A cgroup's id is its file handle (FILEID_KERNFS; the id of cgroup v2 since Linux 5.5).
base::UniqueFd open_by_id(int root, std::uint64_t id) {
  constexpr int kFileIdKernfs = 0xfe;
  alignas(file_handle) char bytes[sizeof(file_handle) + sizeof id];
  auto* handle = new (bytes) file_handle;
  handle->handle_bytes = sizeof id;
  handle->handle_type = kFileIdKernfs;
  std::memcpy(bytes + sizeof(file_handle), &id, sizeof id);
  return base::UniqueFd(open_by_handle_at(root, handle, O_PATH | O_CLOEXEC));
}

}  // namespace

CgroupDirectory::CgroupDirectory(std::string root, std::size_t paths_max)
    : root_(std::move(root)), paths_max_(paths_max) {}

void CgroupDirectory::open_root() {
  root_opened_ = true;
  base::UniqueFd root(open(root_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  struct stat status {};
  if (!root || fstat(root.get(), &status) != 0) return;
  remember(status.st_ino, "/");
  mount_ = path_of_descriptor(root.get());
  const base::UniqueFd same = open_by_id(root.get(), status.st_ino);
  if (same && !mount_.empty() && path_of_descriptor(same.get()) == mount_) by_handle_ = std::move(root);
}

std::optional<std::string> CgroupDirectory::ask_kernel(std::uint64_t id) const {
  const base::UniqueFd folder = open_by_id(by_handle_.get(), id);
  if (!folder) return std::nullopt;
  std::string path = path_of_descriptor(folder.get());
  if (!path.starts_with(mount_ + "/")) return std::nullopt;
  return path.substr(mount_.size());
}

void CgroupDirectory::remember(std::uint64_t id, std::string path) {
  if (paths_.size() >= paths_max_) walk();
  paths_[id] = {std::move(path), walks_};
}

// Also makes room: if there are too many, those that are no more are forgotten.
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
  if (!root_opened_) open_root();
  if (const auto found = paths_.find(id); found != paths_.end()) return found->second.path;
  if (const auto unknown = unknown_.find(id); unknown != unknown_.end() && now < unknown->second) return std::nullopt;
  if (by_handle_) {
    if (std::optional<std::string> path = ask_kernel(id)) {
      remember(id, *path);
      return path;
    }
  } else {
    if (now < next_walk_) return std::nullopt;
    const Time began = std::chrono::steady_clock::now();
    walk();
    next_walk_ = now + (std::chrono::steady_clock::now() - began) * kWalkShare;
    if (const auto found = paths_.find(id); found != paths_.end()) return found->second.path;
  }
  if (unknown_.size() >= paths_max_) unknown_.clear();
  unknown_[id] = now + kRemainUnknown;
  return std::nullopt;
}

}  // namespace inferwire::host
