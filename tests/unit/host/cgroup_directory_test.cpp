// SPDX-License-Identifier: Apache-2.0
#include "agent/host/cgroup_directory.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>

#include "tests/unit/host/cgroup_tree.h"

namespace inferwire::host {
namespace {

using std::chrono::seconds;

TEST_F(CgroupTree, IdsGivePaths) {
  const std::uint64_t id = make("/system.slice/nginx.service");
  CgroupDirectory cgroups(root_);
  EXPECT_EQ(cgroups.path_of(id, now_), "/system.slice/nginx.service");
  EXPECT_EQ(cgroups.path_of(id_of(""), now_), "/");
  EXPECT_EQ(cgroups.walks(), 1u);
}

TEST_F(CgroupTree, ANewCgroupIsFoundAtItsFirstRecord) {
  CgroupDirectory cgroups(root_);
  EXPECT_EQ(cgroups.path_of(id_of(""), now_), "/");
  const std::uint64_t id = make("/new");
  EXPECT_EQ(cgroups.path_of(id, now_ + seconds(1)), "/new");
}

TEST_F(CgroupTree, AnUnknownIdDoesNotWalkAgainAndAgain) {
  CgroupDirectory cgroups(root_);
  for (int i = 0; i < 1000; ++i)
    EXPECT_EQ(cgroups.path_of(~0ull - 7, now_ + std::chrono::milliseconds(i)), std::nullopt);
  EXPECT_EQ(cgroups.walks(), 1u);
  for (std::uint64_t id = 0; id < 1000; ++id) cgroups.path_of(~id, now_ + seconds(1));
  EXPECT_EQ(cgroups.walks(), 2u);
}

TEST_F(CgroupTree, AGoneCgroupKeepsItsPathUntilThereIsNoRoom) {
  const std::uint64_t gone = make("/gone");
  CgroupDirectory cgroups(root_, 4);
  EXPECT_EQ(cgroups.path_of(gone, now_), "/gone");
  // Moved away, not removed: this file system would use the inode again, which cgroup ids are not.
  const std::string elsewhere = root_ + "-gone";
  std::filesystem::rename(root_ + "/gone", elsewhere);
  make("/a");
  const std::uint64_t b = make("/b");
  EXPECT_EQ(cgroups.path_of(b, now_ + seconds(1)), "/b");
  EXPECT_EQ(cgroups.path_of(gone, now_ + seconds(1)), "/gone") << "4 of 4 places";
  make("/c");
  const std::uint64_t d = make("/d");
  EXPECT_EQ(cgroups.path_of(d, now_ + seconds(2)), "/d");
  EXPECT_EQ(cgroups.path_of(gone, now_ + seconds(3)), std::nullopt);
  std::filesystem::remove(elsewhere);
}

TEST_F(CgroupTree, WhatIsBelowAFolderWithNoOtherFolderIsFound) {
  const std::uint64_t deep = make("/a/b/c/d");
  CgroupDirectory cgroups(root_);
  EXPECT_EQ(cgroups.path_of(deep, now_), "/a/b/c/d");
}

}  // namespace
}  // namespace inferwire::host
