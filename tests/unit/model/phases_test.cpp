// SPDX-License-Identifier: Apache-2.0
#include "agent/model/phases.h"

#include <gtest/gtest.h>

#include <map>
#include <random>
#include <string>

#include "agent/model/names.h"
#include "tests/unit/model/record_builder.h"

namespace inferwire::model {
namespace {

using test::at_ms;
using test::kMs;
using test::RecordBuilder;

// Phases by name, in milliseconds.
std::map<std::string, double> in_ms(const iw_record& record, const Phases& phases) {
  std::map<std::string, double> by_name;
  for (int phase = 0; phase < IW_PHASES_MAX; ++phase) {
    const auto& ns = phases.ns[static_cast<std::size_t>(phase)];
    if (ns) by_name[std::string(phase_name(record.conn.role, phase))] = static_cast<double>(*ns) / kMs;
  }
  return by_name;
}

std::map<std::string, double> final_phases(const iw_record& record) {
  return in_ms(record, cut_into_phases(record, true, false, 0));
}

std::map<std::string, double> open_phases(const iw_record& record, double now_ms, bool reads_seen = false) {
  return in_ms(record, cut_into_phases(record, false, reads_seen, at_ms(now_ms)));
}

std::uint64_t sum(const Phases& phases) {
  std::uint64_t total = 0;
  for (const auto& ns : phases.ns) total += ns.value_or(0);
  return total;
}

using ByName = std::map<std::string, double>;

TEST(ServerPhases, EachEndsAtItsMark) {
  const auto record = RecordBuilder::server()
                          .accepted(-0.05)
                          .upload_ends(2)
                          .read(3)
                          .response(4)
                          .first_content(800, 798, 801)
                          .last_content(1190)
                          .end_marker(1200)
                          .ends(1201, 1210)
                          .build();
  EXPECT_EQ(final_phases(record), (ByName{{"upload", 2},
                                          {"accept_wait", 0},
                                          {"read_wait", 1},
                                          {"server", 795},
                                          {"hold", 2},
                                          {"first_delivery", 1},
                                          {"stream", 399},
                                          {"drain", 10}}));
}

TEST(ClientPhases, EachEndsAtItsMark) {
  const auto record = RecordBuilder::client()
                          .request_acked(0.5)
                          .response(4)
                          .first_content(800, 800, 800.25)
                          .end_marker(1200)
                          .ends(1201, 1202)
                          .build();
  EXPECT_EQ(final_phases(record),
            (ByName{{"send", 0.5}, {"wait", 799.5}, {"first_read", 0.25}, {"stream", 399.75}, {"drain", 2}}));
}

TEST(ServerPhases, ALateAcceptCountsOnlyFromTheFirstRequestByte) {
  const auto record = RecordBuilder::server()
                          .established(-50)
                          .accepted(300)
                          .read(300.5)
                          .response(310)
                          .first_content(310, 310, 311)
                          .ends(320, 321)
                          .build();
  const auto phases = final_phases(record);
  EXPECT_EQ(phases.at("upload"), 0);
  EXPECT_EQ(phases.at("accept_wait"), 300);
  EXPECT_EQ(phases.at("read_wait"), 0.5);
  EXPECT_EQ(phases.at("server"), 9.5);
}

TEST(ServerPhases, AMarkBeforeThePreviousCutGivesAnEmptyPhase) {
  // The server started to answer (and was acknowledged) while the last request bytes were still coming in.
  const auto record = RecordBuilder::server()
                          .accepted(1)
                          .upload_ends(100)
                          .read(100)
                          .response(50)
                          .first_content(60, 60, 61)
                          .ends(120, 121)
                          .build();
  EXPECT_EQ(final_phases(record), (ByName{{"upload", 100},
                                          {"accept_wait", 0},
                                          {"read_wait", 0},
                                          {"server", 0},
                                          {"hold", 0},
                                          {"first_delivery", 0},
                                          {"stream", 20},
                                          {"drain", 1}}));
}

TEST(ServerPhases, AnUnknownMarkJoinsTheNextPhaseAndIsNamed) {
  const auto record = RecordBuilder::server().read(40).response(50).first_content(50, 50, 51).ends(60, 61).build();
  const Phases phases = cut_into_phases(record, true, false, 0);
  EXPECT_EQ(phases.missing, 1u << IW_PHASE_ACCEPT_WAIT);
  EXPECT_EQ(in_ms(record, phases).count("accept_wait"), 0u);
  EXPECT_EQ(in_ms(record, phases).at("read_wait"), 40);
}

TEST(ServerPhases, WithoutAReadHookTheReadWaitIsPartOfServer) {
  const auto record = RecordBuilder::server().accepted(-1).response(50).first_content(50, 50, 51).ends(60, 61).build();
  const Phases phases = cut_into_phases(record, true, false, 0);
  EXPECT_EQ(phases.missing, 1u << IW_PHASE_READ_WAIT);
  EXPECT_EQ(in_ms(record, phases).at("server"), 50);
}

TEST(ServerPhases, WithoutAHandOverTheServerIsNotMistakenForTheKernel) {
  auto builder = RecordBuilder::server().accepted(-1).read(0).response(4).first_content(800, 0, 801).ends(900, 901);
  builder.request().content_handed_ns = 0;
  const Phases phases = cut_into_phases(builder.build(), true, false, 0);
  EXPECT_EQ(phases.missing, 1u << IW_PHASE_HOLD);
  EXPECT_EQ(in_ms(builder.build(), phases).at("server"), 800);
}

TEST(ServerPhases, ALaterRequestOfItsConnectionHasBeenAccepted) {
  const auto record =
      RecordBuilder::server().ordinal(2).idle_before(500).read(1).response(5).first_content(5, 5, 6).ends(9, 9).build();
  const Phases phases = cut_into_phases(record, true, false, 0);
  EXPECT_EQ(phases.missing, 0u);
  EXPECT_EQ(in_ms(record, phases).at("accept_wait"), 0);
}

TEST(ServerPhases, WithoutAStreamTheFirstContentIsTheFirstResponseByte) {
  auto builder = RecordBuilder::server().accepted(-1).read(1).response(200).response_delivered(201).ends(230, 231);
  builder.request().response_handed_ns = at_ms(195);
  EXPECT_EQ(final_phases(builder.build()), (ByName{{"upload", 0},
                                                   {"accept_wait", 0},
                                                   {"read_wait", 1},
                                                   {"server", 194},
                                                   {"hold", 5},
                                                   {"first_delivery", 1},
                                                   {"stream", 29},
                                                   {"drain", 1}}));
}

TEST(ServerPhases, AnAnswerBeforeTheUploadEndedEndsTheUpload) {
  const auto record = RecordBuilder::server()
                          .accepted(-1)
                          .upload_ends(500)  // the client sent the rest although it was answered
                          .read(501)
                          .flag(IW_REQ_EARLY_RESPONSE)
                          .response(20, 413)
                          .response_delivered(21)
                          .ends(22, 23)
                          .build();
  const Phases phases = cut_into_phases(record, true, false, 0);
  EXPECT_EQ(in_ms(record, phases), (ByName{{"upload", 20},
                                           {"accept_wait", 0},
                                           {"server", 0},
                                           {"hold", 0},
                                           {"first_delivery", 1},
                                           {"stream", 1},
                                           {"drain", 1}}));
  EXPECT_EQ(phases.missing, 1u << IW_PHASE_READ_WAIT);
  EXPECT_EQ(phases.end_ns - phases.start_ns, 23 * kMs);
}

TEST(ServerPhases, AnAnswerToAnUploadThatNeverEndedEndsTheUpload) {
  const auto record = RecordBuilder::server()
                          .accepted(-1)
                          .upload_open()
                          .flag(IW_REQ_EARLY_RESPONSE)
                          .response(20, 413)
                          .ends(22, 23)
                          .build();
  EXPECT_EQ(final_phases(record).at("upload"), 20);
}

TEST(ServerPhases, AnAbortBeforeTheFirstContentIsTimeOfTheServer) {
  const auto record = RecordBuilder::server()
                          .accepted(-1)
                          .read(1)
                          .response(5)
                          .streams()
                          .breaks(3000, IW_OUTCOME_CLIENT_ABORT, IW_SIDE_CLIENT)
                          .build();
  const Phases phases = cut_into_phases(record, true, false, 0);
  EXPECT_EQ(in_ms(record, phases), (ByName{{"upload", 0}, {"accept_wait", 0}, {"read_wait", 1}, {"server", 2999}}));
  EXPECT_EQ(phases.missing, 0u);
}

TEST(ServerPhases, AnAbortInsideTheStreamIsTimeOfTheStream) {
  const auto record = RecordBuilder::server()
                          .accepted(-1)
                          .read(1)
                          .response(5)
                          .first_content(10, 10, 11)
                          .last_content(500)
                          .breaks(3000, IW_OUTCOME_CLIENT_ABORT, IW_SIDE_CLIENT)
                          .build();
  const auto phases = final_phases(record);
  EXPECT_EQ(phases.at("stream"), 2989);
  EXPECT_EQ(phases.count("drain"), 0u);
}

TEST(ServerPhases, AnAbortedUploadIsTimeOfTheUpload) {
  const auto record =
      RecordBuilder::server().accepted(-1).upload_open().breaks(700, IW_OUTCOME_CLIENT_ABORT, IW_SIDE_CLIENT).build();
  EXPECT_EQ(final_phases(record), (ByName{{"upload", 700}}));
}

TEST(ServerPhases, AStreamThatEndsWithoutContentIsTimeOfTheServer) {
  const auto record = RecordBuilder::server()
                          .accepted(-1)
                          .read(1)
                          .response(5)
                          .streams()
                          .flag(IW_REQ_ERROR_EVENT)
                          .end_marker(900)
                          .ends(901, 902, IW_OUTCOME_ERROR_IN_STREAM)
                          .build();
  EXPECT_EQ(final_phases(record),
            (ByName{{"upload", 0}, {"accept_wait", 0}, {"read_wait", 1}, {"server", 899}, {"drain", 2}}));
}

TEST(OpenPhases, TheCurrentPhaseGrows) {
  auto builder = RecordBuilder::server().accepted(-1).read(1);
  EXPECT_EQ(open_phases(builder.build(), 500).at("server"), 499);
  builder.response(5).first_content(600, 600, 601);
  EXPECT_EQ(open_phases(builder.build(), 1000).at("stream"), 399);
  builder.end_marker(1100);
  EXPECT_EQ(open_phases(builder.build(), 1105).at("drain"), 5);
}

TEST(OpenPhases, ARequestThatNobodyReadsWaitsForItsApplication) {
  const auto record = RecordBuilder::server().accepted(-1).build();
  EXPECT_EQ(open_phases(record, 500, /*reads_seen=*/true).at("read_wait"), 500);
  const Phases blind = cut_into_phases(record, false, false, at_ms(500));
  EXPECT_EQ(in_ms(record, blind).at("server"), 500);
  EXPECT_EQ(blind.missing, 1u << IW_PHASE_READ_WAIT);
}

TEST(OpenPhases, TheTimeNeverLiesBeforeAMark) {
  const auto record = RecordBuilder::server().accepted(-1).read(1).response(5).first_content(600, 600, 601).build();
  const Phases phases = cut_into_phases(record, false, false, at_ms(100));
  EXPECT_EQ(phases.end_ns, at_ms(601));
}

TEST(Phases, DurationIsMeasuredFromTwoMarksAlone) {
  const auto record = RecordBuilder::server()
                          .accepted(5000)  // nonsense: after the end
                          .read(1)
                          .response(5)
                          .first_content(10, 10, 11)
                          .ends(20, 25)
                          .build();
  const Phases phases = cut_into_phases(record, true, false, 0);
  EXPECT_EQ(phases.end_ns - phases.start_ns, 25 * kMs);
  EXPECT_EQ(sum(phases), 25 * kMs);
}

// Whatever the marks: phases tile the duration, and a phase is never both there and missing.
TEST(Phases, AddUpToTheDurationForAnyMarks) {
  std::mt19937_64 random(20'240'601);
  const auto maybe_mark = [&]() -> iw_u64 {
    const auto kind = random() % 8;
    if (kind == 0) return 0;
    if (kind == 1) return random();  // hostile
    return at_ms(-100) + random() % (2000 * kMs);
  };
  const auto maybe = [&](iw_u8 below) { return static_cast<iw_u8>(random() % below); };
  for (int round = 0; round < 200'000; ++round) {
    RecordBuilder builder = random() % 2 == 0 ? RecordBuilder::server() : RecordBuilder::client();
    iw_record& record = builder.raw();
    iw_request& r = record.request;
    record.header.time_ns = maybe_mark();
    record.conn.accepted_ns = maybe_mark();
    record.conn.role = maybe(4);
    r.head.flags = static_cast<iw_u32>(random());
    r.head.ordinal = maybe(3);
    r.stream = maybe(2);
    r.format = maybe(4);
    r.outcome = maybe(9);
    for (iw_u64* mark : {&r.head.first_byte_ns,
                         &r.head.last_byte_ns,
                         &r.head.idle_before_ns,
                         &r.request_acked_ns,
                         &r.read_ns,
                         &r.response_ns,
                         &r.response_handed_ns,
                         &r.response_delivered_ns,
                         &r.content_handed_ns,
                         &r.content_ns,
                         &r.content_delivered_ns,
                         &r.output_ns,
                         &r.last_content_ns,
                         &r.last_delivered_ns,
                         &r.activity_ns,
                         &r.end_handed_ns,
                         &r.end_ns,
                         &r.done_ns,
                         &r.server_fin_ns,
                         &r.client_fin_ns}) {
      *mark = maybe_mark();
    }
    const bool final = random() % 2 == 0;
    const Phases phases = cut_into_phases(record, final, random() % 2 == 0, maybe_mark());
    ASSERT_GE(phases.end_ns, phases.start_ns) << "round " << round;
    ASSERT_EQ(sum(phases), phases.end_ns - phases.start_ns) << "round " << round;
    for (int phase = 0; phase < IW_PHASES_MAX; ++phase) {
      const bool missing = (phases.missing & (1u << phase)) != 0;
      ASSERT_FALSE(missing && phases.ns[static_cast<std::size_t>(phase)].has_value()) << "round " << round;
    }
  }
}

}  // namespace
}  // namespace inferwire::model
