// SPDX-License-Identifier: Apache-2.0
#include "agent/model/request.h"

#include <gtest/gtest.h>

#include "tests/unit/model/record_builder.h"

namespace inferwire::model {
namespace {

using test::at_ms;
using test::kMs;
using test::RecordBuilder;

std::uint64_t ms(double value) { return static_cast<std::uint64_t>(value * kMs); }

Request final_request(const iw_record& record) { return make_request(record, true, Clock{}); }

RecordBuilder answered_server() {
  return RecordBuilder::server()
      .accepted(-0.05)
      .upload_ends(2)
      .read(3)
      .response(4)
      .first_content(800, 798, 801)
      .end_marker(1200)
      .ends(1201, 1210);
}

TEST(Request, KnowsWhoWhatAndWhen) {
  const auto record = answered_server()
                          .cookie(0xabc)
                          .model("llama-3")
                          .response_id("chatcmpl-1")
                          .finish_reason("stop")
                          .trace_id("4BF92F3577B34DA6A3CE929D0E0E4736")
                          .build();
  const Request request = make_request(record, true, Clock{1'000'000'000'000});
  EXPECT_EQ(request.start_unix_ns, static_cast<std::int64_t>(test::kFirstByteNs) + 1'000'000'000'000);
  EXPECT_EQ(request.duration_ns, ms(1210));
  EXPECT_EQ(request.local, "127.0.0.1:8000");
  EXPECT_EQ(request.remote, "127.0.0.1:51234");
  EXPECT_EQ(request.method, "POST");
  EXPECT_EQ(request.route_path, "/v1/chat/completions");
  EXPECT_EQ(request.code, 200);
  EXPECT_EQ(request.model, "llama-3");
  EXPECT_EQ(request.finish_reason, "stop");
  EXPECT_EQ(request.trace_id, "4bf92f3577b34da6a3ce929d0e0e4736");
  EXPECT_EQ(request.comm, "llama-server");
  EXPECT_EQ(request.outcome, IW_OUTCOME_COMPLETE);
}

TEST(Request, ConfiguredRoutesHaveTheirPath) {
  Settings settings;
  settings.configured_routes = {"/llm/ask"};
  auto builder = answered_server().route(IW_ROUTE_CONFIGURED);
  EXPECT_EQ(make_request(builder.build(), true, Clock{}, settings).route_path, "/llm/ask");
  EXPECT_EQ(final_request(builder.route(IW_ROUTE_CONFIGURED + 1).build()).route_path, "other");
  EXPECT_EQ(final_request(builder.route(250).build()).route_path, "other");
}

TEST(Request, AnIpv6AddressHasBrackets) {
  auto builder = answered_server();
  builder.conn().family = 10;
  const std::uint8_t loopback[16] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1};
  std::memcpy(builder.conn().local_addr, loopback, sizeof loopback);
  EXPECT_EQ(final_request(builder.build()).local, "[::1]:8000");
}

TEST(ServerTtft, ServerViewEndsAtTheHandOverAndUserViewBeginsWithTheSyn) {
  const Request request = final_request(answered_server().established(-0.1).handshake_us(300).build());
  EXPECT_EQ(request.ttft_server_ns, ms(796));
  EXPECT_EQ(request.ttft_user_ns, ms(801) + 100'000 + 300'000);  // 0.1 ms since established, handshake of 0.3 ms
  EXPECT_EQ(request.ttfb_ns, ms(2));
  EXPECT_EQ(request.delivered, "exact");
}

TEST(ServerTtft, AReusedConnectionCountsFromTheFirstRequestByte) {
  EXPECT_EQ(final_request(answered_server().ordinal(2).idle_before(100).build()).ttft_user_ns, ms(801));
}

TEST(ServerTtft, AConnectionOlderThanTheAgentIsNotNew) {
  EXPECT_EQ(final_request(answered_server().conn_flag(IW_CONN_MIDWAY).build()).ttft_user_ns, ms(801));
}

TEST(ServerTtft, AConnectionOpenedLongBeforeIsNotPartOfTheWait) {
  const Request request = final_request(answered_server().established(-30'000).accepted(-29'000).build());
  EXPECT_EQ(request.ttft_user_ns, ms(801));
  EXPECT_EQ(request.accept_wait_before_ns, ms(1000));
  EXPECT_EQ(request.idle_before_ns, ms(29'000));
}

TEST(ServerTtft, WithoutTheHandOverItEndsAtTheTransmission) {
  auto builder = answered_server();
  builder.request().content_handed_ns = 0;
  EXPECT_EQ(final_request(builder.build()).ttft_server_ns, ms(798));
}

TEST(ServerTtft, LateAcksMakeItAnEstimate) {
  EXPECT_EQ(final_request(answered_server().flag(IW_REQ_LATE_ACKS).build()).delivered, "estimated");
  EXPECT_EQ(final_request(answered_server().flag(IW_REQ_MARKS_MERGED).build()).delivered, "estimated");
}

TEST(ServerTtft, IsAbsentWithoutContent) {
  const Request request = final_request(RecordBuilder::server().accepted(-1).read(1).response(20).ends(30, 31).build());
  EXPECT_FALSE(request.ttft_server_ns);
  EXPECT_FALSE(request.ttft_user_ns);
  EXPECT_EQ(request.delivered, "");
  EXPECT_EQ(request.ttfb_ns, ms(20));
}

TEST(ClientTtft, IsFromTheSynToTheArrivalOnANewConnection) {
  auto builder = RecordBuilder::client().syn(-5).established(-1).request_acked(1).response(4).first_content(50, 50, 51);
  builder.ends(60, 61);
  const Request request = final_request(builder.build());
  EXPECT_EQ(request.ttft_user_ns, ms(55));
  EXPECT_FALSE(request.ttft_server_ns);
  EXPECT_EQ(request.delivered, "exact");
  EXPECT_EQ(request.handshake_ns, ms(4));
  EXPECT_EQ(request.idle_before_ns, ms(1));
  EXPECT_EQ(final_request(builder.ordinal(2).build()).ttft_user_ns, ms(50));
}

TEST(Request, AnEarlyAnswerHasNoTimeToFirstByteBeforeItsUploadEnded) {
  const Request request = final_request(RecordBuilder::server()
                                            .accepted(-1)
                                            .upload_open()
                                            .flag(IW_REQ_EARLY_RESPONSE)
                                            .response(20, 413)
                                            .ends(22, 23)
                                            .build());
  EXPECT_TRUE(request.early_response);
  EXPECT_FALSE(request.ttfb_ns);
  EXPECT_EQ(request.duration_ns, ms(23));
}

TEST(Request, AcceptWaitIsSplitAtTheFirstRequestByte) {
  const Request before = final_request(answered_server().established(-10).accepted(-4).build());
  EXPECT_EQ(before.accept_wait_before_ns, ms(6));
  EXPECT_EQ(before.idle_before_ns, ms(4));
  const Request across = final_request(answered_server().established(-10).accepted(2.5).build());
  EXPECT_EQ(across.accept_wait_before_ns, ms(10));
  EXPECT_EQ(across.phases_ns[IW_PHASE_ACCEPT_WAIT], ms(0.5));
  EXPECT_EQ(across.idle_before_ns, 0u);
}

TEST(Request, SetupIsAbsentOnLaterRequestsAndWhereItIsNotKnown) {
  const Request later = final_request(answered_server().ordinal(3).idle_before(250).build());
  EXPECT_FALSE(later.handshake_ns);
  EXPECT_FALSE(later.accept_wait_before_ns);
  EXPECT_EQ(later.idle_before_ns, ms(250));
  auto blind = answered_server().handshake_us(0);
  blind.conn().accepted_ns = 0;
  EXPECT_FALSE(final_request(blind.build()).handshake_ns);
  EXPECT_FALSE(final_request(blind.build()).accept_wait_before_ns);
}

TEST(Request, WhatTheTailDoesNotSayIsAbsent) {
  const Request silent = final_request(answered_server().build());
  EXPECT_FALSE(silent.tokens_output);
  EXPECT_FALSE(silent.tokens_input);
  EXPECT_FALSE(silent.queue_ns);
  EXPECT_FALSE(silent.rtt);
  auto builder = answered_server().tokens(0, 7);
  builder.request().queue_ns = 0;
  EXPECT_EQ(final_request(builder.build()).tokens_output, 0u);
  EXPECT_EQ(final_request(builder.build()).queue_ns, 0u);
}

TEST(Request, TimePerTokenIsTheStreamOverTheTokensAfterTheFirst) {
  EXPECT_EQ(final_request(answered_server().last_content(1198).tokens(101, 7).build()).time_per_token_ns, ms(4));
  EXPECT_FALSE(final_request(answered_server().last_content(1198).tokens(1, 7).build()).time_per_token_ns);
}

TEST(Request, TheFirstAnswerAfterReasoningIsTimed) {
  auto builder = answered_server();
  builder.request().chunks_reasoning = 4;
  builder.request().output_ns = at_ms(1000);
  EXPECT_EQ(final_request(builder.build()).first_output_ns, ms(998));
  EXPECT_FALSE(final_request(answered_server().build()).first_output_ns);
}

TEST(Request, TextsFromTheWireAreMadeHarmless) {
  const Request request = final_request(
      answered_server().model("a\x1b[31mb\xff").finish_reason("\"\n").response_id(std::string(64, 'x')).build());
  EXPECT_EQ(request.model, "a\xEF\xBF\xBD[31mb\xEF\xBF\xBD");
  EXPECT_EQ(request.finish_reason, "\"\xEF\xBF\xBD");
  EXPECT_EQ(request.response_id, std::string(64, 'x'));
}

TEST(Request, ANameCutInsideACharacterLosesIt) {
  EXPECT_EQ(final_request(answered_server().model(std::string(62, 'm') + "\xC3").build()).model, std::string(62, 'm'));
}

TEST(Request, ATraceIdThatIsNoneIsAbsent) {
  EXPECT_EQ(final_request(answered_server().trace_id(std::string(32, '0')).build()).trace_id, "");
  EXPECT_EQ(final_request(answered_server().trace_id("zz").build()).trace_id, "");
}

TEST(Request, AnUnknownRoleOrNumberBreaksNothing) {
  auto builder = answered_server();
  builder.conn().role = 77;
  builder.head().method = 200;
  builder.request().encoding = 99;
  builder.request().outcome = 99;
  builder.request().closed_first = 9;
  const Request request = final_request(builder.build());
  EXPECT_EQ(request.method, "");
  EXPECT_EQ(request.closed_first, "");
  EXPECT_EQ(outcome_name(request.outcome), "");
}

TEST(Gaps, QuantilesAreUpperEdgesAndNeverAboveTheMaximum) {
  const Request request = final_request(answered_server().sent_gaps(9.5, 98).sent_gaps(44, 1).sent_gaps(60, 1).build());
  const Gaps& gaps = request.gaps_sent;
  EXPECT_EQ(gaps.count, 100u);
  EXPECT_EQ(gaps.max_ns, ms(60));
  EXPECT_EQ(gaps.sum_ns, ms(9.5 * 98 + 44 + 60));
  EXPECT_EQ(gaps.quantile_ns(0.5, request.gap_edges_ns), ms(10));
  EXPECT_EQ(gaps.quantile_ns(0.99, request.gap_edges_ns), ms(50));
  EXPECT_EQ(gaps.quantile_ns(1, request.gap_edges_ns), ms(60));  // its bucket ends at 75
}

TEST(Gaps, BeyondTheLastEdgeTheQuantileIsTheMaximum) {
  const Request request = final_request(answered_server().sent_gaps(25'000, 1).build());
  EXPECT_EQ(request.gaps_sent.quantile_ns(0.5, request.gap_edges_ns), ms(25'000));
}

TEST(Gaps, AClientHasOnlyDeliveredOnes) {
  const auto record =
      RecordBuilder::client().request_acked(1).response(4).first_content(50, 50, 51).delivered_gaps(10, 5).ends(99, 99);
  const Request request = final_request(RecordBuilder(record).build());
  EXPECT_EQ(request.gaps_delivered.count, 5u);
  EXPECT_EQ(request.gaps_sent.count, 0u);
}

TEST(Gaps, FewerEdgesThanTheKernelHasRoomForKeepEveryGap) {
  Settings settings;
  settings.gap_edges_ns = {ms(10), ms(20)};
  auto builder = answered_server();
  builder.request().gap_sent[0] = 1;
  builder.request().gap_sent[2] = 2;
  builder.request().gap_sent[9] = 4;  // cannot be; is not lost either
  builder.request().gap_sent_max_ns = ms(30);
  const Request request = make_request(builder.build(), true, Clock{}, settings);
  EXPECT_EQ(request.gaps_sent.buckets, (std::vector<std::uint32_t>{1, 0, 6}));
  EXPECT_EQ(request.gaps_sent.quantile_ns(0.99, request.gap_edges_ns), ms(30));
}

TEST(Request, AnOpenOneHasNoOutcomeAndLastsUntilNow) {
  auto builder = answered_server();
  builder.without_flag(IW_REQ_RESPONSE_DONE | IW_REQ_END_MARKER);
  builder.request().done_ns = builder.request().end_ns = builder.request().end_handed_ns = 0;
  builder.request().activity_ns = at_ms(801);
  const Request request = make_request(builder.build(), false, Clock{}, {}, at_ms(5000));
  EXPECT_FALSE(request.final);
  EXPECT_EQ(request.outcome, IW_OUTCOME_NONE);
  EXPECT_EQ(request.duration_ns, ms(5000));
}

TEST(Names, CodesAreExactWhereTheContractSaysSo) {
  EXPECT_EQ(code_label(200), "200");
  EXPECT_EQ(code_label(529), "529");
  EXPECT_EQ(code_label(201), "2xx");
  EXPECT_EQ(code_label(418), "4xx");
  EXPECT_EQ(code_label(101), "1xx");
  EXPECT_EQ(code_label(0), "");
  EXPECT_EQ(code_label(60'000), "other");
}

TEST(Names, EveryRouteOfTheKernelHasAPath) {
#define IW_EXPECT_ROUTE(id, path) EXPECT_EQ(route_name(id, {}), path);
  IW_ROUTES(IW_EXPECT_ROUTE)
#undef IW_EXPECT_ROUTE
  EXPECT_EQ(route_name(IW_ROUTE_OTHER, {}), "other");
}

}  // namespace
}  // namespace inferwire::model
