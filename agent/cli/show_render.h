// SPDX-License-Identifier: Apache-2.0
// Requests as a table, and each exchange as a waterfall of phases on one time axis.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "agent/cli/show_groups.h"
#include "agent/cli/show_text.h"

namespace inferwire::cli {

// Namespace and workload; "?" if nothing is known.
std::string owner_text(const ShownOwner& owner, const Style& style);

// One row for each hop, exchanges numbered from 1.
std::string render_table(const std::vector<Exchange>& exchanges, const Style& style);

// The hops of one exchange below each other, and which phase took most of the time.
std::string render_waterfall(const Exchange& exchange, std::size_t number, const Style& style);

// What the phases that appear mean.
std::string render_legend(const std::vector<Exchange>& exchanges, const Style& style);

// The phase that explains most of an exchange: of a hop that waited for the next one, only what is its own counts.
struct Verdict {
  const ShownRequest* request = nullptr;  // null: nothing is known
  std::string phase;
  std::uint64_t ns = 0;
};
Verdict longest_phase(const Exchange& exchange);

// A sentence without full stop; "" for an unknown phase.
std::string_view phase_meaning(std::string_view phase);

}  // namespace inferwire::cli
