// SPDX-License-Identifier: Apache-2.0
// A small JSON writer that cannot write anything invalid: texts may be any bytes.
#pragma once

#include <charconv>
#include <concepts>
#include <string>
#include <string_view>
#include <utility>

#include "agent/base/label.h"

namespace inferwire::model {

class JsonWriter {
 public:
  void begin_object() { open('{'); }
  void begin_object(std::string_view name) { key(name), open('{'); }
  void end_object() { close('}'); }
  void begin_array() { open('['); }
  void begin_array(std::string_view name) { key(name), open('['); }
  void end_array() { close(']'); }

  template <std::integral Number>
  void value(Number number) {
    separate();
    char digits[24];
    text_.append(digits, std::to_chars(digits, digits + sizeof digits, number).ptr);
  }
  // Finite, with two digits after the point.
  void value(double number) {
    separate();
    char digits[352];
    text_.append(digits, std::to_chars(digits, digits + sizeof digits, number, std::chars_format::fixed, 2).ptr);
  }
  void value(bool truth) { separate(), text_ += truth ? "true" : "false"; }
  // Sanitised as a label is: valid UTF-8, no control characters, at most base::kLabelBytesMax bytes.
  void value(std::string_view text) { separate(), quote(text); }
  void value(const char* text) { value(std::string_view(text)); }

  template <class Value>
  void member(std::string_view name, const Value& of) {
    key(name);
    value(of);
  }
  // Nothing where the text is empty: what is not known is absent.
  void known_member(std::string_view name, std::string_view text) {
    if (!text.empty()) member(name, text);
  }
  // `optional` is a std::optional of a number.
  template <class Optional>
  void optional_member(std::string_view name, const Optional& optional) {
    if (optional) member(name, *optional);
  }

  // One of our own JSON texts, as it is.
  void raw(std::string_view json) { separate(), text_ += json; }

  std::string take() { return std::move(text_); }

 private:
  void separate() {
    if (needs_comma_) text_ += ',';
    needs_comma_ = true;
  }
  void open(char bracket) {
    separate();
    text_ += bracket;
    needs_comma_ = false;
  }
  void close(char bracket) {
    text_ += bracket;
    needs_comma_ = true;
  }
  // `name` is one of ours: it needs no escape.
  void key(std::string_view name) {
    separate();
    text_ += '"';
    text_ += name;
    text_ += "\":";
    needs_comma_ = false;
  }
  void quote(std::string_view text) {
    std::string clean;
    if (!base::is_clean_label(text)) text = clean = base::sanitize_label(text);
    text_ += '"';
    for (const char c : text) {
      if (c == '"' || c == '\\') text_ += '\\';
      text_ += c;
    }
    text_ += '"';
  }

  std::string text_;
  bool needs_comma_ = false;
};

}  // namespace inferwire::model
