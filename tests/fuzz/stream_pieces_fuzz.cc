// SPDX-License-Identifier: Apache-2.0
// Any body, in any cut: what is counted and named must be the same as in one packet.
//
// Input: format and framing (1 byte), a seed for the cuts and the HTTP chunks (3 bytes), the body. Framing: 0 length,
// 1 until close, 2 chunks of any size, 3 one chunk an event, 4 the same with every event several times, changed a
// little (streams look like that, and the parser learns their looks).
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

std::string chunk(std::string_view part) {
  char line[16];
  std::snprintf(line, sizeof(line), "%zx\r\n", part.size());
  return line + std::string(part) + "\r\n";
}

/// One byte replaced, removed or doubled; digits and their like stay, since shapes leave them apart.
void change(std::string& event, std::mt19937& random) {
  static constexpr std::string_view kBytes = "az\"\\{}[], \n\r\tntf";
  const std::size_t at = random() % event.size();
  if ((event[at] & 0xf0) == 0x30) return;
  switch (random() % 3) {
    case 0:
      event[at] = kBytes[random() % kBytes.size()];
      break;
    case 1:
      event.erase(at, 1);
      break;
    default:
      event.insert(at, 1, event[at]);
  }
}

/// Pieces of the body that end with a blank line (a line, if it has none).
std::vector<std::string> events_of(std::string_view body) {
  std::vector<std::string> events;
  const std::string_view end = body.find("\n\n") != std::string_view::npos ? "\n\n" : "\n";
  while (!body.empty()) {
    const std::size_t found = body.find(end);
    const std::size_t n = found == std::string_view::npos ? body.size() : found + end.size();
    events.emplace_back(body.substr(0, n));
    body.remove_prefix(n);
  }
  return events;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* input, std::size_t size) {
  if (size < 4) return 0;
  std::mt19937 random(input[1] | input[2] << 8 | input[3] << 16);
  const std::string body(reinterpret_cast<const char*>(input) + 4, size - 4);
  static const char* const types[] = {"text/event-stream", "application/x-ndjson", "application/json", "text/plain"};
  std::string answer = std::string("HTTP/1.1 200 OK\r\nContent-Type: ") + types[input[0] & 3] + "\r\n";
  const unsigned framing = (input[0] >> 2) % 5;
  if (framing == 0) {
    answer += "Content-Length: " + std::to_string(body.size()) + "\r\n\r\n" + body;
  } else if (framing == 1) {
    answer += "\r\n" + body;
  } else {
    answer += "Transfer-Encoding: chunked\r\n\r\n";
    if (framing == 2) {
      for (std::size_t at = 0; at < body.size();) {
        const std::size_t n = std::min<std::size_t>(1 + random() % (random() % 4 ? 40 : 3'000), body.size() - at);
        answer += chunk(std::string_view(body).substr(at, n));
        at += n;
      }
    } else {
      for (const auto& event : events_of(body)) {
        answer += chunk(event);
        for (int copies = framing == 4 ? 3 : 0; copies > 0; copies--) {
          std::string copy = event;
          if (random() % 2) change(copy, random);
          if (!copy.empty()) answer += chunk(copy);
        }
      }
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
