// SPDX-License-Identifier: Apache-2.0
// What the walk over sockets yields: structures of several kinds behind each other, each beginning with an iw_header;
// a socket that several processes have open comes several times. Cuts, checks, and shows each socket once. Pure.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <unordered_set>
#include <vector>

#include "agent/capture/record_source.h"

namespace inferwire::capture {

// Bytes that a structure of this kind has, 0 if there is no such kind. Kinds of the ring buffer and of the walk.
std::size_t record_size(std::uint32_t kind);

class WalkReader {
 public:
  // `time_ns`: what the headers shall say.
  WalkReader(std::uint64_t time_ns, const RecordSink& sink) : time_ns_(time_ns), sink_(sink) {}

  // Takes the next bytes, cut anywhere. False: what they hold is no sequence of records, and the rest is lost.
  bool feed(std::span<const std::byte> bytes);

  // No part of a record is left over.
  bool whole() const { return rest_.empty(); }

  std::size_t connections() const { return seen_[0].size(); }  // with state of their own: iw_record
  std::size_t listeners() const { return seen_[1].size(); }

 private:
  bool take(std::span<std::byte> record);

  std::uint64_t time_ns_;
  const RecordSink& sink_;
  std::vector<std::byte> rest_;                            // of a record that was cut
  std::array<std::unordered_set<std::uint64_t>, 3> seen_;  // cookies of connections, listeners, sockets
};

}  // namespace inferwire::capture
