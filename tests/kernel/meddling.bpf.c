/* SPDX-License-Identifier: Apache-2.0
 *
 * Never loaded. Each program does one thing that a program of ours must not do, in a way that compilers make of real
 * code: observes_only_test.cpp proves here that it would find it. Those whose names begin with fine_ do nothing wrong.
 */
#include <linux/bpf.h>

#include <bpf/bpf_helpers.h>

#define __noinline __attribute__((noinline))

char LICENSE[] SEC("license") = "Apache-2.0";

struct {
	__uint(type, BPF_MAP_TYPE_SOCKHASH);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u32);
} redirections SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
} counters SEC(".maps");

static __u64 *counter(void)
{
	__u32 key = 0;

	return bpf_map_lookup_elem(&counters, &key);
}

/* ---- Return values ---- */

SEC("cgroup_skb/ingress")
int drops_some(struct __sk_buff *skb)
{
	__u64 *count = counter();

	if (count && ++*count == 1000)
		return 0;
	return 1;
}

SEC("cgroup_skb/egress")
int congests_some(struct __sk_buff *skb) { return skb->len > 1000 ? 3 : 1; }

static __noinline int verdict(struct __sk_buff *skb) { return skb->len & 1; }

SEC("cgroup_skb/ingress")
int returns_what_a_function_says(struct __sk_buff *skb) { return verdict(skb); }

/* ---- Writes to the context ---- */

SEC("cgroup_skb/egress")
int marks(struct __sk_buff *skb)
{
	skb->mark = 1;
	return 1;
}

static __noinline int mark(int unused, struct __sk_buff *skb)
{
	__u64 *count = counter();

	if (count)
		skb->priority = *count;
	return 0;
}

SEC("cgroup_skb/egress")
int marks_in_a_function(struct __sk_buff *skb)
{
	mark(0, skb);
	return 1;
}

struct work {
	__u64 *count;
	struct __sk_buff *skb;
};

static long mark_once(__u32 index, struct work *work)
{
	work->skb->cb[0] = index;
	return 0;
}

SEC("cgroup_skb/egress")
int marks_in_a_callback(struct __sk_buff *skb)
{
	struct work work = {.count = counter(), .skb = skb};

	bpf_loop(4, mark_once, &work, 0);
	return 1;
}

static __noinline int mark_deeper(struct work *work)
{
	work->skb->mark = 2;
	return 0;
}

static long mark_deep(__u32 index, struct work *work) { return mark_deeper(work) + index; }

SEC("cgroup_skb/egress")
int marks_two_calls_down(struct __sk_buff *skb)
{
	struct work work = {.count = counter(), .skb = skb};

	bpf_loop(2, mark_deep, &work, 0);
	return 1;
}

static __noinline int fill(struct work *work, struct __sk_buff *skb)
{
	work->skb = skb;
	return 0;
}

SEC("cgroup_skb/egress")
int marks_what_a_function_handed_back(struct __sk_buff *skb)
{
	struct work work = {};

	fill(&work, skb);
	barrier_var(work.skb);
	work.skb->tstamp = 0;
	return 1;
}

SEC("cgroup/getpeername4")
int forges_the_peer(struct bpf_sock_addr *ctx)
{
	ctx->user_ip4 = 0;
	return 1;
}

/* ---- Helpers ---- */

SEC("cgroup_skb/egress")
int rewrites_bytes(struct __sk_buff *skb)
{
	__u8 byte = 0;

	bpf_skb_store_bytes(skb, 40, &byte, 1, 0);
	return 1;
}

static __noinline int write_user(void *to)
{
	__u64 zero = 0;

	return bpf_probe_write_user(to, &zero, sizeof(zero));
}

SEC("tp_btf/sys_enter")
int writes_user_memory(__u64 *ctx)
{
	write_user((void *)ctx[1]);
	return 0;
}

static long tune(__u32 index, void *ctx)
{
	int value = 1;

	bpf_setsockopt(ctx, 6, 1, &value, sizeof(value));
	return 1;
}

SEC("cgroup/getpeername4")
int sets_options_in_a_callback(struct bpf_sock_addr *ctx)
{
	bpf_loop(1, tune, ctx, 0);
	return 1;
}

extern void bpf_any_kernel_function(void) __ksym;

SEC("tp_btf/sys_enter")
int calls_a_kernel_function(__u64 *ctx)
{
	bpf_any_kernel_function();
	return 0;
}

/* ---- Kinds of program ---- */

SEC("sk_skb/stream_verdict")
int judges_streams(struct __sk_buff *skb) { return 1; }

SEC("cgroup/sendmsg4")
int judges_datagrams(struct bpf_sock_addr *ctx) { return 1; }

/* ---- Nothing wrong ---- */

static __noinline int look(struct work *work)
{
	__u8 byte = 0;

	if (!bpf_skb_load_bytes(work->skb, 0, &byte, 1) && work->count)
		*work->count += byte;
	return byte;
}

static long look_once(__u32 index, struct work *work)
{
	look(work);
	return index > 2;
}

SEC("cgroup_skb/ingress")
int fine_loop(struct __sk_buff *skb)
{
	struct work work = {.count = counter(), .skb = skb};
	struct bpf_sock *sk = skb->sk;

	if (!sk)
		return 1;
	bpf_loop(4, look_once, &work, 0);
	if (look(&work) > 3 && work.count)
		*work.count = 0;
	return 1;
}

SEC("cgroup/getpeername6")
int fine_peer(struct bpf_sock_addr *ctx)
{
	__u64 *count = counter();

	if (count && ctx->protocol == 6)
		__sync_fetch_and_add(count, bpf_ktime_get_ns());
	return 1;
}
