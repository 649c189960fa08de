/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
 *
 * What the agent sets before load, the maps, and the counters of this object.
 */
#ifndef INFERWIRE_MAPS_H
#define INFERWIRE_MAPS_H

#include "inferwire/kernel_types.h"

#include <bpf/bpf_core_read.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>

#include "parser.h"

/* ---- Set by the agent before load ---- */

const volatile struct iw_routes routes = {}; /* FNV-1a of each route's path by id; 0 = unused */
struct iw_edges gap_edges = {}; /* upper edges of the gap histograms; not const: passed to global functions */
const volatile iw_u32 trace_deliveries = 0;
const volatile iw_u64 partial_interval_ns = 0; /* where no iterator works: active streams report this often */
const volatile iw_u32 abi_version = IW_ABI_VERSION;
const volatile iw_u64 jiffy_ns = 4000000;

/* ---- Maps ---- */

/* Every TCP connection and listener that was opened since the agent started, carried payload or was found by the walk.
 * A child begins with its listener's. What a packet of an ignored connection needs comes first. */
struct iw_socket {
	iw_u8 mode; /* IW_MODE_* */
	iw_u8 role;
	iw_u8 light; /* counted-only request waits for its answer */
	iw_u8 seen_http;
	iw_u8 misses[2];
	iw_u16 light_code;    /* of the answers in light_done */
	iw_u32 flags;	      /* IW_CONN_*, IW_SOCKET_* */
	iw_u32 rtt_next;      /* jiffies: no RTT sample before */
	iw_u32 rtt_stamp;     /* low bits of when the segment left whose RTT was sampled last */
	iw_u32 light_done;    /* not yet in `counts` */
	iw_u64 light_flushed; /* jiffies */
	iw_u64 syn_ns;
	iw_u64 established_ns;
	iw_u64 accepted_ns;
	iw_u64 owner_cgroup_id; /* of the process */
	iw_u64 cgroup_id;	/* of the socket */
	iw_u32 owner_pid;
	iw_u16 port; /* of the service */
	iw_u8 ttl;   /* of what came in */
	iw_u8 pad0;
	iw_u32 cut_ordinal; /* of the followed request at its end, with IW_SOCKET_FOLLOWED */
	iw_u32 cut_chunks;
	/* What of the kernel's own counts is in `tcp`. */
	iw_u32 segments[2];
	iw_u64 bytes[2];
	char comm[16];
};
#define IW_SOCKET_OPENED (1u << 16)   /* counted as opened */
#define IW_SOCKET_RESET (1u << 17)    /* its reset was counted */
#define IW_SOCKET_FORGED (1u << 18)   /* the RST that comes in is not from the peer */
#define IW_SOCKET_LOOPBACK (1u << 19) /* its packets come in by the loopback device */
#define IW_SOCKET_FOLLOWED (1u << 20) /* carried a followed request */
#define IW_SOCKET_CUT (1u << 21)      /* ... which was open when the connection closed */
#define IW_SOCKET_RST_IN (1u << 22)   /* an RST came in */
#define IW_LIGHT_MAX 256
#define IW_LIGHT_JIFFIES 25 /* 25 to 250 ms */
#define IW_MODE_NEW 0
#define IW_MODE_IGNORE 1
#define IW_MODE_FOLLOW 2
#define IW_MODE_LISTEN 3
#define IW_MISSES_MAX 64

/* Freed with the socket. */
struct {
	__uint(type, BPF_MAP_TYPE_SK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC | BPF_F_CLONE);
	__type(key, int);
	__type(value, struct iw_socket);
} sockets SEC(".maps");

/* One per listener that dropped something; freed with the socket. */
struct iw_listening {
	iw_u64 drops[IW_DROP_REASONS];
	iw_u64 cookies;
	iw_u64 told_ns;	  /* when the latest record was written */
	iw_u32 cookies_s; /* second of the latest cookie */
	iw_u32 reason;	  /* of the latest drop */
};
struct {
	__uint(type, BPF_MAP_TYPE_SK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct iw_listening);
} listening SEC(".maps");

/* Sums by owner, role and port. The agent takes differences. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 4096);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, struct iw_tcp_key);
	__type(value, struct iw_tcp_sums);
} tcp SEC(".maps");
const struct iw_tcp_sums no_sums = {};

/* Connections that this side closed first, or that were reset: what comes in for them still is answered by a reset,
 * without a socket. */
struct iw_closed {
	iw_u64 cookie;
	iw_u64 cgroup_id;
	iw_u64 established_ns;
	iw_u64 active_ns; /* latest data, either way */
	iw_u64 closed_ns;
	iw_u32 pid;
	iw_u16 port;
	iw_u8 role;
	iw_u8 idle;   /* nothing was asked that has not been answered */
	iw_u32 reset; /* its reset was counted: a connection has one */
	iw_u32 pad0;
	char comm[16];
};
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 4096);
	__type(key, struct iw_held_key);
	__type(value, struct iw_closed);
} closed SEC(".maps");

/* One per followed connection; freed with the socket. */
struct {
	__uint(type, BPF_MAP_TYPE_SK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct iw_flow);
} flows SEC(".maps");

/* One per followed connection on which something had to wait for its turn; freed with the socket. */
struct {
	__uint(type, BPF_MAP_TYPE_SK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct iw_holes);
} holes SEC(".maps");

/* Scratch windows: a program may be interrupted by another on the same CPU, so each claims a slot. Wiped after use. */
#define IW_SLOTS 8
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, IW_SLOTS);
	__type(key, iw_u32);
	__type(value, struct iw_window);
} slots SEC(".maps");

/* Copies of segments that came after a hole, on a listener, or with a checksum that did not fit. The least recently
 * used go first. */
struct iw_held {
	iw_u64 time_ns;
	iw_u32 bytes;
	iw_u32 pad0;
	iw_u8 payload[IW_WIN_BYTES];
};
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 2048);
	__type(key, struct iw_held_key);
	__type(value, struct iw_held);
} held SEC(".maps");

/* Room to build a copy; claimed like a slot. */
struct iw_held_slot {
	struct iw_held held;
	iw_u32 busy;
	iw_u32 pad0;
};
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 2);
	__type(key, iw_u32);
	__type(value, struct iw_held_slot);
} held_slots SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 8 << 20);
} records SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, iw_u32);
	__type(value, struct iw_stats);
} stats SEC(".maps");

/* Requests that are only counted. The agent reads and deletes. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 4096);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, struct iw_count_key);
	__type(value, struct iw_count);
} counts SEC(".maps");

iw_u32 followed = 0;	    /* flows that live: without any, hooks that only serve them leave at once */
iw_u32 listener_copies = 0; /* set once a listener has held payload: children look for it */

static __always_inline void add_stat(iw_u32 which, iw_u64 n)
{
	iw_u32 only = 0;
	struct iw_stats *all = bpf_map_lookup_elem(&stats, &only);

	if (all && which < IW_STAT_MAX)
		all->n[which] += n;
}

static __always_inline void count_stat(iw_u32 which) { add_stat(which, 1); }

#endif
