// SPDX-License-Identifier: Apache-2.0
#include "tests/unit/stream/connection.h"

#include <algorithm>

namespace inferwire::stream_test {

namespace {

void keep(void* context, const iw_record* record) { static_cast<std::vector<iw_record>*>(context)->push_back(*record); }

}  // namespace

Pieces whole() {
  return [](std::size_t left) { return left; };
}

Pieces pieces_of(std::size_t bytes) {
  return [bytes](std::size_t) { return bytes; };
}

Pieces first_then_whole(std::size_t first) {
  return [first, done = false](std::size_t left) mutable {
    if (done || first == 0) return left;
    done = true;
    return first;
  };
}

Pieces random_pieces(std::uint32_t seed, std::size_t max) {
  return [engine = std::mt19937(seed), max](std::size_t left) mutable {
    if (engine() % 16 == 0) return left;
    return 1 + engine() % max;
  };
}

std::vector<std::uint64_t>& gap_edges_ns() {
  static std::vector<std::uint64_t> edges{kMillisecond, 10 * kMillisecond, 100 * kMillisecond, kSecond};
  return edges;
}

Connection::Connection(Role role) : role_(role), flow_(std::make_unique<iw_flow>()) {
  iw_native_init(flow_.get(), static_cast<iw_u8>(role));
}

std::uint32_t Connection::direction(bool from_client) const {
  return from_client == (role_ == Role::kServer) ? IW_IN : IW_OUT;
}

void Connection::set_seq(std::uint32_t request, std::uint32_t response) {
  seq_[0] = request;
  seq_[1] = response;
}

void Connection::say(bool from_client, std::string_view bytes, const Pieces& how) {
  std::uint32_t& seq = seq_[from_client ? 0 : 1];
  while (!bytes.empty()) {
    const std::size_t n = std::clamp<std::size_t>(how(bytes.size()), 1, bytes.size());
    // An exact copy: the sanitizer sees any read beyond the packet.
    const std::vector<iw_u8> packet(bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(n));
    iw_native_payload(flow_.get(), direction(from_client), seq, packet.data(), static_cast<iw_u32>(n), now_ns,
                      gap_edges_ns().data(), static_cast<iw_u32>(gap_edges_ns().size()), keep, &records);
    seq += static_cast<std::uint32_t>(n);
    bytes.remove_prefix(n);
    now_ns += per_packet_ns;
  }
}

void Connection::lose(bool from_client, std::uint32_t bytes) {
  std::uint32_t& seq = seq_[from_client ? 0 : 1];
  const std::uint32_t d = direction(from_client);
  flow_->expected[d] = seq;
  seq += bytes;
  iw_native_missed(flow_.get(), d, seq, now_ns);
}

void Connection::acknowledge() {
  if (role_ == Role::kServer) {
    ack_to(seq_[1]);
  } else {
    ack_to(seq_[0]);
    read_to(seq_[1]);
  }
}

void Connection::ack_to(std::uint32_t seq) {
  iw_native_ack(flow_.get(), seq, now_ns, gap_edges_ns().data(), static_cast<iw_u32>(gap_edges_ns().size()), keep,
                &records);
}

void Connection::read_to(std::uint32_t seq) { iw_native_read(flow_.get(), seq, now_ns, keep, &records); }

void Connection::close() { iw_native_close(flow_.get(), now_ns, keep, &records); }

}  // namespace inferwire::stream_test
