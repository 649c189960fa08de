// SPDX-License-Identifier: Apache-2.0
#include "agent/cli/show_groups.h"

#include <gtest/gtest.h>

#include <deque>

namespace inferwire::cli {
namespace {

constexpr std::int64_t kMs = 1'000'000;
constexpr std::int64_t kStart = 1'700'000'000'000 * kMs;

ShownRequest hop(const std::string& role, const std::string& local, const std::string& remote, std::int64_t start_ms,
                 std::int64_t duration_ms, std::uint64_t pid) {
  ShownRequest request;
  request.role = role;
  request.local = local;
  request.remote = remote;
  request.start_unix_ns = kStart + start_ms * kMs;
  request.duration_ns = static_cast<std::uint64_t>(duration_ms * kMs);
  request.owner.pid = pid;
  request.ordinal = 1;
  request.stream = true;
  request.code = 200;
  return request;
}

constexpr std::uint64_t kClient = 1, kGateway = 2, kServer = 3;

// Client -> gateway -> server.
std::vector<ShownRequest> exchange(std::int64_t start_ms, const std::string& client_port, const std::string& up_port) {
  return {hop("server", "10.0.0.3:9000", "10.0.0.2:" + up_port, start_ms + 2, 94, kServer),
          hop("client", "10.0.0.1:" + client_port, "10.0.0.2:80", start_ms, 100, kClient),
          hop("client", "10.0.0.2:" + up_port, "10.0.0.3:9000", start_ms + 2, 95, kGateway),
          hop("server", "10.0.0.2:80", "10.0.0.1:" + client_port, start_ms + 1, 99, kGateway)};
}

std::string shape(const std::vector<Exchange>& exchanges) {
  std::string text;
  for (const Exchange& each : exchanges) {
    for (const Hop& hop : each.hops) {
      text += std::string(hop.depth, ' ') + hop.request->role + ":" + std::to_string(hop.request->owner.pid);
      if (!hop.joined_by.empty()) text += "(" + std::string(hop.joined_by) + ")";
      text += "\n";
    }
    text += "--\n";
  }
  return text;
}

constexpr const char* kWholeByTime = "client:1\n server:2(connection)\n  client:2(time)\n   server:3(connection)\n--\n";

TEST(Groups, TheHopsOfOneExchangeHangTogether) {
  EXPECT_EQ(shape(group_exchanges(exchange(0, "5000", "6000"))), kWholeByTime);
}

TEST(Groups, ASharedTraceIdIsBetterThanTime) {
  auto requests = exchange(0, "5000", "6000");
  for (ShownRequest& request : requests) request.trace_id = "4bf92f3577b34da6a3ce929d0e0e4736";
  EXPECT_EQ(shape(group_exchanges(requests)),
            "client:1\n server:2(connection)\n  client:2(trace)\n   server:3(connection)\n--\n");
}

TEST(Groups, AtTheSameTimeTheResponseIdDecides) {
  auto first = exchange(0, "5000", "6001");
  auto second = exchange(0, "5001", "6000");
  for (ShownRequest& request : first) request.response_id = "chatcmpl-1";
  for (ShownRequest& request : second) request.response_id = "chatcmpl-2";
  auto requests = first;
  requests.insert(requests.end(), second.begin(), second.end());
  const auto exchanges = group_exchanges(requests);
  ASSERT_EQ(exchanges.size(), 2u);
  for (const Exchange& each : exchanges) {
    ASSERT_EQ(each.hops.size(), 4u);
    for (const Hop& hop : each.hops) EXPECT_EQ(hop.request->response_id, each.hops[0].request->response_id);
    EXPECT_EQ(each.hops[2].joined_by, "response id");
  }
}

TEST(Groups, TwoExchangesAtOnceEachGetAnUpstream) {
  auto requests = exchange(0, "5000", "6000");
  const auto second = exchange(1, "5001", "6001");
  requests.insert(requests.end(), second.begin(), second.end());
  const auto exchanges = group_exchanges(requests);
  ASSERT_EQ(exchanges.size(), 2u);
  EXPECT_EQ(exchanges[0].hops.size(), 4u);
  EXPECT_EQ(exchanges[1].hops.size(), 4u);
}

TEST(Groups, AnotherProcessesRequestsAreNotUpstream) {
  auto requests = exchange(0, "5000", "6000");
  requests[2].owner.pid = 99;
  EXPECT_EQ(group_exchanges(requests).size(), 2u);
}

TEST(Groups, AnotherRequestOfTheConnectionIsAnotherExchange) {
  auto requests = exchange(0, "5000", "6000");
  requests[1].ordinal = 2;
  EXPECT_EQ(group_exchanges(requests).size(), 2u);
}

TEST(Groups, AReusedPortLongAfterIsAnotherConnection) {
  std::vector<ShownRequest> requests = {hop("client", "a:1", "b:2", 0, 10, kClient),
                                        hop("server", "b:2", "a:1", 3'600'000, 10, kServer)};
  EXPECT_EQ(group_exchanges(requests).size(), 2u);
}

TEST(Groups, BehindAddressTranslationTheClientsAddressDecides) {
  std::vector<ShownRequest> requests = {hop("client", "a:1", "service:80", 0, 10, kClient),
                                        hop("server", "pod:8000", "a:1", 1, 8, kServer)};
  EXPECT_EQ(shape(group_exchanges(requests)), "client:1\n server:3(connection)\n--\n");
}

TEST(Groups, ARetryHangsBesideTheFirstTry) {
  auto requests = exchange(0, "5000", "6000");
  requests[2].duration_ns = 20 * kMs;
  requests[0].duration_ns = 19 * kMs;
  requests.push_back(hop("client", "10.0.0.2:6001", "10.0.0.4:9000", 30, 60, kGateway));
  EXPECT_EQ(shape(group_exchanges(requests)),
            "client:1\n server:2(connection)\n  client:2(time)\n   server:3(connection)\n  client:2(time)\n--\n");
}

TEST(Groups, AnAgentThatAsksItselfMakesNoCircle) {
  // One process serves and asks, always with the same trace id.
  std::vector<ShownRequest> requests;
  for (int i = 0; i < 4; ++i) {
    const std::string port = std::to_string(100 + i);
    requests.push_back(hop("client", "a:" + port, "a:80", i, 100, 1));
    requests.push_back(hop("server", "a:80", "a:" + port, i, 100, 1));
  }
  for (ShownRequest& request : requests) request.trace_id = "4bf92f3577b34da6a3ce929d0e0e4736";
  std::size_t hops = 0;
  for (const Exchange& each : group_exchanges(requests)) hops += each.hops.size();
  EXPECT_EQ(hops, requests.size());
}

TEST(Groups, ALongFileIsGroupedInTime) {
  std::vector<ShownRequest> requests;
  for (int i = 0; i < 2000; ++i) {
    const auto more = exchange(i * 7, std::to_string(i), std::to_string(i));
    requests.insert(requests.end(), more.begin(), more.end());
  }
  EXPECT_EQ(group_exchanges(requests).size(), 2000u);
}

TEST(Groups, NothingGivesNothing) { EXPECT_TRUE(group_exchanges({}).empty()); }

}  // namespace
}  // namespace inferwire::cli
