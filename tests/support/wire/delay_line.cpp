// SPDX-License-Identifier: Apache-2.0
#include "tests/support/wire/delay_line.h"

#include <algorithm>
#include <utility>

namespace inferwire::wire {

bool DelayLine::later(const Entry& left, const Entry& right) {
  return left.due != right.due ? left.due > right.due : left.order > right.order;
}

void DelayLine::enqueue(Time due, Direction direction, Packet packet) {
  heap_.push_back(Entry{due, next_order_++, direction, std::move(packet)});
  std::push_heap(heap_.begin(), heap_.end(), later);
}

void DelayLine::release(Direction direction, Time due) {
  auto& held = held_[static_cast<std::size_t>(direction)];
  enqueue(due, direction, std::move(held->packet));
  held.reset();
}

void DelayLine::push(Time now, Direction direction, const Fate& fate, Time reorder_hold, Packet packet) {
  auto& held = held_[static_cast<std::size_t>(direction)];
  if (fate.held && !held) {
    held = Held{now + reorder_hold, fate.delay, std::move(packet)};
    return;
  }
  const Time due = now + fate.delay;
  if (fate.duplicated) enqueue(due, direction, packet);
  enqueue(due, direction, std::move(packet));
  if (held) {
    ++overtaken_;
    release(direction, std::max(due, now + held->delay));
  }
}

std::optional<DelayLine::Delivery> DelayLine::pop_due(Time now) {
  for (const Direction direction : {Direction::kAToB, Direction::kBToA}) {
    const auto& held = held_[static_cast<std::size_t>(direction)];
    if (held && held->deadline <= now) release(direction, held->deadline + held->delay);
  }
  if (heap_.empty() || heap_.front().due > now) return std::nullopt;
  std::pop_heap(heap_.begin(), heap_.end(), later);
  Entry entry = std::move(heap_.back());
  heap_.pop_back();
  return Delivery{entry.direction, std::move(entry.packet)};
}

std::optional<Time> DelayLine::next_due() const {
  std::optional<Time> next;
  if (!heap_.empty()) next = heap_.front().due;
  for (const auto& held : held_) {
    if (held && (!next || held->deadline < *next)) next = held->deadline;
  }
  return next;
}

std::size_t DelayLine::held_count() const {
  return static_cast<std::size_t>(held_[0].has_value()) + static_cast<std::size_t>(held_[1].has_value());
}

}  // namespace inferwire::wire
