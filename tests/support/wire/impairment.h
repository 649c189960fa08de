// SPDX-License-Identifier: Apache-2.0
// What happens to each packet on the wire: pure judgement, no clock, no I/O. Seeded, and each
// direction draws from its own generator, so the fate of the n-th packet of a direction does not
// depend on how the two directions interleave.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <map>
#include <random>
#include <set>
#include <span>
#include <string>
#include <tuple>
#include <vector>

#include "tests/support/wire/packet.h"

namespace inferwire::wire {

enum class Direction : std::uint8_t { kAToB = 0, kBToA = 1 };
inline const char* direction_name(Direction direction) { return direction == Direction::kAToB ? "a2b" : "b2a"; }

// One direction's impairments. Probabilities are 0 to 1 and are drawn independently per packet.
struct Impairment {
  std::chrono::nanoseconds delay{0};
  double loss = 0;
  double reorder = 0;                                 // held back until the next packet of this direction has passed it
  double duplicate = 0;                               // delivered twice, the copy right behind the original
  double corrupt = 0;                                 // one payload bit flipped, the TCP checksum left as it was
  std::chrono::nanoseconds reorder_hold{20'000'000};  // a held packet waits at most this long
  // TCP segments with payload are counted from 1 in each direction over all connections (a
  // retransmit counts again); those with these numbers are lost, or held for the given time.
  std::set<std::uint64_t> drop_nth;
  std::map<std::uint64_t, std::chrono::nanoseconds> hold_nth;
  bool drop_third_ack = false;  // the first payload-free ACK after a SYN of this direction
};

// The fate of one packet.
struct Fate {
  bool dropped = false;
  bool held = false;  // reordered: release behind the next packet, or after `reorder_hold`
  bool duplicated = false;
  bool corrupted = false;
  std::size_t corrupt_byte = 0;  // offset in the packet
  std::uint8_t corrupt_mask = 0;
  std::chrono::nanoseconds delay{0};
  std::uint64_t data_number = 0;  // 0 when it carries no TCP payload
  std::string reason;             // empty when nothing was done to it
};

class Impairer {
 public:
  Impairer(const Impairment& a_to_b, const Impairment& b_to_a, std::uint64_t seed);

  // `tcp` is empty for anything that is not TCP; such packets suffer probabilities only.
  Fate judge(Direction direction, const std::optional<TcpView>& tcp);

  const Impairment& impairment(Direction direction) const { return impairments_[static_cast<std::size_t>(direction)]; }
  // Nothing passes in either direction while it is on.
  void set_black_hole(bool on) { black_hole_ = on; }
  bool black_hole() const { return black_hole_; }
  // One way, of both directions.
  void set_delay(std::chrono::nanoseconds delay) { impairments_[0].delay = impairments_[1].delay = delay; }

 private:
  using FlowKey = std::tuple<std::string, std::uint16_t, std::string, std::uint16_t>;

  bool is_third_ack(Direction direction, const TcpView& tcp);
  bool draw(Direction direction, double probability);

  std::array<Impairment, 2> impairments_;
  std::array<std::mt19937_64, 2> generators_;
  std::array<std::uint64_t, 2> data_packets_{};
  // Flows whose SYN passed and whose third ACK has not been seen yet. Bounded: see impairment.cpp.
  std::array<std::set<FlowKey>, 2> opening_;
  bool black_hole_ = false;
};

}  // namespace inferwire::wire
