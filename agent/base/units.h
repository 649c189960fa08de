// SPDX-License-Identifier: Apache-2.0
// Clocks and sizes as types. Only the daemon reads a clock; everything else is given the time.
#pragma once

#include <chrono>
#include <cstdint>

namespace inferwire::base {

using Nanoseconds = std::chrono::duration<std::int64_t, std::nano>;

// The kernel's CLOCK_MONOTONIC, as bpf_ktime_get_ns() gives it. It has no now() on purpose.
struct MonotonicClock {
  using rep = std::int64_t;
  using period = std::nano;
  using duration = Nanoseconds;
  using time_point = std::chrono::time_point<MonotonicClock>;
  static constexpr bool is_steady = true;
};
using MonotonicTime = MonotonicClock::time_point;

constexpr MonotonicTime monotonic_from_ns(std::uint64_t ns) {
  return MonotonicTime(Nanoseconds(static_cast<std::int64_t>(ns)));
}

// Base unit of exported metrics.
constexpr double to_seconds(Nanoseconds duration) { return std::chrono::duration<double>(duration).count(); }

}  // namespace inferwire::base
