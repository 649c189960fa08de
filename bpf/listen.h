/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
 *
 * Listeners: what TCP is about to do with a packet that reaches one, decided as TCP decides it (tcp_conn_request(),
 * tcp_v4_syn_recv_sock()), so that the drops of each listener add up to the namespace's own counters.
 */
#ifndef INFERWIRE_LISTEN_H
#define INFERWIRE_LISTEN_H

#include "tcp.h"

extern int LINUX_KERNEL_VERSION __kconfig;
#define IW_VERSION(a, b, c) ((a) << 16 | (b) << 8 | (c))

static __always_inline void name_listener(struct iw_listener *l, struct sock *sk, const struct iw_socket *s,
					  const struct iw_listening *counts)
{
	struct inet_connection_sock *icsk = (struct inet_connection_sock *)sk;
	struct iw_held_key key = {};
	struct net *net = BPF_CORE_READ(sk, __sk_common.skc_net.net);

	name_of(&sk->__sk_common, &key);
	__builtin_memcpy(l->local_addr, key.local, 16);
	l->local_port = key.local_port;
	l->netns = key.netns;
	l->family = sk->__sk_common.skc_family;
	l->accept_queue_length = BPF_CORE_READ(sk, sk_ack_backlog);
	l->accept_queue_limit = BPF_CORE_READ(sk, sk_max_ack_backlog);
	l->syn_queue_length = BPF_CORE_READ(icsk, icsk_accept_queue.qlen.counter);
	l->somaxconn = BPF_CORE_READ(net, core.sysctl_somaxconn);
	l->max_syn_backlog = BPF_CORE_READ(net, ipv4.sysctl_max_syn_backlog);
	l->cgroup_id = owner_cgroup(s);
	l->pid = s->owner_pid;
	__builtin_memcpy(l->comm, s->comm, sizeof(l->comm));
	if (counts) {
		__builtin_memcpy(l->drops, counts->drops, sizeof(l->drops));
		l->cookies = counts->cookies;
	}
}

/* Tells of the listener's drops so far. */
static __always_inline void tell_drops(struct sock *sk, const struct iw_socket *s, struct iw_listening *counts,
				       iw_u64 cookie, iw_u32 reason)
{
	struct iw_listener *l;

	counts->told_ns = bpf_ktime_get_ns();
	count_stat(IW_STAT_RECORDS_SEEN + IW_REC_LISTEN_DROP);
	l = bpf_ringbuf_reserve(&records, sizeof(*l), 0);
	if (!l) {
		count_stat(IW_STAT_RECORDS_LOST + IW_REC_LISTEN_DROP);
		return;
	}
	__builtin_memset(l, 0, sizeof(*l));
	name_listener(l, sk, s, counts);
	l->header.kind = IW_REC_LISTEN_DROP;
	l->header.size_bytes = sizeof(*l);
	l->header.time_ns = counts->told_ns;
	l->cookie = cookie;
	l->reason = reason;
	bpf_ringbuf_submit(l, BPF_RB_NO_WAKEUP);
}

/* What happened at a listener. */
#define IW_LISTEN_COOKIE IW_DROP_REASONS
#define IW_LISTEN_ANSWER (IW_DROP_REASONS + 1) /* to a cookie, if it is one; the accept queue is full */

static __noinline int at_listener(struct __sk_buff *skb, struct bpf_sock *sk, struct sock *full, iw_u32 what)
{
	struct iw_socket *s = bpf_sk_storage_get(&sockets, sk, 0, 0);
	struct iw_listening *counts;
	iw_u64 now_ns = bpf_ktime_get_ns();

	counts = bpf_sk_storage_get(&listening, sk, 0, BPF_SK_STORAGE_GET_F_CREATE);
	if (!counts || !s || !full) {
		count_stat(IW_STAT_STORAGE_FAILED);
		return 0;
	}
	if (what == IW_LISTEN_ANSWER) {
		/* Not told at once: reset_of_listener() may take it back. */
		counts->reason = IW_DROP_ACCEPT_QUEUE_FULL;
		IW_ADD(counts->drops[IW_DROP_ACCEPT_QUEUE_FULL], 1);
		return 0;
	}
	if (what >= IW_DROP_REASONS) {
		IW_ADD(counts->cookies, 1);
		counts->cookies_s = now_ns / 1000000000;
		return 0;
	}
	counts->reason = what;
	IW_ADD(counts->drops[what & (IW_DROP_REASONS - 1)], 1);
	if (!counts->told_ns || now_ns - counts->told_ns >= 1000000000)
		tell_drops(full, s, counts, bpf_get_socket_cookie(skb), what);
	return 0;
}

/* What was not told yet goes with the socket. */
static __noinline int listener_closed(struct sock *sk)
{
	struct iw_socket *s;
	struct iw_listening *counts;

	if (!sk)
		return 0;
	s = bpf_sk_storage_get(&sockets, sk, 0, 0);
	counts = bpf_sk_storage_get(&listening, sk, 0, 0);
	if (s && counts)
		tell_drops(sk, s, counts, bpf_get_socket_cookie(sk), counts->reason);
	return 0;
}

#define IW_NO_REQUEST -1

/* The connection that waits for its third ACK, to which this packet belongs: how many of its SYN-ACKs were in vain. */
static __noinline int timeouts_of_request(struct __sk_buff *skb, iw_u32 header_offset)
{
	struct bpf_sock *found = socket_at(skb, header_offset, 0);
	struct tcp_request_sock *waiting;
	int timeouts;

	if (!found)
		return IW_NO_REQUEST;
	waiting = bpf_skc_to_tcp_request_sock(found);
	timeouts = waiting ? (int)BPF_CORE_READ_BITFIELD_PROBED(&waiting->req.req, num_timeout) : IW_NO_REQUEST;
	bpf_sk_release(found);
	return timeouts;
}

/* As in the accept queue, one more than the limit has room: since 6.13, and in these stable kernels. */
static __always_inline iw_u32 syn_queue_room(iw_u32 limit)
{
	int v = LINUX_KERNEL_VERSION;

	return limit + (v >= IW_VERSION(6, 13, 0) || (v >= IW_VERSION(6, 12, 10) && v < IW_VERSION(6, 13, 0)) ||
			(v >= IW_VERSION(6, 6, 72) && v < IW_VERSION(6, 7, 0)) ||
			(v >= IW_VERSION(6, 1, 125) && v < IW_VERSION(6, 2, 0)) ||
			(v >= IW_VERSION(5, 15, 177) && v < IW_VERSION(5, 16, 0)));
}

/* A packet with SYN, or a third ACK, that reaches a listener. */
static __noinline int judge_listener(struct __sk_buff *skb, struct bpf_sock *sk, struct packet *p)
{
	struct tcp_sock *tp = bpf_skc_to_tcp_sock(sk);
	struct inet_connection_sock *icsk;
	struct iw_listening *counts;
	struct sock *full;
	struct net *net;
	iw_u32 backlog, limit, requests, room, most;
	iw_u8 cookies;
	int wants_cookie = 0, deferred, timeouts;

	if (!tp || p->flags & IW_RST)
		return 0;
	icsk = &tp->inet_conn;
	full = &icsk->icsk_inet.sk;
	backlog = full->sk_ack_backlog;
	limit = full->sk_max_ack_backlog;
	requests = BPF_CORE_READ(icsk, icsk_accept_queue.qlen.counter);
	room = syn_queue_room(limit);
	net = BPF_CORE_READ(full, __sk_common.skc_net.net);
	cookies = BPF_CORE_READ(net, ipv4.sysctl_tcp_syncookies);
	if (!(p->flags & IW_SYN)) {
		/* Of a client that has closed already, the FIN and each of its resends counts too. */
		if (backlog <= limit)
			return 0;
		deferred = BPF_CORE_READ(icsk, icsk_accept_queue.rskq_defer_accept);
		timeouts = timeouts_of_request(skb, p->offset - p->header);
		/* One without data is ignored, until the listener has waited for data long enough. */
		if (timeouts < deferred && timeouts != IW_NO_REQUEST && !p->bytes && !(p->flags & IW_FIN))
			return 0;
		if (timeouts == IW_NO_REQUEST) {
			counts = bpf_sk_storage_get(&listening, sk, 0, 0);
			return expects_cookie(counts) ? at_listener(skb, sk, full, IW_LISTEN_ANSWER) : 0;
		}
		return at_listener(skb, sk, full, IW_DROP_ACCEPT_QUEUE_FULL);
	}
	if (p->flags & IW_ACK)
		return 0;
	most = BPF_CORE_READ(net, ipv4.sysctl_max_syn_backlog);
	if (cookies != 2 && requests < room && backlog <= limit && (cookies || most - requests >= most >> 2))
		return 0;
	if (timeouts_of_request(skb, p->offset - p->header) != IW_NO_REQUEST)
		return 0;
	if (cookies == 2 || requests >= room) {
		if (!cookies)
			return at_listener(skb, sk, full, IW_DROP_SYN_QUEUE_FULL);
		wants_cookie = 1;
	}
	if (backlog > limit)
		return at_listener(skb, sk, full, IW_DROP_ACCEPT_QUEUE_FULL);
	if (wants_cookie)
		return at_listener(skb, sk, full, IW_LISTEN_COOKIE);
	if (!cookies && (int)(most - requests) < (int)(most >> 2))
		return at_listener(skb, sk, full, IW_DROP_MAX_SYN_BACKLOG);
	return 0;
}

#endif
