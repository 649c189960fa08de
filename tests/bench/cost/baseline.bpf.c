/* SPDX-License-Identifier: Apache-2.0
 *
 * What the packet programs are measured against: two programs that do nothing, and two that do the least that any
 * program that knows its stream must do (headers, storage look-up, clock, one histogram bucket).
 */
#include <linux/bpf.h>
#include <linux/in.h>
#include <linux/ip.h>
#include <linux/ipv6.h>
#include <linux/tcp.h>

#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

char LICENSE[] SEC("license") = "Apache-2.0";

SEC("cgroup_skb/ingress")
int empty_ingress(struct __sk_buff *skb) { return 1; }

SEC("cgroup_skb/egress")
int empty_egress(struct __sk_buff *skb) { return 1; }

struct stream {
	__u64 last_ns;
	__u32 seq;
	__u32 pad0;
};

/* One per TCP connection that carried payload; freed with the socket. */
struct {
	__uint(type, BPF_MAP_TYPE_SK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct stream);
} streams SEC(".maps");

#define BUCKETS 64
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, BUCKETS);
	__type(key, __u32);
	__type(value, __u64);
} gaps SEC(".maps");

static __always_inline __u32 log2_of(__u64 x)
{
	__u32 n = 0;

	if (x >> 32) {
		n += 32;
		x >>= 32;
	}
	if (x >> 16) {
		n += 16;
		x >>= 16;
	}
	if (x >> 8) {
		n += 8;
		x >>= 8;
	}
	if (x >> 4) {
		n += 4;
		x >>= 4;
	}
	if (x >> 2) {
		n += 2;
		x >>= 2;
	}
	return n + (x >> 1);
}

static __always_inline int base(struct __sk_buff *skb)
{
	void *data = (void *)(long)skb->data, *end = (void *)(long)skb->data_end;
	struct bpf_sock *sk = skb->sk;
	struct iphdr *ip = data;
	struct ipv6hdr *ip6 = data;
	struct tcphdr *tcp;
	struct stream *s;
	__u32 offset, header, bucket;
	__u64 now_ns, *count;

	if (!sk)
		return 1;
	sk = bpf_sk_fullsock(sk);
	if (!sk || sk->protocol != IPPROTO_TCP)
		return 1;
	if ((void *)(ip6 + 1) > end)
		return 1;
	if (ip->version == 4) {
		if (ip->protocol != IPPROTO_TCP)
			return 1;
		offset = ip->ihl * 4;
	} else {
		if (ip6->nexthdr != IPPROTO_TCP)
			return 1;
		offset = sizeof(*ip6);
	}
	tcp = data + (offset & 0x7f);
	if ((void *)(tcp + 1) > end)
		return 1;
	header = tcp->doff * 4;
	if (offset + header >= skb->len)
		return 1; /* no payload */
	s = bpf_sk_storage_get(&streams, sk, 0, BPF_SK_STORAGE_GET_F_CREATE);
	if (!s)
		return 1;
	now_ns = bpf_ktime_get_ns();
	bucket = log2_of(now_ns - s->last_ns) & (BUCKETS - 1);
	s->last_ns = now_ns;
	s->seq = bpf_ntohl(tcp->seq) + skb->len - offset - header;
	count = bpf_map_lookup_elem(&gaps, &bucket);
	if (count)
		(*count)++;
	return 1;
}

SEC("cgroup_skb/ingress")
int base_ingress(struct __sk_buff *skb) { return base(skb); }

SEC("cgroup_skb/egress")
int base_egress(struct __sk_buff *skb) { return base(skb); }
