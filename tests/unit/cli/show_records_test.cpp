// SPDX-License-Identifier: Apache-2.0
#include "agent/cli/show_records.h"

#include <gtest/gtest.h>

#include <sstream>

#include "agent/model/json.h"
#include "agent/model/tcp.h"
#include "tests/unit/model/record_builder.h"
#include "tests/unit/model/tcp_builder.h"

namespace inferwire::cli {
namespace {

using test::RecordBuilder;

std::string line_of(const iw_record& record, bool final = true) {
  const model::Identity who{.workload = "llama", .node = "node-7", .comm = "llama-server", .pid = 4242};
  return model::to_json_line(model::make_request(record, final, model::Clock{}), who);
}

RecordBuilder stream() {
  return RecordBuilder::server()
      .accepted(-0.05)
      .upload_ends(2)
      .read(3)
      .response(4)
      .first_content(800, 798, 801)
      .chunks(64)
      .sent_gaps(10, 63)
      .delivered_gaps(11, 63)
      .last_content(1190)
      .end_marker(1200)
      .tokens(64, 12)
      .ends(1201, 1210)
      .rtt_us(40, 55, 90)
      .retransmits(IW_PHASE_STREAM, 1, 2)
      .model("llama-3")
      .finish_reason("stop");
}

ReadRecords read(const std::string& text) {
  std::istringstream lines(text);
  return read_records(lines);
}

TEST(ReadRecords, GivesBackWhatTheModelWrote) {
  const ReadRecords records = read(line_of(stream().build()) + "\n");
  ASSERT_EQ(records.requests.size(), 1u);
  const ShownRequest& r = records.requests[0];
  EXPECT_TRUE(r.final);
  EXPECT_EQ(r.role, "server");
  EXPECT_EQ(r.owner.workload, "llama");
  EXPECT_EQ(r.owner.pid, 4242u);
  EXPECT_EQ(r.local, "127.0.0.1:8000");
  EXPECT_EQ(r.code, 200u);
  EXPECT_EQ(r.outcome, "complete");
  EXPECT_EQ(r.duration_ns, 1'210'000'000u);
  EXPECT_EQ(r.chunks, 64u);
  EXPECT_EQ(r.tokens_output, 64u);
  EXPECT_EQ(r.ttft_server_ns, 796'000'000u);
  EXPECT_EQ(r.sent.p50_ns, 10'000'000u);
  EXPECT_EQ(r.rtt_mean_us, 55u);
  EXPECT_EQ(r.retransmitted, 2u);
  EXPECT_EQ(r.retransmits.at("stream").at("rto"), 2u);
  std::vector<std::string> names;
  for (const ShownPhase& phase : r.phases) names.push_back(phase.name);
  EXPECT_EQ(names, (std::vector<std::string>{"upload", "accept_wait", "read_wait", "server", "hold", "first_delivery",
                                             "stream", "drain"}));
}

TEST(ReadRecords, BadLinesAreNamedAndTheRestIsRead) {
  const ReadRecords records = read("not json\n" + line_of(stream().build()) + "\n\n[1,2]\n{\"type\":\"request\"}\n" +
                                   "{\"type\":\"request\",\"start_unix_ns\":1e400,\"duration_ns\":-3}\n" +
                                   std::string(3, '\0') + "\n{\"v\":1}\n");
  EXPECT_EQ(records.requests.size(), 1u);
  std::vector<std::size_t> numbers;
  for (const BadLine& line : records.bad_lines) numbers.push_back(line.number);
  EXPECT_EQ(numbers, (std::vector<std::size_t>{1, 4, 5, 6, 7, 8}));
}

TEST(ReadRecords, ResetsAndListenDropsAreReadAsTheModelWroteThem) {
  metrics::Registry registry;
  model::TcpModel tcp(registry, {});
  const model::Identity who{.name_space = "prod", .workload = "llama", .comm = "llama-server", .pid = 4242};
  const iw_listener full = test::dropping(test::listener(), IW_DROP_ACCEPT_QUEUE_FULL, 49, 0);
  const ReadRecords records =
      read(tcp.on_reset(test::stale_reuse(), who, {}) + "\n" + tcp.on_listener(full, who, {}) + "\n");
  EXPECT_TRUE(records.bad_lines.empty());
  ASSERT_EQ(records.resets.size(), 1u);
  const ShownReset& reset = records.resets[0];
  EXPECT_EQ(reset.time_unix_ns, static_cast<std::int64_t>(test::at_ms(5000)));
  EXPECT_EQ(reset.owner.name_space, "prod");
  EXPECT_EQ(reset.cause, "stale_reuse");
  EXPECT_EQ(reset.direction, "received");
  EXPECT_EQ(reset.closed_first, "server");
  EXPECT_EQ(reset.idle_ns, 1'000'000'000u);
  EXPECT_EQ(reset.age_ns, 4'000'000'000u);
  EXPECT_EQ(reset.ordinal, 3u);
  EXPECT_TRUE(reset.request_open);
  ASSERT_EQ(records.listen_drops.size(), 1u);
  const ShownListenDrop& drop = records.listen_drops[0];
  EXPECT_EQ(drop.listener, "127.0.0.1:8000");
  EXPECT_EQ(drop.owner.workload, "llama");
  EXPECT_EQ(drop.reason, "accept_queue_full");
  EXPECT_EQ(drop.count, 49u);
  EXPECT_EQ(drop.limit_name, "backlog");
  EXPECT_EQ(drop.limit_value, 1u);
  EXPECT_EQ(drop.accept_queue_limit, 1u);
  EXPECT_FALSE(drop.fix.empty());
}

TEST(ReadRecords, AResetOrDropWithoutATimeIsBad) {
  const ReadRecords records = read(R"({"type":"reset"})"
                                   "\n"
                                   R"({"type":"listen_drop","time_unix_ns":-5})"
                                   "\n");
  EXPECT_EQ(records.bad_lines.size(), 2u);
  EXPECT_TRUE(records.resets.empty() && records.listen_drops.empty());
}

TEST(ReadRecords, OtherTypesAreCountedNotRead) {
  const ReadRecords records = read("{\"type\":\"stall\"}\n{\"type\":\"link_fault\"}\n{\"type\":\"stall\",\"x\":[]}\n");
  EXPECT_TRUE(records.bad_lines.empty());
  EXPECT_EQ(records.other_types, (std::map<std::string, std::size_t>{{"stall", 2}, {"link_fault", 1}}));
}

TEST(ReadRecords, FieldsOfAnotherTypeAreNotKnown) {
  const ReadRecords records = read(
      R"({"type":"request","v":9,"start_unix_ns":5,"duration_ns":6.0,"role":7,"phases_ns":[1],"phases_missing":{"a":1},)"
      R"("chunks":"many","gap_ns":3,"rtt_us":null,"code":-1,"retransmits":{"stream":4},"tokens":{"output":true}})"
      "\n");
  ASSERT_EQ(records.requests.size(), 1u);
  const ShownRequest& r = records.requests[0];
  EXPECT_EQ(r.duration_ns, 6u);
  EXPECT_EQ(r.role, "");
  EXPECT_TRUE(r.phases.empty());
  EXPECT_FALSE(r.chunks);
  EXPECT_FALSE(r.tokens_output);
}

TEST(ReadRecords, AFinalRecordReplacesTheOpenOnes) {
  const std::string open = line_of(RecordBuilder::server().response(4).first_content(8, 8, 9).build(), false);
  const ReadRecords records = read(open + "\n" + line_of(stream().build()) + "\n" + open + "\n");
  ASSERT_EQ(records.requests.size(), 1u);
  EXPECT_TRUE(records.requests[0].final);
}

TEST(ReadRecords, ALineAsLongAsAFileIsBad) {
  const ReadRecords records = read(std::string(2'000'000, '[') + "\n" + line_of(stream().build()));
  EXPECT_EQ(records.bad_lines.size(), 1u);
  EXPECT_EQ(records.requests.size(), 1u);
}

TEST(ReadRecords, DeepNestingIsNoTrouble) {
  EXPECT_EQ(read(std::string(500'000, '[') + "\n").bad_lines.size(), 1u);
  EXPECT_EQ(read(std::string(400'000, '[') + std::string(400'000, ']') + "\n").bad_lines.size(), 1u);
}

}  // namespace
}  // namespace inferwire::cli
