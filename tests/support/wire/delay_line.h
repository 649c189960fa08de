// SPDX-License-Identifier: Apache-2.0
// The packets on their way: ordered by the time they are due, then by arrival. Pure: time is given.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <optional>
#include <vector>

#include "tests/support/wire/impairment.h"

namespace inferwire::wire {

using Time = std::chrono::nanoseconds;  // since any fixed start, CLOCK_MONOTONIC in the program
using Packet = std::vector<std::uint8_t>;

class DelayLine {
 public:
  // Takes one packet that was not dropped. A packet whose fate is `held` waits until the next
  // packet of its direction has been put in front of it, or until `reorder_hold` has passed.
  void push(Time now, Direction direction, const Fate& fate, Time reorder_hold, Packet packet);

  struct Delivery {
    Direction direction;
    Packet packet;
  };
  // The next packet that is due at `now`, or nothing.
  std::optional<Delivery> pop_due(Time now);

  // When pop_due has something next; nothing when the line is empty.
  std::optional<Time> next_due() const;
  std::size_t size() const { return heap_.size() + held_count(); }
  std::uint64_t overtaken() const { return overtaken_; }

 private:
  struct Entry {
    Time due;
    std::uint64_t order;
    Direction direction;
    Packet packet;
  };
  struct Held {
    Time deadline;
    Time delay;
    Packet packet;
  };

  void enqueue(Time due, Direction direction, Packet packet);
  void release(Direction direction, Time due);
  std::size_t held_count() const;
  static bool later(const Entry& left, const Entry& right);

  std::vector<Entry> heap_;  // earliest due on top
  std::array<std::optional<Held>, 2> held_;
  std::uint64_t next_order_ = 0;
  std::uint64_t overtaken_ = 0;
};

}  // namespace inferwire::wire
