// SPDX-License-Identifier: Apache-2.0
// What real servers put on the wire, as whole conversations: requests, answers, and how the connection ended.
// Each is told once here; the tests of one server assert what it must count to, pieces_test.cpp cuts all of them.
#pragma once

#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include "tests/unit/stream/connection.h"

namespace inferwire::stream_test {

enum class Ending { kKeptOpen, kServerFin, kClientFin, kServerReset, kClientReset };

struct Turn {
  enum class What { kRequest, kResponse, kAcknowledged } what;
  std::string bytes;
};

struct Conversation {
  std::string name;
  std::vector<Turn> turns;
  Ending ending = Ending::kKeptOpen;
  /// The connection closes although the conversation was kept open: unfinished requests are emitted too.
};

/// Plays it on a new connection and returns every record.
std::vector<iw_record> play(const Conversation& conversation, Role role = Role::kServer, Pieces pieces = whole());
/// The one request of a conversation; fails the test if there is not exactly one.
iw_request only(const std::vector<iw_record>& records);

/// All that must not depend on how the bytes were cut, one line a request.
std::string summary(const std::vector<iw_record>& records);

std::string outcome_name(std::uint8_t outcome);

/// Every conversation of this file.
std::vector<Conversation> all_conversations();

// ---- Pieces of HTTP ----

std::string post(std::string_view path, std::string_view body = R"({"model":"m","stream":true,"messages":[]})",
                 std::string_view more_headers = "");
/// A response head. Headers: complete lines, each with its CRLF.
std::string head(int code, std::string_view headers);
/// One HTTP chunk around each part, no terminating chunk.
std::string chunked(std::initializer_list<std::string_view> parts);
std::string chunk(std::string_view part);
inline constexpr std::string_view kLastChunk = "0\r\n\r\n";
inline constexpr std::string_view kSse =
    "server: uvicorn\r\ncontent-type: text/event-stream; charset=utf-8\r\ntransfer-encoding: chunked\r\n";
inline constexpr std::string_view kNdjson = "Content-Type: application/x-ndjson\r\nTransfer-Encoding: chunked\r\n";
std::string with_length(int code, std::string_view content_type, std::string_view body);
std::string sse(std::string_view json);  // "data: json\n\n"

/// An OpenAI chat stream of this many content events, with role, finish, usage and [DONE], each in its own HTTP chunk.
std::string openai_stream(int events, std::string_view id = "chatcmpl-1", std::string_view model = "m");

// ---- Servers ----

Conversation vllm_chat();  // role with the first token, tail in one write
Conversation vllm_chat_continuous_usage();
Conversation vllm_completions();
Conversation vllm_reasoning();
Conversation vllm_tool_calls();
Conversation vllm_error_then_done();
Conversation vllm_per_request_metrics();
Conversation vllm_keep_alive_comments();
Conversation openai_responses();
Conversation openai_responses_failed();
Conversation openai_json();
Conversation openrouter_reasoning();
Conversation sglang_cumulative();
Conversation tgi_generate_stream();
Conversation tgi_chat();
Conversation tgi_error();
Conversation ollama_chat();
Conversation ollama_generate_thinking();
Conversation ollama_generate_error();
Conversation ollama_json();
Conversation llama_cpp_native();
Conversation llama_cpp_chat_timings();
Conversation anthropic_messages();
Conversation anthropic_error();
Conversation anthropic_json();
Conversation triton_generate_stream();
Conversation node_four_iovecs();
Conversation crlf_events();
Conversation hostile_text();
Conversation multi_line_data();
Conversation long_events();
Conversation chunks_of_one_shape();

// ---- HTTP shapes ----

Conversation stream_until_close();
Conversation ndjson_until_close_without_newline();
Conversation json_until_close();
Conversation keep_alive_three_requests();
Conversation pipelined_three_requests();
Conversation expect_continue();
Conversation expect_refused();
Conversation early_hints();
Conversation head_request();
Conversation no_content_and_not_modified();
Conversation big_heads();
Conversation big_upload();
Conversation chunked_upload();
Conversation early_413();
Conversation chunk_extensions_and_trailers();
Conversation gzip_stream();
Conversation websocket_upgrade();
Conversation truncated_clean();
Conversation truncated_abrupt();
Conversation client_abort();
Conversation client_reset_mid_stream();
Conversation server_reset_mid_stream();
Conversation no_response();
Conversation reset_before_response();
Conversation embeddings();

}  // namespace inferwire::stream_test
