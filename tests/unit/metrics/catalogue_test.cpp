// SPDX-License-Identifier: Apache-2.0
#include "agent/metrics/catalogue.h"

#include <gtest/gtest.h>

#include <set>
#include <string>

namespace inferwire::metrics {
namespace {

bool is_metric_name(std::string_view name) {
  if (name.empty()) return false;
  for (const char c : name) {
    if (!(c == '_' || (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9'))) return false;
  }
  return name.front() >= 'a';
}

TEST(Catalogue, RowsStandInTheOrderOfTheirIds) {
  std::size_t at = 0;
  for (const Family& family : catalogue()) {
    EXPECT_EQ(static_cast<std::size_t>(family.id), at++);
    EXPECT_EQ(&family_of(family.id), &family);
  }
}

TEST(Catalogue, NamesAreMetricNamesWithOurPrefix) {
  for (const Family& family : catalogue()) {
    EXPECT_TRUE(is_metric_name(family.name)) << family.name;
    EXPECT_TRUE(family.name.starts_with("inferwire_") || family.name.starts_with("process_")) << family.name;
  }
}

TEST(Catalogue, TheUnitIsTheEndOfTheName) {
  for (const Family& family : catalogue()) {
    if (family.unit.empty()) continue;
    std::string_view name = family.name;
    if (name.ends_with("_total")) name.remove_suffix(6);
    EXPECT_TRUE(name.ends_with("_" + std::string(family.unit))) << family.name;
  }
}

TEST(Catalogue, EveryFamilyHasHelpThatEndsAsASentence) {
  for (const Family& family : catalogue()) {
    EXPECT_FALSE(family.help.empty()) << family.name;
    EXPECT_EQ(family.help.find_first_of("\n|"), std::string_view::npos) << family.name;
    EXPECT_TRUE(family.help.ends_with(".") || family.help.ends_with("report it.")) << family.name;
  }
}

TEST(Catalogue, EveryLabelIsExplainedAndUsedOnceInAFamily) {
  for (const Family& family : catalogue()) {
    std::set<std::string_view> seen;
    for (const auto label : family.labels()) {
      EXPECT_FALSE(label_meaning(label).empty()) << family.name << " " << label;
      EXPECT_TRUE(seen.insert(label).second) << family.name << " " << label;
      EXPECT_NE(label, "le") << "reserved";
      EXPECT_NE(label, "quantile") << "reserved";
    }
  }
}

TEST(Catalogue, RequestFamiliesSayWhoseTheyAre) {
  for (const Family& family : catalogue()) {
    if (family.section == Section::kAgent) continue;
    EXPECT_EQ(family.label_index("namespace"), 0) << family.name;
    EXPECT_EQ(family.label_index("workload"), 1) << family.name;
    EXPECT_EQ(family.label_index("container"), 2) << family.name;
  }
}

TEST(Catalogue, TheDocsNameEveryFamily) {
  const std::string doc = catalogue_markdown();
  for (const Family& family : catalogue()) {
    EXPECT_NE(doc.find("| `" + std::string(family.name) + "` |"), std::string::npos) << family.name;
  }
}

}  // namespace
}  // namespace inferwire::metrics
