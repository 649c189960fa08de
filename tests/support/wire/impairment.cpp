// SPDX-License-Identifier: Apache-2.0
#include "tests/support/wire/impairment.h"

namespace inferwire::wire {
namespace {

// More half-open connections than this and the third ACK of some is let through.
constexpr std::size_t kMaxOpeningFlows = 65536;

}  // namespace

Impairer::Impairer(const Impairment& a_to_b, const Impairment& b_to_a, std::uint64_t seed)
    : impairments_{a_to_b, b_to_a}, generators_{std::mt19937_64(seed), std::mt19937_64(seed ^ 0x9e3779b97f4a7c15ULL)} {}

bool Impairer::draw(Direction direction, double probability) {
  // Always one draw a question: switching one impairment on leaves the others' draws in place.
  auto& generator = generators_[static_cast<std::size_t>(direction)];
  return std::uniform_real_distribution<double>(0.0, 1.0)(generator) < probability;
}

bool Impairer::is_third_ack(Direction direction, const TcpView& tcp) {
  auto& opening = opening_[static_cast<std::size_t>(direction)];
  FlowKey key{tcp.source, tcp.source_port, tcp.destination, tcp.destination_port};
  if (tcp.has(kSyn) && !tcp.has(kAck)) {
    if (opening.size() < kMaxOpeningFlows) opening.insert(std::move(key));
    return false;
  }
  if (tcp.has(kSyn) || !tcp.has(kAck) || opening.erase(key) == 0) return false;
  return tcp.payload_bytes == 0 && !tcp.has(kFin) && !tcp.has(kRst);
}

Fate Impairer::judge(Direction direction, const std::optional<TcpView>& tcp) {
  const Impairment& impairment = impairments_[static_cast<std::size_t>(direction)];
  Fate fate;
  fate.delay = impairment.delay;
  if (tcp && tcp->payload_bytes > 0) {
    fate.data_number = ++data_packets_[static_cast<std::size_t>(direction)];
  }

  const bool lost = draw(direction, impairment.loss);
  const bool reordered = draw(direction, impairment.reorder);
  const bool duplicated = draw(direction, impairment.duplicate);
  const bool corrupted = draw(direction, impairment.corrupt);
  const std::uint64_t position = generators_[static_cast<std::size_t>(direction)]();
  const bool third_ack = impairment.drop_third_ack && tcp && is_third_ack(direction, *tcp);

  if (black_hole_) {
    fate.reason = "black_hole";
  } else if (third_ack) {
    fate.reason = "third_ack";
  } else if (impairment.drop_nth.contains(fate.data_number)) {
    fate.reason = "nth";
  } else if (lost) {
    fate.reason = "loss";
  }
  if (!fate.reason.empty()) {
    fate.dropped = true;
    return fate;
  }

  if (const auto hold = impairment.hold_nth.find(fate.data_number); hold != impairment.hold_nth.end()) {
    fate.delay += hold->second;
    fate.reason = "hold";
    return fate;
  }
  if (corrupted && fate.data_number != 0) {
    fate.corrupted = true;
    fate.corrupt_byte = tcp->payload_offset + (position >> 3) % tcp->payload_bytes;
    fate.corrupt_mask = static_cast<std::uint8_t>(1U << (position & 7U));
    fate.reason = "corrupt";
  } else if (duplicated) {
    fate.duplicated = true;
    fate.reason = "duplicate";
  } else if (reordered) {
    fate.held = true;
    fate.reason = "reorder";
  }
  return fate;
}

}  // namespace inferwire::wire
