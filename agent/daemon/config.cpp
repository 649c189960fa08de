// SPDX-License-Identifier: Apache-2.0
#include "agent/daemon/config.h"

#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <numeric>
#include <set>
#include <sstream>

#include "agent/capture/hooks.h"
#include "agent/metrics/edges.h"
#include "agent/model/peers.h"
#include "inferwire/event_abi.h"

namespace inferwire::daemon {
namespace {

using Values = std::span<const std::string>;
constexpr char kWhat[] = "read the configuration";
constexpr std::size_t kRoutesMax = IW_ROUTE_MAX - IW_ROUTE_CONFIGURED;

SetResult no(std::string why) { return tl::unexpected(std::move(why)); }

template <class Number>
std::optional<Number> parse_number(std::string_view text) {
  Number number{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return number;
}

template <auto member>
SetResult set_text(Config& config, Values values) {
  config.*member = values[0];
  return {};
}

template <auto member>
SetResult set_file(Config& config, Values values) {
  config.*member = values[0];
  return {};
}

SetResult set_socket(Config& config, Values values) {
  constexpr std::size_t kMost = 107;  // sockaddr_un
  if (values[0].size() > kMost) return no("a socket's path has at most 107 bytes");
  config.socket = values[0];
  return {};
}

SetResult set_listen(Config& config, Values values) {
  if (!parse_listen(values[0])) return no("is no ADDRESS:PORT, such as 127.0.0.1:9810 or [::]:9810");
  config.listen = values[0];
  return {};
}

SetResult set_log_level(Config& config, Values values) {
  const auto level = base::parse_log_level(values[0]);
  if (!level) return no("is none of debug, info, warn, error");
  config.log_level = *level;
  return {};
}

SetResult set_self_check(Config& config, Values values) {
  if (values[0] != "true" && values[0] != "false") return no("is neither true nor false");
  config.self_check = values[0] == "true";
  return {};
}

SetResult set_pod_watch(Config& config, Values values) {
  using PodWatch = Config::PodWatch;
  if (values[0] != "off" && values[0] != "pods" && values[0] != "kubelet") return no("is none of off, pods, kubelet");
  config.pod_watch = values[0] == "off" ? PodWatch::kOff : values[0] == "pods" ? PodWatch::kPods : PodWatch::kKubelet;
  return {};
}

// The token goes there: it is never sent unencrypted.
SetResult set_kubernetes_url(Config& config, Values values) {
  if (!values[0].empty() && !values[0].starts_with("https://")) return no("does not begin with https://");
  config.kubernetes_url = values[0];
  while (config.kubernetes_url.ends_with('/')) config.kubernetes_url.pop_back();
  return {};
}

SetResult set_ringbuf(Config& config, Values values) {
  constexpr std::uint64_t kLeast = 4096, kMost = 1u << 30;
  const auto bytes = parse_size(values[0]);
  if (!bytes) return no("is no size, such as 4MiB or 65536");
  if (*bytes < kLeast || *bytes > kMost) return no("is not between 4KiB and 1GiB");
  config.ringbuf_bytes = static_cast<std::uint32_t>(*bytes);
  return {};
}

template <auto member, std::int64_t least_ms, std::int64_t most_ms>
SetResult set_duration(Config& config, Values values) {
  const auto duration = parse_duration(values[0]);
  if (!duration) return no("is no duration with a unit, such as 250ms, 5s or 1m");
  if (*duration < std::chrono::milliseconds(least_ms) || *duration > std::chrono::milliseconds(most_ms)) {
    return no("is not between " + std::to_string(least_ms) + "ms and " + std::to_string(most_ms) + "ms");
  }
  config.*member = *duration;
  return {};
}

template <auto member>
SetResult set_limit(Config& config, Values values) {
  constexpr std::size_t kMost = 100'000;
  const auto number = parse_number<std::size_t>(values[0]);
  if (!number || *number == 0 || *number > kMost) return no("is no number between 1 and 100000");
  config.*member = *number;
  return {};
}

template <auto member, metrics::EdgesId edges>
SetResult set_edges(Config& config, Values values) {
  std::vector<double> seconds;
  for (const std::string& value : values) {
    const auto duration = parse_duration(value);
    if (!duration || duration->count() == 0) return no("has '" + value + "', which is no duration such as 250ms");
    seconds.push_back(std::chrono::duration<double>(*duration).count());
  }
  std::sort(seconds.begin(), seconds.end());
  seconds.erase(std::unique(seconds.begin(), seconds.end()), seconds.end());
  if (auto all = metrics::edges_with(edges, seconds); !all) return no(all.error().why);
  config.*member = std::move(seconds);
  return {};
}

SetResult set_routes(Config& config, Values values) {
  if (values.size() > kRoutesMax) return no("has more than " + std::to_string(kRoutesMax) + " routes");
  for (const std::string& route : values) {
    if (route.empty() || route[0] != '/') return no("has '" + route + "', which does not begin with '/'");
    if (route.size() >= IW_TEXT_MAX) return no("has '" + route + "', which is longer than 63 bytes");
    if (route.find_first_of("?# \t*") != std::string::npos) {
      return no("has '" + route + "': a route is a plain path, without query or wildcard");
    }
  }
  config.routes.assign(values.begin(), values.end());
  return {};
}

SetResult set_ports(Config& config, Values values) {
  std::vector<std::uint16_t> ports;
  for (const std::string& value : values) {
    const auto port = parse_number<std::uint16_t>(value);
    if (!port || *port == 0) return no("has '" + value + "', which is no port");
    ports.push_back(*port);
  }
  config.ports = std::move(ports);
  return {};
}

SetResult set_peers(Config& config, Values values) {
  const auto classes = model::peer_classes();
  std::map<std::uint16_t, std::string> peers;
  for (const std::string& value : values) {
    const std::size_t equals = value.find('=');
    const auto port = parse_number<std::uint16_t>(std::string_view(value).substr(0, equals));
    if (equals == std::string::npos || !port || *port == 0) {
      return no("has '" + value + "', which is no PORT=CLASS such as 8000=inference");
    }
    std::string peer = value.substr(equals + 1);
    if (std::find(classes.begin(), classes.end(), peer) == classes.end()) {
      const std::vector<std::string> known(classes.begin(), classes.end());
      std::string why = "has '" + peer + "', which is no class";
      if (const auto nearest = nearest_name(peer, known)) why += "; did you mean '" + *nearest + "'?";
      why += " (";
      for (const std::string& name : known) why += (why.ends_with('(') ? "" : ", ") + name;
      return no(why + ")");
    }
    if (!peers.emplace(*port, std::move(peer)).second) return no("has port " + std::to_string(*port) + " twice");
  }
  config.peers = std::move(peers);
  return {};
}

SetResult set_deny(Config& config, Values values) {
  std::vector<std::string> words(values.begin(), values.end());
  if (const auto unknown = capture::unknown_deny_word(words)) {
    const auto nearest = nearest_name(*unknown, capture::deny_words());
    return no("has '" + *unknown + "', which is no hook" + (nearest ? "; did you mean '" + *nearest + "'?" : "") +
              " (`inferwire doctor` lists them)");
  }
  config.hooks_deny = std::move(words);
  return {};
}

constexpr std::array kKeys{
    ConfigKey{"listen", "ADDRESS:PORT", false, "127.0.0.1:9810", "Where /metrics, /healthz and /readyz are served.",
              set_listen},
    ConfigKey{
        "records", "FILE", false, "",
        "Append records of finished requests, resets and dropped connection attempts to this file, one JSON object a "
        "line; - is standard output.",
        set_file<&Config::records>},
    ConfigKey{"host_root", "DIR", false, "/", "Where the host's file system is seen, for an agent in a container.",
              set_file<&Config::host_root>},
    ConfigKey{"pod_logs", "DIR", false, "",
              "Where the kubelet's pods/ and containers/ log folders lie, whose names say what pods are called; "
              "<host_root>/var/log by default.",
              set_text<&Config::pod_logs>},
    ConfigKey{"kubernetes.pod_watch", "off|pods|kubelet", false, "off",
              "Ask for this node's pods, whose owners are then exact: `pods` lists and watches them at the API server "
              "(rights: get, list and watch on pods), `kubelet` polls this node's kubelet (right: get on nodes/pods). "
              "`node` must be the node's name in the cluster.",
              set_pod_watch},
    ConfigKey{"kubernetes.url", "URL", false, "",
              "Where the API server or the kubelet is; by default what KUBERNETES_SERVICE_HOST and _PORT say, and "
              "https://127.0.0.1:10250.",
              set_kubernetes_url},
    ConfigKey{"kubernetes.token_file", "FILE", false, "/var/run/secrets/kubernetes.io/serviceaccount/token",
              "Token of the service account; read before each request.", set_file<&Config::kubernetes_token_file>},
    ConfigKey{"kubernetes.ca_file", "FILE", false, "/var/run/secrets/kubernetes.io/serviceaccount/ca.crt",
              "Certificates that may have signed the server's, or the kubelet's own.",
              set_file<&Config::kubernetes_ca_file>},
    ConfigKey{"cgroup_root", "DIR", false, "",
              "Root of the host's cgroup v2 hierarchy; found by itself in the host's cgroup namespace.",
              set_file<&Config::cgroup_root>},
    ConfigKey{"node", "NAME", false, "", "Name of this node in records; the host name by default.",
              set_text<&Config::node>},
    ConfigKey{"socket", "PATH", false, "/run/inferwire/agent.sock",
              "Unix socket of `inferwire top`, for root only; empty for none.", set_socket},
    ConfigKey{"log_level", "LEVEL", false, "info", "debug, info, warn or error.", set_log_level},
    ConfigKey{"ringbuf_bytes", "SIZE", false, "4MiB",
              "Ring buffer between kernel and agent; rounded up to a power of two.", set_ringbuf},
    ConfigKey{"drain_interval", "DURATION", false, "20ms", "How often the ring buffer is read.",
              set_duration<&Config::drain_interval, 1, 1000>},
    ConfigKey{"idle_detach", "DURATION", false, "60s",
              "How long after the last followed connection the hooks on reads and sends stay attached: they fire for "
              "every socket of the node. Of a request that comes later, `read_wait` and `hold` may be missing until "
              "they are back (one `drain_interval`).",
              set_duration<&Config::idle_detach, 0, 3'600'000>},
    ConfigKey{"partial_interval", "DURATION", false, "5s", "How often open requests, sockets and TCP's sums are read.",
              set_duration<&Config::partial_interval, 100, 60'000>},
    ConfigKey{"series.label_sets", "NUMBER", false, "256",
              "Most label sets of a metric family; further ones share one set of `overflow` values.",
              set_limit<&Config::series_label_sets>},
    ConfigKey{"series.models", "NUMBER", false, "64", "Most model names in labels.", set_limit<&Config::series_models>},
    ConfigKey{"histograms.gap_edges", "DURATION", true, "",
              "Further bucket edges of the gaps between chunks, so that an objective can sit on one.",
              set_edges<&Config::gap_edges, metrics::EdgesId::kGaps>},
    ConfigKey{"histograms.ttft_edges", "DURATION", true, "",
              "Further bucket edges of times to first chunk and of durations.",
              set_edges<&Config::ttft_edges, metrics::EdgesId::kDurations>},
    ConfigKey{"routes", "PATH", true, "", "Paths to follow beside the known LLM routes; at most 32.", set_routes},
    ConfigKey{"ports", "PORT", true, "", "Server ports that a client's `port` label may name, beside the usual ones.",
              set_ports},
    ConfigKey{"peers", "PORT=CLASS", true, "",
              "What is behind a port, for the label `peer`: object_store, model_hub, vector_db, sql, cache, dns, nccl, "
              "kv_transfer, gateway, inference or other. The usual ports of databases, caches and DNS are known, and "
              "ports with LLM requests.",
              set_peers},
    ConfigKey{"hooks.deny", "HOOK", true, "",
              "Hooks, rungs or programs that are not to be used, such as getpeername or tp_btf.", set_deny},
    ConfigKey{"slo.ttft", "DURATION", false, "2s", "Objective for the time to first chunk; a bucket edge lies on it.",
              set_duration<&Config::slo_ttft, 1, 3'600'000>},
    ConfigKey{"slo.gap", "DURATION", false, "200ms",
              "Objective for the gap between two chunks; a bucket edge lies on it.",
              set_duration<&Config::slo_gap, 1, 3'600'000>},
    ConfigKey{"trace_chunks", "FILE", false, "",
              "Write the time of every delivery to this file, one JSON object a line; - is standard output. For "
              "accuracy measurements: costs one kernel record a delivery.",
              set_file<&Config::trace_chunks>},
    ConfigKey{"self_check", "true|false", false, "true",
              "Prove at start, by a stream from another cgroup, that traffic is seen.", set_self_check},
};

const ConfigKey* find_key(std::string_view name) {
  const auto at = std::find_if(kKeys.begin(), kKeys.end(), [&](const ConfigKey& key) { return key.name == name; });
  return at == kKeys.end() ? nullptr : &*at;
}

bool is_section(std::string_view name) {
  const std::string prefix = std::string(name) + ".";
  return std::any_of(kKeys.begin(), kKeys.end(), [&](const ConfigKey& key) { return key.name.starts_with(prefix); });
}

std::vector<std::string> split_commas(const std::string& text) {
  std::vector<std::string> parts;
  std::istringstream stream(text);
  for (std::string part; std::getline(stream, part, ',');) {
    const std::size_t begin = part.find_first_not_of(" \t");
    if (begin == std::string::npos) continue;
    parts.push_back(part.substr(begin, part.find_last_not_of(" \t") - begin + 1));
  }
  return parts;
}

// `where`: "inferwire.yaml:3", "flag --listen", "environment variable INFERWIRE_LISTEN".
base::Result<void> apply(Config& config, const ConfigKey& key, const std::vector<std::string>& given,
                         const std::string& where) {
  std::vector<std::string> values = given;
  if (key.list) {
    values.clear();
    for (const std::string& value : given) {
      for (std::string& part : split_commas(value)) values.push_back(std::move(part));
    }
  } else if (values.size() != 1) {
    return base::fail(kWhat, where, "key '" + std::string(key.name) + "' takes one value", "");
  }
  if (auto set = key.set(config, values); !set) {
    std::string shown;
    for (const std::string& value : values) shown += (shown.empty() ? "" : ",") + value;
    return base::fail(kWhat, where, "key '" + std::string(key.name) + "': '" + shown + "' " + set.error(),
                      "default: " + (key.preset.empty() ? std::string("none") : std::string(key.preset)));
  }
  return {};
}

std::string unknown_key_text(std::string_view name) {
  std::vector<std::string> known;
  for (const ConfigKey& key : kKeys) known.emplace_back(key.name);
  const auto nearest = nearest_name(name, known);
  return "unknown key '" + std::string(name) + "'" + (nearest ? "; did you mean '" + *nearest + "'?" : "");
}

class YamlReader {
 public:
  YamlReader(Config& config, const std::string& file) : config_(config), file_(file) {}

  base::Result<void> read(const YAML::Node& node, const std::string& prefix) {
    if (!node.IsMap()) return fail(node, prefix.empty() ? "keys are expected here" : "'" + prefix + "' takes keys", "");
    for (const auto& pair : node) {
      if (!pair.first.IsScalar()) return fail(pair.first, "a key must be a word", "");
      const std::string name = prefix.empty() ? pair.first.Scalar() : prefix + "." + pair.first.Scalar();
      if (auto done = read_key(pair.first, name, pair.second); !done) return done;
    }
    return {};
  }

 private:
  base::Result<void> read_key(const YAML::Node& at, const std::string& name, const YAML::Node& value) {
    if (is_section(name)) {
      if (value.IsNull()) return {};
      return read(value, name);
    }
    const ConfigKey* key = find_key(name);
    if (key == nullptr) return fail(at, unknown_key_text(name), "docs/configuration.md lists all keys");
    if (!seen_.insert(name).second) return fail(at, "key '" + name + "' is given twice", "keep one of them");

    std::vector<std::string> values;
    if (value.IsSequence() && key->list) {
      for (const YAML::Node& item : value) {
        if (!item.IsScalar()) return fail(item, "key '" + name + "' takes a list of plain values", "");
        values.push_back(item.Scalar());
      }
    } else if (value.IsMap() && key->value.find('=') != std::string_view::npos) {
      for (const auto& pair : value) {
        if (!pair.first.IsScalar() || !pair.second.IsScalar()) {
          return fail(pair.first, "key '" + name + "' takes pairs of plain values", "");
        }
        values.push_back(pair.first.Scalar() + "=" + pair.second.Scalar());
      }
    } else if (value.IsScalar()) {
      values.push_back(value.Scalar());
    } else if (value.IsNull() && key->list) {
      // an empty list
    } else {
      return fail(at, "key '" + name + "' takes " + (key->list ? "a list" : "one value"), "");
    }
    return apply(config_, *key, values, where(at));
  }

  std::string where(const YAML::Node& node) const { return file_ + ":" + std::to_string(node.Mark().line + 1); }
  base::Result<void> fail(const YAML::Node& node, const std::string& why, const std::string& fix) const {
    return base::fail(kWhat, where(node), why, fix);
  }

  Config& config_;
  const std::string& file_;
  std::set<std::string> seen_;
};

// Optimal string alignment: insert, delete, replace, swap of neighbours.
std::size_t edits_between(std::string_view a, std::string_view b) {
  std::vector<std::vector<std::size_t>> cost(a.size() + 1, std::vector<std::size_t>(b.size() + 1));
  for (std::size_t i = 0; i <= a.size(); ++i) cost[i][0] = i;
  std::iota(cost[0].begin(), cost[0].end(), std::size_t{0});
  for (std::size_t i = 1; i <= a.size(); ++i) {
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t replace = cost[i - 1][j - 1] + (a[i - 1] != b[j - 1]);
      cost[i][j] = std::min({cost[i - 1][j] + 1, cost[i][j - 1] + 1, replace});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) {
        cost[i][j] = std::min(cost[i][j], cost[i - 2][j - 2] + 1);
      }
    }
  }
  return cost[a.size()][b.size()];
}

}  // namespace

std::string ConfigKey::flag() const {
  std::string text = "--" + std::string(name);
  std::replace(text.begin(), text.end(), '_', '-');
  return text;
}

std::string ConfigKey::environment() const {
  std::string text = "INFERWIRE_" + std::string(name);
  for (char& c : text) c = c == '.' ? '_' : static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  return text;
}

std::span<const ConfigKey> config_keys() { return kKeys; }

std::optional<std::string> nearest_name(std::string_view name, std::span<const std::string> known) {
  const std::string* best = nullptr;
  std::size_t fewest = std::max<std::size_t>(2, name.size() / 3) + 1;
  const auto last_level = [](std::string_view text) { return text.substr(text.rfind('.') + 1); };
  for (const std::string& candidate : known) {
    // A key put at the wrong level, or written without its section, is near.
    const bool moved = last_level(candidate) == last_level(name);
    const std::size_t edits = moved ? 1 : edits_between(name, candidate);
    if (edits < fewest) {
      fewest = edits;
      best = &candidate;
    }
  }
  return best == nullptr ? std::nullopt : std::optional(*best);
}

Environment process_environment() {
  return [](const std::string& name) -> std::optional<std::string> {
    const char* value = std::getenv(name.c_str());
    if (value == nullptr) return std::nullopt;
    return std::string(value);
  };
}

base::Result<void> read_yaml(Config& config, const std::string& text, const std::string& file) {
  try {
    const YAML::Node root = YAML::Load(text);
    if (root.IsNull()) return {};
    return YamlReader(config, file).read(root, "");
  } catch (const YAML::Exception& error) {
    return base::fail(kWhat, file + ":" + std::to_string(error.mark.line + 1), "not YAML: " + error.msg, "");
  }
}

base::Result<Config> load_config(const std::string& file, const Environment& environment, const FlagValues& flags) {
  Config config;
  const std::string path = file.empty() ? environment("INFERWIRE_CONFIG").value_or("") : file;
  if (!path.empty()) {
    std::ifstream stream(path);
    std::ostringstream text;
    if (!stream || !(text << stream.rdbuf() || stream.eof())) {
      return base::fail(kWhat, path, base::errno_text(errno), "name a file that can be read with --config");
    }
    if (auto read = read_yaml(config, text.str(), path); !read) return tl::unexpected(read.error());
  }
  for (const ConfigKey& key : kKeys) {
    const auto value = environment(key.environment());
    if (!value) continue;
    auto set = apply(config, key, {*value}, "environment variable " + key.environment());
    if (!set) return tl::unexpected(set.error());
  }
  for (const auto& [name, values] : flags) {
    const ConfigKey* key = find_key(name);
    if (key == nullptr) return base::fail(kWhat, "flag --" + name, unknown_key_text(name), "");
    if (auto set = apply(config, *key, values, "flag " + key->flag()); !set) return tl::unexpected(set.error());
  }
  if (config.records == "-" && config.trace_chunks == "-") {
    return base::fail(kWhat, "", "records and trace_chunks cannot both be standard output", "give one of them a file");
  }
  return config;
}

std::string config_markdown() {
  std::ostringstream text;
  text
      << "# Configuration\n\n"
         "Made by `inferwire help --configuration`; do not edit.\n\n"
         "Each key can be given in a YAML file (`--config FILE` or `INFERWIRE_CONFIG`), in the environment, or as a\n"
         "flag of `inferwire agent`. Flags win over the environment, the environment over the file. An unknown or\n"
         "repeated key in the file is an error. Dots are levels: `series.models: 8` and `series: {models: 8}` are the\n"
         "same. Lists are YAML sequences, or separated by commas; pairs may be a YAML mapping. Durations have a unit\n"
         "(`250ms`, `5s`, `1m`), sizes may have one (`4MiB`).\n\n"
         "| key | flag | environment | value | default | meaning |\n"
         "| --- | --- | --- | --- | --- | --- |\n";
  for (const ConfigKey& key : kKeys) {
    std::string value(key.value);
    for (std::size_t at = 0; (at = value.find('|', at)) != std::string::npos; at += 2) value.insert(at, "\\");
    text << "| `" << key.name << "` | `" << key.flag() << "` | `" << key.environment() << "` | " << value
         << (key.list ? ", ..." : "") << " | " << (key.preset.empty() ? "" : "`" + std::string(key.preset) + "`")
         << " | " << key.help << " |\n";
  }
  return text.str();
}

std::optional<std::chrono::nanoseconds> parse_duration(std::string_view text) {
  const std::size_t unit_at = text.find_first_not_of("0123456789.");
  const std::string_view number = text.substr(0, unit_at);
  const std::string_view unit = unit_at == std::string_view::npos ? "" : text.substr(unit_at);
  const auto amount = parse_number<double>(number);
  if (!amount) return std::nullopt;
  double scale_ns = 0;
  if (unit == "ns") scale_ns = 1;
  if (unit == "us") scale_ns = 1e3;
  if (unit == "ms") scale_ns = 1e6;
  if (unit == "s") scale_ns = 1e9;
  if (unit == "m") scale_ns = 60e9;
  if (unit == "h") scale_ns = 3600e9;
  if (unit.empty() && *amount == 0) scale_ns = 1;
  const double ns = std::round(*amount * scale_ns);
  if (scale_ns == 0 || !(ns < 9e18)) return std::nullopt;
  return std::chrono::nanoseconds(static_cast<std::int64_t>(ns));
}

std::optional<std::uint64_t> parse_size(std::string_view text) {
  const std::size_t unit_at = text.find_first_not_of("0123456789");
  const auto amount = parse_number<std::uint64_t>(text.substr(0, unit_at));
  const std::string_view unit = unit_at == std::string_view::npos ? "" : text.substr(unit_at);
  unsigned shift = 0;
  if (unit == "KiB") shift = 10;
  if (unit == "MiB") shift = 20;
  if (unit == "GiB") shift = 30;
  if (!amount || (!unit.empty() && shift == 0) || *amount > (~0ull >> shift)) return std::nullopt;
  return *amount << shift;
}

std::optional<ListenAddress> parse_listen(std::string_view text) {
  const std::size_t colon = text.rfind(':');
  if (colon == std::string_view::npos) return std::nullopt;
  const auto port = parse_number<std::uint16_t>(text.substr(colon + 1));
  std::string_view host = text.substr(0, colon);
  if (!port) return std::nullopt;
  if (host.empty()) return std::nullopt;
  if (host.size() >= 2 && host.front() == '[' && host.back() == ']') {
    host = host.substr(1, host.size() - 2);
  } else if (host.find(':') != std::string_view::npos) {
    return std::nullopt;
  }
  return ListenAddress{std::string(host), *port};
}

}  // namespace inferwire::daemon
