// SPDX-License-Identifier: Apache-2.0
// The packet programs as this kernel has loaded them, given packets: all pass, none is changed.
//
// BPF_PROG_TEST_RUN runs a program on one packet and shows verdict, bytes and context, but has no TCP socket: the
// programs see only the packet's surroundings. Connections of this process take them through all they do; there a
// packet that does not pass is one that one side has sent and the other has not got.
#include <arpa/inet.h>
#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <linux/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <fstream>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "agent/base/handle.h"
#include "agent/capture/environment.h"
#include "agent/capture/kernel_source.h"
#include "agent/capture/packet_programs.h"
#include "agent/capture/packet_skeleton.h"

namespace inferwire::testing {
namespace {

using namespace std::string_view_literals;
using Random = std::mt19937;

std::size_t below(Random& random, std::size_t limit) {
  return std::uniform_int_distribution<std::size_t>(0, limit - 1)(random);
}

std::string random_bytes(Random& random, std::size_t count) {
  std::string bytes(count, '\0');
  for (char& byte : bytes) byte = static_cast<char>(below(random, 256));
  return bytes;
}

// A cgroup of its own for this process, so that the programs meet its packets and nobody else's.
class OwnCgroup {
 public:
  explicit OwnCgroup(const std::string& root) : path_(root + "/inferwire-packets-test-" + std::to_string(getpid())) {
    std::ifstream file("/proc/self/cgroup");
    for (std::string line; std::getline(file, line);) {
      if (line.starts_with("0::")) home_ = root + line.substr(3);
    }
    if (mkdir(path_.c_str(), 0755) != 0) return;
    fd_ = base::UniqueFd(open(path_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    entered_ = enter(path_);
  }
  ~OwnCgroup() {
    if (entered_) enter(home_);
    fd_.reset();
    rmdir(path_.c_str());
  }
  OwnCgroup(const OwnCgroup&) = delete;
  OwnCgroup& operator=(const OwnCgroup&) = delete;

  bool entered() const { return entered_; }
  int fd() const { return fd_.get(); }

 private:
  static bool enter(const std::string& path) {
    std::ofstream procs(path + "/cgroup.procs");
    procs << getpid() << std::flush;
    return procs.good();
  }

  std::string path_, home_;
  base::UniqueFd fd_;
  bool entered_ = false;
};

class Packets : public ::testing::Test {
 protected:
  void SetUp() override {
    if (geteuid() != 0) GTEST_SKIP() << "needs root: loads kernel programs";
    const auto root = capture::open_cgroup_root("", "/");
    if (!root) GTEST_SKIP() << root.error().to_string();
    cgroup_ = std::make_unique<OwnCgroup>(root->path);
    ASSERT_TRUE(cgroup_->entered()) << "cannot make a cgroup below " << root->path;
    auto programs = capture::PacketPrograms::load(
        cgroup_->fd(),
        {.ringbuf_bytes = 16u << 20, .gap_edges_ns = {1'000'000, 100'000'000}, .trace_deliveries = true});
    ASSERT_TRUE(programs.has_value()) << programs.error().to_string();
    skeleton_ = programs->skeleton();
    auto source = capture::KernelSource::open(*std::move(programs));
    ASSERT_TRUE(source.has_value()) << source.error().to_string();
    source_ = *std::move(source);
  }
  void TearDown() override {
    source_.reset();  // before the cgroup that the programs are attached to
    cgroup_.reset();
  }

  std::uint64_t stat(std::size_t which) {
    const auto stats = source_->read_stats();
    return stats ? (*stats)[which] : 0;
  }

  std::unique_ptr<OwnCgroup> cgroup_;
  std::unique_ptr<capture::KernelSource> source_;
  packet_bpf* skeleton_ = nullptr;
};

// ---- One packet ----

constexpr std::size_t kEthernetBytes = 14;

std::string ethernet(std::uint16_t type) {
  std::string header(kEthernetBytes, '\2');
  header[12] = static_cast<char>(type >> 8);
  header[13] = static_cast<char>(type);
  return header;
}

// `words`: 32-bit words that the header says it has; the packet has five.
std::string ipv4(std::uint8_t protocol, std::string_view payload, std::uint8_t words = 5) {
  const std::size_t bytes = 20 + payload.size();
  std::string header("\x45\0\0\0\0\1\0\0\x40\6\0\0\x7f\0\0\1\x7f\0\0\1"sv);
  header[0] = static_cast<char>(0x40 | words);
  header[2] = static_cast<char>(bytes >> 8);
  header[3] = static_cast<char>(bytes);
  header[9] = static_cast<char>(protocol);
  return ethernet(0x0800) + header + std::string(payload);
}

std::string ipv6(std::uint8_t protocol, std::string_view payload) {
  std::string header("\x60\0\0\0\0\0\0\x40"sv);
  header[4] = static_cast<char>(payload.size() >> 8);
  header[5] = static_cast<char>(payload.size());
  header[6] = static_cast<char>(protocol);
  for (int side = 0; side < 2; ++side) header += std::string(15, '\0') + '\1';
  return ethernet(0x86dd) + header + std::string(payload);
}

std::string tcp(std::string_view payload, std::uint8_t words = 5, std::uint8_t flags = 0x18) {
  std::string header("\x1f\x90\x30\x39\0\0\0\1\0\0\0\1\x50\x18\xff\xff\0\0\0\0"sv);
  header[12] = static_cast<char>(words << 4);
  header[13] = static_cast<char>(flags);
  return header + std::string(payload);
}

constexpr std::string_view kRequest =
    "POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}";
constexpr std::string_view kEvent = R"(data: {"model":"m","choices":[{"index":0,"delta":{"content":"word"}}]})"
                                    "\n\n";

std::string chunk(std::string_view bytes) {
  char size[16];
  std::snprintf(size, sizeof size, "%zx\r\n", bytes.size());
  return size + std::string(bytes) + "\r\n";
}

std::string stream_response(int events) {
  std::string response = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n";
  for (int i = 0; i < events; ++i) response += chunk(kEvent);
  return response + chunk("data: [DONE]\n\n") + "0\r\n\r\n";
}

std::string json_response() {
  const std::string body = R"({"model":"m","usage":{"prompt_tokens":3,"completion_tokens":4}})";
  return "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: " + std::to_string(body.size()) +
         "\r\n\r\n" + body;
}

std::vector<std::string> packets() {
  std::vector<std::string> all;
  for (const std::string& segment :
       {tcp(kRequest), tcp(stream_response(3)), tcp(""), tcp("", 5, 0x02), tcp("", 5, 0x11), tcp("", 5, 0x04),
        tcp(kRequest, 0), tcp(kRequest, 15), tcp("x", 15)}) {
    for (const std::uint8_t protocol : {6, 17, 1, 0}) {
      all.push_back(ipv4(protocol, segment));
      all.push_back(ipv6(protocol, segment));
    }
    for (const std::uint8_t words : {0, 1, 4, 6, 15}) all.push_back(ipv4(6, segment, words));
    for (std::size_t bytes = kEthernetBytes + 1; bytes < 80; bytes += 3) {
      all.push_back(ipv4(6, segment).substr(0, bytes));
      all.push_back(ipv6(6, segment).substr(0, bytes));
    }
  }
  Random random(1);
  for (std::size_t i = 0; i < 400; ++i) {
    std::string packet = random_bytes(random, 15 + below(random, 1800));
    if (i % 4 != 0) packet.replace(0, kEthernetBytes, ethernet(i % 4 == 1 ? 0x0800 : i % 4 == 2 ? 0x86dd : 0x0806));
    all.push_back(std::move(packet));
  }
  return all;
}

TEST_F(Packets, PassUnchangedWhateverTheyAre) {
  for (bpf_program* program : {skeleton_->progs.cgroup_skb__ingress, skeleton_->progs.cgroup_skb__egress}) {
    SCOPED_TRACE(bpf_program__name(program));
    std::size_t ran = 0;
    for (const std::string& packet : packets()) {
      SCOPED_TRACE("a packet of " + std::to_string(packet.size()) + " bytes");
      __sk_buff before{}, after{};
      before.mark = 0x1234;
      before.priority = 5;
      before.tstamp = 77;
      for (std::uint32_t i = 0; i < 5; ++i) before.cb[i] = 0xabcd0000 + i;
      std::string out(packet.size() + 64, '\0');
      LIBBPF_OPTS(bpf_test_run_opts, run, .data_in = packet.data(), .data_out = out.data(),
                  .data_size_in = static_cast<std::uint32_t>(packet.size()),
                  .data_size_out = static_cast<std::uint32_t>(out.size()), .ctx_in = &before, .ctx_out = &after,
                  .ctx_size_in = sizeof before, .ctx_size_out = sizeof after);
      const int error = bpf_prog_test_run_opts(bpf_program__fd(program), &run);
      if (error == -EINVAL && packet.size() < kEthernetBytes + 40) continue;  // newer kernels want whole headers
      ASSERT_EQ(error, 0) << std::strerror(-error);
      ++ran;
      ASSERT_EQ(run.retval, 1u);
      ASSERT_EQ(run.data_size_out, packet.size());
      // The link header was not the program's to see; the kernel puts zeros there.
      ASSERT_TRUE(std::equal(packet.begin() + kEthernetBytes, packet.end(), out.begin() + kEthernetBytes));
      ASSERT_EQ(after.mark, before.mark);
      ASSERT_EQ(after.priority, before.priority);
      ASSERT_EQ(after.tstamp, before.tstamp);
      ASSERT_TRUE(std::equal(std::begin(before.cb), std::end(before.cb), std::begin(after.cb)));
    }
    EXPECT_GT(ran, packets().size() / 2);
  }
}

// ---- Connections ----

struct Say {
  bool client;
  std::string bytes;
};
using Conversation = std::vector<Say>;

class Connection {
 public:
  explicit Connection(int family) {
    sockaddr_storage address{};
    socklen_t length = family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
    address.ss_family = static_cast<sa_family_t>(family);
    auto* any = reinterpret_cast<sockaddr*>(&address);
    if (family == AF_INET) reinterpret_cast<sockaddr_in*>(any)->sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (family == AF_INET6) reinterpret_cast<sockaddr_in6*>(any)->sin6_addr = in6addr_loopback;
    const base::UniqueFd listener(socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0));
    client_ = base::UniqueFd(socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0));
    if (bind(listener.get(), any, length) != 0 || listen(listener.get(), 1) != 0 ||
        getsockname(listener.get(), any, &length) != 0 || connect(client_.get(), any, length) != 0) {
      return;
    }
    server_ = base::UniqueFd(accept4(listener.get(), any, &length, SOCK_CLOEXEC));
    for (const int fd : {client_.get(), server_.get()}) {
      const int on = 1;
      setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
      fcntl(fd, F_SETFL, O_NONBLOCK);
    }
    before_ = segments();
  }

  bool open() const { return static_cast<bool>(server_); }

  // Sends in pieces of at most `piece` bytes; what the other side got meanwhile, as much of it as there is in time.
  std::string say(const Say& words, Random& random, std::size_t piece) {
    const int from = words.client ? client_.get() : server_.get(), to = words.client ? server_.get() : client_.get();
    std::string got;
    std::size_t sent = 0;
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(10);
    while (got.size() < words.bytes.size() && std::chrono::steady_clock::now() < deadline) {
      if (sent < words.bytes.size()) {
        const std::size_t bytes = std::min(words.bytes.size() - sent, 1 + below(random, piece));
        const ssize_t taken = send(from, words.bytes.data() + sent, bytes, MSG_NOSIGNAL);
        if (taken > 0) sent += static_cast<std::size_t>(taken);
      }
      pollfd ready{to, POLLIN, 0};
      poll(&ready, 1, sent < words.bytes.size() ? 0 : 50);
      char block[65536];
      const ssize_t count = recv(to, block, sizeof block, 0);
      if (count > 0) got.append(block, static_cast<std::size_t>(count));
    }
    return got;
  }

  // Segments that have been sent and have not come to the other side's TCP, once nothing is on its way.
  std::uint32_t lost_segments() const {
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(3);
    for (;;) {
      const Segments now = segments();
      const std::uint32_t lost = (now.sent[0] - before_.sent[0]) - (now.came[1] - before_.came[1]) +
                                 (now.sent[1] - before_.sent[1]) - (now.came[0] - before_.came[0]);
      if (lost == 0 || std::chrono::steady_clock::now() > deadline) return lost;
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }

 private:
  struct Segments {
    std::array<std::uint32_t, 2> sent{}, came{};
  };
  Segments segments() const {
    Segments segments;
    const int fds[] = {client_.get(), server_.get()};
    for (std::size_t side = 0; side < 2; ++side) {
      tcp_info info{};
      socklen_t length = sizeof info;
      getsockopt(fds[side], IPPROTO_TCP, TCP_INFO, &info, &length);
      segments.sent[side] = info.tcpi_segs_out;
      segments.came[side] = info.tcpi_segs_in;
    }
    return segments;
  }

  base::UniqueFd client_, server_;
  Segments before_;
};

Conversation mutated(Conversation conversation, Random& random) {
  for (std::size_t i = 1 + below(random, 6); i > 0; --i) {
    std::string& bytes = conversation[below(random, conversation.size())].bytes;
    if (bytes.empty()) continue;
    const std::size_t at = below(random, bytes.size()), count = 1 + below(random, 40);
    switch (below(random, 4)) {
      case 0:
        for (std::size_t j = at; j < std::min(bytes.size(), at + count); ++j)
          bytes[j] = static_cast<char>(below(random, 256));
        break;
      case 1:
        bytes.erase(at, count);
        break;
      case 2:
        bytes.insert(at, bytes.substr(at, count));
        break;
      default:
        bytes.insert(at, random_bytes(random, count));
    }
  }
  return conversation;
}

std::vector<Conversation> conversations() {
  Random random(2);
  const std::string request(kRequest), head = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n";
  const std::string chunked = head + "Transfer-Encoding: chunked\r\n\r\n";
  std::vector<Conversation> all = {
      {{true, request}, {false, stream_response(20)}, {true, request}, {false, json_response()}},
      {{true, request + request + request}, {false, stream_response(2) + json_response() + stream_response(3)}},
      {{true, "GET /health HTTP/1.1\r\nHost: x\r\n\r\n"}, {false, json_response()}},
      {{true, random_bytes(random, 100'000)}, {false, random_bytes(random, 100'000)}},
      {{true, request}, {false, random_bytes(random, 100'000)}},
      {{true, request}, {false, chunked + random_bytes(random, 100'000)}},
      {{true, request}, {false, chunked + "ffffffffffffffffff\r\n" + std::string(5000, 'x')}},
      {{true, request}, {false, chunked + "-1\r\n\r\n0\r\n\r\n"}},
      {{true, request}, {false, head + "Content-Length: 18446744073709551616\r\n\r\n" + std::string(5000, '\n')}},
      {{true, request}, {false, head + "\r\n" + std::string(200'000, '\0')}},
      {{true, request}, {false, head + "\r\n" + std::string(200'000, '\n')}},
      {{true, request}, {false, chunked + chunk("data: " + std::string(200'000, '"') + "\n\n")}},
      {{true, "POST /" + std::string(100'000, 'a') + " HTTP/1.1\r\n\r\n"}, {false, stream_response(1)}},
      {{true, "POST /generate HTTP/1.1\r\n" + std::string(100'000, ':')}, {false, stream_response(1)}},
      {{true, "POST /generate HTTP/1.1\r\nContent-Length: 3000000\r\n\r\n" + std::string(3'000'000, '{')},
       {false, json_response()}},
      {{true, request}, {false, head + "\r\n" + random_bytes(random, 3'000'000)}},
      {{false, stream_response(5)}, {true, request}},
  };
  const std::size_t sound = 3;
  for (std::size_t i = 0; i < 60; ++i) all.push_back(mutated(all[i % sound], random));
  return all;
}

TEST_F(Packets, OfEveryConversationArriveAsTheyWereSentAndOnce) {
  Random random(3);
  std::vector<int> families = {AF_INET};
  if (Connection(AF_INET6).open()) families.push_back(AF_INET6);
  std::size_t number = 0;
  for (const int family : families) {
    for (const Conversation& conversation : conversations()) {
      SCOPED_TRACE("conversation " + std::to_string(number) + ", family " + std::to_string(family));
      Connection connection(family);
      ASSERT_TRUE(connection.open());
      const std::size_t pieces[] = {65536, 1500, 200};
      const std::size_t piece = pieces[number++ % std::size(pieces)];
      for (const Say& words : conversation) {
        // Not EXPECT_EQ: megabytes of noise would be printed.
        ASSERT_TRUE(connection.say(words, random, words.bytes.size() > 100'000 ? 65536 : piece) == words.bytes)
            << "bytes were changed or did not come";
      }
      ASSERT_EQ(connection.lost_segments(), 0u) << "a packet did not pass";
      ASSERT_TRUE(source_->drain([](const iw_header&, std::span<const std::byte>) {}).has_value());
    }
  }
  // The programs did all that they can do with them.
  EXPECT_GT(stat(IW_STAT_FLOWS), number);
  EXPECT_GT(stat(IW_STAT_FOLLOWED), 10 * number);
  EXPECT_GT(stat(IW_STAT_REQUESTS_FINISHED), number);
  EXPECT_GT(stat(IW_STAT_CHUNKS), number);
  EXPECT_GT(stat(IW_STAT_RECORDS_SEEN + IW_REC_DELIVERY), 0u);
  EXPECT_GT(stat(IW_STAT_MALFORMED) + stat(IW_STAT_NOT_HTTP), 0u);
  EXPECT_EQ(source_->malformed_records(), 0u);
}

}  // namespace
}  // namespace inferwire::testing
