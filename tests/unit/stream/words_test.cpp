// SPDX-License-Identifier: Apache-2.0
// The byte tricks that everything else stands on, against the plain way of doing the same.
#include <gtest/gtest.h>

#include <array>
#include <bit>
#include <cstring>
#include <random>

extern "C" {
#include "bpf/lib/base.h"
}

namespace inferwire::stream_test {
namespace {

std::uint64_t word_of(const std::array<std::uint8_t, 8>& bytes) {
  std::uint64_t word;
  std::memcpy(&word, bytes.data(), 8);
  return word;
}

constexpr std::uint64_t repeated(std::uint8_t c) { return 0x0101010101010101ull * c; }

TEST(Gather, PutsTheMarkOfByteIInBitIForAll256Combinations) {
  for (unsigned bits = 0; bits < 256; bits++) {
    std::uint64_t marks = 0;
    for (unsigned i = 0; i < 8; i++)
      if (bits >> i & 1) marks |= 0x80ull << (8 * i);
    EXPECT_EQ(iw_gather(marks), bits);
  }
}

TEST(Lowest, IsTheIndexOfTheLowestSetBitWhateverIsAboveIt) {
  std::mt19937_64 random(1);
  for (unsigned bit = 0; bit < 64; bit++) {
    EXPECT_EQ(iw_lowest(1ull << bit), bit);
    for (int i = 0; i < 1'000; i++) {
      const std::uint64_t x = (random() | 1) << bit;
      ASSERT_EQ(iw_lowest(x), static_cast<unsigned>(std::countr_zero(x))) << std::hex << x;
    }
  }
}

TEST(Match, NeverMissesAByteAndMarksOthersOnlyJustAboveAMatch) {
  std::mt19937_64 random(2);
  const std::uint8_t patterns[] = {'\n', '"', ':', 0, 0xff, 0x80};
  for (const std::uint8_t c : patterns) {
    for (int i = 0; i < 200'000; i++) {
      std::array<std::uint8_t, 8> bytes;
      for (auto& byte : bytes) {
        const auto r = random();
        // Mostly the byte itself, its neighbours by one bit, and anything.
        byte = static_cast<std::uint8_t>(r % 4 == 0   ? c
                                         : r % 4 == 1 ? c ^ 1u
                                         : r % 4 == 2 ? c ^ (1u << (r >> 8) % 8)
                                                      : r >> 16);
      }
      const std::uint64_t marks = iw_match(word_of(bytes), repeated(c));
      ASSERT_EQ(marks & ~0x8080808080808080ull, 0u);
      for (unsigned b = 0; b < 8; b++) {
        const bool marked = marks >> (8 * b + 7) & 1;
        ASSERT_TRUE(marked || bytes[b] != c) << "byte " << b;
        if (marked && bytes[b] != c) {
          ASSERT_EQ(bytes[b], c ^ 1u);
          ASSERT_GT(b, 0u);
          ASSERT_TRUE(marks >> (8 * (b - 1) + 7) & 1);
        }
      }
    }
  }
}

TEST(Match, FindsASingleByteAtEachPlaceAmongAll256Others) {
  for (unsigned c = 0; c < 256; c++)
    for (unsigned other = 0; other < 256; other++)
      for (unsigned place = 0; place < 8; place++) {
        if (other == c) continue;
        std::array<std::uint8_t, 8> bytes;
        bytes.fill(static_cast<std::uint8_t>(other));
        bytes[place] = static_cast<std::uint8_t>(c);
        const std::uint64_t marks = iw_match(word_of(bytes), repeated(static_cast<std::uint8_t>(c)));
        ASSERT_TRUE(marks >> (8 * place + 7) & 1);
        ASSERT_EQ(iw_lowest(iw_gather(marks)), place);  // nothing below a match is marked
      }
}

TEST(SequenceNumbers, AreComparedAcrossTheWrap) {
  EXPECT_TRUE(iw_after(5, 0xfffffff0u));
  EXPECT_FALSE(iw_after(0xfffffff0u, 5));
  EXPECT_TRUE(iw_reached(7, 7));
  EXPECT_FALSE(iw_after(7, 7));
  EXPECT_TRUE(iw_reached(0, 0xffffffffu));
}

}  // namespace
}  // namespace inferwire::stream_test
