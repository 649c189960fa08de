// SPDX-License-Identifier: Apache-2.0
// Loads and attaches the kernel programs. Nothing is pinned: programs, links and maps live as long as this object, and
// the kernel takes them away with the process, however it ends.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "agent/base/result.h"
#include "agent/capture/hooks.h"

struct packet_bpf;

namespace inferwire::capture {

struct ProgramOptions {
  std::uint32_t ringbuf_bytes = 4u << 20;   // rounded up to a power of two of whole pages
  std::vector<std::uint64_t> gap_edges_ns;  // ascending, at most IW_GAP_EDGES_MAX
  bool trace_deliveries = false;            // one record per delivery
  std::vector<std::string> routes;          // beside the known ones, each under IW_TEXT_MAX bytes
  std::vector<std::string> deny;            // words of hooks.deny
};

// Size that the kernel accepts for a ring buffer of at least `bytes`.
std::uint32_t ring_buffer_size(std::uint32_t bytes, std::uint32_t page_bytes);

// FNV-1a of a route's path, as the kernel programs compute it (parser.h, iw_path_hash).
std::uint64_t route_hash(std::string_view path);

// From what libbpf printed while an object failed to load, the line that says why: the verifier's last words, else
// libbpf's own first warning.
std::string load_failure_reason(std::string_view log);

// The program that libbpf says it could not load; empty if it names none.
std::string failed_program(std::string_view log);

class PacketPrograms {
 public:
  // Loads the whole object; when that fails finds the program that cannot be loaded, by loading programs alone, and
  // goes on with the hook's next rung or without it. A program that loads but cannot be attached is dropped in the same
  // way. Fails when a required one is among them.
  static base::Result<PacketPrograms> load(int cgroup_fd, const ProgramOptions& options);

  // For `doctor`: loads and attaches as above, but reports also when a required program fails.
  static HookStates probe(int cgroup_fd, const ProgramOptions& options);

  PacketPrograms(PacketPrograms&&) noexcept;
  PacketPrograms& operator=(PacketPrograms&&) noexcept;
  ~PacketPrograms();

  // Puts the hooks that serve followed connections only in their places, or takes them off. Fails when one cannot be
  // put back, and names it.
  base::Result<void> serve_followed(bool wanted);

  // Takes the programs off their hooks; maps, and the walk over open requests, stay.
  void detach();

  const HookStates& states() const { return states_; }
  packet_bpf* skeleton() const { return skeleton_.get(); }
  // File descriptor of the link that reads open requests; -1 without that hook.
  int open_requests_link() const;
  // ... of the link that, when read, finds the sockets that are older than the programs; -1 without that hook.
  int older_sockets_link() const;

 private:
  struct SkeletonCloser {
    void operator()(packet_bpf* skeleton) const;
  };
  struct Links;

  PacketPrograms();
  int link_of(std::string_view hook) const;
  void try_upper_rungs(const ProgramOptions& options);
  base::Result<void> try_once(int cgroup_fd, const ProgramOptions& options, bool& again);

  std::unique_ptr<packet_bpf, SkeletonCloser> skeleton_;
  std::unique_ptr<Links> links_;
  HookStates states_;
};

}  // namespace inferwire::capture
