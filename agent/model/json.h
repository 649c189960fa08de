// SPDX-License-Identifier: Apache-2.0
// Requests as JSON lines: docs/records.md, docs/records.schema.json.
#pragma once

#include <cstdint>
#include <string>

#include "agent/model/identity.h"
#include "agent/model/request.h"

namespace inferwire::model {

// Socket cookie as records write it.
std::string connection_id(std::uint64_t cookie);

// One JSON object without line end. Always valid UTF-8 without control characters, whatever was on the wire.
std::string to_json_line(const Request& request, const Identity& identity);

}  // namespace inferwire::model
