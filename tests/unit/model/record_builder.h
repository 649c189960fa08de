// SPDX-License-Identifier: Apache-2.0
// Kernel records for tests, told as a story: times are milliseconds after the first request byte.
//
//   RecordBuilder::server().upload_ends(2).accepted(-1).read(3).first_content(800).ends(1200).build()
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <string_view>

#include "agent/model/names.h"
#include "inferwire/event_abi.h"

namespace inferwire::test {

inline constexpr std::uint64_t kMs = 1'000'000;
inline constexpr std::uint64_t kFirstByteNs = 100'000 * kMs;  // a machine that is up for 100 s

inline std::uint64_t at_ms(double ms) {
  return static_cast<std::uint64_t>(static_cast<double>(kFirstByteNs) + ms * static_cast<double>(kMs));
}

class RecordBuilder {
 public:
  // A request that has come in completely, on a new connection; nothing else has happened yet.
  static RecordBuilder server() { return RecordBuilder(IW_ROLE_SERVER); }
  static RecordBuilder client() { return RecordBuilder(IW_ROLE_CLIENT); }

  RecordBuilder& cookie(std::uint64_t cookie) { return conn().cookie = cookie, *this; }
  RecordBuilder& ordinal(std::uint32_t ordinal) { return head().ordinal = ordinal, *this; }
  RecordBuilder& route(std::uint8_t route) { return head().route = route, *this; }
  RecordBuilder& flag(std::uint32_t flags) { return head().flags |= flags, *this; }
  RecordBuilder& without_flag(std::uint32_t flags) { return head().flags &= ~flags, *this; }
  RecordBuilder& conn_flag(std::uint32_t flags) { return conn().flags |= flags, *this; }
  RecordBuilder& ports(std::uint16_t local, std::uint16_t remote) {
    conn().local_port = local;
    conn().remote_port = remote;
    return *this;
  }

  RecordBuilder& established(double ms) { return conn().established_ns = at_ms(ms), *this; }
  RecordBuilder& syn(double ms) { return conn().syn_ns = at_ms(ms), *this; }
  RecordBuilder& handshake_us(std::uint32_t us) { return conn().handshake_us = us, *this; }
  RecordBuilder& accepted(double ms) { return conn().accepted_ns = at_ms(ms), *this; }
  RecordBuilder& idle_before(double ms) {
    return head().idle_before_ns = static_cast<std::uint64_t>(ms * static_cast<double>(kMs)), *this;
  }
  RecordBuilder& upload_ends(double ms) {
    head().last_byte_ns = at_ms(ms);
    head().flags |= IW_REQ_REQUEST_DONE;
    return *this;
  }
  RecordBuilder& upload_open() {
    head().last_byte_ns = 0;
    head().flags &= ~static_cast<std::uint32_t>(IW_REQ_REQUEST_DONE);
    return *this;
  }
  RecordBuilder& request_acked(double ms) { return request().request_acked_ns = at_ms(ms), *this; }
  RecordBuilder& read(double ms) {
    request().read_ns = at_ms(ms);
    head().flags |= IW_REQ_READ_HOOK;
    return *this;
  }

  // Response head; handed to TCP at the same moment unless told otherwise.
  RecordBuilder& response(double ms, std::uint16_t code = 200) {
    request().response_ns = at_ms(ms);
    request().response_handed_ns = at_ms(ms);
    request().activity_ns = at_ms(ms);
    request().code = code;
    return *this;
  }
  RecordBuilder& response_delivered(double ms) { return request().response_delivered_ns = at_ms(ms), *this; }
  RecordBuilder& streams() {
    request().stream = 1;
    request().format = IW_FORMAT_SSE;
    return *this;
  }
  // First chunk on the wire at `ms`, given to TCP at `handed_ms`, acknowledged (client: read) at `delivered_ms`.
  RecordBuilder& first_content(double ms, double handed_ms, double delivered_ms) {
    streams();
    request().content_ns = at_ms(ms);
    request().content_handed_ns = at_ms(handed_ms);
    request().content_delivered_ns = at_ms(delivered_ms);
    request().last_content_ns = at_ms(ms);
    request().last_delivered_ns = at_ms(delivered_ms);
    request().output_ns = at_ms(ms);
    return chunks(1);
  }
  RecordBuilder& chunks(std::uint32_t chunks) {
    request().chunks = chunks;
    request().events = chunks;
    request().deliveries = chunks;
    request().burst[0] = chunks;
    return *this;
  }
  RecordBuilder& last_content(double ms) {
    request().last_content_ns = at_ms(ms);
    request().activity_ns = at_ms(ms);
    return *this;
  }
  RecordBuilder& sent_gaps(double ms, std::uint32_t times) {
    return add_gaps(ms, times, request().gap_sent, request().gap_sent_sum_ns, request().gap_sent_max_ns);
  }
  RecordBuilder& delivered_gaps(double ms, std::uint32_t times) {
    return add_gaps(ms, times, request().gap_delivered, request().gap_delivered_sum_ns, request().gap_delivered_max_ns);
  }
  RecordBuilder& end_marker(double ms) {
    request().end_handed_ns = at_ms(ms);
    head().flags |= IW_REQ_END_MARKER;
    return *this;
  }
  RecordBuilder& tokens(std::uint32_t output, std::uint32_t input) {
    request().tokens_output = output;
    request().tokens_input = input;
    head().flags |= IW_REQ_USAGE;
    return *this;
  }
  // The response's framing ends at `ms`; its last byte is acknowledged (client: read) at `done_ms`.
  RecordBuilder& ends(double ms, double done_ms, std::uint8_t outcome = IW_OUTCOME_COMPLETE) {
    if (request().end_handed_ns == 0) request().end_handed_ns = at_ms(ms);
    request().end_ns = at_ms(ms);
    request().done_ns = at_ms(done_ms);
    request().activity_ns = at_ms(ms);
    request().outcome = outcome;
    head().flags |= IW_REQ_RESPONSE_DONE;
    return *this;
  }
  // The connection goes away before the response is over.
  RecordBuilder& breaks(double ms, std::uint8_t outcome, std::uint8_t side) {
    (side == IW_SIDE_CLIENT ? request().client_fin_ns : request().server_fin_ns) = at_ms(ms);
    request().closed_first = side;
    request().outcome = outcome;
    request().done_ns = at_ms(ms);  // as the kernel settles it
    if (request().end_ns == 0) request().end_ns = request().activity_ns;
    record_.header.time_ns = at_ms(ms);
    return *this;
  }
  RecordBuilder& retransmits(int phase, int type, std::uint16_t segments) {
    request().retransmits[phase][type] = static_cast<std::uint16_t>(request().retransmits[phase][type] + segments);
    request().retransmitted_segments += segments;
    return *this;
  }
  RecordBuilder& rtt_us(std::uint32_t min, std::uint32_t mean, std::uint32_t max) {
    request().rtt_min_us = min;
    request().rtt_max_us = max;
    request().rtt_count = 4;
    request().rtt_sum_us = 4ull * mean;
    return *this;
  }
  RecordBuilder& model(std::string_view name) { return put(request().model, name), *this; }
  RecordBuilder& response_id(std::string_view id) { return put(request().response_id, id), *this; }
  RecordBuilder& finish_reason(std::string_view reason) { return put(request().finish_reason, reason), *this; }
  RecordBuilder& trace_id(std::string_view id) {
    head().has_trace = 1;
    return put(head().trace_id, id), *this;
  }

  iw_conn& conn() { return record_.conn; }
  iw_request& request() { return record_.request; }
  iw_request_head& head() { return record_.request.head; }
  iw_record& raw() { return record_; }
  iw_record build() const { return record_; }

 private:
  explicit RecordBuilder(std::uint8_t role) : record_{} {
    record_.header.kind = IW_REC_FINAL;
    record_.header.size_bytes = sizeof record_;
    conn().cookie = 0x1234;
    conn().role = role;
    conn().family = 2;
    conn().owner_pid = 4242;
    const bool client = role == IW_ROLE_CLIENT;
    put(conn().comm, client ? "curl" : "llama-server");
    set_loopback(conn().local_addr);
    set_loopback(conn().remote_addr);
    conn().local_port = client ? 51234 : 8000;
    conn().remote_port = client ? 8000 : 51234;
    if (client) conn().syn_ns = at_ms(-0.2);
    conn().established_ns = at_ms(-0.1);
    conn().handshake_us = 50;
    conn().requests = 1;

    request().queue_ns = request().prefill_ns = request().load_ns = ~0ull;
    request().tokens_output = request().tokens_input = ~0u;
    request().rtt_min_us = ~0u;
    head().first_byte_ns = kFirstByteNs;
    head().ordinal = 1;
    head().method = IW_METHOD_POST;
    head().route = 1;
    head().body_bytes = 321;
    upload_ends(0);
  }

  static void set_loopback(std::uint8_t (&address)[16]) {
    constexpr std::uint8_t kLoopback[16] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 127, 0, 0, 1};
    std::memcpy(address, kLoopback, sizeof address);
  }

  template <std::size_t N>
  static void put(char (&field)[N], std::string_view text) {
    std::memset(field, 0, N);
    std::memcpy(field, text.data(), std::min(N, text.size()));
  }

  RecordBuilder& add_gaps(double ms, std::uint32_t times, std::uint32_t (&buckets)[IW_GAP_EDGES_MAX + 1],
                          iw_u64& sum_ns, iw_u64& max_ns) {
    const auto gap_ns = static_cast<std::uint64_t>(ms * static_cast<double>(kMs));
    const auto edges = inferwire::model::default_gap_edges_ns();
    std::size_t bucket = 0;
    while (bucket < edges.size() && edges[bucket] < gap_ns) ++bucket;
    buckets[bucket] += times;
    sum_ns += gap_ns * times;
    if (gap_ns > max_ns) max_ns = gap_ns;
    return *this;
  }

  iw_record record_;
};

}  // namespace inferwire::test
