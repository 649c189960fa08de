// SPDX-License-Identifier: Apache-2.0
#include "agent/capture/packet_programs.h"

#include <gtest/gtest.h>

namespace inferwire::capture {
namespace {

TEST(RingBufferSize, IsAPowerOfTwoOfWholePagesThatHoldsWhatWasAskedFor) {
  EXPECT_EQ(ring_buffer_size(4u << 20, 4096), 4u << 20);
  EXPECT_EQ(ring_buffer_size((4u << 20) + 1, 4096), 8u << 20);
  EXPECT_EQ(ring_buffer_size(1, 4096), 4096u);
  EXPECT_EQ(ring_buffer_size(4096, 65536), 65536u);
  EXPECT_EQ(ring_buffer_size(~0u, 4096), 1u << 30);
}

TEST(RouteHash, IsFnv1a) {
  EXPECT_EQ(route_hash(""), 0xcbf29ce484222325ull);
  EXPECT_EQ(route_hash("a"), 0xaf63dc4c8601ec8cull);
  EXPECT_EQ(route_hash("foobar"), 0x85944171f73967e8ull);
}

// As libbpf 1.1 prints it.
constexpr char kVerifierLog[] =
    "libbpf: prog 'tp_btf__tcp_retransmit_skb': BPF program load failed: Permission denied\n"
    "libbpf: prog 'tp_btf__tcp_retransmit_skb': -- BEGIN PROG LOAD LOG --\n"
    "reg type unsupported for arg#0 function tp_btf__tcp_retransmit_skb#31\n"
    "0: R1=ctx(off=0,imm=0) R10=fp0\n"
    "; int BPF_PROG(tp_btf__tcp_retransmit_skb, const struct sock *sk)\n"
    "0: (79) r6 = *(u64 *)(r1 +16)\n"
    "func 'tcp_retransmit_skb' doesn't have 3-th argument\n"
    "invalid bpf_context access off=16 size=8\n"
    "processed 1 insns (limit 1000000) max_states_per_insn 0 total_states 0 peak_states 0 mark_read 0\n"
    "-- END PROG LOAD LOG --\n"
    "libbpf: prog 'tp_btf__tcp_retransmit_skb': failed to load: -13\n"
    "libbpf: failed to load object 'packet_bpf'\n";

TEST(LoadFailure, TheReasonIsTheVerifiersLastWords) {
  EXPECT_EQ(load_failure_reason(kVerifierLog), "invalid bpf_context access off=16 size=8");
  EXPECT_EQ(failed_program(kVerifierLog), "tp_btf__tcp_retransmit_skb");
}

TEST(LoadFailure, WithoutAVerifierLogTheReasonIsLibbpfsFirstWarning) {
  constexpr char kLog[] =
      "libbpf: failed to find kernel BTF type ID of 'sock_send_length': -3\n"
      "libbpf: prog 'tp_btf__sock_send_length': failed to prepare load attributes: -3\n"
      "libbpf: failed to load object 'packet_bpf'\n";
  EXPECT_EQ(load_failure_reason(kLog), "failed to find kernel BTF type ID of 'sock_send_length': -3");
  EXPECT_EQ(failed_program(kLog), "tp_btf__sock_send_length");
}

TEST(LoadFailure, AnEmptyLogGivesNoReason) {
  EXPECT_EQ(load_failure_reason(""), "");
  EXPECT_EQ(failed_program("libbpf: map 'records': failed to create: Operation not permitted(-1)\n"), "");
}

}  // namespace
}  // namespace inferwire::capture
