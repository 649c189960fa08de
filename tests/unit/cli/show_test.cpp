// SPDX-License-Identifier: Apache-2.0
#include "agent/cli/show.h"

#include <gtest/gtest.h>

#include <sstream>

#include "agent/cli/show_render.h"
#include "agent/cli/show_tcp.h"
#include "agent/model/json.h"
#include "agent/model/tcp.h"
#include "tests/unit/model/record_builder.h"
#include "tests/unit/model/tcp_builder.h"

namespace inferwire::cli {
namespace {

using test::RecordBuilder;

std::string line_of(const RecordBuilder& builder, const std::string& workload, std::uint32_t pid, bool final = true) {
  const model::Identity who{.workload = workload, .comm = workload, .pid = pid};
  const model::Clock clock{1'764'532'800'000'000'000};
  return model::to_json_line(model::make_request(builder.build(), final, clock), who) + "\n";
}

RecordBuilder client_record() {
  return RecordBuilder::client()
      .cookie(1)
      .request_acked(0.2)
      .response(5)
      .first_content(812, 812, 812.1)
      .chunks(64)
      .end_marker(1200)
      .tokens(64, 12)
      .ends(1201, 1201.3)
      .model("tiny");
}

RecordBuilder server_record() {
  return RecordBuilder::server()
      .cookie(2)
      .accepted(-0.05)
      .read(120)
      .response(124)
      .first_content(811, 810, 811.5)
      .chunks(64)
      .sent_gaps(9, 63)
      .end_marker(1199)
      .tokens(64, 12)
      .ends(1200, 1200.5)
      .rtt_us(20, 55, 90)
      .retransmits(IW_PHASE_STREAM, 0, 2)
      .model("tiny");
}

struct Shown {
  int status;
  std::string out;
  std::string errors;
};

Shown shown(const std::string& text, Style style = {}) {
  std::istringstream lines(text);
  std::ostringstream out;
  std::ostringstream errors;
  const int status = show(lines, "records.jsonl", {}, style, out, errors);
  return {status, out.str(), errors.str()};
}

Style utf8(std::size_t width = 80) { return {.color = false, .utf8 = true, .width = width}; }

TEST(Show, SaysWhichPhaseOfWhichHopTookTheTime) {
  const Shown result = shown(line_of(client_record(), "node", 100) + line_of(server_record(), "llama", 300), utf8(120));
  EXPECT_EQ(result.status, 0);
  EXPECT_NE(result.out.find("» most time: server, 690.0 ms (57 %), server llama: the application working towards the "
                            "first content"),
            std::string::npos)
      << result.out;
  EXPECT_NE(result.out.find("2 request records of 1 exchange"), std::string::npos);
}

TEST(Show, DrawsEveryPhaseWithItsTimeShareAndPlace) {
  const Shown result = shown(line_of(server_record(), "llama", 300), utf8());
  EXPECT_NE(result.out.find("read_wait           120.0  10 %  ████▌\n"), std::string::npos) << result.out;
  EXPECT_NE(result.out.find("server              690.0  57 %      ██████████████████████████"), std::string::npos);
  EXPECT_NE(result.out.find("0.00: upload, accept_wait"), std::string::npos);
  EXPECT_NE(result.out.find("retransmitted in stream: 2 fast"), std::string::npos);
}

std::string tcp_lines(const std::string& workload) {
  metrics::Registry registry;
  model::TcpModel tcp(registry, {});
  const model::Identity who{.name_space = "prod", .workload = workload, .comm = "server", .pid = 300};
  const model::Clock clock{1'764'532'800'000'000'000};
  std::string lines = tcp.on_reset(test::stale_reuse(), who, clock) + "\n";
  iw_reset later = test::stale_reuse(9000);
  later.idle_ns = 1'010 * test::kMs;
  lines += tcp.on_reset(later, who, clock) + "\n";
  iw_reset cut = test::stale_reuse();
  cut.cause = IW_RESET_ABORT_ON_CLOSE;
  cut.direction = IW_DIRECTION_SENT;
  cut.role = IW_ROLE_SERVER;
  cut.chunks = 12;
  lines += tcp.on_reset(cut, who, clock) + "\n";
  const iw_listener full = test::listener();
  lines += tcp.on_listener(test::dropping(full, IW_DROP_ACCEPT_QUEUE_FULL, 1, 0), who, clock) + "\n";
  lines += tcp.on_listener(test::dropping(full, IW_DROP_ACCEPT_QUEUE_FULL, 49, 2000), who, clock) + "\n";
  return lines;
}

TEST(Show, FitsIntoItsColumns) {
  auto long_names = server_record().model(std::string(63, 'm')).finish_reason("a-long-reason").response_id("x");
  const std::string text = line_of(client_record(), std::string(100, 'w'), 100) + line_of(long_names, "llama", 300) +
                           line_of(server_record().cookie(9).ports(1, 2), "模型模型模型模型模型模型", 7) +
                           tcp_lines(std::string(60, 'v'));
  for (const bool color : {false, true}) {
    for (const std::size_t width : {60u, 71u, 80u, 97u, 133u, 200u}) {
      Style style = utf8(width);
      style.color = color;
      std::istringstream lines(shown(text, style).out);
      for (std::string line; std::getline(lines, line);) EXPECT_LE(display_width(line), width) << line;
    }
  }
}

TEST(Show, TellsResetsInWords) {
  const Shown result = shown(tcp_lines("llama"), utf8(200));
  EXPECT_EQ(result.status, 0);
  EXPECT_NE(result.out.find("Resets  2025-11-30\n"), std::string::npos) << result.out;
  EXPECT_NE(result.out.find("received  client  prod/llama  stale_reuse     server         1000.0  4000.0        3"),
            std::string::npos)
      << result.out;
  EXPECT_NE(result.out.find("  » client prod/llama got 2 resets: a request went out on a pooled connection that the "
                            "other side had closed for idleness,"),
            std::string::npos)
      << result.out;
  EXPECT_NE(result.out.find("idle for 1.00 s to 1.01 s; 2 requests were cut\n"), std::string::npos) << result.out;
  EXPECT_NE(result.out.find("  » server prod/llama sent a reset: the application closed it with data that it had not "
                            "read; a request was cut after 12 chunks\n"),
            std::string::npos)
      << result.out;
  EXPECT_NE(result.out.find("0 request records of 0 exchanges, 3 resets, 2 records of dropped connection attempts\n"),
            std::string::npos);
}

TEST(Show, TellsDroppedConnectionsWithTheLimitAndTheFix) {
  const Shown result = shown(tcp_lines("llama"), utf8(300));
  EXPECT_NE(result.out.find("127.0.0.1:8000  prod/llama  accept_queue_full       48           0/1          0  "
                            "backlog=1\n"),
            std::string::npos)
      << result.out;
  EXPECT_NE(
      result.out.find("  » prod/llama on 127.0.0.1:8000 dropped 49 connection attempts: its accept queue was full, "
                      "the limit being the application's backlog = 1. Raise the backlog that the server passes to "
                      "listen(), or let it accept sooner.\n"),
      std::string::npos)
      << result.out;
}

TEST(Show, EveryCauseHasAMeaning) {
  for (std::size_t cause = 0; cause < IW_RESET_CAUSES; ++cause) {
    EXPECT_FALSE(reset_meaning(model::reset_cause_name(cause)).empty()) << cause;
  }
}

TEST(Show, SaysWhoResetAndWhoClosedFirstAndHowLongTheModelWasLoaded) {
  auto builder = server_record().flag(IW_REQ_USAGE);
  builder.request().closed_first = IW_SIDE_SERVER;
  builder.request().reset = IW_SIDE_CLIENT;
  builder.request().load_ns = 7'500'000;
  const std::string out = shown(line_of(builder, "llama", 300), utf8(120)).out;
  EXPECT_NE(out.find("reset by the client  closed first by the server"), std::string::npos) << out;
  EXPECT_NE(out.find("server says: load 7.50 ms"), std::string::npos) << out;
}

TEST(Show, InAsciiThereIsNothingElse) {
  Style style;
  style.width = 80;
  const std::string out =
      shown(line_of(client_record().model("modèle"), "node", 100) + line_of(server_record(), "llama", 300), style).out;
  for (const char c : out) ASSERT_TRUE(c == '\n' || (c >= 0x20 && c < 0x7f)) << out;
  EXPECT_NE(out.find("server              690.0  57 %      ####"), std::string::npos) << out;
}

TEST(Show, NothingFromARecordReachesTheTerminalRaw) {
  const std::string evil = "\\u001b]0;pwned\\u0007\\u202e";
  const std::string record =
      R"({"type":"request","v":1,"start_unix_ns":1764532800000000000,"duration_ns":5,"role":")" + evil +
      R"(","workload":")" + evil + R"(","local":")" + evil + R"(","route":")" + evil + R"(","model":")" + evil +
      R"(","outcome":")" + evil + R"(","finish_reason":")" + evil + R"(","method":")" + evil + R"(","phases_ns":{")" +
      evil + R"(":5},"phases_missing":[")" + evil + R"("],"retransmits":{")" + evil + R"(":{")" + evil + R"(":1}}})" +
      "\n" + R"({"type":")" + evil + R"("})" + "\n" + R"({"type":"reset","time_unix_ns":1,"cause":")" + evil +
      R"(","direction":")" + evil + R"(","role":")" + evil + R"(","local":")" + evil + R"(","remote":")" + evil +
      R"(","comm":")" + evil + R"(","closed_first":")" + evil + R"(","kernel_reason":")" + evil + R"("})" + "\n" +
      R"({"type":"listen_drop","time_unix_ns":1,"listener":")" + evil + R"(","reason":")" + evil +
      R"(","limit_name":")" + evil + R"(","limit_value":1,"fix":")" + evil + R"(","workload":")" + evil + R"("})" +
      "\n";
  const Shown result = shown(record, utf8());
  for (const std::string& text : {result.out, result.errors}) {
    EXPECT_EQ(text.find('\x1b'), text.npos);
    EXPECT_EQ(text.find('\x07'), text.npos);
    EXPECT_EQ(text.find("\xE2\x80\xAE"), text.npos);
  }
}

TEST(Show, ColourMarksTheLongestPhaseAndErrors) {
  Style style = utf8();
  style.color = true;
  const std::string out = shown(line_of(server_record(), "llama", 300), style).out;
  EXPECT_NE(out.find("\033[1;33mserver              690.0"), std::string::npos) << out;
  const std::string failed =
      shown(line_of(RecordBuilder::server().accepted(-1).read(1).response(5, 503).response_delivered(5).ends(6, 7), "w",
                    1),
            style)
          .out;
  EXPECT_NE(failed.find("\033[31m503\033[0m"), std::string::npos) << failed;
}

TEST(Show, ReportsBadLinesAndGoesOn) {
  const Shown result = shown("rubbish\n{\"type\":\"stall\"}\n" + line_of(server_record(), "llama", 300), utf8());
  EXPECT_EQ(result.status, 0);
  EXPECT_EQ(result.errors, "records.jsonl: line 1: no valid JSON\n");
  EXPECT_NE(result.out.find("1 of type stall (not shown), 1 bad line left out"), std::string::npos);
}

TEST(Show, FailsWhenNothingCouldBeRead) {
  EXPECT_EQ(shown("rubbish\n").status, 1);
  EXPECT_EQ(shown("").status, 0);
  EXPECT_NE(shown("").out.find("0 request records"), std::string::npos);
  EXPECT_EQ(shown("rubbish\n" + tcp_lines("llama")).status, 0);
}

TEST(Show, NamesPhasesThatAreNotKnown) {
  auto builder = server_record();
  builder.conn().accepted_ns = 0;
  EXPECT_NE(shown(line_of(builder, "llama", 300), utf8()).out.find("hold: from the previous): accept_wait"),
            std::string::npos);
}

TEST(Show, AnOpenRequestIsShownAsOpen) {
  const Shown result =
      shown(line_of(RecordBuilder::server().response(4).first_content(8, 8, 9), "llama", 3, false), utf8());
  EXPECT_NE(result.out.find("200 open"), std::string::npos) << result.out;
}

TEST(Show, AMissingFileSaysSo) {
  testing::internal::CaptureStderr();
  EXPECT_EQ(show_main({.file = "/nonexistent/records.jsonl"}), 1);
  EXPECT_NE(testing::internal::GetCapturedStderr().find(
                "cannot read records from /nonexistent/records.jsonl: No such file or directory"),
            std::string::npos);
}

TEST(Show, AFolderSaysSo) {
  testing::internal::CaptureStderr();
  EXPECT_EQ(show_main({.file = "/"}), 1);
  EXPECT_NE(testing::internal::GetCapturedStderr().find("cannot read records from /"), std::string::npos);
}

TEST(Verdict, AHopThatWaitsForTheNextOneIsNotBlamed) {
  ShownRequest client;
  client.role = "client";
  client.duration_ns = 1000;
  client.phases = {{"wait", 900}, {"stream", 90}, {"drain", 10}};
  ShownRequest server;
  server.duration_ns = 980;
  server.role = "server";
  server.phases = {{"read_wait", 600}, {"server", 290}, {"stream", 90}};
  const Exchange exchange{{{&client, 0, {}}, {&server, 1, "connection"}}};
  EXPECT_EQ(longest_phase(exchange).phase, "read_wait");
  EXPECT_EQ(longest_phase(exchange).request, &server);
  EXPECT_EQ(longest_phase({{{&client, 0, {}}}}).phase, "wait");
  EXPECT_EQ(longest_phase({{{&client, 0, {}}}}).request, &client);
}

TEST(Verdict, AShortCallOfTheNextOneDoesNotExcuseAHopsOwnWork) {
  ShownRequest application;
  application.role = "server";
  application.start_unix_ns = 1000;
  application.duration_ns = 1000;
  application.phases = {{"read_wait", 5}, {"server", 300}, {"stream", 690}, {"drain", 5}};
  ShownRequest call;
  call.role = "client";
  call.start_unix_ns = 1100;
  call.duration_ns = 20;
  call.phases = {{"wait", 20}};
  const Exchange exchange{{{&application, 0, {}}, {&call, 1, "time"}}};
  EXPECT_EQ(longest_phase(exchange).phase, "stream");
  EXPECT_EQ(longest_phase(exchange).ns, 690u);
  EXPECT_EQ(longest_phase(exchange).request, &application);
}

TEST(Legend, EveryPhaseHasAMeaning) {
  for (const char* phase : {"upload", "accept_wait", "read_wait", "server", "hold", "first_delivery", "stream", "drain",
                            "send", "wait", "first_read"}) {
    EXPECT_FALSE(phase_meaning(phase).empty()) << phase;
  }
}

}  // namespace
}  // namespace inferwire::cli
