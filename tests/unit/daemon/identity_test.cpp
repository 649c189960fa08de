// SPDX-License-Identifier: Apache-2.0
#include "agent/daemon/identity.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>

namespace inferwire::daemon {
namespace {

using Time = CgroupDirectory::Time;
using std::chrono::seconds;

// A tree of folders in place of a cgroup hierarchy: ids are inodes there too.
class CgroupTree : public testing::Test {
 protected:
  CgroupTree() {
    char folder[] = "/tmp/identity_test.XXXXXX";
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
  Time now_ = Time() + seconds(1000);
};

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

TEST(ProcessCgroup, TheUnifiedPathComesFirstThenSystemdsThenAny) {
  EXPECT_EQ(cgroup_path_of_process("0::/system.slice/a.service\n"), "/system.slice/a.service");
  EXPECT_EQ(cgroup_path_of_process("5:memory:/docker/abc\n1:name=systemd:/docker/abc\n0::/\n"), "/docker/abc");
  EXPECT_EQ(cgroup_path_of_process("5:memory:/kubepods/podx\n0::/\n"), "/kubepods/podx");
  EXPECT_EQ(cgroup_path_of_process("0::/\n"), "/");
  EXPECT_EQ(cgroup_path_of_process("nonsense"), "");
}

iw_conn connection(std::uint64_t socket_cgroup, std::uint64_t owner_cgroup, std::uint32_t pid, const char* comm) {
  iw_conn conn{};
  conn.socket_cgroup_id = socket_cgroup;
  conn.owner_cgroup_id = owner_cgroup;
  conn.owner_pid = pid;
  std::strncpy(conn.comm, comm, sizeof conn.comm);
  return conn;
}

TEST_F(CgroupTree, TheOwnersCgroupWinsOverTheSockets) {
  const std::uint64_t socket = make("/system.slice/systemd-socket-proxyd.service");
  const std::uint64_t owner = make("/system.slice/ollama.service");
  IdentityResolver identities({.cgroup_root = root_, .host_root = "/", .node = "n1"});
  EXPECT_EQ(identities.of_connection(connection(socket, owner, 0, "ollama"), now_).workload, "ollama.service");
  EXPECT_EQ(identities.of_connection(connection(socket, 0, 0, ""), now_).workload, "systemd-socket-proxyd.service");
  EXPECT_EQ(identities.of_connection(connection(socket, 0, 0, ""), now_).node, "n1");
}

TEST_F(CgroupTree, ASessionScopeIsCalledByItsProcess) {
  const std::uint64_t id = make("/user.slice/user-0.slice/session-1.scope");
  IdentityResolver identities({.cgroup_root = root_, .host_root = "/", .node = ""});
  EXPECT_EQ(identities.of_connection(connection(id, id, 0, "ollama"), now_).workload, "ollama");
  EXPECT_EQ(identities.of_connection(connection(id, id, 0, ""), now_).workload, "unknown");
}

TEST_F(CgroupTree, APodIsNamedByItsUidAndContainer) {
  const std::string uid = "1b2c3d4e-5f60-7182-93a4-b5c6d7e8f901";
  const std::uint64_t id = make("/kubepods/burstable/pod" + uid + "/" + std::string(64, 'a'));
  IdentityResolver identities({.cgroup_root = root_, .host_root = "/", .node = ""});
  const model::Identity identity = identities.of_connection(connection(id, 0, 0, "python3"), now_);
  EXPECT_EQ(identity.pod, uid);
  EXPECT_EQ(identity.container, std::string(12, 'a'));
  EXPECT_EQ(identity.comm, "python3");
}

TEST_F(CgroupTree, ALivingProcessIsCalledByItsOwnNameNotItsThreads) {
  IdentityResolver identities({.cgroup_root = root_, .host_root = "/", .node = ""});
  const auto pid = static_cast<std::uint32_t>(getpid());
  const model::Identity identity = identities.of_connection(connection(0, 0, pid, "worker-7"), now_);
  EXPECT_EQ(identity.pid, pid);
  EXPECT_EQ(identity.comm, "daemon_test");
  EXPECT_EQ(identity.workload, "daemon_test");
  EXPECT_EQ(identities.of_process(0, pid, "worker-7", now_).workload, "daemon_test");
}

TEST_F(CgroupTree, AProcessThatIsGoneIsCalledAsTheRecordSays) {
  IdentityResolver identities({.cgroup_root = root_, .host_root = "/", .node = ""});
  constexpr std::uint32_t kNobody = 0x7ffffff0;
  EXPECT_EQ(identities.of_connection(connection(0, 0, kNobody, "curl"), now_).workload, "curl");
}

}  // namespace
}  // namespace inferwire::daemon
