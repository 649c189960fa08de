// SPDX-License-Identifier: Apache-2.0
// How a request's time is cut into phases.
//
//   role    phase           ends when
//   server  upload          the last request byte has come in (early answer: the last one before it)
//           accept_wait     the connection is accepted
//           read_wait       the application has read the request's last byte
//           server          first content is handed to TCP
//           hold            first content is transmitted
//           first_delivery  first content is acknowledged
//           stream          the end marker is handed to TCP
//           drain           the last byte is acknowledged
//   client  send            the last request byte is acknowledged
//           wait            first content has come in
//           first_read      it is read
//           stream          the end marker has come in
//           drain           it is read
//
// Each cut is at the later of its own mark and the previous cut, and at the latest at the end, so the phases add up to
// the duration exactly. Without a stream, first content is the first response byte. Four cases are no plain cut:
//   - a mark that is not known: its phase is in `missing`, and its time is in the next phase. One exception: when only
//     the hand-over to TCP is not known, `hold` is missing and `server` lasts until the transmission, because a server
//     that thinks must not look like a kernel that holds data back.
//   - an early answer: `upload` ends with the answer at the latest, and a read after the answer is not counted.
//   - the request ended (or is) in a phase: that phase takes the rest, later ones are empty and not in `missing`.
//   - a stream ended without any content: `server` lasts until its end marker; hold, first_delivery and stream are
//     empty.
#pragma once

#include <array>
#include <cstdint>
#include <optional>

#include "inferwire/event_abi.h"

namespace inferwire::model {

struct Phases {
  std::uint64_t start_ns = 0;
  std::uint64_t end_ns = 0;                                    // never before start_ns
  std::array<std::optional<std::uint64_t>, IW_PHASES_MAX> ns;  // by IW_PHASE_*; add up to end_ns - start_ns
  std::uint32_t missing = 0;                                   // bit IW_PHASE_*
};

// `reads_seen`: the kernel program that times reads works. `now_ns` counts for open requests only.
Phases cut_into_phases(const iw_record& record, bool final, bool reads_seen, std::uint64_t now_ns);

// First content (see above). 0 = not yet, never, or not known.
struct FirstContent {
  std::uint64_t handed_ns;     // server: given to TCP
  std::uint64_t wire_ns;       // transmitted; client: came in
  std::uint64_t delivered_ns;  // acknowledged; client: read
};
FirstContent first_content(const iw_request& request);

}  // namespace inferwire::model
