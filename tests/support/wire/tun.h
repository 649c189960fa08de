// SPDX-License-Identifier: Apache-2.0
// A TUN device inside a named network namespace, opened from outside it.
#pragma once

#include <string>
#include <vector>

#include "tests/support/base/fd.h"

namespace inferwire::wire {

struct TunEnd {
  std::string network_namespace;       // a name under /run/netns
  std::vector<std::string> addresses;  // ours, IPv4 or IPv6, no prefix length
  std::vector<std::string> peers;      // the other end's, of the same families in the same order
};

// Makes device `name` in the end's namespace, gives it its point-to-point addresses and sets it up;
// the loopback device too. The device goes away with the descriptor, which does not block. Ends the
// program when something fails (needs CAP_NET_ADMIN and CAP_SYS_ADMIN, and iproute2).
rig::Fd open_tun(const TunEnd& end, const std::string& name, int mtu);

}  // namespace inferwire::wire
