// SPDX-License-Identifier: Apache-2.0
#include "agent/model/history.h"

#include <algorithm>

#include "agent/model/json_writer.h"

namespace inferwire::model {
namespace {

constexpr std::uint64_t kSecondNs = 1'000'000'000;
constexpr std::uint64_t kMinuteNs = 60 * kSecondNs;
constexpr std::uint64_t kSlotNs = 10 * kSecondNs;
constexpr std::size_t kSlotsMax = 7;             // a minute and the one being filled
constexpr std::size_t kEntryOverheadBytes = 64;  // of a deque entry and its string

bool within_last_minute(std::uint64_t end_ns, std::uint64_t now_ns) { return end_ns + kMinuteNs > now_ns; }

}  // namespace

void History::add(const Request& request, const Identity& who, std::string_view line, std::uint64_t now_ns) {
  finished_.push_back({now_ns, std::string(line)});
  bytes_ += line.size() + kEntryOverheadBytes;
  while (bytes_ > bytes_max_ && !finished_.empty()) {
    bytes_ -= finished_.front().line.size() + kEntryOverheadBytes;
    finished_.pop_front();
  }

  const std::uint64_t index = now_ns / kSlotNs;
  if (slots_.empty() || slots_.back().index != index) slots_.push_back({.index = index});
  while (slots_.size() > kSlotsMax) slots_.pop_front();
  Slot& slot = slots_.back();
  ++slot.finished_in_second[now_ns / kSecondNs];
  if (request.ttft_user_ns) rank(slot.by_ttft, *request.ttft_user_ns, now_ns, line);
  const std::uint64_t gap_ns = std::max(request.gaps_sent.max_ns, request.gaps_delivered.max_ns);
  if (gap_ns != 0) rank(slot.by_gap, gap_ns, now_ns, line);
  add_to_minute(request, who, now_ns);
}

void History::rank(std::vector<Ranked>& list, std::uint64_t rank_ns, std::uint64_t end_ns, std::string_view line) {
  if (list.size() == kWorst && list.back().rank_ns >= rank_ns) return;
  const auto at = std::upper_bound(list.begin(), list.end(), rank_ns,
                                   [](std::uint64_t ns, const Ranked& other) { return ns > other.rank_ns; });
  list.insert(at, {rank_ns, end_ns, std::string(line)});
  if (list.size() > kWorst) list.pop_back();
}

void History::add_to_minute(const Request& request, const Identity& who, std::uint64_t now_ns) {
  const std::uint64_t index = now_ns / kMinuteNs;
  if (minutes_.empty() || minutes_.back().index != index) minutes_.push_back({.index = index, .by_workload = {}});
  while (minutes_.size() > kMinutesMax) minutes_.pop_front();
  auto& by_workload = minutes_.back().by_workload;
  std::pair<std::string, std::uint8_t> key(who.name_space + "/" + who.workload, request.role);
  if (by_workload.size() >= kWorkloadsMax && !by_workload.contains(key)) key.first = "/overflow";
  Sums& sums = by_workload[key];
  ++sums.requests;
  sums.duration_ns += request.duration_ns;
  for (std::size_t phase = 0; phase < IW_PHASES_MAX; ++phase) {
    sums.phases_ns[phase] += request.phases_ns[phase].value_or(0);
  }
}

std::vector<std::string> History::worst(std::uint64_t now_ns, std::vector<Ranked> Slot::*list) const {
  std::vector<const Ranked*> all;
  for (const Slot& slot : slots_) {
    for (const Ranked& ranked : slot.*list) {
      if (within_last_minute(ranked.end_ns, now_ns)) all.push_back(&ranked);
    }
  }
  std::stable_sort(all.begin(), all.end(), [](auto* a, auto* b) { return a->rank_ns > b->rank_ns; });
  std::vector<std::string> lines;
  for (std::size_t i = 0; i < std::min(all.size(), kWorst); ++i) lines.push_back(all[i]->line);
  return lines;
}

std::vector<std::string> History::worst_by_ttft(std::uint64_t now_ns) const { return worst(now_ns, &Slot::by_ttft); }
std::vector<std::string> History::worst_by_gap(std::uint64_t now_ns) const { return worst(now_ns, &Slot::by_gap); }

std::uint64_t History::finished_last_minute(std::uint64_t now_ns) const {
  std::uint64_t requests = 0;
  for (const Slot& slot : slots_) {
    for (const auto& [second, count] : slot.finished_in_second) {
      if (within_last_minute(second * kSecondNs, now_ns)) requests += count;
    }
  }
  return requests;
}

std::string History::minutes_json(std::int64_t offset_ns) const {
  JsonWriter json;
  json.begin_array();
  for (const Minute& minute : minutes_) {
    const std::int64_t start_ns = static_cast<std::int64_t>(minute.index * kMinuteNs) + offset_ns;
    for (const auto& [key, sums] : minute.by_workload) {
      const auto& [name, role] = key;
      const std::size_t slash = name.find('/');
      json.begin_object();
      json.member("start_unix_ns", start_ns);
      json.known_member("namespace", std::string_view(name).substr(0, slash));
      json.known_member("workload", std::string_view(name).substr(slash + 1));
      json.known_member("role", role_name(role));
      json.member("requests", sums.requests);
      json.member("duration_ns", sums.duration_ns);
      json.begin_object("phases_ns");
      for (int phase = 0; phase < IW_PHASES_MAX; ++phase) {
        const std::string_view phase_label = phase_name(role, phase);
        if (!phase_label.empty()) json.member(phase_label, sums.phases_ns[static_cast<std::size_t>(phase)]);
      }
      json.end_object();
      json.end_object();
    }
  }
  json.end_array();
  return json.take();
}

}  // namespace inferwire::model
