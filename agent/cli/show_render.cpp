// SPDX-License-Identifier: Apache-2.0
#include "agent/cli/show_render.h"

#include <algorithm>
#include <cstdio>

namespace inferwire::cli {
namespace {

constexpr std::size_t kBarMax = 120;
constexpr std::size_t kLabelColumns = 35;  // of a waterfall line, before the bar
// Phases shorter than this are listed by name only, unless they are the longest.
constexpr std::uint64_t kTooShortNs = 5'000;

struct Meaning {
  std::string_view phase;
  std::string_view text;
};
constexpr Meaning kMeanings[] = {
    {"send", "the request on its way to the server"},
    {"upload", "the request coming in"},
    {"accept_wait", "the connection waiting to be accepted"},
    {"read_wait", "the request waiting to be read by the application"},
    {"server", "the application working towards the first content"},
    {"wait", "waiting for the first content"},
    {"hold", "the first content held back in the kernel"},
    {"first_delivery", "the first content on its way to the client"},
    {"first_read", "the first content waiting to be read"},
    {"stream", "the rest of the answer"},
    {"drain", "the last bytes on their way"},
};

std::string who(const ShownRequest& request, const Style& style) { return owner_text(request.owner, style); }

std::string code_text(const ShownRequest& request, const Style& style) {
  if (request.code == 0) return "-";
  const std::string text = std::to_string(request.code);
  return request.code >= 400 ? style.red(text) : text;
}

std::string outcome_text(const ShownRequest& request, const Style& style) {
  if (!request.final) return style.yellow("open");
  const std::string text = request.outcome.empty() ? "?" : safe_text(request.outcome, style.utf8);
  return request.outcome == "complete" ? text : style.red(text);
}

std::string tree_prefix(std::size_t depth, const Style& style) {
  if (depth == 0) return {};
  return std::string((std::min<std::size_t>(depth, 8) - 1) * 2, ' ') + (style.utf8 ? "└ " : "` ");
}

std::string ms_or_dash(const OptionalNumber& ns) { return ns ? ms_text(*ns) : "-"; }
std::string number_or_dash(const OptionalNumber& number) { return number ? std::to_string(*number) : "-"; }

OptionalNumber ttft_of(const ShownRequest& request) {
  return request.role == "server" && request.ttft_server_ns ? request.ttft_server_ns : request.ttft_user_ns;
}

// A server decides when it sends; a client when it gets.
const ShownGaps& gaps_of(const ShownRequest& request) {
  return request.sent.max_ns ? request.sent : request.delivered_gaps;
}

std::string gaps_text(const ShownGaps& gaps) {
  if (!gaps.max_ns) return "-";
  return ms_or_dash(gaps.p50_ns) + "/" + ms_or_dash(gaps.p99_ns) + "/" + ms_text(*gaps.max_ns);
}

std::string all_gaps_text(const ShownGaps& gaps) {
  if (!gaps.mean_ns) return "p50/p99/max " + gaps_text(gaps) + " ms";
  return "mean/p50/p99/max " + ms_text(*gaps.mean_ns) + "/" + gaps_text(gaps) + " ms";
}

std::string rtt_text(std::uint64_t us) {
  char text[32];
  std::snprintf(text, sizeof text, us < 100'000 ? "%.2f" : "%.1f", static_cast<double>(us) / 1000);
  return text;
}

std::string percent_text(std::uint64_t part, std::uint64_t whole) {
  if (whole == 0) return "0 %";
  char text[32];
  std::snprintf(text, sizeof text, "%.0f %%", 100 * static_cast<double>(part) / static_cast<double>(whole));
  return text;
}

// ---- Details of one hop ----

std::vector<std::string> connection_parts(const ShownRequest& r, const Style& style) {
  std::vector<std::string> parts;
  std::string before;
  const auto add = [&](std::string_view what, const OptionalNumber& ns) {
    if (ns) before += (before.empty() ? "before: " : ", ") + std::string(what) + " " + ms_text(*ns);
  };
  add("handshake", r.handshake_ns);
  add("accept wait", r.accept_wait_ns);
  add("idle", r.idle_before_ns);
  if (!before.empty()) parts.push_back(before + " ms");
  if (r.ordinal > 1) parts.push_back("request " + std::to_string(r.ordinal) + " of its connection");
  if (!r.reset_by.empty()) {
    parts.push_back("reset by the " + safe_text(r.reset_by, style.utf8));
  }
  if (!r.closed_first.empty() && r.closed_first != r.reset_by) {
    parts.push_back("closed first by the " + safe_text(r.closed_first, style.utf8));
  }
  if (r.request_bytes && r.response_bytes) {
    parts.push_back(bytes_text(*r.request_bytes) + " up, " + bytes_text(*r.response_bytes) + " down");
  }
  return parts;
}

std::vector<std::string> answer_parts(const ShownRequest& r, const Style& style) {
  std::vector<std::string> parts;
  if (r.ttft_server_ns) parts.push_back("TTFT server view " + ms_text(*r.ttft_server_ns) + " ms");
  if (r.ttft_user_ns) parts.push_back("TTFT user view " + ms_text(*r.ttft_user_ns) + " ms");
  if (!r.ttft_server_ns && !r.ttft_user_ns && r.ttfb_ns) parts.push_back("TTFB " + ms_text(*r.ttfb_ns) + " ms");
  if (r.queue_ns) parts.push_back("server says: queue " + ms_text(*r.queue_ns) + " ms");
  if (r.load_ns) parts.push_back("server says: load " + ms_text(*r.load_ns) + " ms");
  if (r.prefill_ns) parts.push_back("server says: prefill " + ms_text(*r.prefill_ns) + " ms");
  if (r.chunks) {
    std::string chunks = std::to_string(*r.chunks) + " chunks";
    if (r.deliveries) chunks += " in " + std::to_string(*r.deliveries) + " deliveries";
    parts.push_back(chunks);
  }
  if (r.tokens_output || r.tokens_input) {
    parts.push_back("tokens " + number_or_dash(r.tokens_input) + " in, " + number_or_dash(r.tokens_output) + " out");
  }
  if (r.time_per_token_ns) parts.push_back(ms_text(*r.time_per_token_ns) + " ms a token");
  if (!r.finish_reason.empty()) parts.push_back("finish: " + safe_text(r.finish_reason, style.utf8));
  return parts;
}

std::vector<std::string> path_parts(const ShownRequest& r, const Style& style) {
  std::vector<std::string> parts;
  if (r.sent.max_ns) parts.push_back("gaps sent " + all_gaps_text(r.sent));
  if (r.delivered_gaps.max_ns) {
    const std::string how = r.delivered == "estimated" ? " (estimated)" : "";
    parts.push_back("gaps delivered " + all_gaps_text(r.delivered_gaps) + how);
  }
  if (r.rtt_mean_us) {
    parts.push_back("RTT min/mean/max " + rtt_text(r.rtt_min_us.value_or(*r.rtt_mean_us)) + "/" +
                    rtt_text(*r.rtt_mean_us) + "/" + rtt_text(r.rtt_max_us.value_or(*r.rtt_mean_us)) + " ms");
  }
  for (const auto& [phase, types] : r.retransmits) {
    std::string text = "retransmitted in " + safe_text(phase, style.utf8) + ":";
    for (const auto& [type, count] : types) text += " " + std::to_string(count) + " " + safe_text(type, style.utf8);
    parts.push_back(text);
  }
  if (r.early_response) parts.push_back("answered before the request had ended");
  if (r.approximate) parts.push_back("approximate: some bytes could not be put in order");
  return parts;
}

// ---- Waterfall ----

struct Axis {
  std::int64_t start_ns = 0;
  std::int64_t end_ns = 0;
  double at(std::int64_t ns) const {
    return end_ns > start_ns ? static_cast<double>(ns - start_ns) / static_cast<double>(end_ns - start_ns) : 0;
  }
};

Axis axis_of(const Exchange& exchange) {
  Axis axis{exchange.hops.front().request->start_unix_ns, exchange.hops.front().request->end_unix_ns()};
  for (const Hop& hop : exchange.hops) {
    axis.start_ns = std::min(axis.start_ns, hop.request->start_unix_ns);
    axis.end_ns = std::max(axis.end_ns, hop.request->end_unix_ns());
  }
  return axis;
}

std::string phase_line(const ShownPhase& phase, std::int64_t start_ns, const Axis& axis, const ShownRequest& r,
                       bool longest, const Style& style) {
  const std::size_t columns = std::min(style.width - kLabelColumns, kBarMax);
  const std::string label = pad_right(safe_text(phase.name, style.utf8), 14) + " " + pad_left(ms_text(phase.ns), 10) +
                            pad_left(percent_text(phase.ns, r.duration_ns), 6);
  std::string drawn =
      bar(axis.at(start_ns), axis.at(start_ns + static_cast<std::int64_t>(phase.ns)), columns, style.utf8);
  while (drawn.ends_with(' ')) drawn.pop_back();
  const auto paint = [&](std::string_view text) { return longest ? style.yellow(text) : std::string(text); };
  return "  " + paint(label) + "  " + paint(drawn) + "\n";
}

std::string joined_names(const std::vector<std::string>& names, const Style& style) {
  std::string text;
  for (const std::string& name : names) text += (text.empty() ? "" : ", ") + safe_text(name, style.utf8);
  return text;
}

std::string phases_text(const ShownRequest& r, const Axis& axis, std::string_view longest, const Style& style) {
  std::string text;
  std::vector<std::string> too_short;
  std::int64_t at_ns = r.start_unix_ns;
  for (const ShownPhase& phase : r.phases) {
    if (phase.ns < kTooShortNs && phase.name != longest) {
      too_short.push_back(phase.name);
    } else {
      text += phase_line(phase, at_ns, axis, r, phase.name == longest, style);
    }
    at_ns += static_cast<std::int64_t>(phase.ns);
  }
  std::vector<std::string> parts;
  if (!too_short.empty()) parts.push_back("0.00: " + joined_names(too_short, style));
  if (!r.phases_missing.empty()) {
    parts.push_back("not told apart from the next phase (hold: from the previous): " +
                    joined_names(r.phases_missing, style));
  }
  return text + flow(parts, 2, style);
}

std::string hop_title(const Hop& hop, const Style& style) {
  const ShownRequest& r = *hop.request;
  const std::string arrow = r.role == "client" ? (style.utf8 ? " → " : " -> ") : (style.utf8 ? " ← " : " <- ");
  std::string text = tree_prefix(hop.depth, style) + style.bold(r.role.empty() ? "?" : safe_text(r.role, style.utf8)) +
                     "  " + style.bold(who(r, style));
  if (r.owner.pid != 0) text += " (pid " + std::to_string(r.owner.pid) + ")";
  text += "  " + safe_text(r.local, style.utf8) + arrow + safe_text(r.remote, style.utf8);
  text += "  " + style.bold(ms_text(r.duration_ns) + " ms");
  if (!hop.joined_by.empty() && hop.joined_by != "connection") text += style.dim("  by " + std::string(hop.joined_by));
  return text + "\n";
}

std::string exchange_title(const Exchange& exchange, std::size_t number, const Style& style) {
  const ShownRequest& r = *exchange.hops.front().request;
  std::string text = "#" + std::to_string(number) + "  " + safe_text(r.method, style.utf8) +
                     (r.method.empty() ? "" : " ") + safe_text(r.route, style.utf8) + "  " + code_text(r, style) + " " +
                     outcome_text(r, style);
  for (const Hop& hop : exchange.hops) {
    if (hop.request->model.empty()) continue;
    text += "  model " + safe_text(hop.request->model, style.utf8);
    break;
  }
  return style.bold(text) + "\n";
}

std::string verdict_line(const Axis& axis, const Verdict& verdict, const Style& style) {
  if (verdict.request == nullptr || verdict.ns == 0) return {};
  const ShownRequest& r = *verdict.request;
  const std::string mark = style.utf8 ? "» " : "> ";
  const std::string most = "most time: " + safe_text(verdict.phase, style.utf8) + ", " + ms_text(verdict.ns) + " ms (" +
                           percent_text(verdict.ns, static_cast<std::uint64_t>(axis.end_ns - axis.start_ns)) + "), " +
                           safe_text(r.role, style.utf8) + " " + who(r, style);
  std::string text = "  " + mark + style.yellow(most);
  const std::string_view meaning = phase_meaning(verdict.phase);
  if (meaning.empty()) return text + "\n";
  const std::string why = ": " + std::string(meaning);
  if (display_width(text) + display_width(why) <= style.width) return text + why + "\n";
  return text + "\n" + flow({std::string(meaning)}, 4, style);
}

std::string longest_phase_text(const ShownRequest& r, const Style& style) {
  const auto longest = std::max_element(r.phases.begin(), r.phases.end(),
                                        [](const ShownPhase& a, const ShownPhase& b) { return a.ns < b.ns; });
  if (longest == r.phases.end()) return "-";
  return safe_text(longest->name, style.utf8) + " " + percent_text(longest->ns, r.duration_ns);
}

// How much of [begin, end) the hops right below `index` were at work.
std::uint64_t covered_below_ns(const Exchange& exchange, std::size_t index, std::uint64_t begin, std::uint64_t end) {
  std::uint64_t covered = 0;
  for (std::size_t i = index + 1; i < exchange.hops.size(); ++i) {
    if (exchange.hops[i].depth <= exchange.hops[index].depth) break;
    if (exchange.hops[i].depth != exchange.hops[index].depth + 1) continue;
    const ShownRequest& below = *exchange.hops[i].request;
    const auto from = std::max<std::uint64_t>(begin, static_cast<std::uint64_t>(below.start_unix_ns));
    const auto to = std::min<std::uint64_t>(end, static_cast<std::uint64_t>(below.start_unix_ns) + below.duration_ns);
    if (to > from) covered += to - from;
  }
  return std::min(covered, end - begin);
}

// Phases in which a hop may be waiting for the next one.
bool is_explained_below(std::string_view phase) { return phase == "server" || phase == "wait" || phase == "stream"; }

}  // namespace

std::string owner_text(const ShownOwner& owner, const Style& style) {
  const std::string& name = owner.workload.empty() ? owner.comm : owner.workload;
  if (name.empty()) return "?";
  return safe_text(owner.name_space.empty() ? name : owner.name_space + "/" + name, style.utf8);
}

std::string_view phase_meaning(std::string_view phase) {
  for (const Meaning& meaning : kMeanings) {
    if (meaning.phase == phase) return meaning.text;
  }
  return {};
}

Verdict longest_phase(const Exchange& exchange) {
  Verdict longest;
  for (std::size_t i = 0; i < exchange.hops.size(); ++i) {
    const ShownRequest& request = *exchange.hops[i].request;
    auto at = static_cast<std::uint64_t>(request.start_unix_ns);
    for (const ShownPhase& phase : request.phases) {
      std::uint64_t own_ns = phase.ns;
      if (is_explained_below(phase.name)) own_ns -= covered_below_ns(exchange, i, at, at + phase.ns);
      at += phase.ns;
      if (longest.request == nullptr || own_ns > longest.ns) longest = {&request, phase.name, own_ns};
    }
  }
  return longest;
}

std::string render_table(const std::vector<Exchange>& exchanges, const Style& style) {
  Table table({{"#", true},
               {"start (UTC)", false, 7},
               {"role"},
               {"who"},
               {"route", false, 9},
               {"code", true},
               {"outcome"},
               {"ms", true},
               {"TTFT ms", true},
               {"chunks", true, 1},
               {"tokens", true, 5},
               {"gap p50/p99/max ms", true, 6},
               {"RTT ms", true, 8},
               {"retrans", true, 4},
               {"longest phase", false, 3}});
  const std::size_t name_columns = style.width >= 120 ? 28 : 16;
  std::string date;
  for (std::size_t number = 1; number <= exchanges.size(); ++number) {
    for (const Hop& hop : exchanges[number - 1].hops) {
      const ShownRequest& r = *hop.request;
      const bool first = hop.depth == 0;
      if (date.empty()) date = date_of(r.start_unix_ns);
      table.add_row({first ? std::to_string(number) : "", time_of_day(r.start_unix_ns),
                     tree_prefix(hop.depth, style) + safe_text(r.role, style.utf8),
                     shorten(who(r, style), name_columns, style.utf8),
                     shorten(safe_text(r.route, style.utf8), 32, style.utf8), code_text(r, style),
                     outcome_text(r, style), ms_text(r.duration_ns), ms_or_dash(ttft_of(r)), number_or_dash(r.chunks),
                     number_or_dash(r.tokens_output), gaps_text(gaps_of(r)),
                     r.rtt_mean_us ? rtt_text(*r.rtt_mean_us) : "-", number_or_dash(r.retransmitted),
                     longest_phase_text(r, style)});
    }
  }
  return (date.empty() ? "" : style.dim(date) + "\n") + table.to_string(style);
}

std::string render_waterfall(const Exchange& exchange, std::size_t number, const Style& style) {
  if (exchange.hops.empty()) return {};
  const Axis axis = axis_of(exchange);
  const Verdict verdict = longest_phase(exchange);
  std::string text = exchange_title(exchange, number, style) + verdict_line(axis, verdict, style);
  for (const Hop& hop : exchange.hops) {
    const ShownRequest& r = *hop.request;
    const std::string_view longest = verdict.request == &r ? std::string_view(verdict.phase) : std::string_view();
    text += hop_title(hop, style) + phases_text(r, axis, longest, style);
    text += flow(connection_parts(r, style), 2, style) + flow(answer_parts(r, style), 2, style) +
            flow(path_parts(r, style), 2, style);
  }
  return text;
}

std::string render_legend(const std::vector<Exchange>& exchanges, const Style& style) {
  std::vector<std::string_view> seen;
  for (const Exchange& exchange : exchanges) {
    for (const Hop& hop : exchange.hops) {
      for (const ShownPhase& phase : hop.request->phases) seen.push_back(phase.name);
    }
  }
  std::string text;
  for (const Meaning& meaning : kMeanings) {
    if (std::find(seen.begin(), seen.end(), meaning.phase) == seen.end()) continue;
    text += "  " + pad_right(std::string(meaning.phase), 14) + "  " + style.dim(meaning.text) + "\n";
  }
  return text.empty() ? text : "Phases\n" + text;
}

}  // namespace inferwire::cli
