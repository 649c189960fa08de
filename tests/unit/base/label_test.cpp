// SPDX-License-Identifier: Apache-2.0
#include "agent/base/label.h"

#include <gtest/gtest.h>

#include <random>
#include <string>

namespace inferwire::base {
namespace {

const std::string kReplaced = "\xEF\xBF\xBD";

TEST(SanitizeLabel, OrdinaryNamesStayAsTheyAre) {
  EXPECT_EQ(sanitize_label(""), "");
  EXPECT_EQ(sanitize_label("meta-llama/Llama-3.1-8B"), "meta-llama/Llama-3.1-8B");
  EXPECT_EQ(sanitize_label("größe 模型 🦙"), "größe 模型 🦙");
  EXPECT_EQ(sanitize_label(R"(quote " and \ stay: the writer escapes them)"),
            R"(quote " and \ stay: the writer escapes them)");
}

TEST(SanitizeLabel, ControlCharactersAreReplaced) {
  EXPECT_EQ(sanitize_label("a\nb"), "a" + kReplaced + "b");
  EXPECT_EQ(sanitize_label(std::string("a\0b", 3)), "a" + kReplaced + "b");
  EXPECT_EQ(sanitize_label("\x1B[31m"), kReplaced + "[31m");
  EXPECT_EQ(sanitize_label("\x7F"), kReplaced);
  EXPECT_EQ(sanitize_label("\xC2\x9B"), kReplaced) << "C1: the one-character form of ESC [";
  EXPECT_EQ(sanitize_label("\xC2\xA0"), "\xC2\xA0") << "first printable after C1";
}

TEST(SanitizeLabel, IllFormedBytesAreReplacedOneForEachMaximalPart) {
  EXPECT_EQ(sanitize_label("\xFF"), kReplaced);
  EXPECT_EQ(sanitize_label("\x80"), kReplaced) << "lone continuation";
  EXPECT_EQ(sanitize_label("\xC0\xAF"), kReplaced + kReplaced) << "overlong slash";
  EXPECT_EQ(sanitize_label("\xE0\x80\xAF"), kReplaced + kReplaced + kReplaced) << "overlong, three bytes";
  EXPECT_EQ(sanitize_label("\xED\xA0\x80"), kReplaced + kReplaced + kReplaced) << "surrogate";
  EXPECT_EQ(sanitize_label("\xF4\x90\x80\x80"), kReplaced + kReplaced + kReplaced + kReplaced) << "over U+10FFFF";
  EXPECT_EQ(sanitize_label("\xE6\xA8"), kReplaced) << "cut at the end";
  EXPECT_EQ(sanitize_label("\xE6\xA8x"), kReplaced + "x") << "cut before a letter";
  EXPECT_EQ(sanitize_label("\xF4\x8F\xBF\xBF"), "\xF4\x8F\xBF\xBF") << "U+10FFFF itself";
}

TEST(SanitizeLabel, LongValuesAreCutOnACodePoint) {
  EXPECT_EQ(sanitize_label(std::string(500, 'a')), std::string(128, 'a'));
  EXPECT_EQ(sanitize_label(std::string(128, 'a')), std::string(128, 'a'));
  const std::string cut = sanitize_label(std::string(127, 'a') + "é");
  EXPECT_EQ(cut, std::string(127, 'a'));
  EXPECT_LE(sanitize_label(std::string(100, '\xFF')).size(), kLabelBytesMax) << "replacements are longer than bytes";
}

TEST(SanitizeLabel, AnyBytesGiveACleanValueAndTwiceIsOnce) {
  std::mt19937 random(1);
  for (int round = 0; round < 20000; ++round) {
    std::string raw(random() % 200, '\0');
    for (char& c : raw) c = static_cast<char>(round % 2 == 0 ? random() % 256 : 0xC0 + random() % 64);
    const std::string clean = sanitize_label(raw);
    ASSERT_TRUE(is_clean_label(clean));
    ASSERT_EQ(sanitize_label(clean), clean);
    ASSERT_EQ(is_clean_label(raw), clean == raw);
  }
}

}  // namespace
}  // namespace inferwire::base
