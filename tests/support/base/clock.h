// SPDX-License-Identifier: Apache-2.0
// The one clock of every rig: CLOCK_MONOTONIC, in nanoseconds. It is the clock in which the agent
// takes its marks, so the logs of the rigs and the agent's trace compare without a conversion.
#pragma once

#include <cerrno>
#include <cstdint>
#include <ctime>

namespace inferwire::rig {

inline std::int64_t monotonic_ns() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<std::int64_t>(now.tv_sec) * 1'000'000'000 + now.tv_nsec;
}

// Sleeps until `deadline_ns` on CLOCK_MONOTONIC. A deadline in the past returns at once.
inline void sleep_until_ns(std::int64_t deadline_ns) {
  timespec deadline{deadline_ns / 1'000'000'000, deadline_ns % 1'000'000'000};
  while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &deadline, nullptr) == EINTR) {
  }
}

}  // namespace inferwire::rig
