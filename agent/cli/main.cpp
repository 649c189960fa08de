// SPDX-License-Identifier: Apache-2.0
// inferwire: one binary, thin subcommands.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <map>
#include <string>
#include <vector>

#include "agent/cli/agent_command.h"
#include "agent/cli/doctor.h"
#include "agent/cli/show.h"
#include "agent/cli/top.h"

namespace cli = inferwire::cli;

namespace {

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

void add_style(CLI::App& command, cli::When& color, bool& ascii) {
  static const std::map<std::string, cli::When> kWhen = {
      {"auto", cli::When::kAuto}, {"always", cli::When::kAlways}, {"never", cli::When::kNever}};
  command.add_option("--color", color, "auto, always or never.")
      ->transform(CLI::CheckedTransformer(kWhen).description(""))
      ->type_name("WHEN");
  command.add_flag("--ascii", ascii, "No character beyond ASCII.");
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
  doctor_command->add_option("--hooks.deny", doctor.deny, "Hooks, rungs or programs that are not to be used.")
      ->delimiter(',')
      ->type_name("HOOK,...");

  cli::ShowOptions show;
  CLI::App* show_command = app.add_subcommand("show", "Print records as a table and as waterfalls.");
  show_command
      ->add_option("file", show.file, "JSON lines as `inferwire agent --records` writes them; - is standard input.")
      ->required();
  show_command->add_flag("--table-only", show.table_only, "No waterfalls.");
  show_command->add_option("--columns", show.columns, "Width; the terminal's by default.")
      ->check(CLI::Range(cli::kWidthMin, cli::kWidthMax));
  add_style(*show_command, show.color, show.ascii);

  cli::TopOptions top;
  CLI::App* top_command = app.add_subcommand("top", "Show the streams that are open now and the last minute's worst.");
  top_command->add_flag("--once", top.once, "Print once and end.");
  top_command->add_flag("--json", top.json, "Print JSON.");
  top_command->add_option("--socket", top.socket_path, "The agent's unix socket.")->capture_default_str();
  add_style(*top_command, top.color, top.ascii);

  app.set_version_flag("--version", "inferwire " INFERWIRE_VERSION, "Print the version.");
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
  } else if (show_command->parsed()) {
    status = cli::show_main(show);
  } else if (top_command->parsed()) {
    status = cli::top_main(top);
  } else if (version_command->parsed()) {
    std::printf("inferwire %s\n", INFERWIRE_VERSION);
  } else if (configuration) {
    std::fputs(inferwire::daemon::config_markdown().c_str(), stdout);
  } else {
    std::fputs(app.help().c_str(), stdout);
    status = help_command->parsed() ? 0 : 2;
  }
  return status;
}
