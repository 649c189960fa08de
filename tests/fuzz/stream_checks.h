// SPDX-License-Identifier: Apache-2.0
// What must hold of a flow's state and of every record, whatever came in.
#pragma once

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iterator>

#include "bpf/lib/native.h"

#define IW_REQUIRE(condition)                                                             \
  do {                                                                                    \
    if (!(condition)) {                                                                   \
      std::fprintf(stderr, "%s:%d: does not hold: %s\n", __FILE__, __LINE__, #condition); \
      std::abort();                                                                       \
    }                                                                                     \
  } while (0)

namespace inferwire::fuzz {

template <std::size_t N>
std::uint64_t total(const std::uint32_t (&histogram)[N]) {
  std::uint64_t sum = 0;
  for (const auto count : histogram) sum += count;
  return sum;
}

inline void check_flow(const iw_flow& f) {
  for (const auto& p : f.parser) {
    IW_REQUIRE(p.state <= IW_P_DEAD);
    IW_REQUIRE(p.format <= IW_FORMAT_JSON);
    IW_REQUIRE(p.line_kind <= IW_LINE_OTHER);
    IW_REQUIRE(p.line_bytes <= 1u << 20);
    IW_REQUIRE(p.slot <= IW_QUEUE || p.slot == 0xff);
    IW_REQUIRE(p.state != IW_P_FLUSH);  // done within the call that reached it
  }
  IW_REQUIRE(f.queued <= IW_QUEUE);
  IW_REQUIRE(f.live <= 1);
  IW_REQUIRE(f.live || (!f.queued && !f.dropped));
  IW_REQUIRE(f.unacked_head - f.unacked_tail <= IW_UNACKED);
}

inline void check_record(const iw_record& record, std::uint64_t now_ns) {
  const iw_request& r = record.request;
  IW_REQUIRE(r.outcome > IW_OUTCOME_NONE && r.outcome <= IW_OUTCOME_NO_RESPONSE);
  IW_REQUIRE(r.head.route < IW_ROUTE_MAX);
  IW_REQUIRE(r.head.method <= IW_METHOD_TRACE);
  IW_REQUIRE(r.format <= IW_FORMAT_JSON);
  IW_REQUIRE(r.encoding <= IW_ENCODING_OTHER);
  IW_REQUIRE(r.code == 0 || (r.code >= 101 && r.code <= 999));
  IW_REQUIRE(r.model[IW_TEXT_MAX - 1] == 0 && r.response_id[IW_TEXT_MAX - 1] == 0);
  IW_REQUIRE(r.finish_reason[sizeof(r.finish_reason) - 1] == 0);
  for (const char* text : {r.model, r.response_id, r.finish_reason})
    for (; *text; text++) IW_REQUIRE(*text > 0x20 && *text < 0x7f && *text != '"' && *text != '<' && *text != '>');
  // Counts: each delivery is in one burst bucket and ends at most one gap of each view.
  IW_REQUIRE(total(r.burst) <= r.deliveries);
  IW_REQUIRE(total(r.gap_sent) + 1 <= r.deliveries || total(r.gap_sent) == 0);
  IW_REQUIRE(total(r.gap_delivered) + 1 <= r.deliveries || total(r.gap_delivered) == 0);
  IW_REQUIRE(r.chunks_reasoning + r.chunks_tool <= r.chunks);
  IW_REQUIRE(r.chunks <= r.events);
  IW_REQUIRE(total(r.burst) <= r.chunks);
  IW_REQUIRE((r.chunks == 0) == (r.output_ns == 0 && r.chunks_reasoning == 0) || r.encoding);
  IW_REQUIRE(r.deliveries == 0 || r.content_ns != 0);
  // Marks: none in the future, none before the request, in their order.
  const std::uint64_t marks[] = {
      r.head.first_byte_ns, r.head.last_byte_ns,    r.request_acked_ns, r.read_ns,         r.response_ns,
      r.content_ns,         r.content_delivered_ns, r.output_ns,        r.last_content_ns, r.last_delivered_ns,
      r.activity_ns,        r.end_handed_ns,        r.end_ns,           r.done_ns};
  for (const auto mark : marks) {
    IW_REQUIRE(mark <= now_ns);
    IW_REQUIRE(mark == 0 || mark >= r.head.first_byte_ns);
  }
  IW_REQUIRE(r.content_ns == 0 || r.content_ns >= r.response_ns);
  IW_REQUIRE(r.content_ns == 0 || r.last_content_ns == 0 || r.last_content_ns >= r.content_handed_ns);
  IW_REQUIRE(r.content_handed_ns <= r.content_ns);
  IW_REQUIRE(r.done_ns != 0);
  IW_REQUIRE(r.end_ns <= r.done_ns);
}

}  // namespace inferwire::fuzz
