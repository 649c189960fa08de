// SPDX-License-Identifier: Apache-2.0
#include "agent/model/tcp.h"

#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <random>
#include <string>

#include "tests/unit/model/json_schema.h"
#include "tests/unit/model/metric_sum.h"
#include "tests/unit/model/tcp_builder.h"

namespace inferwire::model {
namespace {

using metrics::FamilyId;
using nlohmann::json;
using test::at_ms;
using test::dropping;
using test::stale_reuse;

const test::JsonSchema& schema() {
  static const test::JsonSchema loaded = [] {
    std::ifstream file(std::string(INFERWIRE_SOURCE_DIR) + "/docs/records.schema.json");
    return test::JsonSchema(json::parse(file));
  }();
  return loaded;
}

class TcpTest : public ::testing::Test {
 protected:
  static constexpr Clock kClock{1'764'000'000'000'000'000};

  static Identity llama() { return {"prod", "llama", "llama-0", "server", "node-7", "llama-server", 4242}; }
  static Identity gateway() { return {"prod", "gateway", "gateway-0", "nginx", "node-7", "nginx", 99}; }

  static iw_tcp_key server(std::uint16_t port = 8000) { return {1, 4242, port, IW_ROLE_SERVER, 0}; }
  static iw_tcp_key client(std::uint16_t port = 8000) { return {1, 99, port, IW_ROLE_CLIENT, 0}; }

  double total(FamilyId id, const test::Wanted& wanted = {}) { return test::metric_sum(registry, id, wanted, true); }
  double sum(FamilyId id, const test::Wanted& wanted = {}) { return test::metric_sum(registry, id, wanted, false); }

  // The record if one was due, checked against the schema; else null.
  static json checked(const std::string& line) {
    if (line.empty()) return nullptr;
    EXPECT_EQ(line.find('\n'), line.npos);
    json record = json::parse(line);
    EXPECT_EQ(schema().why_invalid(record), "") << line;
    return record;
  }
  json see(const iw_listener& listener) { return checked(tcp.on_listener(listener, llama(), kClock)); }
  std::vector<json> end_walk(double now_ms, bool last = false) {
    std::vector<json> records;
    for (const std::string& line : tcp.end_walk(at_ms(now_ms), kClock, last)) records.push_back(checked(line));
    return records;
  }

  metrics::Registry registry;
  TcpModel tcp{registry, {.peers = {{9000, "object_store"}}, .reset_reasons = {"not_specified", "no_socket"}}};
};

TEST_F(TcpTest, SumsGoIntoTheirFamiliesAsTheyAre) {
  iw_tcp_sums delta{};
  delta.segments[IW_DIRECTION_SENT] = 7;
  delta.segments[IW_DIRECTION_RECEIVED] = 5;
  delta.payload_bytes[IW_DIRECTION_SENT] = 10'000;
  delta.header_bytes[IW_DIRECTION_SENT] = 280;
  for (std::size_t type = 0; type < IW_RETRANSMIT_TYPES; ++type) delta.retransmits[type] = type + 1;
  delta.opened = 3;
  delta.zero_window_us[IW_DIRECTION_SENT] = 1'500'000;
  delta.zero_window_us[IW_DIRECTION_RECEIVED] = 250'000;
  delta.resets[IW_DIRECTION_SENT][IW_RESET_ABORT_ON_CLOSE] = 2;
  delta.resets[IW_DIRECTION_RECEIVED][IW_RESET_STALE_REUSE] = 4;
  tcp.on_sums(server(), delta, llama());
  tcp.on_sums(server(), delta, llama());

  const test::Wanted who = {{"namespace", "prod"}, {"workload", "llama"}, {"container", "server"}, {"pod", "llama-0"}};
  const auto of_llama = [&](test::Wanted more) {
    more.insert(who.begin(), who.end());
    return more;
  };
  EXPECT_EQ(
      total(FamilyId::kTcpSegmentsTotal, of_llama({{"role", "server"}, {"direction", "sent"}, {"peer", "other"}})), 14);
  EXPECT_EQ(total(FamilyId::kTcpSegmentsTotal, {{"direction", "received"}}), 10);
  EXPECT_EQ(total(FamilyId::kTcpPayloadBytesTotal, of_llama({{"direction", "sent"}})), 20'000);
  EXPECT_EQ(total(FamilyId::kTcpPayloadBytesTotal, {{"direction", "received"}}), 0);
  EXPECT_EQ(total(FamilyId::kTcpHeaderBytesTotal), 560);
  const char* types[] = {"syn", "synack", "fast", "rto", "tlp", "other"};
  for (std::size_t type = 0; type < std::size(types); ++type) {
    EXPECT_EQ(total(FamilyId::kTcpRetransmittedSegmentsTotal, of_llama({{"role", "server"}, {"type", types[type]}})),
              2 * (static_cast<double>(type) + 1))
        << types[type];
  }
  EXPECT_EQ(total(FamilyId::kTcpConnectionsOpenedTotal, of_llama({{"role", "server"}})), 6);
  EXPECT_DOUBLE_EQ(total(FamilyId::kTcpZeroWindowSecondsTotal, of_llama({{"direction", "sent"}})), 3);
  EXPECT_DOUBLE_EQ(total(FamilyId::kTcpZeroWindowSecondsTotal, of_llama({{"direction", "received"}})), 0.5);
  EXPECT_EQ(total(FamilyId::kTcpResetsTotal,
                  of_llama({{"role", "server"}, {"direction", "sent"}, {"cause", "abort_on_close"}})),
            4);
  EXPECT_EQ(total(FamilyId::kTcpResetsTotal, {{"direction", "received"}, {"cause", "stale_reuse"}}), 8);
  EXPECT_EQ(total(FamilyId::kTcpResetsTotal), 12);
}

TEST_F(TcpTest, EveryCauseAndResultHasItsName) {
  const char* causes[] = {"no_listener",
                          "listen_queue_full",
                          "abort_on_close",
                          "abort_on_linger",
                          "abort_on_data",
                          "on_data_after_close",
                          "stale_reuse",
                          "keepalive_timeout",
                          "user_timeout",
                          "memory",
                          "invalid_segment",
                          "firewall",
                          "peer",
                          "unknown"};
  const char* results[] = {"ok", "refused", "reset", "timeout", "unreachable", "aborted", "no_port"};
  iw_tcp_sums delta{};
  for (std::size_t cause = 0; cause < IW_RESET_CAUSES; ++cause) delta.resets[IW_DIRECTION_SENT][cause] = cause + 1;
  for (std::size_t result = 0; result < IW_CONNECT_RESULTS; ++result) delta.connects[result] = result + 1;
  tcp.on_sums(client(5432), delta, gateway());
  for (std::size_t cause = 0; cause < std::size(causes); ++cause) {
    EXPECT_EQ(total(FamilyId::kTcpResetsTotal, {{"cause", causes[cause]}}), static_cast<double>(cause) + 1);
  }
  for (std::size_t result = 0; result < std::size(results); ++result) {
    EXPECT_EQ(total(FamilyId::kTcpConnectsTotal, {{"peer", "sql"}, {"result", results[result]}}),
              static_cast<double>(result) + 1);
  }
}

TEST_F(TcpTest, RoundTripsAreAHistogramOnlyWhereThereAreLlmRequests) {
  iw_tcp_sums delta{};
  delta.rtt.buckets[0] = 3;                   // at most 50 us
  delta.rtt.buckets[6] = 2;                   // 2.5 to 5 ms
  delta.rtt.buckets[IW_TCP_EDGES_COUNT] = 1;  // over 5 s
  delta.rtt.sum_us = 12'000'000;
  delta.queueing.buckets[1] = 6;
  delta.queueing.sum_us = 480;
  tcp.saw_llm(llama(), IW_ROLE_SERVER, 8000);
  tcp.on_sums(server(), delta, llama());
  tcp.on_sums(client(6379), delta, gateway());

  EXPECT_EQ(total(FamilyId::kTcpRttSeconds, {{"workload", "llama"}, {"role", "server"}, {"peer", "inference"}}), 6);
  EXPECT_DOUBLE_EQ(sum(FamilyId::kTcpRttSeconds, {{"workload", "llama"}}), 12);
  EXPECT_EQ(total(FamilyId::kTcpRttSeconds, {{"workload", "gateway"}}), 0);
  EXPECT_EQ(total(FamilyId::kTcpQueueingDelaySeconds), 6);
  EXPECT_DOUBLE_EQ(sum(FamilyId::kTcpQueueingDelaySeconds), 480e-6);
  for (const char* workload : {"llama", "gateway"}) {
    EXPECT_EQ(total(FamilyId::kTcpRttSamplesTotal, {{"workload", workload}}), 6);
    EXPECT_DOUBLE_EQ(total(FamilyId::kTcpRttSampleSecondsTotal, {{"workload", workload}}), 12);
  }
  const auto snapshot = registry.snapshot();
  const auto* rtt = snapshot->find(FamilyId::kTcpRttSeconds);
  ASSERT_NE(rtt, nullptr);
  EXPECT_DOUBLE_EQ(rtt->edges->front(), 50e-6);
  EXPECT_DOUBLE_EQ(rtt->edges->back(), 5);
  EXPECT_EQ(rtt->buckets_of(0)[0], 3u);
  EXPECT_EQ(rtt->buckets_of(0)[6], 2u);
  EXPECT_EQ(rtt->buckets_of(0)[IW_TCP_EDGES_COUNT], 1u);
}

TEST_F(TcpTest, HandshakesAndAcceptWaitsAreHistogramsOfEveryWorkload) {
  iw_tcp_sums delta{};
  delta.connect.buckets[2] = 4;
  delta.connect.sum_us = 800;
  tcp.on_sums(client(9000), delta, gateway());
  delta = {};
  delta.accept_wait.buckets[12] = 2;  // 200 to 500 ms
  delta.accept_wait.sum_us = 590'000;
  tcp.on_sums(server(), delta, llama());
  EXPECT_EQ(total(FamilyId::kTcpConnectSeconds, {{"workload", "gateway"}, {"peer", "object_store"}}), 4);
  EXPECT_DOUBLE_EQ(sum(FamilyId::kTcpConnectSeconds), 800e-6);
  EXPECT_EQ(total(FamilyId::kTcpAcceptWaitSeconds, {{"workload", "llama"}}), 2);
  EXPECT_DOUBLE_EQ(sum(FamilyId::kTcpAcceptWaitSeconds), 0.59);
}

TEST_F(TcpTest, NothingMakesASeriesByBeingZero) {
  tcp.on_sums(server(), {}, llama());
  see(test::listener());
  EXPECT_TRUE(registry.snapshot()->families.empty());
}

TEST_F(TcpTest, BeyondTheLimitOfLabelSetsSumsStayExact) {
  metrics::Registry small({.label_sets_max = 4});
  TcpModel model(small, {});
  iw_tcp_sums delta{};
  delta.segments[IW_DIRECTION_SENT] = 3;
  delta.accept_wait.buckets[5] = 2;
  for (int workload = 0; workload < 20; ++workload) {
    Identity who = llama();
    who.workload += std::to_string(workload);
    model.on_sums(server(), delta, who);
    iw_listener listener = test::listener(static_cast<std::uint64_t>(workload));
    listener.drops[IW_DROP_OTHER] = 7;
    model.on_listener(listener, who, kClock);
  }
  model.end_walk(at_ms(1), kClock);
  const auto sum_of = [&](FamilyId id, const test::Wanted& wanted) {
    return test::metric_sum(small, id, wanted, true);
  };
  EXPECT_EQ(sum_of(FamilyId::kTcpSegmentsTotal, {}), 60);
  EXPECT_EQ(sum_of(FamilyId::kTcpSegmentsTotal, {{"workload", "overflow"}}), 48);
  EXPECT_EQ(sum_of(FamilyId::kTcpAcceptWaitSeconds, {}), 40);
  EXPECT_EQ(sum_of(FamilyId::kTcpListenDropsTotal, {}), 140);
  EXPECT_EQ(sum_of(FamilyId::kTcpListeners, {}), 20);
  EXPECT_EQ(sum_of(FamilyId::kTcpAcceptQueueLimit, {{"workload", "overflow"}}), 16);
}

TEST(PeersTest, ConfigurationWinsThenLlmRequestsThenUsualPorts) {
  Peers peers({{6379, "kv_transfer"}});
  const Identity a{.workload = "a"}, b{.workload = "b"};
  EXPECT_EQ(peers.class_of(a, IW_ROLE_CLIENT, 6379), "kv_transfer");
  EXPECT_EQ(peers.class_of(a, IW_ROLE_CLIENT, 5432), "sql");
  EXPECT_EQ(peers.class_of(a, IW_ROLE_CLIENT, 53), "dns");
  EXPECT_EQ(peers.class_of(a, IW_ROLE_CLIENT, 443), "other");
  EXPECT_EQ(peers.class_of(a, IW_ROLE_UNKNOWN, 0), "other");
  EXPECT_FALSE(peers.has_llm(a));
  peers.saw_llm(a, IW_ROLE_CLIENT, 5432);
  EXPECT_TRUE(peers.has_llm(a));
  EXPECT_EQ(peers.class_of(a, IW_ROLE_CLIENT, 5432), "inference");
  EXPECT_EQ(peers.class_of(a, IW_ROLE_SERVER, 5432), "sql") << "the other end of it";
  EXPECT_EQ(peers.class_of(b, IW_ROLE_CLIENT, 5432), "sql") << "another workload may have a database there";
}

// ---- Resets ----

TEST_F(TcpTest, AResetTellsItsCauseAndItsConnection) {
  const json record = checked(tcp.on_reset(stale_reuse(), gateway(), kClock));
  EXPECT_EQ(record["type"], "reset");
  EXPECT_EQ(record["time_unix_ns"], static_cast<std::int64_t>(at_ms(5000)) + kClock.mono_to_unix_offset_ns);
  EXPECT_EQ(record["direction"], "received");
  EXPECT_EQ(record["cause"], "stale_reuse");
  EXPECT_EQ(record["role"], "client");
  EXPECT_EQ(record["workload"], "gateway");
  EXPECT_EQ(record["pid"], 99);
  EXPECT_EQ(record["local"], "127.0.0.1:51234");
  EXPECT_EQ(record["remote"], "127.0.0.1:8000");
  EXPECT_EQ(record["conn_id"], "0000000000000077");
  EXPECT_EQ(record["age_ns"], 4'000'000'000);
  EXPECT_EQ(record["idle_ns"], 1'000'000'000);
  EXPECT_EQ(record["closed_first"], "server");
  EXPECT_EQ(record["ordinal"], 3);
  EXPECT_EQ(record["request_open"], true);
  EXPECT_EQ(record["chunks"], 0);
  EXPECT_FALSE(record.contains("kernel_reason")) << "this kernel does not say";
}

TEST_F(TcpTest, WhatIsNotKnownOfAResetIsAbsent) {
  iw_reset reset = stale_reuse();
  reset.cookie = reset.established_ns = reset.idle_ns = 0;
  reset.closed_first = reset.role = 0;
  reset.ordinal = 0;
  const json record = checked(tcp.on_reset(reset, {}, kClock));
  for (const char* name : {"conn_id", "age_ns", "idle_ns", "closed_first", "role", "ordinal", "chunks", "request_open",
                           "workload", "pid", "kernel_reason"}) {
    EXPECT_FALSE(record.contains(name)) << name;
  }
}

TEST_F(TcpTest, TheKernelsReasonIsNamedAsThisKernelNamesIt) {
  iw_reset reset = stale_reuse();
  reset.kernel_reason = 1;
  EXPECT_EQ(checked(tcp.on_reset(reset, {}, kClock))["kernel_reason"], "no_socket");
  reset.kernel_reason = 200;
  EXPECT_EQ(checked(tcp.on_reset(reset, {}, kClock))["kernel_reason"], "200");
}

// ---- Listeners ----

TEST_F(TcpTest, ListenersAreGaugesOfTheLatestWalk) {
  iw_listener first = test::listener(1);
  first.accept_queue_length = 2;
  first.syn_queue_length = 7;
  see(first);
  iw_listener second = test::listener(2);  // SO_REUSEPORT
  second.accept_queue_limit = 128;
  see(second);
  end_walk(10);
  const test::Wanted where = {{"workload", "llama"}, {"pod", "llama-0"}, {"port", "8000"}};
  EXPECT_EQ(total(FamilyId::kTcpListeners, where), 2);
  EXPECT_EQ(total(FamilyId::kTcpAcceptQueueLength, where), 2);
  EXPECT_EQ(total(FamilyId::kTcpAcceptQueueLimit, where), 129);
  EXPECT_EQ(total(FamilyId::kTcpSynQueueLength, where), 7);

  see(second);
  end_walk(20);
  EXPECT_EQ(total(FamilyId::kTcpListeners, where), 1) << "the first one was not there";
  EXPECT_EQ(total(FamilyId::kTcpAcceptQueueLength, where), 0);
  EXPECT_EQ(total(FamilyId::kTcpAcceptQueueLimit, where), 128);
  for (int walk = 0; walk < 3; ++walk) {
    see(second);
    end_walk(30 + walk);
  }
  EXPECT_EQ(tcp.listeners(), 1u);
}

TEST_F(TcpTest, DropsAreCountedOnceInWhateverOrderTheyAreTold) {
  const iw_listener full = test::listener();
  see(dropping(full, IW_DROP_ACCEPT_QUEUE_FULL, 1, 0));
  iw_listener walked = full;
  walked.header.time_ns = at_ms(100);
  walked.drops[IW_DROP_ACCEPT_QUEUE_FULL] = 40;
  walked.drops[IW_DROP_OTHER] = 2;
  walked.cookies = 9;
  see(walked);
  see(dropping(full, IW_DROP_ACCEPT_QUEUE_FULL, 30, 50));  // older than the walk
  see(walked);
  const test::Wanted where = {{"workload", "llama"}, {"pod", "llama-0"}, {"port", "8000"}};
  EXPECT_EQ(total(FamilyId::kTcpListenDropsTotal, where), 42);
  EXPECT_EQ(total(FamilyId::kTcpListenDropsTotal, {{"reason", "accept_queue_full"}}), 40);
  EXPECT_EQ(total(FamilyId::kTcpListenDropsTotal, {{"reason", "other"}}), 2);
  EXPECT_EQ(total(FamilyId::kTcpSyncookiesTotal, where), 9);
}

TEST_F(TcpTest, RecordsComeAtMostOnceASecondAndAddUp) {
  const iw_listener full = test::listener();
  const json first = see(dropping(full, IW_DROP_ACCEPT_QUEUE_FULL, 1, 0));
  ASSERT_FALSE(first.is_null());
  EXPECT_EQ(first["count"], 1);
  EXPECT_TRUE(see(dropping(full, IW_DROP_ACCEPT_QUEUE_FULL, 20, 999)).is_null());
  const json second = see(dropping(full, IW_DROP_ACCEPT_QUEUE_FULL, 33, 1000));
  ASSERT_FALSE(second.is_null());
  EXPECT_EQ(second["count"], 32);
  EXPECT_EQ(second["total"], 33);
  // What comes between two of the kernel's records is found by the walk; of two reasons the greater goes first.
  iw_listener walked = full;
  walked.header.time_ns = at_ms(5000);
  walked.drops[IW_DROP_ACCEPT_QUEUE_FULL] = 49;
  walked.drops[IW_DROP_SYN_QUEUE_FULL] = 3;
  EXPECT_EQ(see(walked)["count"], 16);
  EXPECT_TRUE(end_walk(5001).empty());
  const std::vector<json> rest = end_walk(6001);
  ASSERT_EQ(rest.size(), 1u);
  EXPECT_EQ(rest[0]["reason"], "syn_queue_full");
  EXPECT_EQ(rest[0]["count"], 3);
  EXPECT_TRUE(end_walk(9000).empty());
}

TEST_F(TcpTest, AtTheEndNothingIsLeftUntold) {
  see(dropping(test::listener(), IW_DROP_ACCEPT_QUEUE_FULL, 1, 0));
  iw_listener walked = test::listener();
  walked.header.time_ns = at_ms(10);
  walked.drops[IW_DROP_ACCEPT_QUEUE_FULL] = 5;
  walked.drops[IW_DROP_MAX_SYN_BACKLOG] = 2;
  EXPECT_TRUE(see(walked).is_null());
  const std::vector<json> rest = end_walk(11, true);
  ASSERT_EQ(rest.size(), 2u);
  EXPECT_EQ(rest[0]["count"].get<int>() + rest[1]["count"].get<int>(), 6);
}

TEST_F(TcpTest, AListenerThatIsGoneTellsItsLastDrops) {
  iw_listener walked = test::listener();
  see(walked);
  end_walk(1);
  see(dropping(walked, IW_DROP_ACCEPT_QUEUE_FULL, 1, 2));
  see(dropping(walked, IW_DROP_ACCEPT_QUEUE_FULL, 4, 3));
  EXPECT_TRUE(end_walk(500).empty()) << "too early";
  const std::vector<json> rest = end_walk(1500);
  ASSERT_EQ(rest.size(), 1u);
  EXPECT_EQ(rest[0]["count"], 3);
  end_walk(2500);
  EXPECT_EQ(tcp.listeners(), 0u);
}

TEST_F(TcpTest, TheLimitThatWasHitIsNamedWithItsValueAndItsFix) {
  const auto hit = [&](std::uint32_t reason, std::uint32_t limit, std::uint32_t somaxconn) {
    static std::uint64_t cookie = 100;
    iw_listener listener = test::listener(++cookie);
    listener.accept_queue_limit = limit;
    listener.somaxconn = somaxconn;
    return see(dropping(listener, reason, 1, 0));
  };
  json record = hit(IW_DROP_ACCEPT_QUEUE_FULL, 1, 4096);
  EXPECT_EQ(record["listener"], "127.0.0.1:8000");
  EXPECT_EQ(record["reason"], "accept_queue_full");
  EXPECT_EQ(record["limit_name"], "backlog");
  EXPECT_EQ(record["limit_value"], 1);
  EXPECT_NE(record["fix"].get<std::string>().find("listen()"), std::string::npos);
  EXPECT_EQ(record["accept_queue_limit"], 1);
  EXPECT_EQ(record["somaxconn"], 4096);
  EXPECT_EQ(record["workload"], "llama");

  record = hit(IW_DROP_ACCEPT_QUEUE_FULL, 128, 128);
  EXPECT_EQ(record["limit_name"], "somaxconn");
  EXPECT_EQ(record["limit_value"], 128);
  EXPECT_NE(record["fix"].get<std::string>().find("net.core.somaxconn"), std::string::npos);

  record = hit(IW_DROP_SYN_QUEUE_FULL, 8, 128);
  EXPECT_EQ(record["limit_name"], "backlog");
  EXPECT_NE(record["fix"].get<std::string>().find("tcp_syncookies"), std::string::npos);
  EXPECT_EQ(hit(IW_DROP_SYN_QUEUE_FULL, 128, 128)["limit_name"], "somaxconn");

  record = hit(IW_DROP_MAX_SYN_BACKLOG, 4096, 4096);
  EXPECT_EQ(record["limit_name"], "tcp_max_syn_backlog");
  EXPECT_EQ(record["limit_value"], 256);

  record = hit(IW_DROP_OTHER, 1, 4096);
  EXPECT_FALSE(record.contains("limit_name"));
  EXPECT_FALSE(record.contains("fix"));
}

TEST_F(TcpTest, TheWalkKnowsBetterWhoseListenerItIs) {
  const Identity by_cgroup{.workload = "llama", .pod = "llama-0"};
  tcp.on_listener(dropping(test::listener(), IW_DROP_OTHER, 1, 0), by_cgroup, kClock);
  see(test::listener(0x99, 1));
  const json record = checked(tcp.on_listener(dropping(test::listener(), IW_DROP_OTHER, 2, 2000), by_cgroup, kClock));
  EXPECT_EQ(record["container"], "server");
  EXPECT_EQ(record["pid"], 4242);
}

TEST_F(TcpTest, BeyondTheLimitListenersAreLeftOut) {
  TcpModel few(registry, {.listeners_max = 2});
  for (std::uint64_t cookie = 1; cookie <= 5; ++cookie) few.on_listener(test::listener(cookie), llama(), kClock);
  EXPECT_EQ(few.listeners(), 2u);
}

TEST_F(TcpTest, ListenersThatNoWalkHasSeenMakeRoom) {
  TcpModel few(registry, {.listeners_max = 2});
  for (std::uint64_t cookie = 1; cookie <= 5; ++cookie) {
    const auto drop = dropping(test::listener(cookie), IW_DROP_OTHER, 1, static_cast<double>(cookie) * 2000);
    EXPECT_FALSE(few.on_listener(drop, llama(), kClock).empty()) << cookie;
  }
  EXPECT_EQ(few.listeners(), 2u);
  EXPECT_TRUE(few.on_listener(dropping(test::listener(5), IW_DROP_OTHER, 1, 12'000), llama(), kClock).empty())
      << "the latest are still known";
  EXPECT_EQ(total(FamilyId::kTcpListenDropsTotal), 5);
}

// ---- Connections ----

TEST_F(TcpTest, ConnectionsAreGaugesByState) {
  iw_socket_state socket{};
  for (const std::uint8_t state : {1, 1, 1, 8, 2, 5}) {
    socket.state = state;
    tcp.on_socket(socket, llama());
  }
  EXPECT_EQ(total(FamilyId::kTcpConnections), 0) << "the walk goes on";
  end_walk(1);
  EXPECT_EQ(total(FamilyId::kTcpConnections, {{"workload", "llama"}, {"pod", "llama-0"}, {"state", "established"}}), 3);
  EXPECT_EQ(total(FamilyId::kTcpConnections, {{"state", "close_wait"}}), 1);
  EXPECT_EQ(total(FamilyId::kTcpConnections, {{"state", "syn_sent"}}), 1);
  EXPECT_EQ(total(FamilyId::kTcpConnections, {{"state", "fin_wait2"}}), 1);
  EXPECT_EQ(tcp.connections(), 6u);
  end_walk(2);
  EXPECT_EQ(total(FamilyId::kTcpConnections), 0);
}

// ---- Top ----

TEST_F(TcpTest, TopShowsListenersWithDropsFirstAndConnectionsByState) {
  iw_listener quiet = test::listener(1);
  quiet.local_port = 22;
  see(quiet);
  iw_listener full = test::listener(2);
  full.accept_queue_length = 2;
  full.drops[IW_DROP_ACCEPT_QUEUE_FULL] = 49;
  see(full);
  iw_socket_state socket{};
  socket.state = 1;
  tcp.on_socket(socket, llama());
  tcp.on_socket(socket, gateway());
  tcp.on_socket(socket, gateway());
  end_walk(1);

  JsonWriter json_writer;
  json_writer.begin_object();
  tcp.write_top(json_writer);
  json_writer.end_object();
  const json top = json::parse(json_writer.take());
  ASSERT_EQ(top["listeners"].size(), 2u);
  EXPECT_EQ(top["listeners"][0]["listener"], "127.0.0.1:8000");
  EXPECT_EQ(top["listeners"][0]["workload"], "llama");
  EXPECT_EQ(top["listeners"][0]["accept_queue_length"], 2);
  EXPECT_EQ(top["listeners"][0]["accept_queue_limit"], 1);
  EXPECT_EQ(top["listeners"][0]["drops"], json({{"accept_queue_full", 49}}));
  EXPECT_EQ(top["listeners"][1]["listener"], "127.0.0.1:22");
  ASSERT_EQ(top["connections"].size(), 2u);
  EXPECT_EQ(top["connections"][0]["workload"], "gateway");
  EXPECT_EQ(top["connections"][0]["states"], json({{"established", 2}}));
  EXPECT_EQ(top["connections_omitted"], 0);
}

// ---- Whatever the kernel says ----

TEST_F(TcpTest, RecordsAreValidForAnyBytesFromTheKernel) {
  std::mt19937_64 random(11);
  const auto scramble = [&](auto record) {
    auto* bytes = reinterpret_cast<unsigned char*>(&record);
    for (std::size_t i = 0; i < sizeof record; ++i) bytes[i] = static_cast<unsigned char>(random());
    return record;
  };
  for (int round = 0; round < 2000; ++round) {
    checked(tcp.on_reset(scramble(iw_reset{}), gateway(), {}));
    iw_listener listener = scramble(iw_listener{});
    listener.header.kind = IW_REC_LISTENER;
    see(listener);
    iw_socket_state socket = scramble(iw_socket_state{});
    tcp.on_socket(socket, llama());
    tcp.on_sums(iw_tcp_key{1, 1, 1, static_cast<std::uint8_t>(random()), 0}, scramble(iw_tcp_sums{}), llama());
  }
  end_walk(1);
}

}  // namespace
}  // namespace inferwire::model
