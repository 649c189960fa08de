// SPDX-License-Identifier: Apache-2.0
#include "agent/model/tracker.h"

#include <gtest/gtest.h>

#include <map>
#include <nlohmann/json.hpp>
#include <string>

#include "agent/base/result.h"
#include "tests/unit/model/metric_sum.h"
#include "tests/unit/model/record_builder.h"

namespace inferwire::model {
namespace {

using metrics::FamilyId;
using nlohmann::json;
using test::at_ms;
using test::RecordBuilder;

class TrackerTest : public ::testing::Test {
 protected:
  void SetUp() override { make({}); }

  void make(TrackerOptions options) {
    tracker.reset();
    registry = std::make_unique<metrics::Registry>();
    tracker = std::make_unique<RequestTracker>(*registry, std::move(options));
  }

  static Identity llama() { return {"prod", "llama", "llama-0", "server", "node-7", "llama-server", 4242}; }

  Recorded partial(const RecordBuilder& builder, double now_ms) {
    return tracker->on_record(builder.build(), false, at_ms(now_ms), llama());
  }
  Recorded final(const RecordBuilder& builder, double now_ms) {
    return tracker->on_record(builder.build(), true, at_ms(now_ms), llama());
  }

  // Sum over the series whose labels have all of `wanted`; histograms: how many were observed.
  double total(FamilyId id, const test::Wanted& wanted = {}) { return test::metric_sum(*registry, id, wanted, true); }
  double histogram_sum(FamilyId id, const test::Wanted& wanted = {}) {
    return test::metric_sum(*registry, id, wanted, false);
  }

  static RecordBuilder open_stream(double first_content_ms = 100) {
    return RecordBuilder::server().accepted(-0.05).read(1).response(2).model("llama-3").first_content(
        first_content_ms, first_content_ms, first_content_ms + 1);
  }
  static RecordBuilder finished_stream(std::uint32_t chunks = 10) {
    return open_stream()
        .chunks(chunks)
        .sent_gaps(9, chunks - 1)
        .delivered_gaps(9, chunks - 1)
        .last_content(190)
        .end_marker(191)
        .tokens(chunks, 5)
        .ends(192, 193);
  }

  std::unique_ptr<metrics::Registry> registry;
  std::unique_ptr<RequestTracker> tracker;
};

TEST_F(TrackerTest, AFinishedRequestIsInEveryFamily) {
  auto builder = finished_stream();
  builder.request().queue_ns = 3'000'000;
  builder.request().prefill_ns = 4'000'000;
  builder.retransmits(IW_PHASE_STREAM, 0, 2);
  const Recorded recorded = final(builder, 200);
  EXPECT_EQ(json::parse(recorded.line)["outcome"], "complete");

  EXPECT_EQ(total(FamilyId::kRequestsTotal, {{"namespace", "prod"},
                                             {"workload", "llama"},
                                             {"container", "server"},
                                             {"pod", "llama-0"},
                                             {"role", "server"},
                                             {"port", "8000"},
                                             {"protocol", "http1"},
                                             {"route", "/v1/chat/completions"},
                                             {"model", "llama-3"},
                                             {"code", "200"},
                                             {"outcome", "complete"}}),
            1);
  EXPECT_EQ(total(FamilyId::kRequestDurationSeconds, {{"stream", "true"}}), 1);
  EXPECT_DOUBLE_EQ(histogram_sum(FamilyId::kRequestDurationSeconds), 0.193);
  EXPECT_DOUBLE_EQ(total(FamilyId::kRequestDurationSecondsSquaredTotal), 0.193 * 0.193);
  EXPECT_EQ(total(FamilyId::kRequestPhaseSeconds), 8);
  EXPECT_NEAR(histogram_sum(FamilyId::kRequestPhaseSeconds), 0.193, 1e-12);
  EXPECT_EQ(total(FamilyId::kTimeToFirstByteSeconds), 1);
  EXPECT_EQ(total(FamilyId::kTimeToFirstChunkSeconds, {{"view", "server"}, {"model", "llama-3"}}), 1);
  EXPECT_EQ(total(FamilyId::kTimeToFirstChunkSeconds, {{"view", "user"}}), 1);
  EXPECT_EQ(total(FamilyId::kTimePerOutputChunkSeconds, {{"view", "sent"}}), 9);
  EXPECT_DOUBLE_EQ(histogram_sum(FamilyId::kTimePerOutputChunkSeconds, {{"view", "sent"}}), 0.081);
  EXPECT_EQ(total(FamilyId::kTimePerOutputChunkSeconds, {{"view", "delivered"}}), 9);
  EXPECT_EQ(total(FamilyId::kTimePerOutputTokenSeconds), 1);
  EXPECT_DOUBLE_EQ(histogram_sum(FamilyId::kTimePerOutputTokenSeconds), 0.010);
  EXPECT_EQ(total(FamilyId::kOutputChunksTotal), 10);
  EXPECT_EQ(total(FamilyId::kOutputTokensTotal), 10);
  EXPECT_EQ(total(FamilyId::kInputTokensTotal), 5);
  EXPECT_EQ(total(FamilyId::kChunksPerDelivery), 10);
  EXPECT_EQ(histogram_sum(FamilyId::kChunksPerDelivery), 10);
  EXPECT_EQ(total(FamilyId::kRequestRetransmittedSegmentsTotal, {{"phase", "stream"}}), 2);
  EXPECT_EQ(total(FamilyId::kServerQueueSeconds, {{"source", "wire"}}), 1);
  EXPECT_DOUBLE_EQ(histogram_sum(FamilyId::kServerPrefillSeconds), 0.004);
  EXPECT_EQ(total(FamilyId::kRequestBodyBytes), 1);
}

TEST_F(TrackerTest, TtftCountsAtTheFirstChunkAndGapsWhileTheStreamIsOpen) {
  partial(open_stream(), 101);
  EXPECT_EQ(total(FamilyId::kTimeToFirstChunkSeconds, {{"view", "server"}}), 1);
  EXPECT_EQ(total(FamilyId::kOutputChunksTotal), 1);
  EXPECT_EQ(total(FamilyId::kRequestsTotal), 0);

  partial(open_stream().chunks(5).sent_gaps(9, 4), 150);
  EXPECT_EQ(total(FamilyId::kTimePerOutputChunkSeconds, {{"view", "sent"}}), 4);
  EXPECT_EQ(total(FamilyId::kOutputChunksTotal), 5);

  final(finished_stream(), 200);
  EXPECT_EQ(total(FamilyId::kTimeToFirstChunkSeconds, {{"view", "server"}}), 1);
  EXPECT_EQ(total(FamilyId::kTimeToFirstChunkSeconds, {{"view", "user"}}), 1);
  EXPECT_EQ(total(FamilyId::kTimePerOutputChunkSeconds, {{"view", "sent"}}), 9);
  EXPECT_DOUBLE_EQ(histogram_sum(FamilyId::kTimePerOutputChunkSeconds, {{"view", "sent"}}), 0.081);
  EXPECT_EQ(total(FamilyId::kOutputChunksTotal), 10);
  EXPECT_EQ(total(FamilyId::kTimeToFirstByteSeconds), 1);
  EXPECT_EQ(total(FamilyId::kRequestsTotal), 1);
}

TEST_F(TrackerTest, AnOlderPartialRecordTakesNothingBack) {
  partial(open_stream().chunks(5).sent_gaps(9, 4), 150);
  partial(open_stream().chunks(3).sent_gaps(9, 2), 151);
  partial(open_stream().chunks(6).sent_gaps(9, 5), 152);
  EXPECT_EQ(total(FamilyId::kOutputChunksTotal), 6);
  EXPECT_EQ(total(FamilyId::kTimePerOutputChunkSeconds, {{"view", "sent"}}), 5);
  EXPECT_DOUBLE_EQ(histogram_sum(FamilyId::kTimePerOutputChunkSeconds, {{"view", "sent"}}), 0.045);
}

TEST_F(TrackerTest, APartialRecordAfterTheFinalOneChangesNothing) {
  final(finished_stream(), 200);
  partial(open_stream().chunks(5), 201);
  final(finished_stream(), 202);
  EXPECT_EQ(total(FamilyId::kOutputChunksTotal), 10);
  EXPECT_EQ(total(FamilyId::kRequestsTotal), 1);
  EXPECT_EQ(tracker->status().open_requests, 0u);
  EXPECT_EQ(tracker->status().stale_total, 2u);
}

TEST_F(TrackerTest, TheNextRequestOfAConnectionIsAnother) {
  final(finished_stream(), 200);
  final(finished_stream().ordinal(2), 400);
  EXPECT_EQ(total(FamilyId::kRequestsTotal), 2);
  EXPECT_EQ(total(FamilyId::kTimeToFirstChunkSeconds, {{"view", "server"}}), 2);
}

TEST_F(TrackerTest, AStreamOfAnotherRouteIsARecordAndCountsAsARequestOnly) {
  const Recorded recorded = final(finished_stream().route(IW_ROUTE_OTHER), 200);
  EXPECT_NE(recorded.line.find(R"("route":"other")"), std::string::npos) << recorded.line;
  EXPECT_EQ(total(FamilyId::kRequestsTotal, {{"route", "other"}, {"model", ""}}), 1);
  for (const FamilyId id :
       {FamilyId::kRequestDurationSeconds, FamilyId::kRequestPhaseSeconds, FamilyId::kTimeToFirstByteSeconds,
        FamilyId::kTimeToFirstChunkSeconds, FamilyId::kOutputChunksTotal, FamilyId::kRequestBodyBytes}) {
    EXPECT_EQ(total(id), 0) << metrics::family_of(id).name;
  }
}

TEST_F(TrackerTest, OnlyASuccessfulAnswerNamesAModel) {
  final(RecordBuilder::server().accepted(-1).read(1).response(5, 404).model("no-such-model").ends(6, 7), 10);
  EXPECT_EQ(total(FamilyId::kRequestsTotal, {{"model", ""}, {"code", "404"}}), 1);
}

TEST_F(TrackerTest, AClientsPortIsThePeersIfItIsWellKnownOrConfigured) {
  make({.known_ports = {12'345}});
  const auto with_peer = [](std::uint64_t cookie, std::uint16_t port) {
    return RecordBuilder::client().cookie(cookie).ports(50'000, port).request_acked(1).response(5).ends(6, 7);
  };
  final(with_peer(1, 8000), 10);
  final(with_peer(2, 443), 10);
  final(with_peer(3, 12'345), 10);
  final(with_peer(4, 40'999), 10);
  for (const char* port : {"8000", "443", "12345", "other"}) {
    EXPECT_EQ(total(FamilyId::kRequestsTotal, {{"port", port}}), 1) << port;
  }
}

TEST_F(TrackerTest, AServersPortIsItsOwn) {
  final(finished_stream().ports(40'999, 50'000), 200);
  EXPECT_EQ(total(FamilyId::kRequestsTotal, {{"port", "40999"}}), 1);
}

TEST_F(TrackerTest, AMissingPhaseIsNotObserved) {
  auto builder = finished_stream();
  builder.conn().accepted_ns = 0;
  final(builder, 200);
  EXPECT_EQ(total(FamilyId::kRequestPhaseSeconds, {{"phase", "accept_wait"}}), 0);
  EXPECT_EQ(total(FamilyId::kRequestPhaseSeconds, {{"phase", "read_wait"}}), 1);
}

TEST_F(TrackerTest, BurstsCountWithAllTheirChunks) {
  auto builder = finished_stream(200);
  builder.request().deliveries = 3;
  std::fill(std::begin(builder.request().burst), std::end(builder.request().burst), 0);
  builder.request().burst[1] = 2;  // two chunks each
  builder.request().burst[7] = 1;  // 196
  final(builder, 200);
  EXPECT_EQ(total(FamilyId::kChunksPerDelivery), 3);
  EXPECT_EQ(histogram_sum(FamilyId::kChunksPerDelivery), 200);
}

TEST_F(TrackerTest, GaugesSayWhatIsOpen) {
  partial(open_stream(), 101);
  partial(RecordBuilder::server().cookie(9).accepted(-1).read(1), 101);
  tracker->tick(at_ms(400));
  EXPECT_EQ(total(FamilyId::kRequestsInFlight, {{"port", "8000"}, {"role", "server"}}), 2);
  EXPECT_EQ(total(FamilyId::kStreamsInFlight), 1);
  EXPECT_DOUBLE_EQ(total(FamilyId::kStreamSilenceSecondsMax), 0.3);

  final(finished_stream(), 500);
  tracker->tick(at_ms(600));
  EXPECT_EQ(total(FamilyId::kRequestsInFlight), 1);
  EXPECT_EQ(total(FamilyId::kStreamsInFlight), 0);
  EXPECT_EQ(total(FamilyId::kStreamSilenceSecondsMax), 0);
}

TEST_F(TrackerTest, SilenceIsOverWithTheEndMarker) {
  partial(open_stream().end_marker(150), 151);
  tracker->tick(at_ms(9000));
  EXPECT_EQ(total(FamilyId::kStreamSilenceSecondsMax), 0);
}

TEST_F(TrackerTest, AnOpenRequestWhoseSocketVanishedIsForgotten) {
  partial(open_stream(), 101);
  for (int i = 0; i < 3; ++i) tracker->end_iteration(at_ms(1000 * i));
  EXPECT_EQ(tracker->status().open_requests, 1u);
  tracker->end_iteration(at_ms(4000));
  EXPECT_EQ(tracker->status().open_requests, 0u);
  EXPECT_EQ(tracker->status().forgotten_total, 1u);
  tracker->tick(at_ms(4001));
  EXPECT_EQ(total(FamilyId::kRequestsInFlight), 0);
}

TEST_F(TrackerTest, AReportedRequestIsNotForgotten) {
  for (int i = 0; i < 10; ++i) {
    partial(open_stream(), 101 + i);
    tracker->end_iteration(at_ms(102 + i));
  }
  EXPECT_EQ(tracker->status().open_requests, 1u);
}

TEST_F(TrackerTest, AFinalRecordAfterForgettingAddsOnlyTheRest) {
  partial(open_stream().chunks(4), 101);
  for (int i = 0; i < 5; ++i) tracker->end_iteration(at_ms(200));
  ASSERT_EQ(tracker->status().open_requests, 0u);
  final(finished_stream(), 300);
  EXPECT_EQ(total(FamilyId::kOutputChunksTotal), 10);
  EXPECT_EQ(total(FamilyId::kTimeToFirstChunkSeconds, {{"view", "server"}}), 1);
  EXPECT_EQ(total(FamilyId::kRequestsTotal), 1);
}

TEST_F(TrackerTest, BeyondTheLimitOpenRequestsCountWithTheirFinalRecord) {
  make({.open_max = 1});
  partial(open_stream(), 101);
  partial(open_stream().cookie(2), 101);
  EXPECT_EQ(tracker->status().unfollowed_total, 1u);
  final(finished_stream().cookie(2), 200);
  EXPECT_EQ(total(FamilyId::kOutputChunksTotal), 11);
  EXPECT_EQ(total(FamilyId::kRequestsTotal), 1);
  EXPECT_EQ(tracker->status().open_requests, 1u);
}

// ---- Counts from the kernel's map ----

iw_count_key lost_key() {
  iw_count_key key{};
  key.port = 8000;
  key.code = 200;
  key.role = IW_ROLE_SERVER;
  key.route = 1;
  key.outcome = IW_OUTCOME_COMPLETE;
  return key;
}

TEST_F(TrackerTest, OtherRoutesComeFromCountsAlone) {
  iw_count_key key = lost_key();
  key.route = IW_ROUTE_OTHER;
  key.code = 204;
  iw_count delta{};
  delta.requests = 7;
  tracker->on_count(key, delta, llama());
  EXPECT_EQ(total(FamilyId::kRequestsTotal, {{"route", "other"}, {"code", "2xx"}, {"port", "8000"}}), 7);
}

TEST_F(TrackerTest, ALostFinalRecordStillCounts) {
  iw_count delta{};
  delta.requests = 2;
  delta.chunks = 30;
  delta.tokens_output = 28;
  delta.tokens_input = 9;
  tracker->on_count(lost_key(), delta, llama());
  EXPECT_EQ(total(FamilyId::kRequestsTotal, {{"route", "/v1/chat/completions"}}), 2);
  for (int i = 0; i < 5; ++i) tracker->end_iteration(at_ms(1000));
  EXPECT_EQ(total(FamilyId::kOutputChunksTotal), 30);
  EXPECT_EQ(total(FamilyId::kOutputTokensTotal), 28);
  EXPECT_EQ(total(FamilyId::kInputTokensTotal), 9);
}

TEST_F(TrackerTest, WhatPartialRecordsOfALostRequestHadCountedIsNotCountedTwice) {
  partial(open_stream().chunks(12), 150);  // its final record gets lost
  iw_count delta{};
  delta.requests = 1;
  delta.chunks = 30;
  tracker->on_count(lost_key(), delta, llama());
  for (int i = 0; i < 6; ++i) tracker->end_iteration(at_ms(1000 * i));
  EXPECT_EQ(total(FamilyId::kOutputChunksTotal), 30);
  EXPECT_EQ(total(FamilyId::kRequestsTotal), 1);
}

TEST_F(TrackerTest, CountsOfAnotherWorkloadAreNotReduced) {
  partial(open_stream().chunks(12), 150);
  iw_count delta{};
  delta.requests = 1;
  delta.chunks = 30;
  Identity other = llama();
  other.workload = "other";
  tracker->on_count(lost_key(), delta, other);
  for (int i = 0; i < 6; ++i) tracker->end_iteration(at_ms(1000 * i));
  EXPECT_EQ(total(FamilyId::kOutputChunksTotal, {{"workload", "other"}}), 30);
  EXPECT_EQ(total(FamilyId::kOutputChunksTotal), 42);
}

TEST_F(TrackerTest, WhatIsHeldBackIsAddedBeforeTheEnd) {
  iw_count delta{};
  delta.requests = 1;
  delta.chunks = 30;
  tracker->on_count(lost_key(), delta, llama());
  EXPECT_EQ(total(FamilyId::kOutputChunksTotal), 0);
  tracker->flush_counts();
  EXPECT_EQ(total(FamilyId::kOutputChunksTotal), 30);
}

TEST_F(TrackerTest, KernelStatisticsBecomeRecordsSeenAndLost) {
  std::array<std::uint64_t, IW_STAT_MAX> stats{};
  stats[IW_STAT_RECORDS_SEEN + IW_REC_FINAL] = 100;
  stats[IW_STAT_RECORDS_LOST + IW_REC_FINAL] = 3;
  tracker->on_stats(stats);
  EXPECT_EQ(total(FamilyId::kRecordsTotal, {{"kind", "final"}}), 100);
  EXPECT_EQ(total(FamilyId::kRecordsLostTotal, {{"kind", "final"}, {"where", "ring_buffer"}}), 3);
}

TEST_F(TrackerTest, KernelStatisticsShowWhatHappenedOnThePacketPath) {
  std::array<std::uint64_t, IW_STAT_MAX> stats{};
  for (std::size_t stat = 0; stat < stats.size(); ++stat) stats[stat] = 1000 + stat;
  stats[IW_STAT_RESYNC] = 0;
  tracker->on_stats(stats);
  EXPECT_EQ(total(FamilyId::kPacketPathEventsTotal, {{"event", "no_slot"}}), 1000 + IW_STAT_NO_SLOT);
  EXPECT_EQ(total(FamilyId::kPacketPathEventsTotal, {{"event", "sums_full"}}), 1000 + IW_STAT_SUMS_FULL);
  EXPECT_EQ(total(FamilyId::kRecordsTotal, {{"kind", "listen_drop"}}),
            1000 + IW_STAT_RECORDS_SEEN + IW_REC_LISTEN_DROP);
  EXPECT_EQ(total(FamilyId::kPacketPathEventsTotal, {{"event", "resync"}}), 0) << "there, so that its rate is known";
  const auto snapshot = registry->snapshot();
  const auto* events = snapshot->find(FamilyId::kPacketPathEventsTotal);
  ASSERT_NE(events, nullptr);
  for (const auto& series : events->series) {
    const std::string& event = (*series.label_values)[0];
    EXPECT_NE(std::string(metrics::label_meaning("event")).find("`" + event + "`"), std::string::npos) << event;
  }
  EXPECT_EQ(events->series.size(), 19u);
}

// ---- Top, history ----

TEST_F(TrackerTest, TopShowsOpenRequestsWithTheLongestSilenceFirst) {
  partial(open_stream().cookie(1), 101);
  partial(open_stream().cookie(2).chunks(11).last_content(600), 601);
  partial(RecordBuilder::server().cookie(3).accepted(-1).read(1), 601);
  partial(open_stream().cookie(2).chunks(21).last_content(700).sent_gaps(10, 20), 701);
  const json top = json::parse(tracker->top_json(at_ms(1100)));
  EXPECT_EQ(top["type"], "top");
  EXPECT_EQ(top["open_requests"], 3);
  EXPECT_EQ(top["open_streams"], 2);
  ASSERT_EQ(top["open"].size(), 3u);
  EXPECT_EQ(top["open"][0]["conn_id"], "0000000000000001");
  EXPECT_EQ(top["open"][0]["silence_ns"], 1'000'000'000);
  const json& second = top["open"][1];
  EXPECT_EQ(second["chunks"], 21);
  EXPECT_EQ(second["age_ns"], 1'100'000'000);
  EXPECT_EQ(second["recent_gap_ns"], 10'000'000);
  EXPECT_EQ(second["gap_max_ns"], 10'000'000);
  EXPECT_NEAR(second["chunks_per_s"].get<double>(), 20 / 0.6, 0.01);
  EXPECT_EQ(second["phase"], "stream");
  EXPECT_EQ(second["workload"], "llama");
  EXPECT_EQ(top["open"][2]["phase"], "server");
  EXPECT_FALSE(top["open"][2].contains("silence_ns"));
}

TEST_F(TrackerTest, OnceReadsWereSeenAnUnreadRequestWaitsForItsApplication) {
  const auto unread = [] { return RecordBuilder::server().cookie(7).accepted(-1); };
  EXPECT_TRUE(partial(unread(), 50).request.phases_ns[IW_PHASE_SERVER]);
  final(finished_stream(), 200);
  EXPECT_TRUE(partial(unread(), 250).request.phases_ns[IW_PHASE_READ_WAIT]);
}

TEST_F(TrackerTest, TopShowsAtMostAsManyAsAsked) {
  for (std::uint64_t cookie = 1; cookie <= 5; ++cookie) partial(open_stream().cookie(cookie), 101);
  const json top = json::parse(tracker->top_json(at_ms(200), nullptr, 2));
  EXPECT_EQ(top["open"].size(), 2u);
  EXPECT_EQ(top["open_omitted"], 3);
}

TEST_F(TrackerTest, TopHasTheLastMinutesWorst) {
  for (std::uint64_t i = 1; i <= 30; ++i) {
    auto builder = finished_stream().cookie(i).ordinal(2);
    builder.request().content_delivered_ns = at_ms(101 + static_cast<double>(i));
    builder.sent_gaps(static_cast<double>(40 - i), 1);
    final(builder, 1000 * static_cast<double>(i));
  }
  const json top = json::parse(tracker->top_json(at_ms(30'500)));
  EXPECT_EQ(top["last_minute"]["finished"], 30);
  ASSERT_EQ(top["last_minute"]["worst_ttft"].size(), History::kWorst);
  EXPECT_EQ(top["last_minute"]["worst_ttft"][0]["ttft_ns"]["user"], 131'000'000);
  EXPECT_EQ(top["last_minute"]["worst_gap"][0]["gap_ns"]["sent"]["max"], 39'000'000);

  const json later = json::parse(tracker->top_json(at_ms(85'500)));
  EXPECT_EQ(later["last_minute"]["finished"], 5);
  EXPECT_EQ(later["last_minute"]["worst_ttft"].size(), 5u);
  const json much_later = json::parse(tracker->top_json(at_ms(300'000)));
  EXPECT_EQ(much_later["last_minute"]["finished"], 0);
  EXPECT_TRUE(much_later["last_minute"]["worst_ttft"].empty());
}

TEST_F(TrackerTest, FinishedRequestsAreKeptWithinTheirMemory) {
  make({.finished_bytes_max = 20'000});
  for (std::uint64_t i = 1; i <= 100; ++i) final(finished_stream().cookie(i), 200 + static_cast<double>(i));
  const History& history = tracker->history();
  EXPECT_LE(history.bytes(), 20'000u);
  EXPECT_GT(history.finished().size(), 3u);
  EXPECT_EQ(json::parse(history.finished().back().line)["conn_id"], "0000000000000064");
}

TEST_F(TrackerTest, PhasesAddUpByMinute) {
  for (std::uint64_t i = 1; i <= 3; ++i) final(finished_stream().cookie(i), 1000);
  final(finished_stream().cookie(9), 70'000);
  const json minutes = json::parse(tracker->history().minutes_json(0));
  ASSERT_EQ(minutes.size(), 2u);
  EXPECT_EQ(minutes[0]["requests"], 3);
  EXPECT_EQ(minutes[0]["workload"], "llama");
  EXPECT_EQ(minutes[0]["namespace"], "prod");
  EXPECT_EQ(minutes[0]["duration_ns"], 3 * 193'000'000);
  EXPECT_EQ(minutes[0]["phases_ns"]["server"], 3 * 99'000'000);
  EXPECT_EQ(minutes[1]["requests"], 1);
}

TEST_F(TrackerTest, ManyConnectionsLeaveNothingOpen) {
  for (std::uint64_t i = 1; i <= 30'000; ++i) {
    partial(open_stream().cookie(i), 101);
    final(finished_stream().cookie(i), 200);
  }
  tracker->end_iteration(at_ms(300));
  EXPECT_EQ(tracker->status().open_requests, 0u);
  EXPECT_EQ(tracker->status().finished_total, 30'000u);
  EXPECT_EQ(total(FamilyId::kOutputChunksTotal), 300'000);
}

}  // namespace
}  // namespace inferwire::model
