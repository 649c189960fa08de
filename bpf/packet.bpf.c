/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
 *
 * The packet path: every TCP packet of the sockets under the root cgroup, both ways, and the few hooks that give the
 * marks which packets cannot (accept, read, hand-over of held data, retransmission, state).
 *
 * Every program only observes: the packet programs always return "pass".
 *
 * State per socket: `sockets` (small, every TCP connection) says whether and how the connection is followed; `flows`
 * (parser.h, flow.h) exists for connections that carried a request worth parsing. Both die with the socket.
 *
 * Who writes what. Egress of a socket runs under its lock, so the outgoing direction has one writer. Ingress runs
 * without it and takes flow.lock. Marks of a request are written by one direction each. A finished request is claimed
 * by compare-and-swap on flow.live, so it leaves exactly once.
 */
#include "maps.h"
#include "packet.h"
#include "tcp.h"
#include "listen.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

/* ---- Scratch windows ---- */

static __always_inline struct iw_window *claim_window(void)
{
	iw_u32 i, key;

	for (i = 0; i < IW_SLOTS; i++) {
		struct iw_window *w;

		key = i;
		w = bpf_map_lookup_elem(&slots, &key);
		if (w && __sync_val_compare_and_swap(&w->busy, 0, 1) == 0)
			return w;
	}
	count_stat(IW_STAT_NO_SLOT);
	return 0;
}

/* Zeroes what was read into the window, from `at` on. */
__attribute__((noinline)) int wipe_window(struct iw_window *w, iw_u32 at)
{
	iw_u32 i;

	if (!w)
		return 0;
	for (i = 0; i < (IW_CARRY + IW_WIN_BYTES) / 64 + 1; i++) {
		iw_u8 *to = &w->buf[at & (IW_WIN_SIZE - 1)];

		iw_store64(to, 0);
		iw_store64(to + 8, 0);
		iw_store64(to + 16, 0);
		iw_store64(to + 24, 0);
		iw_store64(to + 32, 0);
		iw_store64(to + 40, 0);
		iw_store64(to + 48, 0);
		iw_store64(to + 56, 0);
		at += 64;
		if (at >= w->end)
			break;
	}
	return 0;
}

static __always_inline void release_window(struct iw_window *w)
{
	wipe_window(w, IW_WIN_ROOM - IW_CARRY);
	w->busy = 0;
}

/* ---- Checksums ---- */

static __always_inline iw_u32 fold(iw_u64 sum)
{
	sum = (sum & 0xffffffff) + (sum >> 32);
	sum = (sum & 0xffffffff) + (sum >> 32);
	sum = (sum & 0xffff) + (sum >> 16);
	sum = (sum & 0xffff) + (sum >> 16);
	sum = (sum & 0xffff) + (sum >> 16);
	return (iw_u32)sum;
}

/* Sum of the payload in the window, which ends at w->end. */
__attribute__((noinline)) iw_u64 sum_window(struct iw_window *w)
{
	iw_u64 sum = 0;
	iw_u32 i, at = IW_WIN_ROOM;

	if (!w)
		return 0;
	iw_store64(&w->buf[w->end & (IW_WIN_SIZE - 1)], 0); /* the last word is filled up with zeros */
	for (i = 0; i < IW_WIN_BYTES / 8; i++) {
		iw_u64 x;

		if (at >= w->end)
			break;
		x = IW_LOAD(w, at);
		sum += (x & 0xffffffff) + (x >> 32);
		at += 8;
	}
	return sum;
}

/* ---- Emitting ---- */

static __always_inline iw_u16 count_port(const struct iw_conn *c)
{
	return c->role == IW_ROLE_SERVER ? c->local_port : c->remote_port;
}

__attribute__((noinline)) int count_request(struct iw_flow *f)
{
	struct iw_count_key key = {};
	struct iw_count fresh = {}, *count;
	struct iw_request *r;
	struct iw_conn *c;

	if (!f)
		return 0;
	r = &f->record.request;
	c = &f->record.conn;
	key.cgroup_id = c->owner_cgroup_id ? c->owner_cgroup_id : c->socket_cgroup_id;
	key.pid = c->owner_pid;
	key.port = count_port(c);
	key.code = r->code;
	key.role = c->role;
	key.route = r->head.route;
	key.outcome = r->outcome;
	count = bpf_map_lookup_elem(&counts, &key);
	if (!count) {
		__builtin_memcpy(fresh.comm, c->comm, sizeof(fresh.comm));
		bpf_map_update_elem(&counts, &key, &fresh, BPF_NOEXIST);
		count = bpf_map_lookup_elem(&counts, &key);
		if (!count) {
			count_stat(IW_STAT_COUNTS_FULL);
			return 0;
		}
	}
	__sync_fetch_and_add(&count->requests, 1);
	__sync_fetch_and_add(&count->chunks, r->chunks);
	if (r->tokens_output != ~0u)
		__sync_fetch_and_add(&count->tokens_output, r->tokens_output);
	if (r->tokens_input != ~0u)
		__sync_fetch_and_add(&count->tokens_input, r->tokens_input);
	return 0;
}

/* Writes the record. Returns 0 if it was taken. */
__attribute__((noinline)) int write_record(struct iw_flow *f, iw_u32 kind)
{
	long err;

	if (!f)
		return 0;
	f->record.header.kind = kind;
	f->record.header.size_bytes = sizeof(f->record);
	f->record.header.time_ns = bpf_ktime_get_ns();
	count_stat(IW_STAT_RECORDS_SEEN + (kind & 7));
	err = bpf_ringbuf_output(&records, &f->record, sizeof(f->record), BPF_RB_NO_WAKEUP);
	if (err)
		count_stat(IW_STAT_RECORDS_LOST + (kind & 7));
	return (int)err;
}

/* Lets a finished request go. */
__attribute__((noinline)) int emit(struct iw_flow *f)
{
	struct iw_request *r;

	if (!f || !f->finish)
		return 0;
	if (__sync_val_compare_and_swap(&f->live, 1, 2) != 1)
		return 0;
	r = &f->record.request;
	iw_settle(f, bpf_ktime_get_ns());
	if (r->head.route == IW_ROUTE_OTHER && !r->stream) {
		count_request(f);
	} else {
		count_stat(IW_STAT_REQUESTS_FINISHED);
		if (write_record(f, IW_REC_FINAL))
			count_request(f);
	}
	iw_flow_next(f);
	return 0;
}

/* Types that only the stack has are not in BTF; this puts them there, since their layout is part of the interface. */
const struct iw_delivery *delivery_layout = 0;
const struct iw_reset *reset_layout = 0;
const struct iw_listener *listener_layout = 0;
const struct iw_socket_state *socket_state_layout = 0;

static __always_inline void trace(struct iw_flow *f, iw_u32 chunks, iw_u8 view, iw_u64 at_ns)
{
	struct iw_delivery d = {};

	d.header.kind = IW_REC_DELIVERY;
	d.header.size_bytes = sizeof(d);
	d.header.time_ns = at_ns;
	d.cookie = f->record.conn.cookie;
	d.ordinal = f->record.request.head.ordinal;
	d.chunks = chunks;
	d.role = f->role;
	d.view = view;
	count_stat(IW_STAT_RECORDS_SEEN + IW_REC_DELIVERY);
	if (bpf_ringbuf_output(&records, &d, sizeof(d), BPF_RB_NO_WAKEUP))
		count_stat(IW_STAT_RECORDS_LOST + IW_REC_DELIVERY);
}

/* Bounds a byte count to 1..IW_WIN_BYTES in a way that every promised kernel's verifier follows (6.1 does not learn
 * "not zero" from a comparison). Returns 0 if it is outside. */
static __always_inline int bound_bytes(iw_u32 *bytes)
{
	iw_u32 less = *bytes - 1;

	if (less > IW_WIN_BYTES - 1)
		return 0;
	asm volatile("" : "+r"(less)); /* the compiler forgets, so that what follows stays */
	less &= IW_WIN_SIZE - 1;
	if (less > IW_WIN_BYTES - 1)
		return 0;
	*bytes = less + 1;
	return 1;
}

/* ---- Feeding payload to the state machine ---- */

/* What the loops below work on. Everything else is in the window, since the stack is small. */
struct feed {
	struct __sk_buff *skb;
	struct iw_flow *f;
	struct iw_window *w;
	struct iw_holes *holes; /* 0: nothing waits */
};

/* TTFT is known: it is reported at once. */
static __always_inline void first_chunk(struct iw_flow *f)
{
	iw_flag(&f->record.request.head, IW_REQ_FIRST_SENT);
	f->first_sent = 1;
	write_record(f, IW_REC_PARTIAL);
}

/* What a run of windows brought to the current request. */
static __noinline int close_window(struct iw_flow *f, struct iw_window *w)
{
	struct iw_request *r = &f->record.request;

	if (w->not_http)
		count_stat(IW_STAT_NOT_HTTP);
	if (!w->chunks && !w->opaque)
		return 0;
	iw_delivery(f, w, &gap_edges);
	add_stat(IW_STAT_CHUNKS, w->chunks);
	count_stat(IW_STAT_DELIVERIES);
	if (trace_deliveries)
		trace(f, w->chunks, f->role == IW_ROLE_SERVER ? IW_VIEW_SENT : IW_VIEW_DELIVERED, r->last_content_ns);
	if (f->role == IW_ROLE_CLIENT && !f->first_sent)
		first_chunk(f);
	else if (partial_interval_ns && w->now_ns - f->record.header.time_ns > partial_interval_ns && f->first_sent)
		write_record(f, IW_REC_PARTIAL);
	return 0;
}

#define IW_STEPS 768   /* for one window */
#define IW_WINDOWS 400 /* for one packet: they may be half a megabyte (BIG TCP) */
#define IW_PIECES 500  /* kept pieces that one packet may release */

static long step_once(iw_u32 index, struct feed *feed)
{
	int step = iw_step(feed->f, feed->w);

	if (step == IW_STEP_EMIT) {
		/* What this packet brought so far is of the request that ends. */
		close_window(feed->f, feed->w);
		feed->w->chunks = 0;
		feed->w->opaque = 0;
		emit(feed->f);
	}
	return step == IW_STEP_DONE;
}

/* Runs the machine over what is left of the window. */
static __always_inline void run_steps(struct feed *feed, iw_u32 bytes)
{
	struct iw_window *w = feed->w;

	w->segment_open = 0;
	w->final = 0;
	w->learn = 0;
	bpf_loop(IW_STEPS, step_once, feed, 0);
	if (w->pos < w->end) {
		count_stat(IW_STAT_OVERLONG);
		feed->f->expected[w->direction & 1] = w->feed_seq + (w->pos - IW_WIN_ROOM);
		iw_missed(feed->f, w->direction, w->feed_seq + bytes, w->now_ns);
	}
}

/* Runs the machine over what is in the window. */
static __always_inline void run_window(struct feed *feed, iw_u32 bytes)
{
	struct iw_window *w = feed->w;

	w->seq = w->feed_seq;
	w->pos = IW_WIN_ROOM;
	w->end = IW_WIN_ROOM + bytes;
	run_steps(feed, bytes);
}

static long feed_window(iw_u32 index, struct feed *feed)
{
	struct iw_window *w = feed->w;
	iw_u32 bytes = w->feed_left, skip;

	if (!bytes)
		return 1;
	skip = iw_skippable(feed->f, w->direction, bytes);
	if (skip) {
		/* A body that nobody looks at. */
		struct iw_parser *p = iw_parser_of(feed->f, w->direction);

		w->seq = w->feed_seq;
		w->pos = IW_WIN_ROOM;
		if (p->state != IW_P_DEAD)
			iw_skip_body(feed->f, w, p, skip);
		w->feed_offset += skip;
		w->feed_seq += skip;
		w->feed_left -= skip;
		return !w->feed_left;
	}
	if (bytes > IW_WIN_BYTES)
		bytes = IW_WIN_BYTES;
	if (!bound_bytes(&bytes))
		return 1;
	if (bpf_skb_load_bytes(feed->skb, w->feed_offset, w->buf + IW_WIN_ROOM, bytes)) {
		count_stat(IW_STAT_RESYNC);
		feed->f->expected[w->direction & 1] = w->feed_seq;
		iw_missed(feed->f, w->direction, w->feed_seq + w->feed_left, w->now_ns);
		w->feed_left = 0;
		return 1;
	}
	if (w->feed_sum) {
		w->end = IW_WIN_ROOM + bytes;
		if (fold((iw_u64)w->feed_sum + sum_window(w)) != 0xffff) {
			w->feed_bad = 1;
			return 1;
		}
	}
	run_window(feed, bytes);
	w->feed_offset += bytes;
	w->feed_seq += bytes;
	w->feed_left -= bytes;
	return 0;
}

/* Feeds the packet, or what is left of it, window by window. */
static __always_inline void feed_packet(struct feed *feed)
{
	struct iw_window *w = feed->w;

	bpf_loop(IW_WINDOWS, feed_window, feed, 0);
	if (w->feed_left && !w->feed_bad) {
		count_stat(IW_STAT_OVERLONG);
		feed->f->expected[w->direction & 1] = w->feed_seq;
		iw_missed(feed->f, w->direction, w->feed_seq + w->feed_left, w->now_ns);
		w->feed_left = 0;
	}
}

static __always_inline void open_window(struct iw_window *w, iw_u32 direction, iw_u64 now_ns)
{
	w->direction = direction;
	w->now_ns = now_ns;
	w->pos = IW_WIN_ROOM;
	w->end = IW_WIN_ROOM;
	w->chunks = 0;
	w->opaque = 0;
	w->not_http = 0;
	w->last_content_seq = 0;
	w->feed_left = 0;
	w->feed_sum = 0;
	w->feed_bad = 0;
}

/* ---- Segments that have to wait ---- */

static __always_inline void held_key(struct iw_held_key *key, const struct iw_flow *f, iw_u32 seq)
{
	const struct iw_conn *c = &f->record.conn;

	__builtin_memset(key, 0, sizeof(*key));
	__builtin_memcpy(key->local, c->local_addr, 16);
	__builtin_memcpy(key->remote, c->remote_addr, 16);
	key->netns = f->netns;
	key->seq = seq;
	key->local_port = c->local_port;
	key->remote_port = c->remote_port;
}

static __always_inline struct iw_held_slot *claim_held(void)
{
	iw_u32 i, key;

	for (i = 0; i < 2; i++) {
		struct iw_held_slot *s;

		key = i;
		s = bpf_map_lookup_elem(&held_slots, &key);
		if (s && __sync_val_compare_and_swap(&s->busy, 0, 1) == 0)
			return s;
	}
	count_stat(IW_STAT_NO_SLOT);
	return 0;
}

static __always_inline int keep_copy(struct __sk_buff *skb, struct iw_held_key *key, iw_u32 offset, iw_u32 bytes,
				     iw_u64 now_ns)
{
	struct iw_held_slot *s;
	int err;

	s = claim_held();
	if (!s)
		return -1;
	s->held.time_ns = now_ns;
	s->held.bytes = bytes;
	err = bound_bytes(&bytes) ? bpf_skb_load_bytes(skb, offset, s->held.payload, bytes) : -1;
	if (!err)
		err = bpf_map_update_elem(&held, key, &s->held, BPF_NOEXIST);
	s->busy = 0;
	return err;
}

struct keep {
	struct __sk_buff *skb;
	struct iw_flow *f;
	iw_u32 offset;
	iw_u32 left;
	iw_u32 seq;
	iw_u32 failed;
	iw_u64 now_ns;
};

static long keep_piece(iw_u32 index, struct keep *k)
{
	struct iw_held_key key;
	iw_u32 bytes = k->left;

	if (!bytes)
		return 1;
	if (bytes > IW_WIN_BYTES)
		bytes = IW_WIN_BYTES;
	held_key(&key, k->f, k->seq);
	if (keep_copy(k->skb, &key, k->offset, bytes, k->now_ns)) {
		k->failed = 1; /* may also be there already: a duplicate of a waiting segment */
	}
	k->offset += bytes;
	k->seq += bytes;
	k->left -= bytes;
	return 0;
}

/* Keeps a segment that cannot be parsed yet. */
static __noinline int hold_segment(struct __sk_buff *skb, struct iw_flow *f, struct iw_holes *holes, struct packet *p,
				   iw_u32 flags)
{
	iw_u64 now_ns = bpf_ktime_get_ns();
	struct keep k = {};
	struct iw_range *free_range = 0;
	iw_u32 i, offset = p->offset, bytes = p->bytes, start = p->seq, end = start + bytes;

	if (!holes) {
		count_stat(IW_STAT_HOLE_DROPPED);
		return 0;
	}
	for (i = 0; i < IW_RANGES; i++) {
		struct iw_range *r = &holes->ranges[i];

		if (r->start == r->end) {
			free_range = r;
			continue;
		}
		if (r->flags & IW_RANGE_SUSPECT || flags & IW_RANGE_SUSPECT)
			continue;
		if (iw_reached(start, r->start) && iw_reached(r->end, end))
			return 0; /* is waiting already */
		if (r->end == start || r->start == end) {
			/* Goes on where a waiting run ends, or before it starts. */
			k.skb = skb;
			k.f = f;
			k.offset = offset;
			k.left = bytes;
			k.seq = start;
			k.now_ns = now_ns;
			bpf_loop(IW_WINDOWS, keep_piece, &k, 0);
			if (r->end == start)
				r->end = end;
			else
				r->start = start;
			count_stat(IW_STAT_HOLE_KEPT);
			return 0;
		}
	}
	if (!free_range) {
		count_stat(IW_STAT_HOLE_DROPPED);
		return 0;
	}
	k.skb = skb;
	k.f = f;
	k.offset = offset;
	k.left = bytes;
	k.seq = start;
	k.now_ns = now_ns;
	bpf_loop(IW_WINDOWS, keep_piece, &k, 0);
	free_range->time_ns = now_ns;
	free_range->flags = flags;
	free_range->start = start;
	free_range->end = end;
	f->ranges_used = 1;
	count_stat(flags & IW_RANGE_SUSPECT ? IW_STAT_SUSPECT : IW_STAT_HOLE_KEPT);
	return 0;
}

/* Whether TCP has taken bytes in order that the parser has not seen: they passed while no slot or lock was free. */
static __always_inline int lags(const struct iw_flow *f, iw_u32 rcv_nxt)
{
	return f->synced[IW_IN] && iw_after(rcv_nxt - f->fin_in, f->expected[IW_IN]);
}

/* Chooses the next waiting range that can be parsed. Returns 0 if there is none. */
static __always_inline int next_range(struct iw_flow *f, struct iw_window *w, struct iw_holes *holes)
{
	iw_u32 i, used = 0, target = w->feed_rcv_nxt - f->fin_in;

	for (i = 0; holes && i < IW_RANGES; i++) {
		struct iw_range *r = &holes->ranges[i];

		if (r->start == r->end)
			continue;
		if (iw_reached(f->expected[IW_IN], r->end)) {
			if (r->flags & IW_RANGE_SUSPECT)
				count_stat(IW_STAT_SUSPECT_DROPPED);
			r->start = r->end;
			continue;
		}
		used = 1;
		if (iw_after(r->start, f->expected[IW_IN])) {
			if (iw_after(target, r->start))
				target = r->start;
			continue;
		}
		if (r->flags & IW_RANGE_SUSPECT && !iw_reached(w->feed_rcv_nxt, r->end))
			continue;
		w->feed_seq = r->start;
		w->feed_left = r->end - r->start;
		w->feed_first = r->flags & IW_RANGE_COPY;
		r->start = r->end;
		return 1;
	}
	f->ranges_used = used;
	if (lags(f, w->feed_rcv_nxt) && iw_after(target, f->expected[IW_IN])) {
		count_stat(IW_STAT_RESYNC);
		iw_missed(f, IW_IN, target, w->now_ns);
		return used ? 2 : 0; /* what waits behind may be next */
	}
	return 0;
}

/* Parses one kept piece of the waiting ranges. */
static long drain_piece(iw_u32 index, struct feed *feed)
{
	struct iw_flow *f = feed->f;
	struct iw_window *w = feed->w;
	struct iw_held *h;
	iw_u32 bytes, skip, take;

	if (!w->feed_left) {
		int next = next_range(f, w, feed->holes);

		if (next != 1)
			return next == 0;
	}
	held_key(&w->feed_key, f, w->feed_seq);
	h = bpf_map_lookup_elem(&held, &w->feed_key);
	bytes = w->feed_left;
	if (bytes > IW_WIN_BYTES)
		bytes = IW_WIN_BYTES;
	if (h && h->bytes && h->bytes < bytes)
		bytes = h->bytes;
	skip = f->expected[IW_IN] - w->feed_seq; /* bytes that came another way meanwhile */
	if ((int)skip < 0)
		skip = 0;
	if (skip < bytes) {
		take = bytes - skip;
		asm volatile("" : "+r"(skip));
		if (h && skip < IW_WIN_BYTES && skip + take <= IW_WIN_BYTES && bound_bytes(&take) &&
		    !bpf_probe_read_kernel(w->buf + IW_WIN_ROOM, take, h->payload + skip)) {
			if (w->feed_first)
				w->now_ns = h->time_ns;
			f->expected[IW_IN] = w->feed_seq + bytes;
			w->feed_seq += skip;
			run_window(feed, take);
			w->feed_seq -= skip;
		} else {
			count_stat(IW_STAT_RESYNC);
			iw_missed(f, IW_IN, w->feed_seq + bytes, w->now_ns);
		}
	}
	if (h)
		bpf_map_delete_elem(&held, &w->feed_key);
	w->feed_seq += bytes;
	w->feed_left -= bytes;
	return 0;
}

/* ---- Followed connections ---- */

/* The holder is another CPU's ingress: it is gone within microseconds. Clears *flow when it has got the lock. */
static long try_lock(iw_u32 index, struct iw_flow **flow)
{
	struct iw_flow *f = *flow;

	if (!f || __sync_val_compare_and_swap(&f->lock, 0, 1) != 0)
		return !f;
	*flow = 0;
	return 1;
}

static __always_inline int lock_ingress(struct iw_flow *f)
{
	struct iw_flow *waiting = f;

	if (__sync_val_compare_and_swap(&f->lock, 0, 1) == 0)
		return 0;
	bpf_loop(4096, try_lock, &waiting, 0);
	if (!waiting)
		return 0;
	count_stat(IW_STAT_LOCK_BUSY);
	return -1;
}

static __always_inline void unlock_ingress(struct iw_flow *f) { __sync_lock_test_and_set(&f->lock, 0); }

static __always_inline void sample_rtt(struct iw_flow *f, struct tcp_sock *tp, iw_u64 now_ns)
{
	struct iw_request *r = &f->record.request;
	iw_u32 srtt = tp->srtt_us >> 3, now_us = (iw_u32)(now_ns / 1000), rtt;

	if (srtt && !f->record.conn.handshake_us)
		f->record.conn.handshake_us = srtt;
	if (!f->live || f->rtt_next_us - now_us - 1 < srtt || tp->srtt_us == f->srtt_us)
		return;
	f->srtt_us = tp->srtt_us;
	f->rtt_next_us = now_us + srtt;
	rtt = tp->rack.rtt_us;
	if (!rtt)
		rtt = srtt;
	if (!rtt)
		return;
	if (rtt < r->rtt_min_us)
		r->rtt_min_us = rtt;
	if (rtt > r->rtt_max_us)
		r->rtt_max_us = rtt;
	r->rtt_sum_us += rtt;
	r->rtt_count++;
}

static __always_inline iw_u8 side_of(const struct iw_flow *f, iw_u32 direction)
{
	/* IN on a server and OUT on a client come from the client. */
	return (f->role == IW_ROLE_SERVER) == (direction == IW_IN) ? IW_SIDE_CLIENT : IW_SIDE_SERVER;
}

/* Adds the TCP header to the pseudo header's sum. */
static __noinline iw_u32 header_sum(struct __sk_buff *skb, struct packet *p, iw_u64 sum)
{
	iw_u32 words[16] = {};
	iw_u32 i, header = p->header - 1; /* 20 to 60 in all */

	asm volatile("" : "+r"(header));
	header = (header & 63) + 1;
	if (bpf_skb_load_bytes(skb, p->offset - p->header, words, header))
		return 0;
	for (i = 0; i < 15; i++)
		sum += words[i];
	return fold(sum);
}

/* The connection's response direction has sent FIN: a body without a length ends here. */
static __always_inline void close_body(struct iw_flow *f, iw_u32 direction, iw_u32 seq, iw_u64 now_ns)
{
	struct iw_parser *p = iw_parser_of(f, direction);
	struct iw_window *w;
	struct feed feed = {.f = f};

	if (p->state != IW_P_CLOSE || direction == iw_request_direction(f) || f->expected[direction & 1] != seq)
		return;
	w = claim_window();
	if (!w)
		return;
	open_window(w, direction, now_ns);
	p->state = IW_P_FLUSH;
	feed.w = w;
	w->feed_seq = seq;
	run_window(&feed, 0);
	close_window(f, w);
	release_window(w);
}

/* The usual packet of a stream: in order, and its first HTTP chunk looks like the last one. Returns 0 if it is another;
 * nothing has been changed then. */
static __always_inline int take_usual(struct __sk_buff *skb, struct iw_flow *f, const struct packet *p,
				      iw_u32 direction, iw_u64 now_ns)
{
	const struct iw_parser *parser = iw_parser_of(f, direction);
	iw_u32 bytes = p->bytes;
	struct iw_window *w;
	iw_u32 from = IW_WIN_ROOM;
	int taken = 0;

	if (!parser->pattern.before_bytes || parser->state != IW_P_CHUNK_SIZE || f->live != 1 ||
	    p->seq != f->expected[direction & 1] || f->ranges_used || p->flags & (IW_FIN | IW_RST) ||
	    !bound_bytes(&bytes))
		return 0;
	w = claim_window();
	if (!w)
		return 0;
	w->now_ns = now_ns;
	w->seq = p->seq;
	w->direction = direction;
	w->pos = IW_WIN_ROOM;
	w->end = IW_WIN_ROOM + bytes;
	w->chunks = 0;
	w->opaque = 0;
	w->not_http = 0;
	if (!bpf_skb_load_bytes(skb, p->offset, w->buf + IW_WIN_ROOM, bytes))
		taken = iw_take_like(f, w);
	if (taken) {
		f->expected[direction & 1] = p->seq + bytes;
		count_stat(IW_STAT_FOLLOWED);
		if (w->pos < w->end) { /* there is more than one */
			struct feed feed = {.skb = skb, .f = f, .w = w};

			w->feed_seq = p->seq;
			run_steps(&feed, bytes);
			from -= IW_CARRY;
		}
		close_window(f, w);
	}
	wipe_window(w, from);
	w->busy = 0;
	return taken;
}

/* Loads the cache lines that a packet of a stream needs, at once: left alone, each would be waited for in turn. */
#define IW_TOUCH(at) asm volatile("" : : "r"(*(const volatile iw_u32 *)&(at)))
static __always_inline void touch(const struct iw_flow *f, iw_u32 direction)
{
	const struct iw_request *r = &f->record.request;

	IW_TOUCH(r->output_ns);
	if (direction == IW_IN && f->role == IW_ROLE_SERVER) {
		IW_TOUCH(r->response_ns);
		IW_TOUCH(r->gap_delivered[16]);
		IW_TOUCH(f->unacked[f->unacked_tail & (IW_UNACKED - 1)]);
		return;
	}
	IW_TOUCH(r->chunks);
	IW_TOUCH(f->parser[direction].line_bytes);
	IW_TOUCH(*(direction == IW_OUT ? &r->gap_sent[16] : &r->gap_delivered[16]));
}

/* The advertised window went to 0, or is open again. */
static __noinline int window_turned(struct iw_flow *f, iw_u32 direction, iw_u64 now_ns)
{
	const struct iw_conn *c = &f->record.conn;
	struct iw_tcp_key key = {};
	struct iw_tcp_sums *sums;

	f->zero ^= 1 << (direction & 1);
	if (f->zero >> (direction & 1) & 1) {
		f->zero_us[direction & 1] = (iw_u32)(now_ns / 1000);
		return 0;
	}
	key.cgroup_id = c->owner_cgroup_id ? c->owner_cgroup_id : c->socket_cgroup_id;
	key.pid = c->owner_pid;
	key.role = c->role;
	key.port = count_port(c);
	sums = sums_of_key(&key, c->comm);
	if (sums)
		IW_ADD(sums->zero_window_us[direction == IW_IN ? IW_DIRECTION_RECEIVED : IW_DIRECTION_SENT],
		       (iw_u32)(now_ns / 1000) - f->zero_us[direction & 1]);
	return 0;
}

static __always_inline void watch_window(struct iw_flow *f, const struct packet *p, iw_u32 direction, iw_u64 now_ns)
{
	if ((f->zero >> direction & 1) != !p->window && !(p->flags & (IW_SYN | IW_RST)))
		window_turned(f, direction, now_ns);
}

static __always_inline void follow_out(struct __sk_buff *skb, struct bpf_sock *sk, struct iw_flow *f, struct packet *p)
{
	iw_u64 now_ns = bpf_ktime_get_ns();
	iw_u64 departs_ns = skb->tstamp;
	struct iw_window *w;
	struct feed feed = {.skb = skb, .f = f};
	iw_u32 skip;
	int ahead;

	if (departs_ns > now_ns && departs_ns < now_ns + 10000000000ull)
		now_ns = departs_ns; /* fq holds it until then */
	watch_window(f, p, IW_OUT, now_ns);
	if (p->bytes && take_usual(skb, f, p, IW_OUT, now_ns))
		return;
	if (p->bytes) {
		count_stat(IW_STAT_FOLLOWED);
		if (f->ranges_used) {
			/* A request that waits for a sign from the kernel: this answer is one. */
			struct tcp_sock *tp = bpf_skc_to_tcp_sock(sk);
			iw_u32 rcv_nxt = tp ? tp->rcv_nxt : 0;

			if (tp && !lock_ingress(f)) {
				w = claim_window();
				if (w) {
					open_window(w, IW_IN, now_ns);
					w->feed_rcv_nxt = rcv_nxt;
					feed.w = w;
					feed.holes = bpf_sk_storage_get(&holes, sk, 0, 0);
					bpf_loop(IW_PIECES, drain_piece, &feed, 0);
					close_window(f, w);
					release_window(w);
				}
				unlock_ingress(f);
			}
		}
		if (!f->synced[IW_OUT]) {
			f->expected[IW_OUT] = p->seq;
			f->synced[IW_OUT] = 1;
		}
		ahead = (int)(p->seq - f->expected[IW_OUT]);
		if (ahead > 0) {
			count_stat(IW_STAT_RESYNC);
			iw_missed(f, IW_OUT, p->seq, now_ns);
			ahead = 0;
		}
		skip = (iw_u32)-ahead;
		if (skip < p->bytes) {
			w = claim_window();
			if (!w) {
				f->expected[IW_OUT] = p->seq + skip;
				iw_missed(f, IW_OUT, p->seq + p->bytes, now_ns);
			} else {
				open_window(w, IW_OUT, now_ns);
				f->expected[IW_OUT] = p->seq + p->bytes;
				w->feed_left = p->bytes - skip;
				w->feed_seq = p->seq + skip;
				w->feed_offset = p->offset + skip;
				feed.w = w;
				feed_packet(&feed);
				close_window(f, w);
				release_window(w);
			}
		}
	}
	if (p->flags & (IW_FIN | IW_RST)) {
		if (p->flags & IW_FIN)
			close_body(f, IW_OUT, p->seq + p->bytes, now_ns);
		iw_fin(f, side_of(f, IW_OUT), p->flags & IW_RST, now_ns);
		/* A client that closes has what it wanted, whether or not it was seen to read it. */
		if (f->role == IW_ROLE_CLIENT && f->record.request.head.flags & IW_REQ_RESPONSE_DONE) {
			f->finish = 1;
			emit(f);
		}
	}
}

/* What the checksum field holds if the stack need not look at it: partial (local, or merged by GRO) sums are of the pseudo
 * header only. Returns the sum without payload and header, 0 if there is no need to check. */
static __always_inline iw_u64 unchecked_sum(const struct packet *p)
{
	iw_u64 sum = (iw_u64)p->pseudo + bpf_htons(6) + bpf_htons(p->header + p->bytes);
	iw_u32 folded = fold(sum);

	return folded == p->check || folded == (iw_u16)~p->check ? 0 : sum;
}

/* A segment whose checksum does not fit. One that is longer than the window was merged, hence checked, by the kernel. */
static __noinline int is_damaged(struct __sk_buff *skb, struct packet *p, struct iw_window *w)
{
	iw_u64 sum = unchecked_sum(p);
	iw_u32 bytes = p->bytes;

	if (!sum || !bound_bytes(&bytes) || bpf_skb_load_bytes(skb, p->offset, w->buf + IW_WIN_ROOM, bytes))
		return 0;
	w->end = IW_WIN_ROOM + bytes;
	return fold((iw_u64)header_sum(skb, p, sum) + sum_window(w)) != 0xffff;
}

static __always_inline void follow_in(struct __sk_buff *skb, struct bpf_sock *sk, struct iw_flow *f, struct packet *p)
{
	iw_u64 now_ns = bpf_ktime_get_ns();
	struct tcp_sock *tp;
	struct iw_window *w = 0;
	struct feed feed = {.skb = skb, .f = f};
	iw_u32 skip, rcv_nxt;
	int ahead, covered, damaged = 0;

	if (lock_ingress(f))
		return;
	watch_window(f, p, IW_IN, now_ns);
	if (p->bytes && f->role == IW_ROLE_CLIENT && f->record.request.request_acked_ns && !unchecked_sum(p) &&
	    take_usual(skb, f, p, IW_IN, now_ns)) {
		unlock_ingress(f);
		return;
	}
	tp = bpf_skc_to_tcp_sock(sk);
	if (!tp) {
		unlock_ingress(f);
		return;
	}
	rcv_nxt = tp->rcv_nxt;
	if (p->flags & IW_ACK && iw_reached(tp->write_seq, p->ack)) {
		covered = iw_acknowledged(f, p->ack, now_ns, &gap_edges);
		sample_rtt(f, tp, now_ns);
		if (covered > 0) {
			if (trace_deliveries)
				trace(f, (iw_u32)covered, IW_VIEW_DELIVERED, now_ns);
			if (!f->first_sent)
				first_chunk(f);
		}
		if (f->finish)
			emit(f);
	}
	if (p->bytes || f->ranges_used || lags(f, rcv_nxt)) {
		w = claim_window();
		if (!w)
			goto fin;
		open_window(w, IW_IN, now_ns);
		w->feed_rcv_nxt = rcv_nxt;
		feed.w = w;
	}
	if (p->bytes && w) {
		count_stat(IW_STAT_FOLLOWED);
		if (!f->synced[IW_IN]) {
			f->expected[IW_IN] = iw_after(p->seq, rcv_nxt) ? rcv_nxt : p->seq;
			f->synced[IW_IN] = 1;
		}
		ahead = (int)(p->seq - f->expected[IW_IN]);
		skip = (iw_u32)-ahead;
		/* Out of order, or a resend that holds more than the first one did: TCP drops it, and so it is dropped here. In
		 * order it is checked while it is read, below. */
		if ((ahead > 0 || (skip && skip < p->bytes)) && !iw_skippable(f, IW_IN, p->bytes) &&
		    is_damaged(skb, p, w)) {
			count_stat(IW_STAT_SUSPECT);
			count_stat(IW_STAT_SUSPECT_DROPPED);
			damaged = 1;
		} else if (ahead > 0) {
			hold_segment(skb, f, bpf_sk_storage_get(&holes, sk, 0, BPF_SK_STORAGE_GET_F_CREATE), p, 0);
		} else if (skip < p->bytes) {
			w->feed_offset = p->offset + skip;
			w->feed_left = p->bytes - skip;
			w->feed_seq = p->seq + skip;
			if (!skip && p->bytes <= IW_WIN_BYTES && !iw_skippable(f, IW_IN, p->bytes)) {
				iw_u64 sum = unchecked_sum(p);

				if (sum)
					w->feed_sum = header_sum(skb, p, sum);
			}
			f->expected[IW_IN] = p->seq + p->bytes;
			feed_packet(&feed);
			if (w->feed_bad) {
				damaged = 1;
				w->feed_left = 0;
				w->feed_sum = 0;
				f->expected[IW_IN] = p->seq;
				hold_segment(skb, f, bpf_sk_storage_get(&holes, sk, 0, BPF_SK_STORAGE_GET_F_CREATE), p,
					     IW_RANGE_SUSPECT);
			}
		}
	}
	if (w) {
		if (f->ranges_used)
			feed.holes = bpf_sk_storage_get(&holes, sk, 0, 0);
		if (f->ranges_used || lags(f, rcv_nxt))
			bpf_loop(IW_PIECES, drain_piece, &feed, 0);
		close_window(f, w);
		release_window(w);
	}
fin:
	if (p->flags & (IW_FIN | IW_RST) && !damaged) {
		if (p->flags & IW_FIN) {
			f->fin_in = 1;
			close_body(f, IW_IN, p->seq + p->bytes, now_ns);
		}
		iw_fin(f, side_of(f, IW_IN), p->flags & IW_RST, now_ns);
	}
	unlock_ingress(f);
}

/* ---- Choosing what to follow ---- */

static __always_inline void copy_addresses(struct iw_conn *c, struct bpf_sock *sk)
{
	iw_u32 l[4], r[4];
	int v4;

	l[0] = sk->src_ip6[0];
	l[1] = sk->src_ip6[1];
	l[2] = sk->src_ip6[2];
	l[3] = sk->src_ip6[3];
	r[0] = sk->dst_ip6[0];
	r[1] = sk->dst_ip6[1];
	r[2] = sk->dst_ip6[2];
	r[3] = sk->dst_ip6[3];
	v4 = sk->family == 2 || (r[0] == 0 && r[1] == 0 && r[2] == bpf_htonl(0xffff));
	if (v4) {
		copy_v4(c->local_addr, sk->family == 2 ? sk->src_ip4 : l[3]);
		copy_v4(c->remote_addr, sk->family == 2 ? sk->dst_ip4 : r[3]);
	} else {
		__builtin_memcpy(c->local_addr, l, 16);
		__builtin_memcpy(c->remote_addr, r, 16);
	}
	c->family = v4 ? 2 : 10;
	c->local_port = sk->src_port;
	c->remote_port = bpf_ntohs(sk->dst_port);
}

static __always_inline void copy_socket(struct iw_flow *f, const struct iw_socket *s)
{
	struct iw_conn *c = &f->record.conn;

	c->role = s->role;
	f->role = s->role;
	c->syn_ns = s->syn_ns;
	c->established_ns = s->established_ns;
	c->accepted_ns = s->accepted_ns;
	c->owner_cgroup_id = s->owner_cgroup_id;
	c->owner_pid = s->owner_pid;
	c->flags = s->flags;
	c->socket_cgroup_id = s->cgroup_id;
	__builtin_memcpy(c->comm, s->comm, sizeof(c->comm));
}

/* Starts to follow a connection. */
static __always_inline struct iw_flow *start_flow(struct __sk_buff *skb, struct bpf_sock *sk, struct iw_socket *s)
{
	struct tcp_sock *tp = bpf_skc_to_tcp_sock(sk);
	struct iw_flow *f;

	if (!tp)
		return 0;
	f = bpf_sk_storage_get(&flows, sk, 0, BPF_SK_STORAGE_GET_F_CREATE);
	if (!f) {
		count_stat(IW_STAT_STORAGE_FAILED);
		return 0;
	}
	if (!s->cgroup_id)
		s->cgroup_id = bpf_sk_cgroup_id(sk);
	copy_socket(f, s);
	copy_addresses(&f->record.conn, sk);
	f->record.conn.cookie = bpf_get_socket_cookie(skb);
	f->netns = tp->inet_conn.icsk_inet.sk.__sk_common.skc_net.net->ns.inum;
	f->expected[IW_IN] = tp->rcv_nxt;
	f->synced[IW_IN] = sk->state != BPF_TCP_SYN_SENT; /* with fast open the request comes before there is one */
	s->mode = IW_MODE_FOLLOW;
	__sync_fetch_and_add(&followed, 1);
	count_stat(IW_STAT_FLOWS);
	return f;
}

/* Adds what a connection has counted of its light requests to `counts`. */
static __noinline int flush_light(struct iw_socket *s)
{
	struct iw_count_key key = {};
	struct iw_count fresh = {}, *count;
	iw_u32 done;

	if (!s)
		return 0;
	done = __sync_lock_test_and_set(&s->light_done, 0);
	if (!done)
		return 0;
	key.cgroup_id = owner_cgroup(s);
	key.pid = s->owner_pid;
	key.port = s->port;
	key.code = s->light_code;
	key.role = s->role;
	key.outcome = s->role == IW_ROLE_CLIENT ? IW_OUTCOME_NONE : IW_OUTCOME_COMPLETE;
	count = bpf_map_lookup_elem(&counts, &key);
	if (!count) {
		__builtin_memcpy(fresh.comm, s->comm, sizeof(fresh.comm));
		bpf_map_update_elem(&counts, &key, &fresh, BPF_NOEXIST);
		count = bpf_map_lookup_elem(&counts, &key);
	}
	if (count)
		__sync_fetch_and_add(&count->requests, done);
	else
		add_stat(IW_STAT_COUNTS_FULL, done);
	return 0;
}

/* A request of a route that is not an LLM route: of a server's the answer's status is wanted, of a client's nothing. A
 * busy connection adds up by itself: the look-up in `counts` costs more than all the rest. */
static __always_inline void count_light(struct iw_socket *s, iw_u16 code)
{
	iw_u64 now = bpf_jiffies64();

	if (s->light_code != code) {
		flush_light(s);
		s->light_code = code;
	}
	s->light_done++;
	if (s->light_done >= IW_LIGHT_MAX || now - s->light_flushed > IW_LIGHT_JIFFIES) {
		flush_light(s);
		s->light_flushed = now;
	}
}

/* Looks at the first payload bytes of a connection that is not followed (yet). Returns the flow when it is to be. */
static __always_inline struct iw_flow *classify(struct __sk_buff *skb, struct bpf_sock *sk, struct iw_socket *s,
						iw_u32 offset, iw_u32 bytes, iw_u32 direction)
{
	iw_u64 head[2] = {};
	iw_u32 n = bytes, status;
	iw_u8 method = 0, role = direction == IW_IN ? IW_ROLE_SERVER : IW_ROLE_CLIENT;
	int may_request = s->role == IW_ROLE_UNKNOWN || s->role == role;

	if (n > 16)
		n = 16;
	n--;
	asm volatile("" : "+r"(n));
	n = (n & 15) + 1; /* as in bound_bytes() */
	if (bpf_skb_load_bytes(skb, offset, head, n))
		return 0;
	if (may_request) {
		method = iw_method(head[0]);
		if (!method && n < 5 && head[0] == (IW_WORD('P', 'O', 'S', 'T', 0, 0, 0, 0) & IW_FIRST(n)))
			method = IW_METHOD_POST; /* cut short: let the parser see the rest */
		if (!method && direction == IW_IN && !(s->flags & IW_CONN_MIDWAY) && !s->seen_http) {
			/* The first segment may be late: then nobody can tell yet. */
			struct tcp_sock *tp = bpf_skc_to_tcp_sock(sk);
			struct packet p = {};

			if (tp && !read_packet(skb, &p) && iw_after(p.seq, tp->rcv_nxt))
				method = IW_METHOD_POST;
		}
	}
	if (method) {
		s->role = role;
		s->port = role == IW_ROLE_SERVER ? sk->src_port : bpf_ntohs(sk->dst_port);
		s->seen_http = 1;
		if (!s->cgroup_id)
			s->cgroup_id = bpf_sk_cgroup_id(sk);
		if (method == IW_METHOD_POST)
			return start_flow(skb, sk, s);
		if (role == IW_ROLE_CLIENT)
			count_light(s, 0); /* its answers are not looked at */
		else if (s->light < 255)
			s->light++;
		return 0;
	}
	if (s->light && s->role != role) {
		status = iw_status(head[0], head[1]);
		if (status >= 200 || status == 101) {
			s->light--;
			count_light(s, (iw_u16)status);
			if (status == 101)
				s->mode = IW_MODE_IGNORE;
		}
		return 0;
	}
	if (s->misses[direction & 1] < IW_MISSES_MAX)
		s->misses[direction & 1]++;
	if (!s->seen_http &&
	    (!(s->flags & IW_CONN_MIDWAY) || (s->misses[0] >= IW_MISSES_MAX && s->misses[1] >= IW_MISSES_MAX)))
		s->mode = IW_MODE_IGNORE;
	return 0;
}

/* Payload that comes in on a listener belongs to a child that does not exist yet. */
static __noinline int hold_for_child(struct __sk_buff *skb, struct bpf_sock *sk, struct packet *packet)
{
	struct tcp_sock *tp = bpf_skc_to_tcp_sock(sk);
	struct packet p = *packet;
	struct iw_held_key key = {};
	iw_u8 addresses[32];

	if (!tp || !p.bytes || p.bytes > IW_WIN_BYTES)
		return 0;
	key.netns = tp->inet_conn.icsk_inet.sk.__sk_common.skc_net.net->ns.inum;
	key.seq = p.seq;
	if (bpf_skb_load_bytes(skb, p.offset - p.header, &key.remote_port, 2) ||
	    bpf_skb_load_bytes(skb, p.offset - p.header + 2, &key.local_port, 2))
		return 0;
	key.remote_port = bpf_ntohs(key.remote_port);
	key.local_port = bpf_ntohs(key.local_port);
	if (skb->protocol == bpf_htons(0x0800)) {
		if (bpf_skb_load_bytes(skb, 12, addresses, 8))
			return 0;
		copy_v4(key.remote, *(iw_u32 *)addresses);
		copy_v4(key.local, *(iw_u32 *)(addresses + 4));
	} else {
		if (bpf_skb_load_bytes(skb, 8, addresses, 32))
			return 0;
		__builtin_memcpy(key.remote, addresses, 16);
		__builtin_memcpy(key.local, addresses + 16, 16);
	}
	if (!keep_copy(skb, &key, p.offset, p.bytes, bpf_ktime_get_ns())) {
		listener_copies = 1;
		count_stat(IW_STAT_LISTENER_BYTES);
	}
	return 0;
}

static __always_inline void first_round_trip(struct iw_socket *s, struct tcp_sock *tp)
{
	if (tp->srtt_us)
		add_rtt(s, tp, tp->srtt_us >> 3);
}

/* Payload that waited on the listener becomes the child's first. */
static __always_inline void adopt_copies(struct iw_socket *s, struct tcp_sock *tp, iw_u64 cookie)
{
	struct sock *sk = &tp->inet_conn.icsk_inet.sk;
	struct iw_held_key key = {};
	struct iw_held *h;
	struct iw_flow *f;
	struct iw_holes *waiting;
	struct iw_conn *c;
	iw_u32 seq;

	seq = tp->rcv_nxt - (iw_u32)tp->bytes_received; /* with fast open some has come, and may have been read */
	name_of(&sk->__sk_common, &key);
	key.seq = seq;
	h = bpf_map_lookup_elem(&held, &key);
	if (!h || h->bytes < 5 || iw_method(iw_load64(h->payload)) != IW_METHOD_POST)
		return;
	waiting = bpf_sk_storage_get(&holes, tp, 0, BPF_SK_STORAGE_GET_F_CREATE);
	f = bpf_sk_storage_get(&flows, tp, 0, BPF_SK_STORAGE_GET_F_CREATE);
	if (!f || !waiting) {
		count_stat(IW_STAT_STORAGE_FAILED);
		return;
	}
	copy_socket(f, s);
	c = &f->record.conn;
	c->cookie = cookie;
	__builtin_memcpy(c->local_addr, key.local, 16);
	__builtin_memcpy(c->remote_addr, key.remote, 16);
	c->local_port = key.local_port;
	c->remote_port = key.remote_port;
	c->family = family_of(&key);
	f->netns = key.netns;
	f->expected[IW_IN] = seq;
	f->synced[IW_IN] = 1;
	waiting->ranges[0].start = seq;
	waiting->ranges[0].end = seq + h->bytes;
	waiting->ranges[0].time_ns = h->time_ns;
	waiting->ranges[0].flags = IW_RANGE_COPY;
	f->ranges_used = 1;
	s->mode = IW_MODE_FOLLOW;
	s->seen_http = 1;
	__sync_fetch_and_add(&followed, 1);
	count_stat(IW_STAT_FLOWS);
}

/* The child of a listener has got a copy of its state, and begins its own here: when it is established, or before that,
 * with fast open, when it answers or is accepted. */
static __noinline int begin_child(struct iw_socket *s, struct tcp_sock *tp, iw_u64 cookie)
{
	struct sock *sk;

	if (!s || !tp)
		return 0;
	sk = &tp->inet_conn.icsk_inet.sk;
	if (s->mode == IW_MODE_LISTEN)
		s->mode = IW_MODE_NEW;
	s->flags = 0;
	s->accepted_ns = 0;
	s->established_ns = bpf_ktime_get_ns();
	s->role = IW_ROLE_SERVER;
	s->port = sk->__sk_common.skc_num;
	s->cgroup_id = cgroup_of(sk);
	first_round_trip(s, tp);
	if (listener_copies && s->mode == IW_MODE_NEW)
		adopt_copies(s, tp, cookie);
	return 0;
}

/* The state of a socket that has none yet. Its set-up was not seen. */
static __noinline struct iw_socket *socket_of(struct __sk_buff *skb, struct bpf_sock *sk)
{
	struct iw_socket *s = bpf_sk_storage_get(&sockets, sk, 0, BPF_SK_STORAGE_GET_F_CREATE);
	struct tcp_sock *tp = bpf_skc_to_tcp_sock(sk);

	if (!s || !tp) {
		count_stat(IW_STAT_STORAGE_FAILED);
		return 0;
	}
	s->cgroup_id = bpf_sk_cgroup_id(sk);
	if (sk->state == BPF_TCP_LISTEN) {
		s->mode = IW_MODE_LISTEN;
		s->role = IW_ROLE_SERVER;
		s->port = sk->src_port;
		return s;
	}
	if (s->mode == IW_MODE_LISTEN) {
		begin_child(s, tp, bpf_get_socket_cookie(skb));
		return s;
	}
	s->flags = IW_CONN_MIDWAY;
	begin_counts(s, tp);
	return s;
}

static __noinline int on_listener(struct __sk_buff *skb, struct bpf_sock *sk)
{
	struct packet p = {};

	if (read_packet(skb, &p))
		return 0;
	if (!bpf_sk_storage_get(&sockets, sk, 0, 0) && !socket_of(skb, sk))
		return 0;
	judge_listener(skb, sk, &p);
	hold_for_child(skb, sk, &p);
	return 0;
}

/* An RST that the peer cannot have sent: it came another way than the connection's packets, or the peer's socket is on
 * this node, alive. A firewall did (REJECT), or something between. */
static __noinline int look_at_rst(struct __sk_buff *skb, struct iw_socket *s)
{
	struct bpf_sock *peer;
	struct packet p = {};
	iw_u8 ttl = 0, state;

	if (!s || read_packet(skb, &p) || bpf_skb_load_bytes(skb, skb->protocol == bpf_htons(0x0800) ? 8 : 7, &ttl, 1))
		return 0;
	__sync_fetch_and_or(&s->flags, IW_SOCKET_RST_IN);
	peer = socket_at(skb, p.offset - p.header, 1);
	if (s->ttl && (ttl != s->ttl || !(s->flags & IW_SOCKET_LOOPBACK) != (skb->ifindex != 1)))
		__sync_fetch_and_or(&s->flags, IW_SOCKET_FORGED);
	if (!peer)
		return 0;
	state = peer->state;
	bpf_sk_release(peer);
	if (state == IW_TCP_ESTABLISHED || state == IW_TCP_CLOSE_WAIT)
		__sync_fetch_and_or(&s->flags, IW_SOCKET_FORGED);
	return 0;
}

/* How packets of the peer look. */
static __always_inline void learn_peer(struct __sk_buff *skb, struct iw_socket *s)
{
	iw_u8 *ip = (void *)(long)skb->data;

	if ((void *)(ip + 40) > (void *)(long)skb->data_end)
		return;
	s->ttl = ip[0] >> 4 == 4 ? ip[8] : ip[7];
	if (skb->ifindex == 1)
		__sync_fetch_and_or(&s->flags, IW_SOCKET_LOOPBACK);
}

/* The smallest packets are those without payload: RSTs are among them. */
#define IW_RST_BYTES_MAX 120

static __always_inline int is_rst(struct __sk_buff *skb)
{
	iw_u8 *ip = (void *)(long)skb->data;
	iw_u32 header;

	if (skb->len > IW_RST_BYTES_MAX || (void *)(ip + 40) > (void *)(long)skb->data_end)
		return 0;
	header = ip[0] >> 4 == 4 ? (ip[0] & 15) * 4 : 40;
	ip += header & 0x7f;
	return (void *)(ip + 20) <= (void *)(long)skb->data_end && ip[13] & IW_RST;
}

/* What comes in for a socket without state, or for a listener. Returns the state that a connection has now. */
static __noinline struct iw_socket *first_in(struct __sk_buff *skb, struct bpf_sock *sk, iw_u32 bytes)
{
	sk = bpf_sk_fullsock(sk);
	if (!sk || sk->protocol != 6)
		return 0;
	if (sk->state == BPF_TCP_LISTEN) {
		on_listener(skb, sk);
		return 0;
	}
	return bytes ? socket_of(skb, sk) : 0;
}

static __noinline struct iw_socket *first_out(struct __sk_buff *skb, struct bpf_sock *sk)
{
	sk = bpf_sk_fullsock(sk);
	if (!sk || sk->protocol != 6 || sk->state == BPF_TCP_LISTEN)
		return 0;
	return socket_of(skb, sk);
}

/* Beside the packet of a followed connection. */
static __noinline int rare_in(struct __sk_buff *skb, struct bpf_sock *sk, struct iw_flow *f, iw_u32 reset)
{
	struct iw_socket *s = bpf_sk_storage_get(&sockets, sk, 0, 0);
	struct tcp_sock *tp;

	if (!s || !f)
		return 0;
	if (reset)
		look_at_rst(skb, s);
	tp = bpf_skc_to_tcp_sock(sk);
	if (tp && rtt_due(s->rtt_next))
		sample_path(s, tp);
	f->path_next = s->rtt_next;
	return 0;
}

/* Only TCP sockets have state: who finds some need not ask further. Of a followed one the flow is all that its packets
 * need: that is looked for first, while there are any. */
SEC("cgroup_skb/ingress")
int cgroup_skb__ingress(struct __sk_buff *skb)
{
	struct bpf_sock *sk = skb->sk;
	iw_u32 offset = 0, bytes;
	struct packet p = {};
	struct iw_socket *s;
	struct iw_flow *f;
	struct tcp_sock *tp;

	if (!sk)
		return 1;
	f = followed ? bpf_sk_storage_get(&flows, sk, 0, 0) : 0;
	if (f) {
		touch(f, IW_IN);
		if (read_packet(skb, &p))
			return 1;
		if (p.flags & IW_RST || rtt_due(f->path_next))
			rare_in(skb, sk, f, p.flags & IW_RST);
		follow_in(skb, sk, f, &p);
		return 1;
	}
	s = bpf_sk_storage_get(&sockets, sk, 0, 0);
	if (s && rtt_due(s->rtt_next)) {
		tp = bpf_skc_to_tcp_sock(sk);
		if (tp && s->mode != IW_MODE_LISTEN)
			sample_path(s, tp);
	}
	if (s && s->mode == IW_MODE_IGNORE) {
		if (is_rst(skb))
			look_at_rst(skb, s);
		count_stat(IW_STAT_IGNORED);
		return 1;
	}
	if (s && s->seen_http && s->role == IW_ROLE_CLIENT) {
		/* Answers of a route that is no LLM route: what is next goes out. */
		if (!s->ttl)
			learn_peer(skb, s);
		if (is_rst(skb))
			look_at_rst(skb, s);
		return 1;
	}
	bytes = read_payload(skb, &offset);
	if (!s || s->mode == IW_MODE_LISTEN)
		s = first_in(skb, sk, bytes);
	if (!s)
		return 1;
	if (s->mode == IW_MODE_FOLLOW) {
		f = bpf_sk_storage_get(&flows, sk, 0, 0);
		if (f && !read_packet(skb, &p))
			follow_in(skb, sk, f, &p);
		return 1;
	}
	if (!bytes && is_rst(skb)) {
		look_at_rst(skb, s);
		return 1;
	}
	if (!s->ttl)
		learn_peer(skb, s);
	if (!bytes)
		return 1;
	f = classify(skb, sk, s, offset, bytes, IW_IN);
	if (f && !read_packet(skb, &p))
		follow_in(skb, sk, f, &p);
	return 1;
}

SEC("cgroup_skb/egress")
int cgroup_skb__egress(struct __sk_buff *skb)
{
	struct bpf_sock *sk = skb->sk;
	iw_u32 offset = 0, bytes;
	struct packet p = {};
	struct iw_socket *s;
	struct iw_flow *f;

	if (!sk)
		return 1;
	f = followed ? bpf_sk_storage_get(&flows, sk, 0, 0) : 0;
	if (f) {
		touch(f, IW_OUT);
		if (!read_packet(skb, &p))
			follow_out(skb, sk, f, &p);
		return 1;
	}
	s = bpf_sk_storage_get(&sockets, sk, 0, 0);
	if (s && s->mode == IW_MODE_IGNORE) {
		count_stat(IW_STAT_IGNORED);
		return 1;
	}
	bytes = read_payload(skb, &offset);
	if (!bytes)
		return 1;
	if (!s || s->mode == IW_MODE_LISTEN)
		s = first_out(skb, sk);
	if (!s)
		return 1;
	if (s->mode == IW_MODE_FOLLOW) {
		f = bpf_sk_storage_get(&flows, sk, 0, 0);
		if (f && !read_packet(skb, &p))
			follow_out(skb, sk, f, &p);
		return 1;
	}
	f = classify(skb, sk, s, offset, bytes, IW_OUT);
	if (f && !read_packet(skb, &p))
		follow_out(skb, sk, f, &p);
	return 1;
}

/* ---- Accept: the peer's address is asked for inside accept(), or soon after it ---- */

static __always_inline int accepted(struct iw_socket *s, struct iw_flow *f)
{
	struct iw_tcp_sums *sums;

	s->accepted_ns = bpf_ktime_get_ns();
	take_owner(s);
	sums = sums_of(s);
	if (sums && s->established_ns && s->accepted_ns > s->established_ns)
		add_time(&sums->accept_wait, (s->accepted_ns - s->established_ns) / 1000);
	if (f) {
		f->record.conn.accepted_ns = s->accepted_ns;
		f->record.conn.owner_pid = s->owner_pid;
		f->record.conn.owner_cgroup_id = s->owner_cgroup_id;
		__builtin_memcpy(f->record.conn.comm, s->comm, sizeof(s->comm));
	}
	return 1;
}

static __always_inline int waits_for_accept(const struct iw_socket *s)
{
	return s && s->role == IW_ROLE_SERVER && !s->accepted_ns && !(s->flags & IW_CONN_MIDWAY);
}

static __always_inline int asked_for_peer(struct bpf_sock_addr *ctx)
{
	struct iw_socket *s;
	struct tcp_sock *tp;

	if (!ctx->sk || ctx->protocol != 6)
		return 1;
	s = bpf_sk_storage_get(&sockets, ctx->sk, 0, 0);
	if (!waits_for_accept(s))
		return 1;
	if (!s->established_ns) {
		tp = bpf_skc_to_tcp_sock(ctx->sk);
		begin_child(s, tp, bpf_get_socket_cookie(ctx));
	}
	return accepted(s, s->mode == IW_MODE_FOLLOW ? bpf_sk_storage_get(&flows, ctx->sk, 0, 0) : 0);
}

SEC("cgroup/getpeername4")
int cgroup__getpeername4(struct bpf_sock_addr *ctx) { return asked_for_peer(ctx); }

SEC("cgroup/getpeername6")
int cgroup__getpeername6(struct bpf_sock_addr *ctx) { return asked_for_peer(ctx); }

/* Every accept(), whether or not it asks for the address. */
static __always_inline int has_accepted(struct sock *sk)
{
	struct iw_socket *s;

	if (!sk || sk->sk_protocol != 6)
		return 0;
	s = bpf_sk_storage_get(&sockets, sk, 0, 0);
	if (!waits_for_accept(s))
		return 0;
	if (!s->established_ns)
		begin_child(s, bpf_skc_to_tcp_sock(sk), bpf_get_socket_cookie(sk));
	accepted(s, s->mode == IW_MODE_FOLLOW ? bpf_sk_storage_get(&flows, sk, 0, 0) : 0);
	return 0;
}

SEC("fexit/inet_csk_accept")
int BPF_PROG(fexit__inet_csk_accept, struct sock *listener, struct proto_accept_arg *arg, struct sock *sk)
{
	return has_accepted(sk);
}

/* Before 6.10. */
SEC("fexit/inet_csk_accept")
int BPF_PROG(fexit__inet_csk_accept_flags, struct sock *listener, int flags, int *err, _Bool kern, struct sock *sk)
{
	return has_accepted(sk);
}

/* ---- State changes ---- */

struct closing {
	struct iw_flow *f;
};

static long close_one(iw_u32 index, struct closing *c)
{
	if (c->f->live != 1)
		return 1;
	c->f->finish = 1;
	emit(c->f);
	return 0;
}

static __always_inline void connecting(struct sock *sk)
{
	struct iw_socket *s = bpf_sk_storage_get(&sockets, sk, 0, BPF_SK_STORAGE_GET_F_CREATE);

	if (!s)
		return;
	s->syn_ns = bpf_ktime_get_ns();
	s->role = IW_ROLE_CLIENT;
	s->port = bpf_ntohs(sk->__sk_common.skc_dport);
	s->cgroup_id = cgroup_of(sk);
	take_owner(s);
}

static __always_inline void connected(struct sock *sk)
{
	struct iw_socket *s = bpf_sk_storage_get(&sockets, sk, 0, 0);
	struct tcp_sock *tp = bpf_skc_to_tcp_sock(sk);
	struct iw_tcp_sums *sums;

	if (!s || !tp)
		return;
	s->established_ns = bpf_ktime_get_ns();
	sums = sums_of(s);
	if (!sums)
		return;
	IW_ADD(sums->connects[IW_CONNECT_OK], 1);
	if (s->syn_ns && s->established_ns > s->syn_ns)
		add_time(&sums->connect, (s->established_ns - s->syn_ns) / 1000);
	first_round_trip(s, tp);
}

/* A router's answer that came while connect() ran: the caller has been told of it by the error queue, and the kernel goes
 * on trying. */
static __always_inline iw_u32 told_error(struct sock *sk)
{
	struct sk_buff *skb = BPF_CORE_READ(sk, sk_error_queue.next);

	if (!BPF_CORE_READ(sk, sk_error_queue.qlen) || !skb)
		return 0;
	return BPF_CORE_READ((struct sock_exterr_skb *)&skb->cb, ee.ee_errno);
}

static __always_inline void not_connected(struct sock *sk, struct iw_socket *s, struct tcp_sock *tp)
{
	struct iw_tcp_sums *sums = sums_of(s);
	int error = sk->sk_err;
	iw_u32 result;

	switch (error < 0 ? -error : error ?: told_error(sk)) {
	case 0:
		result = tp->segs_out ? IW_CONNECT_ABORTED : IW_CONNECT_NO_PORT;
		break;
	case 111: /* ECONNREFUSED */
		result = IW_CONNECT_REFUSED;
		break;
	case 110: /* ETIMEDOUT */
		result = IW_CONNECT_TIMEOUT;
		break;
	case 101: /* ENETUNREACH, EHOSTUNREACH, EACCES and ENOPROTOOPT of a router's answer */
	case 113:
	case 13:
	case 92:
		result = IW_CONNECT_UNREACHABLE;
		break;
	default:
		result = IW_CONNECT_RESET;
	}
	if (sums)
		IW_ADD(sums->connects[result], 1);
}

static __always_inline void listens(struct sock *sk)
{
	struct iw_socket *s = bpf_sk_storage_get(&sockets, sk, 0, BPF_SK_STORAGE_GET_F_CREATE);

	if (!s)
		return;
	s->mode = IW_MODE_LISTEN;
	s->role = IW_ROLE_SERVER;
	s->port = sk->__sk_common.skc_num;
	s->cgroup_id = cgroup_of(sk);
	take_owner(s);
}

static __always_inline void opened(struct sock *sk)
{
	struct iw_socket *s = bpf_sk_storage_get(&sockets, sk, 0, BPF_SK_STORAGE_GET_F_CREATE);
	struct tcp_sock *tp = bpf_skc_to_tcp_sock(sk);

	if (!s || !tp)
		count_stat(IW_STAT_STORAGE_FAILED);
	else if (!s->established_ns)
		begin_child(s, tp, bpf_get_socket_cookie(sk));
}

static __always_inline void ended(struct sock *sk, int before)
{
	struct iw_socket *s = bpf_sk_storage_get(&sockets, sk, 0, 0);
	struct tcp_sock *tp = bpf_skc_to_tcp_sock(sk);
	struct iw_flow *f = 0;
	int cut;

	if (before == IW_TCP_LISTEN)
		listener_closed(sk);
	if (!s || !tp || before == IW_TCP_LISTEN)
		return;
	if (before == IW_TCP_SYN_SENT)
		not_connected(sk, s, tp);
	if (s->light_done)
		flush_light(s);
	if (s->mode == IW_MODE_FOLLOW)
		f = bpf_sk_storage_get(&flows, sk, 0, 0);
	if (f) {
		struct iw_request *r = &f->record.request;

		/* Without FIN, RST or error our side aborts (SO_LINGER of 0, unread data): its RST is sent after this. */
		if (f->live == 1 && !r->server_fin_ns && !r->client_fin_ns && !sk->sk_err)
			iw_fin(f, f->role == IW_ROLE_SERVER ? IW_SIDE_SERVER : IW_SIDE_CLIENT, 1, bpf_ktime_get_ns());
		s->cut_ordinal = r->head.ordinal;
		s->cut_chunks = r->chunks;
		__sync_fetch_and_or(&s->flags, f->live == 1 && !iw_reused_too_late(f)
						       ? IW_SOCKET_FOLLOWED | IW_SOCKET_CUT
						       : IW_SOCKET_FOLLOWED);
	}
	/* After LAST_ACK both sides have closed: what comes still is a straggler, and its reset ends nothing. */
	cut = before == IW_TCP_ESTABLISHED || before == IW_TCP_CLOSE_WAIT || before == IW_TCP_LAST_ACK;
	if (cut || before == IW_TCP_FIN_WAIT1 || before == IW_TCP_FIN_WAIT2 || before == IW_TCP_CLOSING)
		remember_closed(sk, s, tp, !(s->flags & IW_SOCKET_CUT) && tp->bytes_sent, cut || sk->sk_err);
	if (sk->sk_err == 110 && tp->inet_conn.icsk_user_timeout && !(s->flags & IW_SOCKET_RESET) &&
	    before != IW_TCP_SYN_SENT)
		reset_of(sk, s, IW_DIRECTION_SENT, IW_RESET_USER_TIMEOUT, 0);
	flush_counts(s, tp);
}

/* What is open of a followed connection's requests leaves. */
static __noinline int end_flow(struct sock *sk)
{
	struct iw_socket *s;
	struct iw_flow *f;

	if (!sk)
		return 0;
	s = bpf_sk_storage_get(&sockets, sk, 0, 0);
	if (!s || s->mode != IW_MODE_FOLLOW)
		return 0;
	f = bpf_sk_storage_get(&flows, sk, 0, 0);
	if (f && f->live == 1) {
		struct closing c = {.f = f};

		bpf_loop(IW_QUEUE + 1, close_one, &c, 0);
	}
	if (f && !bpf_sk_storage_delete(&flows, sk)) {
		__sync_fetch_and_sub(&followed, 1);
		s->mode = IW_MODE_NEW;
	}
	return 0;
}

SEC("tp_btf/inet_sock_set_state")
int BPF_PROG(tp_btf__inet_sock_set_state, struct sock *sk, int before, int after)
{
	if (sk->sk_protocol != 6)
		return 0;
	if (after == IW_TCP_SYN_SENT) {
		connecting(sk);
	} else if (after == IW_TCP_ESTABLISHED && before == IW_TCP_SYN_SENT) {
		connected(sk);
	} else if (after == IW_TCP_ESTABLISHED && before == IW_TCP_SYN_RECV) {
		opened(sk);
	} else if (after == IW_TCP_LISTEN) {
		listens(sk);
	} else if (after == IW_TCP_CLOSE) {
		ended(sk, before);
		end_flow(sk);
	}
	return 0;
}

/* ---- Reads ---- */

SEC("tp_btf/tcp_rcv_space_adjust")
int BPF_PROG(tp_btf__tcp_rcv_space_adjust, struct sock *sk)
{
	struct iw_socket *s;
	struct iw_flow *f;
	struct tcp_sock *tp;
	struct iw_conn *c;
	iw_u64 now_ns;

	if (!followed)
		return 0;
	f = bpf_sk_storage_get(&flows, sk, 0, 0);
	if (!f || !iw_read_armed(f))
		return 0;
	tp = bpf_skc_to_tcp_sock(sk);
	if (!tp)
		return 0;
	now_ns = bpf_ktime_get_ns();
	c = &f->record.conn;
	if (c->owner_pid != bpf_get_current_pid_tgid() >> 32) {
		struct owner o = {};

		/* The descriptor was passed on, or inherited. */
		current_owner(&o);
		s = bpf_sk_storage_get(&sockets, sk, 0, 0);
		if (s)
			set_owner(s, &o);
		c->owner_pid = o.pid;
		c->owner_cgroup_id = o.cgroup_id;
		__builtin_memcpy(c->comm, o.comm, sizeof(c->comm));
	}
	if (c->role == IW_ROLE_SERVER && !c->accepted_ns && !(c->flags & IW_CONN_MIDWAY)) {
		c->accepted_ns = now_ns;
		c->flags |= IW_CONN_ACCEPT_BOUND;
	}
	iw_read(f, tp->copied_seq, now_ns);
	if (f->finish)
		emit(f);
	return 0;
}

/* ---- Hand-over of data that TCP holds back ---- */

static __always_inline int handed_over(struct sock *sk, int ret)
{
	struct iw_flow *f;
	struct tcp_sock *tp;
	struct iw_send *send;

	if (!followed || ret <= 0 || sk->sk_protocol != 6)
		return 0;
	f = bpf_sk_storage_get(&flows, sk, 0, 0);
	if (!f || f->live != 1 || f->role != IW_ROLE_SERVER)
		return 0;
	tp = bpf_skc_to_tcp_sock(sk);
	if (!tp || tp->write_seq == tp->snd_nxt)
		return 0;
	send = &f->sends[f->sends_head & (IW_SENDS - 1)];
	send->time_ns = bpf_ktime_get_ns();
	send->seq = tp->write_seq;
	f->sends_head++;
	return 0;
}

SEC("tp_btf/sock_send_length")
int BPF_PROG(tp_btf__sock_send_length, struct sock *sk, int ret, int flags) { return handed_over(sk, ret); }

/* Before 6.3; splice and sendfile pass by another way there. */
SEC("fexit/tcp_sendmsg")
int BPF_PROG(fexit__tcp_sendmsg, struct sock *sk, struct msghdr *message, iw_u64 bytes, int ret)
{
	return handed_over(sk, ret);
}

/* ---- The walk over sockets: by map, else by every process' files (a socket may come twice) ---- */

/* Everything that the agent wants to know of a socket now and then. */
static __always_inline void tell(struct seq_file *seq, struct sock *sk, struct iw_socket *s)
{
	struct iw_flow *f;

	if (sk->__sk_common.skc_state == IW_TCP_LISTEN) {
		struct iw_listener l = {};

		name_listener(&l, sk, s, bpf_sk_storage_get(&listening, sk, 0, 0));
		l.header.kind = IW_REC_LISTENER;
		l.header.size_bytes = sizeof(l);
		l.cookie = bpf_get_socket_cookie(sk);
		bpf_seq_write(seq, &l, sizeof(l));
		return;
	}
	if (s->light_done)
		flush_light(s);
	f = bpf_sk_storage_get(&flows, sk, 0, 0);
	if (!f || f->live > 1)
		return;
	f->record.header.kind = f->live ? IW_REC_PARTIAL : IW_REC_IDLE;
	f->record.header.size_bytes = sizeof(f->record);
	bpf_seq_write(seq, &f->record, sizeof(f->record));
}

static __always_inline void tell_state(struct seq_file *seq, struct sock *sk, struct iw_socket *s)
{
	struct tcp_sock *tp = bpf_skc_to_tcp_sock(sk);
	struct iw_socket_state state = {};

	if (!tp || sk->__sk_common.skc_state == IW_TCP_LISTEN)
		return;
	flush_counts(s, tp);
	state.header.kind = IW_REC_SOCKET;
	state.header.size_bytes = sizeof(state);
	state.cookie = bpf_get_socket_cookie(sk);
	state.cgroup_id = owner_cgroup(s);
	state.pid = s->owner_pid;
	state.port = s->role ? s->port : 0;
	state.role = s->role;
	state.state = sk->__sk_common.skc_state;
	__builtin_memcpy(state.comm, s->comm, sizeof(state.comm));
	bpf_seq_write(seq, &state, sizeof(state));
}

SEC("iter/bpf_sk_storage_map")
int iter__sockets(struct bpf_iter__bpf_sk_storage_map *ctx)
{
	struct iw_socket *s = ctx->value;
	struct sock *sk = ctx->sk;

	if (!s || !sk)
		return 0;
	tell(ctx->meta->seq, sk, s);
	tell_state(ctx->meta->seq, sk, s);
	return 0;
}

/* A socket that is older than the agent is the process' that has it open. */
static __always_inline struct iw_socket *found_in(struct task_struct *task, struct sock *sk)
{
	struct tcp_sock *tp = bpf_skc_to_tcp_sock(sk);
	struct iw_socket *s;
	struct owner o = {};

	if (!tp)
		return 0;
	s = bpf_sk_storage_get(&sockets, sk, 0, 0);
	if (s && s->owner_pid)
		return s;
	if (!s) {
		iw_u8 state = sk->__sk_common.skc_state;

		if (state == IW_TCP_CLOSE)
			return 0;
		s = bpf_sk_storage_get(&sockets, sk, 0, BPF_SK_STORAGE_GET_F_CREATE);
		if (!s)
			return 0;
		if (state == IW_TCP_LISTEN) {
			s->mode = IW_MODE_LISTEN;
			s->role = IW_ROLE_SERVER;
			s->port = sk->__sk_common.skc_num;
		} else {
			s->flags = IW_CONN_MIDWAY;
			begin_counts(s, tp);
		}
		s->cgroup_id = cgroup_of(sk);
	}
	owner_of_task(task, &o);
	set_owner(s, &o);
	return s;
}

static __always_inline struct sock *tcp_socket_of(struct file *file)
{
	struct socket *socket;
	struct sock *sk;

	if (!file)
		return 0;
	socket = bpf_sock_from_file(file);
	if (!socket)
		return 0;
	sk = socket->sk;
	return sk && sk->sk_protocol == 6 ? sk : 0;
}

SEC("iter/task_file")
int iter__task_file(struct bpf_iter__task_file *ctx)
{
	struct task_struct *task = ctx->task;
	struct iw_socket *s;
	struct sock *sk;

	if (!task)
		return 0;
	sk = tcp_socket_of(ctx->file);
	s = sk ? found_in(task, sk) : 0;
	if (!s)
		return 0;
	tell(ctx->meta->seq, sk, s);
	tell_state(ctx->meta->seq, sk, s);
	return 0;
}

/* Where the walk goes by map: this one finds what is not in it yet. */
SEC("iter/task_file")
int iter__found(struct bpf_iter__task_file *ctx)
{
	struct task_struct *task = ctx->task;
	struct sock *sk;

	if (!task)
		return 0;
	sk = tcp_socket_of(ctx->file);
	if (sk)
		found_in(task, sk);
	return 0;
}
