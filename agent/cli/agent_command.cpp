// SPDX-License-Identifier: Apache-2.0
#include "agent/cli/agent_command.h"

#include <CLI/CLI.hpp>
#include <cstdio>
#include <vector>

#include "agent/daemon/agent.h"

namespace inferwire::cli {

CLI::App* AgentCommand::add_to(CLI::App& app) {
  CLI::App* command = app.add_subcommand("agent", "Watch this node: run in the foreground until SIGTERM.");
  command->footer("Each flag is also a key of the file and an environment variable: see docs/configuration.md.");
  command->add_option("--config", config_file, "YAML file; also INFERWIRE_CONFIG.")->type_name("FILE");
  for (const daemon::ConfigKey& key : daemon::config_keys()) {
    const std::string name(key.name);
    std::string help(key.help);
    if (!key.preset.empty()) help += " [" + std::string(key.preset) + "]";
    command
        ->add_option_function<std::vector<std::string>>(
            key.flag(),
            [this, name, list = key.list](const std::vector<std::string>& values) {
              // Of a single value the last one counts, as usual on command lines.
              flags[name] = list ? values : std::vector<std::string>{values.back()};
            },
            help)
        ->type_name(std::string(key.value) + (key.list ? ",..." : ""))
        ->allow_extra_args(false)
        ->expected(1)
        ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  }
  return command;
}

int AgentCommand::run() {
  auto config = daemon::load_config(config_file, daemon::process_environment(), flags);
  if (!config) {
    std::fprintf(stderr, "inferwire: %s\n", config.error().to_string().c_str());
    return 2;
  }
  return daemon::run_agent(*config);
}

std::string unknown_flag_text(const std::string& word) {
  std::vector<std::string> known{"--config", "--help"};
  for (const daemon::ConfigKey& key : daemon::config_keys()) known.push_back(key.flag());
  const std::string flag = word.substr(0, word.find('='));
  const auto nearest = daemon::nearest_name(flag, known);
  return "unknown flag " + flag + (nearest ? "; did you mean " + *nearest + "?" : "");
}

}  // namespace inferwire::cli
