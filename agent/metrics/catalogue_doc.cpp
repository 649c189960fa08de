// SPDX-License-Identifier: Apache-2.0
// docs/metrics.md, made from the table.
#include <charconv>
#include <string>

#include "agent/metrics/catalogue.h"

namespace inferwire::metrics {
namespace {

struct LabelMeaning {
  std::string_view label;
  std::string_view meaning;
};

// In the order of the docs: who, then what.
constexpr LabelMeaning kLabelMeanings[] = {
    {"namespace", "Kubernetes namespace; empty elsewhere"},
    {"workload",
     "Kubernetes: the pod's owner (Deployment, StatefulSet, ...). Elsewhere the systemd unit, the container's name or "
     "12-digit id, else the process name"},
    {"container", "container name; empty outside containers"},
    {"pod", "pod name; on counters and gauges only"},
    {"role", "`server`: the accepting side; `client`. Both ends of a connection may be on one node: select one"},
    {"port", "the listener's port. For clients the peer's if well known or configured, else `other`"},
    {"protocol", "`http1` `http2` `grpc` `websocket` `tls` `tcp`"},
    {"route",
     "a known or configured LLM route, such as `/v1/chat/completions`, else `other`. `other` is counted in "
     "`inferwire_requests_total` only"},
    {"model", "model name, from successful answers only; at most 64 names, then `overflow`"},
    {"code",
     "HTTP status: exact for 200 400 401 403 404 408 413 422 429 499 500 502 503 504 529, else its class (`2xx`); "
     "gRPC status names"},
    {"outcome",
     "`complete` `error_in_stream` `truncated_clean` `truncated_abrupt` `client_abort` `reset` `reset_stale_reuse` "
     "`no_response`"},
    {"stream", "`true` if the response was streamed, else `false`"},
    {"phase",
     "server: `upload` `accept_wait` `read_wait` `server` `hold` `first_delivery` `stream` `drain`; client: `send` "
     "`wait` `first_read` `stream` `drain`"},
    {"view",
     "TTFT: `server` (last request byte in to first content handed to TCP), `user` (first request byte to first "
     "content acknowledged; at a client: come in; from the SYN on a new connection). Gaps: `sent`, `delivered`"},
    {"source", "`wire`: told by the response itself; `scrape`: from the server's own metrics"},
    {"direction",
     "`sent`, `received`. Zero windows: whose window was closed, `sent`: the one that this side announced, `received`: "
     "the peer's"},
    {"peer",
     "what kind of service is behind the port: `object_store` `model_hub` `vector_db` `sql` `cache` `dns` `nccl` "
     "`kv_transfer` `gateway` `inference` `other`. Configured by `peers`; else `inference` where this workload had LLM "
     "requests on that port, else by the usual ports of databases, caches and DNS"},
    {"type", "why a segment was sent again: `syn` `synack` `fast` `rto` `tlp` (tail loss probe) `other`"},
    {"result",
     "`ok` `refused` `reset` `timeout` `unreachable` `aborted` (closed by the caller before an answer) "
     "`no_port` (every local port was taken: nothing was sent)"},
    {"cause",
     "`no_listener` `listen_queue_full` `abort_on_close` (closed with unread data) `abort_on_linger` `abort_on_data` "
     "`on_data_after_close` `stale_reuse` `keepalive_timeout` `user_timeout` `memory` `invalid_segment` `firewall` "
     "(not sent by the peer itself) `peer` `unknown`"},
    {"state",
     "TCP state as the kernel calls it: `established` `syn_sent` `syn_recv` `fin_wait1` `fin_wait2` `time_wait` "
     "`close` "
     "`close_wait` `last_ack` `closing`"},
    {"event",
     "something was not seen: `no_slot` `lock_busy` `hole_dropped` `resync` `pipeline_full` `overlong` `malformed`; "
     "something was counted nowhere else: `storage_failed` `counts_full` `sums_full`; nothing was lost: `hole_kept` "
     "`suspect` `suspect_dropped` `not_http` `listener_bytes` `resets_no_socket` `followed` `ignored` `flows`"},
    {"version", "release"},
    {"revision", "commit of the source"},
    {"mode",
     "`starting`, `full`, `degraded` (a signal is missing, see `inferwire_signal_up`), `blind` (the agent did not see "
     "the "
     "stream of its own self-check)"},
    {"hook", "kernel function or attach point"},
    {"rung", "kind of program that is attached there, such as `tp_btf`; `none` if nothing could be"},
    {"signal", "what is promised to be measured"},
    {"reason",
     "signals: why it is missing; empty if it is there. Listen drops: `accept_queue_full` (ListenOverflows), "
     "`syn_queue_full` (TCPReqQFullDrop), `max_syn_backlog`, `other`; together they are ListenDrops"},
    {"kind",
     "kind of record: `final` (a request has ended), `partial` (a request that goes on), `delivery` (tracing), "
     "`reset`, "
     "`listen_drop`"},
    {"where", "`ring_buffer`: on the way from the kernel; `jsonl`: on the way to the file of records"},
    {"map", "name of a kernel map"},
    {"program", "name of a kernel program"},
    {"family", "name of a metric family"},
};

std::string number_text(double value) {
  char buffer[64];
  const auto end = std::to_chars(buffer, buffer + sizeof buffer, value, std::chars_format::fixed).ptr;
  return std::string(buffer, end);
}

std::string label_list(const Family& family) {
  std::string list;
  for (const auto label : family.labels()) {
    if (!list.empty()) list += ' ';
    list += label;
  }
  return list;
}

std::string family_rows(Section section) {
  std::string rows = "| family | type | labels | edges | meaning |\n| --- | --- | --- | --- | --- |\n";
  for (const Family& family : catalogue()) {
    if (family.section != section) continue;
    rows += "| `";
    rows += family.name;
    rows += "` | ";
    rows += type_name(family.type);
    rows += " | ";
    rows += label_list(family);
    rows += " | ";
    if (family.edges != EdgesId::kNone) rows += edges_name(family.edges);
    rows += " | ";
    rows += family.help;
    rows += " |\n";
  }
  return rows;
}

std::string edge_rows() {
  std::string rows = "| edges | values |\n| --- | --- |\n";
  for (std::size_t id = 1; id < kEdgesIdCount; ++id) {
    rows += "| ";
    rows += edges_name(static_cast<EdgesId>(id));
    rows += " |";
    for (const double edge : default_edges(static_cast<EdgesId>(id))) rows += " " + number_text(edge);
    rows += " |\n";
  }
  return rows;
}

std::string label_rows() {
  std::string rows = "| label | meaning |\n| --- | --- |\n";
  for (const auto& [label, meaning] : kLabelMeanings) {
    rows += "| `";
    rows += label;
    rows += "` | ";
    rows += meaning;
    rows += " |\n";
  }
  return rows;
}

}  // namespace

std::string_view label_meaning(std::string_view label) {
  for (const auto& row : kLabelMeanings) {
    if (row.label == label) return row.meaning;
  }
  return {};
}

std::string catalogue_markdown() {
  std::string doc =
      "# Metrics\n\n"
      "Made by `inferwire_metrics_doc` from `agent/metrics/families.inc`; do not edit.\n\n"
      "Units are seconds and bytes. A family without a series is not exported. Histograms have the usual `_bucket`, "
      "`_sum` and `_count`.\n\n";
  doc += "## Requests and streams\n\n" + family_rows(Section::kRequests);
  doc +=
      "\n## TCP\n\n"
      "Of every TCP connection of the node, whatever it carries; counted in the kernel, as the kernel's own counters "
      "are (`nstat`, `ss`), and read every `partial_interval`. `port` is the listener's.\n\n" +
      family_rows(Section::kTcp);
  doc += "\n## The agent itself\n\n" + family_rows(Section::kAgent);
  doc +=
      "\n## Labels\n\n"
      "Every label value is valid UTF-8 without control characters and at most 128 bytes long. Never an address of a "
      "client, an ephemeral port, a request id or a user's text. `node` and `cluster` are for the scraper to add.\n\n";
  doc += label_rows();
  doc +=
      "\nA family has at most 256 label sets. Beyond that one set, whose every value is `overflow`, takes the rest, so "
      "that sums stay exact; `inferwire_series_limit_hits_total` counts the values that went there. (A gauge that "
      "cannot be added up leaves them out instead.) The series of a workload that is gone stay for 60 seconds.\n";
  doc += "\n## Histogram edges\n\n" + edge_rows();
  doc += "\nUsers can add edges to gaps and durations, " + std::to_string(kEdgesMax) +
         " in all at most, so that an objective sits on one.\n";
  return doc;
}

}  // namespace inferwire::metrics
