// SPDX-License-Identifier: Apache-2.0
#include "agent/capture/kernel_source.h"

#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <ctime>
#include <string_view>
#include <unordered_map>
#include <unordered_set>

#include "agent/base/handle.h"
#include "agent/capture/environment.h"
#include "agent/capture/packet_skeleton.h"

namespace inferwire::capture {
namespace {

// A row of the counts map that has not changed for this many reads is deleted when the map fills up.
constexpr std::uint32_t kIdleReads = 60;

std::uint64_t monotonic_ns() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<std::uint64_t>(now.tv_sec) * 1'000'000'000ull + static_cast<std::uint64_t>(now.tv_nsec);
}

struct CountKeyHash {
  std::size_t operator()(const iw_count_key& key) const {
    return std::hash<std::string_view>()({reinterpret_cast<const char*>(&key), sizeof key});
  }
};
struct CountKeyEqual {
  bool operator()(const iw_count_key& a, const iw_count_key& b) const { return std::memcmp(&a, &b, sizeof a) == 0; }
};
struct SeenCount {
  iw_count value{};
  std::uint32_t idle_reads = 0;
  std::uint32_t read = 0;  // number of the read that saw it last
};

struct RingBufferFree {
  void operator()(ring_buffer* buffer) const { ring_buffer__free(buffer); }
};

// Bytes that the kernel accounts to a map, from its fdinfo; 0 if it does not say.
std::uint64_t map_memory_bytes(int map_fd) {
  constexpr std::string_view kKey = "memlock:";
  auto text = read_text("/proc/self/fdinfo/" + std::to_string(map_fd));
  if (!text) return 0;
  const std::size_t at = text->find(kKey);
  return at == std::string::npos ? 0 : std::strtoull(text->c_str() + at + kKey.size(), nullptr, 10);
}

// TCP sockets of all network namespaces: /proc/net/sockstat's "alloc" is the kernel's one counter. Each has at most one
// element in a map of socket storage.
std::uint64_t tcp_sockets() {
  constexpr std::string_view kKey = " alloc ";
  auto text = read_text("/proc/net/sockstat");
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
  std::vector<std::byte> open_bytes;         // what the iterator has yielded
  std::unordered_set<std::uint64_t> walked;  // cookies of this walk
  std::unordered_map<iw_count_key, SeenCount, CountKeyHash, CountKeyEqual> seen;
  std::uint32_t count_reads = 0;
  std::vector<iw_count_key> keys;  // batch buffers
  std::vector<iw_count> values;
  std::vector<std::uint64_t> per_cpu;
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
  const std::uint32_t capacity = bpf_map__max_entries(skeleton->maps.counts);
  parts.keys.resize(capacity);
  parts.values.resize(capacity);
  find_older_sockets(source->programs_.older_sockets_link());
  return source;
}

int KernelSource::on_sample(void* self, void* sample, unsigned long size) {
  auto* source = static_cast<KernelSource*>(self);
  iw_header header{};
  bool sound = size >= sizeof header;
  if (sound) {
    std::memcpy(&header, sample, sizeof header);
    const bool request = header.kind == IW_REC_FINAL || header.kind == IW_REC_PARTIAL;
    sound = (request && size == sizeof(iw_record)) || (header.kind == IW_REC_DELIVERY && size == sizeof(iw_delivery));
  }
  if (sound) {
    (*source->sink_)(header, {static_cast<const std::byte*>(sample), size});
  } else {
    ++source->malformed_;
  }
  return 0;
}

base::Result<void> KernelSource::drain(const RecordSink& sink) {
  sink_ = &sink;
  const int taken = ring_buffer__consume(implementation_->records.get());
  sink_ = nullptr;
  if (taken < 0) return base::fail("read the ring buffer", "records", base::errno_text(-taken), "");
  return {};
}

base::Result<void> KernelSource::read_open(const RecordSink& sink) {
  constexpr std::size_t kRoom = 64 * 1024;
  const int link = programs_.open_requests_link();
  if (link < 0) return {};
  base::UniqueFd walk(bpf_iter_create(link));
  if (!walk) return base::fail("walk the open requests", "", base::errno_text(errno), "");

  std::vector<std::byte>& bytes = implementation_->open_bytes;
  std::unordered_set<std::uint64_t>& walked = implementation_->walked;
  bytes.clear();
  walked.clear();
  std::size_t used = 0;
  for (;;) {
    bytes.resize(used + kRoom);
    const ssize_t got = read(walk.get(), bytes.data() + used, kRoom);
    if (got < 0 && (errno == EINTR || errno == EAGAIN)) continue;
    if (got < 0) return base::fail("walk the open requests", "", base::errno_text(errno), "");
    if (got == 0) break;
    used += static_cast<std::size_t>(got);
    // A record may be cut by the end of a read.
    std::size_t at = 0;
    for (;;) {
      iw_header header;
      if (used - at < sizeof header) break;
      std::memcpy(&header, bytes.data() + at, sizeof header);
      if (header.size_bytes < sizeof header) return base::fail("walk the open requests", "", "unknown record", "");
      if (used - at < header.size_bytes) break;
      if (header.kind == IW_REC_PARTIAL || header.kind == IW_REC_IDLE) {
        iw_record record;
        std::memcpy(&record, bytes.data() + at, sizeof record);
        record.header.time_ns = monotonic_ns();
        // A socket may be that of several processes.
        if (walked.insert(record.conn.cookie).second) sink(record.header, std::as_bytes(std::span(&record, 1)));
      }
      at += header.size_bytes;
    }
    std::memmove(bytes.data(), bytes.data() + at, used - at);
    used -= at;
  }
  malformed_ += used != 0;
  return {};
}

base::Result<void> KernelSource::read_counts(const CountSink& sink) {
  Implementation& parts = *implementation_;
  const int map = bpf_map__fd(programs_.skeleton()->maps.counts);
  ++parts.count_reads;

  // The capacity is the batch size: a bucket never exceeds it.
  std::uint64_t position = 0;
  bool begun = false, more = true;
  std::size_t rows = 0;
  while (more) {
    auto count = static_cast<std::uint32_t>(parts.keys.size());
    const int error = bpf_map_lookup_batch(map, begun ? &position : nullptr, &position, parts.keys.data(),
                                           parts.values.data(), &count, nullptr);
    if (error != 0 && errno != ENOENT) return base::fail("read the map", "counts", base::errno_text(errno), "");
    more = error == 0;
    begun = true;
    rows += count;
    for (std::uint32_t i = 0; i < count; ++i) {
      SeenCount& seen = parts.seen[parts.keys[i]];
      if (seen.read == parts.count_reads) continue;  // a row that moved while the map was walked
      iw_count delta = parts.values[i];
      delta.requests -= seen.value.requests;
      delta.chunks -= seen.value.chunks;
      delta.tokens_output -= seen.value.tokens_output;
      delta.tokens_input -= seen.value.tokens_input;
      const bool changed = (delta.requests | delta.chunks | delta.tokens_output | delta.tokens_input) != 0;
      seen.value = parts.values[i];
      seen.read = parts.count_reads;
      seen.idle_reads = changed ? 0 : seen.idle_reads + 1;
      if (changed) sink(parts.keys[i], delta);
    }
  }

  if (rows < parts.keys.size() / 2) return {};
  for (auto at = parts.seen.begin(); at != parts.seen.end();) {
    if (at->second.idle_reads < kIdleReads) {
      ++at;
      continue;
    }
    iw_count last{};
    if (bpf_map_lookup_and_delete_elem(map, &at->first, &last) == 0 && last.requests != at->second.value.requests) {
      last.requests -= at->second.value.requests;
      last.chunks -= at->second.value.chunks;
      last.tokens_output -= at->second.value.tokens_output;
      last.tokens_input -= at->second.value.tokens_input;
      sink(at->first, last);
    }
    at = parts.seen.erase(at);
  }
  return {};
}

base::Result<KernelStats> KernelSource::read_stats() {
  KernelStats stats{};
  const int map = bpf_map__fd(programs_.skeleton()->maps.stats);
  for (std::uint32_t i = 0; i < stats.size(); ++i) {
    if (bpf_map_lookup_elem(map, &i, implementation_->per_cpu.data()) != 0) {
      return base::fail("read the map", "stats", base::errno_text(errno), "");
    }
    for (std::uint64_t value : implementation_->per_cpu) stats[i] += value;
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
        // The kernel accounts only for the buckets. `flows` were counted by the last walk, `sockets` have this bound.
        constexpr std::uint64_t kElementHeaderBytes = 64;
        const bool flows = map == programs_.skeleton()->maps.flows && programs_.open_requests_link() >= 0;
        const std::uint64_t elements = flows ? implementation_->walked.size() : tcp_sockets();
        if (flows) use.entries = elements;
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
  auto enabled = read_text("/proc/sys/kernel/bpf_stats_enabled");
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
