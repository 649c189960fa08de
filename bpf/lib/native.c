/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
 *
 * Native build of the packet programs' pure code. The loops here stand for the bpf_loop calls of packet.bpf.c.
 */
#include "native.h"

#include <string.h>

#include "parser.h"

static void set_builtin_routes(void)
{
	static int done;

	if (done)
		return;
	done = 1;
#define SET(id, path) routes.hash[id] = iw_native_route_hash(path);
	IW_ROUTES(SET)
#undef SET
}

iw_u64 iw_native_route_hash(const char *path)
{
	iw_u64 h = 0xcbf29ce484222325ull;

	for (; *path; path++)
		h = (h ^ (iw_u8)*path) * 0x100000001b3ull;
	return h;
}

void iw_native_set_route(iw_u32 id, const char *path)
{
	set_builtin_routes();
	if (id < IW_ROUTE_MAX)
		routes.hash[id] = iw_native_route_hash(path);
}

void iw_native_init(struct iw_flow *flow, iw_u8 role)
{
	set_builtin_routes();
	memset(flow, 0, sizeof(*flow));
	flow->record.conn.role = role;
	flow->role = role;
}

static void edges_of(struct iw_edges *edges, const iw_u64 *edges_ns, iw_u32 count)
{
	memset(edges, 0, sizeof(*edges));
	if (count > IW_GAP_EDGES_MAX)
		count = IW_GAP_EDGES_MAX;
	memcpy(edges->le_ns, edges_ns, count * sizeof(*edges_ns));
	edges->count = count;
}

static void finish(struct iw_flow *flow, iw_u64 now_ns, iw_emit_fn emit, void *context)
{
	if (!flow->live || !flow->finish)
		return;
	iw_settle(flow, now_ns);
	if (emit)
		emit(context, &flow->record);
	iw_flow_next(flow);
}

void iw_native_payload(struct iw_flow *flow, iw_u32 direction, iw_u32 seq, const iw_u8 *bytes, iw_u32 count,
		       iw_u64 now_ns, const iw_u64 *edges_ns, iw_u32 edge_count, iw_emit_fn emit, void *context)
{
	struct iw_window window;
	struct iw_edges edges;

	edges_of(&edges, edges_ns, edge_count);
	memset(&window, 0, sizeof(window));
	window.direction = direction;
	window.now_ns = now_ns;
	flow->expected[direction & 1] = seq + count;
	while (count) {
		iw_u32 n = count < IW_WIN_BYTES ? count : IW_WIN_BYTES;
		iw_u32 steps = 0;
		int step;

		memcpy(window.buf + IW_WIN_ROOM, bytes, n);
		window.seq = seq;
		window.pos = IW_WIN_ROOM;
		window.end = IW_WIN_ROOM + n;
		window.segment_open = 0;
		window.learn = 0;
		while ((step = iw_step(flow, &window)) != IW_STEP_DONE && steps++ < 100000)
			if (step == IW_STEP_EMIT) {
				/* What this packet brought so far is of the request that ends. */
				iw_delivery(flow, &window, &edges);
				window.chunks = 0;
				window.opaque = 0;
				finish(flow, now_ns, emit, context);
			}
		bytes += n;
		seq += n;
		count -= n;
	}
	iw_delivery(flow, &window, &edges);
}

void iw_native_ack(struct iw_flow *flow, iw_u32 ack, iw_u64 now_ns, const iw_u64 *edges_ns, iw_u32 edge_count,
		   iw_emit_fn emit, void *context)
{
	struct iw_edges edges;

	edges_of(&edges, edges_ns, edge_count);
	iw_acknowledged(flow, ack, now_ns, &edges);
	finish(flow, now_ns, emit, context);
}

void iw_native_read(struct iw_flow *flow, iw_u32 seq, iw_u64 now_ns, iw_emit_fn emit, void *context)
{
	iw_read(flow, seq, now_ns);
	finish(flow, now_ns, emit, context);
}

void iw_native_missed(struct iw_flow *flow, iw_u32 direction, iw_u32 seq, iw_u64 now_ns)
{
	iw_missed(flow, direction, seq, now_ns);
}

/* A body without a length ends with the server's FIN. */
static void close_body(struct iw_flow *flow, iw_u64 now_ns)
{
	iw_u32 direction = !iw_request_direction(flow);
	struct iw_parser *parser = iw_parser_of(flow, direction);
	struct iw_window window;
	struct iw_edges edges;

	if (parser->state != IW_P_CLOSE)
		return;
	parser->state = IW_P_FLUSH;
	memset(&edges, 0, sizeof(edges));
	memset(&window, 0, sizeof(window));
	window.direction = direction;
	window.now_ns = now_ns;
	window.seq = flow->expected[direction];
	window.pos = IW_WIN_ROOM;
	window.end = IW_WIN_ROOM;
	while (iw_step(flow, &window) != IW_STEP_DONE)
		;
	iw_delivery(flow, &window, &edges);
}

void iw_native_fin(struct iw_flow *flow, iw_u8 side, int reset, iw_u64 now_ns)
{
	if (side == IW_SIDE_SERVER && !reset)
		close_body(flow, now_ns);
	iw_fin(flow, side, (iw_u32)reset, now_ns);
}

void iw_native_close(struct iw_flow *flow, iw_u64 now_ns, iw_emit_fn emit, void *context)
{
	while (flow->live) {
		flow->finish = 1;
		finish(flow, now_ns, emit, context);
	}
}
