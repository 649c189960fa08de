// SPDX-License-Identifier: Apache-2.0
#include "agent/daemon/identity.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>

#include "tests/unit/host/cgroup_tree.h"

namespace inferwire::daemon {
namespace {

using host::CgroupTree;

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
