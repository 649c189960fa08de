// SPDX-License-Identifier: Apache-2.0
// One process of the load's client.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tests/bench/load/report.h"

namespace inferwire::bench {

enum class Traffic { kStream, kEcho, kSmall };

struct ClientPlan {
  Traffic traffic = Traffic::kStream;
  std::uint16_t port = 0;
  unsigned connections = 1;
  unsigned events = 10;     // per stream
  double per_second = 10;   // per stream; 0: as fast as the connection takes them
  double seconds = 1;       // echo, small: how long; stream: the longest wait
  unsigned stagger_ms = 0;  // first events are spread over this time
  std::uint64_t seed = 1;
};

// Runs the plan. A stream is one request per connection; echo (64 bytes) and small (GET) go on for `seconds`, the next
// as soon as the answer is there.
void ask(const ClientPlan& plan, Report& report);

}  // namespace inferwire::bench
