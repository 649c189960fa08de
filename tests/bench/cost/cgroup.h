// SPDX-License-Identifier: Apache-2.0
// Cgroups of our own, and processes in them.
#pragma once

#include <sys/types.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/support/base/fd.h"

namespace inferwire::bench {

// Where cgroup v2 is mounted, its root being the host's. Ends the program if it is nowhere.
std::string cgroup_root();

// A cgroup below the root, removed at the end.
class Cgroup {
 public:
  explicit Cgroup(const std::string& name);
  Cgroup(const Cgroup&) = delete;
  Cgroup& operator=(const Cgroup&) = delete;
  ~Cgroup();
  int fd() const { return fd_.get(); }
  // Moves this process into it.
  void enter() const;

 private:
  std::string path_;
  rig::Fd fd_;
};

// A process in a cgroup, whose standard output is read line by line. Ended with SIGTERM.
class Child {
 public:
  Child(const std::vector<std::string>& command, const Cgroup& cgroup);
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;
  ~Child();
  // The next line, which must be a JSON value.
  nlohmann::ordered_json read_line();
  // Waits for its end, which must be a good one.
  void wait();

 private:
  pid_t pid_ = -1;
  rig::Fd output_;
};

}  // namespace inferwire::bench
