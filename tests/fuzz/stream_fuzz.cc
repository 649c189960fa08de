// SPDX-License-Identifier: Apache-2.0
// Anything that may happen on a connection, in any order: bytes of both sides in packets of any size, acknowledgements,
// reads, holes, FINs and resets, the end. Nothing may break and every record must make sense.
//
// Input: one byte of flags (1: client role, 2: sequence numbers about to wrap), then steps: a byte whose low four bits
// say what happens, and two bytes n (little endian).
//   0-2   n request bytes follow, cut as the high bits say
//   3-6   n response bytes follow, cut as the high bits say
//   7     n response bytes follow, one packet each
//   8, 9  all but n bytes acknowledged, read
//   10,11 n bytes of the request, of the response lost
//   12,15 n microseconds, n milliseconds pass
//   13    FIN (n & 1: the server's; n & 2: RST instead)
//   14    the connection closes
#include <algorithm>
#include <memory>
#include <span>
#include <vector>

#include "tests/fuzz/stream_checks.h"

namespace {

using inferwire::fuzz::check_flow;
using inferwire::fuzz::check_record;

constexpr iw_u64 kEdges[] = {1'000'000, 10'000'000, 100'000'000, 1'000'000'000};

class Wire {
 public:
  explicit Wire(std::uint8_t flags) : flow_(std::make_unique<iw_flow>()) {
    client_ = flags & 1;
    if (flags & 2) seq_[0] = seq_[1] = 0xffffff00u;
    iw_native_init(flow_.get(), client_ ? IW_ROLE_CLIENT : IW_ROLE_SERVER);
  }

  void say(bool from_client, std::span<const std::uint8_t> bytes, std::size_t packet) {
    while (!bytes.empty()) {
      const std::size_t n = std::min(packet, bytes.size());
      const std::vector<iw_u8> exact(bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(n));
      auto& seq = seq_[from_client ? 0 : 1];
      iw_native_payload(flow_.get(), direction(from_client), seq, exact.data(), static_cast<iw_u32>(n), now_ns_, kEdges,
                        std::size(kEdges), keep, this);
      seq += static_cast<iw_u32>(n);
      bytes = bytes.subspan(n);
      now_ns_ += 1000;
      check_flow(*flow_);
    }
  }
  void lose(bool from_client, iw_u32 n) {
    auto& seq = seq_[from_client ? 0 : 1];
    flow_->expected[direction(from_client)] = seq;
    seq += n;
    iw_native_missed(flow_.get(), direction(from_client), seq, now_ns_);
  }
  void acknowledge(iw_u32 but) {
    iw_native_ack(flow_.get(), seq_[client_ ? 0 : 1] - but, now_ns_, kEdges, std::size(kEdges), keep, this);
  }
  void read(iw_u32 but) { iw_native_read(flow_.get(), seq_[client_ ? 1 : 0] - but, now_ns_, keep, this); }
  void fin(iw_u32 n) { iw_native_fin(flow_.get(), n & 1 ? IW_SIDE_SERVER : IW_SIDE_CLIENT, (n & 2) != 0, now_ns_); }
  void wait(std::uint64_t ns) { now_ns_ += ns; }
  void close() {
    iw_native_close(flow_.get(), now_ns_, keep, this);
    check_flow(*flow_);
    IW_REQUIRE(!flow_->live);
  }
  void check() const { check_flow(*flow_); }

 private:
  iw_u32 direction(bool from_client) const { return from_client == client_ ? IW_OUT : IW_IN; }
  static void keep(void* context, const iw_record* record) {
    check_record(*record, static_cast<Wire*>(context)->now_ns_);
  }

  std::unique_ptr<iw_flow> flow_;
  bool client_ = false;
  iw_u32 seq_[2] = {1, 1'000'000};
  std::uint64_t now_ns_ = 1'000'000'000'000;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* input, std::size_t size) {
  if (size < 1) return 0;
  std::span<const std::uint8_t> left(input, size);
  Wire wire(left[0]);
  left = left.subspan(1);
  while (left.size() >= 3) {
    const unsigned what = left[0] & 15, how = left[0] >> 4;
    const iw_u32 n = left[1] | static_cast<iw_u32>(left[2]) << 8;
    left = left.subspan(3);
    switch (what) {
      case 8:
        wire.acknowledge(n);
        break;
      case 9:
        wire.read(n);
        break;
      case 10:
      case 11:
        wire.lose(what == 10, n);
        break;
      case 12:
        wire.wait(std::uint64_t{n} * 1'000);
        break;
      case 13:
        wire.fin(n);
        break;
      case 14:
        wire.close();
        break;
      case 15:
        wire.wait(std::uint64_t{n} * 1'000'000);
        break;
      default: {
        const std::size_t bytes = std::min<std::size_t>(n, left.size());
        const std::size_t packet = what == 7 ? 1 : how == 0 ? bytes : how * how * 8u;
        wire.say(what <= 2, left.first(bytes), std::max<std::size_t>(packet, 1));
        left = left.subspan(bytes);
      }
    }
    wire.check();
  }
  wire.close();
  return 0;
}
