// SPDX-License-Identifier: Apache-2.0
// The master property: how the bytes of a conversation are cut into packets changes nothing that is counted or named.
#include <gtest/gtest.h>

#include "tests/unit/stream/conversations.h"

namespace inferwire::stream_test {
namespace {

struct Case {
  Conversation conversation;
  Role role;
};

void PrintTo(const Case& c, std::ostream* out) { *out << c.conversation.name; }

std::vector<Case> cases() {
  std::vector<Case> all;
  for (const auto& conversation : all_conversations())
    for (const Role role : {Role::kServer, Role::kClient}) all.push_back({conversation, role});
  return all;
}

std::size_t longest_turn(const Conversation& conversation) {
  std::size_t longest = 0;
  for (const auto& turn : conversation.turns) longest = std::max(longest, turn.bytes.size());
  return longest;
}

class HoweverTheBytesAreCut : public testing::TestWithParam<Case> {
 protected:
  /// The same conversation in these pieces; true if all is the same.
  bool same(const Pieces& pieces, const std::string& how) {
    const std::string got = summary(play(GetParam().conversation, GetParam().role, pieces));
    EXPECT_EQ(got, expected_) << how;
    return got == expected_;
  }

  std::string expected_ = summary(play(GetParam().conversation, GetParam().role));
};

TEST_P(HoweverTheBytesAreCut, ByteByByteGivesTheSame) { same(pieces_of(1), "byte by byte"); }

TEST_P(HoweverTheBytesAreCut, SmallPiecesGiveTheSame) {
  for (const std::size_t n : {2u, 3u, 5u, 7u, 11u, 63u, 64u, 65u, 71u, 72u, 73u, 95u, 96u, 97u, 127u})
    if (!same(pieces_of(n), "pieces of " + std::to_string(n))) break;
}

TEST_P(HoweverTheBytesAreCut, PacketSizesAroundTheWindowGiveTheSame) {
  for (const std::size_t n : {536u, 1220u, 1448u, 1460u, 1535u, 1536u, 1537u, 1600u, 3071u, 3073u, 9000u})
    if (!same(pieces_of(n), "pieces of " + std::to_string(n))) break;
}

TEST_P(HoweverTheBytesAreCut, RandomPiecesGiveTheSame) {
  const int runs = longest_turn(GetParam().conversation) > 50'000 ? 5 : 150;
  for (int seed = 1; seed <= runs; seed++)
    if (!same(random_pieces(static_cast<std::uint32_t>(seed), seed % 3 == 0   ? 2'000
                                                              : seed % 3 == 1 ? 200
                                                                              : 20),
              "seed " + std::to_string(seed)))
      break;
}

TEST_P(HoweverTheBytesAreCut, AWindowEdgeAtAnyByteGivesTheSame) {
  // The first packet of a turn shifts the 1536-byte windows of the next one, and is itself a cut at every byte.
  const std::size_t longest = longest_turn(GetParam().conversation);
  const std::size_t last = std::min<std::size_t>(longest, longest > 50'000 ? 400 : 1'536);
  for (std::size_t first = 1; first < last; first++) {
    // Every turn gets its own first piece.
    const Pieces pieces = [first, left_before = std::size_t{0}](std::size_t left) mutable {
      const bool new_turn = left_before == 0;
      const std::size_t n = new_turn ? std::min(first, left) : left;
      left_before = left - n;
      return n;
    };
    if (!same(pieces, "first piece " + std::to_string(first))) break;
  }
}

INSTANTIATE_TEST_SUITE_P(Conversations, HoweverTheBytesAreCut, testing::ValuesIn(cases()), [](const auto& param) {
  return param.param.conversation.name + (param.param.role == Role::kServer ? "_server" : "_client");
});

}  // namespace
}  // namespace inferwire::stream_test
