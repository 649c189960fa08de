// SPDX-License-Identifier: Apache-2.0
// `inferwire show FILE`: records (docs/records.md) as a table and waterfalls.
#pragma once

#include <cstddef>
#include <iosfwd>
#include <string>

#include "agent/cli/show_text.h"

namespace inferwire::cli {

struct ShowOptions {
  std::string file;  // "-" = standard input
  When color = When::kAuto;
  bool ascii = false;       // no character beyond ASCII
  std::size_t columns = 0;  // 0 = the terminal's
  bool table_only = false;
};

// Exit status: 0; 1 when the file cannot be read or every line of it is bad.
int show_main(const ShowOptions& options);

// The same with the file and the terminal given.
int show(std::istream& lines, const std::string& name, const ShowOptions& options, const Style& style,
         std::ostream& out, std::ostream& errors);

}  // namespace inferwire::cli
