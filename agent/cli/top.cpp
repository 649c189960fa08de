// SPDX-License-Identifier: Apache-2.0
#include "agent/cli/top.h"

#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <iostream>
#include <nlohmann/json.hpp>
#include <optional>
#include <thread>

#include "agent/base/handle.h"
#include "agent/cli/show_groups.h"
#include "agent/cli/show_records.h"
#include "agent/cli/show_render.h"

namespace inferwire::cli {
namespace {

using Json = nlohmann::json;

constexpr int kPatienceMs = 5000;
constexpr std::size_t kAnswerBytesMax = 64u << 20;
constexpr std::chrono::seconds kInterval{2};
constexpr std::size_t kOpenRowsMax = 40;
constexpr std::size_t kListenerRowsMax = 12;

std::string text_of(const Json& object, const char* name, const Style& style) {
  const auto found = object.find(name);
  if (found == object.end() || !found->is_string()) return {};
  return safe_text(found->get<std::string>(), style.utf8);
}

OptionalNumber number_of(const Json& object, const char* name) {
  const auto found = object.find(name);
  if (found == object.end() || !found->is_number_unsigned()) return std::nullopt;
  return found->get<std::uint64_t>();
}

std::string ms_or_dash(const OptionalNumber& ns) { return ns ? ms_text(*ns) : "-"; }

std::string seconds_text(std::uint64_t ns) {
  char text[32];
  std::snprintf(text, sizeof text, "%.1f", static_cast<double>(ns) / 1e9);
  return text;
}

std::string who_of(const Json& open, const Style& style) {
  const std::string workload = text_of(open, "workload", style);
  const std::string name = workload.empty() ? text_of(open, "comm", style) : workload;
  const std::string name_space = text_of(open, "namespace", style);
  return name_space.empty() ? name : name_space + "/" + name;
}

std::string open_table(const Json& open, const Style& style) {
  Table table({{"age s", true},
               {"role"},
               {"who"},
               {"route", false, 8},
               {"model", false, 7},
               {"phase"},
               {"TTFT ms", true, 3},
               {"chunks", true},
               {"chunks/s", true, 2},
               {"gap ms", true, 4},
               {"gap max ms", true, 1},
               {"silent ms", true},
               {"remote", false, 9}});
  std::size_t rows = 0;
  for (const Json& request : open) {
    if (!request.is_object()) continue;
    if (++rows > kOpenRowsMax) break;
    const auto rate = request.find("chunks_per_s");
    char rate_text[32] = "-";
    if (rate != request.end() && rate->is_number()) {
      std::snprintf(rate_text, sizeof rate_text, "%.1f", rate->get<double>());
    }
    const OptionalNumber chunks = number_of(request, "chunks");
    table.add_row({seconds_text(number_of(request, "age_ns").value_or(0)), text_of(request, "role", style),
                   shorten(who_of(request, style), 24, style.utf8),
                   shorten(text_of(request, "route", style), 32, style.utf8),
                   shorten(text_of(request, "model", style), 24, style.utf8), text_of(request, "phase", style),
                   ms_or_dash(number_of(request, "ttft_ns")), chunks ? std::to_string(*chunks) : "-", rate_text,
                   ms_or_dash(number_of(request, "recent_gap_ns")), ms_or_dash(number_of(request, "gap_max_ns")),
                   ms_or_dash(number_of(request, "silence_ns")), text_of(request, "remote", style)});
  }
  return table.to_string(style);
}

std::string listeners_table(const Json& listeners, const Style& style) {
  Table table({{"listener"},
               {"who"},
               {"waiting", true},
               {"limit", true},
               {"SYN queue", true, 2},
               {"dropped", true},
               {"cookies", true, 3},
               {"why", false, 1}});
  std::size_t rows = 0;
  for (const Json& listener : listeners) {
    if (!listener.is_object()) continue;
    if (++rows > kListenerRowsMax) break;
    std::uint64_t dropped = 0;
    std::string why;
    if (const auto drops = listener.find("drops"); drops != listener.end() && drops->is_object()) {
      for (const auto& [reason, count] : drops->items()) {
        if (!count.is_number_unsigned()) continue;
        dropped += count.get<std::uint64_t>();
        why += (why.empty() ? "" : ", ") + safe_text(reason, style.utf8);
      }
    }
    const auto number = [&](const char* name) { return std::to_string(number_of(listener, name).value_or(0)); };
    table.add_row({text_of(listener, "listener", style), shorten(who_of(listener, style), 24, style.utf8),
                   number("accept_queue_length"), number("accept_queue_limit"), number("syn_queue_length"),
                   dropped == 0 ? "0" : style.red(std::to_string(dropped)), number("syncookies"), why});
  }
  return table.to_string(style);
}

std::string connections_table(const Json& connections, const Style& style) {
  Table table({{"who"}, {"connections", true}, {"by state"}});
  std::size_t rows = 0;
  for (const Json& row : connections) {
    if (!row.is_object()) continue;
    if (++rows > kListenerRowsMax) break;
    std::string states;
    if (const auto found = row.find("states"); found != row.end() && found->is_object()) {
      for (const auto& [state, count] : found->items()) {
        if (!count.is_number_unsigned()) continue;
        states += (states.empty() ? "" : ", ") + std::to_string(count.get<std::uint64_t>()) + " " +
                  safe_text(state, style.utf8);
      }
    }
    table.add_row(
        {shorten(who_of(row, style), 24, style.utf8), std::to_string(number_of(row, "total").value_or(0)), states});
  }
  return table.to_string(style);
}

// Records as the table of `show`, hops of one exchange together, the worst exchange first as in `records`.
std::string worst_table(const Json& records, const Style& style) {
  std::vector<ShownRequest> requests;
  for (const Json& record : records) {
    ShownRequest request;
    std::string why;
    if (parse_request(record.dump(-1, ' ', false, Json::error_handler_t::replace), request, why)) {
      requests.push_back(std::move(request));
    }
  }
  std::vector<Exchange> exchanges = group_exchanges(requests);
  const auto rank = [](const Exchange& exchange) {
    const ShownRequest* worst = exchange.hops.front().request;  // they lie in one vector, worst first
    for (const Hop& hop : exchange.hops) worst = std::min(worst, hop.request);
    return worst;
  };
  std::stable_sort(exchanges.begin(), exchanges.end(),
                   [&](const Exchange& a, const Exchange& b) { return rank(a) < rank(b); });
  return exchanges.empty() ? "  none\n" : render_table(exchanges, style);
}

const Json* array_in(const Json& object, const char* name) {
  const auto found = object.find(name);
  return found != object.end() && found->is_array() ? &*found : nullptr;
}

base::Result<std::string> screen_of(std::string_view json, const Style& style) {
  const Json top = Json::parse(json, nullptr, /*allow_exceptions=*/false);
  const Json* open = top.is_object() ? array_in(top, "open") : nullptr;
  if (open == nullptr || text_of(top, "type", style) != "top") {
    return base::fail("read", "the agent's answer", "it is no answer to `top`", "use the same version of both");
  }
  std::string text = style.bold("open requests: " + std::to_string(number_of(top, "open_requests").value_or(0)) +
                                ", of these streams: " + std::to_string(number_of(top, "open_streams").value_or(0))) +
                     "\n";
  if (!open->empty()) text += open_table(*open, style);
  const std::uint64_t omitted =
      number_of(top, "open_omitted").value_or(0) + open->size() - std::min(open->size(), kOpenRowsMax);
  if (omitted != 0) text += "  and " + std::to_string(omitted) + " more, silent for less long\n";

  const auto omitted_line = [&](const Json& rows, const char* name) {
    const std::uint64_t more = number_of(top, name).value_or(0) + rows.size() - std::min(rows.size(), kListenerRowsMax);
    return more == 0 ? std::string() : "  and " + std::to_string(more) + " more\n";
  };
  if (const Json* listeners = array_in(top, "listeners"); listeners != nullptr && !listeners->empty()) {
    text += "\n" + style.bold("listeners") + "\n" + listeners_table(*listeners, style) +
            omitted_line(*listeners, "listeners_omitted");
  }
  if (const Json* connections = array_in(top, "connections"); connections != nullptr && !connections->empty()) {
    text += "\n" + style.bold("connections") + "\n" + connections_table(*connections, style) +
            omitted_line(*connections, "connections_omitted");
  }

  const auto minute = top.find("last_minute");
  if (minute == top.end() || !minute->is_object()) return text;
  text += "\n" +
          style.bold("finished in the last minute: " + std::to_string(number_of(*minute, "finished").value_or(0))) +
          "\n";
  if (const Json* worst = array_in(*minute, "worst_ttft")) {
    text += "\n" + style.bold("longest TTFT (user view)") + "\n" + worst_table(*worst, style);
  }
  if (const Json* worst = array_in(*minute, "worst_gap")) {
    text += "\n" + style.bold("longest gap") + "\n" + worst_table(*worst, style);
  }
  return text;
}

}  // namespace

base::Result<std::string> render_top(std::string_view json, const Style& style) {
  base::Result<std::string> screen = screen_of(json, style);
  if (screen) screen = fold_lines(*screen, style);
  return screen;
}

base::Result<std::string> ask_agent(const std::string& socket_path, std::string_view request) {
  const auto failed = [&](std::string_view why, std::string_view fix) {
    return base::fail("ask the agent at", socket_path, why, fix);
  };
  constexpr std::string_view kStart = "start `inferwire agent`, run this as the same user (root), or pass --socket";
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (socket_path.size() >= sizeof address.sun_path) return failed("the path is too long for a socket", kStart);
  std::memcpy(address.sun_path, socket_path.c_str(), socket_path.size() + 1);

  const base::UniqueFd fd(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!fd) return failed(base::errno_text(errno), "");
  if (connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) {
    return failed(base::errno_text(errno), kStart);
  }
  const std::string line = std::string(request) + "\n";
  if (send(fd.get(), line.data(), line.size(), MSG_NOSIGNAL) != static_cast<ssize_t>(line.size())) {
    return failed(base::errno_text(errno), kStart);
  }

  std::string answer;
  char buffer[65536];
  for (;;) {
    pollfd waiting{fd.get(), POLLIN, 0};
    const int ready = poll(&waiting, 1, kPatienceMs);
    if (ready < 0 && errno == EINTR) continue;
    if (ready <= 0) return failed("no answer within 5 s", "look at the agent's log");
    const ssize_t got = recv(fd.get(), buffer, sizeof buffer, 0);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return failed(base::errno_text(errno), "look at the agent's log");
    if (got == 0) break;
    answer.append(buffer, static_cast<std::size_t>(got));
    if (answer.size() > kAnswerBytesMax) return failed("the answer does not end", "look at the agent's log");
  }
  while (answer.ends_with('\n')) answer.pop_back();
  if (answer.empty()) return failed("it closed the connection without an answer", "look at the agent's log");
  return answer;
}

int top_main(const TopOptions& options) {
  const Style style = style_for(this_terminal(), options.color, options.ascii);
  for (;;) {
    const base::Result<std::string> answer = ask_agent(options.socket_path, "top");
    const base::Result<std::string> screen = !answer || options.json ? answer : render_top(*answer, style);
    if (!screen) {
      std::cerr << "inferwire top: " << safe_text(screen.error().to_string(), false) << "\n";
      return 1;
    }
    if (!options.once && !options.json && style.color) std::cout << "\033[H\033[2J";
    std::cout << *screen << (options.json ? "\n" : "") << std::flush;
    if (options.once || !std::cout) return 0;
    std::this_thread::sleep_for(kInterval);
  }
}

}  // namespace inferwire::cli
