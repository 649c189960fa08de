// SPDX-License-Identifier: Apache-2.0
// `inferwire doctor`: what works with this kernel and these rights, hook by hook, and how to mend what does not.
#pragma once

#include <string>
#include <vector>

namespace inferwire::cli {

struct DoctorOptions {
  std::string host_root = "/";
  std::string cgroup_root;
  std::vector<std::string> deny;  // words of hooks.deny
  bool json = false;
};

// Prints a report. Returns 0 if all that the agent needs works, 1 if not, 2 if `deny` has a word that means no hook.
int run_doctor(const DoctorOptions& options);

}  // namespace inferwire::cli
