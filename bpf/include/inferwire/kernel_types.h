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

struct netns_core {
	int sysctl_somaxconn;
};

struct netns_ipv4 {
	__u8 sysctl_tcp_syncookies;
	__u8 sysctl_tcp_abort_on_overflow;
	int sysctl_max_syn_backlog;
};

struct net {
	struct ns_common ns;
	struct netns_core core;
	struct netns_ipv4 ipv4;
};

typedef struct {
	struct net *net;
} possible_net_t;

typedef struct {
	int counter;
} atomic_t;

struct kernfs_node {
	__u64 id;
};

struct cgroup {
	struct kernfs_node *kn;
};

struct sock_cgroup_data {
	struct cgroup *cgroup;
};

struct css_set {
	struct cgroup *dfl_cgrp;
};

struct task_struct {
	int tgid;
	struct task_struct *group_leader;
	struct css_set *cgroups;
	char comm[16];
};

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
	unsigned long skc_flags;
	possible_net_t skc_net;
	struct in6_addr skc_v6_daddr;
	struct in6_addr skc_v6_rcv_saddr;
};

struct sk_buff_head {
	struct sk_buff *next;
	__u32 qlen;
};

struct sock_extended_err {
	__u32 ee_errno;
};

struct sock_exterr_skb {
	struct sock_extended_err ee;
};

struct sock {
	struct sock_common __sk_common;
	__u16 sk_protocol;
	int sk_err;
	struct sk_buff_head sk_error_queue;
	__u32 sk_ack_backlog;
	__u32 sk_max_ack_backlog;
	struct sock_cgroup_data sk_cgrp_data;
};

struct inet_sock {
	struct sock sk;
	__be16 inet_sport;
};

struct request_sock_queue {
	__u8 rskq_defer_accept;
	atomic_t qlen;
};

struct inet_connection_sock {
	struct inet_sock icsk_inet;
	struct request_sock_queue icsk_accept_queue;
	__u32 icsk_user_timeout;
	struct {
		__u32 lrcvtime;
	} icsk_ack;
	__u8 icsk_ca_state : 5;
	__u8 icsk_pending;
};

struct tcp_rack {
	__u64 mstamp;
	__u32 rtt_us;
};

struct minmax_sample {
	__u32 t;
	__u32 v;
};

struct minmax {
	struct minmax_sample s[3];
};

struct tcp_sock {
	struct inet_connection_sock inet_conn;
	__u16 tcp_header_len;
	__u32 segs_in;
	__u32 segs_out;
	__u64 bytes_received;
	__u64 bytes_sent;
	__u64 bytes_retrans;
	__u32 lsndtime;
	struct minmax rtt_min;
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

struct net_device {
	possible_net_t nd_net;
};

struct sk_buff {
	struct net_device *dev;
	char cb[48];
	unsigned char *head;
	__u16 transport_header;
	__u16 network_header;
	__u32 len;
};

struct request_sock {
	__u8 num_timeout : 7;
};

struct inet_request_sock {
	struct request_sock req;
};

struct tcp_request_sock {
	struct inet_request_sock req;
};

struct msghdr;

struct proto_accept_arg;

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

struct socket {
	struct sock *sk;
};

struct bpf_iter__task_file {
	struct bpf_iter_meta *meta;
	struct task_struct *task;
	__u32 fd;
	struct file *file;
};

/* Values differ between kernels: bpf_core_enum_value(). */
enum sk_rst_reason {
	SK_RST_REASON_NO_SOCKET = 1,
	SK_RST_REASON_TCP_ABORT_ON_DATA = 8,
	SK_RST_REASON_TCP_TIMEWAIT_SOCKET = 9,
	SK_RST_REASON_TCP_ABORT_ON_CLOSE = 11,
	SK_RST_REASON_TCP_ABORT_ON_LINGER = 12,
	SK_RST_REASON_TCP_ABORT_ON_MEMORY = 13,
	SK_RST_REASON_TCP_STATE = 14,
	SK_RST_REASON_TCP_KEEPALIVE_TIMEOUT = 15,
	SK_RST_REASON_TCP_DISCONNECT_WITH_DATA = 16,
};

#pragma clang attribute pop

/* include/net/tcp_states.h */
#define IW_TCP_ESTABLISHED 1
#define IW_TCP_SYN_SENT 2
#define IW_TCP_SYN_RECV 3
#define IW_TCP_FIN_WAIT1 4
#define IW_TCP_FIN_WAIT2 5
#define IW_TCP_TIME_WAIT 6
#define IW_TCP_CLOSE 7
#define IW_TCP_CLOSE_WAIT 8
#define IW_TCP_LAST_ACK 9
#define IW_TCP_LISTEN 10
#define IW_TCP_CLOSING 11
#define IW_TCP_NEW_SYN_RECV 12

/* include/net/sock.h: the peer's FIN has come in order */
#define IW_SOCK_DONE 1

/* include/net/tcp.h, inet_connection_sock.h: congestion states and pending timers */
#define IW_TCP_CA_RECOVERY 3
#define IW_TCP_CA_LOSS 4
#define IW_ICSK_TIME_LOSS_PROBE 5

#endif
