// SPDX-License-Identifier: Apache-2.0
// A tree of folders in place of a cgroup hierarchy: ids are inodes there too.
#pragma once

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <string>

namespace inferwire::host {

class CgroupTree : public testing::Test {
 protected:
  CgroupTree() {
    char folder[] = "/tmp/cgroup_tree.XXXXXX";
    root_ = mkdtemp(folder);
  }
  ~CgroupTree() override { std::filesystem::remove_all(root_); }

  std::uint64_t make(const std::string& path) {
    std::filesystem::create_directories(root_ + path);
    return id_of(path);
  }
  std::uint64_t id_of(const std::string& path) {
    struct stat status {};
    EXPECT_EQ(stat((root_ + path).c_str(), &status), 0);
    return status.st_ino;
  }

  std::string root_;
  std::chrono::steady_clock::time_point now_ = std::chrono::steady_clock::time_point() + std::chrono::seconds(1000);
};

}  // namespace inferwire::host
