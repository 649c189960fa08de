// SPDX-License-Identifier: Apache-2.0
// Resets and dropped connection attempts: a table each, and what they mean in words.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "agent/cli/show_records.h"
#include "agent/cli/show_text.h"

namespace inferwire::cli {

// Empty without any.
std::string render_resets(const std::vector<ShownReset>& resets, const Style& style);
std::string render_listen_drops(const std::vector<ShownListenDrop>& drops, const Style& style);

// What comes after "sent a reset:"; "" for an unknown cause.
std::string_view reset_meaning(std::string_view cause);

}  // namespace inferwire::cli
