// SPDX-License-Identifier: Apache-2.0
// How a request ended.
#include <gtest/gtest.h>

#include "tests/unit/stream/conversations.h"

namespace inferwire::stream_test {
namespace {

class Outcomes : public testing::TestWithParam<Role> {
 protected:
  std::string of(const Conversation& conversation) {
    return outcome_name(only(play(conversation, GetParam())).outcome);
  }
};

TEST_P(Outcomes, ACleanEndWithoutTheMarkerIsTruncatedClean) { EXPECT_EQ(of(truncated_clean()), "truncated_clean"); }
TEST_P(Outcomes, AFinInsideAChunkIsTruncatedAbrupt) { EXPECT_EQ(of(truncated_abrupt()), "truncated_abrupt"); }
TEST_P(Outcomes, AClientThatLeavesFirstAborts) { EXPECT_EQ(of(client_abort()), "client_abort"); }
TEST_P(Outcomes, AClientThatResetsAborts) { EXPECT_EQ(of(client_reset_mid_stream()), "client_abort"); }
TEST_P(Outcomes, AServerThatResetsIsAReset) { EXPECT_EQ(of(server_reset_mid_stream()), "reset"); }
TEST_P(Outcomes, AFinWithoutAnAnswerIsNoResponse) { EXPECT_EQ(of(no_response()), "no_response"); }
TEST_P(Outcomes, AResetWithoutAnAnswerIsAReset) { EXPECT_EQ(of(reset_before_response()), "reset"); }

TEST_P(Outcomes, AfterTheMarkerACloseChangesNothing) {
  Connection c(GetParam());
  c.request(post("/v1/chat/completions"));
  std::string stream = openai_stream(2);
  stream.resize(stream.size() - kLastChunk.size());  // the marker came, the framing's end did not
  c.response(stream);
  c.wait(kMillisecond);
  c.client_reset();
  c.close();
  EXPECT_EQ(outcome_name(only(c.records).outcome), "complete");
}

TEST_P(Outcomes, AServerThatEndsCleanlyBecauseTheClientLeftIsStillAnAbort) {
  Connection c(GetParam());
  c.request(post("/v1/chat/completions"));
  c.response(head(200, kSse));
  c.wait(kMillisecond);
  c.response(chunk("data: {\"choices\":[{\"delta\":{\"content\":\"a\"}}]}\n\n"));
  c.wait(kMillisecond);
  c.client_fin();
  c.wait(kMillisecond);
  c.response(kLastChunk);
  c.wait(kMillisecond);
  c.server_fin();
  c.close();
  const auto r = only(c.records);
  EXPECT_EQ(outcome_name(r.outcome), "client_abort");
  EXPECT_EQ(r.closed_first, IW_SIDE_CLIENT);
}

TEST_P(Outcomes, AStreamWithoutALengthThatTheClientLeftIsAnAbort) {
  Connection c(GetParam());
  c.request(post("/v1/chat/completions"));
  c.response("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\ndata: {\"content\":\"a\"}\n\n");
  c.wait(kMillisecond);
  c.client_fin();
  c.wait(kMillisecond);
  c.server_fin();
  c.close();
  EXPECT_EQ(outcome_name(only(c.records).outcome), "client_abort");
}

TEST_P(Outcomes, AStreamWithoutALengthAndWithoutItsMarkerIsTruncatedClean) {
  Connection c(GetParam());
  c.request(post("/v1/chat/completions"));
  c.response("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\ndata: {\"content\":\"a\"}\n\n");
  c.server_fin();
  c.close();
  EXPECT_EQ(outcome_name(only(c.records).outcome), "truncated_clean");
}

TEST_P(Outcomes, AClientThatClosesItsHalfAfterAskingIsAnsweredAsAlways) {
  Connection c(GetParam());
  c.request(post("/v1/chat/completions"));
  c.client_fin();
  c.wait(kMillisecond);
  c.response(openai_stream(2));
  c.server_fin();
  c.acknowledge();
  c.close();
  EXPECT_EQ(outcome_name(only(c.records).outcome), "complete");
}

TEST_P(Outcomes, ErrorAnswersAreCompleteAnswers) {
  Connection c(GetParam());
  c.request(post("/v1/chat/completions"));
  c.response(with_length(503, "application/json", R"({"error":{"message":"Loading model","code":503}})"));
  c.acknowledge();
  c.close();
  const auto r = only(c.records);
  EXPECT_EQ(outcome_name(r.outcome), "complete");
  EXPECT_EQ(r.code, 503);
}

TEST_P(Outcomes, ALengthThatIsNotReachedIsTruncatedAbrupt) {
  Connection c(GetParam());
  c.request(post("/v1/chat/completions"));
  c.response(head(200, "Content-Type: application/json\r\nContent-Length: 100\r\n") + "{\"id\":");
  c.server_fin();
  c.close();
  EXPECT_EQ(outcome_name(only(c.records).outcome), "truncated_abrupt");
}

TEST_P(Outcomes, EveryRequestOfAPipelineEndsWithTheConnection) {
  Connection c(GetParam());
  c.request(post("/v1/chat/completions") + post("/v1/completions") + post("/api/chat"));
  c.response(openai_stream(1));
  c.server_fin();
  c.close();
  ASSERT_EQ(c.records.size(), 3u);
  EXPECT_EQ(outcome_name(c.records[0].request.outcome), "complete");
  EXPECT_EQ(outcome_name(c.records[1].request.outcome), "no_response");
  EXPECT_EQ(outcome_name(c.records[2].request.outcome), "no_response");
}

INSTANTIATE_TEST_SUITE_P(BothRoles, Outcomes, testing::Values(Role::kServer, Role::kClient),
                         [](const auto& param) { return param.param == Role::kServer ? "server" : "client"; });

}  // namespace
}  // namespace inferwire::stream_test
