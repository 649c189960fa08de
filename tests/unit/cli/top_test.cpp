// SPDX-License-Identifier: Apache-2.0
#include "agent/cli/top.h"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>

#include "agent/base/handle.h"
#include "agent/metrics/registry.h"
#include "agent/model/tcp.h"
#include "agent/model/tracker.h"
#include "tests/unit/model/record_builder.h"
#include "tests/unit/model/tcp_builder.h"

namespace inferwire::cli {
namespace {

using test::at_ms;
using test::RecordBuilder;

Style utf8() { return {.color = false, .utf8 = true, .width = 160}; }

std::string top_of_a_busy_agent() {
  metrics::Registry registry;
  model::RequestTracker tracker(registry, {});
  const model::Identity who{.name_space = "prod", .workload = "llama", .comm = "llama-server", .pid = 3};
  const auto stream = [](std::uint64_t cookie) {
    return RecordBuilder::server()
        .cookie(cookie)
        .accepted(-1)
        .read(1)
        .response(2)
        .first_content(100, 100, 101)
        .model("tiny");
  };
  tracker.on_record(stream(1).chunks(11).last_content(200).build(), false, at_ms(201), who);
  tracker.on_record(stream(2).chunks(11).sent_gaps(9, 10).last_content(200).end_marker(201).ends(202, 203).build(),
                    true, at_ms(204), who);
  return tracker.top_json(at_ms(1200));
}

TEST(Top, ShowsWhatIsOpenAndTheWorst) {
  const auto screen = render_top(top_of_a_busy_agent(), utf8());
  ASSERT_TRUE(screen) << screen.error().to_string();
  EXPECT_NE(screen->find("open requests: 1, of these streams: 1"), std::string::npos);
  EXPECT_NE(screen->find("1.2  server  prod/llama  /v1/chat/completions  tiny   stream"), std::string::npos) << *screen;
  EXPECT_NE(screen->find("100.0       -           -     1000.0"), std::string::npos)
      << *screen;  // chunks/s; silent for a second
  EXPECT_NE(screen->find("finished in the last minute: 1"), std::string::npos);
  EXPECT_NE(screen->find("longest gap"), std::string::npos);
}

TEST(Top, ShowsListenersWithTheirQueuesAndConnectionsByState) {
  metrics::Registry registry;
  model::RequestTracker tracker(registry, {});
  model::TcpModel tcp(registry, {});
  const model::Identity who{.name_space = "prod", .workload = "llama", .comm = "llama-server", .pid = 3};
  iw_listener full = test::listener();
  full.accept_queue_length = 2;
  full.syn_queue_length = 5;
  full.drops[IW_DROP_ACCEPT_QUEUE_FULL] = 49;
  tcp.on_listener(full, who, {});
  iw_socket_state socket{};
  for (const std::uint8_t state : {1, 1, 8}) {
    socket.state = state;
    tcp.on_socket(socket, who);
  }
  tcp.end_walk(at_ms(1), {});
  const auto screen = render_top(tracker.top_json(at_ms(1), &tcp), utf8());
  ASSERT_TRUE(screen) << screen.error().to_string();
  EXPECT_NE(screen->find("127.0.0.1:8000  prod/llama        2      1          5       49        0  accept_queue_full"),
            std::string::npos)
      << *screen;
  EXPECT_NE(screen->find("prod/llama            3  1 close_wait, 2 established"), std::string::npos) << *screen;
}

TEST(Top, AnIdleAgentHasNothingToShow) {
  metrics::Registry registry;
  model::RequestTracker tracker(registry, {});
  const auto screen = render_top(tracker.top_json(at_ms(0)), utf8());
  ASSERT_TRUE(screen);
  EXPECT_NE(screen->find("open requests: 0"), std::string::npos);
  EXPECT_NE(screen->find("none"), std::string::npos);
}

TEST(Top, AnAnswerThatIsNoneIsAnError) {
  for (const char* answer :
       {"", "[]", "{}", "{\"type\":\"top\"}", "{\"type\":\"top\",\"open\":{}}", "null", "{\"open\":[]}"}) {
    EXPECT_FALSE(render_top(answer, utf8())) << answer;
  }
  EXPECT_TRUE(
      render_top(R"({"type":"top","open":[1,null,{"age_ns":"x"}],"last_minute":{"worst_ttft":[1,{}]}})", utf8()));
}

// A listening socket in a folder of its own.
class AgentSocket {
 public:
  AgentSocket() {
    char folder[] = "/tmp/inferwire-top-XXXXXX";
    folder_ = mkdtemp(folder);
    path_ = folder_ + "/agent.sock";
    listener_.reset(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::memcpy(address.sun_path, path_.c_str(), path_.size() + 1);
    EXPECT_EQ(bind(listener_.get(), reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
    EXPECT_EQ(listen(listener_.get(), 1), 0);
  }
  ~AgentSocket() {
    unlink(path_.c_str());
    rmdir(folder_.c_str());
  }
  const std::string& path() const { return path_; }
  // Takes one connection, reads its line, answers in pieces.
  std::string answer_one(const std::string& answer) {
    const base::UniqueFd client(accept(listener_.get(), nullptr, nullptr));
    char line[64] = "";
    const ssize_t got = recv(client.get(), line, sizeof line - 1, 0);
    for (std::size_t at = 0; at < answer.size(); at += 1000) {
      const std::string_view piece = std::string_view(answer).substr(at, 1000);
      if (send(client.get(), piece.data(), piece.size(), MSG_NOSIGNAL) < 0) break;
    }
    return {line, got > 0 ? static_cast<std::size_t>(got) : 0};
  }

 private:
  std::string folder_, path_;
  base::UniqueFd listener_;
};

TEST(AskAgent, SendsALineAndGetsTheWholeAnswer) {
  AgentSocket agent;
  const std::string long_answer(300'000, 'x');
  std::string asked;
  std::thread server([&] { asked = agent.answer_one(long_answer + "\n"); });
  const auto answer = ask_agent(agent.path(), "top");
  server.join();
  ASSERT_TRUE(answer) << answer.error().to_string();
  EXPECT_EQ(*answer, long_answer);
  EXPECT_EQ(asked, "top\n");
}

TEST(AskAgent, AnAgentThatHangsUpIsAnError) {
  AgentSocket agent;
  std::thread server([&] { agent.answer_one(""); });
  const auto answer = ask_agent(agent.path(), "top");
  server.join();
  ASSERT_FALSE(answer);
}

TEST(AskAgent, WithoutAnAgentItSaysWhatToDo) {
  const auto answer = ask_agent("/nonexistent/agent.sock", "top");
  ASSERT_FALSE(answer);
  EXPECT_NE(
      answer.error().to_string().find("/nonexistent/agent.sock: No such file or directory; start `inferwire agent`"),
      std::string::npos)
      << answer.error().to_string();
  EXPECT_FALSE(ask_agent("/" + std::string(200, 'x'), "top"));
}

}  // namespace
}  // namespace inferwire::cli
