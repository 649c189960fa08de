// SPDX-License-Identifier: Apache-2.0
// Rows of the kernel's maps that only grow: sums of 64 bits, and a name (`comm`) at the end. Pure.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

namespace inferwire::capture {

template <class Value>
inline constexpr std::size_t kSumsIn = offsetof(Value, comm) / sizeof(std::uint64_t);

// What `now` has more than `before`, sum by sum; the name is that of `now`. A row that was made anew since has less:
// then all of it is new.
template <class Value>
Value sums_added(const Value& now, const Value& before) {
  static_assert(std::is_trivially_copyable_v<Value> && offsetof(Value, comm) % sizeof(std::uint64_t) == 0 &&
                offsetof(Value, comm) + sizeof(Value::comm) == sizeof(Value));
  std::array<std::uint64_t, kSumsIn<Value>> sums, earlier;
  std::memcpy(sums.data(), &now, sizeof sums);
  std::memcpy(earlier.data(), &before, sizeof earlier);
  for (std::size_t i = 0; i < sums.size(); ++i) {
    if (sums[i] < earlier[i]) return now;
  }
  for (std::size_t i = 0; i < sums.size(); ++i) sums[i] -= earlier[i];
  Value added = now;
  std::memcpy(&added, sums.data(), sizeof sums);
  return added;
}

template <class Value>
bool any_sum(const Value& value) {
  std::array<std::uint64_t, kSumsIn<Value>> sums;
  std::memcpy(sums.data(), &value, sizeof sums);
  return std::any_of(sums.begin(), sums.end(), [](std::uint64_t sum) { return sum != 0; });
}

}  // namespace inferwire::capture
