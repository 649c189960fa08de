// SPDX-License-Identifier: Apache-2.0
#include "agent/base/label.h"

#include <cstdint>

namespace inferwire::base {
namespace {

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";  // U+FFFD

struct CodePoint {
  std::size_t bytes;  // how many bytes of the input it takes, at least 1
  bool allowed;       // well-formed and not a control character
};

unsigned byte_at(std::string_view text, std::size_t at) { return static_cast<unsigned char>(text[at]); }

// The first code point of `text` (not empty). Table 3-7 of the Unicode standard: which second bytes are well-formed
// depends on the first; all later bytes are 80..BF.
CodePoint first_code_point(std::string_view text) {
  const unsigned lead = byte_at(text, 0);
  if (lead < 0x80) return {1, lead >= 0x20 && lead != 0x7F};

  std::size_t bytes;
  unsigned second_min = 0x80;
  unsigned second_max = 0xBF;
  if (lead >= 0xC2 && lead <= 0xDF) {
    bytes = 2;
  } else if (lead >= 0xE0 && lead <= 0xEF) {
    bytes = 3;
    if (lead == 0xE0) second_min = 0xA0;  // overlong
    if (lead == 0xED) second_max = 0x9F;  // surrogates
  } else if (lead >= 0xF0 && lead <= 0xF4) {
    bytes = 4;
    if (lead == 0xF0) second_min = 0x90;  // overlong
    if (lead == 0xF4) second_max = 0x8F;  // beyond U+10FFFF
  } else {
    return {1, false};
  }

  for (std::size_t at = 1; at < bytes; ++at) {
    const unsigned min = at == 1 ? second_min : 0x80;
    const unsigned max = at == 1 ? second_max : 0xBF;
    if (at >= text.size() || byte_at(text, at) < min || byte_at(text, at) > max) return {at, false};
  }
  const bool c1_control = lead == 0xC2 && byte_at(text, 1) < 0xA0;
  return {bytes, !c1_control};
}

}  // namespace

std::string sanitize_text(std::string_view raw, std::size_t bytes_max) {
  std::string clean;
  while (!raw.empty()) {
    const CodePoint next = first_code_point(raw);
    const std::string_view piece = next.allowed ? raw.substr(0, next.bytes) : kReplacement;
    if (clean.size() + piece.size() > bytes_max) break;
    clean += piece;
    raw.remove_prefix(next.bytes);
  }
  return clean;
}

std::string sanitize_label(std::string_view raw) { return sanitize_text(raw, kLabelBytesMax); }

bool is_clean_label(std::string_view raw) {
  if (raw.size() > kLabelBytesMax) return false;
  while (!raw.empty()) {
    const CodePoint next = first_code_point(raw);
    if (!next.allowed) return false;
    raw.remove_prefix(next.bytes);
  }
  return true;
}

}  // namespace inferwire::base
