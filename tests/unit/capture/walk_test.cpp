// SPDX-License-Identifier: Apache-2.0
#include "agent/capture/walk.h"

#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <vector>

namespace inferwire::capture {
namespace {

// What an iterator's file yields.
class Bytes {
 public:
  template <class Record>
  Bytes& add(Record record, std::uint32_t kind) {
    record.header = {kind, sizeof record, 0};
    const auto bytes = std::as_bytes(std::span(&record, 1));
    bytes_.insert(bytes_.end(), bytes.begin(), bytes.end());
    return *this;
  }
  Bytes& connection(std::uint64_t cookie, std::uint32_t kind = IW_REC_IDLE) {
    iw_record record{};
    record.conn.cookie = cookie;
    return add(record, kind);
  }
  Bytes& listener(std::uint64_t cookie, std::uint32_t pid = 0) {
    iw_listener listener{};
    listener.cookie = cookie;
    listener.pid = pid;
    return add(listener, IW_REC_LISTENER);
  }
  Bytes& socket(std::uint64_t cookie) {
    iw_socket_state socket{};
    socket.cookie = cookie;
    return add(socket, IW_REC_SOCKET);
  }
  std::span<const std::byte> all() const { return bytes_; }

 private:
  std::vector<std::byte> bytes_;
};

struct Seen {
  iw_header header;
  std::vector<std::byte> bytes;
};

class WalkTest : public testing::Test {
 protected:
  std::string kinds() const {
    std::string text;
    for (const Seen& record : seen) text += std::to_string(record.header.kind);
    return text;
  }

  std::vector<Seen> seen;
  RecordSink sink = [this](const iw_header& header, std::span<const std::byte> bytes) {
    seen.push_back({header, {bytes.begin(), bytes.end()}});
  };
  WalkReader walk{77, sink};
};

TEST_F(WalkTest, KindsAreMixedAndToldApartByTheirHeaders) {
  const Bytes bytes = Bytes().connection(1).socket(1).listener(2).connection(3, IW_REC_PARTIAL).socket(3);
  ASSERT_TRUE(walk.feed(bytes.all()));
  EXPECT_TRUE(walk.whole());
  EXPECT_EQ(kinds(), "07627");
  EXPECT_EQ(walk.connections(), 2u);
  EXPECT_EQ(walk.listeners(), 1u);
  for (const Seen& record : seen) {
    EXPECT_EQ(record.header.time_ns, 77u);
    EXPECT_EQ(record.bytes.size(), record_size(record.header.kind));
    EXPECT_EQ(std::memcmp(record.bytes.data(), &record.header, sizeof record.header), 0);
  }
}

TEST_F(WalkTest, RecordsMayBeCutAnywhere) {
  const Bytes bytes = Bytes().connection(1).socket(1).listener(2).socket(3);
  for (std::size_t piece = 1; piece < 5000; piece += 37) {
    seen.clear();
    WalkReader reader(1, sink);
    for (std::size_t at = 0; at < bytes.all().size(); at += piece) {
      ASSERT_TRUE(reader.feed(bytes.all().subspan(at, std::min(piece, bytes.all().size() - at))));
    }
    ASSERT_TRUE(reader.whole());
    ASSERT_EQ(kinds(), "0767") << piece;
  }
}

TEST_F(WalkTest, ASocketOfSeveralProcessesComesOnceAndTheFirstNamesIt) {
  ASSERT_TRUE(walk.feed(Bytes().listener(5, 100).listener(5, 101).socket(6).socket(6).all()));
  EXPECT_EQ(kinds(), "67");
  iw_listener listener;
  std::memcpy(&listener, seen[0].bytes.data(), sizeof listener);
  EXPECT_EQ(listener.pid, 100u);
}

TEST_F(WalkTest, ARequestThatBeginsBetweenTwoLooksDoesNotMakeTwoConnections) {
  ASSERT_TRUE(walk.feed(Bytes().connection(1, IW_REC_IDLE).connection(1, IW_REC_PARTIAL).all()));
  EXPECT_EQ(kinds(), "0");
}

TEST_F(WalkTest, WhatIsCutOffAtTheEndIsNotWhole) {
  const Bytes bytes = Bytes().socket(1).socket(2);
  ASSERT_TRUE(walk.feed(bytes.all().first(bytes.all().size() - 1)));
  EXPECT_EQ(kinds(), "7");
  EXPECT_FALSE(walk.whole());
}

TEST_F(WalkTest, WhatIsNoRecordEndsIt) {
  Bytes unknown;
  unknown.add(iw_socket_state{}, 99);
  EXPECT_FALSE(walk.feed(unknown.all()));
  Bytes wrong_size;
  wrong_size.add(iw_socket_state{}, IW_REC_LISTENER);
  EXPECT_FALSE(WalkReader(1, sink).feed(wrong_size.all()));
  Bytes not_of_the_walk;
  not_of_the_walk.add(iw_reset{}, IW_REC_RESET);
  EXPECT_FALSE(WalkReader(1, sink).feed(not_of_the_walk.all()));
  const std::vector<std::byte> zeros(4096);
  EXPECT_TRUE(seen.empty());
}

}  // namespace
}  // namespace inferwire::capture
