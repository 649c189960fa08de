// SPDX-License-Identifier: Apache-2.0
// What each real server's stream must count to.
#include <gtest/gtest.h>

#include "tests/unit/stream/conversations.h"

namespace inferwire::stream_test {
namespace {

constexpr std::uint32_t kNotSaid = ~0u;
constexpr std::uint64_t kNotSaidNs = ~0ull;

void expect_counts(const iw_request& r, std::uint32_t chunks, std::uint32_t reasoning, std::uint32_t tool,
                   std::uint32_t comments, std::uint32_t events) {
  EXPECT_EQ(r.chunks, chunks);
  EXPECT_EQ(r.chunks_reasoning, reasoning);
  EXPECT_EQ(r.chunks_tool, tool);
  EXPECT_EQ(r.comments, comments);
  EXPECT_EQ(r.events, events);
}

void expect_tokens(const iw_request& r, std::uint32_t in, std::uint32_t out) {
  EXPECT_EQ(r.tokens_input, in);
  EXPECT_EQ(r.tokens_output, out);
}

void expect_names(const iw_request& r, std::string_view model, std::string_view id, std::string_view finish) {
  EXPECT_EQ(r.model, model);
  EXPECT_EQ(r.response_id, id);
  EXPECT_EQ(r.finish_reason, finish);
}

void expect_complete_sse(const iw_request& r) {
  EXPECT_EQ(outcome_name(r.outcome), "complete");
  EXPECT_EQ(r.code, 200);
  EXPECT_EQ(r.stream, 1);
  EXPECT_EQ(r.format, IW_FORMAT_SSE);
  EXPECT_TRUE(r.head.flags & IW_REQ_END_MARKER);
  EXPECT_TRUE(r.head.flags & IW_REQ_RESPONSE_DONE);
  EXPECT_FALSE(r.head.flags & IW_REQ_APPROXIMATE);
}

TEST(Vllm, ChatCountsContentButNotTheRoleTheFinishTheUsageOrDone) {
  const auto r = only(play(vllm_chat()));
  expect_complete_sse(r);
  expect_counts(r, 4, 0, 0, 0, 8);
  expect_tokens(r, 23, 4);
  expect_names(r, "meta-llama/Llama-3.1-8B-Instruct", "chatcmpl-9f2c1e7a4b", "stop");
  EXPECT_EQ(r.head.route, 1);
  EXPECT_EQ(r.head.method, IW_METHOD_POST);
  EXPECT_TRUE(r.head.flags & IW_REQ_USAGE);
}

TEST(Vllm, UsageInEveryChunkEndsWithTheLastCount) {
  const auto r = only(play(vllm_chat_continuous_usage()));
  expect_complete_sse(r);
  expect_counts(r, 3, 0, 0, 0, 7);
  expect_tokens(r, 23, 12);
}

TEST(Vllm, CompletionsHaveTextAndNullUsageSaysNothing) {
  const auto r = only(play(vllm_completions()));
  expect_complete_sse(r);
  expect_counts(r, 3, 0, 0, 0, 4);
  expect_tokens(r, kNotSaid, kNotSaid);
  expect_names(r, "qwen", "cmpl-77", "length");
  EXPECT_FALSE(r.head.flags & IW_REQ_USAGE);
}

TEST(Vllm, ReasoningIsContentOfItsOwnKindAndComesBeforeTheFirstOutput) {
  const auto r = only(play(vllm_reasoning()));
  expect_complete_sse(r);
  expect_counts(r, 3, 2, 0, 0, 7);
  EXPECT_LT(r.content_ns, r.output_ns);
}

TEST(Vllm, ToolCallDeltasAreContentAndAnEmptyListIsNot) {
  const auto r = only(play(vllm_tool_calls()));
  expect_complete_sse(r);
  expect_counts(r, 3, 0, 3, 0, 7);
  expect_names(r, "meta-llama/Llama-3.1-8B-Instruct", "chatcmpl-9f2c1e7a4b", "tool_calls");
  EXPECT_EQ(r.content_ns, r.output_ns);
}

TEST(Vllm, AnErrorThatIsFollowedByDoneIsAnErrorInTheStream) {
  const auto r = only(play(vllm_error_then_done()));
  EXPECT_EQ(outcome_name(r.outcome), "error_in_stream");
  EXPECT_EQ(r.code, 200);
  expect_counts(r, 1, 0, 0, 0, 4);
}

TEST(Vllm, PerRequestMetricsGiveQueueAndPrefill) {
  const auto r = only(play(vllm_per_request_metrics()));
  expect_complete_sse(r);
  EXPECT_EQ(r.queue_ns, 12'500'000u);
  EXPECT_EQ(r.prefill_ns, 81'062'500u);
  expect_tokens(r, 5, 1);
}

TEST(Vllm, KeepAliveCommentsAreCountedAndAreNoEvents) {
  const auto r = only(play(vllm_keep_alive_comments()));
  expect_complete_sse(r);
  expect_counts(r, 2, 0, 0, 4, 5);
}

TEST(OpenAiResponses, CountsDeltasOnlyAndEndsWithCompleted) {
  const auto r = only(play(openai_responses()));
  expect_complete_sse(r);
  expect_counts(r, 4, 1, 1, 0, 11);
  expect_tokens(r, 31, 17);
  expect_names(r, "gpt-oss-20b", "resp_6f", "");
}

TEST(OpenAiResponses, FailedIsAnErrorThatEndsTheStream) {
  const auto r = only(play(openai_responses_failed()));
  EXPECT_EQ(outcome_name(r.outcome), "error_in_stream");
  EXPECT_TRUE(r.head.flags & IW_REQ_END_MARKER);
  expect_counts(r, 1, 0, 0, 0, 2);
}

TEST(OpenAi, AnAnswerInOnePieceGivesUsageModelIdAndFinish) {
  const auto r = only(play(openai_json()));
  EXPECT_EQ(outcome_name(r.outcome), "complete");
  EXPECT_EQ(r.stream, 0);
  EXPECT_EQ(r.format, IW_FORMAT_JSON);
  expect_counts(r, 0, 0, 0, 0, 0);
  expect_tokens(r, 19, 8);
  expect_names(r, "mistral-7b", "chatcmpl-plain", "stop");
}

TEST(OpenRouter, ReasoningUnderItsOtherNameIsReasoning) {
  const auto r = only(play(openrouter_reasoning()));
  expect_complete_sse(r);
  expect_counts(r, 2, 1, 0, 1, 3);
}

TEST(Sglang, CumulativeTextIsOneChunkAnEventHoweverLongItGrows) {
  const auto r = only(play(sglang_cumulative()));
  expect_complete_sse(r);
  expect_counts(r, 40, 0, 0, 0, 41);
  expect_tokens(r, 7, 40);
}

TEST(Tgi, GeneratedTextEndsTheStreamWithoutDone) {
  const auto r = only(play(tgi_generate_stream()));
  expect_complete_sse(r);
  expect_counts(r, 3, 0, 0, 1, 3);
  expect_tokens(r, 4, 3);
  expect_names(r, "", "", "length");
  EXPECT_EQ(r.head.route, 7);
}

TEST(Tgi, ChatIsOpenAiWithTheRoleInEveryChunk) {
  const auto r = only(play(tgi_chat()));
  expect_complete_sse(r);
  expect_counts(r, 2, 0, 0, 0, 3);
  expect_names(r, "tgi", "", "length");
}

TEST(Tgi, OverloadIsAnErrorInsideAStreamOf200) {
  const auto r = only(play(tgi_error()));
  EXPECT_EQ(r.code, 200);
  EXPECT_EQ(outcome_name(r.outcome), "error_in_stream");
  expect_counts(r, 0, 0, 0, 0, 1);
}

TEST(Ollama, ChatEndsWithDoneAndSaysItsDurations) {
  const auto r = only(play(ollama_chat()));
  EXPECT_EQ(outcome_name(r.outcome), "complete");
  EXPECT_EQ(r.format, IW_FORMAT_NDJSON);
  EXPECT_TRUE(r.head.flags & IW_REQ_END_MARKER);
  expect_counts(r, 3, 0, 0, 0, 4);
  expect_tokens(r, 26, 282);
  expect_names(r, "llama3.2:1b", "", "stop");
  EXPECT_EQ(r.load_ns, 1'334'875u);
  EXPECT_EQ(r.prefill_ns, 342'546'000u);
  EXPECT_EQ(r.queue_ns, kNotSaidNs);
}

TEST(Ollama, GenerateWithThinkingCountsBothKinds) {
  const auto r = only(play(ollama_generate_thinking()));
  EXPECT_EQ(outcome_name(r.outcome), "complete");
  expect_counts(r, 3, 2, 0, 0, 4);
  expect_tokens(r, 4, 2);
  expect_names(r, "qwen3", "", "length");
}

TEST(Ollama, AnErrorObjectIsAnErrorInTheStream) {
  const auto r = only(play(ollama_generate_error()));
  EXPECT_EQ(outcome_name(r.outcome), "error_in_stream");
  expect_counts(r, 1, 0, 0, 0, 2);
}

TEST(Ollama, AnAnswerInOnePieceSaysTokensAndDurations) {
  const auto r = only(play(ollama_json()));
  EXPECT_EQ(outcome_name(r.outcome), "complete");
  EXPECT_EQ(r.stream, 0);
  expect_tokens(r, 30, 290);
  EXPECT_EQ(r.prefill_ns, 325'953'000u);
  EXPECT_EQ(r.load_ns, 5'025'959u);
}

TEST(LlamaCpp, NativeStreamEndsWithStopTrueAndGivesTimings) {
  const auto r = only(play(llama_cpp_native()));
  expect_complete_sse(r);
  expect_counts(r, 2, 0, 0, 0, 3);
  expect_tokens(r, 9, 2);
  EXPECT_EQ(r.prefill_ns, 41'206'000u);
  expect_names(r, "tiny.gguf", "", "");
}

TEST(LlamaCpp, ChatTimingsStandInForUsage) {
  const auto r = only(play(llama_cpp_chat_timings()));
  expect_complete_sse(r);
  expect_counts(r, 1, 0, 0, 0, 4);
  expect_tokens(r, 6, 31);
  EXPECT_EQ(r.prefill_ns, 10'000'000u);
}

TEST(Anthropic, MessagesCountTextThinkingAndToolInputButNoSignatureOrPing) {
  const auto r = only(play(anthropic_messages()));
  expect_complete_sse(r);
  expect_counts(r, 4, 1, 1, 1, 13);
  expect_tokens(r, 25, 89);
  expect_names(r, "claude-sonnet-4", "msg_013Zva", "tool_use");
}

TEST(Anthropic, AnErrorEventEndsTheStreamAsAnError) {
  const auto r = only(play(anthropic_error()));
  EXPECT_EQ(outcome_name(r.outcome), "error_in_stream");
  expect_counts(r, 1, 0, 0, 0, 2);
}

TEST(Anthropic, AnAnswerInOnePieceGivesUsageAndStopReason) {
  const auto r = only(play(anthropic_json()));
  EXPECT_EQ(r.stream, 0);
  expect_tokens(r, 2095, 503);
  expect_names(r, "claude-haiku", "msg_01X", "end_turn");
}

TEST(Triton, GenerateStreamHasNoMarkerAndIsCompleteByItsFraming) {
  const auto r = only(play(triton_generate_stream()));
  EXPECT_EQ(outcome_name(r.outcome), "complete");
  EXPECT_FALSE(r.head.flags & IW_REQ_END_MARKER);
  EXPECT_TRUE(r.head.flags & IW_REQ_NO_MARKER_ROUTE);
  EXPECT_EQ(r.head.route, IW_ROUTE_TRITON_STREAM);
  expect_counts(r, 2, 0, 0, 0, 2);
  expect_names(r, "ensemble", "", "");
}

TEST(Node, AChunkInFourSegmentsIsOneEvent) {
  const auto r = only(play(node_four_iovecs()));
  expect_complete_sse(r);
  expect_counts(r, 3, 0, 0, 0, 5);
  EXPECT_EQ(r.deliveries, 3u);
}

TEST(Embeddings, UsageAndModelAreReadBehindALongVector) {
  const auto r = only(play(embeddings()));
  EXPECT_EQ(r.head.route, 5);
  expect_tokens(r, 5, kNotSaid);
  expect_names(r, "bge-m3", "", "");
}

}  // namespace
}  // namespace inferwire::stream_test
