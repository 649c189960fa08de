// SPDX-License-Identifier: Apache-2.0
#include "agent/daemon/config.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>
#include <set>
#include <sstream>

namespace inferwire::daemon {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

// What a user sees when this YAML is read; empty if it is good.
std::string error_of(const std::string& yaml) {
  Config config;
  auto read = read_yaml(config, yaml, "agent.yaml");
  return read ? "" : read.error().to_string();
}

Config config_of(const std::string& yaml) {
  Config config;
  auto read = read_yaml(config, yaml, "agent.yaml");
  EXPECT_TRUE(read.has_value()) << read.error().to_string();
  return config;
}

Environment environment_of(std::map<std::string, std::string> values) {
  return [values = std::move(values)](const std::string& name) -> std::optional<std::string> {
    const auto at = values.find(name);
    if (at == values.end()) return std::nullopt;
    return at->second;
  };
}

std::string file_with(const std::string& text) {
  // Tests run side by side, each in a process of its own.
  const std::string path = testing::TempDir() + "/config_test." + std::to_string(getpid()) + ".yaml";
  std::ofstream(path) << text;
  return path;
}

TEST(ConfigFile, ValuesOfEveryKindAreRead) {
  const Config config = config_of(
      "listen: '[::1]:0'\n"
      "records: /var/log/requests.jsonl\n"
      "ringbuf_bytes: 64KiB\n"
      "drain_interval: 50ms\n"
      "series:\n"
      "  models: 8\n"
      "histograms: {gap_edges: [12ms, 45ms], ttft_edges: 700ms}\n"
      "routes:\n"
      "  - /chat\n"
      "  - /v2/generate\n"
      "hooks: {deny: [getpeername, tp_btf]}\n"
      "peers: {8000: inference, 9000: object_store}\n"
      "self_check: false\n"
      "log_level: debug\n");
  EXPECT_EQ(config.listen, "[::1]:0");
  EXPECT_EQ(config.records, "/var/log/requests.jsonl");
  EXPECT_EQ(config.ringbuf_bytes, 65536u);
  EXPECT_EQ(config.drain_interval, milliseconds(50));
  EXPECT_EQ(config.series_models, 8u);
  EXPECT_EQ(config.gap_edges, (std::vector<double>{0.012, 0.045}));
  EXPECT_EQ(config.ttft_edges, std::vector<double>{0.7});
  EXPECT_EQ(config.routes, (std::vector<std::string>{"/chat", "/v2/generate"}));
  EXPECT_EQ(config.hooks_deny, (std::vector<std::string>{"getpeername", "tp_btf"}));
  EXPECT_EQ(config.peers, (std::map<std::uint16_t, std::string>{{8000, "inference"}, {9000, "object_store"}}));
  EXPECT_FALSE(config.self_check);
  EXPECT_EQ(config.log_level, base::LogLevel::kDebug);
  EXPECT_EQ(config.partial_interval, seconds(5)) << "not in the file";
}

TEST(ConfigFile, DotsAreLevels) { EXPECT_EQ(config_of("series.models: 8\n").series_models, 8u); }

TEST(ConfigFile, NothingAtAllIsGood) {
  EXPECT_EQ(error_of(""), "");
  EXPECT_EQ(error_of("# only a comment\n"), "");
  EXPECT_EQ(error_of("series:\n"), "");
}

TEST(ConfigFile, AnUnknownKeyNamesFileLineKeyAndTheNearestValidKey) {
  EXPECT_EQ(error_of("listen: 127.0.0.1:1\n\nrecord: x\n"),
            "cannot read the configuration agent.yaml:3: unknown key 'record'; did you mean 'records'?; "
            "docs/configuration.md lists all keys");
  EXPECT_NE(
      error_of("hooks:\n  dney: [x]\n").find("agent.yaml:2: unknown key 'hooks.dney'; did you mean 'hooks.deny'?"),
      std::string::npos);
  EXPECT_NE(error_of("deny: [x]\n").find("agent.yaml:1: unknown key 'deny'; did you mean 'hooks.deny'?"),
            std::string::npos);
  EXPECT_NE(error_of("zzzzzzzz: 1\n").find("unknown key 'zzzzzzzz'; docs"), std::string::npos);
}

TEST(ConfigFile, ARepeatedKeyIsAnError) {
  EXPECT_NE(error_of("listen: 127.0.0.1:1\nlisten: 127.0.0.1:2\n").find("agent.yaml:2: key 'listen' is given twice"),
            std::string::npos);
  EXPECT_NE(error_of("series.models: 1\nseries: {models: 2}\n").find("given twice"), std::string::npos);
}

TEST(ConfigFile, WrongValuesSayWhatIsWantedAndTheDefault) {
  const struct {
    const char* yaml;
    const char* says;
  } kRows[] = {
      {"listen: nowhere\n", "agent.yaml:1: key 'listen': 'nowhere' is no ADDRESS:PORT"},
      {"listen: [a, b]\n", "key 'listen' takes one value"},
      {"drain_interval: 5\n", "'5' is no duration with a unit, such as 250ms, 5s or 1m"},
      {"drain_interval: 1h\n", "'1h' is not between 1ms and 1000ms; default: 20ms"},
      {"ringbuf_bytes: many\n", "is no size, such as 4MiB or 65536"},
      {"ringbuf_bytes: 1\n", "is not between 4KiB and 1GiB"},
      {"series: {models: 0}\n", "is no number between 1 and 100000"},
      {"series: 5\n", "'series' takes keys"},
      {"routes: [chat]\n", "has 'chat', which does not begin with '/'"},
      {"routes: ['/a?b']\n", "a route is a plain path"},
      {"ports: [0]\n", "has '0', which is no port"},
      {"peers: {8000: inferense}\n", "has 'inferense', which is no class; did you mean 'inference'? (object_store, "},
      {"peers: {eighty: sql}\n", "has 'eighty=sql', which is no PORT=CLASS such as 8000=inference"},
      {"peers: [5432]\n", "has '5432', which is no PORT=CLASS"},
      {"peers: [80=sql, 80=cache]\n", "has port 80 twice"},
      {"peers: {80: [sql]}\n", "takes pairs of plain values"},
      {"routes: {a: b}\n", "key 'routes' takes a list"},
      {"hooks: {deny: [getpername]}\n", "has 'getpername', which is no hook; did you mean 'getpeername'?"},
      {"histograms: {gap_edges: [x]}\n", "has 'x', which is no duration such as 250ms"},
      {"log_level: loud\n", "is none of debug, info, warn, error"},
      {"self_check: maybe\n", "is neither true nor false"},
      {"- a\n- b\n", "keys are expected here"},
      {"a: b: c\n", "agent.yaml:1: not YAML"},
  };
  for (const auto& row : kRows) EXPECT_NE(error_of(row.yaml).find(row.says), std::string::npos) << error_of(row.yaml);
}

TEST(ConfigFile, AnEdgeThatExistsChangesNothingAndTooManyAreRefused) {
  EXPECT_EQ(error_of("histograms: {gap_edges: [200ms]}\n"), "");
  std::string many = "histograms: {gap_edges: [";
  for (int i = 0; i < 33; ++i) many += std::to_string(1000 + i) + "us, ";
  EXPECT_NE(error_of(many + "7s]}\n").find("key 'histograms.gap_edges'"), std::string::npos);
}

TEST(ConfigSources, FlagsWinOverTheEnvironmentAndThatOverTheFile) {
  const std::string file = file_with("node: file\nrecords: file\nlog_level: debug\n");
  const auto environment = environment_of({{"INFERWIRE_NODE", "environment"}, {"INFERWIRE_RECORDS", "environment"}});
  auto config = load_config(file, environment, {{"node", {"flag"}}});
  ASSERT_TRUE(config.has_value()) << config.error().to_string();
  EXPECT_EQ(config->node, "flag");
  EXPECT_EQ(config->records, "environment");
  EXPECT_EQ(config->log_level, base::LogLevel::kDebug);
}

TEST(ConfigSources, TheFileMayBeNamedByTheEnvironment) {
  auto config = load_config("", environment_of({{"INFERWIRE_CONFIG", file_with("node: a\n")}}), {});
  ASSERT_TRUE(config.has_value());
  EXPECT_EQ(config->node, "a");
}

TEST(ConfigSources, ListsAreSeparatedByCommasOutsideTheFile) {
  auto config = load_config("", environment_of({{"INFERWIRE_HOOKS_DENY", "getpeername, tp_btf__sock_send_length"}}),
                            {{"routes", {"/a,/b", "/c"}}, {"peers", {"8000=inference,53=dns"}}});
  ASSERT_TRUE(config.has_value()) << config.error().to_string();
  EXPECT_EQ(config->hooks_deny, (std::vector<std::string>{"getpeername", "tp_btf__sock_send_length"}));
  EXPECT_EQ(config->routes, (std::vector<std::string>{"/a", "/b", "/c"}));
  EXPECT_EQ(config->peers, (std::map<std::uint16_t, std::string>{{53, "dns"}, {8000, "inference"}}));
}

TEST(ConfigSources, ErrorsNameTheSource) {
  auto config = load_config("", environment_of({{"INFERWIRE_LISTEN", "x"}}), {});
  ASSERT_FALSE(config.has_value());
  EXPECT_NE(config.error().to_string().find("environment variable INFERWIRE_LISTEN"), std::string::npos);

  config = load_config("", environment_of({}), {{"slo.ttft", {"x"}}});
  ASSERT_FALSE(config.has_value());
  EXPECT_NE(config.error().to_string().find("flag --slo.ttft"), std::string::npos);

  config = load_config("/no/such/file.yaml", environment_of({}), {});
  ASSERT_FALSE(config.has_value());
  EXPECT_NE(config.error().to_string().find("/no/such/file.yaml: No such file or directory"), std::string::npos);
}

TEST(ConfigSources, TwoStreamsCannotShareStandardOutput) {
  EXPECT_FALSE(load_config("", environment_of({}), {{"records", {"-"}}, {"trace_chunks", {"-"}}}).has_value());
}

TEST(ConfigKeys, NamesFlagsAndVariablesAreDistinctAndDefaultsAreValid) {
  std::set<std::string> names;
  for (const ConfigKey& key : config_keys()) {
    EXPECT_TRUE(names.insert(key.flag()).second);
    EXPECT_TRUE(names.insert(key.environment()).second);
    Config config;
    const std::string preset(key.preset);
    if (!preset.empty()) {
      EXPECT_TRUE(key.set(config, std::span(&preset, 1)).has_value()) << key.name;
    }
  }
}

TEST(ConfigKeys, PresetsAreWhatConfigHas) {
  const Config plain;
  Config preset;
  for (const ConfigKey& key : config_keys()) {
    const std::string text(key.preset);
    if (!text.empty()) {
      ASSERT_TRUE(key.set(preset, std::span(&text, 1)).has_value());
    }
  }
  EXPECT_EQ(preset.listen, plain.listen);
  EXPECT_EQ(preset.socket, plain.socket);
  EXPECT_EQ(preset.ringbuf_bytes, plain.ringbuf_bytes);
  EXPECT_EQ(preset.drain_interval, plain.drain_interval);
  EXPECT_EQ(preset.partial_interval, plain.partial_interval);
  EXPECT_EQ(preset.series_label_sets, plain.series_label_sets);
  EXPECT_EQ(preset.series_models, plain.series_models);
  EXPECT_EQ(preset.slo_ttft, plain.slo_ttft);
  EXPECT_EQ(preset.slo_gap, plain.slo_gap);
  EXPECT_EQ(preset.self_check, plain.self_check);
}

TEST(ConfigDocument, IsWhatTheTableSays) {
  std::ifstream file(std::string(INFERWIRE_SOURCE_DIR) + "/docs/configuration.md");
  std::ostringstream text;
  text << file.rdbuf();
  EXPECT_EQ(text.str(), config_markdown()) << "run: inferwire help --configuration > docs/configuration.md";
}

TEST(Durations, HaveUnits) {
  EXPECT_EQ(parse_duration("250ms"), milliseconds(250));
  EXPECT_EQ(parse_duration("1.5s"), milliseconds(1500));
  EXPECT_EQ(parse_duration("2m"), seconds(120));
  EXPECT_EQ(parse_duration("0"), seconds(0));
  for (const char* bad : {"", "5", "s", "-1s", "1d", "1 s", "1e9h", "nan", "1.2.3s"}) {
    EXPECT_EQ(parse_duration(bad), std::nullopt) << bad;
  }
}

TEST(Sizes, MayHaveBinaryUnits) {
  EXPECT_EQ(parse_size("65536"), 65536u);
  EXPECT_EQ(parse_size("4MiB"), 4u << 20);
  for (const char* bad : {"", "MiB", "4MB", "-1", "99999999999999999999", "18446744073709551615GiB"}) {
    EXPECT_EQ(parse_size(bad), std::nullopt) << bad;
  }
}

TEST(ListenAddresses, AreNumericHostsWithPorts) {
  EXPECT_EQ(parse_listen("127.0.0.1:9810")->port, 9810);
  EXPECT_EQ(parse_listen("[::1]:0")->host, "::1");
  for (const char* bad : {"", "9810", ":9810", "127.0.0.1", "::1:9810", "a:70000", "a:b"}) {
    EXPECT_FALSE(parse_listen(bad).has_value()) << bad;
  }
}

TEST(NearestName, IsFewEditsAwayOrNothing) {
  const std::vector<std::string> known{"listen", "records", "hooks.deny"};
  EXPECT_EQ(nearest_name("lsiten", known), "listen");
  EXPECT_EQ(nearest_name("record", known), "records");
  EXPECT_EQ(nearest_name("hook.deny", known), "hooks.deny");
  EXPECT_EQ(nearest_name("completely_else", known), std::nullopt);
}

}  // namespace
}  // namespace inferwire::daemon
