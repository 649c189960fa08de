/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
 *
 * The few kernel types that the programs read, by field name (CO-RE): the offsets come from the running kernel's BTF
 * at load. Add a field here when a program needs it; order and completeness do not matter.
 */
#ifndef INFERWIRE_KERNEL_TYPES_H
#define INFERWIRE_KERNEL_TYPES_H

#include <linux/bpf.h>
#include <linux/types.h>

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

struct ns_common {
	unsigned int inum;
};

struct net {
	struct ns_common ns;
};

typedef struct {
	struct net *net;
} possible_net_t;

struct in6_addr {
	union {
		__u8 u6_addr8[16];
	} in6_u;
};

struct sock_common {
	__be32 skc_daddr;
	__be32 skc_rcv_saddr;
	__be16 skc_dport;
	__u16 skc_num;
	unsigned short skc_family;
	volatile unsigned char skc_state;
	possible_net_t skc_net;
	struct in6_addr skc_v6_daddr;
	struct in6_addr skc_v6_rcv_saddr;
};

struct sock {
	struct sock_common __sk_common;
	__u16 sk_protocol;
	int sk_err;
};

struct inet_sock {
	struct sock sk;
};

struct inet_connection_sock {
	struct inet_sock icsk_inet;
	__u8 icsk_ca_state : 5;
	__u8 icsk_pending;
};

struct tcp_rack {
	__u64 mstamp;
	__u32 rtt_us;
};

struct tcp_sock {
	struct inet_connection_sock inet_conn;
	__u32 rcv_nxt;
	__u32 copied_seq;
	__u32 snd_nxt;
	__u32 snd_una;
	__u32 write_seq;
	__u32 srtt_us;
	struct tcp_rack rack;
};

struct tcp_skb_cb {
	__u32 seq;
	__u32 end_seq;
	struct {
		__u16 tcp_gso_segs;
		__u16 tcp_gso_size;
	};
};

struct sk_buff {
	char cb[48];
};

struct seq_file;

struct bpf_iter_meta {
	struct seq_file *seq;
	__u64 session_id;
	__u64 seq_num;
};

struct bpf_iter__bpf_sk_storage_map {
	struct bpf_iter_meta *meta;
	struct bpf_map *map;
	struct sock *sk;
	void *value;
};

struct file;
struct task_struct;

struct socket {
	struct sock *sk;
};

struct bpf_iter__task_file {
	struct bpf_iter_meta *meta;
	struct task_struct *task;
	__u32 fd;
	struct file *file;
};

#pragma clang attribute pop

/* include/net/tcp_states.h */
#define IW_TCP_ESTABLISHED 1
#define IW_TCP_SYN_SENT 2
#define IW_TCP_SYN_RECV 3
#define IW_TCP_CLOSE 7
#define IW_TCP_LISTEN 10

/* include/net/tcp.h, inet_connection_sock.h: congestion states and pending timers */
#define IW_TCP_CA_RECOVERY 3
#define IW_TCP_CA_LOSS 4
#define IW_ICSK_TIME_LOSS_PROBE 5

#endif
