// SPDX-License-Identifier: Apache-2.0
// HTTP/1 as it is spoken: where messages begin and end, and which request an answer belongs to.
#include <gtest/gtest.h>

#include "tests/unit/stream/conversations.h"

namespace inferwire::stream_test {
namespace {

int route_of(std::string_view target) {
  Connection c;
  c.request(post(target));
  EXPECT_TRUE(c.is_open());
  return c.open().head.route;
}

TEST(Routes, AreKnownWithAndWithoutAQuery) {
#define EXPECT_ROUTE(id, path)                                      \
  if (std::string_view(path).find('*') == std::string_view::npos) { \
    EXPECT_EQ(route_of(path), id) << path;                          \
    EXPECT_EQ(route_of(path "?a=b&c=/d"), id) << path;              \
    EXPECT_EQ(route_of(path "#x"), id) << path;                     \
    EXPECT_EQ(route_of(path "/"), IW_ROUTE_OTHER) << path;          \
    EXPECT_EQ(route_of("/x" path), IW_ROUTE_OTHER) << path;         \
  }
  IW_ROUTES(EXPECT_ROUTE)
#undef EXPECT_ROUTE
}

TEST(Routes, OfTritonTakeAnyModelAndVersion) {
  EXPECT_EQ(route_of("/v2/models/m/generate_stream"), IW_ROUTE_TRITON_STREAM);
  EXPECT_EQ(route_of("/v2/models/a-long.model_name/versions/12/generate_stream?x"), IW_ROUTE_TRITON_STREAM);
  EXPECT_EQ(route_of("/v2/models/m/generate"), IW_ROUTE_TRITON);
  EXPECT_EQ(route_of("/v2/models/m/infer"), IW_ROUTE_OTHER);
  EXPECT_EQ(route_of("/v2/models/m/generate_stream_x"), IW_ROUTE_OTHER);
  EXPECT_EQ(route_of("/v2/models/m/generates"), IW_ROUTE_OTHER);
  EXPECT_EQ(route_of("/v2/models/m/ready?next=/generate"), IW_ROUTE_OTHER);
  EXPECT_EQ(route_of("/v2/models/" + std::string(200, 'm') + "/generate"), IW_ROUTE_OTHER);
}

TEST(Routes, CanBeConfigured) {
  iw_native_set_route(IW_ROUTE_CONFIGURED + 3, "/my/llm/v7/chat");
  EXPECT_EQ(route_of("/my/llm/v7/chat?k=v"), IW_ROUTE_CONFIGURED + 3);
  EXPECT_EQ(route_of("/my/llm/v7/chats"), IW_ROUTE_OTHER);
}

TEST(Routes, OfALongTargetAreNotGuessed) {
  EXPECT_EQ(route_of("/" + std::string(5'000, 'a')), IW_ROUTE_OTHER);
  EXPECT_EQ(route_of("/v1/chat/completions?" + std::string(5'000, 'q')), 1);
}

TEST(Methods, AreTold) {
  const std::pair<const char*, int> methods[] = {{"GET", IW_METHOD_GET},       {"HEAD", IW_METHOD_HEAD},
                                                 {"POST", IW_METHOD_POST},     {"PUT", IW_METHOD_PUT},
                                                 {"DELETE", IW_METHOD_DELETE}, {"OPTIONS", IW_METHOD_OPTIONS},
                                                 {"PATCH", IW_METHOD_PATCH},   {"CONNECT", IW_METHOD_CONNECT}};
  for (const auto& [name, id] : methods) {
    Connection c;
    c.request(std::string(name) + " /v1/responses HTTP/1.1\r\n\r\n");
    EXPECT_EQ(c.open().head.method, id) << name;
    EXPECT_EQ(c.open().head.route, 3) << name;
  }
}

TEST(Requests, TraceIdIsTakenFromTraceparent) {
  Connection c;
  c.request(post("/v1/completions", "{}", "TraceParent:  00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01\r\n"));
  EXPECT_EQ(c.open().head.has_trace, 1);
  EXPECT_EQ(std::string(c.open().head.trace_id, 32), "4bf92f3577b34da6a3ce929d0e0e4736");
  Connection bad;
  bad.request(post("/v1/completions", "{}", "traceparent: 00-short\r\n"));
  EXPECT_EQ(bad.open().head.has_trace, 0);
}

TEST(Requests, TheNextOneOnAConnectionHasNothingOfTheLast) {
  const auto records = play(keep_alive_three_requests());
  ASSERT_EQ(records.size(), 3u);
  const auto &first = records[0].request, &probe = records[1].request, &second = records[2].request;
  EXPECT_EQ(first.chunks, 3u);
  EXPECT_STREQ(first.model, "m1");
  EXPECT_EQ(probe.head.method, IW_METHOD_GET);
  EXPECT_EQ(probe.head.route, IW_ROUTE_OTHER);
  EXPECT_EQ(probe.code, 200);
  EXPECT_EQ(probe.chunks, 0u);
  EXPECT_STREQ(probe.model, "");
  EXPECT_EQ(probe.tokens_output, ~0u);
  EXPECT_EQ(second.chunks, 5u);
  EXPECT_STREQ(second.model, "m2");
  EXPECT_STREQ(second.response_id, "b");
  for (std::uint32_t i = 0; i < 3; i++) {
    EXPECT_EQ(records[i].request.head.ordinal, i + 1);
    EXPECT_EQ(outcome_name(records[i].request.outcome), "complete");
  }
  EXPECT_GT(second.head.idle_before_ns, 0u);
}

TEST(Pipelining, AnswersGoToTheirRequestsInOrder) {
  for (const Role role : {Role::kServer, Role::kClient}) {
    const auto records = play(pipelined_three_requests(), role);
    ASSERT_EQ(records.size(), 3u);
    EXPECT_EQ(records[0].request.head.route, 1);
    EXPECT_EQ(records[0].request.chunks, 2u);
    EXPECT_STREQ(records[0].request.model, "m1");
    EXPECT_EQ(records[1].request.head.route, 8);
    EXPECT_EQ(records[1].request.chunks, 1u);
    EXPECT_STREQ(records[1].request.model, "m2");
    EXPECT_EQ(records[2].request.head.method, IW_METHOD_GET);
    EXPECT_EQ(records[2].request.response_body_bytes, 9u);
    for (const auto& record : records) EXPECT_EQ(outcome_name(record.request.outcome), "complete");
  }
}

TEST(Pipelining, DeliveriesOfOnePacketGoToTheRequestsThatTheyAreOf) {
  const auto records = play(pipelined_three_requests());
  ASSERT_EQ(records.size(), 3u);
  EXPECT_EQ(records[0].request.deliveries, 1u);
  EXPECT_EQ(records[0].request.burst[1], 1u);  // two chunks
  EXPECT_EQ(records[1].request.deliveries, 1u);
  EXPECT_EQ(records[1].request.burst[0], 1u);
}

TEST(Pipelining, BeyondTheQueueAnswersStillGoToTheirRequests) {
  Connection c;
  std::string requests;
  for (int i = 0; i < 8; i++) requests += post(i % 2 ? "/api/chat" : "/v1/completions");
  c.request(requests);
  for (int i = 0; i < 7; i++) {
    c.response(with_length(200, "application/json", R"({"model":"answer-)" + std::to_string(i) + "\"}"));
    c.acknowledge();
  }
  // One answer is still to come when the client asks again.
  c.request(post("/v1/messages"));
  c.response(with_length(200, "application/json", R"({"model":"answer-7"})"));
  c.acknowledge();
  c.response(with_length(200, "application/json", R"({"model":"last"})"));
  c.acknowledge();
  ASSERT_EQ(c.records.size(), 9u);
  for (std::uint32_t i = 0; i < 9; i++) {
    const auto& r = c.records[i].request;
    EXPECT_EQ(r.head.ordinal, i + 1);
    if (i <= IW_QUEUE) {
      EXPECT_EQ(r.head.route, i % 2 ? 8 : 2);
      EXPECT_EQ(std::string(r.model), "answer-" + std::to_string(i));
      EXPECT_FALSE(r.head.flags & IW_REQ_APPROXIMATE);
    } else if (i < 8) {
      EXPECT_TRUE(r.head.flags & IW_REQ_APPROXIMATE) << i;  // only its place was known
    } else {
      EXPECT_EQ(r.head.route, 4);
      EXPECT_STREQ(r.model, "last");
      EXPECT_FALSE(r.head.flags & IW_REQ_APPROXIMATE);
    }
  }
}

TEST(Pipelining, AfterAFullQueueHasDrainedTheNextRequestIsExact) {
  Connection c;
  std::string requests;
  for (int i = 0; i < 7; i++) requests += post("/v1/completions");
  c.request(requests);
  for (int i = 0; i < 7; i++) c.response(with_length(200, "application/json", "{}"));
  c.acknowledge();
  ASSERT_EQ(c.records.size(), 7u);
  EXPECT_FALSE(c.is_open());
  c.request(post("/v1/chat/completions"));
  c.response(openai_stream(4));
  c.acknowledge();
  ASSERT_EQ(c.records.size(), 8u);
  EXPECT_EQ(c.records[7].request.chunks, 4u);
  EXPECT_EQ(c.records[7].request.head.route, 1);
  EXPECT_FALSE(c.records[7].request.head.flags & IW_REQ_APPROXIMATE);
}

TEST(Interim, AContinueIsNotTheResponse) {
  Connection c;
  c.request("POST /v1/chat/completions HTTP/1.1\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\n");
  c.wait(kMillisecond);
  c.response("HTTP/1.1 100 Continue\r\n\r\n");
  c.acknowledge();
  EXPECT_EQ(c.open().response_ns, 0u);
  EXPECT_EQ(c.open().code, 0);
  c.wait(kMillisecond);
  c.request("{}");
  c.wait(kMillisecond);
  const std::uint64_t answered = c.now_ns;
  c.response(openai_stream(1));
  c.wait(5 * kMillisecond);
  c.acknowledge();
  const auto r = only(c.records);
  EXPECT_EQ(r.response_ns, answered);
  EXPECT_EQ(r.response_delivered_ns, answered + 5 * kMillisecond);
  EXPECT_EQ(r.code, 200);
  EXPECT_TRUE(r.head.flags & IW_REQ_EXPECT_CONTINUE);
  EXPECT_FALSE(r.head.flags & IW_REQ_EARLY_RESPONSE);
}

TEST(Interim, HintsWithAContentTypeDoNotChangeTheAnswer) {
  const auto r = only(play(early_hints()));
  EXPECT_EQ(r.code, 200);
  EXPECT_EQ(r.chunks, 1u);
  Connection c;
  c.request(post("/v1/chat/completions"));
  c.response("HTTP/1.1 103 Early Hints\r\nContent-Type: text/event-stream\r\n\r\n" +
             with_length(200, "text/plain", "data: x\n\n"));
  EXPECT_EQ(c.open().stream, 0);
}

TEST(Interim, OnlyAContinueIsNoResponse) {
  Connection c;
  c.request("POST /v1/completions HTTP/1.1\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\n");
  c.response("HTTP/1.1 100 Continue\r\n\r\n");
  c.server_fin();
  c.close();
  EXPECT_EQ(outcome_name(only(c.records).outcome), "no_response");
}

TEST(Bodies, OfHead204And304AreEmptyWhateverTheirHeadersSay) {
  for (const auto& conversation : {head_request(), no_content_and_not_modified()}) {
    const auto records = play(conversation);
    const auto& last = records.back().request;
    EXPECT_EQ(last.chunks, 1u) << conversation.name;
    EXPECT_EQ(outcome_name(last.outcome), "complete");
    for (const auto& record : records) EXPECT_EQ(outcome_name(record.request.outcome), "complete");
  }
}

TEST(Bodies, MayBeLongUploads) {
  Connection c;
  const std::size_t size = 20u << 20;
  c.request("POST /v1/chat/completions HTTP/1.1\r\nContent-Length: " + std::to_string(size) + "\r\n\r\n");
  c.pieces = pieces_of(64'000);
  c.per_packet_ns = kMillisecond;
  c.request(std::string(size, 'x'));
  EXPECT_TRUE(c.open().head.flags & IW_REQ_REQUEST_DONE);
  EXPECT_EQ(c.open().head.body_bytes, size);
  EXPECT_EQ(c.open().head.last_byte_ns - c.open().head.first_byte_ns, (size / 64'000) * kMillisecond);
  EXPECT_EQ(c.open().head.end_seq, c.request_seq());
  c.response(openai_stream(2));
  c.acknowledge();
  EXPECT_EQ(only(c.records).chunks, 2u);
}

TEST(Bodies, UploadsInHttpChunksAreMeasuredWithoutTheFraming) {
  const auto records = play(chunked_upload());
  ASSERT_EQ(records.size(), 2u);
  EXPECT_EQ(records[0].request.head.body_bytes, 24u + 5'000u + 5u);
  EXPECT_TRUE(records[0].request.head.flags & IW_REQ_REQUEST_DONE);
  EXPECT_EQ(records[1].request.chunks, 1u);
}

TEST(Bodies, AnAnswerBeforeTheUploadsEndIsEarlyAndTheUploadGoesOn) {
  const auto r = only(play(early_413()));
  EXPECT_EQ(r.code, 413);
  EXPECT_TRUE(r.head.flags & IW_REQ_EARLY_RESPONSE);
  EXPECT_FALSE(r.head.flags & IW_REQ_REQUEST_DONE);
  EXPECT_EQ(outcome_name(r.outcome), "complete");

  Connection c;
  c.request("POST /v1/chat/completions HTTP/1.1\r\nContent-Length: 1000\r\n\r\n");
  c.response("HTTP/1.1 429 Too Many Requests\r\nContent-Length: 0\r\n\r\n");
  c.acknowledge();
  ASSERT_EQ(c.records.size(), 1u);
  // The rest of the body, which looks like a request, and then a real one.
  std::string rest = "POST /v1/completions HTTP/1.1\r\nContent-Length: 0\r\n\r\n";
  rest += std::string(1000 - rest.size(), ' ');
  c.request(rest);
  c.request(post("/v1/messages"));
  c.response(openai_stream(1));
  c.acknowledge();
  ASSERT_EQ(c.records.size(), 2u);
  EXPECT_EQ(c.records[1].request.head.route, 4);
  EXPECT_EQ(c.records[1].request.head.ordinal, 2u);
}

TEST(Bodies, ChunkExtensionsAndTrailersAreNoBody) {
  const auto records = play(chunk_extensions_and_trailers());
  ASSERT_EQ(records.size(), 2u);
  EXPECT_EQ(records[0].request.chunks, 2u);
  EXPECT_EQ(outcome_name(records[0].request.outcome), "complete");
  EXPECT_EQ(records[1].request.chunks, 1u);
}

TEST(Bodies, TransferEncodingWinsOverContentLength) {
  Connection c;
  c.request(post("/v1/chat/completions"));
  c.response(
      "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nTransfer-Encoding: gzip, chunked\r\nContent-Type: "
      "text/event-stream\r\n\r\n" +
      chunk("data: {\"content\":\"x\"}\n\n") + std::string(kLastChunk));
  EXPECT_TRUE(c.open().head.flags & IW_REQ_RESPONSE_DONE);
  EXPECT_EQ(c.open().chunks, 1u);
}

TEST(Bodies, WithoutALengthEndWithTheConnection) {
  const auto r = only(play(stream_until_close()));
  EXPECT_EQ(outcome_name(r.outcome), "complete");
  EXPECT_EQ(r.chunks, 2u);
  EXPECT_TRUE(r.head.flags & IW_REQ_RESPONSE_DONE);
}

TEST(Bodies, WithoutALengthKeepTheirLastLine) {
  const auto lines = only(play(ndjson_until_close_without_newline()));
  EXPECT_EQ(outcome_name(lines.outcome), "complete");
  EXPECT_EQ(lines.tokens_output, 1u);
  const auto json = only(play(json_until_close()));
  EXPECT_EQ(json.tokens_input, 2u);
  EXPECT_EQ(json.tokens_output, 1u);
  EXPECT_STREQ(json.finish_reason, "stop");
}

TEST(Heads, MayHaveManyAndLongLines) {
  const auto r = only(play(big_heads()));
  EXPECT_EQ(r.head.route, 1);
  EXPECT_EQ(r.format, IW_FORMAT_SSE);
  EXPECT_EQ(r.chunks, 1u);
  EXPECT_EQ(outcome_name(r.outcome), "complete");
}

TEST(Heads, NamesAndValuesMayBeInAnyCase) {
  Connection c;
  c.request(post("/v1/chat/completions"));
  c.response("HTTP/1.1 200 OK\r\nCONTENT-TYPE:Text/Event-Stream\r\ntRANSFER-eNCODING:CHUNKED\r\n\r\n" +
             chunk("data: {\"content\":\"x\"}\n\n"));
  EXPECT_EQ(c.open().stream, 1);
  EXPECT_EQ(c.open().chunks, 1u);
}

TEST(Heads, LineEndsWithoutCarriageReturnAreAllowed) {
  Connection c;
  c.request("POST /v1/completions HTTP/1.1\nContent-Length: 2\n\n{}");
  EXPECT_TRUE(c.open().head.flags & IW_REQ_REQUEST_DONE);
  c.response("HTTP/1.1 200 OK\nContent-Type: application/json\nContent-Length: 2\n\n{}");
  c.acknowledge();
  EXPECT_EQ(c.records.size(), 1u);
}

TEST(Heads, ThatNeverEndAreGivenUpAfter64KB) {
  Connection c;
  c.request("POST /v1/completions HTTP/1.1\r\n");
  for (int i = 0; i < 2'000; i++) c.request("X-Header: " + std::string(80, 'x') + "\r\n");
  EXPECT_EQ(c.flow().parser[IW_IN].state, IW_P_DEAD);
  EXPECT_TRUE(c.open().head.flags & IW_REQ_APPROXIMATE);
}

TEST(Formats, AreToldByTheContentType) {
  const std::pair<const char*, int> types[] = {{"text/event-stream", IW_FORMAT_SSE},
                                               {"text/event-stream; charset=utf-8", IW_FORMAT_SSE},
                                               {"application/x-ndjson", IW_FORMAT_NDJSON},
                                               {"application/ndjson", IW_FORMAT_NDJSON},
                                               {"application/jsonl", IW_FORMAT_NDJSON},
                                               {"application/stream+json", IW_FORMAT_NDJSON},
                                               {"application/json", IW_FORMAT_JSON},
                                               {"application/json; charset=utf-8", IW_FORMAT_JSON},
                                               {"text/plain", IW_FORMAT_SKIP},
                                               {"application/octet-stream", IW_FORMAT_SKIP},
                                               {"text/event", IW_FORMAT_SKIP}};
  for (const auto& [type, format] : types) {
    Connection c;
    c.request(post("/v1/chat/completions"));
    c.response(head(200, std::string("Content-Type: ") + type + "\r\nTransfer-Encoding: chunked\r\n"));
    EXPECT_EQ(c.open().format, format) << type;
    EXPECT_EQ(c.open().stream, format == IW_FORMAT_SSE || format == IW_FORMAT_NDJSON) << type;
  }
}

TEST(Upgrades, EndTheHttpOfTheConnection) {
  const auto r = only(play(websocket_upgrade()));
  EXPECT_EQ(r.code, 101);
  EXPECT_EQ(outcome_name(r.outcome), "complete");
  EXPECT_TRUE(r.head.flags & IW_REQ_UPGRADED);
}

TEST(Strangers, ThatDoNotSpeakHttpMakeNoRequest) {
  Connection c;
  c.request("\x16\x03\x01\x02\x00\x01");
  c.request("PING\r\n");
  c.request("SET key value\r\nGET key\r\n");
  c.request(std::string(5'000, '\0'));
  c.response("+PONG\r\n");
  EXPECT_FALSE(c.is_open());
  EXPECT_TRUE(c.records.empty());
  EXPECT_EQ(c.flow().record.conn.requests, 0u);
}

TEST(Strangers, AnAnswerThatNobodyAskedForIsIgnored) {
  Connection c;
  c.response(with_length(408, "text/plain", "idle"));
  EXPECT_FALSE(c.is_open());
  c.request(post("/v1/chat/completions"));
  c.response(openai_stream(2));
  c.acknowledge();
  EXPECT_EQ(only(c.records).chunks, 2u);
}

}  // namespace
}  // namespace inferwire::stream_test
