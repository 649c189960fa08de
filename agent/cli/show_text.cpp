// SPDX-License-Identifier: Apache-2.0
#include "agent/cli/show_text.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <numeric>

namespace inferwire::cli {
namespace {

constexpr std::size_t kWidthDefault = 100;
constexpr std::size_t kColumnGap = 2;

constexpr std::string_view kColorEnd = "\033[0m";

std::string wrap(bool color, std::string_view code, std::string_view text) {
  if (!color) return std::string(text);
  return "\033[" + std::string(code) + "m" + std::string(text) + std::string(kColorEnd);
}

struct CodePoint {
  std::uint32_t value = 0;
  std::size_t bytes = 1;
  bool valid = false;
};

// The first code point of `text` (not empty); RFC 3629.
CodePoint first_code_point(std::string_view text) {
  const auto byte = [&](std::size_t at) { return static_cast<std::uint32_t>(static_cast<unsigned char>(text[at])); };
  const std::uint32_t lead = byte(0);
  if (lead < 0x80) return {lead, 1, true};
  std::size_t bytes = 0;
  std::uint32_t value = 0;
  std::uint32_t least = 0;
  if ((lead & 0xE0) == 0xC0) {
    bytes = 2, value = lead & 0x1F, least = 0x80;
  } else if ((lead & 0xF0) == 0xE0) {
    bytes = 3, value = lead & 0x0F, least = 0x800;
  } else if ((lead & 0xF8) == 0xF0) {
    bytes = 4, value = lead & 0x07, least = 0x10000;
  } else {
    return {lead, 1, false};
  }
  for (std::size_t at = 1; at < bytes; ++at) {
    if (at >= text.size() || (byte(at) & 0xC0) != 0x80) return {lead, 1, false};
    value = (value << 6) | (byte(at) & 0x3F);
  }
  const bool surrogate = value >= 0xD800 && value <= 0xDFFF;
  if (value < least || value > 0x10FFFF || surrogate) return {lead, 1, false};
  return {value, bytes, true};
}

struct Range {
  std::uint32_t first;
  std::uint32_t last;
};

template <std::size_t N>
bool in(const Range (&ranges)[N], std::uint32_t value) {
  return std::any_of(std::begin(ranges), std::end(ranges),
                     [&](const Range& range) { return value >= range.first && value <= range.last; });
}

// Control characters, marks that reorder or hide text, line separators.
constexpr Range kUnsafe[] = {{0x00, 0x1F},     {0x7F, 0x9F},     {0xAD, 0xAD},      {0x61C, 0x61C},
                             {0x180E, 0x180E}, {0x200B, 0x200F}, {0x2028, 0x202E},  {0x2060, 0x206F},
                             {0xFEFF, 0xFEFF}, {0xFFF0, 0xFFFB}, {0xE0000, 0xE0FFF}};
constexpr Range kWide[] = {{0x1100, 0x115F}, {0x2E80, 0xA4CF}, {0xAC00, 0xD7A3},   {0xF900, 0xFAFF},  {0xFE30, 0xFE6F},
                           {0xFF01, 0xFF60}, {0xFFE0, 0xFFE6}, {0x1F300, 0x1FAFF}, {0x20000, 0x3FFFD}};
constexpr Range kCombining[] = {{0x300, 0x36F},   {0x483, 0x489},   {0x591, 0x5BD},   {0x610, 0x61A},
                                {0x64B, 0x65F},   {0xE31, 0xE31},   {0xE34, 0xE3A},   {0x1AB0, 0x1AFF},
                                {0x1DC0, 0x1DFF}, {0x20D0, 0x20FF}, {0xFE00, 0xFE0F}, {0xFE20, 0xFE2F}};

std::string escape(const CodePoint& point) {
  char text[16];
  const bool byte = !point.valid || point.value < 0x80;
  std::snprintf(text, sizeof text, byte ? "\\x%02x" : "\\u{%x}", static_cast<unsigned>(point.value));
  return text;
}

// Length of an escape sequence that Style wrote, or 0.
std::size_t sequence_bytes(std::string_view text) {
  if (!text.starts_with("\033[")) return 0;
  const std::size_t end = text.find('m');
  return end == text.npos ? 0 : end + 1;
}

}  // namespace

std::string Style::bold(std::string_view text) const { return wrap(color, "1", text); }
std::string Style::dim(std::string_view text) const { return wrap(color, "2", text); }
std::string Style::red(std::string_view text) const { return wrap(color, "31", text); }
std::string Style::yellow(std::string_view text) const { return wrap(color, "1;33", text); }

Terminal this_terminal() {
  const auto variable = [](const char* name) {
    const char* value = std::getenv(name);
    return std::string(value != nullptr ? value : "");
  };
  Terminal terminal;
  terminal.is_tty = isatty(STDOUT_FILENO) == 1;
  winsize size{};
  if (terminal.is_tty && ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0) terminal.columns = size.ws_col;
  if (terminal.columns == 0) terminal.columns = std::strtoul(variable("COLUMNS").c_str(), nullptr, 10);
  for (const char* name : {"LANG", "LC_CTYPE", "LC_ALL"}) {
    if (const std::string value = variable(name); !value.empty()) terminal.locale = value;
  }
  terminal.no_color = variable("NO_COLOR");
  terminal.term = variable("TERM");
  return terminal;
}

Style style_for(const Terminal& terminal, When color, bool ascii, std::size_t columns) {
  std::string locale = terminal.locale;
  std::transform(locale.begin(), locale.end(), locale.begin(),
                 [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + ('a' - 'A')) : c; });
  Style style;
  const bool fits = terminal.is_tty && terminal.no_color.empty() && terminal.term != "dumb";
  style.color = color == When::kAlways || (color == When::kAuto && fits);
  style.utf8 = !ascii && (locale.find("utf-8") != locale.npos || locale.find("utf8") != locale.npos);
  const std::size_t known = terminal.columns != 0 ? terminal.columns : kWidthDefault;
  style.width = std::clamp<std::size_t>(columns != 0 ? columns : known, kWidthMin, kWidthMax);
  return style;
}

std::string safe_text(std::string_view text, bool utf8) {
  std::string safe;
  while (!text.empty()) {
    const CodePoint point = first_code_point(text);
    if (point.valid && !in(kUnsafe, point.value) && (utf8 || point.value < 0x80)) {
      safe += text.substr(0, point.bytes);
    } else {
      safe += escape(point);
    }
    text.remove_prefix(point.bytes);
  }
  return safe;
}

std::size_t display_width(std::string_view text) {
  std::size_t columns = 0;
  while (!text.empty()) {
    if (const std::size_t sequence = sequence_bytes(text); sequence != 0) {
      text.remove_prefix(sequence);
      continue;
    }
    const CodePoint point = first_code_point(text);
    columns += in(kWide, point.value) ? 2 : in(kCombining, point.value) ? 0 : 1;
    text.remove_prefix(point.bytes);
  }
  return columns;
}

std::string pad_right(std::string text, std::size_t columns) {
  const std::size_t width = display_width(text);
  if (width < columns) text.append(columns - width, ' ');
  return text;
}

std::string pad_left(std::string text, std::size_t columns) {
  const std::size_t width = display_width(text);
  if (width < columns) text.insert(0, columns - width, ' ');
  return text;
}

std::string shorten(std::string_view text, std::size_t columns, bool utf8) {
  if (display_width(text) <= columns) return std::string(text);
  std::string kept;
  std::size_t width = 0;
  bool colored = false;
  while (!text.empty()) {
    const std::size_t sequence = sequence_bytes(text);
    const std::size_t bytes = sequence != 0 ? sequence : first_code_point(text).bytes;
    const std::string_view piece = text.substr(0, bytes);
    const std::size_t piece_width = display_width(piece);
    if (width + piece_width + 1 > columns) break;
    colored = colored || sequence != 0;
    kept += piece;
    width += piece_width;
    text.remove_prefix(bytes);
  }
  if (columns > 0) kept += utf8 ? "…" : "~";
  if (colored) kept += kColorEnd;
  return kept;
}

namespace {

// Bytes of `line` that fit into `columns`: up to its last space there, else as many as there is room for.
std::size_t fitting_bytes(std::string_view line, std::size_t columns) {
  std::size_t at = 0, width = 0, word_end = 0;
  while (at < line.size()) {
    const std::string_view rest = line.substr(at);
    const std::size_t sequence = sequence_bytes(rest);
    const std::size_t bytes = sequence != 0 ? sequence : first_code_point(rest).bytes;
    const std::size_t piece_width = display_width(rest.substr(0, bytes));
    if (rest.front() == ' ' && line.find_first_not_of(' ') < at) word_end = at;
    if (width + piece_width > columns) return word_end != 0 ? word_end : std::max<std::size_t>(at, 1);
    width += piece_width;
    at += bytes;
  }
  return at;
}

}  // namespace

std::string fold_lines(std::string_view text, const Style& style) {
  constexpr std::size_t kIndent = 6;
  std::string folded;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    std::string_view line = text.substr(0, end);
    std::size_t indent = 0;
    while (indent + display_width(line) > style.width) {
      const std::size_t bytes = fitting_bytes(line, style.width - indent);
      folded += std::string(indent, ' ') + std::string(line.substr(0, bytes)) + "\n";
      line.remove_prefix(bytes);
      line.remove_prefix(std::min(line.find_first_not_of(' '), line.size()));
      indent = kIndent;
    }
    folded += std::string(indent, ' ') + std::string(line) + (end < text.size() ? "\n" : "");
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return folded;
}

std::string flow(const std::vector<std::string>& parts, std::size_t indent, const Style& style) {
  std::string text;
  std::string line;
  const auto end_line = [&] {
    if (!line.empty()) text += std::string(indent, ' ') + style.dim(line) + "\n";
    line.clear();
  };
  for (const std::string& part : parts) {
    if (!line.empty() && indent + display_width(line) + 2 + display_width(part) > style.width) end_line();
    if (!line.empty()) line += "  ";
    line += shorten(part, style.width - indent, style.utf8);
  }
  end_line();
  return text;
}

std::string time_of_day(std::int64_t unix_ns) {
  const std::int64_t ms_of_day = unix_ns / 1'000'000 % 86'400'000;
  char text[32];
  std::snprintf(text, sizeof text, "%02d:%02d:%02d.%03d", static_cast<int>(ms_of_day / 3'600'000),
                static_cast<int>(ms_of_day / 60'000 % 60), static_cast<int>(ms_of_day / 1000 % 60),
                static_cast<int>(ms_of_day % 1000));
  return text;
}

std::string date_of(std::int64_t unix_ns) {
  const std::chrono::sys_days day(std::chrono::floor<std::chrono::days>(
      std::chrono::sys_time<std::chrono::nanoseconds>(std::chrono::nanoseconds(unix_ns))));
  const std::chrono::year_month_day date(day);
  char text[32];
  std::snprintf(text, sizeof text, "%04d-%02u-%02u", static_cast<int>(date.year()), static_cast<unsigned>(date.month()),
                static_cast<unsigned>(date.day()));
  return text;
}

std::string ms_text(std::uint64_t ns) {
  const double ms = static_cast<double>(ns) / 1e6;
  char text[48];
  std::snprintf(text, sizeof text, ms < 99.995 ? "%.2f" : "%.1f", ms);
  return text;
}

std::string bytes_text(std::uint64_t bytes) {
  constexpr const char* kUnits[] = {"KB", "MB", "GB", "TB"};
  if (bytes < 1000) return std::to_string(bytes) + " B";
  double amount = static_cast<double>(bytes);
  std::size_t unit = 0;
  for (amount /= 1000; amount >= 999.95 && unit + 1 < std::size(kUnits); ++unit) amount /= 1000;
  char text[48];
  std::snprintf(text, sizeof text, "%.1f %s", amount, kUnits[unit]);
  return text;
}

std::string bar(double from, double to, std::size_t columns, bool utf8) {
  constexpr std::array<const char*, 8> kEighths = {"", "▏", "▎", "▍", "▌", "▋", "▊", "▉"};
  if (columns == 0) return {};
  const auto cells = static_cast<double>(columns);
  const double left = std::clamp(from, 0.0, 1.0) * cells;
  const double right = std::clamp(to, from, 1.0) * cells;
  const std::size_t start = std::min(static_cast<std::size_t>(left), columns - 1);
  // Long bars end where they should, so that the next one begins there; short ones are as long as they should be.
  const double length = right - left < 1 ? right - left : right - static_cast<double>(start);
  std::string text(start, ' ');
  if (!utf8) {
    const auto full = std::min<std::size_t>(static_cast<std::size_t>(std::lround(length)), columns - start);
    text += full == 0 ? std::string("|") : std::string(full, '#');
    return pad_right(std::move(text), columns);
  }
  auto eighths = static_cast<std::size_t>(std::lround(length * 8));
  eighths = std::clamp<std::size_t>(eighths, 1, (columns - start) * 8);
  for (std::size_t i = 0; i < eighths / 8; ++i) text += "█";
  text += kEighths[eighths % 8];
  return pad_right(std::move(text), columns);
}

std::string Table::to_string(const Style& style) const {
  std::vector<std::size_t> widths;
  for (std::size_t column = 0; column < columns_.size(); ++column) {
    std::size_t width = display_width(columns_[column].title);
    for (const auto& row : rows_) width = std::max(width, display_width(row[column]));
    widths.push_back(width);
  }
  std::vector<bool> shown(columns_.size(), true);
  const auto total = [&] {
    std::size_t sum = 0;
    for (std::size_t column = 0; column < columns_.size(); ++column) {
      if (shown[column]) sum += widths[column] + kColumnGap;
    }
    return sum - std::min(sum, kColumnGap);
  };
  while (total() > style.width) {
    std::size_t drop = columns_.size();
    for (std::size_t column = 0; column < columns_.size(); ++column) {
      if (!shown[column] || columns_[column].drop_first == 0) continue;
      if (drop == columns_.size() || columns_[column].drop_first > columns_[drop].drop_first) drop = column;
    }
    if (drop == columns_.size()) break;
    shown[drop] = false;
  }
  while (total() > style.width) {
    std::size_t widest = columns_.size();
    for (std::size_t column = 0; column < columns_.size(); ++column) {
      if (shown[column] && (widest == columns_.size() || widths[column] > widths[widest])) widest = column;
    }
    if (widest == columns_.size() || widths[widest] <= 1) break;
    --widths[widest];
  }

  const auto line = [&](const auto& cell_of) {
    std::string text;
    for (std::size_t column = 0; column < columns_.size(); ++column) {
      if (!shown[column]) continue;
      if (!text.empty()) text.append(kColumnGap, ' ');
      const std::string cell = shorten(cell_of(column), widths[column], style.utf8);
      text += columns_[column].right ? pad_left(cell, widths[column]) : pad_right(cell, widths[column]);
    }
    while (text.ends_with(' ')) text.pop_back();
    return text + "\n";
  };
  std::string text = line([&](std::size_t column) { return style.dim(columns_[column].title); });
  for (const auto& row : rows_) text += line([&](std::size_t column) { return row[column]; });
  return text;
}

}  // namespace inferwire::cli
