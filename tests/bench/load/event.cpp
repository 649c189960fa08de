// SPDX-License-Identifier: Apache-2.0
#include "tests/bench/load/event.h"

#include <array>
#include <cstdio>

namespace inferwire::bench {

namespace {

std::string event(std::string_view delta, std::string_view finish_reason) {
  std::string text =
      R"(data: {"id":"chatcmpl-B9MBs8CjcvOU2jLn4n570S5qMJKcT","object":"chat.completion.chunk","created":1741569952,)"
      R"("model":"meta-llama/Llama-3.1-8B-Instruct","system_fingerprint":"fp_44709d6fcb","choices":[{"index":0,"delta":)";
  text += delta;
  text += R"(,"logprobs":null,"finish_reason":)";
  text += finish_reason;
  text += "}]}\n\n";
  return text;
}

}  // namespace

std::string http_chunk(std::string_view body) {
  std::array<char, 16> size{};
  std::snprintf(size.data(), size.size(), "%zx\r\n", body.size());
  return std::string(size.data()) + std::string(body) + "\r\n";
}

std::string role_event() { return http_chunk(event(R"({"role":"assistant","content":""})", "null")); }

std::string content_event() { return http_chunk(event(R"({"content":" benchmark"})", "null")); }

std::string last_events() {
  return http_chunk(event("{}", R"("stop")")) + http_chunk("data: [DONE]\n\n") + "0\r\n\r\n";
}

std::string stream_request(unsigned events, double per_second, unsigned delay_ms) {
  const std::string body =
      R"({"model":"meta-llama/Llama-3.1-8B-Instruct","stream":true,"messages":[{"role":"user","content":"Say something."}]})";
  std::array<char, 128> pace{};
  std::snprintf(pace.data(), pace.size(), "x-pace: %u %.3f %u\r\n", events, per_second, delay_ms);
  return "POST /v1/chat/completions HTTP/1.1\r\nhost: bench\r\naccept: text/event-stream\r\n"
         "content-type: application/json\r\n" +
         std::string(pace.data()) + "content-length: " + std::to_string(body.size()) + "\r\n\r\n" + body;
}

std::string small_request() { return "GET /small HTTP/1.1\r\nhost: bench\r\naccept: */*\r\n\r\n"; }

}  // namespace inferwire::bench
