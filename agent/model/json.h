// SPDX-License-Identifier: Apache-2.0
// Requests as JSON lines: docs/records.md, docs/records.schema.json.
#pragma once

#include <string>
#include <string_view>

#include "agent/model/identity.h"
#include "agent/model/request.h"

namespace inferwire::model {

// One JSON object without line end. Always valid UTF-8 without control characters, whatever was on the wire.
std::string to_json_line(const Request& request, const Identity& identity);

}  // namespace inferwire::model
