// SPDX-License-Identifier: Apache-2.0
// What the packet programs cost, by the kernel's own accounting (bpf_stats), beside programs that do nothing ("empty")
// or the least that a program which knows its stream must do ("base").
//
//   inferwire-program-cost measure --load FILE --baseline FILE --object NAME=FILE[:PROGRAM,...]...
//       The load's server and its client run in a cgroup each, and each cgroup has program instances of its own, so
//       the four kinds of packet keep apart:
//         server egress   chunks go out       client ingress   chunks come in
//         server ingress  their ACKs come in  client egress    their ACKs go out
//       In each round every set of programs is attached alone, in random order, to the same load. Prints one JSON
//       object: for each traffic and place the mean cost of each set in each round.
//   inferwire-program-cost hold --baseline FILE [--object NAME=FILE[:PROGRAM,...]...]
//       Prints "ready"; then, for each line of its input ("none", "empty", "base", or an object's NAME), detaches what
//       it has attached to the host's root cgroup, attaches that, and prints the line. Leaves at the end of its input.
#include <bpf/bpf.h>
#include <fcntl.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdarg>
#include <cstdio>
#include <iostream>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <numeric>
#include <random>
#include <sstream>
#include <string>
#include <vector>

#include "inferwire/event_abi.h"
#include "tests/bench/cost/cgroup.h"
#include "tests/bench/cost/programs.h"
#include "tests/support/base/fatal.h"
#include "tests/support/base/fd.h"

namespace inferwire::bench {

namespace {

using nlohmann::ordered_json;

struct Options {
  std::string load;
  std::string baseline;
  std::vector<std::string> objects;
  std::vector<std::string> only;
  unsigned rounds = 12;
  unsigned streams = 64;
  unsigned askers = 8;  // connections of echo and small
  double rate = 50;
  double seconds = 2;
  std::uint64_t seed = 1;
};

struct ProgramSet {
  std::string name;
  std::unique_ptr<Instance> server;
  std::unique_ptr<Instance> client;
};

struct Traffic {
  std::string name;
  std::vector<std::string> arguments;
};

int print_warnings(libbpf_print_level level, const char* format, va_list arguments) {
  return level == LIBBPF_WARN ? std::vfprintf(stderr, format, arguments) : 0;
}

std::vector<Traffic> traffic_of(const Options& options) {
  const auto text = [](double value) { return std::to_string(value); };
  const auto events = static_cast<unsigned>(std::max(1.0, options.rate * options.seconds));
  const auto stagger_ms = static_cast<unsigned>(1000 / options.rate) + 1;
  std::vector<Traffic> all = {
      {"stream",
       {"--traffic", "stream", "--connections", std::to_string(options.streams), "--events", std::to_string(events),
        "--rate", text(options.rate), "--seconds", "60", "--stagger-ms", std::to_string(stagger_ms)}},
      {"echo",
       {"--traffic", "echo", "--connections", std::to_string(options.askers), "--seconds", text(options.seconds)}},
      {"small",
       {"--traffic", "small", "--connections", std::to_string(options.askers), "--seconds", text(options.seconds)}},
  };
  if (!options.only.empty()) {
    std::erase_if(all, [&](const Traffic& traffic) {
      return std::find(options.only.begin(), options.only.end(), traffic.name) == options.only.end();
    });
  }
  return all;
}

// NAME=FILE[:PROGRAM,...]: these programs of the object, or all but iterators.
struct ObjectArgument {
  std::string name;
  std::string file;
  std::vector<std::string> programs;
};

ObjectArgument parse_object(const std::string& text) {
  const std::size_t at = text.find('=');
  if (at == std::string::npos) rig::fatal("--object wants NAME=FILE");
  const std::size_t colon = text.find(':', at);
  ObjectArgument object{text.substr(0, at), text.substr(at + 1, colon - at - 1), {}};
  if (colon == std::string::npos) return object;
  std::istringstream words(text.substr(colon + 1));
  for (std::string word; std::getline(words, word, ',');) object.programs.push_back(word);
  return object;
}

std::vector<ProgramSet> load_sets(const Options& options) {
  std::vector<ProgramSet> sets;
  for (const char* name : {"empty", "base"}) {
    sets.push_back({name, load_baseline(options.baseline, name), load_baseline(options.baseline, name)});
  }
  for (const auto& text : options.objects) {
    const ObjectArgument object = parse_object(text);
    sets.push_back({object.name, load_packet_programs(object.file, object.programs),
                    load_packet_programs(object.file, object.programs)});
  }
  return sets;
}

// Adds what the programs of one place cost in one slice.
void add_costs(ordered_json& result, const std::string& place, const std::string& set, const Instance& instance,
               const std::map<std::string, Cost>& before) {
  for (const auto& [name, cost] : instance.costs()) {
    const Cost old = before.at(name);
    const std::uint64_t runs = cost.runs - old.runs;
    if (runs < 20) continue;  // hooks that this traffic hardly meets
    ordered_json& at = result[place + " " + name][set];
    at["ns"].push_back(static_cast<double>(cost.ns - old.ns) / static_cast<double>(runs));
    at["runs"].push_back(runs);
  }
}

int measure(const Options& options) {
  const rig::Fd statistics(bpf_enable_stats(BPF_STATS_RUN_TIME));
  if (!statistics.valid()) rig::fatal_errno("switching the kernel's program statistics on");
  const std::string prefix = "inferwire-bench-" + std::to_string(getpid());
  const Cgroup server_group(prefix + "-server");
  const Cgroup client_group(prefix + "-client");
  std::vector<ProgramSet> sets = load_sets(options);

  Child server({options.load, "server", "--workers", "1"}, server_group);
  const std::string port = std::to_string(server.read_line().at("ports").at(0).get<int>());
  std::mt19937_64 random(options.seed);
  ordered_json out = {{"streams", options.streams}, {"rate", options.rate},     {"seconds", options.seconds},
                      {"rounds", options.rounds},   {"askers", options.askers}, {"seed", options.seed}};
  for (const Traffic& traffic : traffic_of(options)) {
    ordered_json& result = out["traffic"][traffic.name];
    for (unsigned round = 0; round < options.rounds; round++) {
      std::vector<std::size_t> order(sets.size());
      std::iota(order.begin(), order.end(), std::size_t{0});
      std::shuffle(order.begin(), order.end(), random);
      for (const std::size_t i : order) {
        ProgramSet& set = sets[i];
        const auto before_server = set.server->costs();
        const auto before_client = set.client->costs();
        const std::uint64_t chunks_before = set.server->stat(IW_STAT_CHUNKS);
        set.server->attach(server_group.fd());
        set.client->attach(client_group.fd());
        std::vector<std::string> command = {options.load, "client", "--ports",
                                            port,         "--seed", std::to_string(options.seed + round)};
        command.insert(command.end(), traffic.arguments.begin(), traffic.arguments.end());
        Child client(command, client_group);
        const ordered_json report = client.read_line();
        client.wait();
        set.server->detach();
        set.client->detach();
        if (report.at("failed") != 0) rig::fatal("the load failed: " + report.dump());
        add_costs(result, "server", set.name, *set.server, before_server);
        add_costs(result, "client", set.name, *set.client, before_client);
        if (traffic.name == "stream") {
          result["chunks"][set.name]["sent"].push_back(report.at("events"));
          result["chunks"][set.name]["counted"].push_back(set.server->stat(IW_STAT_CHUNKS) - chunks_before);
        }
      }
    }
  }
  std::printf("%s\n", out.dump().c_str());
  return 0;
}

int hold(const Options& options) {
  const rig::Fd root(open(cgroup_root().c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!root.valid()) rig::fatal_errno("opening the root cgroup");
  std::map<std::string, std::unique_ptr<Instance>> sets;
  for (const char* name : {"empty", "base"}) sets[name] = load_baseline(options.baseline, name);
  for (const auto& text : options.objects) {
    const ObjectArgument object = parse_object(text);
    sets[object.name] = load_packet_programs(object.file, object.programs);
  }
  Instance* attached = nullptr;
  std::string wanted = "ready";
  while (true) {
    std::cout << wanted << std::endl;
    if (!std::getline(std::cin, wanted)) return 0;
    const auto found = sets.find(wanted);
    if (found == sets.end() && wanted != "none") rig::fatal("there is no set of programs called " + wanted);
    if (attached) attached->detach();
    attached = found == sets.end() ? nullptr : found->second.get();
    if (attached) attached->attach(root.get());
  }
}

}  // namespace

}  // namespace inferwire::bench

int main(int argc, char** argv) {
  using namespace inferwire::bench;  // NOLINT: the program is part of it
  CLI::App app("Cost of the packet programs");
  app.require_subcommand(1);
  Options options;
  auto* measuring = app.add_subcommand("measure", "nanoseconds a packet");
  auto* holding = app.add_subcommand("hold", "attach to the root cgroup what the input names");
  for (auto* command : {measuring, holding}) {
    command->add_option("--baseline", options.baseline, "baseline.bpf.o")->required();
    command->add_option("--object", options.objects,
                        "NAME=packet.bpf.o, with :PROGRAM,... only these; once for each variant");
  }
  measuring->get_option("--object")->required();
  measuring->add_option("--load", options.load, "inferwire-load")->required();
  measuring->add_option("--rounds", options.rounds, "rounds of each traffic");
  measuring->add_option("--streams", options.streams, "streams at a time");
  measuring->add_option("--rate", options.rate, "chunks a second and stream");
  measuring->add_option("--seconds", options.seconds, "length of one slice");
  measuring->add_option("--seed", options.seed, "of the order");
  measuring->add_option("--traffic", options.only, "only these: stream, echo, small");
  CLI11_PARSE(app, argc, argv);
  libbpf_set_print(print_warnings);
  return measuring->parsed() ? measure(options) : hold(options);
}
