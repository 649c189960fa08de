// SPDX-License-Identifier: Apache-2.0
#include "agent/capture/kernel_source.h"

#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <ctime>
#include <optional>
#include <string_view>

#include "agent/base/file.h"
#include "agent/base/handle.h"
#include "agent/capture/environment.h"
#include "agent/capture/packet_skeleton.h"
#include "agent/capture/sums_map.h"
#include "agent/capture/walk.h"

namespace inferwire::capture {
namespace {

std::uint64_t monotonic_ns() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<std::uint64_t>(now.tv_sec) * 1'000'000'000ull + static_cast<std::uint64_t>(now.tv_nsec);
}

struct RingBufferFree {
  void operator()(ring_buffer* buffer) const { ring_buffer__free(buffer); }
};

// Bytes that the kernel accounts to a map, from its fdinfo; 0 if it does not say.
std::uint64_t map_memory_bytes(int map_fd) {
  constexpr std::string_view kKey = "memlock:";
  auto text = base::read_text("/proc/self/fdinfo/" + std::to_string(map_fd));
  if (!text) return 0;
  const std::size_t at = text->find(kKey);
  return at == std::string::npos ? 0 : std::strtoull(text->c_str() + at + kKey.size(), nullptr, 10);
}

// TCP sockets of all network namespaces: /proc/net/sockstat's "alloc" is the kernel's one counter. Each has at most one
// element in a map of socket storage.
std::uint64_t tcp_sockets() {
  constexpr std::string_view kKey = " alloc ";
  auto text = base::read_text("/proc/net/sockstat");
  if (!text) return 0;
  const std::size_t at = text->find(kKey, text->find("TCP:"));
  return at == std::string::npos ? 0 : std::strtoull(text->c_str() + at + kKey.size(), nullptr, 10);
}

// The program has no output: to read it is to run it.
void find_older_sockets(int link) {
  if (link < 0) return;
  const base::UniqueFd walk(bpf_iter_create(link));
  char nothing[64];
  while (walk && (read(walk.get(), nothing, sizeof nothing) > 0 || errno == EINTR || errno == EAGAIN)) errno = 0;
}

std::uint64_t walk_keys(int map_fd, std::uint32_t key_bytes, std::uint32_t max_entries) {
  std::vector<std::byte> key(key_bytes), next(key_bytes);
  std::uint64_t entries = 0;
  void* from = nullptr;
  while (entries < max_entries && bpf_map_get_next_key(map_fd, from, next.data()) == 0) {
    ++entries;
    key.swap(next);
    from = key.data();
  }
  return entries;
}

}  // namespace

struct KernelSource::Implementation {
  std::unique_ptr<ring_buffer, RingBufferFree> records;
  std::size_t flows_walked = 0;
  std::size_t listeners_walked = 0;
  std::optional<SumsMap<iw_count_key, iw_count>> counts;
  std::optional<SumsMap<iw_tcp_key, iw_tcp_sums>> tcp;
  std::vector<iw_stats> per_cpu;
};

KernelSource::KernelSource(PacketPrograms programs)
    : programs_(std::move(programs)), implementation_(std::make_unique<Implementation>()) {}
KernelSource::~KernelSource() = default;

base::Result<std::unique_ptr<KernelSource>> KernelSource::open(PacketPrograms programs) {
  std::unique_ptr<KernelSource> source(new KernelSource(std::move(programs)));
  Implementation& parts = *source->implementation_;
  packet_bpf* skeleton = source->programs_.skeleton();
  parts.records.reset(
      ring_buffer__new(bpf_map__fd(skeleton->maps.records), &KernelSource::on_sample, source.get(), nullptr));
  if (parts.records == nullptr) {
    return base::fail("map the ring buffer", "records", base::errno_text(errno), "make ringbuf_bytes smaller");
  }
  const int cpus = libbpf_num_possible_cpus();
  if (cpus <= 0) return base::fail("count the CPUs", "/sys/devices/system/cpu/possible", base::errno_text(-cpus), "");
  parts.per_cpu.resize(static_cast<std::size_t>(cpus));
  const auto& maps = skeleton->maps;
  parts.counts.emplace(bpf_map__fd(maps.counts), "counts", bpf_map__max_entries(maps.counts));
  parts.tcp.emplace(bpf_map__fd(maps.tcp), "tcp", bpf_map__max_entries(maps.tcp));
  find_older_sockets(source->programs_.older_sockets_link());
  return source;
}

int KernelSource::on_sample(void* self, void* sample, unsigned long size) {
  auto* source = static_cast<KernelSource*>(self);
  iw_header header{};
  bool sound = size >= sizeof header;
  if (sound) {
    std::memcpy(&header, sample, sizeof header);
    const bool by_ring_buffer =
        (header.kind != IW_REC_IDLE && header.kind < IW_REC_KINDS) || header.kind == IW_REC_SOCKET;
    sound = by_ring_buffer && size == record_size(header.kind);
  }
  if (sound) {
    (*source->sink_)(header, {static_cast<const std::byte*>(sample), size});
  } else {
    ++source->malformed_;
  }
  return 0;
}

base::Result<void> KernelSource::follow(std::chrono::steady_clock::time_point now, std::chrono::nanoseconds patience) {
  if (followed_at_ == std::chrono::steady_clock::time_point{} || programs_.skeleton()->bss->followed != 0) {
    followed_at_ = now;
  }
  return programs_.serve_followed(now - followed_at_ <= patience);
}

base::Result<void> KernelSource::drain(const RecordSink& sink) {
  sink_ = &sink;
  const int taken = ring_buffer__consume(implementation_->records.get());
  sink_ = nullptr;
  if (taken < 0) return base::fail("read the ring buffer", "records", base::errno_text(-taken), "");
  return {};
}

base::Result<void> KernelSource::read_open(const RecordSink& sink) {
  const int link = programs_.open_requests_link();
  if (link < 0) return {};
  base::UniqueFd walk(bpf_iter_create(link));
  if (!walk) return base::fail("walk the open sockets", "", base::errno_text(errno), "");

  WalkReader reader(monotonic_ns(), sink);
  std::vector<std::byte> bytes(64 * 1024);
  bool sound = true;
  for (;;) {
    const ssize_t got = read(walk.get(), bytes.data(), bytes.size());
    if (got < 0 && (errno == EINTR || errno == EAGAIN)) continue;
    if (got < 0) return base::fail("walk the open sockets", "", base::errno_text(errno), "");
    if (got == 0) break;
    sound = sound && reader.feed(std::span(bytes).first(static_cast<std::size_t>(got)));
  }
  malformed_ += !sound || !reader.whole();
  implementation_->flows_walked = reader.connections();
  implementation_->listeners_walked = reader.listeners();
  return {};
}

base::Result<void> KernelSource::read_counts(const CountSink& sink) { return implementation_->counts->read(sink); }
base::Result<void> KernelSource::read_tcp(const TcpSink& sink) { return implementation_->tcp->read(sink); }

base::Result<KernelStats> KernelSource::read_stats() {
  KernelStats stats{};
  const std::uint32_t only = 0;
  if (bpf_map_lookup_elem(bpf_map__fd(programs_.skeleton()->maps.stats), &only, implementation_->per_cpu.data()) != 0) {
    return base::fail("read the map", "stats", base::errno_text(errno), "");
  }
  for (const iw_stats& cpu : implementation_->per_cpu) {
    for (std::size_t i = 0; i < stats.size(); ++i) stats[i] += cpu.n[i];
  }
  return stats;
}

std::vector<MapUse> KernelSource::map_use() {
  std::vector<MapUse> uses;
  bpf_map* map = nullptr;
  bpf_object__for_each_map(map, programs_.skeleton()->obj) {
    const int fd = bpf_map__fd(map);
    if (fd < 0) continue;
    MapUse use{.map = bpf_map__name(map), .entries = {}, .memory_bytes = map_memory_bytes(fd)};
    if (const std::size_t dot = use.map.find('.'); dot != std::string::npos) use.map = use.map.substr(dot + 1);
    switch (bpf_map__type(map)) {
      case BPF_MAP_TYPE_HASH:
      case BPF_MAP_TYPE_LRU_HASH:
        use.entries = walk_keys(fd, bpf_map__key_size(map), bpf_map__max_entries(map));
        break;
      case BPF_MAP_TYPE_ARRAY:
      case BPF_MAP_TYPE_PERCPU_ARRAY:
        use.entries = bpf_map__max_entries(map);
        break;
      case BPF_MAP_TYPE_SK_STORAGE: {
        // The kernel accounts only for the buckets. `flows` were counted by the last walk; the others have bounds.
        constexpr std::uint64_t kElementHeaderBytes = 64;
        const bool walks = programs_.open_requests_link() >= 0;
        std::uint64_t elements = tcp_sockets();
        if (walks && use.map == "listening") elements = implementation_->listeners_walked;
        if (walks && (use.map == "flows" || use.map == "holes")) elements = implementation_->flows_walked;
        if (walks && use.map == "flows") use.entries = elements;
        use.memory_bytes += elements * (bpf_map__value_size(map) + kElementHeaderBytes);
        break;
      }
      default:
        break;
    }
    uses.push_back(std::move(use));
  }
  return uses;
}

std::vector<ProgramRun> KernelSource::program_runs() {
  std::vector<ProgramRun> runs;
  auto enabled = base::read_text("/proc/sys/kernel/bpf_stats_enabled");
  if (!enabled || enabled->empty() || enabled->front() == '0') return runs;
  bpf_program* program = nullptr;
  bpf_object__for_each_program(program, programs_.skeleton()->obj) {
    const int fd = bpf_program__fd(program);
    if (fd < 0) continue;
    bpf_prog_info info{};
    std::uint32_t length = sizeof info;
    if (bpf_obj_get_info_by_fd(fd, &info, &length) != 0) continue;
    runs.push_back({bpf_program__name(program), info.run_cnt, info.run_time_ns});
  }
  return runs;
}

}  // namespace inferwire::capture
