// SPDX-License-Identifier: Apache-2.0
// As much of JSON Schema (2020-12) as docs/records.schema.json uses. A keyword that is not known here fails: nothing is
// skipped in silence.
#pragma once

#include <regex.h>

#include <algorithm>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>

namespace inferwire::test {

class JsonSchema {
 public:
  explicit JsonSchema(nlohmann::json schema) : root_(std::move(schema)) {}

  // "" if `value` is valid, else where and why not.
  std::string why_invalid(const nlohmann::json& value) const { return check(root_, value, "$"); }

 private:
  using Json = nlohmann::json;

  std::string check(const Json& schema, const Json& value, const std::string& at) const {
    if (schema.is_boolean()) return schema.get<bool>() ? "" : at + ": not allowed here";
    for (const auto& [keyword, rule] : schema.items()) {
      if (keyword == "then" || keyword == "else") continue;  // with "if"
      const std::string why = check_keyword(keyword, rule, schema, value, at);
      if (!why.empty()) return why;
    }
    return "";
  }

  std::string check_keyword(const std::string& keyword, const Json& rule, const Json& schema, const Json& value,
                            const std::string& at) const {
    if (keyword == "$schema" || keyword == "title" || keyword == "description" || keyword == "$defs") return "";
    if (keyword == "$ref") return check(root_.at(Json::json_pointer(rule.get<std::string>().substr(1))), value, at);
    if (keyword == "type") return has_type(rule.get<std::string>(), value) ? "" : at + ": not of type " + rule.dump();
    if (keyword == "const") return value == rule ? "" : at + ": not " + rule.dump();
    if (keyword == "enum") {
      return std::find(rule.begin(), rule.end(), value) != rule.end() ? "" : at + ": none of " + rule.dump();
    }
    if (keyword == "if") {
      const char* branch = check(rule, value, at).empty() ? "then" : "else";
      return schema.contains(branch) ? check(schema.at(branch), value, at) : "";
    }
    if (keyword == "allOf") {
      for (const Json& all : rule) {
        if (const std::string why = check(all, value, at); !why.empty()) return why;
      }
      return "";
    }
    if (value.is_number()) {
      if (keyword == "minimum") return value >= rule ? "" : at + ": below " + rule.dump();
      if (keyword == "maximum") return value <= rule ? "" : at + ": above " + rule.dump();
    }
    if (value.is_string()) return check_text(keyword, rule, value.get<std::string>(), at);
    if (value.is_array()) return check_array(keyword, rule, value, at);
    if (value.is_object()) return check_object(keyword, rule, schema, value, at);
    return is_keyword_of_another_type(keyword) ? "" : at + ": keyword " + keyword + " is not implemented";
  }

  std::string check_text(const std::string& keyword, const Json& rule, const std::string& text,
                         const std::string& at) const {
    if (keyword == "minLength") return text.size() >= rule.get<std::size_t>() ? "" : at + ": too short";
    if (keyword == "maxLength") return text.size() <= rule.get<std::size_t>() ? "" : at + ": too long";
    if (keyword == "pattern") return matches(rule.get<std::string>(), text) ? "" : at + ": " + text + " does not match";
    return is_keyword_of_another_type(keyword) ? "" : at + ": keyword " + keyword + " is not implemented";
  }

  // POSIX expressions work on bytes: the one pattern about code points is checked by hand.
  static bool matches(const std::string& pattern, const std::string& text) {
    if (pattern.find("\\u0000") == pattern.npos) {
      regex_t compiled;
      if (regcomp(&compiled, pattern.c_str(), REG_EXTENDED | REG_NOSUB) != 0) return false;
      const bool found = regexec(&compiled, text.c_str(), 0, nullptr, 0) == 0;
      regfree(&compiled);
      return found;
    }
    for (std::size_t i = 0; i < text.size(); ++i) {
      const auto byte = static_cast<unsigned char>(text[i]);
      const auto next = i + 1 < text.size() ? static_cast<unsigned char>(text[i + 1]) : 0;
      if (byte < 0x20 || byte == 0x7F || (byte == 0xC2 && next < 0xA0)) return false;
    }
    return !text.empty();
  }

  std::string check_array(const std::string& keyword, const Json& rule, const Json& array,
                          const std::string& at) const {
    if (keyword == "minItems") return array.size() >= rule.get<std::size_t>() ? "" : at + ": too few";
    if (keyword == "maxItems") return array.size() <= rule.get<std::size_t>() ? "" : at + ": too many";
    if (keyword == "uniqueItems") {
      for (std::size_t i = 0; i < array.size(); ++i) {
        for (std::size_t j = 0; j < i; ++j) {
          if (array[i] == array[j]) return at + ": twice " + array[i].dump();
        }
      }
      return "";
    }
    if (keyword == "items") {
      for (std::size_t i = 0; i < array.size(); ++i) {
        const std::string why = check(rule, array[i], at + "[" + std::to_string(i) + "]");
        if (!why.empty()) return why;
      }
      return "";
    }
    return is_keyword_of_another_type(keyword) ? "" : at + ": keyword " + keyword + " is not implemented";
  }

  std::string check_object(const std::string& keyword, const Json& rule, const Json& schema, const Json& object,
                           const std::string& at) const {
    if (keyword == "minProperties") return object.size() >= rule.get<std::size_t>() ? "" : at + ": too few members";
    if (keyword == "required") {
      for (const Json& name : rule) {
        if (!object.contains(name.get<std::string>())) return at + ": " + name.dump() + " is missing";
      }
      return "";
    }
    if (keyword == "properties") {
      for (const auto& [name, member_schema] : rule.items()) {
        if (!object.contains(name)) continue;
        const std::string why = check(member_schema, object.at(name), at + "." + name);
        if (!why.empty()) return why;
      }
      return "";
    }
    if (keyword == "additionalProperties") {
      for (const auto& [name, value] : object.items()) {
        if (!schema.at("properties").contains(name) && rule == false) return at + ": " + name + " is not in the schema";
      }
      return "";
    }
    return is_keyword_of_another_type(keyword) ? "" : at + ": keyword " + keyword + " is not implemented";
  }

  static bool is_keyword_of_another_type(const std::string& keyword) {
    for (const char* known :
         {"minimum", "maximum", "minLength", "maxLength", "pattern", "items", "minItems", "maxItems", "uniqueItems",
          "properties", "required", "additionalProperties", "minProperties"}) {
      if (keyword == known) return true;
    }
    return false;
  }

  static bool has_type(const std::string& type, const Json& value) {
    if (type == "object") return value.is_object();
    if (type == "array") return value.is_array();
    if (type == "string") return value.is_string();
    if (type == "boolean") return value.is_boolean();
    if (type == "integer") return value.is_number_integer();
    if (type == "number") return value.is_number();
    return false;
  }

  Json root_;
};

}  // namespace inferwire::test
