// SPDX-License-Identifier: Apache-2.0
#include "agent/cli/show_tcp.h"

#include <algorithm>
#include <cstdio>
#include <map>
#include <tuple>

#include "agent/cli/show_render.h"

namespace inferwire::cli {
namespace {

struct Meaning {
  std::string_view name;
  std::string_view text;
};
constexpr Meaning kCauses[] = {
    {"no_listener", "nothing listened on the port"},
    {"listen_queue_full", "the accept queue was full, and tcp_abort_on_overflow is on"},
    {"abort_on_close", "the application closed it with data that it had not read"},
    {"abort_on_linger", "the application closed it with a linger time of 0"},
    {"abort_on_data", "data came in after the application had closed it"},
    {"on_data_after_close", "data came in when the connection was gone"},
    {"stale_reuse", "a request went out on a pooled connection that the other side had closed for idleness"},
    {"keepalive_timeout", "the peer did not answer keep-alive probes"},
    {"user_timeout", "the peer did not acknowledge data in time"},
    {"memory", "TCP was short of memory"},
    {"invalid_segment", "a segment came in that does not belong to the connection"},
    {"firewall", "it did not come from the peer itself, but from something in between"},
    {"peer", "the peer gave the connection up"},
    {"unknown", "nothing says why"},
};
constexpr Meaning kReasons[] = {
    {"accept_queue_full", "its accept queue was full"},
    {"syn_queue_full", "its SYN queue was full and SYN cookies are off"},
    {"max_syn_backlog", "too many handshakes were open and SYN cookies are off"},
    {"other", "memory was short, or a filter refused them"},
};

template <std::size_t N>
std::string_view meaning_in(const Meaning (&meanings)[N], std::string_view name) {
  for (const Meaning& meaning : meanings) {
    if (meaning.name == name) return meaning.text;
  }
  return {};
}

std::string ms_or_dash(const OptionalNumber& ns) { return ns ? ms_text(*ns) : "-"; }
std::string number_or_dash(const OptionalNumber& number) { return number ? std::to_string(*number) : "-"; }
std::string text_or_dash(std::string_view text, const Style& style) {
  return text.empty() ? "-" : safe_text(text, style.utf8);
}

std::string seconds_text(std::uint64_t ns) {
  char text[48];
  std::snprintf(text, sizeof text, "%.2f s", static_cast<double>(ns) / 1e9);
  return text;
}

// From the least to the most of what was seen.
struct Spread {
  OptionalNumber least, most;

  void add(const OptionalNumber& number) {
    if (!number) return;
    least = std::min(least.value_or(*number), *number);
    most = std::max(most.value_or(0), *number);
  }
  template <class Text>
  std::string text(const Text& text_of) const {
    if (*least == *most) return text_of(*least);
    return text_of(*least) + " to " + text_of(*most);
  }
};

std::string mark(const Style& style) { return style.utf8 ? "  » " : "  > "; }

struct ResetGroup {
  const ShownReset* first = nullptr;
  std::size_t count = 0;
  std::size_t cut = 0;  // requests that had begun and not ended
  Spread idle_ns, chunks;
};

std::string reset_sentence(const ResetGroup& group, const Style& style) {
  const ShownReset& r = *group.first;
  std::string text = (r.role.empty() ? "" : safe_text(r.role, style.utf8) + " ") + owner_text(r.owner, style) +
                     (r.direction == "sent" ? " sent " : " got ") +
                     (group.count == 1 ? "a reset" : std::to_string(group.count) + " resets") + ": ";
  const std::string_view meaning = reset_meaning(r.cause);
  text += meaning.empty() ? safe_text(r.cause, style.utf8) : std::string(meaning);
  if (r.cause == "stale_reuse" && group.idle_ns.least) text += ", idle for " + group.idle_ns.text(seconds_text);
  if (group.cut != 0) {
    text += group.cut == 1 ? "; a request was cut" : "; " + std::to_string(group.cut) + " requests were cut";
    if (group.chunks.most.value_or(0) != 0) {
      text += " after " + group.chunks.text([](std::uint64_t n) { return std::to_string(n); }) + " chunks";
    }
  }
  return mark(style) + text + "\n";
}

struct DropGroup {
  const ShownListenDrop* first = nullptr;
  std::uint64_t count = 0;
};

std::string drop_sentence(const DropGroup& group, const Style& style) {
  const ShownListenDrop& d = *group.first;
  std::string text = owner_text(d.owner, style) + " on " + safe_text(d.listener, style.utf8) + " dropped " +
                     std::to_string(group.count) + (group.count == 1 ? " connection attempt" : " connection attempts");
  const std::string_view reason = meaning_in(kReasons, d.reason);
  text += ": " + (reason.empty() ? safe_text(d.reason, style.utf8) : std::string(reason));
  if (!d.limit_name.empty() && d.limit_value) {
    text += ", the limit being " +
            (d.limit_name == "backlog" ? "the application's backlog" : safe_text(d.limit_name, style.utf8)) + " = " +
            std::to_string(*d.limit_value);
  }
  text += ".";
  if (!d.fix.empty()) text += " " + safe_text(d.fix, style.utf8);
  return mark(style) + text + "\n";
}

}  // namespace

std::string_view reset_meaning(std::string_view cause) { return meaning_in(kCauses, cause); }

std::string render_resets(const std::vector<ShownReset>& resets, const Style& style) {
  if (resets.empty()) return {};
  Table table({{"time (UTC)", false, 6},
               {"reset"},
               {"role"},
               {"who"},
               {"cause"},
               {"closed first", false, 4},
               {"idle ms", true, 3},
               {"age ms", true, 7},
               {"request", true, 5},
               {"chunks", true, 2},
               {"local", false, 10},
               {"remote", false, 9},
               {"kernel says", false, 8}});
  std::map<std::tuple<std::string, std::string, std::string, std::string>, ResetGroup> groups;
  for (const ShownReset& r : resets) {
    const std::string who = owner_text(r.owner, style);
    table.add_row({time_of_day(r.time_unix_ns), text_or_dash(r.direction, style), text_or_dash(r.role, style),
                   shorten(who, 24, style.utf8), style.red(text_or_dash(r.cause, style)),
                   text_or_dash(r.closed_first, style), ms_or_dash(r.idle_ns), ms_or_dash(r.age_ns),
                   number_or_dash(r.ordinal), number_or_dash(r.chunks), text_or_dash(r.local, style),
                   text_or_dash(r.remote, style), text_or_dash(r.kernel_reason, style)});
    ResetGroup& group = groups[{who, r.role, r.direction, r.cause}];
    if (group.first == nullptr) group.first = &r;
    ++group.count;
    group.cut += r.request_open;
    group.idle_ns.add(r.idle_ns);
    if (r.request_open) group.chunks.add(r.chunks);
  }
  std::string text =
      style.bold("Resets") + style.dim("  " + date_of(resets.front().time_unix_ns)) + "\n" + table.to_string(style);
  for (const auto& [key, group] : groups) text += reset_sentence(group, style);
  return text;
}

std::string render_listen_drops(const std::vector<ShownListenDrop>& drops, const Style& style) {
  if (drops.empty()) return {};
  Table table({{"time (UTC)", false, 2},
               {"listener"},
               {"who"},
               {"reason"},
               {"dropped", true},
               {"accept queue", true},
               {"SYN queue", true, 3},
               {"limit", false, 4}});
  std::map<std::tuple<std::string, std::string, std::string, std::string, OptionalNumber>, DropGroup> groups;
  for (const ShownListenDrop& d : drops) {
    const std::string who = owner_text(d.owner, style);
    const bool limited = !d.limit_name.empty() && d.limit_value;
    table.add_row({time_of_day(d.time_unix_ns), text_or_dash(d.listener, style), shorten(who, 24, style.utf8),
                   style.red(text_or_dash(d.reason, style)), std::to_string(d.count),
                   number_or_dash(d.accept_queue_length) + "/" + number_or_dash(d.accept_queue_limit),
                   number_or_dash(d.syn_queue_length),
                   limited ? safe_text(d.limit_name, style.utf8) + "=" + std::to_string(*d.limit_value) : "-"});
    DropGroup& group = groups[{d.listener, who, d.reason, d.limit_name, d.limit_value}];
    if (group.first == nullptr) group.first = &d;
    group.count += d.count;
  }
  std::string text = style.bold("Dropped connection attempts") + style.dim("  " + date_of(drops.front().time_unix_ns)) +
                     "\n" + table.to_string(style);
  for (const auto& [key, group] : groups) text += drop_sentence(group, style);
  return text;
}

}  // namespace inferwire::cli
