// SPDX-License-Identifier: Apache-2.0
// What has finished, in bounded memory: the latest records, the worst of the last minute, sums of phases by minute.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "agent/model/identity.h"
#include "agent/model/request.h"

namespace inferwire::model {

struct Finished {
  std::uint64_t end_ns = 0;  // when its final record came
  std::string line;          // its JSON record
};

class History {
 public:
  explicit History(std::size_t bytes_max) : bytes_max_(bytes_max) {}

  // `now_ns` does not go back.
  void add(const Request& request, const Identity& who, std::string_view line, std::uint64_t now_ns);

  const std::deque<Finished>& finished() const { return finished_; }  // oldest first
  std::size_t bytes() const { return bytes_; }

  // Lines of at most kWorst requests that finished in the last minute, worst first.
  std::vector<std::string> worst_by_ttft(std::uint64_t now_ns) const;
  std::vector<std::string> worst_by_gap(std::uint64_t now_ns) const;
  std::uint64_t finished_last_minute(std::uint64_t now_ns) const;

  // JSON array, oldest minute first: [{"start_unix_ns": .., "namespace": .., "workload": .., "role": .., "requests":
  // .., "duration_ns": .., "phases_ns": {..}}, ..]. `offset_ns` is Clock::mono_to_unix_offset_ns.
  std::string minutes_json(std::int64_t offset_ns) const;

  static constexpr std::size_t kWorst = 10;
  static constexpr std::size_t kMinutesMax = 60;
  static constexpr std::size_t kWorkloadsMax = 256;  // in a minute

 private:
  struct Ranked {
    std::uint64_t rank_ns = 0;
    std::uint64_t end_ns = 0;
    std::string line;
  };
  // Ten seconds: enough that the last minute is exact but for its oldest ten seconds, which are filtered by end_ns.
  struct Slot {
    std::uint64_t index = 0;
    std::vector<Ranked> by_ttft;
    std::vector<Ranked> by_gap;
    std::map<std::uint64_t, std::uint64_t> finished_in_second;
  };
  struct Sums {
    std::uint64_t requests = 0;
    std::uint64_t duration_ns = 0;
    std::array<std::uint64_t, IW_PHASES_MAX> phases_ns{};
  };
  struct Minute {
    std::uint64_t index = 0;                                           // CLOCK_MONOTONIC minute
    std::map<std::pair<std::string, std::uint8_t>, Sums> by_workload;  // namespace/workload, role
  };

  void rank(std::vector<Ranked>& list, std::uint64_t rank_ns, std::uint64_t end_ns, std::string_view line);
  std::vector<std::string> worst(std::uint64_t now_ns, std::vector<Ranked> Slot::*list) const;
  void add_to_minute(const Request& request, const Identity& who, std::uint64_t now_ns);

  std::size_t bytes_max_;
  std::size_t bytes_ = 0;
  std::deque<Finished> finished_;
  std::deque<Slot> slots_;
  std::deque<Minute> minutes_;
};

}  // namespace inferwire::model
