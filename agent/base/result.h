// SPDX-License-Identifier: Apache-2.0
// Result<T>: what can fail and be handled. Programming errors abort instead (see IW_CHECK).
#pragma once

#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>
#include <tl/expected.hpp>
#include <utility>

namespace inferwire::base {

// Says what was tried, on what, why it failed, and what to do. `on` and `fix` may be empty.
struct Error {
  std::string what;  // "bind", "read the configuration"
  std::string on;    // "127.0.0.1:9810", "/etc/inferwire.yaml"
  std::string why;   // "address already in use"
  std::string fix;   // "stop the process that has it or pass --listen"

  // "cannot bind 127.0.0.1:9810: address already in use; stop the process that has it or pass --listen"
  std::string to_string() const;
};

template <class T>
using Result = tl::expected<T, Error>;

// return base::fail("open", path, base::errno_text(errno), "check that it exists");
tl::unexpected<Error> fail(std::string_view what, std::string_view on, std::string_view why, std::string_view fix);

// Message of an errno value, thread-safe: "Address already in use".
std::string errno_text(int error_number);

}  // namespace inferwire::base

// Invariants of our own code. Never for input.
#define IW_CHECK(condition)                                                                  \
  do {                                                                                       \
    if (!(condition)) [[unlikely]] {                                                         \
      std::fprintf(stderr, "%s:%d: broken invariant: %s\n", __FILE__, __LINE__, #condition); \
      std::abort();                                                                          \
    }                                                                                        \
  } while (false)
