// SPDX-License-Identifier: Apache-2.0
// Which records belong to one exchange: the client's and the server's record of one request, and below a gateway's
// server record the requests that it made upstream.
//
//   client -> server   same TCP connection: mirrored addresses (behind address translation: the client's own address),
//                      same ordinal, overlapping in time
//   server -> client   in one process (gateway): same trace id; else same response id; else the only way in which the
//                      upstream request fits into a downstream one in time
#pragma once

#include <cstddef>
#include <string_view>
#include <vector>

#include "agent/cli/show_records.h"

namespace inferwire::cli {

struct Hop {
  const ShownRequest* request = nullptr;
  std::size_t depth = 0;       // 0 = outermost
  std::string_view joined_by;  // to the hop it hangs on: "connection", "trace", "response id", "time"; "" at depth 0
};

struct Exchange {
  std::vector<Hop> hops;  // outermost first, each followed by what hangs on it
};

// By start time. The result points into `requests`.
std::vector<Exchange> group_exchanges(const std::vector<ShownRequest>& requests);

}  // namespace inferwire::cli
