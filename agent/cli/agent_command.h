// SPDX-License-Identifier: Apache-2.0
// `inferwire agent`: its flags are the table of configuration keys.
#pragma once

#include <CLI/App.hpp>
#include <string>

#include "agent/daemon/config.h"

namespace inferwire::cli {

struct AgentCommand {
  std::string config_file;
  daemon::FlagValues flags;  // only those that were given, once the command line is parsed

  // The subcommand. This object must outlive the parsing.
  CLI::App* add_to(CLI::App& app);
  int run();
};

// What to say to words that no flag takes: names the nearest flag.
std::string unknown_flag_text(const std::string& word);

}  // namespace inferwire::cli
