// SPDX-License-Identifier: Apache-2.0
// Every record that the model writes is what docs/records.schema.json says, whatever the kernel said.
#include "agent/model/json.h"

#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <random>

#include "tests/unit/model/json_schema.h"
#include "tests/unit/model/record_builder.h"

namespace inferwire::model {
namespace {

using nlohmann::json;
using test::RecordBuilder;

const test::JsonSchema& schema() {
  static const test::JsonSchema loaded = [] {
    std::ifstream file(std::string(INFERWIRE_SOURCE_DIR) + "/docs/records.schema.json");
    return test::JsonSchema(json::parse(file));
  }();
  return loaded;
}

Identity identity() { return {"prod", "llama", "llama-0", "server", "node-7", "llama-server", 4242}; }

json line_of(const iw_record& record, bool final = true, const Identity& who = identity()) {
  const std::string line = to_json_line(make_request(record, final, Clock{}), who);
  EXPECT_EQ(line.find('\n'), line.npos);
  json parsed = json::parse(line);
  EXPECT_EQ(schema().why_invalid(parsed), "") << line;
  return parsed;
}

RecordBuilder full_server() {
  auto builder = RecordBuilder::server()
                     .accepted(-0.05)
                     .upload_ends(2)
                     .read(3)
                     .response(4)
                     .first_content(800, 798, 801)
                     .chunks(64)
                     .last_content(1190)
                     .sent_gaps(10, 60)
                     .delivered_gaps(11, 60)
                     .end_marker(1200)
                     .tokens(64, 12)
                     .ends(1201, 1210)
                     .rtt_us(40, 55, 90)
                     .retransmits(IW_PHASE_STREAM, 0, 2)
                     .retransmits(IW_PHASE_STREAM, 1, 1)
                     .model("llama-3")
                     .response_id("chatcmpl-1")
                     .finish_reason("stop")
                     .trace_id("4bf92f3577b34da6a3ce929d0e0e4736");
  builder.request().queue_ns = 1'000;
  builder.request().prefill_ns = 2'000;
  builder.request().closed_first = IW_SIDE_CLIENT;
  return builder;
}

TEST(JsonLine, HasEveryFieldThatIsKnown) {
  const json record = line_of(full_server().build());
  EXPECT_EQ(record["type"], "request");
  EXPECT_EQ(record["v"], 1);
  EXPECT_EQ(record["final"], true);
  EXPECT_EQ(record["role"], "server");
  EXPECT_EQ(record["protocol"], "http1");
  EXPECT_EQ(record["encoding"], "identity");
  EXPECT_EQ(record["namespace"], "prod");
  EXPECT_EQ(record["workload"], "llama");
  EXPECT_EQ(record["pod"], "llama-0");
  EXPECT_EQ(record["container"], "server");
  EXPECT_EQ(record["node"], "node-7");
  EXPECT_EQ(record["pid"], 4242);
  EXPECT_EQ(record["local"], "127.0.0.1:8000");
  EXPECT_EQ(record["conn_id"], "0000000000001234");
  EXPECT_EQ(record["ordinal"], 1);
  EXPECT_EQ(record["trace_id"], "4bf92f3577b34da6a3ce929d0e0e4736");
  EXPECT_EQ(record["outcome"], "complete");
  EXPECT_EQ(record["duration_ns"], 1'210'000'000);
  EXPECT_EQ(record["phases_ns"]["server"], 795'000'000);
  EXPECT_EQ(record["phases_missing"], json::array());
  EXPECT_EQ(record["ttft_ns"]["server"], 796'000'000);
  EXPECT_EQ(record["delivered"], "exact");
  EXPECT_EQ(record["server_split"], json({{"queue_ns", 1000}, {"prefill_ns", 2000}, {"source", "wire"}}));
  EXPECT_EQ(record["tokens"], json({{"output", 64}, {"input", 12}}));
  EXPECT_EQ(record["gap_ns"]["sent"]["p50"], 10'000'000);
  EXPECT_EQ(record["gap_ns"]["sent"]["count"], 60);
  EXPECT_EQ(record["gap_ns"]["sent"]["buckets"].size(), record["gap_ns"]["edges"].size() + 1);
  EXPECT_EQ(record["rtt_us"], json({{"min", 40}, {"mean", 55}, {"max", 90}}));
  EXPECT_EQ(record["retransmits"], json({{"stream", {{"fast", 2}, {"rto", 1}}}}));
  EXPECT_EQ(record["retransmitted_segments"], 3);
  EXPECT_EQ(record["closed_first"], "client");
}

TEST(JsonLine, WhatIsNotKnownIsAbsent) {
  const json record =
      line_of(RecordBuilder::server().breaks(5, IW_OUTCOME_NO_RESPONSE, IW_SIDE_SERVER).build(), true, Identity{});
  for (const char* name :
       {"node",   "namespace", "workload",      "pod",     "container", "trace_id",         "response_id",
        "model",  "code",      "finish_reason", "ttfb_ns", "ttft_ns",   "delivered",        "server_split",
        "chunks", "tokens",    "gap_ns",        "rtt_us",  "encoding",  "time_per_token_ns"}) {
    EXPECT_FALSE(record.contains(name)) << name;
  }
  EXPECT_EQ(record["outcome"], "no_response");
  EXPECT_EQ(record["comm"], "llama-server");  // the kernel knows that much
  EXPECT_EQ(record["pid"], 4242);
}

TEST(JsonLine, AClientHasItsOwnPhases) {
  const json record = line_of(
      RecordBuilder::client().request_acked(0.5).response(4).first_content(800, 800, 801).ends(900, 901).build());
  EXPECT_EQ(record["phases_ns"].size(), 5u);
  EXPECT_EQ(record["phases_ns"]["wait"], 799'500'000);
}

TEST(JsonLine, AnOpenRequestHasNoOutcome) {
  const json record = line_of(RecordBuilder::server().response(4).first_content(8, 8, 9).build(), false);
  EXPECT_EQ(record["final"], false);
  EXPECT_FALSE(record.contains("outcome"));
}

TEST(JsonLine, PhasesAddUpToTheDuration) {
  const json record = line_of(full_server().build());
  std::uint64_t sum = 0;
  for (const json& phase : record["phases_ns"]) sum += phase.get<std::uint64_t>();
  EXPECT_EQ(sum, record["duration_ns"].get<std::uint64_t>());
}

TEST(JsonLine, HostileTextStaysInsideItsString) {
  const json record = line_of(
      full_server().model("\",\"x\":\"\\").finish_reason("\x01\x7f\xc2\x85").response_id("\xf0\x9f\x98").build(), true,
      Identity{"n\ns", "w\"", "p\\", "c\t", "\xff", "co\x1bmm", 1});
  EXPECT_EQ(record["model"], "\",\"x\":\"\\");
  EXPECT_EQ(record["workload"], "w\"");
  EXPECT_EQ(record["pod"], "p\\");
  EXPECT_EQ(record["namespace"], "n\xEF\xBF\xBDs");
}

TEST(JsonLine, IsValidForAnyBytesFromTheKernel) {
  std::mt19937_64 random(7);
  for (int round = 0; round < 3000; ++round) {
    iw_record record = full_server().build();
    auto* bytes = reinterpret_cast<unsigned char*>(&record);
    const bool all = round % 3 == 0;
    const std::size_t changes = all ? sizeof record : 1 + random() % 200;
    for (std::size_t i = 0; i < changes; ++i) {
      bytes[all ? i : random() % sizeof record] = static_cast<unsigned char>(random());
    }
    const std::string line = to_json_line(make_request(record, random() % 2 == 0, Clock{}), identity());
    const json parsed = json::parse(line, nullptr, false);
    ASSERT_FALSE(parsed.is_discarded()) << line;
    ASSERT_EQ(schema().why_invalid(parsed), "") << line;
  }
}

TEST(Schema, RefusesWhatIsNotInIt) {
  json record = line_of(full_server().build());
  EXPECT_EQ(schema().why_invalid(record), "");
  record["surprise"] = 1;
  EXPECT_NE(schema().why_invalid(record), "");
  record.erase("surprise");
  record["phases_ns"]["wait"] = 1;  // a client's phase
  EXPECT_NE(schema().why_invalid(record), "");
  record["phases_ns"].erase("wait");
  record["duration_ns"] = -1;
  EXPECT_NE(schema().why_invalid(record), "");
}

// docs/records.md explains every field that the schema has.
TEST(Schema, EveryFieldIsDocumented) {
  std::ifstream schema_file(std::string(INFERWIRE_SOURCE_DIR) + "/docs/records.schema.json");
  std::ifstream page_file(std::string(INFERWIRE_SOURCE_DIR) + "/docs/records.md");
  const std::string page((std::istreambuf_iterator<char>(page_file)), std::istreambuf_iterator<char>());
  const json loaded = json::parse(schema_file);
  for (const char* type : {"request", "reset", "listen_drop"}) {
    const std::size_t begin = page.find("## `type`: `" + std::string(type) + "`");
    ASSERT_NE(begin, page.npos) << type;
    const std::string section = page.substr(begin, page.find("\n## ", begin + 1) - begin);
    for (const auto& [name, rule] : loaded["$defs"][type]["properties"].items()) {
      EXPECT_NE(section.find("`" + name), section.npos) << name << " of " << type << " is not in docs/records.md";
    }
  }
}

}  // namespace
}  // namespace inferwire::model
