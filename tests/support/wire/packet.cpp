// SPDX-License-Identifier: Apache-2.0
#include "tests/support/wire/packet.h"

#include <arpa/inet.h>

#include <array>

namespace inferwire::wire {
namespace {

constexpr std::uint8_t kProtocolTcp = 6;
constexpr std::size_t kIpv6HeaderBytes = 40;
constexpr std::size_t kTcpMinimumHeaderBytes = 20;

std::uint16_t read16(std::span<const std::uint8_t> bytes, std::size_t at) {
  return static_cast<std::uint16_t>((bytes[at] << 8) | bytes[at + 1]);
}

std::uint32_t read32(std::span<const std::uint8_t> bytes, std::size_t at) {
  return (static_cast<std::uint32_t>(read16(bytes, at)) << 16) | read16(bytes, at + 2);
}

std::string address_text(int family, const std::uint8_t* address) {
  std::array<char, INET6_ADDRSTRLEN> text{};
  inet_ntop(family, address, text.data(), text.size());
  return text.data();
}

struct IpView {
  int family = 0;
  std::size_t header_bytes = 0;
  std::size_t total_bytes = 0;  // by the header, which may be less than what was read
  std::size_t source_at = 0;
  std::size_t destination_at = 0;
};

std::optional<IpView> view_ip(std::span<const std::uint8_t> packet) {
  if (packet.empty()) return std::nullopt;
  const unsigned version = packet[0] >> 4;
  if (version == 4 && packet.size() >= 20) {
    const std::size_t header_bytes = (packet[0] & 0x0fU) * 4U;
    const bool fragment = (read16(packet, 6) & 0x3fffU) != 0;
    if (packet[9] != kProtocolTcp || fragment || header_bytes < 20) return std::nullopt;
    return IpView{AF_INET, header_bytes, read16(packet, 2), 12, 16};
  }
  if (version == 6 && packet.size() >= kIpv6HeaderBytes && packet[6] == kProtocolTcp) {
    return IpView{AF_INET6, kIpv6HeaderBytes, kIpv6HeaderBytes + read16(packet, 4), 8, 24};
  }
  return std::nullopt;
}

}  // namespace

std::optional<TcpView> view_tcp(std::span<const std::uint8_t> packet) {
  const auto ip = view_ip(packet);
  if (!ip || ip->total_bytes > packet.size()) return std::nullopt;
  if (ip->header_bytes + kTcpMinimumHeaderBytes > ip->total_bytes) return std::nullopt;
  const auto tcp = packet.subspan(ip->header_bytes);
  const std::size_t tcp_header_bytes = (tcp[12] >> 4) * 4U;
  const std::size_t payload_offset = ip->header_bytes + tcp_header_bytes;
  if (tcp_header_bytes < kTcpMinimumHeaderBytes || payload_offset > ip->total_bytes) {
    return std::nullopt;
  }
  TcpView view;
  view.source = address_text(ip->family, packet.data() + ip->source_at);
  view.destination = address_text(ip->family, packet.data() + ip->destination_at);
  view.source_port = read16(tcp, 0);
  view.destination_port = read16(tcp, 2);
  view.sequence = read32(tcp, 4);
  view.acknowledgment = read32(tcp, 8);
  view.flags = tcp[13];
  view.payload_offset = payload_offset;
  view.payload_bytes = ip->total_bytes - payload_offset;
  return view;
}

}  // namespace inferwire::wire
