// SPDX-License-Identifier: Apache-2.0
// All series, and the limits that keep them few. One thread writes and makes snapshots; readers get snapshots only.
//
// Label values may be any bytes: they are sanitised here. A write to a series that exists costs one hash look-up and
// no allocation. Beyond a family's limit of label sets, or of model names, values go to the set whose values (for the
// model limit: whose model) are `overflow`, so that a family's sum stays exact; each such write is counted in
// inferwire_series_limit_hits_total. Values that are negative where they cannot be, or not finite, are left out and
// counted in inferwire_rejected_values_total.
#pragma once

#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "agent/base/units.h"
#include "agent/metrics/catalogue.h"
#include "agent/metrics/snapshot.h"

namespace inferwire::metrics {

inline constexpr std::string_view kOverflow = "overflow";

// Label values for one call, in the order of the family's labels: {"default", name, ...}, or an array, vector or span
// of string_view. Borrows: only for passing, not for keeping.
class Labels {
 public:
  Labels(std::initializer_list<std::string_view> values) : values_(values.begin(), values.size()) {}
  template <std::convertible_to<std::span<const std::string_view>> Range>
  // NOLINTNEXTLINE(google-explicit-constructor): the call reads as if it took the range itself
  Labels(const Range& values) : values_(values) {}

  std::span<const std::string_view> values() const { return values_; }

 private:
  std::span<const std::string_view> values_;
};

// Who a series belongs to. `pod` may be empty.
struct Workload {
  std::string_view namespace_name;
  std::string_view workload;
  std::string_view container;
  std::string_view pod;
};

struct RegistryOptions {
  std::size_t label_sets_max = 256;  // of a family, without the overflow set
  std::size_t model_names_max = 64;
  base::Nanoseconds retire_after = std::chrono::seconds(60);
  // By EdgesId; an empty one means the default edges.
  std::array<std::vector<double>, kEdgesIdCount> edges;
};

class Registry {
 public:
  explicit Registry(RegistryOptions options = {});
  ~Registry();
  Registry(const Registry&) = delete;
  Registry& operator=(const Registry&) = delete;

  // Counter, gauge. A counter takes no negative amount; 0 makes the series.
  void add(FamilyId id, Labels labels, double amount = 1);

  // Gauge: the value. Counter: a total counted elsewhere (the kernel's maps); one below what is there changes
  // nothing. Beyond the limit of label sets the value is left out (and counted): an overflow gauge would show the
  // last of many. Gauges that add up use zero() and add() instead.
  void set(FamilyId id, Labels labels, double value);

  // Gauge: the greater of the value and what is there.
  void raise(FamilyId id, Labels labels, double value);

  // Gauge: every series of the family becomes 0. For gauges that are counted anew for each snapshot: zero(), then
  // add() or raise() for all that is open. That is exact in the overflow set too.
  void zero(FamilyId id);

  // Gauge that no workload owns: drops all its series. For gauges whose labels are the news (`reason`): clear(), then
  // set() what holds now; with zero() the old reason would stay, at 0.
  void clear(FamilyId id);

  // Histogram.
  void observe(FamilyId id, Labels labels, double value, std::uint64_t times = 1);

  // Histogram: adds counts that were made elsewhere with the same edges. `bucket_counts` has edges(id).size() + 1
  // entries, not cumulative; `sum` is that of the values (>= 0). All zero changes nothing.
  void observe_counts(FamilyId id, Labels labels, std::span<const std::uint64_t> bucket_counts, double sum);

  std::span<const double> edges(FamilyId id) const;
  std::span<const double> edges(EdgesId id) const;

  // The workload exists, even if it is idle. Every write to one of its series says so too.
  void touch(const Workload& workload, base::MonotonicTime now);

  // Drops the series of workloads that nothing was heard of for `retire_after`. Call it about once a second.
  void retire(base::MonotonicTime now);

  std::shared_ptr<const Snapshot> snapshot();

  // Label sets of a family, the overflow set included.
  std::size_t series(FamilyId id) const;

 private:
  struct Owner;
  struct Series;
  struct FamilyState;

  struct StringHash {
    using is_transparent = void;
    std::size_t operator()(std::string_view text) const { return std::hash<std::string_view>{}(text); }
  };
  template <class Value>
  using ByString = std::unordered_map<std::string, Value, StringHash, std::equal_to<>>;

  struct Found {
    Series* series;
    bool overflow;  // shared by several label sets because of a limit
  };

  FamilyState& state(FamilyId id);
  Found find_or_make(FamilyState& family, Labels labels);
  Found find_or_make_slow(FamilyState& family, std::span<const std::string_view> raw);
  Series& make_series(FamilyState& family, std::span<const std::string_view> clean, bool overflow);
  Owner* owner_of(const FamilyState& family, std::span<const std::string_view> clean);
  bool model_is_admitted(std::string_view model) const;
  void drop_series_of_gone_owners();
  bool reject_unless(bool good, FamilyState& family);
  void write_own_series();
  void order_series(FamilyState& family);

  RegistryOptions options_;
  std::array<std::shared_ptr<const std::vector<double>>, kEdgesIdCount> edges_;
  std::vector<FamilyState> families_;
  ByString<Owner> owners_;
  ByString<std::size_t> series_of_model_;  // model name -> how many series have it
  std::string key_;                        // scratch: the packed label values of the current call
  base::MonotonicTime now_{};              // latest time that was passed in
};

}  // namespace inferwire::metrics
