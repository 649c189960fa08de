// SPDX-License-Identifier: Apache-2.0
// Program objects by file: the shipped one, and the baseline.
#pragma once

#include <bpf/libbpf.h>

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace inferwire::bench {

// What the kernel counted for one program since it was loaded (bpf_stats).
struct Cost {
  std::uint64_t runs = 0;
  std::uint64_t ns = 0;
};

// One loaded object. What fails ends the program.
class Instance {
 public:
  // Loads `programs` only; all but iterators if there are none.
  Instance(const std::string& file, std::vector<std::string> programs);
  Instance(const Instance&) = delete;
  Instance& operator=(const Instance&) = delete;
  ~Instance();

  // Before load().
  void set_global(const char* name, const void* value, std::size_t bytes);
  void load();

  // Cgroup programs go to this cgroup, others to their hooks.
  void attach(int cgroup);
  void detach();

  // By program; the packet programs are called "ingress" and "egress".
  std::map<std::string, Cost> costs() const;
  // One of the packet programs' own counters (IW_STAT_*); 0 for an object that has none.
  std::uint64_t stat(std::uint32_t which) const;

 private:
  bpf_object* object_ = nullptr;
  ring_buffer* records_ = nullptr;
  std::vector<bpf_program*> programs_;
  std::vector<bpf_link*> links_;
};

// packet.bpf.o with the agent's routes and edges; these programs of it, all but iterators if there are none.
std::unique_ptr<Instance> load_packet_programs(const std::string& file, std::vector<std::string> programs = {});

// "empty" or "base" of baseline.bpf.o.
std::unique_ptr<Instance> load_baseline(const std::string& file, const std::string& name);

}  // namespace inferwire::bench
