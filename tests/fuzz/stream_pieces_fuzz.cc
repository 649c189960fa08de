// SPDX-License-Identifier: Apache-2.0
// Any body, in any cut: what is counted and named must be the same as in one packet.
//
// Input: format and framing (1 byte), a seed for the cuts and the HTTP chunks (3 bytes), the body.
#include <algorithm>
#include <memory>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "tests/fuzz/stream_checks.h"

namespace {

constexpr iw_u64 kEdges[] = {1'000'000, 1'000'000'000};

struct Counted {
  iw_request request{};
  std::uint64_t now_ns = 1'000'000'000'000;
  int records = 0;
};

void keep(void* context, const iw_record* record) {
  auto& counted = *static_cast<Counted*>(context);
  inferwire::fuzz::check_record(*record, counted.now_ns);
  counted.request = record->request;
  counted.records++;
}

Counted play(std::string_view answer, bool until_close, const std::vector<std::size_t>& cuts) {
  Counted counted;
  auto flow = std::make_unique<iw_flow>();
  iw_native_init(flow.get(), IW_ROLE_SERVER);
  static const std::string request = "POST /v1/chat/completions HTTP/1.1\r\nContent-Length: 0\r\n\r\n";
  iw_u32 seq = 7;
  iw_native_payload(flow.get(), IW_IN, 1, reinterpret_cast<const iw_u8*>(request.data()),
                    static_cast<iw_u32>(request.size()), counted.now_ns, kEdges, std::size(kEdges), keep, &counted);
  std::size_t cut = 0;
  while (!answer.empty()) {
    const std::size_t n = cuts.empty() ? answer.size() : std::min(cuts[cut++ % cuts.size()], answer.size());
    const std::vector<iw_u8> exact(answer.begin(), answer.begin() + static_cast<std::ptrdiff_t>(n));
    iw_native_payload(flow.get(), IW_OUT, seq, exact.data(), static_cast<iw_u32>(n), counted.now_ns, kEdges,
                      std::size(kEdges), keep, &counted);
    seq += static_cast<iw_u32>(n);
    answer.remove_prefix(n);
    inferwire::fuzz::check_flow(*flow);
  }
  if (until_close) iw_native_fin(flow.get(), IW_SIDE_SERVER, 0, counted.now_ns);
  iw_native_ack(flow.get(), seq, counted.now_ns, kEdges, std::size(kEdges), keep, &counted);
  IW_REQUIRE(counted.records == 1);
  IW_REQUIRE(!flow->live);
  return counted;
}

void same(const iw_request& a, const iw_request& b) {
  IW_REQUIRE(a.outcome == b.outcome);
  IW_REQUIRE(a.code == b.code);
  IW_REQUIRE(a.chunks == b.chunks);
  IW_REQUIRE(a.chunks_reasoning == b.chunks_reasoning);
  IW_REQUIRE(a.chunks_tool == b.chunks_tool);
  IW_REQUIRE(a.comments == b.comments);
  IW_REQUIRE(a.events == b.events);
  IW_REQUIRE(a.tokens_input == b.tokens_input);
  IW_REQUIRE(a.tokens_output == b.tokens_output);
  IW_REQUIRE(a.queue_ns == b.queue_ns);
  IW_REQUIRE(a.prefill_ns == b.prefill_ns);
  IW_REQUIRE(a.load_ns == b.load_ns);
  IW_REQUIRE(a.response_body_bytes == b.response_body_bytes);
  IW_REQUIRE(a.first_content_seq == b.first_content_seq);
  IW_REQUIRE(a.end_seq == b.end_seq);
  IW_REQUIRE(std::string_view(a.model) == b.model);
  IW_REQUIRE(std::string_view(a.response_id) == b.response_id);
  IW_REQUIRE(std::string_view(a.finish_reason) == b.finish_reason);
  constexpr auto kComparable = ~(IW_REQ_LATE_ACKS | IW_REQ_MARKS_MERGED);
  IW_REQUIRE((a.head.flags & kComparable) == (b.head.flags & kComparable));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* input, std::size_t size) {
  if (size < 4) return 0;
  std::mt19937 random(input[1] | input[2] << 8 | input[3] << 16);
  const std::string body(reinterpret_cast<const char*>(input) + 4, size - 4);
  static const char* const types[] = {"text/event-stream", "application/x-ndjson", "application/json", "text/plain"};
  std::string answer = std::string("HTTP/1.1 200 OK\r\nContent-Type: ") + types[input[0] & 3] + "\r\n";
  const unsigned framing = (input[0] >> 2) % 3;
  if (framing == 0) {
    answer += "Content-Length: " + std::to_string(body.size()) + "\r\n\r\n" + body;
  } else if (framing == 1) {
    answer += "\r\n" + body;
  } else {
    answer += "Transfer-Encoding: chunked\r\n\r\n";
    for (std::size_t at = 0; at < body.size();) {
      const std::size_t n = std::min<std::size_t>(1 + random() % (random() % 4 ? 40 : 3'000), body.size() - at);
      char line[16];
      std::snprintf(line, sizeof(line), "%zx\r\n", n);
      answer += line + body.substr(at, n) + "\r\n";
      at += n;
    }
    answer += "0\r\n\r\n";
  }
  std::vector<std::size_t> cuts(1 + random() % 64);
  const std::size_t longest = random() % 3 == 0 ? 2'000 : random() % 2 ? 100 : 8;
  for (auto& cut : cuts) cut = 1 + random() % longest;
  const auto whole = play(answer, framing == 1, {});
  same(whole.request, play(answer, framing == 1, cuts).request);
  same(whole.request, play(answer, framing == 1, {1}).request);
  return 0;
}
