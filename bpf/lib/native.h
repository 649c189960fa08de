/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
 *
 * The packet programs' pure code, compiled natively: for unit tests, fuzzers and replay.
 */
#ifndef INFERWIRE_NATIVE_H
#define INFERWIRE_NATIVE_H

#include "state.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Receives a finished request's record. */
typedef void (*iw_emit_fn)(void *context, const struct iw_record *record);

/* Starts a flow. role: IW_ROLE_SERVER or IW_ROLE_CLIENT. */
void iw_native_init(struct iw_flow *flow, iw_u8 role);

/* Payload in order, of one packet, whose first byte has sequence number seq. edges_ns: ascending upper edges. */
void iw_native_payload(struct iw_flow *flow, iw_u32 direction, iw_u32 seq, const iw_u8 *bytes, iw_u32 count,
		       iw_u64 now_ns, const iw_u64 *edges_ns, iw_u32 edge_count, iw_emit_fn emit, void *context);

/* A cumulative acknowledgement came in; the application read up to seq. */
void iw_native_ack(struct iw_flow *flow, iw_u32 ack, iw_u64 now_ns, const iw_u64 *edges_ns, iw_u32 edge_count,
		   iw_emit_fn emit, void *context);
void iw_native_read(struct iw_flow *flow, iw_u32 seq, iw_u64 now_ns, iw_emit_fn emit, void *context);

/* Bytes up to seq will never be seen. */
void iw_native_missed(struct iw_flow *flow, iw_u32 direction, iw_u32 seq, iw_u64 now_ns);

/* FIN (reset = 0) or RST of a side, and the end of the connection. */
void iw_native_fin(struct iw_flow *flow, iw_u8 side, int reset, iw_u64 now_ns);
void iw_native_close(struct iw_flow *flow, iw_u64 now_ns, iw_emit_fn emit, void *context);

/* Hash of a route's path, as the kernel compares it. */
iw_u64 iw_native_route_hash(const char *path);
/* Adds a configured route (id >= IW_ROUTE_CONFIGURED). */
void iw_native_set_route(iw_u32 id, const char *path);

#ifdef __cplusplus
}
#endif
#endif
