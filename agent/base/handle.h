// SPDX-License-Identifier: Apache-2.0
// Owners of things that must be closed exactly once.
#pragma once

#include <unistd.h>

#include <utility>

namespace inferwire::base {

// Closer has `using value_type`, `static constexpr value_type kEmpty` and `static void close(value_type)`.
template <class Closer>
class Handle {
 public:
  using value_type = typename Closer::value_type;

  Handle() = default;
  explicit Handle(value_type value) : value_(value) {}
  Handle(Handle&& other) noexcept : value_(other.release()) {}
  Handle& operator=(Handle&& other) noexcept {
    if (this != &other) reset(other.release());
    return *this;
  }
  Handle(const Handle&) = delete;
  Handle& operator=(const Handle&) = delete;
  ~Handle() { reset(); }

  value_type get() const { return value_; }
  explicit operator bool() const { return value_ != Closer::kEmpty; }

  // Gives ownership up; the caller closes.
  [[nodiscard]] value_type release() { return std::exchange(value_, Closer::kEmpty); }

  // Closes what is held, then holds `value`.
  void reset(value_type value = Closer::kEmpty) {
    value_type old = std::exchange(value_, value);
    if (old != Closer::kEmpty && old != value) Closer::close(old);
  }

 private:
  value_type value_ = Closer::kEmpty;
};

struct FdCloser {
  using value_type = int;
  static constexpr int kEmpty = -1;
  static void close(int fd) { ::close(fd); }
};

// A file descriptor; -1 when empty.
using UniqueFd = Handle<FdCloser>;

}  // namespace inferwire::base
