// SPDX-License-Identifier: Apache-2.0
#include "agent/metrics/catalogue.h"

#include <initializer_list>

namespace inferwire::metrics {
namespace {

constexpr Family make_family(FamilyId id, Section section, MetricType type, EdgesId edges, std::string_view unit,
                             std::string_view name, std::string_view help,
                             std::initializer_list<std::string_view> labels) {
  Family family{id, section, type, edges, unit, name, help, {}, labels.size()};
  std::size_t at = 0;
  for (const auto label : labels) family.label_storage[at++] = label;
  return family;
}

constexpr Family kFamilies[] = {
#define IW_FAMILY(id, section, type, edges, unit, name, help, ...) \
  make_family(FamilyId::id, Section::section, MetricType::type, EdgesId::edges, unit, name, help, {__VA_ARGS__}),
#include "agent/metrics/families.inc"
#undef IW_FAMILY
};

// What dashboards rely on, checked while compiling.
consteval bool rows_keep_the_rules() {
  for (const Family& family : kFamilies) {
    const bool histogram = family.type == MetricType::kHistogram;
    if (histogram != (family.edges != EdgesId::kNone)) return false;
    if ((family.type == MetricType::kCounter) != family.name.ends_with("_total")) return false;
    for (const auto label : family.labels()) {
      if (histogram && (label == "pod" || label == "port" || label == "protocol")) return false;
    }
    for (const Family& other : kFamilies) {
      if (other.name == family.name && other.id != family.id) return false;
    }
  }
  return true;
}
static_assert(rows_keep_the_rules());

}  // namespace

std::span<const Family> catalogue() { return kFamilies; }

const Family& family_of(FamilyId id) { return kFamilies[static_cast<std::size_t>(id)]; }

std::string_view type_name(MetricType type) {
  switch (type) {
    case MetricType::kCounter:
      return "counter";
    case MetricType::kGauge:
      return "gauge";
    case MetricType::kHistogram:
      return "histogram";
  }
  return "untyped";
}

}  // namespace inferwire::metrics
