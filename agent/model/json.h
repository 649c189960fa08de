// SPDX-License-Identifier: Apache-2.0
// Records as JSON lines: docs/records.md, docs/records.schema.json.
#pragma once

#include <cstdint>
#include <string>

#include "agent/model/identity.h"
#include "agent/model/json_writer.h"
#include "agent/model/request.h"

namespace inferwire::model {

// Member `v` of every record.
inline constexpr int kSchemaVersion = 1;

// Socket cookie as records write it.
std::string connection_id(std::uint64_t cookie);

// Members from `node` to `comm`: whose socket it is.
void write_owner(JsonWriter& json, const Identity& who);

// One JSON object without line end. Always valid UTF-8 without control characters, whatever was on the wire.
std::string to_json_line(const Request& request, const Identity& identity);

}  // namespace inferwire::model
