// SPDX-License-Identifier: Apache-2.0
// The hook table: every kernel program, the signal it serves and what is lost without it; and the choice of one rung
// for each hook. No libbpf here: choosing is pure, the loader probes.
#pragma once

#include <array>
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace inferwire::capture {

// One rung of one hook. Rungs of the same hook stand in order of preference.
struct Hook {
  std::string_view program;  // libbpf name
  std::string_view hook;     // the place in the kernel: "getpeername4"
  std::string_view rung;     // how the program is put there: "cgroup", "tp_btf"
  std::string_view signal;   // what we promise to measure with it; empty: it makes another hook's more exact
  bool required;             // nothing can be seen without it
  std::string_view gives;
  std::string_view without;  // what is lost
  std::string_view mend;     // what makes it work where it does not
  // Fires for all sockets of the node, and serves followed connections only: attached while there are some.
  bool while_followed = false;
};

inline constexpr std::string_view kMendCgroup =
    "the host's root cgroup v2 and CAP_NET_ADMIN, CAP_BPF, CAP_PERFMON are needed";
inline constexpr std::string_view kMendTracing = "CAP_PERFMON and a kernel with this tracepoint in its BTF are needed";

inline constexpr std::string_view kMendFexit =
    "CAP_PERFMON and a kernel that allows fentry programs (CONFIG_FUNCTION_TRACER, no lockdown) are needed";

inline constexpr std::string_view kWithoutOpenRequests =
    "long streams are seen at their first chunk and at their end only; in-flight gauges are missing";

inline constexpr std::array kHooks{
    Hook{"cgroup_skb__ingress", "ingress", "cgroup_skb", "requests", true, "every TCP packet that comes in",
         "requests cannot be seen at all", kMendCgroup},
    Hook{"cgroup_skb__egress", "egress", "cgroup_skb", "requests", true, "every TCP packet that goes out",
         "requests cannot be seen at all", kMendCgroup},
    Hook{"fexit__inet_csk_accept", "accept", "fexit", "", false, "accept() that does not ask for the peer's address",
         "of such an accept() only a bound is known, the first read", kMendFexit},
    Hook{"fexit__inet_csk_accept_flags", "accept", "fexit_before_6_10", "", false,
         "accept() that does not ask for the peer's address",
         "of such an accept() only a bound is known, the first read", kMendFexit},
    Hook{"cgroup__getpeername4", "getpeername4", "cgroup", "accept", false,
         "time of accept() and the owner process (IPv4)",
         "accept_wait joins the next phase; the owner is who called listen()", kMendCgroup},
    Hook{"cgroup__getpeername6", "getpeername6", "cgroup", "accept", false,
         "time of accept() and the owner process (IPv6)",
         "accept_wait joins the next phase; the owner is who called listen()", kMendCgroup},
    Hook{"tp_btf__inet_sock_set_state", "inet_sock_set_state", "tp_btf", "connection_state", false,
         "connection set-up and end, also when no packet says so",
         "connections that vanish without FIN or RST end late; handshakes, connects and closing counts are missing",
         kMendTracing},
    Hook{"tp_btf__tcp_rcv_space_adjust", "tcp_rcv_space_adjust", "tp_btf", "read", false, "when the application reads",
         "read_wait and first_read join the next phase; a slow reader is not told from a slow path", kMendTracing,
         true},
    Hook{"tp_btf__sock_send_length", "send", "tp_btf", "hold", false, "when held data was handed to TCP",
         "time in the send queue counts as the server's", "needs kernel 6.3 or newer, and CAP_PERFMON", true},
    Hook{"fexit__tcp_sendmsg", "send", "fexit", "hold", false, "when held data was handed to TCP",
         "time in the send queue counts as the server's", kMendFexit, true},
    Hook{"tp_btf__tcp_retransmit_skb_err", "tcp_retransmit_skb", "tp_btf", "retransmits", false,
         "retransmitted segments and their kind", "retransmits are not counted; loss is not told from delay",
         kMendTracing},
    Hook{"tp_btf__tcp_retransmit_skb", "tcp_retransmit_skb", "tp_btf_before_6_17", "retransmits", false,
         "retransmitted segments and their kind", "retransmits are not counted; loss is not told from delay",
         kMendTracing},
    Hook{"tp_btf__tcp_retransmit_synack", "tcp_retransmit_synack", "tp_btf", "retransmits", false,
         "retransmitted answers to a SYN", "retransmits of type synack are not counted", kMendTracing},
    Hook{"tp_btf__tcp_send_reset_reason", "tcp_send_reset", "tp_btf", "resets", false,
         "resets sent, with the kernel's reason", "resets sent are not counted", kMendTracing},
    Hook{"tp_btf__tcp_send_reset", "tcp_send_reset", "tp_btf_before_6_10", "resets", false,
         "resets sent; the cause is derived from the socket's state", "resets sent are not counted", kMendTracing},
    Hook{"tp_btf__tcp_receive_reset", "tcp_receive_reset", "tp_btf", "resets", false, "resets received",
         "resets received are not counted", kMendTracing},
    Hook{"iter__sockets", "open_requests", "iter_map", "open_requests", false, "requests while they are open",
         kWithoutOpenRequests, "needs CAP_PERFMON, and that iterators over maps are allowed"},
    Hook{"iter__task_file", "open_requests", "iter_task_file", "open_requests", false, "requests while they are open",
         kWithoutOpenRequests, "needs CAP_PERFMON, and the host's PID namespace to see every process's sockets"},
    Hook{"iter__found", "older_sockets", "iter_task_file", "older_sockets", false,
         "listeners and connections that are older than the agent", "they are known from their next packet on",
         "needs CAP_PERFMON, and the host's PID namespace to see every process's sockets"},
};

// Names of the signals of kHooks, each once, in the table's order.
std::vector<std::string_view> signals();

// Does this word of `hooks.deny` mean this entry? Words: a rung ("tp_btf"), a hook ("getpeername4", or "getpeername"
// for both address families), a program ("tp_btf__sock_send_length").
bool denies(std::string_view word, const Hook& hook);

// All words that mean something.
std::vector<std::string> deny_words();

// The first word that means no entry of the table.
std::optional<std::string> unknown_deny_word(const std::vector<std::string>& deny);

// What is known of one entry of kHooks.
struct HookState {
  bool chosen = false;
  bool loads = false;    // it did, when it was tried
  std::string unusable;  // why not: "denied by configuration", the verifier's or the kernel's words; empty if usable
};

using HookStates = std::array<HookState, kHooks.size()>;

// Before anything was tried.
HookStates initial_states(const std::vector<std::string>& deny);

// For each hook the first rung that is not known to be unusable. Sets `chosen`.
void choose(HookStates& states);

struct SignalState {
  std::string_view signal;
  bool up = false;
  std::string reason;  // why down; empty when up
};

// A signal is up when each of its hooks has a chosen rung.
std::vector<SignalState> signal_states(const HookStates& states);

}  // namespace inferwire::capture
