// SPDX-License-Identifier: Apache-2.0
// Configuration of the agent: one table of keys drives the YAML file, the environment, the flags, --help and
// docs/configuration.md. Flags win over the environment, the environment over the file, the file over defaults.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "agent/base/log.h"
#include "agent/base/result.h"

namespace inferwire::daemon {

struct Config {
  std::string listen = "127.0.0.1:9810";
  std::string records;  // file, "-" = standard output, empty = none
  std::string host_root = "/";
  std::string pod_logs;
  enum class PodWatch { kOff, kPods, kKubelet } pod_watch = PodWatch::kOff;
  std::string kubernetes_url;
  std::string kubernetes_token_file = "/var/run/secrets/kubernetes.io/serviceaccount/token";
  std::string kubernetes_ca_file = "/var/run/secrets/kubernetes.io/serviceaccount/ca.crt";
  std::string cgroup_root;
  std::string node;  // empty = host name
  std::string socket = "/run/inferwire/agent.sock";
  base::LogLevel log_level = base::LogLevel::kInfo;
  std::uint32_t ringbuf_bytes = 4u << 20;
  std::chrono::nanoseconds drain_interval = std::chrono::milliseconds(20);
  std::chrono::nanoseconds idle_detach = std::chrono::seconds(60);
  std::chrono::nanoseconds partial_interval = std::chrono::seconds(5);
  std::size_t series_label_sets = 256;
  std::size_t series_models = 64;
  std::vector<double> gap_edges;   // seconds, beside the default ones
  std::vector<double> ttft_edges;  // seconds
  std::vector<std::string> routes;
  std::vector<std::uint16_t> ports;
  std::map<std::uint16_t, std::string> peers;  // port -> class, one of model::peer_classes()
  std::vector<std::string> hooks_deny;
  std::chrono::nanoseconds slo_ttft = std::chrono::seconds(2);
  std::chrono::nanoseconds slo_gap = std::chrono::milliseconds(200);
  std::string trace_chunks;  // file, empty = off
  bool self_check = true;
};

// Why a value cannot be taken.
using SetResult = tl::expected<void, std::string>;

struct ConfigKey {
  std::string_view name;    // in the file; dots are levels
  std::string_view value;   // what the value is, as --help shows it: "DURATION"
  bool list;                // several values: a YAML sequence, or separated by commas
  std::string_view preset;  // default, as a user would write it
  std::string_view help;    // one sentence
  SetResult (*set)(Config&, std::span<const std::string>);

  std::string flag() const;         // "--hooks.deny"
  std::string environment() const;  // "INFERWIRE_HOOKS_DENY"
};

std::span<const ConfigKey> config_keys();

// The known name that is fewest edits away from `name`, if that is near enough to be meant.
std::optional<std::string> nearest_name(std::string_view name, std::span<const std::string> known);

// Values given by flags: key name -> values, in the order given.
using FlagValues = std::map<std::string, std::vector<std::string>, std::less<>>;

// What getenv() says, or nothing; an argument so that tests need no environment.
using Environment = std::function<std::optional<std::string>(const std::string& name)>;
Environment process_environment();

// Reads a YAML text into `config`. `file` is for messages only. Unknown and repeated keys are errors: the message names
// file, line, key and the nearest valid key.
base::Result<void> read_yaml(Config& config, const std::string& text, const std::string& file);

// Everything together, then checked as a whole. `file` may be empty; INFERWIRE_CONFIG is its environment form.
base::Result<Config> load_config(const std::string& file, const Environment& environment, const FlagValues& flags);

// docs/configuration.md.
std::string config_markdown();

// "250ms", "5s", "1m", "2h". Never negative.
std::optional<std::chrono::nanoseconds> parse_duration(std::string_view text);

// "4MiB", "65536".
std::optional<std::uint64_t> parse_size(std::string_view text);

// "127.0.0.1:9810", "[::1]:9810".
struct ListenAddress {
  std::string host;
  std::uint16_t port = 0;
};
std::optional<ListenAddress> parse_listen(std::string_view text);

}  // namespace inferwire::daemon
