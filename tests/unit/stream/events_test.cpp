// SPDX-License-Identifier: Apache-2.0
// The grammar of event streams, and what a model may say without being believed.
#include <gtest/gtest.h>

#include "tests/unit/stream/conversations.h"

namespace inferwire::stream_test {
namespace {

/// A chat stream of these raw events, and its record.
iw_request stream_of(std::string_view events, std::string_view path = "/v1/chat/completions") {
  Connection c;
  c.request(post(path));
  c.response(head(200, kSse));
  c.response(chunk(events));
  c.response(kLastChunk);
  c.acknowledge();
  EXPECT_EQ(c.records.size(), 1u);
  return c.records.empty() ? iw_request{} : c.records[0].request;
}

iw_request lines_of(std::string_view lines) {
  Connection c;
  c.request(post("/api/chat"));
  c.response(head(200, kNdjson));
  c.response(chunk(lines));
  c.response(kLastChunk);
  c.acknowledge();
  EXPECT_EQ(c.records.size(), 1u);
  return c.records.empty() ? iw_request{} : c.records[0].request;
}

const std::string kA = "data: {\"choices\":[{\"delta\":{\"content\":\"a\"}}]}\n\n";

TEST(Events, CrLfLineEndsAreTheSame) {
  const auto r = only(play(crlf_events()));
  EXPECT_EQ(outcome_name(r.outcome), "complete");
  EXPECT_EQ(r.chunks, 3u);
  EXPECT_EQ(r.events, 4u);
}

TEST(Events, SeveralDataLinesAreOneEvent) {
  const auto r = only(play(multi_line_data()));
  EXPECT_EQ(r.chunks, 2u);
  EXPECT_EQ(r.events, 3u);
  EXPECT_EQ(r.comments, 0u);  // a comment line inside an event with data is not a ping
}

TEST(Events, ManyInOneWriteAreManyChunksAndOneDelivery) {
  std::string many;
  for (int i = 0; i < 100; i++) many += kA;
  const auto r = stream_of(many + "data: [DONE]\n\n");
  EXPECT_EQ(r.chunks, 100u);
  EXPECT_EQ(r.deliveries, 1u);
  EXPECT_EQ(r.burst[IW_BURST_BUCKETS - 1], 1u);
}

TEST(Events, OneOverManyWritesIsOneDeliveryAtItsEnd) {
  Connection c;
  c.request(post("/v1/chat/completions"));
  c.response(head(200, kSse));
  c.pieces = pieces_of(5);
  c.per_packet_ns = kMillisecond;
  const std::uint64_t start = c.now_ns;
  const std::string bytes = chunk(kA);
  c.response(bytes);
  EXPECT_EQ(c.open().chunks, 1u);
  EXPECT_EQ(c.open().deliveries, 1u);
  // The packet that brought the blank line, not the one that brought the HTTP chunk's end.
  const std::size_t last_byte = bytes.size() - 2 - 1;
  EXPECT_EQ(c.open().content_ns, start + last_byte / 5 * kMillisecond);
}

TEST(Events, LongerThanAWindowCountOnceAndKeepTheirTail) {
  const auto r = only(play(long_events()));
  EXPECT_EQ(r.chunks, 2u);
  EXPECT_EQ(r.events, 4u);
  EXPECT_STREQ(r.finish_reason, "length");
}

TEST(Events, TextThatLooksLikeKeysMarkersAndHeadsIsOnlyText) {
  const auto r = only(play(hostile_text()));
  EXPECT_EQ(outcome_name(r.outcome), "complete");
  EXPECT_EQ(r.code, 200);
  EXPECT_EQ(r.chunks, 9u);
  EXPECT_EQ(r.events, 13u);
  EXPECT_EQ(r.tokens_output, 8u);
  EXPECT_STREQ(r.model, "meta-llama/Llama-3.1-8B-Instruct");
  EXPECT_STREQ(r.response_id, "chatcmpl-9f2c1e7a4b");
  EXPECT_STREQ(r.finish_reason, "stop");
}

TEST(Events, DoneInsideTextDoesNotEndTheStream) {
  const auto r = stream_of("data: {\"choices\":[{\"delta\":{\"content\":\"data: [DONE]\"}}]}\n\n");
  EXPECT_EQ(r.chunks, 1u);
  EXPECT_FALSE(r.head.flags & IW_REQ_END_MARKER);
  EXPECT_EQ(outcome_name(r.outcome), "truncated_clean");
}

TEST(Events, DoneWithoutItsBlankLineStillEndsTheStream) {
  EXPECT_EQ(outcome_name(stream_of(kA + "data: [DONE]\n").outcome), "complete");
  EXPECT_EQ(outcome_name(stream_of(kA + "data: [DONE]").outcome), "complete");
  EXPECT_EQ(outcome_name(stream_of(kA + "data:[DONE]\r\n").outcome), "complete");
}

TEST(Events, ContentWithoutItsBlankLineIsNoEvent) {
  const auto r = stream_of(kA + "data: {\"choices\":[{\"delta\":{\"content\":\"b\"}}]}\n");
  EXPECT_EQ(r.chunks, 1u);
}

TEST(Events, CommentsPingsAndBlankLinesAreNoChunks) {
  const auto r =
      stream_of(": ping\n\n\n\n:\n\nevent: ping\ndata: {\"type\": \"ping\"}\n\nevent: ping\n\n: two\n: lines\n\n" + kA +
                "data: [DONE]\n\n");
  EXPECT_EQ(r.chunks, 1u);
  EXPECT_EQ(r.comments, 5u);
}

TEST(Events, OtherFieldsAndUnknownLinesAreIgnored) {
  const auto r = stream_of("id: 7\nretry: 10\nfoo\nfoobar: \"content\":\"x\"\n\nid: {\"content\":\"x\"}\n\n" + kA);
  EXPECT_EQ(r.chunks, 1u);
  EXPECT_EQ(r.events, 1u);
}

TEST(Events, EmptyAndNullContentAreNoChunks) {
  const auto r = stream_of(
      "data: {\"delta\":{\"content\":\"\"}}\n\ndata: {\"delta\":{\"content\":null}}\n\ndata: {\"delta\":{\"content\": "
      "\"\"}}\n\n"
      "data: {\"delta\":{\"reasoning_content\":null,\"tool_calls\":null}}\n\ndata: {\"delta\":{\"content\": "
      "\"x\"}}\n\n");
  EXPECT_EQ(r.chunks, 1u);
  EXPECT_EQ(r.events, 5u);
}

TEST(Events, AnEventWithTextAndReasoningIsOneChunkAndCountsAsOutput) {
  const auto r = stream_of("data: {\"delta\":{\"reasoning_content\":\"a\",\"content\":\"b\"}}\n\n");
  EXPECT_EQ(r.chunks, 1u);
  EXPECT_EQ(r.chunks_reasoning, 0u);
}

TEST(Events, EachKnownErrorShapeIsSeen) {
  for (const char* error :
       {R"(data: {"error":{"message":"x"}})", R"(data: {"error": "x"})", R"(data: {"object":"error","message":"x"})",
        R"(data: {"type":"error","error":{"type":"overloaded_error"}})", "event: error\ndata: oops"}) {
    EXPECT_EQ(outcome_name(stream_of(kA + error + "\n\n").outcome), "error_in_stream") << error;
  }
  for (const char* fine : {R"(data: {"error":null})", R"(data: {"error":""})", R"(data: {"errors":[]})"}) {
    EXPECT_EQ(outcome_name(stream_of(kA + fine + "\n\ndata: [DONE]\n\n").outcome), "complete") << fine;
  }
}

TEST(Events, EachEndMarkerIsSeen) {
  for (const char* end : {"data: [DONE]", "data:[DONE]", R"(data: {"type":"response.completed"})",
                          R"(data: {"type": "response.incomplete"})", R"(data: {"type":"message_stop"})",
                          R"(data: {"generated_text":"all"})", R"(data: {"content":"","stop":true})",
                          R"(data: {"done":true})", R"(data: {"done": true})"}) {
    const auto r = stream_of(kA + end + "\n\n");
    EXPECT_TRUE(r.head.flags & IW_REQ_END_MARKER) << end;
    EXPECT_EQ(outcome_name(r.outcome), "complete") << end;
  }
  for (const char* none : {R"(data: {"stop":false})", R"(data: {"done":false})", R"(data: {"generated_text":null})",
                           R"(data: {"type":"message_start"})", R"(data: {"type":"message_stopped"})", "data: [DON]"}) {
    EXPECT_FALSE(stream_of(kA + none + "\n\n").head.flags & IW_REQ_END_MARKER) << none;
  }
}

TEST(Events, OfOneShapeAreStillLookedAtWhereTheyDiffer) {
  const auto r = only(play(chunks_of_one_shape()));
  EXPECT_EQ(r.chunks, 8u + 9u + 1u + 2u + 1u + 1u + 1u + 1u + 1u + 4u);
  EXPECT_EQ(r.chunks_reasoning, 1u);
  EXPECT_EQ(r.comments, 1u);
  EXPECT_EQ(r.tokens_output, 77u);
  EXPECT_STREQ(r.finish_reason, "stop");
  EXPECT_EQ(outcome_name(r.outcome), "error_in_stream");
}

TEST(Events, WithMoreThanTheTwoLineEndsAreAllCounted) {
  Connection c;
  c.request(post("/v1/chat/completions"));
  c.response(head(200, kSse));
  for (int i = 0; i < 10; i++) c.response(chunk(kA + "\n"));
  EXPECT_EQ(c.open().chunks, 10u);
}

TEST(Lines, BlankLinesAndCrLfAreAllowed) {
  const auto r = lines_of(
      "{\"message\":{\"content\":\"a\"},\"done\":false}\r\n\r\n\n{\"message\":{\"content\":\"b\"},\"done\":true}\n");
  EXPECT_EQ(r.chunks, 2u);
  EXPECT_EQ(r.events, 2u);
  EXPECT_EQ(outcome_name(r.outcome), "complete");
}

TEST(Lines, TheLastNeedsNoNewline) {
  const auto r = lines_of("{\"message\":{\"content\":\"a\"},\"done\":false}\n{\"done\":true,\"eval_count\":7}");
  EXPECT_EQ(r.events, 2u);
  EXPECT_EQ(r.tokens_output, 7u);
  EXPECT_EQ(outcome_name(r.outcome), "complete");
}

TEST(Lines, ToolCallsAreContent) {
  const auto r = lines_of(
      "{\"message\":{\"content\":\"\",\"tool_calls\":[{\"function\":{\"name\":\"w\",\"arguments\":{\"city\":\"Rome\"}}}"
      "]},\"done\":false}\n"
      "{\"message\":{\"content\":\"\"},\"done\":true}\n");
  EXPECT_EQ(r.chunks, 1u);
  EXPECT_EQ(r.chunks_tool, 1u);
}

TEST(Names, KeepSafeCharactersAndAreCut) {
  const std::string model(80, 'm');
  const auto r = stream_of(
      "data: {\"id\":\"a b\\\"<x>\",\"model\":\"" + model +
      "\",\"choices\":[{\"delta\":{\"content\":\"x\"},\"finish_reason\":\"a_very_long_finish_reason\"}]}\n\n");
  EXPECT_STREQ(r.response_id, "a_b_");
  EXPECT_EQ(std::string(r.model), std::string(IW_TEXT_MAX - 1, 'm'));
  EXPECT_STREQ(r.finish_reason, "a_very_long_fin");
}

TEST(Names, ALaterShorterFinishReasonReplacesTheWhole) {
  const auto r = stream_of("data: {\"finish_reason\":\"content_filter\"}\n\ndata: {\"finish_reason\":\"stop\"}\n\n");
  EXPECT_STREQ(r.finish_reason, "stop");
}

TEST(Names, AStopStringIsNotTheFinishReason) {
  const auto r = stream_of("data: {\"choices\":[{\"finish_reason\":\"stop\",\"stop_reason\":\"###\"}]}\n\n");
  EXPECT_STREQ(r.finish_reason, "stop");
}

TEST(Names, TheFirstModelAndIdWin) {
  const auto r =
      stream_of("data: {\"id\":\"one\",\"model\":\"first\"}\n\ndata: {\"id\":\"two\",\"model\":\"second\"}\n\n");
  EXPECT_STREQ(r.response_id, "one");
  EXPECT_STREQ(r.model, "first");
}

TEST(Numbers, SpacesAreAllowedAndNonsenseIsNotSaid) {
  const auto r = stream_of("data: {\"usage\": {\"prompt_tokens\": 12, \"completion_tokens\": 34}}\n\n");
  EXPECT_EQ(r.tokens_input, 12u);
  EXPECT_EQ(r.tokens_output, 34u);
  const auto bad =
      stream_of("data: {\"usage\":{\"prompt_tokens\":null,\"completion_tokens\":99999999999999999999999}}\n\n");
  EXPECT_EQ(bad.tokens_input, ~0u);
  EXPECT_EQ(bad.tokens_output, ~0u);
}

TEST(Numbers, SimilarKeysAreNotMixedUp) {
  const auto r = stream_of(
      "data: {\"usage\":{\"prompt_tokens\":1,\"completion_tokens\":2,\"prompt_tokens_details\":{\"cached_tokens\":90,"
      "\"audio_tokens\":91},\"completion_tokens_details\":{\"reasoning_tokens\":92,\"accepted_prediction_tokens\":93,"
      "\"rejected_prediction_tokens\":94,\"text_tokens\":95},\"total_tokens\":3,\"cache_creation_input_tokens\":96,"
      "\"max_output_tokens\":97}}\n\n");
  EXPECT_EQ(r.tokens_input, 1u);
  EXPECT_EQ(r.tokens_output, 2u);
}

TEST(Encoded, AGzipStreamKeepsItsCadenceWithoutEvents) {
  const auto r = only(play(gzip_stream()));
  EXPECT_EQ(r.encoding, IW_ENCODING_GZIP);
  EXPECT_EQ(r.stream, 1);
  EXPECT_EQ(r.chunks, 0u);
  EXPECT_EQ(r.deliveries, 3u);
  EXPECT_EQ(r.response_body_bytes, 600u);
  EXPECT_GT(r.content_ns, 0u);
  EXPECT_EQ(outcome_name(r.outcome), "complete");
}

}  // namespace
}  // namespace inferwire::stream_test
