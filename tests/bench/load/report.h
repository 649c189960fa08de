// SPDX-License-Identifier: Apache-2.0
// What every process of the load counts, in memory that all of them share.
#pragma once

#include <atomic>
#include <cstdint>

namespace inferwire::bench {

// Lags are counted in steps of 1/8 of a power of two of microseconds.
class LagHistogram {
 public:
  void add(std::int64_t lag_ns);
  // Upper bound of the step in which the quantile lies, microseconds.
  double quantile_us(double q) const;
  std::uint64_t count() const;

 private:
  static constexpr unsigned kSteps = 8 * 40;
  std::atomic<std::uint64_t> steps_[kSteps];
};

struct Report {
  std::atomic<std::uint64_t> connections;
  std::atomic<std::uint64_t> requests;
  std::atomic<std::uint64_t> completed;  // answers that ended as they should
  std::atomic<std::uint64_t> failed;
  std::atomic<std::uint64_t> events;   // content events written (server) or read (client)
  std::atomic<std::uint64_t> blocked;  // writes that the socket did not take whole
  std::atomic<std::uint64_t> bytes;
  LagHistogram lag;  // server: written minus due
};

// Zeroed memory shared with the processes forked after the call.
Report* make_shared_report();

}  // namespace inferwire::bench
