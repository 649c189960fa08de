// SPDX-License-Identifier: Apache-2.0
// The agent's own process_* series, from /proc/self.
#pragma once

#include "agent/metrics/registry.h"

namespace inferwire::daemon {

void report_process(metrics::Registry& registry);

}  // namespace inferwire::daemon
