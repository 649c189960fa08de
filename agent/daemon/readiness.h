// SPDX-License-Identifier: Apache-2.0
// What /healthz and /readyz answer: written by the reader, read by the server's thread.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <mutex>
#include <string>

namespace inferwire::daemon {

class Readiness {
 public:
  using Time = std::chrono::steady_clock::time_point;

  void set_ready(bool ready, std::string reason) {
    const std::lock_guard guard(mutex_);
    ready_ = ready;
    reason_ = std::move(reason);
  }
  // Empty when ready.
  std::string reason() const {
    const std::lock_guard guard(mutex_);
    return ready_ ? "" : reason_;
  }

  // The reader's loop turns.
  void beat(Time now) { beat_ns_.store(now.time_since_epoch().count(), std::memory_order_relaxed); }
  bool alive(Time now) const {
    return now.time_since_epoch().count() - beat_ns_.load(std::memory_order_relaxed) < kPatience.count();
  }

 private:
  static constexpr std::chrono::nanoseconds kPatience = std::chrono::seconds(15);

  mutable std::mutex mutex_;
  bool ready_ = false;
  std::string reason_ = "starting";
  std::atomic<std::int64_t> beat_ns_{0};
};

}  // namespace inferwire::daemon
