// SPDX-License-Identifier: Apache-2.0
// A read-only view of one IP packet as it comes out of a TUN device: whole, never fragmented by us.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>

namespace inferwire::wire {

enum TcpFlag : std::uint8_t { kFin = 0x01, kSyn = 0x02, kRst = 0x04, kAck = 0x10 };

struct TcpView {
  std::string source;       // address only, as text
  std::string destination;  // address only, as text
  std::uint16_t source_port = 0;
  std::uint16_t destination_port = 0;
  std::uint32_t sequence = 0;
  std::uint32_t acknowledgment = 0;
  std::uint8_t flags = 0;
  std::size_t payload_offset = 0;  // from the start of the IP packet
  std::size_t payload_bytes = 0;

  bool has(TcpFlag flag) const { return (flags & flag) != 0; }
};

// The TCP segment in `packet` (IPv4 with options; IPv6 without extension headers), or nothing when
// it is no TCP, a fragment, or cut short.
std::optional<TcpView> view_tcp(std::span<const std::uint8_t> packet);

}  // namespace inferwire::wire
