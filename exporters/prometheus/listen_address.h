// SPDX-License-Identifier: Apache-2.0
// A socket that listens on "127.0.0.1:9810", "0.0.0.0:9810" or "[::1]:9810".
#pragma once

#include <string>
#include <string_view>

#include "agent/base/handle.h"
#include "agent/base/result.h"

namespace inferwire::prometheus {

struct Listener {
  base::UniqueFd socket;  // non-blocking, close-on-exec
  bool ipv6 = false;
  std::string address;  // as bound: port 0 in the request is the port that the kernel chose here
};

// Names are not resolved: what is listened on must not depend on a name server. [::] takes IPv4 clients too.
// Errors say which address, why, and what to do.
base::Result<Listener> listen_on(std::string_view address);

}  // namespace inferwire::prometheus
