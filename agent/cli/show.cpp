// SPDX-License-Identifier: Apache-2.0
#include "agent/cli/show.h"

#include <algorithm>
#include <cerrno>
#include <fstream>
#include <iostream>
#include <sstream>

#include "agent/base/result.h"
#include "agent/cli/show_records.h"
#include "agent/cli/show_render.h"
#include "agent/cli/show_tcp.h"

namespace inferwire::cli {
namespace {

constexpr std::size_t kBadLinesShown = 20;

std::string plural(std::size_t count, std::string_view one, std::string_view many) {
  return std::to_string(count) + " " + std::string(count == 1 ? one : many);
}

void report_bad_lines(const std::vector<BadLine>& bad_lines, const std::string& name, std::ostream& errors) {
  const std::size_t shown = std::min(bad_lines.size(), kBadLinesShown);
  for (std::size_t i = 0; i < shown; ++i) {
    errors << safe_text(name, false) << ": line " << bad_lines[i].number << ": " << bad_lines[i].why << "\n";
  }
  if (bad_lines.size() > shown) {
    errors << safe_text(name, false) << ": and " << plural(bad_lines.size() - shown, "more bad line", "more bad lines")
           << "\n";
  }
}

std::string summary(const ReadRecords& read, std::size_t exchanges, const Style& style) {
  std::ostringstream out;
  out << plural(read.requests.size(), "request record", "request records") << " of "
      << plural(exchanges, "exchange", "exchanges");
  if (!read.resets.empty()) out << ", " << plural(read.resets.size(), "reset", "resets");
  if (!read.listen_drops.empty()) {
    out << ", " << plural(read.listen_drops.size(), "record", "records") << " of dropped connection attempts";
  }
  for (const auto& [type, count] : read.other_types) {
    out << ", " << count << " of type " << safe_text(type, style.utf8) << " (not shown)";
  }
  if (!read.bad_lines.empty()) out << ", " << plural(read.bad_lines.size(), "bad line", "bad lines") << " left out";
  out << "\n";
  return out.str();
}

}  // namespace

int show(std::istream& lines, const std::string& name, const ShowOptions& options, const Style& style,
         std::ostream& out, std::ostream& errors) {
  const ReadRecords read = read_records(lines);
  report_bad_lines(read.bad_lines, name, errors);
  const std::vector<Exchange> exchanges = group_exchanges(read.requests);
  const auto print = [&](const std::string& text) {
    if (!text.empty()) out << fold_lines(text, style) << "\n";
  };
  if (!exchanges.empty()) {
    print(render_table(exchanges, style));
    for (std::size_t i = 0; i < exchanges.size() && !options.table_only; ++i) {
      print(render_waterfall(exchanges[i], i + 1, style));
    }
    if (!options.table_only) print(render_legend(exchanges, style));
  }
  print(render_resets(read.resets, style));
  print(render_listen_drops(read.listen_drops, style));
  out << fold_lines(summary(read, exchanges.size(), style), style);
  out.flush();
  const bool any = !read.requests.empty() || !read.resets.empty() || !read.listen_drops.empty();
  return !any && !read.bad_lines.empty() ? 1 : 0;
}

int show_main(const ShowOptions& options) {
  const Style style = style_for(this_terminal(), options.color, options.ascii, options.columns);
  if (options.file == "-") return show(std::cin, "standard input", options, style, std::cout, std::cerr);
  errno = 0;
  std::ifstream file(options.file);
  // A folder opens and cannot be read: look at the first byte.
  if (!file || (file.peek() == std::ifstream::traits_type::eof() && file.bad())) {
    const base::Error error{"read records from", options.file, base::errno_text(errno != 0 ? errno : EIO),
                            "give the file that `inferwire agent --records FILE` writes, or - for standard input"};
    std::cerr << "inferwire show: " << safe_text(error.to_string(), false) << "\n";
    return 1;
  }
  return show(file, options.file, options, style, std::cout, std::cerr);
}

}  // namespace inferwire::cli
