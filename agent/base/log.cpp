// SPDX-License-Identifier: Apache-2.0
#include "agent/base/log.h"

#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>

#include <memory>
#include <mutex>
#include <set>
#include <string>

#include "agent/base/label.h"

namespace inferwire::base {
namespace {

constexpr std::size_t kOnceKeysMax = 1024;
constexpr std::size_t kLineBytesMax = 4096;

// Never destroyed: threads may log while the process exits.
spdlog::logger& logger() {
  static spdlog::logger& instance = *[] {
    auto made = new spdlog::logger("inferwire", std::make_shared<spdlog::sinks::stderr_sink_mt>());
    made->set_pattern("%Y-%m-%dT%H:%M:%S.%eZ %l %v", spdlog::pattern_time_type::utc);
    made->flush_on(spdlog::level::trace);
    return made;
  }();
  return instance;
}

spdlog::level::level_enum to_spdlog(LogLevel level) {
  switch (level) {
    case LogLevel::kDebug:
      return spdlog::level::debug;
    case LogLevel::kInfo:
      return spdlog::level::info;
    case LogLevel::kWarn:
      return spdlog::level::warn;
    case LogLevel::kError:
      return spdlog::level::err;
  }
  return spdlog::level::err;
}

struct OnceKeys {
  std::mutex mutex;
  std::set<std::string, std::less<>> keys;
};

OnceKeys& once_keys() {
  static OnceKeys& instance = *new OnceKeys;
  return instance;
}

}  // namespace

void set_log_level(LogLevel level) { logger().set_level(to_spdlog(level)); }

std::optional<LogLevel> parse_log_level(std::string_view name) {
  if (name == "debug") return LogLevel::kDebug;
  if (name == "info") return LogLevel::kInfo;
  if (name == "warn") return LogLevel::kWarn;
  if (name == "error") return LogLevel::kError;
  return std::nullopt;
}

void log(LogLevel level, std::string_view message) {
  const auto spdlog_level = to_spdlog(level);
  if (!logger().should_log(spdlog_level)) return;
  logger().log(spdlog_level, sanitize_text(message, kLineBytesMax));
}

bool log_once(LogLevel level, std::string_view key, std::string_view message) {
  {
    OnceKeys& once = once_keys();
    const std::lock_guard lock(once.mutex);
    if (once.keys.size() >= kOnceKeysMax || !once.keys.emplace(key).second) return false;
  }
  log(level, message);
  return true;
}

void log_again(std::string_view key) {
  OnceKeys& once = once_keys();
  const std::lock_guard lock(once.mutex);
  if (const auto found = once.keys.find(key); found != once.keys.end()) once.keys.erase(found);
}

}  // namespace inferwire::base
