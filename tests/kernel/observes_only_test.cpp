// SPDX-License-Identifier: Apache-2.0
// The kernel programs only observe. Read from the instructions of every object of the build: which kinds of program
// there are, which helpers they call, that the packet programs pass every packet, that nothing is written to what the
// kernel goes on with. (Packet bytes themselves are read-only in cgroup_skb programs; the verifier sees to that.)
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <set>
#include <string>
#include <utility>

#include "tests/kernel/code_facts.h"
#include "tests/kernel/object_code.h"

namespace inferwire::testing {
namespace {

// Helpers that change nothing outside the program's own maps and memory. One that is missing here is refused, also if
// the kernel would allow it: bpf_skb_store_bytes, bpf_probe_write_user, bpf_override_return, bpf_redirect*,
// bpf_setsockopt, bpf_sock_map_update, bpf_msg_*, bpf_send_signal, ...
const std::map<std::uint32_t, const char*> kObserving = {
    {BPF_FUNC_map_lookup_elem, "map_lookup_elem"},
    {BPF_FUNC_map_update_elem, "map_update_elem"},
    {BPF_FUNC_map_delete_elem, "map_delete_elem"},
    {BPF_FUNC_sk_storage_get, "sk_storage_get"},
    {BPF_FUNC_sk_storage_delete, "sk_storage_delete"},
    {BPF_FUNC_ringbuf_output, "ringbuf_output"},
    {BPF_FUNC_ringbuf_reserve, "ringbuf_reserve"},
    {BPF_FUNC_ringbuf_submit, "ringbuf_submit"},
    {BPF_FUNC_seq_write, "seq_write"},  // into the buffer of whoever reads the iterator
    {BPF_FUNC_loop, "loop"},
    {BPF_FUNC_ktime_get_ns, "ktime_get_ns"},
    {BPF_FUNC_jiffies64, "jiffies64"},
    {BPF_FUNC_probe_read_kernel, "probe_read_kernel"},
    {BPF_FUNC_skb_load_bytes, "skb_load_bytes"},
    {BPF_FUNC_sk_fullsock, "sk_fullsock"},
    {BPF_FUNC_skc_to_tcp_sock, "skc_to_tcp_sock"},
    {BPF_FUNC_skc_to_tcp_request_sock, "skc_to_tcp_request_sock"},
    {BPF_FUNC_sock_from_file, "sock_from_file"},
    {BPF_FUNC_get_socket_cookie, "get_socket_cookie"},
    {BPF_FUNC_sk_cgroup_id, "sk_cgroup_id"},
    {BPF_FUNC_skc_lookup_tcp, "skc_lookup_tcp"},  // with a reference,
    {BPF_FUNC_sk_release, "sk_release"},          // which the verifier wants back
    {BPF_FUNC_get_current_pid_tgid, "get_current_pid_tgid"},
    {BPF_FUNC_get_current_task, "get_current_task"},
};

// Maps that hold values. Not those through which packets, sockets or calls are redirected.
const std::set<bpf_map_type> kHoldingMaps = {BPF_MAP_TYPE_HASH,        BPF_MAP_TYPE_LRU_HASH, BPF_MAP_TYPE_PERCPU_HASH,
                                             BPF_MAP_TYPE_ARRAY,       BPF_MAP_TYPE_RINGBUF,  BPF_MAP_TYPE_SK_STORAGE,
                                             BPF_MAP_TYPE_PERCPU_ARRAY};

// Programs whose result decides about a packet or a call, with the one result that says "go on"; and those whose
// result nobody asks for.
struct Kind {
  bpf_prog_type type;
  bpf_attach_type attach_type;
  bool operator<(const Kind& other) const {
    return std::pair(type, attach_type) < std::pair(other.type, other.attach_type);
  }
};
const std::map<Kind, std::int64_t> kJudging = {
    {{BPF_PROG_TYPE_CGROUP_SKB, BPF_CGROUP_INET_INGRESS}, 1},
    {{BPF_PROG_TYPE_CGROUP_SKB, BPF_CGROUP_INET_EGRESS}, 1},
    {{BPF_PROG_TYPE_CGROUP_SOCK_ADDR, BPF_CGROUP_INET4_GETPEERNAME}, 1},
    {{BPF_PROG_TYPE_CGROUP_SOCK_ADDR, BPF_CGROUP_INET6_GETPEERNAME}, 1},
};
const std::set<Kind> kWatching = {
    {BPF_PROG_TYPE_TRACING, BPF_TRACE_RAW_TP},
    {BPF_PROG_TYPE_TRACING, BPF_TRACE_FEXIT},
    {BPF_PROG_TYPE_TRACING, BPF_TRACE_ITER},
};

// What is wrong with a program; empty if it only observes.
std::set<std::string> wrongs(const ProgramCode& program) {
  std::set<std::string> found;
  const CodeFacts facts = facts_of(program.instructions);
  for (const std::string& text : facts.not_understood) found.insert("not understood: " + text);
  for (const std::uint32_t helper : facts.helpers) {
    if (!kObserving.contains(helper)) found.insert("helper " + std::to_string(helper));
  }
  if (!facts.kernel_functions.empty()) found.insert("kernel function");
  if (!facts.context_writes.empty()) found.insert("context written");

  const Kind kind{program.type, program.attach_type};
  if (const auto judging = kJudging.find(kind); judging != kJudging.end()) {
    if (facts.returns_other || facts.results != std::set<std::int64_t>{judging->second}) found.insert("result");
  } else if (!kWatching.contains(kind)) {
    found.insert("kind of program");
  }
  return found;
}

std::vector<std::filesystem::path> objects() {
  std::vector<std::filesystem::path> found;
  const std::filesystem::path folder = INFERWIRE_BINARY_DIR "/skeletons/inferwire_skeletons";
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    if (entry.path().string().ends_with(".bpf.o")) found.push_back(entry.path());
  }
  return found;
}

ObjectCode code_of(const std::string& path) {
  auto code = read_object(path);
  EXPECT_TRUE(code.has_value()) << code.error().to_string();
  return code ? *std::move(code) : ObjectCode();
}

const ObjectCode& meddling() {
  static const ObjectCode code = code_of(INFERWIRE_BINARY_DIR "/skeletons/inferwire_meddling/meddling.bpf.o");
  return code;
}

TEST(Programs, NoneDoesAnythingButObserve) {
  std::size_t programs = 0;
  for (const auto& path : objects()) {
    for (const ProgramCode& program : code_of(path).programs) {
      EXPECT_EQ(wrongs(program), std::set<std::string>()) << path.filename() << ": " << program.name;
      ++programs;
    }
  }
  EXPECT_GE(programs, 2u) << "no program was looked at";
}

TEST(Programs, EveryPacketPasses) {
  std::map<bpf_attach_type, std::size_t> seen;
  for (const auto& path : objects()) {
    for (const ProgramCode& program : code_of(path).programs) {
      if (program.type != BPF_PROG_TYPE_CGROUP_SKB) continue;
      const CodeFacts facts = facts_of(program.instructions);
      EXPECT_EQ(facts.results, std::set<std::int64_t>{1}) << program.name;
      EXPECT_FALSE(facts.returns_other) << program.name;
      // The walk has gone through the whole program: the calls at its far end were seen.
      EXPECT_TRUE(facts.helpers.contains(BPF_FUNC_ringbuf_output)) << program.name;
      ++seen[program.attach_type];
    }
  }
  EXPECT_EQ(seen[BPF_CGROUP_INET_INGRESS], 1u);
  EXPECT_EQ(seen[BPF_CGROUP_INET_EGRESS], 1u);
}

TEST(Maps, OnlyHoldValues) {
  for (const auto& path : objects()) {
    for (const MapKind& map : code_of(path).maps) {
      EXPECT_TRUE(kHoldingMaps.contains(map.type)) << path.filename() << ": " << map.name << " has type " << map.type;
    }
  }
}

TEST(Programs, AnAllowedHelperIsOneThatIsUsed) {
  std::set<std::uint32_t> used, allowed;
  for (const auto& [helper, name] : kObserving) allowed.insert(helper);
  for (const auto& path : objects()) {
    for (const ProgramCode& program : code_of(path).programs) used.merge(facts_of(program.instructions).helpers);
  }
  EXPECT_EQ(used, allowed) << "the list names what is needed, and no more";
}

// ---- That the above would find it ----

struct Meddler {
  const char* program;
  std::set<std::string> wrongs;
};

void PrintTo(const Meddler& meddler, std::ostream* out) { *out << meddler.program; }

class Meddling : public ::testing::TestWithParam<Meddler> {};

TEST_P(Meddling, IsFound) {
  const auto& programs = meddling().programs;
  const auto program =
      std::find_if(programs.begin(), programs.end(), [](const auto& one) { return one.name == GetParam().program; });
  ASSERT_NE(program, programs.end());
  EXPECT_EQ(wrongs(*program), GetParam().wrongs);
}

const Meddler kMeddlers[] = {
    {"drops_some", {"result"}},
    {"congests_some", {"result"}},
    {"returns_what_a_function_says", {"result"}},
    {"marks", {"context written"}},
    {"marks_in_a_function", {"context written"}},
    {"marks_in_a_callback", {"context written"}},
    {"marks_two_calls_down", {"context written"}},
    {"marks_what_a_function_handed_back", {"context written"}},
    {"forges_the_peer", {"context written"}},
    {"rewrites_bytes", {"helper " + std::to_string(BPF_FUNC_skb_store_bytes)}},
    {"writes_user_memory", {"helper " + std::to_string(BPF_FUNC_probe_write_user)}},
    {"sets_options_in_a_callback", {"helper " + std::to_string(BPF_FUNC_setsockopt)}},
    {"calls_a_kernel_function", {"kernel function"}},
    {"judges_streams", {"kind of program"}},
    {"judges_datagrams", {"kind of program"}},
    {"fine_loop", {}},
    {"fine_peer", {}},
};
INSTANTIATE_TEST_SUITE_P(Programs, Meddling, ::testing::ValuesIn(kMeddlers),
                         [](const auto& test) { return std::string(test.param.program); });

TEST(Programs, EveryMeddlingOneIsListed) {
  std::set<std::string> listed, built;
  for (const Meddler& meddler : kMeddlers) listed.insert(meddler.program);
  for (const ProgramCode& program : meddling().programs) built.insert(program.name);
  EXPECT_EQ(listed, built);
}

TEST(Maps, ThatRedirectAreFound) {
  const auto& maps = meddling().maps;
  const auto map = std::find_if(maps.begin(), maps.end(), [](const auto& one) { return one.name == "redirections"; });
  ASSERT_NE(map, maps.end());
  EXPECT_FALSE(kHoldingMaps.contains(map->type));
}

}  // namespace
}  // namespace inferwire::testing
