// SPDX-License-Identifier: Apache-2.0
#include "agent/capture/environment.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>

namespace inferwire::capture {
namespace {

using testing::TempDir;

constexpr char kHybrid[] =
    "31 23 0:28 / /sys/fs/cgroup rw,relatime - tmpfs tmpfs rw,mode=755\n"
    "32 31 0:29 / /sys/fs/cgroup/cpu rw,relatime - cgroup cgroup rw,cpu\n"
    "40 31 0:37 / /sys/fs/cgroup/systemd rw,relatime - cgroup cgroup rw,name=systemd\n"
    "41 31 0:38 / /sys/fs/cgroup/unified rw,relatime shared:9 master:1 - cgroup2 cgroup2 rw,nsdelegate\n";

TEST(CgroupMounts, AreFoundByTypeOnAHybridHost) {
  EXPECT_EQ(cgroup2_mounts(kHybrid), std::vector<std::string>{"/sys/fs/cgroup/unified"});
}

TEST(CgroupMounts, AllAreFoundInOrderAndEscapesAreUndone) {
  const auto mounts = cgroup2_mounts(
      "35 24 0:30 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw\n"
      "90 24 0:30 /../.. /host/my\\040cgroup rw - cgroup2 none rw\n"
      "91 24 8:1 / /cgroup2 rw - ext4 /dev/sda1 rw\n");
  EXPECT_EQ(mounts, (std::vector<std::string>{"/sys/fs/cgroup", "/host/my cgroup"}));
}

TEST(CgroupMounts, TornLinesAreNoMounts) {
  EXPECT_TRUE(cgroup2_mounts("").empty());
  EXPECT_TRUE(cgroup2_mounts("41 31 0:38 / /sys/fs/cgroup rw -").empty());
  EXPECT_TRUE(cgroup2_mounts("41 31").empty());
}

TEST(CgroupRootGiven, AFolderThatIsNoCgroupFileSystemIsRefusedWithTheFix) {
  const auto root = open_cgroup_root(TempDir(), "/");
  ASSERT_FALSE(root.has_value());
  EXPECT_EQ(root.error().why, "it is no cgroup v2 file system");
  EXPECT_NE(root.error().fix.find("mountinfo"), std::string::npos);
}

TEST(CgroupRootGiven, AMissingFolderSaysHowToGiveOne) {
  const auto root = open_cgroup_root(TempDir() + "/no-such-folder", "/");
  ASSERT_FALSE(root.has_value());
  EXPECT_EQ(root.error().why, "No such file or directory");
  EXPECT_NE(root.error().fix.find("--cgroup-root"), std::string::npos);
}

TEST(CgroupRootBelowAHostRoot, SaysWhenNothingIsMountedThere) {
  char folder[] = "/tmp/environment_test.XXXXXX";
  ASSERT_NE(mkdtemp(folder), nullptr);
  const auto root = open_cgroup_root("", folder);
  rmdir(folder);
  ASSERT_FALSE(root.has_value());
  EXPECT_EQ(root.error().why, "no cgroup v2 is mounted below it");
}

TEST(Btf, AMissingFileNamesTheKernelOption) {
  const auto btf = check_btf(TempDir() + "/vmlinux");
  ASSERT_FALSE(btf.has_value());
  EXPECT_NE(btf.error().fix.find("CONFIG_DEBUG_INFO_BTF"), std::string::npos);
}

std::uint64_t capability(int number) { return 1ull << number; }

TEST(Capabilities, AreReadFromStatus) {
  EXPECT_EQ(effective_capabilities("Name:\tx\nCapPrm:\t0000000000000001\nCapEff:\t000000c000001000\nCapBnd:\t0\n"),
            0x000000c000001000ull);
  EXPECT_EQ(effective_capabilities(""), 0u);
}

TEST(Capabilities, EachMissingOneIsNamed) {
  const std::uint64_t bpf = capability(39), perfmon = capability(38), net_admin = capability(12);
  EXPECT_TRUE(missing_capabilities(bpf | perfmon | net_admin).empty());
  EXPECT_EQ(missing_capabilities(perfmon | net_admin), std::vector<std::string>{"CAP_BPF"});
  EXPECT_EQ(missing_capabilities(bpf | net_admin), std::vector<std::string>{"CAP_PERFMON"});
  EXPECT_EQ(missing_capabilities(bpf | perfmon), std::vector<std::string>{"CAP_NET_ADMIN"});
  EXPECT_EQ(missing_capabilities(0).size(), 3u);
}

TEST(Capabilities, SysAdminIncludesBpfAndPerfmonButNotNetAdmin) {
  EXPECT_EQ(missing_capabilities(capability(21)), std::vector<std::string>{"CAP_NET_ADMIN"});
  EXPECT_TRUE(missing_capabilities(capability(21) | capability(12)).empty());
}

}  // namespace
}  // namespace inferwire::capture
