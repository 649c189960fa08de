// SPDX-License-Identifier: Apache-2.0
// A hash map of the kernel with rows of sums (sums.h): what was added to each row since it was read last. Rows are
// never taken away under the kernel's hands, except idle ones of a map that fills up.
#pragma once

#include <bpf/bpf.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "agent/base/result.h"
#include "agent/capture/sums.h"

namespace inferwire::capture {

template <class Key, class Value>
class SumsMap {
 public:
  // `name`: for messages. `capacity`: of the map.
  SumsMap(int map_fd, const char* name, std::uint32_t capacity)
      : map_fd_(map_fd), name_(name), capacity_(capacity), batch_(std::min(capacity, kBatch)) {}

  // Calls sink(key, added) for each row to which something was added.
  template <class Sink>
  base::Result<void> read(const Sink& sink) {
    ++reads_;
    std::uint64_t position = 0;
    bool begun = false, more = true;
    std::size_t rows = 0;
    while (more) {
      keys_.resize(batch_);
      values_.resize(batch_);
      auto count = static_cast<std::uint32_t>(batch_);
      const int error = bpf_map_lookup_batch(map_fd_, begun ? &position : nullptr, &position, keys_.data(),
                                             values_.data(), &count, nullptr);
      if (error != 0 && errno == ENOSPC && batch_ < capacity_) {  // a bucket holds more rows
        batch_ = std::min(batch_ * 2, capacity_);
        continue;
      }
      if (error != 0 && errno != ENOENT) return base::fail("read the map", name_, base::errno_text(errno), "");
      more = error == 0;
      begun = true;
      rows += count;
      for (std::uint32_t i = 0; i < count; ++i) take(keys_[i], values_[i], sink);
    }
    if (rows >= capacity_ / 2) delete_idle(sink);
    return {};
  }

 private:
  static constexpr std::uint32_t kBatch = 256;
  // A row that has not changed for this many reads is deleted when the map fills up.
  static constexpr std::uint32_t kIdleReads = 60;

  struct KeyHash {
    std::size_t operator()(const Key& key) const {
      return std::hash<std::string_view>()({reinterpret_cast<const char*>(&key), sizeof key});
    }
  };
  struct KeyEqual {
    bool operator()(const Key& a, const Key& b) const { return std::memcmp(&a, &b, sizeof a) == 0; }
  };
  struct Seen {
    Value value{};
    std::uint32_t idle_reads = 0;
    std::uint32_t read = 0;  // number of the read that saw it last
  };

  template <class Sink>
  void take(const Key& key, const Value& value, const Sink& sink) {
    Seen& seen = seen_[key];
    if (seen.read == reads_) return;  // a row that moved while the map was walked
    const Value added = sums_added(value, seen.value);
    const bool changed = any_sum(added);
    seen.value = value;
    seen.read = reads_;
    seen.idle_reads = changed ? 0 : seen.idle_reads + 1;
    if (changed) sink(key, added);
  }

  template <class Sink>
  void delete_idle(const Sink& sink) {
    for (auto at = seen_.begin(); at != seen_.end();) {
      if (at->second.idle_reads < kIdleReads) {
        ++at;
        continue;
      }
      Value last{};
      if (bpf_map_lookup_and_delete_elem(map_fd_, &at->first, &last) == 0) {
        const Value added = sums_added(last, at->second.value);
        if (any_sum(added)) sink(at->first, added);
      }
      at = seen_.erase(at);
    }
  }

  int map_fd_;
  const char* name_;
  std::uint32_t capacity_;
  std::uint32_t batch_;
  std::uint32_t reads_ = 0;
  std::unordered_map<Key, Seen, KeyHash, KeyEqual> seen_;
  std::vector<Key> keys_;  // of one batch
  std::vector<Value> values_;
};

}  // namespace inferwire::capture
