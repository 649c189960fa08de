// SPDX-License-Identifier: Apache-2.0
#include "agent/daemon/control_socket.h"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>

namespace inferwire::daemon {
namespace {

using Time = ControlSocket::Time;

class ControlSocketTest : public testing::Test {
 protected:
  ControlSocketTest() {
    char folder[] = "/tmp/control_socket_test.XXXXXX";
    folder_ = mkdtemp(folder);
    path_ = folder_ + "/run/inferwire/agent.sock";
  }
  ~ControlSocketTest() override { std::filesystem::remove_all(folder_); }

  std::unique_ptr<ControlSocket> open() {
    auto opened = ControlSocket::open(path_);
    EXPECT_TRUE(opened.has_value()) << opened.error().to_string();
    return opened ? std::move(*opened) : nullptr;
  }

  base::UniqueFd connect_to() {
    base::UniqueFd fd(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::copy(path_.begin(), path_.end(), address.sun_path);
    EXPECT_EQ(connect(fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
    return fd;
  }

  static std::string echo(std::string_view request) { return "<" + std::string(request) + ">"; }

  // What the client has got so far; "(end)" when the connection has ended.
  static std::string received(int fd) {
    std::string text;
    char block[65536];
    for (;;) {
      const ssize_t got = recv(fd, block, sizeof block, 0);
      if (got == 0) return text + "(end)";
      if (got < 0) return text;
      text.append(block, static_cast<std::size_t>(got));
    }
  }

  std::string folder_;
  std::string path_;
};

TEST_F(ControlSocketTest, MakesItsFolderAndIsForTheOwnerOnly) {
  const auto socket = open();
  struct stat status {};
  ASSERT_EQ(stat(path_.c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777, 0600u);
}

TEST_F(ControlSocketTest, OneLineIsAnsweredByOneLineAndTheEnd) {
  const auto socket = open();
  const base::UniqueFd client = connect_to();
  ASSERT_EQ(send(client.get(), "to", 2, 0), 2);
  socket->serve(echo, Time());
  EXPECT_EQ(received(client.get()), "");
  ASSERT_EQ(send(client.get(), "p\nrest", 6, 0), 6);
  socket->serve(echo, Time());
  EXPECT_EQ(received(client.get()), "<top>\n(end)");
}

TEST_F(ControlSocketTest, ARequestWithoutLineEndIsAnsweredWhenTheClientHasDoneSending) {
  const auto socket = open();
  const base::UniqueFd client = connect_to();
  send(client.get(), "status", 6, 0);
  shutdown(client.get(), SHUT_WR);
  socket->serve(echo, Time());
  EXPECT_EQ(received(client.get()), "<status>\n(end)");
}

TEST_F(ControlSocketTest, ALongAnswerGoesOutAsTheClientReads) {
  const auto socket = open();
  const base::UniqueFd client = connect_to();
  send(client.get(), "top\n", 4, 0);
  const std::string answer(8u << 20, 'x');
  std::string all;
  for (int turn = 0; turn < 1000 && all.find("(end)") == std::string::npos; ++turn) {
    socket->serve([&](std::string_view) { return answer; }, Time());
    all += received(client.get());
  }
  EXPECT_EQ(all, answer + "\n(end)");
}

TEST_F(ControlSocketTest, SilentClientsLoseTheirPlaceAfterTheirTime) {
  const auto socket = open();
  std::vector<base::UniqueFd> silent;
  for (std::size_t i = 0; i < ControlSocket::kClientsMax; ++i) silent.push_back(connect_to());
  socket->serve(echo, Time());
  const base::UniqueFd client = connect_to();
  send(client.get(), "top\n", 4, 0);
  socket->serve(echo, Time());
  EXPECT_EQ(received(client.get()), "") << "all places are taken";
  socket->serve(echo, Time() + ControlSocket::kPatience + std::chrono::seconds(1));
  socket->serve(echo, Time() + ControlSocket::kPatience + std::chrono::seconds(1));
  EXPECT_EQ(received(client.get()), "<top>\n(end)");
  EXPECT_EQ(received(silent[0].get()), "(end)");
}

TEST_F(ControlSocketTest, AnEndlessRequestIsDropped) {
  const auto socket = open();
  const base::UniqueFd client = connect_to();
  const std::string endless(4096, 'x');
  send(client.get(), endless.data(), endless.size(), 0);
  socket->serve(echo, Time());
  char byte;
  EXPECT_LE(recv(client.get(), &byte, 1, 0), 0);
  EXPECT_NE(errno, EAGAIN);
}

TEST_F(ControlSocketTest, TheFileIsRemovedAtTheEndAndAStaleOneIsReplaced) {
  open();
  EXPECT_FALSE(std::filesystem::exists(path_));
  {
    const base::UniqueFd stale(socket(AF_UNIX, SOCK_STREAM, 0));
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::copy(path_.begin(), path_.end(), address.sun_path);
    ASSERT_EQ(bind(stale.get(), reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  }
  ASSERT_TRUE(std::filesystem::exists(path_));
  EXPECT_NE(open(), nullptr);
}

TEST_F(ControlSocketTest, ASecondAgentIsRefused) {
  const auto socket = open();
  auto second = ControlSocket::open(path_);
  ASSERT_FALSE(second.has_value());
  EXPECT_EQ(second.error().why, "another agent listens on it");
  EXPECT_TRUE(std::filesystem::exists(path_));
}

TEST_F(ControlSocketTest, AFolderThatCannotBeMadeIsAnError) {
  EXPECT_FALSE(ControlSocket::open("/proc/no-such-folder/agent.sock").has_value());
  EXPECT_FALSE(ControlSocket::open("/tmp/" + std::string(200, 'x')).has_value());
}

}  // namespace
}  // namespace inferwire::daemon
