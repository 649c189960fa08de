// SPDX-License-Identifier: Apache-2.0
// Lines on standard error. Thread-safe. A message stays one line of at most 4096 bytes, without control characters:
// names from the wire do not reach a terminal as they are.
#pragma once

#include <optional>
#include <string_view>

namespace inferwire::base {

enum class LogLevel { kDebug, kInfo, kWarn, kError };

// Lines below `level` are dropped. Default: kInfo.
void set_log_level(LogLevel level);

// "debug", "info", "warn", "error".
std::optional<LogLevel> parse_log_level(std::string_view name);

void log(LogLevel level, std::string_view message);

inline void log_debug(std::string_view message) { log(LogLevel::kDebug, message); }
inline void log_info(std::string_view message) { log(LogLevel::kInfo, message); }
inline void log_warn(std::string_view message) { log(LogLevel::kWarn, message); }
inline void log_error(std::string_view message) { log(LogLevel::kError, message); }

// For degraded states, which are said once and exported as a metric: the first call with `key` logs and returns
// true, later ones do nothing. At most 1024 keys are remembered; further ones never log.
bool log_once(LogLevel level, std::string_view key, std::string_view message);

// Forgets `key`, so that the next log_once(key) speaks again (the state had mended).
void log_again(std::string_view key);

}  // namespace inferwire::base
