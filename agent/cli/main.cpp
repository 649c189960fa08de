// SPDX-License-Identifier: Apache-2.0
// inferwire: one binary, thin subcommands.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <string>

#include "agent/cli/agent_command.h"
#include "agent/cli/doctor.h"

namespace {

using namespace inferwire;

int report_parse_error(const CLI::App& app, const CLI::ParseError& error, bool agent) {
  if (error.get_exit_code() == 0) return app.exit(error);  // --help
  constexpr int kUsage = 2;
  const std::vector<std::string> extra = app.remaining(true);
  if (agent && !extra.empty() && extra.front().starts_with("-")) {
    std::fprintf(stderr, "inferwire: %s\n", cli::unknown_flag_text(extra.front()).c_str());
  } else {
    std::fprintf(stderr, "inferwire: %s\nRun `inferwire help`.\n", error.what());
  }
  return kUsage;
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app{"Follows every LLM request of this node on the wire, from the kernel.", "inferwire"};
  app.require_subcommand(0, 1);
  int status = 0;

  cli::AgentCommand agent;
  CLI::App* agent_command = agent.add_to(app);

  cli::DoctorOptions doctor;
  CLI::App* doctor_command = app.add_subcommand("doctor", "Say what works with this kernel and these rights.");
  doctor_command->add_flag("--json", doctor.json, "Print JSON.");
  doctor_command->add_option("--host-root", doctor.host_root, "Where the host's file system is seen.")
      ->type_name("DIR");
  doctor_command->add_option("--cgroup-root", doctor.cgroup_root, "Root of the host's cgroup v2 hierarchy.")
      ->type_name("DIR");

  CLI::App* version_command = app.add_subcommand("version", "Print the version.");

  bool configuration = false;
  CLI::App* help_command = app.add_subcommand("help", "Print this help.");
  help_command->add_flag("--configuration", configuration, "Print docs/configuration.md.");

  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return report_parse_error(app, error, agent_command->parsed());
  }

  if (agent_command->parsed()) {
    status = agent.run();
  } else if (doctor_command->parsed()) {
    status = cli::run_doctor(doctor);
  } else if (version_command->parsed()) {
    std::printf("inferwire %s\n", INFERWIRE_VERSION);
  } else if (configuration) {
    std::fputs(daemon::config_markdown().c_str(), stdout);
  } else {
    std::fputs(app.help().c_str(), stdout);
    status = help_command->parsed() ? 0 : 2;
  }
  return status;
}
