// SPDX-License-Identifier: Apache-2.0
// What `inferwire top` shows, as JSON: docs/records.md.
#include <algorithm>
#include <vector>

#include "agent/model/json.h"
#include "agent/model/json_writer.h"
#include "agent/model/tracker.h"

namespace inferwire::model {
namespace {

constexpr int kTopVersion = 1;

std::uint64_t since(std::uint64_t earlier_ns, std::uint64_t now_ns) {
  return now_ns > earlier_ns ? now_ns - earlier_ns : 0;
}

}  // namespace

std::string RequestTracker::top_json(std::uint64_t now_ns, const TcpModel* tcp, std::size_t open_shown) const {
  const auto silence_ns = [&](const View& view) {
    return view.last_content_ns == 0 || view.ended ? std::uint64_t{0} : since(view.last_content_ns, now_ns);
  };
  std::vector<std::pair<const Key*, const Open*>> shown;
  shown.reserve(open_.size());
  for (const auto& [key, open] : open_) shown.push_back({&key, &open});
  const auto quieter = [&](const auto& a, const auto& b) {
    const std::uint64_t silence_a = silence_ns(a.second->view);
    const std::uint64_t silence_b = silence_ns(b.second->view);
    return silence_a != silence_b ? silence_a > silence_b : a.second->view.start_ns < b.second->view.start_ns;
  };
  const std::size_t kept = std::min(shown.size(), open_shown);
  std::partial_sort(shown.begin(), shown.begin() + static_cast<std::ptrdiff_t>(kept), shown.end(), quieter);

  JsonWriter json;
  json.begin_object();
  json.member("type", "top");
  json.member("v", kTopVersion);
  json.member("now_unix_ns", static_cast<std::int64_t>(now_ns) + clock_.mono_to_unix_offset_ns);
  const TrackerStatus now = status();
  json.member("open_requests", now.open_requests);
  json.member("open_streams", now.open_streams);
  json.member("open_omitted", shown.size() - kept);
  json.begin_array("open");
  for (std::size_t i = 0; i < kept; ++i) {
    const View& view = shown[i].second->view;
    const Identity& who = *shown[i].second->who;
    json.begin_object();
    json.member("conn_id", connection_id(shown[i].first->cookie));
    json.member("ordinal", view.ordinal);
    json.known_member("role", role_name(view.role));
    json.known_member("namespace", who.name_space);
    json.known_member("workload", who.workload);
    json.known_member("pod", who.pod);
    json.known_member("comm", who.comm);
    json.member("local", view.local);
    json.member("remote", view.remote);
    json.member("route", route_name(view.route, options_.settings));
    json.known_member("model", view.model);
    if (view.code != 0) json.member("code", view.code);
    json.member("stream", view.stream);
    json.member("phase", phase_name(view.role, view.phase));
    json.member("age_ns", since(view.start_ns, now_ns));
    if (view.ttft_ns != 0) json.member("ttft_ns", view.ttft_ns);
    if (view.stream) json.member("chunks", view.chunks);
    if (view.chunks > 1 && view.last_content_ns > view.content_ns) {
      const double span_s = static_cast<double>(view.last_content_ns - view.content_ns) / 1e9;
      json.member("chunks_per_s", (view.chunks - 1) / span_s);
    }
    if (view.recent_gap_ns != 0) json.member("recent_gap_ns", view.recent_gap_ns);
    if (view.gap_max_ns != 0) json.member("gap_max_ns", view.gap_max_ns);
    if (view.last_content_ns != 0 && !view.ended) json.member("silence_ns", silence_ns(view));
    json.end_object();
  }
  json.end_array();

  if (tcp != nullptr) tcp->write_top(json);

  json.begin_object("last_minute");
  json.member("finished", history_.finished_last_minute(now_ns));
  json.begin_array("worst_ttft");
  for (const std::string& line : history_.worst_by_ttft(now_ns)) json.raw(line);
  json.end_array();
  json.begin_array("worst_gap");
  for (const std::string& line : history_.worst_by_gap(now_ns)) json.raw(line);
  json.end_array();
  json.end_object();
  json.begin_object("tracker");
  json.member("finished_total", now.finished_total);
  json.member("forgotten_total", now.forgotten_total);
  json.member("stale_total", now.stale_total);
  json.member("unfollowed_total", now.unfollowed_total);
  json.member("history_bytes", history_.bytes());
  json.end_object();
  json.end_object();
  return json.take();
}

}  // namespace inferwire::model
