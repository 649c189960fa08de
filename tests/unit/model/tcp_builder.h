// SPDX-License-Identifier: Apache-2.0
// Kernel records of resets and listeners for tests. Times as in record_builder.h: milliseconds after at_ms(0).
#pragma once

#include <cstdint>
#include <cstring>
#include <string_view>

#include "inferwire/event_abi.h"
#include "tests/unit/model/record_builder.h"

namespace inferwire::test {

inline void set_loopback(std::uint8_t (&address)[16]) {
  constexpr std::uint8_t kLoopback[16] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 127, 0, 0, 1};
  std::memcpy(address, kLoopback, sizeof address);
}

// A client's request that met a server which had closed for idleness.
inline iw_reset stale_reuse(double now_ms = 5000) {
  iw_reset reset{};
  reset.header = {IW_REC_RESET, sizeof reset, at_ms(now_ms)};
  reset.cookie = 0x77;
  reset.established_ns = at_ms(now_ms - 4000);
  reset.idle_ns = 1'000 * kMs;
  set_loopback(reset.local_addr);
  set_loopback(reset.remote_addr);
  reset.local_port = 51234;
  reset.remote_port = 8000;
  reset.family = 2;
  reset.role = IW_ROLE_CLIENT;
  reset.direction = IW_DIRECTION_RECEIVED;
  reset.cause = IW_RESET_STALE_REUSE;
  reset.closed_first = IW_SIDE_SERVER;
  reset.request_open = 1;
  reset.pid = 4242;
  reset.ordinal = 3;
  return reset;
}

// What the walk finds: listen(1) on port 8000, somaxconn 4096, nothing in its queues.
inline iw_listener listener(std::uint64_t cookie = 0x99, double now_ms = 0) {
  iw_listener listener{};
  listener.header = {IW_REC_LISTENER, sizeof listener, at_ms(now_ms)};
  listener.cookie = cookie;
  set_loopback(listener.local_addr);
  listener.local_port = 8000;
  listener.family = 2;
  listener.pid = 4242;
  listener.accept_queue_limit = 1;
  listener.somaxconn = 4096;
  listener.max_syn_backlog = 256;
  return listener;
}

inline iw_listener dropping(iw_listener listener, std::uint32_t reason, std::uint64_t drops, double now_ms) {
  listener.header.kind = IW_REC_LISTEN_DROP;
  listener.header.time_ns = at_ms(now_ms);
  listener.reason = reason;
  listener.drops[reason] = drops;
  return listener;
}

}  // namespace inferwire::test
