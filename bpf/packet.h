/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
 *
 * Headers of a packet.
 */
#ifndef INFERWIRE_PACKET_H
#define INFERWIRE_PACKET_H

#include "maps.h"

struct packet {
	iw_u32 seq;
	iw_u32 ack;
	iw_u32 offset; /* of the payload */
	iw_u32 bytes;  /* of payload */
	iw_u32 pseudo; /* checksum of the pseudo header, not folded */
	iw_u16 check;
	iw_u16 window; /* as on the wire: to be compared with 0 */
	iw_u8 flags;
	iw_u8 header; /* bytes of the TCP header */
};
#define IW_FIN 0x01
#define IW_SYN 0x02
#define IW_RST 0x04
#define IW_ACK 0x10

static __always_inline iw_u32 sum32(const __be32 *at, int words)
{
	iw_u64 sum = 0;
	int i;

	for (i = 0; i < words; i++)
		sum += at[i];
	return (iw_u32)sum + (iw_u32)(sum >> 32);
}

/* Where the payload of a TCP packet begins, and how long it is: all that a look at its first bytes needs. */
static __always_inline iw_u32 read_payload(struct __sk_buff *skb, iw_u32 *offset)
{
	iw_u8 *ip = (void *)(long)skb->data, *end = (void *)(long)skb->data_end;
	iw_u32 at;

	if (ip + 40 > end)
		return 0;
	at = ip[0] >> 4 == 4 ? (ip[0] & 15) * 4 : 40;
	ip += at & 0x7f;
	if (ip + 20 > end)
		return 0;
	at += (ip[12] >> 4) * 4;
	*offset = at;
	return skb->len > at ? skb->len - at : 0;
}

/* Reads the headers. Returns 0 for TCP over IPv4 or IPv6. */
static __always_inline int read_packet(struct __sk_buff *skb, struct packet *p)
{
	void *data = (void *)(long)skb->data, *end = (void *)(long)skb->data_end;
	iw_u8 *ip = data, *tcp;
	iw_u32 offset, header;
	iw_u64 pseudo;

	if ((void *)(ip + 40) > end)
		return -1;
	if (ip[0] >> 4 == 4) {
		if (ip[9] != 6)
			return -1;
		offset = (ip[0] & 15) * 4;
		pseudo = (iw_u64) * (__be32 *)(ip + 12) + *(__be32 *)(ip + 16);
	} else {
		if (ip[6] != 6)
			return -1;
		offset = 40;
		pseudo = (iw_u64)sum32((__be32 *)(ip + 8), 4) + sum32((__be32 *)(ip + 24), 4);
	}
	tcp = ip + (offset & 0x7f);
	if ((void *)(tcp + 20) > end)
		return -1;
	header = (tcp[12] >> 4) * 4;
	if (offset + header > skb->len)
		return -1;
	p->seq = bpf_ntohl(*(__be32 *)(tcp + 4)) + !!(tcp[13] & IW_SYN); /* of the payload */
	p->ack = bpf_ntohl(*(__be32 *)(tcp + 8));
	p->flags = tcp[13];
	p->check = *(iw_u16 *)(tcp + 16);
	p->window = *(iw_u16 *)(tcp + 14);
	p->header = header;
	p->offset = offset + header;
	p->bytes = skb->len - p->offset;
	p->pseudo = (iw_u32)pseudo + (iw_u32)(pseudo >> 32);
	return 0;
}

/* The socket in this namespace to which the packet goes, or from which (`sender`) it says that it comes. With a
 * reference: bpf_sk_release(). */
static __noinline struct bpf_sock *socket_at(struct __sk_buff *skb, iw_u32 header_offset, iw_u32 sender)
{
	struct bpf_sock_tuple t = {};
	iw_u32 ports = 0, from = 0, to = 0;

	if (bpf_skb_load_bytes(skb, header_offset, &ports, 4))
		return 0;
	if (sender)
		ports = ports << 16 | ports >> 16;
	if (skb->protocol == bpf_htons(0x0800)) {
		if (bpf_skb_load_bytes(skb, 12, &from, 4) || bpf_skb_load_bytes(skb, 16, &to, 4))
			return 0;
		t.ipv4.saddr = sender ? to : from;
		t.ipv4.daddr = sender ? from : to;
		__builtin_memcpy(&t.ipv4.sport, &ports, 4);
		return bpf_skc_lookup_tcp(skb, &t, sizeof(t.ipv4), BPF_F_CURRENT_NETNS, 0);
	}
	if (bpf_skb_load_bytes(skb, 8, sender ? t.ipv6.daddr : t.ipv6.saddr, 16) ||
	    bpf_skb_load_bytes(skb, 24, sender ? t.ipv6.saddr : t.ipv6.daddr, 16))
		return 0;
	__builtin_memcpy(&t.ipv6.sport, &ports, 4);
	return bpf_skc_lookup_tcp(skb, &t, sizeof(t.ipv6), BPF_F_CURRENT_NETNS, 0);
}

#endif
