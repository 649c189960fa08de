// SPDX-License-Identifier: Apache-2.0
// The agent in the foreground: checks, start in order, threads, signals, stop in reverse order.
#pragma once

#include "agent/daemon/config.h"

namespace inferwire::daemon {

// Returns the process's exit status: 0 after SIGTERM or SIGINT, 1 when it could not start or had to give up (said on
// standard error). SIGHUP opens the record files anew.
int run_agent(const Config& config);

}  // namespace inferwire::daemon
