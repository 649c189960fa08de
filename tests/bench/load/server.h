// SPDX-License-Identifier: Apache-2.0
// One process of the load's server: any number of connections, one epoll loop, paced by due times.
#pragma once

#include "tests/bench/load/report.h"

namespace inferwire::bench {

// Serves the listening socket until SIGTERM. By the first bytes of a connection:
//   POST ... x-pace: EVENTS RATE DELAY   a paced stream
//   GET                                  a small answer
//   anything else                        echo
void serve(int listener, Report& report);

}  // namespace inferwire::bench
