// SPDX-License-Identifier: Apache-2.0
// Marks, gaps, deliveries and acknowledgements.
#include <gtest/gtest.h>

#include <numeric>

#include "tests/unit/stream/conversations.h"

namespace inferwire::stream_test {
namespace {

const std::string kEvent = chunk("data: {\"choices\":[{\"delta\":{\"content\":\"a\"}}]}\n\n");

std::uint32_t total(const std::uint32_t* histogram, std::size_t n) {
  return std::accumulate(histogram, histogram + n, 0u);
}

/// A stream that has sent its head.
Connection opened(Role role = Role::kServer) {
  Connection c(role);
  c.request(post("/v1/chat/completions"));
  c.wait(kMillisecond);
  c.response(head(200, kSse));
  return c;
}

TEST(GapBuckets, AreClosedAboveAndTheLastIsOpen) {
  const auto kept = gap_edges_ns();
  for (std::uint32_t count : {0u, 1u, 2u, 3u, 5u, 22u, 31u, 32u}) {
    auto& edges = gap_edges_ns();
    edges.resize(count);
    for (std::uint32_t i = 0; i < count; i++) edges[i] = (i + 1) * 100;
    auto c = opened();
    c.response(kEvent);
    std::uint32_t expected[IW_GAP_EDGES_MAX + 1] = {};
    for (std::uint64_t gap = 1; gap <= (count + 2) * 100; gap += gap % 100 == 1 ? 98 : 1) {  // around every edge
      c.wait(gap);
      c.response(kEvent);
      std::uint32_t bucket = 0;
      while (bucket < count && gap > edges[bucket]) bucket++;
      expected[bucket]++;
      ASSERT_EQ(c.open().gap_sent[bucket], expected[bucket]) << "gap " << gap << " of " << count;
    }
    for (std::uint32_t i = 0; i <= IW_GAP_EDGES_MAX; i++) ASSERT_EQ(c.open().gap_sent[i], expected[i]);
  }
  gap_edges_ns() = kept;
}

TEST(Marks, TellHeadRoleAndContentApart) {
  Connection c;
  const auto t0 = c.now_ns;
  c.request(post("/v1/chat/completions"));
  c.wait(2 * kMillisecond);
  c.read_to(c.request_seq());
  c.wait(3 * kMillisecond);
  c.response(head(200, kSse));  // uvicorn: long before the first token
  c.wait(10 * kMillisecond);
  c.response(chunk("data: {\"choices\":[{\"delta\":{\"role\":\"assistant\",\"content\":\"\"}}]}\n\n"));
  c.wait(300 * kMillisecond);
  c.response(chunk(": keep-alive\n\n"));
  c.wait(500 * kMillisecond);
  c.response(kEvent);
  c.wait(kMillisecond);
  c.acknowledge();
  c.wait(20 * kMillisecond);
  c.response(kEvent);
  c.wait(7 * kMillisecond);
  c.response(chunk("data: [DONE]\n\n"));
  c.wait(kMillisecond);
  c.response(kLastChunk);
  c.wait(4 * kMillisecond);
  c.acknowledge();
  const auto r = only(c.records);
  const auto ms = [&](std::uint64_t mark) { return (mark - t0) / kMillisecond; };
  EXPECT_EQ(ms(r.head.first_byte_ns), 0u);
  EXPECT_EQ(ms(r.head.last_byte_ns), 0u);
  EXPECT_EQ(ms(r.read_ns), 2u);
  EXPECT_EQ(ms(r.response_ns), 5u);
  EXPECT_EQ(ms(r.content_ns), 815u);
  EXPECT_EQ(ms(r.content_handed_ns), 815u);
  EXPECT_EQ(ms(r.content_delivered_ns), 816u);
  EXPECT_EQ(ms(r.last_content_ns), 836u);
  EXPECT_EQ(ms(r.end_handed_ns), 843u);
  EXPECT_EQ(ms(r.end_ns), 844u);
  EXPECT_EQ(ms(r.done_ns), 848u);
  EXPECT_EQ(r.deliveries, 2u);
  EXPECT_EQ(r.gap_sent_max_ns, 21 * kMillisecond);
}

TEST(Marks, OfAClientAreArrivalAndRead) {
  Connection c(Role::kClient);
  const auto t0 = c.now_ns;
  c.request(post("/v1/chat/completions"));
  c.wait(kMillisecond);
  c.ack_to(c.request_seq() - 1);
  EXPECT_EQ(c.open().request_acked_ns, 0u);
  c.wait(kMillisecond);
  c.ack_to(c.request_seq());
  c.wait(kMillisecond);
  c.response(head(200, kSse) + kEvent);
  c.wait(kMillisecond);
  c.read_to(c.response_seq());
  c.wait(kMillisecond);
  c.response(kEvent + chunk("data: [DONE]\n\n") + std::string(kLastChunk));
  c.wait(kMillisecond);
  c.read_to(c.response_seq() - 1);
  EXPECT_TRUE(c.records.empty());
  c.wait(kMillisecond);
  c.read_to(c.response_seq());
  const auto r = only(c.records);
  const auto ms = [&](std::uint64_t mark) { return (mark - t0) / kMillisecond; };
  EXPECT_EQ(ms(r.request_acked_ns), 2u);
  EXPECT_EQ(ms(r.content_ns), 3u);
  EXPECT_EQ(ms(r.content_delivered_ns), 4u);
  EXPECT_EQ(ms(r.end_ns), 5u);
  EXPECT_EQ(ms(r.done_ns), 7u);
  EXPECT_EQ(total(r.gap_sent, std::size(r.gap_sent)), 0u);
  EXPECT_EQ(total(r.gap_delivered, std::size(r.gap_delivered)), 1u);
  EXPECT_EQ(r.gap_delivered_max_ns, 2 * kMillisecond);
}

TEST(Marks, OfAClientThatNeverReadsEndWithItsNextRequest) {
  Connection c(Role::kClient);
  c.request(post("/v1/chat/completions"));
  c.response(openai_stream(2));
  const auto end = c.now_ns;
  c.wait(kSecond);
  c.request(post("/v1/chat/completions"));
  ASSERT_EQ(c.records.size(), 1u);
  EXPECT_EQ(c.records[0].request.done_ns, end);
  EXPECT_EQ(c.open().head.idle_before_ns, kSecond);
}

TEST(Bursts, AreCountedByPowersOfTwo) {
  auto c = opened();
  for (int n : {1, 2, 3, 4, 5, 8, 9, 16, 17, 32, 33, 64, 65, 200}) {
    std::string burst;
    for (int i = 0; i < n; i++) burst += kEvent;
    c.response(burst);
  }
  const auto& r = c.open();
  const std::uint32_t expected[IW_BURST_BUCKETS] = {1, 1, 2, 2, 2, 2, 2, 2};
  for (int i = 0; i < IW_BURST_BUCKETS; i++) EXPECT_EQ(r.burst[i], expected[i]) << i;
  EXPECT_EQ(total(r.burst, IW_BURST_BUCKETS), r.deliveries);
}

TEST(Gaps, SentAreBetweenDeliveriesNotBetweenEvents) {
  auto c = opened();
  c.response(kEvent + kEvent);
  c.wait(5 * kMillisecond);
  c.response(kEvent);
  c.wait(50 * kMillisecond);
  c.response(kEvent + kEvent + kEvent);
  c.wait(10 * kMillisecond);  // exactly on an edge
  c.response(kEvent);
  c.wait(5 * kSecond);
  c.response(kEvent);
  const auto& r = c.open();
  EXPECT_EQ(r.chunks, 8u);
  EXPECT_EQ(r.deliveries, 5u);
  EXPECT_EQ(r.gap_sent[1], 2u);  // up to 10 ms
  EXPECT_EQ(r.gap_sent[2], 1u);  // up to 100 ms
  EXPECT_EQ(r.gap_sent[4], 1u);  // over 1 s
  EXPECT_EQ(r.gap_sent_sum_ns, 5'065 * kMillisecond);
  EXPECT_EQ(r.gap_sent_max_ns, 5 * kSecond);
}

TEST(Gaps, PingsAndUsageDoNotResetTheClock) {
  auto c = opened();
  c.response(kEvent);
  for (int i = 0; i < 10; i++) {
    c.wait(kSecond);
    c.response(chunk(": ping\n\n"));
  }
  c.response(kEvent);
  EXPECT_EQ(c.open().gap_sent_max_ns, 10 * kSecond);
}

TEST(Delivered, OneAckForSeveralDeliveriesIsOneGap) {
  auto c = opened();
  c.response(kEvent);
  c.wait(kMillisecond);
  c.acknowledge();
  for (int i = 0; i < 3; i++) {
    c.wait(kMillisecond);
    c.response(kEvent);
  }
  c.wait(40 * kMillisecond);
  c.acknowledge();
  const auto& r = c.open();
  EXPECT_EQ(total(r.gap_delivered, std::size(r.gap_delivered)), 1u);
  EXPECT_EQ(r.gap_delivered_max_ns, 43 * kMillisecond);
  EXPECT_EQ(r.last_delivered_ns, c.now_ns);
}

TEST(Delivered, AnAckInsideAnEventDeliversOnlyTheOnesBefore) {
  auto c = opened();
  c.response(kEvent);
  const auto after_first = c.response_seq();
  c.response(kEvent);
  c.wait(kMillisecond);
  c.ack_to(after_first + 3);
  EXPECT_EQ(c.open().last_delivered_ns, c.now_ns);
  EXPECT_EQ(total(c.open().gap_delivered, IW_GAP_EDGES_MAX + 1), 0u);
  c.wait(2 * kMillisecond);
  c.ack_to(c.response_seq() - 2 - 1);  // all but the blank line's last byte
  EXPECT_EQ(total(c.open().gap_delivered, IW_GAP_EDGES_MAX + 1), 0u);
  c.ack_to(c.response_seq() - 2);  // the event, not yet its HTTP chunk's end
  EXPECT_EQ(total(c.open().gap_delivered, IW_GAP_EDGES_MAX + 1), 1u);
}

TEST(Delivered, OldAndRepeatedAcksChangeNothing) {
  auto c = opened();
  const auto before = c.response_seq();
  c.response(kEvent);
  c.wait(kMillisecond);
  c.acknowledge();
  const auto first = c.open().last_delivered_ns;
  c.wait(kMillisecond);
  c.acknowledge();
  c.ack_to(before);
  c.ack_to(before - 1'000'000);
  EXPECT_EQ(c.open().last_delivered_ns, first);
  EXPECT_EQ(c.open().content_delivered_ns, first);
}

TEST(Delivered, MoreInFlightThanAreKeptShareTheNewestMark) {
  auto c = opened();
  for (int i = 0; i < IW_UNACKED + 40; i++) {
    c.wait(kMillisecond);
    c.response(kEvent);
  }
  EXPECT_TRUE(c.open().head.flags & IW_REQ_MARKS_MERGED);
  EXPECT_EQ(c.flow().unacked_head - c.flow().unacked_tail, static_cast<unsigned>(IW_UNACKED));
  c.acknowledge();
  EXPECT_EQ(c.flow().unacked_head, c.flow().unacked_tail);
  EXPECT_EQ(c.open().last_delivered_ns, c.now_ns);
}

TEST(Delivered, EveryDeliveryIsAcknowledgedWhenTheStreamIsLongAndPaced) {
  auto c = opened();
  for (int i = 0; i < 1'000; i++) {
    c.wait(20 * kMillisecond);
    c.response(kEvent);
    c.wait(kMillisecond);
    c.acknowledge();
  }
  const auto& r = c.open();
  EXPECT_EQ(total(r.gap_sent, IW_GAP_EDGES_MAX + 1), 999u);
  EXPECT_EQ(total(r.gap_delivered, IW_GAP_EDGES_MAX + 1), 999u);
  EXPECT_EQ(r.gap_delivered_max_ns, 21 * kMillisecond);
  EXPECT_FALSE(r.head.flags & IW_REQ_MARKS_MERGED);
}

TEST(SequenceNumbers, MayWrapInsideARequestAndInsideAResponse) {
  for (const Role role : {Role::kServer, Role::kClient}) {
    for (std::uint32_t back = 1; back < 1'200; back += 7) {
      Connection c(role);
      c.set_seq(0u - back / 4, 0u - back);
      c.request(post("/v1/chat/completions"));
      c.wait(kMillisecond);
      c.pieces = pieces_of(100);
      c.response(openai_stream(4));
      c.wait(kMillisecond);
      c.acknowledge();
      const auto r = only(c.records);
      ASSERT_EQ(r.chunks, 4u) << back;
      ASSERT_EQ(outcome_name(r.outcome), "complete");
      ASSERT_EQ(r.content_delivered_ns, c.now_ns);
      ASSERT_EQ(r.done_ns, c.now_ns);
    }
  }
}

TEST(Handed, DataThatWaitedInTheSendQueueCountsFromTheCallThatBroughtIt) {
  auto c = opened();
  const auto handed = c.now_ns;
  // Two calls brought two events; both leave 30 ms later in one packet.
  auto& flow = c.flow();
  const auto send = [&](std::uint32_t seq, std::uint64_t time_ns) {
    auto& s = flow.sends[flow.sends_head++ & (IW_SENDS - 1)];
    s.seq = seq;
    s.time_ns = time_ns;
  };
  const auto size = static_cast<std::uint32_t>(kEvent.size());
  send(c.response_seq() + size, handed);
  send(c.response_seq() + 2 * size, handed + 10 * kMillisecond);
  c.wait(30 * kMillisecond);
  c.response(kEvent + kEvent);
  const auto& r = c.open();
  EXPECT_EQ(r.content_handed_ns, handed);
  EXPECT_EQ(r.content_ns, handed + 30 * kMillisecond);
  EXPECT_TRUE(r.head.flags & IW_REQ_HANDED_HOOK);
  // The next event did not wait.
  c.wait(5 * kMillisecond);
  c.response(kEvent);
  EXPECT_EQ(c.open().last_content_ns, c.now_ns);
}

TEST(Acks, LateOnesAreNotedAndSoonOnesAreNot) {
  auto c = opened();
  c.flow().record.request.rtt_min_us = 100;
  c.response(kEvent);
  c.wait(200 * kMicrosecond);
  c.acknowledge();
  EXPECT_FALSE(c.open().head.flags & IW_REQ_LATE_ACKS);
  c.response(kEvent);
  c.wait(40 * kMillisecond);
  c.acknowledge();
  EXPECT_TRUE(c.open().head.flags & IW_REQ_LATE_ACKS);
}

TEST(Acks, ARequestIsDoneOnlyWhenItsLastByteIsAcknowledged) {
  Connection c;
  c.request(post("/v1/chat/completions"));
  c.response(openai_stream(2));
  c.ack_to(c.response_seq() - 1);
  EXPECT_TRUE(c.records.empty());
  EXPECT_TRUE(c.is_open());
  c.ack_to(c.response_seq());
  EXPECT_EQ(c.records.size(), 1u);
  EXPECT_FALSE(c.is_open());
}

}  // namespace
}  // namespace inferwire::stream_test
