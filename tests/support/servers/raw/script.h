// SPDX-License-Identifier: Apache-2.0
// The script of tests/support/README.md as data.
#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace inferwire::rig {

struct Step {
  std::int64_t wait_ns = 0;
  std::string kinds;
};

struct Script {
  std::vector<Step> steps;
  std::map<char, std::string> texts;
  std::string chunk_kinds;
  std::string content_type;
  int status = 200;
  std::map<std::string, std::string> headers;
  bool head_early = true;
  std::string body = "chunked";  // chunked, length, close
  std::size_t piece_bytes = 0;   // 0: whole steps
  bool single = false;           // everything in one write
  std::string end = "clean";     // clean, fin, rst
  bool more = false;
  int interim = 0;
  bool early_answer = false;
};

// Throws nlohmann::json::exception when `text` is no script.
Script parse_script(const nlohmann::json& json);

// The texts of `kinds` in a row; `number` counts chunks over the whole response.
std::string render(const Script& script, const std::string& kinds, std::uint64_t& number);

}  // namespace inferwire::rig
