// SPDX-License-Identifier: Apache-2.0
#include "tests/support/servers/raw/script.h"

namespace inferwire::rig {

Script parse_script(const nlohmann::json& json) {
  Script script;
  for (const auto& step : json.at("steps")) {
    const auto wait_ns = static_cast<std::int64_t>(step.at(0).get<double>() * 1e6);
    script.steps.push_back({wait_ns, step.at(1).get<std::string>()});
  }
  for (const auto& [kind, text] : json.at("texts").items()) script.texts[kind.at(0)] = text;
  script.chunk_kinds = json.at("chunk_kinds");
  script.content_type = json.at("content_type");
  script.status = json.value("status", 200);
  script.headers = json.value("headers", script.headers);
  script.head_early = json.value("head", "early") == "early";
  script.body = json.value("body", "chunked");
  if (const auto split = json.find("split"); split != json.end()) {
    if (split->is_number()) script.piece_bytes = split->get<std::size_t>();
    script.single = *split == "single";
  }
  script.end = json.value("end", "clean");
  script.more = json.value("more", false);
  script.interim = json.value("interim", 0);
  script.early_answer = json.value("early_answer", false);
  return script;
}

std::string render(const Script& script, const std::string& kinds, std::uint64_t& number) {
  std::string all;
  for (const char kind : kinds) {
    std::string text = script.texts.at(kind);
    if (script.chunk_kinds.find(kind) != std::string::npos) {
      const std::string digits = std::to_string(number++);
      for (auto at = text.find("%i"); at != std::string::npos; at = text.find("%i")) {
        text.replace(at, 2, digits);
      }
    }
    all += text;
  }
  return all;
}

}  // namespace inferwire::rig
