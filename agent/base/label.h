// SPDX-License-Identifier: Apache-2.0
// The one function that makes a label value. One bad byte in one label costs a whole scrape (Prometheus marks the
// target down), and many values come from the wire: model names, process names, pod labels.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace inferwire::base {

inline constexpr std::size_t kLabelBytesMax = 128;

// Valid UTF-8 (RFC 3629: no surrogates, nothing overlong, at most U+10FFFF), no control characters (C0, DEL, C1: they
// can drive a terminal), at most `bytes_max` bytes, cut on a code point. What is not allowed becomes U+FFFD, one for
// each maximal ill-formed part. Idempotent.
std::string sanitize_text(std::string_view raw, std::size_t bytes_max);

// sanitize_text with at most kLabelBytesMax bytes.
std::string sanitize_label(std::string_view raw);

// True if sanitize_label would return `raw` unchanged. No allocation.
bool is_clean_label(std::string_view raw);

}  // namespace inferwire::base
