// SPDX-License-Identifier: Apache-2.0
#include "agent/cli/show_groups.h"

#include <algorithm>
#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <utility>

namespace inferwire::cli {
namespace {

// Between hosts whose clocks differ, and between a mark and the packet that it stands for.
constexpr std::int64_t kClockSlackNs = 1'000'000'000;
// Within one host: a gateway may finish downstream a little before upstream is acknowledged.
constexpr std::int64_t kNestingSlackNs = 50'000'000;

constexpr std::size_t kNone = static_cast<std::size_t>(-1);

bool overlap(const ShownRequest& a, const ShownRequest& b, std::int64_t slack_ns) {
  return a.start_unix_ns <= b.end_unix_ns() + slack_ns && b.start_unix_ns <= a.end_unix_ns() + slack_ns;
}

std::int64_t distance(std::int64_t a, std::int64_t b) { return a < b ? b - a : a - b; }

struct Link {
  std::size_t parent = kNone;
  std::string_view joined_by;
};

class Grouping {
 public:
  explicit Grouping(const std::vector<ShownRequest>& requests)
      : requests_(requests), links_(requests.size()), children_(requests.size()) {
    for (std::size_t i = 0; i < requests.size(); ++i) by_start_.push_back(i);
    std::stable_sort(by_start_.begin(), by_start_.end(), [&](std::size_t a, std::size_t b) {
      return requests[a].start_unix_ns < requests[b].start_unix_ns;
    });
  }

  std::vector<Exchange> run() {
    join_connections();
    join_gateways();
    std::vector<Exchange> exchanges;
    for (const std::size_t i : by_start_) {
      if (links_[i].parent != kNone) continue;
      exchanges.emplace_back();
      add_hops(i, exchanges.back());
    }
    return exchanges;
  }

 private:
  void attach(std::size_t child, std::size_t parent, std::string_view joined_by) {
    links_[child] = {parent, joined_by};
    children_[parent].push_back(child);
  }

  // The server's record of each client's request.
  void join_connections() {
    std::map<std::pair<std::string, std::uint64_t>, std::vector<std::size_t>> servers;  // client's address, ordinal
    for (const std::size_t i : by_start_) {
      const ShownRequest& request = requests_[i];
      if (request.role == "server" && !request.remote.empty()) servers[{request.remote, request.ordinal}].push_back(i);
    }
    for (const std::size_t i : by_start_) {
      const ShownRequest& client = requests_[i];
      if (client.role != "client" || client.local.empty()) continue;
      const auto candidates = servers.find({client.local, client.ordinal});
      if (candidates == servers.end()) continue;
      std::size_t best = kNone;
      for (const std::size_t server : candidates->second) {
        if (links_[server].parent != kNone || !overlap(client, requests_[server], kClockSlackNs)) continue;
        if (best == kNone || is_better_server(client, requests_[server], requests_[best])) best = server;
      }
      if (best != kNone) attach(best, i, "connection");
    }
  }

  static bool is_better_server(const ShownRequest& client, const ShownRequest& a, const ShownRequest& b) {
    const bool a_mirrors = a.local == client.remote;
    const bool b_mirrors = b.local == client.remote;
    if (a_mirrors != b_mirrors) return a_mirrors;
    return distance(a.start_unix_ns, client.start_unix_ns) < distance(b.start_unix_ns, client.start_unix_ns);
  }

  // What tells processes apart: all that the record knows of it.
  static std::tuple<std::string, std::string, std::string, std::string, std::uint64_t> process_of(
      const ShownRequest& request) {
    const ShownOwner& owner = request.owner;
    const bool has_pid = owner.pid != 0;
    return {owner.node, owner.pod, has_pid ? std::string() : owner.workload, has_pid ? std::string() : owner.comm,
            owner.pid};
  }

  void join_gateways() {
    std::map<decltype(process_of(std::declval<ShownRequest>())), std::vector<std::size_t>> downstreams;
    for (const std::size_t i : by_start_) {
      if (requests_[i].role == "server") downstreams[process_of(requests_[i])].push_back(i);
    }
    // Certain ties first, so that they are not taken by nesting in time.
    for (const std::string_view by : {"trace", "response id", "time"}) {
      for (const std::size_t i : by_start_) {
        const ShownRequest& upstream = requests_[i];
        if (upstream.role != "client" || links_[i].parent != kNone) continue;
        const auto candidates = downstreams.find(process_of(upstream));
        if (candidates == downstreams.end()) continue;
        const std::size_t parent = downstream_of(i, candidates->second, by);
        if (parent != kNone) attach(i, parent, by);
      }
    }
  }

  std::size_t downstream_of(std::size_t upstream, const std::vector<std::size_t>& candidates, std::string_view by) {
    const ShownRequest& up = requests_[upstream];
    std::size_t best = kNone;
    for (const std::size_t candidate : candidates) {  // by start
      const ShownRequest& down = requests_[candidate];
      if (down.start_unix_ns > up.start_unix_ns + kNestingSlackNs) break;
      if (!overlap(down, up, 0) || hangs_below(candidate, upstream)) continue;
      if (by == "trace" && (up.trace_id.empty() || up.trace_id != down.trace_id)) continue;
      if (by == "response id" && (up.response_id.empty() || up.response_id != down.response_id)) continue;
      if (by == "time" && !fits_in_time(up, down, candidate)) continue;
      best = candidate;  // the latest that began before
    }
    return best;
  }

  bool fits_in_time(const ShownRequest& up, const ShownRequest& down, std::size_t down_index) const {
    if (up.start_unix_ns < down.start_unix_ns) return false;
    if (up.end_unix_ns() > down.end_unix_ns() + kNestingSlackNs && down.final) return false;
    if (!up.trace_id.empty() && !down.trace_id.empty()) return false;  // both say, and differ
    if (up.stream != down.stream && up.code == down.code) return false;
    const auto& children = children_[down_index];
    return std::none_of(children.begin(), children.end(),
                        [&](std::size_t child) { return overlap(requests_[child], up, 0); });
  }

  bool hangs_below(std::size_t below, std::size_t above) const {
    for (std::size_t at = below; at != kNone; at = links_[at].parent) {
      if (at == above) return true;
    }
    return false;
  }

  void add_hops(std::size_t root, Exchange& exchange) const {
    std::vector<std::pair<std::size_t, std::size_t>> waiting = {{root, 0}};  // and depth
    while (!waiting.empty()) {
      const auto [at, depth] = waiting.back();
      waiting.pop_back();
      exchange.hops.push_back({&requests_[at], depth, links_[at].joined_by});
      const auto& below = children_[at];
      for (auto child = below.rbegin(); child != below.rend(); ++child) waiting.emplace_back(*child, depth + 1);
    }
  }

  const std::vector<ShownRequest>& requests_;
  std::vector<std::size_t> by_start_;
  std::vector<Link> links_;
  std::vector<std::vector<std::size_t>> children_;
};

}  // namespace

std::vector<Exchange> group_exchanges(const std::vector<ShownRequest>& requests) { return Grouping(requests).run(); }

}  // namespace inferwire::cli
