// SPDX-License-Identifier: Apache-2.0
// The generated skeleton of packet.bpf.c, and the two types that its variables have (bpf/lib/parser.h, flow.h: C only).
#pragma once

#include "inferwire/event_abi.h"

struct iw_routes {
  iw_u64 hash[IW_ROUTE_MAX];
};

struct iw_edges {
  iw_u64 le_ns[IW_GAP_EDGES_MAX];
  iw_u32 count;
  iw_u32 pad0;
};

#include "packet.skel.h"
