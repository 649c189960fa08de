// SPDX-License-Identifier: Apache-2.0
#include "agent/metrics/registry.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "agent/base/label.h"
#include "agent/base/result.h"

namespace inferwire::metrics {
namespace {

// Between packed label values. It is in no valid UTF-8, and a key of n clean values has exactly n of them, so a
// raw value with such a byte in it is never taken for another label set.
constexpr char kSeparator = '\xFF';

void pack(std::span<const std::string_view> values, std::string& key) {
  key.clear();
  for (const auto value : values) {
    key += value;
    key += kSeparator;
  }
}

std::string owner_key(std::string_view namespace_name, std::string_view workload, std::string_view container,
                      std::string_view pod) {
  std::string key;
  const std::string_view parts[] = {namespace_name, workload, container, pod};
  pack(parts, key);
  return key;
}

}  // namespace

// A workload's pod, or (pod empty) the workload itself; lives as long as its series.
struct Registry::Owner {
  base::MonotonicTime last_active{};
  bool active = true;  // written to since the last retire()
  bool gone = false;
};

struct Registry::Series {
  std::shared_ptr<const LabelValues> label_values;
  Owner* owner = nullptr;  // null: not a workload's; stays for good
  double value = 0;        // histogram: sum
  std::uint64_t count = 0;
  std::vector<std::uint64_t> bucket_counts;
};

struct Registry::FamilyState {
  const Family* family = nullptr;
  int namespace_index = -1;
  int workload_index = -1;
  int container_index = -1;
  int pod_index = -1;
  int model_index = -1;
  ByString<Series> series;  // by packed clean label values
  Series* overflow = nullptr;
  std::vector<const Series*> ordered;  // for snapshots; stale when empty
  std::uint64_t limit_hits = 0;
  std::uint64_t rejected = 0;
};

Registry::Registry(RegistryOptions options) : options_(std::move(options)) {
  for (std::size_t id = 0; id < kEdgesIdCount; ++id) {
    const auto defaults = default_edges(static_cast<EdgesId>(id));
    auto& own = options_.edges[id];
    if (own.empty()) own.assign(defaults.begin(), defaults.end());
    edges_[id] = std::make_shared<const std::vector<double>>(own);
  }
  families_.resize(catalogue().size());
  for (std::size_t at = 0; at < families_.size(); ++at) {
    const Family& family = catalogue()[at];
    FamilyState& state = families_[at];
    state.family = &family;
    state.namespace_index = family.label_index("namespace");
    state.workload_index = family.label_index("workload");
    state.container_index = family.label_index("container");
    state.pod_index = family.label_index("pod");
    state.model_index = family.label_index("model");
  }
}

Registry::~Registry() = default;

Registry::FamilyState& Registry::state(FamilyId id) { return families_[static_cast<std::size_t>(id)]; }

std::span<const double> Registry::edges(FamilyId id) const { return edges(family_of(id).edges); }

std::span<const double> Registry::edges(EdgesId id) const { return *edges_[static_cast<std::size_t>(id)]; }

std::size_t Registry::series(FamilyId id) const { return families_[static_cast<std::size_t>(id)].series.size(); }

bool Registry::reject_unless(bool good, FamilyState& family) {
  if (!good) ++family.rejected;
  return !good;
}

void Registry::add(FamilyId id, Labels labels, double amount) {
  FamilyState& family = state(id);
  IW_CHECK(family.family->type != MetricType::kHistogram);
  const bool counter = family.family->type == MetricType::kCounter;
  if (reject_unless(std::isfinite(amount) && (amount >= 0 || !counter), family)) return;
  find_or_make(family, labels).series->value += amount;
}

void Registry::set(FamilyId id, Labels labels, double value) {
  FamilyState& family = state(id);
  IW_CHECK(family.family->type != MetricType::kHistogram);
  const bool counter = family.family->type == MetricType::kCounter;
  if (reject_unless(std::isfinite(value) && (value >= 0 || !counter), family)) return;
  const auto [series, overflow] = find_or_make(family, labels);
  if (overflow) return;
  series->value = counter ? std::max(series->value, value) : value;
}

void Registry::raise(FamilyId id, Labels labels, double value) {
  FamilyState& family = state(id);
  IW_CHECK(family.family->type == MetricType::kGauge);
  if (reject_unless(std::isfinite(value), family)) return;
  Series& series = *find_or_make(family, labels).series;
  series.value = std::max(series.value, value);
}

void Registry::zero(FamilyId id) {
  FamilyState& family = state(id);
  IW_CHECK(family.family->type == MetricType::kGauge);
  for (auto& [key, series] : family.series) series.value = 0;
}

void Registry::clear(FamilyId id) {
  FamilyState& family = state(id);
  IW_CHECK(family.family->type == MetricType::kGauge && family.workload_index < 0 && family.model_index < 0);
  family.series.clear();
  family.ordered.clear();
  family.overflow = nullptr;
}

void Registry::observe(FamilyId id, Labels labels, double value, std::uint64_t times) {
  FamilyState& family = state(id);
  IW_CHECK(family.family->type == MetricType::kHistogram);
  if (reject_unless(std::isfinite(value) && value >= 0, family)) return;
  if (times == 0) return;
  Series& series = *find_or_make(family, labels).series;
  series.bucket_counts[bucket_of(edges(id), value)] += times;
  series.count += times;
  series.value += value * static_cast<double>(times);
}

void Registry::observe_counts(FamilyId id, Labels labels, std::span<const std::uint64_t> bucket_counts, double sum) {
  FamilyState& family = state(id);
  IW_CHECK(family.family->type == MetricType::kHistogram);
  IW_CHECK(bucket_counts.size() == edges(id).size() + 1);
  if (reject_unless(std::isfinite(sum) && sum >= 0, family)) return;
  std::uint64_t count = 0;
  for (const auto in_bucket : bucket_counts) count += in_bucket;
  if (count == 0 && sum == 0) return;
  Series& series = *find_or_make(family, labels).series;
  for (std::size_t at = 0; at < bucket_counts.size(); ++at) series.bucket_counts[at] += bucket_counts[at];
  series.count += count;
  series.value += sum;
}

Registry::Found Registry::find_or_make(FamilyState& family, Labels labels) {
  const auto raw = labels.values();
  IW_CHECK(raw.size() == family.family->label_count);
  pack(raw, key_);
  const auto known = family.series.find(std::string_view(key_));
  if (known == family.series.end()) return find_or_make_slow(family, raw);
  Series& series = known->second;
  if (series.owner != nullptr) series.owner->active = true;
  return {&series, &series == family.overflow};
}

// A new label set, one with values that are not clean, or one beyond a limit.
Registry::Found Registry::find_or_make_slow(FamilyState& family, std::span<const std::string_view> raw) {
  std::array<std::string, kLabelsMax> sanitised;
  std::array<std::string_view, kLabelsMax> storage;
  bool limit_hit = false;
  for (std::size_t at = 0; at < raw.size(); ++at) {
    storage[at] = raw[at];
    if (!base::is_clean_label(raw[at])) storage[at] = sanitised[at] = base::sanitize_label(raw[at]);
    if (static_cast<int>(at) == family.model_index && !model_is_admitted(storage[at])) {
      storage[at] = kOverflow;
      limit_hit = true;
    }
  }
  const std::span<const std::string_view> clean(storage.data(), raw.size());
  if (limit_hit) ++family.limit_hits;

  pack(clean, key_);
  if (const auto known = family.series.find(std::string_view(key_)); known != family.series.end()) {
    Series& series = known->second;
    if (series.owner != nullptr) series.owner->active = true;
    return {&series, limit_hit || &series == family.overflow};
  }

  const std::size_t own_sets = family.series.size() - (family.overflow != nullptr ? 1 : 0);
  if (own_sets < options_.label_sets_max) return {&make_series(family, clean, false), limit_hit};

  if (!limit_hit) ++family.limit_hits;
  if (family.overflow == nullptr) {
    storage.fill(kOverflow);
    family.overflow = &make_series(family, clean, true);
  }
  return {family.overflow, true};
}

Registry::Series& Registry::make_series(FamilyState& family, std::span<const std::string_view> clean, bool overflow) {
  pack(clean, key_);
  Series& series = family.series[key_];
  series.label_values = std::make_shared<const LabelValues>(clean.begin(), clean.end());
  if (family.family->type == MetricType::kHistogram) {
    series.bucket_counts.resize(edges(family.family->edges).size() + 1);
  }
  family.ordered.clear();
  series.owner = overflow ? nullptr : owner_of(family, clean);
  if (family.model_index >= 0) {
    const auto model = clean[static_cast<std::size_t>(family.model_index)];
    if (!model.empty() && model != kOverflow) ++series_of_model_[std::string(model)];
  }
  return series;
}

Registry::Owner* Registry::owner_of(const FamilyState& family, std::span<const std::string_view> clean) {
  if (family.workload_index < 0) return nullptr;
  const auto value = [&](int index) { return index < 0 ? std::string_view() : clean[static_cast<std::size_t>(index)]; };
  Owner& owner = owners_[owner_key(value(family.namespace_index), value(family.workload_index),
                                   value(family.container_index), value(family.pod_index))];
  owner.active = true;
  return &owner;
}

bool Registry::model_is_admitted(std::string_view model) const {
  return model.empty() || model == kOverflow || series_of_model_.size() < options_.model_names_max ||
         series_of_model_.contains(model);
}

void Registry::touch(const Workload& workload, base::MonotonicTime now) {
  now_ = std::max(now_, now);
  const std::string namespace_name = base::sanitize_label(workload.namespace_name);
  const std::string name = base::sanitize_label(workload.workload);
  const std::string container = base::sanitize_label(workload.container);
  const std::string pod = base::sanitize_label(workload.pod);
  for (const std::string_view owner_pod : {std::string_view(pod), std::string_view()}) {
    const auto owner = owners_.find(owner_key(namespace_name, name, container, owner_pod));
    if (owner != owners_.end()) owner->second.last_active = std::max(owner->second.last_active, now);
  }
}

void Registry::retire(base::MonotonicTime now) {
  now_ = std::max(now_, now);
  bool any_gone = false;
  for (auto& [key, owner] : owners_) {
    if (std::exchange(owner.active, false)) owner.last_active = now_;
    owner.gone = now_ - owner.last_active >= options_.retire_after;
    any_gone = any_gone || owner.gone;
  }
  if (!any_gone) return;
  drop_series_of_gone_owners();
  std::erase_if(owners_, [](const auto& entry) { return entry.second.gone; });
}

void Registry::drop_series_of_gone_owners() {
  for (FamilyState& family : families_) {
    if (family.workload_index < 0) continue;
    const std::size_t dropped = std::erase_if(family.series, [&](const auto& entry) {
      const Series& series = entry.second;
      if (series.owner == nullptr || !series.owner->gone) return false;
      if (family.model_index < 0) return true;
      const auto model = series_of_model_.find((*series.label_values)[static_cast<std::size_t>(family.model_index)]);
      if (model != series_of_model_.end() && --model->second == 0) series_of_model_.erase(model);
      return true;
    });
    if (dropped > 0) family.ordered.clear();
  }
}

// The families that count the others. Their own label sets are bounded by the catalogue.
void Registry::write_own_series() {
  for (const FamilyState& family : families_) {
    const std::string_view name = family.family->name;
    if (!family.series.empty()) set(FamilyId::kSeries, {name}, static_cast<double>(family.series.size()));
    if (family.limit_hits > 0) {
      set(FamilyId::kSeriesLimitHitsTotal, {name}, static_cast<double>(family.limit_hits));
    }
    if (family.rejected > 0) set(FamilyId::kRejectedValuesTotal, {name}, static_cast<double>(family.rejected));
  }
}

void Registry::order_series(FamilyState& family) {
  if (family.ordered.size() == family.series.size()) return;
  family.ordered.clear();
  for (const auto& [key, series] : family.series) family.ordered.push_back(&series);
  std::sort(family.ordered.begin(), family.ordered.end(),
            [](const Series* a, const Series* b) { return *a->label_values < *b->label_values; });
}

std::shared_ptr<const Snapshot> Registry::snapshot() {
  clear(FamilyId::kSeries);
  write_own_series();
  auto snapshot = std::make_shared<Snapshot>();
  for (FamilyState& family : families_) {
    if (family.series.empty()) continue;
    order_series(family);
    FamilySnapshot& out = snapshot->families.emplace_back();
    out.family = family.family;
    if (family.family->type == MetricType::kHistogram) {
      out.edges = edges_[static_cast<std::size_t>(family.family->edges)];
      out.bucket_counts.reserve(family.series.size() * (out.edges->size() + 1));
    }
    out.series.reserve(family.series.size());
    for (const Series* series : family.ordered) {
      out.series.push_back({series->label_values, series->value, series->count});
      out.bucket_counts.insert(out.bucket_counts.end(), series->bucket_counts.begin(), series->bucket_counts.end());
    }
  }
  return snapshot;
}

}  // namespace inferwire::metrics
