// SPDX-License-Identifier: Apache-2.0
// Bytes that the agent never saw: the request is marked, counting recovers, and the next request is exact.
#include <gtest/gtest.h>

#include "tests/unit/stream/conversations.h"

namespace inferwire::stream_test {
namespace {

const std::string kEvent = chunk("data: {\"choices\":[{\"delta\":{\"content\":\"abcdefgh\"}}]}\n\n");

/// Sends bytes, of which those in [from, from + lost) pass the agent by.
void respond_with_hole(Connection& c, std::string_view bytes, std::size_t from, std::size_t lost) {
  c.response(bytes.substr(0, from));
  c.lose_response(static_cast<std::uint32_t>(lost));
  c.response(bytes.substr(from + lost));
}

void expect_exact(const iw_request& r, std::uint32_t chunks, const std::string& where) {
  EXPECT_EQ(r.chunks, chunks) << where;
  EXPECT_EQ(outcome_name(r.outcome), "complete") << where;
  EXPECT_FALSE(r.head.flags & IW_REQ_APPROXIMATE) << where;
  EXPECT_EQ(r.code, 200) << where;
  EXPECT_STREQ(r.model, "second") << where;
}

class Holes : public testing::TestWithParam<Role> {};

TEST_P(Holes, AnywhereInAStreamMarkItAndTheNextRequestIsExact) {
  const std::string stream = openai_stream(12, "one", "first");
  for (const std::size_t lost : {1u, 2u, 5u, 40u, 150u, 400u}) {
    for (std::size_t from = 0; from + lost <= stream.size(); from++) {
      const std::string where = std::to_string(lost) + " bytes lost at " + std::to_string(from);
      Connection c(GetParam());
      c.request(post("/v1/chat/completions"));
      respond_with_hole(c, stream, from, lost);
      c.acknowledge();
      c.request(post("/v1/chat/completions"));
      c.response(openai_stream(5, "two", "second"));
      c.acknowledge();
      ASSERT_EQ(c.records.size(), 2u) << where;
      const auto& r = c.records[0].request;
      ASSERT_TRUE(r.head.flags & IW_REQ_APPROXIMATE) << where;
      ASSERT_EQ(r.response_body_bytes == 0, false) << where;
      expect_exact(c.records[1].request, 5, where);
      ASSERT_EQ(c.records[1].request.head.ordinal, 2u) << where;
      if (testing::Test::HasFailure()) return;
    }
  }
}

TEST_P(Holes, InTheMiddleOfAStreamLoseOnlyTheEventsThatTheyTouch) {
  const std::string stream_head = head(200, kSse);
  std::string body;
  for (int i = 0; i < 30; i++) body += kEvent;
  body += chunk("data: {\"choices\":[{\"delta\":{},\"finish_reason\":\"stop\"}]}\n\n") +
          chunk("data: {\"usage\":{\"prompt_tokens\":7,\"completion_tokens\":30}}\n\n") + chunk("data: [DONE]\n\n") +
          std::string(kLastChunk);
  for (std::size_t from = 1; from < 29 * kEvent.size(); from += 3) {
    const std::size_t lost = 20;
    Connection c(GetParam());
    c.request(post("/v1/chat/completions"));
    c.response(stream_head);
    respond_with_hole(c, body, from, lost);
    c.acknowledge();
    c.server_fin();
    c.close();
    const auto r = only(c.records);
    ASSERT_GE(r.chunks, 28u) << from;
    ASSERT_LE(r.chunks, 30u) << from;
    ASSERT_EQ(r.tokens_output, 30u) << from;
    ASSERT_STREQ(r.finish_reason, "stop") << from;
    ASSERT_EQ(outcome_name(r.outcome), "complete") << from;
    ASSERT_TRUE(r.head.flags & IW_REQ_APPROXIMATE) << from;
    ASSERT_TRUE(r.head.flags & IW_REQ_RESPONSE_DONE) << from;
  }
}

TEST_P(Holes, InLinesWithoutSseRecoverToo) {
  std::string body;
  for (int i = 0; i < 20; i++) body += chunk("{\"model\":\"m\",\"message\":{\"content\":\"x\"},\"done\":false}\n");
  body += chunk("{\"done\":true,\"eval_count\":20}\n") + std::string(kLastChunk);
  for (std::size_t from = 1; from < 800; from += 3) {
    Connection c(GetParam());
    c.request(post("/api/chat"));
    c.response(head(200, kNdjson));
    respond_with_hole(c, body, from, 30);
    c.acknowledge();
    c.request(post("/v1/chat/completions"));
    c.response(openai_stream(5, "two", "second"));
    c.acknowledge();
    ASSERT_EQ(c.records.size(), 2u) << from;
    const auto& r = c.records[0].request;
    ASSERT_GE(r.chunks, 18u) << from;
    ASSERT_LE(r.chunks, 20u) << from;
    ASSERT_EQ(r.tokens_output, 20u) << from;
    ASSERT_EQ(outcome_name(r.outcome), "complete") << from;
    expect_exact(c.records[1].request, 5, std::to_string(from));
    if (testing::Test::HasFailure()) return;
  }
}

TEST_P(Holes, InABodyWithALengthKeepTheFraming) {
  const std::string body = R"({"id":"j","model":"first","choices":[{"message":{"content":")" + std::string(3'000, 'x') +
                           R"("},"finish_reason":"stop"}],"usage":{"prompt_tokens":2,"completion_tokens":1}})";
  const std::string whole_answer = with_length(200, "application/json", body);
  const std::size_t body_at = whole_answer.size() - body.size();
  for (std::size_t from = body_at; from + 500 <= whole_answer.size(); from += 11) {
    Connection c(GetParam());
    c.request(post("/v1/chat/completions"));
    respond_with_hole(c, whole_answer, from, 500);
    c.acknowledge();
    ASSERT_EQ(c.records.size(), 1u) << from;
    const auto& r = c.records[0].request;
    ASSERT_EQ(r.response_body_bytes, body.size()) << from;
    ASSERT_EQ(outcome_name(r.outcome), "complete") << from;
    ASSERT_TRUE(r.head.flags & IW_REQ_APPROXIMATE) << from;
    if (from < body_at + 2'500) {
      ASSERT_EQ(r.tokens_output, 1u) << from;
    }
    ASSERT_EQ(r.end_seq, c.response_seq());
  }
}

TEST_P(Holes, AtTheEndOfABodyWithALengthEndIt) {
  const std::string answer = with_length(200, "application/json", R"({"id":"j","model":"first"})");
  for (std::size_t lost = 1; lost < 20; lost++) {
    Connection c(GetParam());
    c.request(post("/v1/chat/completions"));
    c.response(answer.substr(0, answer.size() - lost));
    c.lose_response(static_cast<std::uint32_t>(lost));
    c.wait(kMillisecond);
    c.acknowledge();
    ASSERT_EQ(c.records.size(), 1u) << lost;
    EXPECT_EQ(c.records[0].request.end_seq, c.response_seq());
  }
}

TEST_P(Holes, InAnUploadThatNobodyLooksAtAreHarmless) {
  Connection c(GetParam());
  c.request("POST /v1/chat/completions HTTP/1.1\r\nContent-Length: 100000\r\n\r\n" + std::string(10'000, 'x'));
  c.lose_request(50'000);
  c.request(std::string(40'000, 'x'));
  EXPECT_TRUE(c.open().head.flags & IW_REQ_REQUEST_DONE);
  EXPECT_EQ(c.open().head.body_bytes, 100'000u);
  c.response(openai_stream(2, "x", "second"));
  c.acknowledge();
  expect_exact(only(c.records), 2, "upload");
}

TEST_P(Holes, AtTheEndOfAnUploadEndIt) {
  Connection c(GetParam());
  c.request("POST /v1/chat/completions HTTP/1.1\r\nContent-Length: 1000\r\n\r\n" + std::string(400, 'x'));
  c.wait(kMillisecond);
  c.lose_request(600);
  EXPECT_TRUE(c.open().head.flags & IW_REQ_REQUEST_DONE);
  EXPECT_EQ(c.open().head.last_byte_ns, c.now_ns);
  EXPECT_EQ(c.open().head.end_seq, c.request_seq());
}

TEST_P(Holes, AnywhereInARequestLeaveTheNextOneExact) {
  const std::string request = post("/v1/chat/completions", std::string(300, 'b'), "X-Header: something\r\n");
  for (const std::size_t lost : {1u, 30u, 120u}) {
    for (std::size_t from = 1; from + lost <= request.size(); from++) {
      const std::string where = std::to_string(lost) + " bytes lost at " + std::to_string(from);
      Connection c(GetParam());
      c.request(request.substr(0, from));
      c.lose_request(static_cast<std::uint32_t>(lost));
      c.request(request.substr(from + lost));
      c.response(openai_stream(3, "one", "first"));
      c.acknowledge();
      const auto before = c.records.size();
      c.request(post("/v1/chat/completions"));
      c.response(openai_stream(5, "two", "second"));
      c.acknowledge();
      ASSERT_EQ(c.records.size(), before + 1) << where;
      expect_exact(c.records.back().request, 5, where);
      if (testing::Test::HasFailure()) return;
    }
  }
}

TEST_P(Holes, OfAWholeAnswerEndWithTheNextRequest) {
  Connection c(GetParam());
  c.request(post("/v1/chat/completions"));
  c.lose_response(5'000);
  c.request(post("/v1/chat/completions"));
  c.response(openai_stream(5, "two", "second"));
  c.acknowledge();
  ASSERT_EQ(c.records.size(), 2u);
  EXPECT_TRUE(c.records[0].request.head.flags & IW_REQ_APPROXIMATE);
  expect_exact(c.records[1].request, 5, "answer lost");
}

TEST_P(Holes, OnAnIdleConnectionAreNothing) {
  Connection c(GetParam());
  c.lose_response(100);
  c.lose_request(100);
  c.request(post("/v1/chat/completions"));
  c.response(openai_stream(5, "two", "second"));
  c.acknowledge();
  expect_exact(only(c.records), 5, "idle");
}

TEST_P(Holes, BrokenChunkFramingIsMarkedAndEndsWithTheNextRequest) {
  Connection c(GetParam());
  c.request(post("/v1/chat/completions"));
  c.response(head(200, kSse) + kEvent + "zz\r\n" + kEvent);
  EXPECT_TRUE(c.open().head.flags & IW_REQ_APPROXIMATE);
  c.request(post("/v1/chat/completions"));
  c.response(openai_stream(5, "two", "second"));
  c.acknowledge();
  ASSERT_EQ(c.records.size(), 2u);
  EXPECT_EQ(c.records[0].request.chunks, 2u);
  expect_exact(c.records[1].request, 5, "framing");
}

INSTANTIATE_TEST_SUITE_P(BothRoles, Holes, testing::Values(Role::kServer, Role::kClient),
                         [](const auto& param) { return param.param == Role::kServer ? "server" : "client"; });

}  // namespace
}  // namespace inferwire::stream_test
