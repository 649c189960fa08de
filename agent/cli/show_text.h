// SPDX-License-Identifier: Apache-2.0
// Text for terminals: safe, aligned, in UTF-8 or ASCII, with or without colour.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace inferwire::cli {

enum class When { kAuto, kAlways, kNever };

// The narrowest that tables and waterfalls can be read in.
inline constexpr std::size_t kWidthMin = 60;
inline constexpr std::size_t kWidthMax = 1000;

// How to write. Chosen once, by style_for().
struct Style {
  bool color = false;
  bool utf8 = false;
  std::size_t width = 100;  // columns, at least kWidthMin

  std::string bold(std::string_view text) const;
  std::string dim(std::string_view text) const;
  std::string red(std::string_view text) const;
  std::string yellow(std::string_view text) const;
};

// What is known of the place that is written to.
struct Terminal {
  bool is_tty = false;
  std::size_t columns = 0;  // 0 = not known
  std::string locale;       // LC_ALL, else LC_CTYPE, else LANG
  std::string no_color;     // NO_COLOR
  std::string term;         // TERM
};

// Looks at standard output and the environment.
Terminal this_terminal();

// Colour: by `color`, kAuto = on a terminal that is not dumb and without NO_COLOR. UTF-8: if the locale says so, unless
// `ascii`. Width: `columns` if not 0, else the terminal's, else 100; at least kWidthMin.
Style style_for(const Terminal& terminal, When color, bool ascii, std::size_t columns = 0);

// Text from records, made harmless: control characters, marks that reorder text and invalid UTF-8 are written as
// escapes; without `utf8` everything beyond ASCII is.
std::string safe_text(std::string_view text, bool utf8);

// Columns that safe text takes (wide characters two, combining ones none); escape sequences of Style take none.
std::size_t display_width(std::string_view text);

std::string pad_right(std::string text, std::size_t columns);
std::string pad_left(std::string text, std::size_t columns);
// At most `columns`; what is cut off is shown by "…" (or "~"). Colour ends there.
std::string shorten(std::string_view text, std::size_t columns, bool utf8);

// Lines that are too wide are broken between words, what follows is indented; a word that is too long, anywhere.
std::string fold_lines(std::string_view text, const Style& style);

// Parts behind each other, in as many dim lines as they need.
std::string flow(const std::vector<std::string>& parts, std::size_t indent, const Style& style);

// UTC: "12:34:56.789", "2026-11-30".
std::string time_of_day(std::int64_t unix_ns);
std::string date_of(std::int64_t unix_ns);

// Milliseconds without unit: "0.04", "99.99", "100.0", "12345.6".
std::string ms_text(std::uint64_t ns);
// "412 B", "1.5 KB", "20.0 MB".
std::string bytes_text(std::uint64_t bytes);

// A bar from `from` to `to` (fractions of the whole, 0 to 1) in `columns` cells, padded to them. Never invisible.
std::string bar(double from, double to, std::size_t columns, bool utf8);

// Rows under titles. Columns that do not fit are left out, highest `drop_first` first; then the widest cells are cut.
class Table {
 public:
  struct Column {
    std::string title;
    bool right = false;  // numbers
    int drop_first = 0;  // 0 = never
  };
  explicit Table(std::vector<Column> columns) : columns_(std::move(columns)) {}
  void add_row(std::vector<std::string> cells) { rows_.push_back(std::move(cells)); }
  std::string to_string(const Style& style) const;

 private:
  std::vector<Column> columns_;
  std::vector<std::vector<std::string>> rows_;
};

}  // namespace inferwire::cli
