// SPDX-License-Identifier: Apache-2.0
// One TCP connection as the stream state machine sees it: a test speaks both sides, cuts the bytes into packets as it
// likes, acknowledges, loses and closes, and reads the records of the requests that ended.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "bpf/lib/native.h"

namespace inferwire::stream_test {

enum class Role : std::uint8_t { kServer = IW_ROLE_SERVER, kClient = IW_ROLE_CLIENT };

/// Sizes of successive packets: given what is left, how many bytes go next (at least 1).
using Pieces = std::function<std::size_t(std::size_t left)>;

Pieces whole();
Pieces pieces_of(std::size_t bytes);
Pieces first_then_whole(std::size_t first);
/// Uniform between 1 and max, or mostly small ones with now and then a large one.
Pieces random_pieces(std::uint32_t seed, std::size_t max);

inline constexpr std::uint64_t kMicrosecond = 1'000;
inline constexpr std::uint64_t kMillisecond = 1'000'000;
inline constexpr std::uint64_t kSecond = 1'000'000'000;

class Connection {
 public:
  explicit Connection(Role role = Role::kServer);

  /// Bytes from the client to the server, and from the server to the client, in packets of `pieces`.
  void request(std::string_view bytes) { say(true, bytes, pieces); }
  void response(std::string_view bytes) { say(false, bytes, pieces); }
  /// The server role's socket has every response byte acknowledged; the client's application has read them.
  void acknowledge();
  /// Bytes of one side that the agent never sees.
  void lose_request(std::uint32_t bytes) { lose(true, bytes); }
  void lose_response(std::uint32_t bytes) { lose(false, bytes); }

  void server_fin() { iw_native_fin(&flow(), IW_SIDE_SERVER, 0, now_ns); }
  void client_fin() { iw_native_fin(&flow(), IW_SIDE_CLIENT, 0, now_ns); }
  void server_reset() { iw_native_fin(&flow(), IW_SIDE_SERVER, 1, now_ns); }
  void client_reset() { iw_native_fin(&flow(), IW_SIDE_CLIENT, 1, now_ns); }
  void close();

  /// The server role's ACK up to a sequence number, or the client's application read.
  void ack_to(std::uint32_t seq);
  void read_to(std::uint32_t seq);
  void wait(std::uint64_t ns) { now_ns += ns; }

  std::uint32_t request_seq() const { return seq_[0]; }
  std::uint32_t response_seq() const { return seq_[1]; }
  void set_seq(std::uint32_t request, std::uint32_t response);

  iw_flow& flow() { return *flow_; }
  /// The request now open.
  const iw_request& open() const { return flow_->record.request; }
  bool is_open() const { return flow_->live != 0; }

  std::vector<iw_record> records;
  Pieces pieces = whole();
  /// Time of the next packet; a packet takes no time, `per_packet_ns` passes after it.
  std::uint64_t now_ns = 1'000 * kSecond;
  std::uint64_t per_packet_ns = 0;

 private:
  void say(bool from_client, std::string_view bytes, const Pieces& how);
  void lose(bool from_client, std::uint32_t bytes);
  std::uint32_t direction(bool from_client) const;

  Role role_;
  std::unique_ptr<iw_flow> flow_;
  std::uint32_t seq_[2] = {1'000, 900'000};  ///< next sequence number: client's, server's
};

/// Upper edges of the gap histograms in these tests: 1 ms, 10 ms, 100 ms, 1 s.
std::vector<std::uint64_t>& gap_edges_ns();

}  // namespace inferwire::stream_test
