// SPDX-License-Identifier: Apache-2.0
#include "tests/bench/cost/cgroup.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <fstream>

#include "tests/support/base/fatal.h"

namespace inferwire::bench {

using rig::fatal;
using rig::fatal_errno;

std::string cgroup_root() {
  std::ifstream mounts("/proc/self/mounts");
  std::string device;
  std::string where;
  std::string type;
  std::string rest;
  while (mounts >> device >> where >> type && std::getline(mounts, rest)) {
    struct stat at {};
    // The root of the whole hierarchy is inode 1; that of a cgroup namespace is another.
    if (type == "cgroup2" && stat(where.c_str(), &at) == 0 && at.st_ino == 1) return where;
  }
  fatal("no mount of cgroup v2 shows the host's root");
}

Cgroup::Cgroup(const std::string& name) : path_(cgroup_root() + "/" + name) {
  if (mkdir(path_.c_str(), 0755) != 0 && errno != EEXIST) fatal_errno("making the cgroup " + path_);
  fd_ = rig::Fd(open(path_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!fd_.valid()) fatal_errno("opening the cgroup " + path_);
}

Cgroup::~Cgroup() {
  // Processes leave it a little after they have ended.
  for (int i = 0; i < 50 && rmdir(path_.c_str()) != 0 && errno == EBUSY; i++) usleep(20'000);
}

void Cgroup::enter() const {
  std::ofstream procs(path_ + "/cgroup.procs");
  procs << getpid() << std::flush;
  if (!procs) fatal("entering the cgroup " + path_);
}

Child::Child(const std::vector<std::string>& command, const Cgroup& cgroup) {
  std::array<int, 2> ends{};
  if (pipe2(ends.data(), O_CLOEXEC) != 0) fatal_errno("pipe2");
  output_ = rig::Fd(ends[0]);
  const rig::Fd input(ends[1]);
  pid_ = fork();
  if (pid_ < 0) fatal_errno("fork");
  if (pid_ == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    cgroup.enter();
    dup2(input.get(), STDOUT_FILENO);
    std::vector<char*> arguments;
    for (const auto& word : command) arguments.push_back(const_cast<char*>(word.c_str()));
    arguments.push_back(nullptr);
    execv(arguments[0], arguments.data());
    fatal_errno("starting " + command[0]);
  }
}

Child::~Child() {
  if (pid_ > 0) {
    kill(pid_, SIGTERM);
    waitpid(pid_, nullptr, 0);
  }
}

nlohmann::ordered_json Child::read_line() {
  std::string line;
  char c = 0;
  while (read(output_.get(), &c, 1) == 1 && c != '\n') line += c;
  if (line.empty()) fatal("the load ended early");
  return nlohmann::ordered_json::parse(line);
}

void Child::wait() {
  int status = 0;
  waitpid(pid_, &status, 0);
  pid_ = -1;
  if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) fatal("the load failed");
}

}  // namespace inferwire::bench
