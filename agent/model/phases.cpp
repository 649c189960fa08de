// SPDX-License-Identifier: Apache-2.0
#include "agent/model/phases.h"

#include <algorithm>
#include <span>
#include <vector>

namespace inferwire::model {
namespace {

// Where a phase ends. A mark of 0 is not known.
struct Cut {
  int phase;
  std::uint64_t mark_ns;
};

bool has_flag(const iw_request& r, std::uint32_t flag) { return (r.head.flags & flag) != 0; }

std::uint64_t start_of(const iw_request& r) {
  for (const std::uint64_t mark : {r.head.first_byte_ns, r.head.last_byte_ns, r.response_ns, r.activity_ns}) {
    if (mark != 0) return mark;
  }
  return 0;
}

std::uint64_t latest_mark(const iw_request& r) {
  return std::max({start_of(r), r.head.last_byte_ns, r.request_acked_ns, r.read_ns, r.response_ns,
                   r.response_delivered_ns, r.content_handed_ns, r.content_ns, r.content_delivered_ns,
                   r.last_content_ns, r.last_delivered_ns, r.activity_ns, r.end_handed_ns, r.end_ns, r.done_ns});
}

bool response_has_ended(const iw_request& r) {
  return has_flag(r, IW_REQ_RESPONSE_DONE) || has_flag(r, IW_REQ_END_MARKER) || r.outcome == IW_OUTCOME_COMPLETE ||
         r.outcome == IW_OUTCOME_ERROR_IN_STREAM || r.outcome == IW_OUTCOME_TRUNCATED_CLEAN;
}

// A response that never came to its end has no last byte: its request ended when the connection did.
std::uint64_t end_of(const iw_record& record, bool final, std::uint64_t now_ns) {
  const iw_request& r = record.request;
  if (!final) return std::max(latest_mark(r), now_ns);
  if (response_has_ended(r)) return r.done_ns != 0 ? std::max(r.done_ns, start_of(r)) : latest_mark(r);
  const std::uint64_t closed_ns = std::max(r.server_fin_ns, r.client_fin_ns);
  return std::max(latest_mark(r), closed_ns != 0 ? closed_ns : record.header.time_ns);
}

// The answer to an early-answered request; else 0.
std::uint64_t early_answer(const iw_request& r) {
  if (!has_flag(r, IW_REQ_EARLY_RESPONSE)) return 0;
  return r.response_handed_ns != 0 ? r.response_handed_ns : r.response_ns;
}

// An answer may come before the request's last byte: the upload counts up to the answer.
std::uint64_t not_after_answer(const iw_request& r, std::uint64_t mark_ns) {
  const std::uint64_t answer_ns = early_answer(r);
  if (answer_ns == 0) return mark_ns;
  return mark_ns == 0 ? answer_ns : std::min(mark_ns, answer_ns);
}

std::uint64_t end_mark(const iw_request& r) { return r.end_handed_ns != 0 ? r.end_handed_ns : r.end_ns; }

bool ended_without_content(const iw_request& r) {
  return r.stream != 0 && r.content_ns == 0 && response_has_ended(r) && end_mark(r) != 0;
}

std::uint64_t accept_mark(const iw_record& record) {
  if (record.conn.accepted_ns != 0) return record.conn.accepted_ns;
  // Not seen, but the previous response on this connection had ended before: it had been accepted.
  const iw_request_head& head = record.request.head;
  return head.ordinal > 1 && head.idle_before_ns > 0 ? head.first_byte_ns : 0;
}

// A read after an early answer is not what the answer waited for.
std::uint64_t read_mark(const iw_request& r) {
  const std::uint64_t answer_ns = early_answer(r);
  return answer_ns != 0 && r.read_ns > answer_ns ? 0 : r.read_ns;
}

// The phase that the request is in, or ended in.
int reached_by_server(const iw_request& r, bool reads_seen) {
  if (response_has_ended(r) || r.end_handed_ns != 0) return IW_PHASE_DRAIN;
  if (r.response_ns == 0 && !has_flag(r, IW_REQ_REQUEST_DONE)) return IW_PHASE_UPLOAD;
  const FirstContent first = first_content(r);
  if (first.wire_ns == 0) {
    return r.response_ns == 0 && r.read_ns == 0 && reads_seen ? IW_PHASE_READ_WAIT : IW_PHASE_SERVER;
  }
  return first.delivered_ns == 0 ? IW_PHASE_FIRST_DELIVERY : IW_PHASE_STREAM;
}

int reached_by_client(const iw_request& r, bool reads_seen) {
  if (response_has_ended(r) || r.end_handed_ns != 0) return IW_PHASE_DRAIN;
  if (r.response_ns == 0 && r.request_acked_ns == 0) return IW_PHASE_UPLOAD;
  const FirstContent first = first_content(r);
  if (first.wire_ns == 0) return IW_PHASE_SERVER;
  return first.delivered_ns == 0 && reads_seen ? IW_PHASE_FIRST_DELIVERY : IW_PHASE_STREAM;
}

std::vector<Cut> cuts_of_server(const iw_record& record) {
  const iw_request& r = record.request;
  std::vector<Cut> cuts = {{IW_PHASE_UPLOAD, not_after_answer(r, r.head.last_byte_ns)},
                           {IW_PHASE_ACCEPT_WAIT, accept_mark(record)},
                           {IW_PHASE_READ_WAIT, read_mark(r)}};
  if (ended_without_content(r)) {
    cuts.push_back({IW_PHASE_SERVER, end_mark(r)});
    return cuts;
  }
  const FirstContent first = first_content(r);
  const bool handed_known = first.handed_ns != 0;
  cuts.push_back({IW_PHASE_SERVER, handed_known ? first.handed_ns : first.wire_ns});
  cuts.push_back({IW_PHASE_HOLD, handed_known ? first.wire_ns : 0});
  cuts.push_back({IW_PHASE_FIRST_DELIVERY, first.delivered_ns});
  cuts.push_back({IW_PHASE_STREAM, end_mark(r)});
  return cuts;
}

std::vector<Cut> cuts_of_client(const iw_record& record) {
  const iw_request& r = record.request;
  std::vector<Cut> cuts = {{IW_PHASE_UPLOAD, not_after_answer(r, r.request_acked_ns)}};
  if (ended_without_content(r)) {
    cuts.push_back({IW_PHASE_SERVER, end_mark(r)});
    return cuts;
  }
  const FirstContent first = first_content(r);
  cuts.push_back({IW_PHASE_SERVER, first.wire_ns});
  cuts.push_back({IW_PHASE_FIRST_DELIVERY, first.delivered_ns});
  cuts.push_back({IW_PHASE_STREAM, end_mark(r)});
  return cuts;
}

void tile(std::span<const Cut> cuts, int reached, Phases& phases) {
  std::uint64_t previous = phases.start_ns;
  for (const Cut& cut : cuts) {
    if (cut.phase >= reached) break;
    if (cut.mark_ns == 0) {
      phases.missing |= 1u << cut.phase;
      continue;
    }
    const std::uint64_t at = std::min(std::max(cut.mark_ns, previous), phases.end_ns);
    phases.ns[static_cast<std::size_t>(cut.phase)] = at - previous;
    previous = at;
  }
  phases.ns[static_cast<std::size_t>(reached)] = phases.end_ns - previous;
}

}  // namespace

FirstContent first_content(const iw_request& r) {
  if (r.stream != 0) return {r.content_handed_ns, r.content_ns, r.content_delivered_ns};
  return {r.response_handed_ns, r.response_ns, r.response_delivered_ns};
}

Phases cut_into_phases(const iw_record& record, bool final, bool reads_seen, std::uint64_t now_ns) {
  const iw_request& r = record.request;
  reads_seen = reads_seen || has_flag(r, IW_REQ_READ_HOOK);
  Phases phases;
  phases.start_ns = start_of(r);
  phases.end_ns = end_of(record, final, now_ns);
  if (record.conn.role == IW_ROLE_CLIENT) {
    tile(cuts_of_client(record), reached_by_client(r, reads_seen), phases);
  } else {
    tile(cuts_of_server(record), reached_by_server(r, reads_seen), phases);
  }
  return phases;
}

}  // namespace inferwire::model
