// SPDX-License-Identifier: Apache-2.0
#include "agent/cli/show_text.h"

#include <gtest/gtest.h>

namespace inferwire::cli {
namespace {

TEST(SafeText, EscapesWhatATerminalWouldObey) {
  EXPECT_EQ(safe_text("a\x1b[31mb\n\x7f", true), "a\\x1b[31mb\\x0a\\x7f");
  EXPECT_EQ(safe_text("\xC2\x9B", true), "\\u{9b}");          // CSI as a C1 control
  EXPECT_EQ(safe_text("\xE2\x80\xAEx", true), "\\u{202e}x");  // right-to-left override
  EXPECT_EQ(safe_text("\xE2\x80\x8Bx", true), "\\u{200b}x");  // zero width
}

TEST(SafeText, EscapesInvalidUtf8ByteByByte) {
  EXPECT_EQ(safe_text("a\xff\xC3", true), "a\\xff\\xc3");
  EXPECT_EQ(safe_text("\xC0\x80", true), "\\xc0\\x80");           // overlong
  EXPECT_EQ(safe_text("\xED\xA0\x80", true), "\\xed\\xa0\\x80");  // surrogate
}

TEST(SafeText, KeepsLettersWhereTheyCanBeShown) {
  EXPECT_EQ(safe_text("模型 é", true), "模型 é");
  EXPECT_EQ(safe_text("é", false), "\\u{e9}");
}

TEST(DisplayWidth, CountsColumnsNotBytes) {
  EXPECT_EQ(display_width("abc"), 3u);
  EXPECT_EQ(display_width("é"), 1u);
  EXPECT_EQ(display_width("模型"), 4u);
  EXPECT_EQ(display_width("e\xCC\x81"), 1u);  // combining accent
  EXPECT_EQ(display_width("\033[1;33mab\033[0m"), 2u);
}

TEST(Padding, FillsToColumns) {
  EXPECT_EQ(pad_right("é", 3), "é  ");
  EXPECT_EQ(pad_left("模", 3), " 模");
  EXPECT_EQ(pad_right("abcd", 3), "abcd");
}

TEST(Shorten, CutsOnACharacterAndSaysSo) {
  EXPECT_EQ(shorten("abcdef", 4, true), "abc…");
  EXPECT_EQ(shorten("abcdef", 4, false), "abc~");
  EXPECT_EQ(shorten("模型模型", 4, true), "模…");
  EXPECT_EQ(shorten("abc", 3, true), "abc");
}

TEST(Milliseconds, HaveAHundredthBelowAHundredAndATenthAbove) {
  EXPECT_EQ(ms_text(0), "0.00");
  EXPECT_EQ(ms_text(41'234), "0.04");
  EXPECT_EQ(ms_text(99'994'000), "99.99");
  EXPECT_EQ(ms_text(99'995'000), "100.0");
  EXPECT_EQ(ms_text(12'345'678'901), "12345.7");
}

TEST(Bytes, HaveUnits) {
  EXPECT_EQ(bytes_text(999), "999 B");
  EXPECT_EQ(bytes_text(1500), "1.5 KB");
  EXPECT_EQ(bytes_text(20'000'000), "20.0 MB");
}

TEST(Bar, CoversItsPartOfTheColumns) {
  EXPECT_EQ(bar(0, 1, 4, true), "████");
  EXPECT_EQ(bar(0, 0.5, 4, true), "██  ");
  EXPECT_EQ(bar(0.5, 0.625, 4, true), "  ▌ ");
  EXPECT_EQ(bar(0, 0.5, 4, false), "##  ");
  EXPECT_EQ(bar(0.25, 1, 4, false), " ###");
}

TEST(Bar, IsNeverInvisibleAndNeverTooLong) {
  EXPECT_EQ(bar(0.5, 0.5, 4, true), "  ▏ ");
  EXPECT_EQ(bar(1, 1, 4, true), "   ▏");
  EXPECT_EQ(bar(0.5, 0.5, 4, false), "  | ");
  EXPECT_EQ(bar(-3, 9, 4, true), "████");
  for (int from = 0; from <= 100; ++from) {
    for (int to = from; to <= 100; ++to) {
      ASSERT_EQ(display_width(bar(from / 100.0, to / 100.0, 7, true)), 7u) << from << " to " << to;
      ASSERT_EQ(display_width(bar(from / 100.0, to / 100.0, 7, false)), 7u) << from << " to " << to;
    }
  }
}

TEST(Style, ColourOnlyOnATerminalThatWantsIt) {
  const Terminal tty{.is_tty = true, .columns = 120, .locale = "en_US.UTF-8", .no_color = "", .term = "xterm"};
  EXPECT_TRUE(style_for(tty, When::kAuto, false).color);
  EXPECT_FALSE(style_for(tty, When::kNever, false).color);
  Terminal other = tty;
  other.no_color = "1";
  EXPECT_FALSE(style_for(other, When::kAuto, false).color);
  EXPECT_TRUE(style_for(other, When::kAlways, false).color);
  other = tty;
  other.is_tty = false;
  EXPECT_FALSE(style_for(other, When::kAuto, false).color);
}

TEST(Style, Utf8OnlyWhereTheLocaleSaysSo) {
  EXPECT_TRUE(style_for({.locale = "C.utf8"}, When::kAuto, false).utf8);
  EXPECT_FALSE(style_for({.locale = "C.UTF-8"}, When::kAuto, true).utf8);
  EXPECT_FALSE(style_for({.locale = "POSIX"}, When::kAuto, false).utf8);
  EXPECT_FALSE(style_for({}, When::kAuto, false).utf8);
}

TEST(Style, WidthIsAtLeastSixty) {
  EXPECT_EQ(style_for({.columns = 40}, When::kAuto, false).width, 60u);
  EXPECT_EQ(style_for({.columns = 133}, When::kAuto, false).width, 133u);
  EXPECT_EQ(style_for({}, When::kAuto, false).width, 100u);
  EXPECT_EQ(style_for({.columns = 133}, When::kAuto, false, 90).width, 90u);
}

TEST(Table, LeavesOutWhatDoesNotFit) {
  Table table({{"a"}, {"wide", false, 2}, {"wider", false, 1}, {"n", true}});
  table.add_row({"x", std::string(50, 'w'), std::string(40, 'v'), "7"});
  Style style;
  style.width = 80;
  EXPECT_EQ(table.to_string(style),
            "a  wider                                     n\nx  " + std::string(40, 'v') + "  7\n");
  style.width = 200;
  EXPECT_NE(table.to_string(style).find(std::string(50, 'w')), std::string::npos);
}

TEST(Table, CutsTheWidestCellsWhenThatIsNotEnough) {
  Table table({{"a"}, {"b"}, {"n", true}});
  table.add_row({std::string(70, 'x'), "\033[31m" + std::string(30, 'y') + "\033[0m", "7"});
  Style style;
  style.width = 60;
  const std::string text = table.to_string(style);
  EXPECT_NE(text.find(std::string(26, 'x') + "~  "), std::string::npos) << text;
  EXPECT_NE(text.find(std::string(27, 'y') + "~\033[0m  7\n"), std::string::npos) << text;
}

TEST(FoldLines, BreaksBetweenWordsAndIndentsTheRest) {
  Style style;
  style.width = 60;
  const std::string words = "  " + std::string(30, 'a') + " " + std::string(30, 'b') + " " + std::string(30, 'c');
  EXPECT_EQ(fold_lines(words + "\nshort\n", style), "  " + std::string(30, 'a') + "\n      " + std::string(30, 'b') +
                                                        "\n      " + std::string(30, 'c') + "\nshort\n");
  EXPECT_EQ(fold_lines(std::string(130, 'x'), style),
            std::string(60, 'x') + "\n      " + std::string(54, 'x') + "\n      " + std::string(16, 'x'));
  EXPECT_EQ(fold_lines("\n\n", style), "\n\n");
  EXPECT_EQ(fold_lines("", style), "");
}

TEST(FoldLines, ColourTakesNoRoomAndWideCharactersTakeTwo) {
  Style style;
  style.width = 60;
  const std::string colored = "\033[31m" + std::string(60, 'x') + "\033[0m";
  EXPECT_EQ(fold_lines(colored, style), colored);
  std::string wide;
  for (int i = 0; i < 31; ++i) wide += "模";
  EXPECT_EQ(fold_lines(wide, style), wide.substr(0, 90) + "\n      模");
}

}  // namespace
}  // namespace inferwire::cli
