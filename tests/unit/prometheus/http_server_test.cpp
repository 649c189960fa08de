// SPDX-License-Identifier: Apache-2.0
#include "exporters/prometheus/http_server.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <deque>
#include <vector>

#include "tests/unit/prometheus/http_client.h"

namespace inferwire::prometheus {
namespace {

using namespace std::chrono_literals;

const auto kBigBody = std::make_shared<const std::string>(8 * 1024 * 1024, 'x');

std::unique_ptr<HttpServer> start(HttpServerOptions options = {}) {
  if (options.address == "127.0.0.1:9810") options.address = "127.0.0.1:0";
  auto server = HttpServer::start(options, {
                                               {"/healthz", [] { return text_response(200, "ok\n"); }},
                                               {"/readyz", [] { return text_response(503, "starting\n"); }},
                                               {"/big",
                                                [] {
                                                  return HttpResponse{200, kBigBody, "text/plain"};
                                                }},
                                           });
  EXPECT_TRUE(server.has_value()) << server.error().to_string();
  return server ? std::move(*server) : nullptr;
}

std::string error_of(const std::string& address) {
  const auto server = HttpServer::start({.address = address}, {});
  return server ? "no error" : server.error().to_string();
}

TEST(HttpServer, AHandlerGivesStatusBodyAndType) {
  const auto server = start();
  const std::string ok = HttpClient::ask(server->address(), "GET", "/healthz");
  EXPECT_TRUE(ok.starts_with("HTTP/1.1 200 OK\r\n")) << ok;
  EXPECT_NE(ok.find("Content-Type: text/plain; charset=utf-8\r\n"), std::string::npos) << ok;
  EXPECT_TRUE(ok.ends_with("\r\n\r\nok\n")) << ok;
  const std::string not_yet = HttpClient::ask(server->address(), "GET", "/readyz?verbose=1");
  EXPECT_TRUE(not_yet.starts_with("HTTP/1.1 503 ")) << not_yet;
  EXPECT_TRUE(not_yet.ends_with("\r\n\r\nstarting\n")) << not_yet;
}

TEST(HttpServer, HeadIsGetWithoutTheBody) {
  const auto server = start();
  const std::string head = HttpClient::ask(server->address(), "HEAD", "/healthz");
  EXPECT_TRUE(head.starts_with("HTTP/1.1 200 OK\r\n")) << head;
  EXPECT_NE(head.find("Content-Length: 3\r\n"), std::string::npos) << head;
  EXPECT_TRUE(head.ends_with("\r\n\r\n")) << head;
}

TEST(HttpServer, OtherPathsAndMethodsAreRefused) {
  const auto server = start();
  EXPECT_TRUE(HttpClient::ask(server->address(), "GET", "/").starts_with("HTTP/1.1 404 "));
  EXPECT_TRUE(HttpClient::ask(server->address(), "GET", "/healthz/../../etc/passwd").starts_with("HTTP/1.1 404 "));
  for (const auto method : {"POST", "PUT", "DELETE", "OPTIONS", "BREW"}) {
    const std::string refused = HttpClient::ask(server->address(), method, "/healthz", "some body");
    EXPECT_TRUE(refused.starts_with("HTTP/1.1 405 ")) << method << " " << refused;
    EXPECT_NE(refused.find("Allow: GET, HEAD\r\n"), std::string::npos) << refused;
  }
}

TEST(HttpServer, AnEndlessHeadIsRefused) {
  const auto server = start();
  HttpClient client(server->address());
  client.send("GET /healthz HTTP/1.1\r\nX: " + std::string(100'000, 'a'));
  EXPECT_TRUE(client.closed_within(20s) || client.read_to_end().starts_with("HTTP/1.1 4"));
}

TEST(HttpServer, AConnectionServesManyRequests) {
  const auto server = start();
  HttpClient client(server->address());
  std::string requests;
  for (int i = 0; i < 3; ++i) requests += "GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n";
  requests += "GET /healthz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";
  client.send(requests);
  const std::string answers = client.read_to_end();
  std::size_t count = 0;
  for (auto at = answers.find("200 OK"); at != std::string::npos; at = answers.find("200 OK", at + 1)) ++count;
  EXPECT_EQ(count, 4u) << answers;
}

TEST(HttpServer, ALargeBodyComesWhole) {
  const auto server = start();
  const std::string answer = HttpClient::ask(server->address(), "GET", "/big");
  EXPECT_EQ(answer.size() - answer.find("\r\n\r\n") - 4, kBigBody->size());
}

TEST(HttpServer, IPv6IsServedAndSoIsIPv4OnTheUnspecifiedAddress) {
  const auto loopback = HttpServer::start({.address = "[::1]:0"}, {{"/x", [] { return text_response(200, "six\n"); }}});
  if (!loopback) GTEST_SKIP() << "no IPv6 on this machine: " << loopback.error().to_string();
  EXPECT_TRUE((*loopback)->address().starts_with("[::1]:"));
  EXPECT_TRUE(HttpClient::ask((*loopback)->address(), "GET", "/x").ends_with("six\n"));

  const auto any = start({.address = "[::]:0"});
  const std::string port = any->address().substr(any->address().rfind(':'));
  EXPECT_TRUE(HttpClient::ask("127.0.0.1" + port, "GET", "/healthz").ends_with("ok\n"));
}

TEST(HttpServer, ABusyPortIsNamedWithAWayOut) {
  const auto server = start();
  EXPECT_EQ(error_of(server->address()),
            "cannot listen on " + server->address() +
                ": Address already in use; stop the process that listens there (ss -ltnp shows it), or choose another "
                "with --listen");
}

TEST(HttpServer, AnAddressOfAnotherMachineIsNamedWithAWayOut) {
  EXPECT_EQ(error_of("192.0.2.1:0"),
            "cannot listen on 192.0.2.1:0: Cannot assign requested address; use an address of this machine (ip addr), "
            "or 0.0.0.0 for all of them");
}

TEST(HttpServer, WhatIsNoAddressIsExplained) {
  for (const auto address : {"9810", ":9810", "localhost:9810", "127.0.0.1", "127.0.0.1:", "127.0.0.1:65536",
                             "127.0.0.1:-1", "127.0.0.1:http", "::1:9810", "[::1]", "127.0.0.1:98 10"}) {
    EXPECT_EQ(error_of(address), "cannot listen on " + std::string(address) +
                                     ": it is not a numeric address and port; write it as 127.0.0.1:9810, "
                                     "0.0.0.0:9810 or [::1]:9810");
  }
}

TEST(HttpServer, ThePortIsFreeAgainAfterwards) {
  std::string address;
  {
    const auto server = start();
    address = server->address();
    HttpClient::ask(address, "GET", "/healthz");
  }
  EXPECT_NE(start({.address = address}), nullptr);
}

TEST(HttpServer, FortyStalledClientsDoNotHoldAScrape) {
  // The stalled ones would be closed after ten minutes only, so an answer that waits for one of them never comes.
  const auto server = start({.idle_timeout = 600s, .request_deadline = 600s});
  std::deque<HttpClient> stalled;
  for (int i = 0; i < 40; ++i) {
    HttpClient& client = stalled.emplace_back(server->address(), 4096);
    ASSERT_TRUE(client.connected());
    if (i % 4 == 1) client.send("GET /healthz HT");
    if (i % 4 == 2) client.send("GET /big HTTP/1.1\r\nHost: x\r\n\r\n");  // and never reads
    if (i % 4 == 3) client.send("POST /healthz HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\nabc");
  }
  for (int scrape = 0; scrape < 20; ++scrape) {
    EXPECT_TRUE(HttpClient::ask(server->address(), "GET", "/healthz").ends_with("ok\n"));
  }
  EXPECT_FALSE(stalled.front().closed_within(0ms)) << "they were open all the time";
}

TEST(HttpServer, AClientWithTooManyConnectionsLosesItsOldest) {
  const auto server = start({.connections_per_client_max = 4, .idle_timeout = 600s, .request_deadline = 600s});
  std::deque<HttpClient> silent;
  for (int i = 0; i < 4; ++i) silent.emplace_back(server->address());
  EXPECT_TRUE(HttpClient::ask(server->address(), "GET", "/healthz").ends_with("ok\n"));
  EXPECT_TRUE(silent.front().closed_within(20s));
  EXPECT_FALSE(silent.back().closed_within(0ms));
}

TEST(HttpServer, AConnectionThatIsUsedIsNotTheOldest) {
  const auto server = start({.connections_per_client_max = 3, .idle_timeout = 600s, .request_deadline = 600s});
  HttpClient used(server->address());
  HttpClient silent(server->address());
  used.send("GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n");
  EXPECT_TRUE(used.read_until("ok\n"));
  HttpClient third(server->address());
  EXPECT_TRUE(HttpClient::ask(server->address(), "GET", "/healthz").ends_with("ok\n"));
  EXPECT_TRUE(silent.closed_within(20s));
  EXPECT_FALSE(used.closed_within(0ms));
}

TEST(HttpServer, AFloodOfSilentClientsDoesNotLockAScraperOut) {
  const auto server = start({.connections_max = 8, .idle_timeout = 600s, .request_deadline = 600s});
  std::deque<HttpClient> silent;
  for (int i = 0; i < 300; ++i) {
    silent.emplace_back(server->address());
    if (i % 50 == 49) {
      EXPECT_TRUE(HttpClient::ask(server->address(), "GET", "/healthz").ends_with("ok\n")) << i;
    }
  }
  std::size_t open = 0;
  EXPECT_TRUE(silent[200].closed_within(20s));
  for (HttpClient& client : silent) open += client.closed_within(0ms) ? 0 : 1;
  EXPECT_LE(open, 8u);
}

TEST(HttpServer, ASilentConnectionIsClosed) {
  const auto server = start({.idle_timeout = 1s});
  HttpClient silent(server->address());
  EXPECT_TRUE(silent.closed_within(20s));
}

TEST(HttpServer, AClientThatDripsItsRequestIsClosedWhenAnotherComes) {
  const auto server = start({.idle_timeout = 600s, .request_deadline = 1s});
  HttpClient dripping(server->address());
  const auto start_time = std::chrono::steady_clock::now();
  dripping.send("GET /healthz HTTP/1.1\r\nX: ");
  while (std::chrono::steady_clock::now() - start_time < 1200ms) {
    dripping.send("a");
    ::usleep(50'000);
  }
  EXPECT_FALSE(dripping.closed_within(0ms));
  EXPECT_TRUE(HttpClient::ask(server->address(), "GET", "/healthz").ends_with("ok\n"));
  EXPECT_TRUE(dripping.closed_within(20s));
}

TEST(HttpServer, StoppingDoesNotWaitForStalledClients) {
  auto server = start({.idle_timeout = 600s, .request_deadline = 600s});
  HttpClient silent(server->address());
  HttpClient half(server->address());
  half.send("GET /hea");
  server.reset();
  EXPECT_TRUE(silent.closed_within(20s));
  EXPECT_TRUE(half.closed_within(20s));
}

}  // namespace
}  // namespace inferwire::prometheus
