// SPDX-License-Identifier: Apache-2.0
#include "agent/capture/walk.h"

#include <algorithm>
#include <cstring>

namespace inferwire::capture {
namespace {

// Of a structure in the walk: where WalkReader::seen_ keeps it, and its cookie.
struct Place {
  std::size_t set;
  std::size_t cookie_offset;
};

bool place_of(std::uint32_t kind, Place& place) {
  switch (kind) {
    case IW_REC_IDLE:  // a request may begin or end between two looks at one connection
    case IW_REC_PARTIAL:
      place = {0, offsetof(iw_record, conn) + offsetof(iw_conn, cookie)};
      return true;
    case IW_REC_LISTENER:
      place = {1, offsetof(iw_listener, cookie)};
      return true;
    case IW_REC_SOCKET:
      place = {2, offsetof(iw_socket_state, cookie)};
      return true;
    default:
      return false;
  }
}

}  // namespace

std::size_t record_size(std::uint32_t kind) {
  switch (kind) {
    case IW_REC_IDLE:
    case IW_REC_FINAL:
    case IW_REC_PARTIAL:
      return sizeof(iw_record);
    case IW_REC_DELIVERY:
      return sizeof(iw_delivery);
    case IW_REC_RESET:
      return sizeof(iw_reset);
    case IW_REC_LISTEN_DROP:
    case IW_REC_LISTENER:
      return sizeof(iw_listener);
    case IW_REC_SOCKET:
      return sizeof(iw_socket_state);
    default:
      return 0;
  }
}

bool WalkReader::feed(std::span<const std::byte> bytes) {
  rest_.insert(rest_.end(), bytes.begin(), bytes.end());
  std::size_t at = 0;
  bool sound = true;
  while (sound && rest_.size() - at >= sizeof(iw_header)) {
    iw_header header;
    std::memcpy(&header, rest_.data() + at, sizeof header);
    sound = header.size_bytes == record_size(header.kind) && header.size_bytes != 0;
    if (!sound || rest_.size() - at < header.size_bytes) break;
    sound = take(std::span(rest_).subspan(at, header.size_bytes));
    at += header.size_bytes;
  }
  if (!sound) at = rest_.size();
  rest_.erase(rest_.begin(), rest_.begin() + static_cast<std::ptrdiff_t>(at));
  return sound;
}

bool WalkReader::take(std::span<std::byte> record) {
  iw_header header;
  std::memcpy(&header, record.data(), sizeof header);
  Place place{};
  if (!place_of(header.kind, place)) return false;
  std::uint64_t cookie = 0;
  std::memcpy(&cookie, record.data() + place.cookie_offset, sizeof cookie);
  if (!seen_[place.set].insert(cookie).second) return true;
  header.time_ns = time_ns_;
  std::memcpy(record.data(), &header, sizeof header);
  sink_(header, record);
  return true;
}

}  // namespace inferwire::capture
