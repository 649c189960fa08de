// SPDX-License-Identifier: Apache-2.0
#include "tests/bench/load/report.h"

#include <sys/mman.h>

#include <algorithm>
#include <bit>
#include <cmath>

#include "tests/support/base/fatal.h"

namespace inferwire::bench {

void LagHistogram::add(std::int64_t lag_ns) {
  const std::uint64_t us = lag_ns <= 0 ? 0 : static_cast<std::uint64_t>(lag_ns) / 1000;
  unsigned step = 0;
  if (us < 8) {
    step = static_cast<unsigned>(us);
  } else {
    const unsigned power = static_cast<unsigned>(std::bit_width(us)) - 1;  // >= 3
    step = 8 * (power - 2) + static_cast<unsigned>((us >> (power - 3)) & 7);
  }
  steps_[std::min(step, kSteps - 1)].fetch_add(1, std::memory_order_relaxed);
}

std::uint64_t LagHistogram::count() const {
  std::uint64_t total = 0;
  for (const auto& step : steps_) total += step.load(std::memory_order_relaxed);
  return total;
}

double LagHistogram::quantile_us(double q) const {
  const auto wanted = static_cast<std::uint64_t>(std::ceil(q * static_cast<double>(count())));
  std::uint64_t sum = 0;
  for (unsigned step = 0; step < kSteps; step++) {
    sum += steps_[step].load(std::memory_order_relaxed);
    if (sum >= wanted && sum) {
      if (step < 8) return step + 1;
      return std::ldexp(8 + step % 8 + 1, static_cast<int>(step / 8) - 1);
    }
  }
  return 0;
}

Report* make_shared_report() {
  void* at = mmap(nullptr, sizeof(Report), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (at == MAP_FAILED) rig::fatal_errno("mapping shared counters");
  return static_cast<Report*>(at);  // zero bytes are zero counters
}

}  // namespace inferwire::bench
