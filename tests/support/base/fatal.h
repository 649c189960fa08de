// SPDX-License-Identifier: Apache-2.0
// Rigs end at the first thing that goes wrong: a rig that limps gives wrong ground truth.
#pragma once

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

namespace inferwire::rig {

[[noreturn]] inline void fatal(const std::string& what) {
  std::fprintf(stderr, "%s: %s\n", program_invocation_short_name, what.c_str());
  std::exit(1);
}

// `what` says what was tried, on what; the reason is errno's.
[[noreturn]] inline void fatal_errno(const std::string& what) { fatal(what + ": " + std::strerror(errno)); }

}  // namespace inferwire::rig
