/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
 *
 * TCP as the kernel counts it, by owner: retransmits, round trips, connects, resets and their causes. Nothing here looks
 * at packets: bytes and segments are the kernel's own counts, added up when a connection ends or the walk comes by.
 */
#ifndef INFERWIRE_TCP_H
#define INFERWIRE_TCP_H

#include "maps.h"

/* ---- Owner ---- */

struct owner {
	iw_u64 cgroup_id;
	iw_u32 pid;
	iw_u32 pad0;
	char comm[16];
};

/* The process, not the thread. */
static __always_inline void owner_of_task(struct task_struct *task, struct owner *o)
{
	struct task_struct *leader = BPF_CORE_READ(task, group_leader);

	o->pid = BPF_CORE_READ(task, tgid);
	o->cgroup_id = BPF_CORE_READ(task, cgroups, dfl_cgrp, kn, id);
	bpf_probe_read_kernel(o->comm, sizeof(o->comm), __builtin_preserve_access_index(&leader->comm));
}

static __always_inline void current_owner(struct owner *o)
{
	owner_of_task((struct task_struct *)bpf_get_current_task(), o);
}

static __always_inline void set_owner(struct iw_socket *s, const struct owner *o)
{
	s->owner_pid = o->pid;
	s->owner_cgroup_id = o->cgroup_id;
	__builtin_memcpy(s->comm, o->comm, sizeof(s->comm));
}

static __always_inline void take_owner(struct iw_socket *s)
{
	struct owner o = {};

	current_owner(&o);
	set_owner(s, &o);
}

/* Of the process that called socket(); children have their listener's. */
static __always_inline iw_u64 cgroup_of(struct sock *sk) { return BPF_CORE_READ(sk, sk_cgrp_data.cgroup, kn, id); }

/* The owner's, if one is known. */
static __always_inline iw_u64 owner_cgroup(const struct iw_socket *s)
{
	return s->owner_cgroup_id ? s->owner_cgroup_id : s->cgroup_id;
}

/* ---- Sums ---- */

/* An owner that had no row yet: told at once, since its cgroup may be gone when the sums are read. */
static __always_inline void tell_owner(const struct iw_tcp_key *key, const char *comm)
{
	struct iw_socket_state *state = bpf_ringbuf_reserve(&records, sizeof(*state), 0);

	if (!state)
		return;
	__builtin_memset(state, 0, sizeof(*state));
	state->header.kind = IW_REC_SOCKET;
	state->header.size_bytes = sizeof(*state);
	state->header.time_ns = bpf_ktime_get_ns();
	state->cgroup_id = key->cgroup_id;
	state->pid = key->pid;
	state->port = key->port;
	state->role = key->role;
	bpf_probe_read_kernel(state->comm, sizeof(state->comm), comm);
	bpf_ringbuf_submit(state, BPF_RB_NO_WAKEUP);
}

static __noinline struct iw_tcp_sums *sums_of_key(struct iw_tcp_key *key, const char *comm)
{
	struct iw_tcp_sums *sums;

	if (!key || !comm)
		return 0;
	sums = bpf_map_lookup_elem(&tcp, key);
	if (sums)
		return sums;
	bpf_map_update_elem(&tcp, key, &no_sums, BPF_NOEXIST);
	sums = bpf_map_lookup_elem(&tcp, key);
	if (!sums) {
		count_stat(IW_STAT_SUMS_FULL);
		return 0;
	}
	bpf_probe_read_kernel(sums->comm, sizeof(sums->comm), comm);
	tell_owner(key, comm);
	return sums;
}

/* Of the socket's owner; 0 when the map is full. */
static __always_inline struct iw_tcp_sums *sums_of(const struct iw_socket *s)
{
	struct iw_tcp_key key = {};

	key.cgroup_id = owner_cgroup(s);
	key.pid = s->owner_pid;
	key.role = s->role;
	key.port = s->role ? s->port : 0;
	return sums_of_key(&key, s->comm);
}

#define IW_ADD(counter, n) __sync_fetch_and_add(&(counter), n)

static __noinline int add_time(struct iw_tcp_times *times, iw_u64 us)
{
	iw_u64 i = 0;

	if (!times)
		return 0;
#define IW_EDGE(edge) i += us > edge;
	IW_TCP_EDGES(IW_EDGE)
#undef IW_EDGE
	IW_FORGET(i);
	if (i > IW_TCP_EDGES_COUNT)
		return 0;
	IW_ADD(times->buckets[i], 1);
	IW_ADD(times->sum_us, us);
	return 0;
}

/* Without the FIN, which the kernel counts as a byte. */
static __always_inline iw_u64 bytes_received(struct tcp_sock *tp)
{
	return tp->bytes_received - (tp->inet_conn.icsk_inet.sk.__sk_common.skc_flags >> IW_SOCK_DONE & 1);
}

/* The kernel's counts of a connection from here on. */
static __always_inline void begin_counts(struct iw_socket *s, struct tcp_sock *tp)
{
	s->segments[IW_DIRECTION_RECEIVED] = tp->segs_in;
	s->segments[IW_DIRECTION_SENT] = tp->segs_out;
	s->bytes[IW_DIRECTION_RECEIVED] = bytes_received(tp);
	s->bytes[IW_DIRECTION_SENT] = tp->bytes_sent - tp->bytes_retrans;
}

/* Adds what the kernel has counted since the last time. */
static __noinline int flush_counts(struct iw_socket *s, struct tcp_sock *tp)
{
	struct iw_tcp_sums *sums;
	iw_u32 in, out, header;
	iw_u64 received, sent;

	if (!s || !tp)
		return 0;
	in = tp->segs_in - s->segments[IW_DIRECTION_RECEIVED];
	out = tp->segs_out - s->segments[IW_DIRECTION_SENT];
	if (!in && !out && s->flags & IW_SOCKET_OPENED)
		return 0;
	sums = sums_of(s);
	if (!sums)
		return 0;
	received = bytes_received(tp) - s->bytes[IW_DIRECTION_RECEIVED];
	sent = tp->bytes_sent - tp->bytes_retrans - s->bytes[IW_DIRECTION_SENT];
	begin_counts(s, tp);
	header = tp->tcp_header_len + (tp->inet_conn.icsk_inet.sk.__sk_common.skc_family == 2 ? 20 : 40);
	IW_ADD(sums->segments[IW_DIRECTION_RECEIVED], in);
	IW_ADD(sums->segments[IW_DIRECTION_SENT], out);
	IW_ADD(sums->header_bytes[IW_DIRECTION_RECEIVED], (iw_u64)in * header);
	IW_ADD(sums->header_bytes[IW_DIRECTION_SENT], (iw_u64)out * header);
	IW_ADD(sums->payload_bytes[IW_DIRECTION_RECEIVED], received);
	IW_ADD(sums->payload_bytes[IW_DIRECTION_SENT], sent);
	if (s->established_ns && !(s->flags & (IW_SOCKET_OPENED | IW_CONN_MIDWAY))) {
		IW_ADD(sums->opened, 1);
		__sync_fetch_and_or(&s->flags, IW_SOCKET_OPENED);
	}
	return 0;
}

/* ---- Round trips ---- */

static __always_inline void add_rtt(struct iw_socket *s, struct tcp_sock *tp, iw_u32 rtt_us)
{
	struct iw_tcp_sums *sums = sums_of(s);
	iw_u32 least = tp->rtt_min.s[0].v;

	if (!sums)
		return;
	add_time(&sums->rtt, rtt_us);
	add_time(&sums->queueing, rtt_us > least ? rtt_us - least : 0);
}

/* A sample costs about as much as five ignored packets. */
#define IW_RTT_INTERVAL_NS 100000000ull

/* The round trip of the segment that was acknowledged last; at most once per round trip and IW_RTT_INTERVAL_NS. */
static __noinline int sample_path(struct iw_socket *s, struct tcp_sock *tp)
{
	iw_u64 wait_ns;
	iw_u32 stamp, rtt;

	if (!s || !tp)
		return 0;
	stamp = (iw_u32)tp->rack.mstamp;
	rtt = tp->rack.rtt_us;
	wait_ns = (iw_u64)(tp->srtt_us >> 3) * 1000;
	if (wait_ns < IW_RTT_INTERVAL_NS)
		wait_ns = IW_RTT_INTERVAL_NS;
	s->rtt_next = (iw_u32)bpf_jiffies64() + (iw_u32)(wait_ns / jiffy_ns) + 1;
	if (stamp == s->rtt_stamp || !rtt)
		return 0;
	s->rtt_stamp = stamp;
	add_rtt(s, tp, rtt);
	return 0;
}

static __always_inline int rtt_due(iw_u32 next) { return (int)((iw_u32)bpf_jiffies64() - next) >= 0; }

/* ---- A connection's name ---- */

static __always_inline void copy_v4(iw_u8 *to, iw_u32 be)
{
	__builtin_memset(to, 0, 10);
	to[10] = 0xff;
	to[11] = 0xff;
	__builtin_memcpy(to + 12, &be, 4);
}

/* `key` is zero but for what is set here. */
static __always_inline void name_of(const struct sock_common *c, struct iw_held_key *key)
{
	struct in6_addr l6, r6;

	key->netns = c->skc_net.net->ns.inum;
	key->local_port = c->skc_num;
	if (!key->local_port) /* a closed socket has given it back */
		key->local_port = bpf_ntohs(BPF_CORE_READ((const struct inet_sock *)c, inet_sport));
	key->remote_port = bpf_ntohs(c->skc_dport);
	if (c->skc_family == 2) {
		copy_v4(key->local, c->skc_rcv_saddr);
		copy_v4(key->remote, c->skc_daddr);
	} else {
		bpf_probe_read_kernel(&l6, sizeof(l6), &c->skc_v6_rcv_saddr);
		bpf_probe_read_kernel(&r6, sizeof(r6), &c->skc_v6_daddr);
		__builtin_memcpy(key->local, &l6, 16);
		__builtin_memcpy(key->remote, &r6, 16);
	}
}

/* IPv4 also where it is mapped. */
static __always_inline iw_u16 family_of(const struct iw_held_key *key)
{
	return key->local[10] == 0xff && key->local[11] == 0xff && !key->local[0] ? 2 : 10;
}

/* Of the connection to which the packet that came in would belong. Returns its TCP flags, and the bytes of payload. */
static __always_inline iw_u8 name_of_packet(struct sk_buff *skb, struct sock *sk, struct iw_held_key *key,
					    iw_u32 *payload)
{
	unsigned char *head = BPF_CORE_READ(skb, head);
	unsigned char *ip = head + BPF_CORE_READ(skb, network_header),
		      *at = head + BPF_CORE_READ(skb, transport_header);
	/* A packet that has reached a socket has no device any more. */
	struct net *net = sk ? BPF_CORE_READ(sk, __sk_common.skc_net.net) : BPF_CORE_READ(skb, dev, nd_net.net);
	iw_u8 tcp_header[20] = {}, ip_header[40] = {};
	iw_u32 total;

	bpf_probe_read_kernel(tcp_header, sizeof(tcp_header), at);
	bpf_probe_read_kernel(ip_header, sizeof(ip_header), ip);
	key->netns = BPF_CORE_READ(net, ns.inum);
	key->remote_port = tcp_header[0] << 8 | tcp_header[1];
	key->local_port = tcp_header[2] << 8 | tcp_header[3];
	if (ip_header[0] >> 4 == 4) {
		copy_v4(key->remote, *(iw_u32 *)(ip_header + 12));
		copy_v4(key->local, *(iw_u32 *)(ip_header + 16));
	} else {
		__builtin_memcpy(key->remote, ip_header + 8, 16);
		__builtin_memcpy(key->local, ip_header + 24, 16);
	}
	/* TCP has taken the IP header off: what is left begins with its own. */
	total = BPF_CORE_READ(skb, len);
	total -= (iw_u32)(tcp_header[12] >> 4) * 4;
	*payload = (int)total > 0 ? total : 0;
	return tcp_header[13];
}

/* ---- Resets ---- */

static __always_inline iw_u64 jiffies_to_ns(iw_u32 jiffies) { return (iw_u64)jiffies * jiffy_ns; }

static __always_inline iw_u8 side_of_role(iw_u8 role, int local)
{
	if (role == IW_ROLE_UNKNOWN)
		return IW_SIDE_NONE;
	return (role == IW_ROLE_SERVER) == local ? IW_SIDE_SERVER : IW_SIDE_CLIENT;
}

static __always_inline void write_reset(struct iw_reset *r)
{
	r->header.kind = IW_REC_RESET;
	r->header.size_bytes = sizeof(*r);
	r->header.time_ns = bpf_ktime_get_ns();
	count_stat(IW_STAT_RECORDS_SEEN + IW_REC_RESET);
	if (bpf_ringbuf_output(&records, r, sizeof(*r), BPF_RB_NO_WAKEUP))
		count_stat(IW_STAT_RECORDS_LOST + IW_REC_RESET);
}

static __always_inline void name_reset(struct iw_reset *r, const struct iw_held_key *key)
{
	__builtin_memcpy(r->local_addr, key->local, 16);
	__builtin_memcpy(r->remote_addr, key->remote, 16);
	r->local_port = key->local_port;
	r->remote_port = key->remote_port;
	r->family = family_of(key);
}

/* Counts the reset of a live connection, and tells of it if the connection was followed or reused too late. */
static __noinline int reset_of(struct sock *sk, struct iw_socket *s, iw_u32 direction, iw_u32 cause, iw_u32 reason)
{
	struct iw_reset r = {};
	struct iw_held_key key = {};
	struct iw_tcp_sums *sums;
	struct tcp_sock *tp;
	struct iw_flow *f;
	iw_u32 now = (iw_u32)bpf_jiffies64(), sent, received, last;
	iw_u8 state;

	if (!sk || !s || cause >= IW_RESET_CAUSES || direction > 1)
		return 0;
	__sync_fetch_and_or(&s->flags, IW_SOCKET_RESET);
	sums = sums_of(s);
	if (sums)
		IW_ADD(sums->resets[direction & 1][cause], 1);
	f = bpf_sk_storage_get(&flows, sk, 0, 0);
	if (!f && !(s->flags & IW_SOCKET_FOLLOWED) && cause != IW_RESET_STALE_REUSE)
		return 0;
	tp = bpf_skc_to_tcp_sock(sk);
	if (!tp)
		return 0;
	sent = tp->lsndtime;
	received = tp->inet_conn.icsk_ack.lrcvtime;
	last = (int)(sent - received) > 0 ? sent : received;
	if (cause == IW_RESET_STALE_REUSE && direction == IW_DIRECTION_RECEIVED)
		r.idle_ns = jiffies_to_ns(sent - received);
	else if (cause == IW_RESET_STALE_REUSE && last == received &&
		 jiffies_to_ns(received - sent) >= IW_STALE_IDLE_NS)
		r.idle_ns = jiffies_to_ns(received - sent);
	else
		r.idle_ns = jiffies_to_ns(now - last);
	name_of(&sk->__sk_common, &key);
	name_reset(&r, &key);
	r.cookie = bpf_get_socket_cookie(sk);
	r.cgroup_id = owner_cgroup(s);
	r.established_ns = s->established_ns;
	r.role = s->role;
	r.direction = direction;
	r.cause = cause;
	r.kernel_reason = reason;
	r.pid = s->owner_pid;
	__builtin_memcpy(r.comm, s->comm, sizeof(r.comm));
	state = sk->__sk_common.skc_state;
	r.closed_first = side_of_role(s->role, state == IW_TCP_FIN_WAIT1 || state == IW_TCP_FIN_WAIT2 ||
						       state == IW_TCP_CLOSING ||
						       (direction == IW_DIRECTION_SENT && state != IW_TCP_CLOSE_WAIT &&
							state != IW_TCP_LAST_ACK));
	r.ordinal = s->cut_ordinal;
	r.chunks = s->cut_chunks;
	r.request_open = !!(s->flags & IW_SOCKET_CUT);
	if (f) {
		r.ordinal = f->record.request.head.ordinal;
		r.chunks = f->record.request.chunks;
		r.request_open = f->live == 1;
	}
	write_reset(&r);
	return 0;
}

/* A packet for which there is no connection (any more) is answered by a reset. `sk`: the remnant or the listener that it
 * reached, if any; `listener`: the latter's state. */
static __noinline int reset_of_nobody(struct sk_buff *skb, struct sock *sk, const struct iw_socket *listener,
				      iw_u32 reason)
{
	struct iw_reset r = {};
	struct iw_held_key name = {};
	struct iw_tcp_key key = {};
	struct iw_tcp_sums *sums;
	struct iw_closed *c;
	iw_u64 now = bpf_ktime_get_ns();
	iw_u32 payload = 0, cause;
	iw_u8 flags;

	if (!skb)
		return 0;
	flags = name_of_packet(skb, sk, &name, &payload);
	cause = flags & 0x02 && !(flags & 0x10) ? IW_RESET_NO_LISTENER
		: payload			? IW_RESET_ON_DATA_AFTER_CLOSE
						: IW_RESET_INVALID_SEGMENT;
	count_stat(IW_STAT_RESETS_NO_SOCKET);
	c = cause == IW_RESET_NO_LISTENER ? 0 : bpf_map_lookup_elem(&closed, &name);
	if (!c) {
		key.role = IW_ROLE_SERVER;
		sums = listener ? sums_of(listener) : sums_of_key(&key, r.comm);
		if (sums)
			IW_ADD(sums->resets[IW_DIRECTION_SENT][cause], 1);
		return 0;
	}
	if (__sync_lock_test_and_set(&c->reset, 1))
		return 0;
	if (payload && c->idle && c->closed_ns - c->active_ns >= IW_STALE_IDLE_NS)
		cause = IW_RESET_STALE_REUSE;
	key.cgroup_id = c->cgroup_id;
	key.pid = c->pid;
	key.role = c->role;
	key.port = c->port;
	sums = sums_of_key(&key, c->comm);
	if (sums)
		IW_ADD(sums->resets[IW_DIRECTION_SENT][cause], 1);
	if (cause != IW_RESET_STALE_REUSE)
		return 0;
	r.cookie = c->cookie;
	r.cgroup_id = c->cgroup_id;
	r.established_ns = c->established_ns;
	r.idle_ns = now - c->active_ns;
	name_reset(&r, &name);
	r.role = c->role;
	r.direction = IW_DIRECTION_SENT;
	r.cause = cause;
	r.closed_first = side_of_role(c->role, 1);
	r.kernel_reason = reason;
	r.pid = c->pid;
	__builtin_memcpy(r.comm, c->comm, sizeof(r.comm));
	write_reset(&r);
	return 0;
}

/* Keeps what is needed to name a reset after the socket has gone. */
static __noinline int remember_closed(struct sock *sk, struct iw_socket *s, struct tcp_sock *tp, int idle, int reset)
{
	struct iw_held_key key = {};
	struct iw_closed c = {};
	iw_u32 now = (iw_u32)bpf_jiffies64(), sent = tp->lsndtime, received = tp->inet_conn.icsk_ack.lrcvtime;

	name_of(&sk->__sk_common, &key);
	c.cookie = bpf_get_socket_cookie(sk);
	c.cgroup_id = owner_cgroup(s);
	c.established_ns = s->established_ns;
	c.closed_ns = bpf_ktime_get_ns();
	c.active_ns = c.closed_ns - jiffies_to_ns(now - ((int)(sent - received) > 0 ? sent : received));
	c.pid = s->owner_pid;
	c.port = s->port;
	c.role = s->role;
	c.idle = idle;
	c.reset = reset;
	__builtin_memcpy(c.comm, s->comm, sizeof(c.comm));
	bpf_map_update_elem(&closed, &key, &c, BPF_ANY);
	return 0;
}

/* A request on a connection that had been quiet, answered at once by the reset. */
static __always_inline int reused_too_late(struct tcp_sock *tp, iw_u8 state)
{
	iw_u32 sent = tp->lsndtime, received = tp->inet_conn.icsk_ack.lrcvtime, now = (iw_u32)bpf_jiffies64();
	iw_u64 quick_ns = IW_STALE_IDLE_NS + (iw_u64)(tp->srtt_us >> 3) * 2000;
	iw_u64 closing = state == IW_TCP_CLOSE_WAIT || state == IW_TCP_LAST_ACK; /* the peer's FIN counts as a byte */

	if (tp->bytes_received <= closing || (int)(sent - received) <= 0 ||
	    jiffies_to_ns(sent - received) < IW_STALE_IDLE_NS)
		return 0;
	return closing || jiffies_to_ns(now - sent) <= quick_ns;
}

/* Closed with unread data: was it a request that came just then, on a connection that had been quiet? */
static __always_inline int closed_as_it_came(const struct iw_socket *s, struct tcp_sock *tp)
{
	iw_u32 sent = tp->lsndtime, received = tp->inet_conn.icsk_ack.lrcvtime, now = (iw_u32)bpf_jiffies64();

	return s->role == IW_ROLE_SERVER && tp->bytes_sent && !(s->flags & IW_SOCKET_CUT) &&
	       (int)(received - sent) > 0 && jiffies_to_ns(received - sent) >= IW_STALE_IDLE_NS &&
	       jiffies_to_ns(now - received) < IW_STALE_IDLE_NS;
}

/* ---- Resets sent ---- */

/* Listeners forget the SYNs that they answered by a cookie. An ACK that comes for two minutes after the latest one may be the
 * answer to it. */
static __always_inline int expects_cookie(const struct iw_listening *counts)
{
	return counts && counts->cookies && (iw_u32)(bpf_ktime_get_ns() / 1000000000) - counts->cookies_s <= 120;
}

/* A listener's own reset, in answer to a packet. */
static __noinline int reset_of_listener(struct sock *sk, struct iw_socket *s, struct sk_buff *skb, iw_u32 reason)
{
	struct iw_listening *counts;
	struct iw_tcp_sums *sums;

	if (!sk || !s || !skb)
		return 0;
	if (sk->sk_ack_backlog > sk->sk_max_ack_backlog) {
		if (BPF_CORE_READ(sk, __sk_common.skc_net.net, ipv4.sysctl_tcp_abort_on_overflow)) {
			sums = sums_of(s);
			if (sums)
				IW_ADD(sums->resets[IW_DIRECTION_SENT][IW_RESET_LISTEN_QUEUE_FULL], 1);
			return 0;
		}
		/* It was no answer to a cookie: judge_listener() has taken it for one that was dropped. */
		counts = bpf_sk_storage_get(&listening, sk, 0, 0);
		if (expects_cookie(counts) && counts->drops[IW_DROP_ACCEPT_QUEUE_FULL])
			__sync_fetch_and_sub(&counts->drops[IW_DROP_ACCEPT_QUEUE_FULL], 1);
	}
	return reset_of_nobody(skb, sk, s, reason);
}

#define IW_RESET_UNTOLD 255 /* the kernel gives no reason */

/* Of a reset that this side sends without being asked (`skb` is 0), or in answer to a packet. */
static __always_inline int sent_reset(struct sock *sk, struct sk_buff *skb, iw_u32 cause, iw_u32 reason)
{
	struct iw_socket *s;
	struct tcp_sock *tp;
	struct iw_held_key name = {};
	iw_u32 payload = 0;
	iw_u8 state;

	if (!sk)
		return reset_of_nobody(skb, 0, 0, reason);
	state = BPF_CORE_READ(sk, __sk_common.skc_state);
	if (state == IW_TCP_TIME_WAIT || state == IW_TCP_NEW_SYN_RECV)
		return reset_of_nobody(skb, sk, 0, reason);
	s = bpf_sk_storage_get(&sockets, sk, 0, 0);
	tp = bpf_skc_to_tcp_sock(sk);
	if (!s || !tp)
		return 0;
	if (state == IW_TCP_LISTEN)
		return reset_of_listener(sk, s, skb, reason);
	if (skb) {
		name_of_packet(skb, sk, &name, &payload);
		if (state == IW_TCP_FIN_WAIT1 || state == IW_TCP_FIN_WAIT2 || state == IW_TCP_CLOSING ||
		    state == IW_TCP_LAST_ACK || state == IW_TCP_CLOSE) {
			iw_u32 sent = tp->lsndtime, received = tp->inet_conn.icsk_ack.lrcvtime;
			iw_u32 quiet = (iw_u32)bpf_jiffies64() - ((int)(sent - received) > 0 ? sent : received);

			cause = payload && tp->bytes_sent && (int)(sent - received) >= 0 &&
						jiffies_to_ns(quiet) >= IW_STALE_IDLE_NS && !(s->flags & IW_SOCKET_CUT)
					? IW_RESET_STALE_REUSE
				: payload ? IW_RESET_ABORT_ON_DATA
					  : IW_RESET_INVALID_SEGMENT;
		} else {
			cause = IW_RESET_INVALID_SEGMENT;
		}
	} else if (cause == IW_RESET_UNTOLD) {
		if (state == IW_TCP_CLOSE)
			cause = tp->rcv_nxt != tp->copied_seq ? IW_RESET_ABORT_ON_CLOSE : IW_RESET_ABORT_ON_LINGER;
		else
			cause = IW_RESET_KEEPALIVE_TIMEOUT;
	}
	if (cause == IW_RESET_ABORT_ON_CLOSE && closed_as_it_came(s, tp))
		cause = IW_RESET_STALE_REUSE;
	if (cause == IW_RESET_KEEPALIVE_TIMEOUT && tp->inet_conn.icsk_user_timeout)
		cause = IW_RESET_USER_TIMEOUT;
	return reset_of(sk, s, IW_DIRECTION_SENT, cause, reason);
}

#define IW_REASON_IS(reason, name)                               \
	(bpf_core_enum_value_exists(enum sk_rst_reason, name) && \
	 (reason) == (int)bpf_core_enum_value(enum sk_rst_reason, name))

SEC("tp_btf/tcp_send_reset")
int BPF_PROG(tp_btf__tcp_send_reset_reason, struct sock *sk, struct sk_buff *skb, int reason)
{
	iw_u32 cause = IW_RESET_UNKNOWN;

	if (IW_REASON_IS(reason, SK_RST_REASON_TCP_ABORT_ON_CLOSE))
		cause = IW_RESET_ABORT_ON_CLOSE;
	else if (IW_REASON_IS(reason, SK_RST_REASON_TCP_ABORT_ON_LINGER) ||
		 IW_REASON_IS(reason, SK_RST_REASON_TCP_STATE) ||
		 IW_REASON_IS(reason, SK_RST_REASON_TCP_DISCONNECT_WITH_DATA))
		cause = IW_RESET_ABORT_ON_LINGER;
	else if (IW_REASON_IS(reason, SK_RST_REASON_TCP_ABORT_ON_MEMORY))
		cause = IW_RESET_MEMORY;
	else if (IW_REASON_IS(reason, SK_RST_REASON_TCP_KEEPALIVE_TIMEOUT))
		cause = IW_RESET_KEEPALIVE_TIMEOUT;
	return sent_reset(sk, skb, cause, (iw_u32)reason & 0xff);
}

/* Before 6.10. */
SEC("tp_btf/tcp_send_reset")
int BPF_PROG(tp_btf__tcp_send_reset, struct sock *sk, struct sk_buff *skb)
{
	return sent_reset(sk, skb, IW_RESET_UNTOLD, 0);
}

SEC("tp_btf/tcp_receive_reset")
int BPF_PROG(tp_btf__tcp_receive_reset, struct sock *sk)
{
	struct iw_socket *s = bpf_sk_storage_get(&sockets, sk, 0, 0);
	struct tcp_sock *tp = bpf_skc_to_tcp_sock(sk);
	iw_u8 state = sk->__sk_common.skc_state;
	iw_u32 cause = IW_RESET_PEER;

	if (!s || !tp)
		return 0;
	/* The kernel passes here too when it is about to send one, since data came in for a closed socket. */
	if ((state == IW_TCP_FIN_WAIT1 || state == IW_TCP_FIN_WAIT2) && !(s->flags & IW_SOCKET_RST_IN))
		return 0;
	if (s->flags & IW_SOCKET_FORGED)
		cause = IW_RESET_FIREWALL;
	else if (state == IW_TCP_SYN_SENT)
		cause = IW_RESET_NO_LISTENER;
	else if (s->role != IW_ROLE_SERVER && reused_too_late(tp, state))
		cause = IW_RESET_STALE_REUSE;
	return reset_of(sk, s, IW_DIRECTION_RECEIVED, cause, 0);
}

/* ---- Retransmits ---- */

/* Kinds as in docs/records.md; the request's own account has no SYNs. */
static __always_inline int retransmitted(struct sock *sk, struct sk_buff *skb)
{
	struct inet_connection_sock *icsk = (struct inet_connection_sock *)bpf_skc_to_tcp_sock(sk);
	struct iw_socket *s;
	struct iw_tcp_sums *sums;
	struct iw_flow *f;
	struct iw_request *r;
	iw_u32 phase, type, segments;
	iw_u8 ca, state = sk->__sk_common.skc_state;

	if (!icsk)
		return 0;
	ca = BPF_CORE_READ_BITFIELD_PROBED(icsk, icsk_ca_state);
	type = state == IW_TCP_SYN_SENT || state == IW_TCP_SYN_RECV	      ? IW_RETRANSMIT_SYN
	       : ca == IW_TCP_CA_LOSS					      ? IW_RETRANSMIT_RTO
	       : ca == IW_TCP_CA_RECOVERY				      ? IW_RETRANSMIT_FAST
	       : BPF_CORE_READ(icsk, icsk_pending) == IW_ICSK_TIME_LOSS_PROBE ? IW_RETRANSMIT_TLP
									      : IW_RETRANSMIT_OTHER;
	segments = BPF_CORE_READ((struct tcp_skb_cb *)&skb->cb, tcp_gso_segs);
	if (!segments)
		segments = 1;
	s = bpf_sk_storage_get(&sockets, sk, 0, BPF_SK_STORAGE_GET_F_CREATE);
	if (!s) {
		count_stat(IW_STAT_STORAGE_FAILED);
		return 0;
	}
	if (!s->cgroup_id && !s->owner_cgroup_id)
		s->cgroup_id = cgroup_of(sk);
	sums = sums_of(s);
	if (sums)
		IW_ADD(sums->retransmits[type], segments);
	if (s->mode != IW_MODE_FOLLOW || type == IW_RETRANSMIT_SYN)
		return 0;
	f = bpf_sk_storage_get(&flows, sk, 0, 0);
	if (!f || f->live != 1)
		return 0;
	r = &f->record.request;
	phase = iw_phase_now(f);
	type -= IW_RETRANSMIT_FAST;
	if (phase < IW_PHASES_MAX && type < IW_RETRANS_TYPES)
		r->retransmits[phase][type] += segments;
	r->retransmitted_segments += segments;
	iw_flag(&r->head, IW_REQ_RETRANSMITTED);
	return 0;
}

/* Since 6.17 failures pass here too. */
SEC("tp_btf/tcp_retransmit_skb")
int BPF_PROG(tp_btf__tcp_retransmit_skb_err, struct sock *sk, struct sk_buff *skb, int err)
{
	return err ? 0 : retransmitted(sk, skb);
}

SEC("tp_btf/tcp_retransmit_skb")
int BPF_PROG(tp_btf__tcp_retransmit_skb, struct sock *sk, struct sk_buff *skb) { return retransmitted(sk, skb); }

SEC("tp_btf/tcp_retransmit_synack")
int BPF_PROG(tp_btf__tcp_retransmit_synack, struct sock *sk, struct request_sock *request)
{
	struct iw_socket *s = bpf_sk_storage_get(&sockets, sk, 0, BPF_SK_STORAGE_GET_F_CREATE);
	struct iw_tcp_sums *sums;

	if (!s) {
		count_stat(IW_STAT_STORAGE_FAILED);
		return 0;
	}
	s->role = IW_ROLE_SERVER;
	s->port = sk->__sk_common.skc_num;
	if (!s->cgroup_id && !s->owner_cgroup_id)
		s->cgroup_id = cgroup_of(sk);
	sums = sums_of(s);
	if (sums)
		IW_ADD(sums->retransmits[IW_RETRANSMIT_SYNACK], 1);
	return 0;
}

#endif
