// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "agent/base/result.h"

namespace inferwire::base {

// Text of a file; files of /proc and /sys have no size to ask for.
Result<std::string> read_text(const std::string& path);

}  // namespace inferwire::base
