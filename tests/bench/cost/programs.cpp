// SPDX-License-Identifier: Apache-2.0
#include "tests/bench/cost/programs.h"

#include <bpf/bpf.h>
#include <bpf/btf.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <string_view>
#include <utility>

#include "inferwire/event_abi.h"
#include "tests/support/base/fatal.h"

namespace inferwire::bench {

using rig::fatal;
using rig::fatal_errno;

namespace {

std::uint64_t path_hash(std::string_view path) {
  std::uint64_t h = 0xcbf29ce484222325ULL;
  for (const char c : path) h = (h ^ static_cast<unsigned char>(c)) * 0x100000001b3ULL;
  return h;
}

// struct iw_edges of the programs.
struct Edges {
  std::array<std::uint64_t, IW_GAP_EDGES_MAX> le_ns{};
  std::uint32_t count = 0;
  std::uint32_t pad0 = 0;
};

int drop_record(void* /*context*/, void* /*record*/, std::size_t /*bytes*/) { return 0; }

}  // namespace

Instance::Instance(const std::string& file, std::vector<std::string> programs) {
  object_ = bpf_object__open_file(file.c_str(), nullptr);
  if (!object_) fatal_errno("opening " + file);
  bpf_program* program = nullptr;
  bpf_object__for_each_program(program, object_) {
    const std::string name = bpf_program__name(program);
    const bool load = programs.empty() ? !name.starts_with("iter__")
                                       : std::find(programs.begin(), programs.end(), name) != programs.end();
    bpf_program__set_autoload(program, load);
    if (load) programs_.push_back(program);
  }
}

Instance::~Instance() {
  detach();
  ring_buffer__free(records_);
  bpf_object__close(object_);
}

void Instance::set_global(const char* name, const void* value, std::size_t bytes) {
  const btf* types = bpf_object__btf(object_);
  for (unsigned id = 1; id < btf__type_cnt(types); id++) {
    const btf_type* section = btf__type_by_id(types, id);
    if (!btf_is_datasec(section)) continue;
    const std::string_view section_name = btf__name_by_offset(types, section->name_off);
    const btf_var_secinfo* variables = btf_var_secinfos(section);
    for (unsigned i = 0; i < btf_vlen(section); i++) {
      const btf_type* variable = btf__type_by_id(types, variables[i].type);
      if (std::string_view(btf__name_by_offset(types, variable->name_off)) != name) continue;
      bpf_map* map = nullptr;
      bpf_object__for_each_map(map, object_) {
        if (!std::string_view(bpf_map__name(map)).ends_with(section_name)) continue;
        std::size_t size = 0;
        auto* at = static_cast<char*>(const_cast<void*>(bpf_map__initial_value(map, &size)));
        if (!at || variables[i].offset + bytes > size) fatal(std::string("no room for the variable ") + name);
        std::copy_n(static_cast<const char*>(value), bytes, at + variables[i].offset);
        return;
      }
    }
  }
  fatal(std::string("the object has no variable ") + name);
}

void Instance::load() {
  if (bpf_object__load(object_) != 0) fatal_errno("loading the programs");
  if (const bpf_map* map = bpf_object__find_map_by_name(object_, "records")) {
    records_ = ring_buffer__new(bpf_map__fd(map), drop_record, nullptr, nullptr);
    if (!records_) fatal_errno("mapping the ring buffer");
  }
}

void Instance::attach(int cgroup) {
  for (bpf_program* program : programs_) {
    const auto type = bpf_program__type(program);
    const bool by_cgroup = type == BPF_PROG_TYPE_CGROUP_SKB || type == BPF_PROG_TYPE_CGROUP_SOCK_ADDR;
    bpf_link* link = by_cgroup ? bpf_program__attach_cgroup(program, cgroup) : bpf_program__attach(program);
    if (!link) fatal_errno(std::string("attaching ") + bpf_program__name(program));
    links_.push_back(link);
  }
}

void Instance::detach() {
  for (bpf_link* link : links_) bpf_link__destroy(link);
  links_.clear();
  if (records_) ring_buffer__consume(records_);
}

std::map<std::string, Cost> Instance::costs() const {
  std::map<std::string, Cost> result;
  for (bpf_program* program : programs_) {
    bpf_prog_info facts{};
    std::uint32_t size = sizeof(facts);
    if (bpf_obj_get_info_by_fd(bpf_program__fd(program), &facts, &size) != 0) fatal_errno("reading a program's cost");
    std::string name = bpf_program__name(program);
    if (name.ends_with("ingress")) name = "ingress";
    if (name.ends_with("egress")) name = "egress";
    result[name] = {facts.run_cnt, facts.run_time_ns};
  }
  return result;
}

std::uint64_t Instance::stat(std::uint32_t which) const {
  const bpf_map* map = bpf_object__find_map_by_name(object_, "stats");
  if (!map) return 0;
  std::vector<iw_stats> cpus(static_cast<std::size_t>(libbpf_num_possible_cpus()));
  const std::uint32_t only = 0;
  const int error = bpf_map__lookup_elem(map, &only, sizeof(only), cpus.data(), cpus.size() * sizeof(iw_stats), 0);
  if (error != 0) fatal("reading the programs' counters");
  std::uint64_t sum = 0;
  for (const iw_stats& cpu : cpus) sum += cpu.n[which];
  return sum;
}

std::unique_ptr<Instance> load_packet_programs(const std::string& file, std::vector<std::string> programs) {
  auto instance = std::make_unique<Instance>(file, std::move(programs));
  std::array<std::uint64_t, IW_ROUTE_MAX> routes{};
#define SET(id, path) routes[id] = std::string_view(path).find('*') == std::string_view::npos ? path_hash(path) : 0;
  IW_ROUTES(SET)
#undef SET
  instance->set_global("routes", routes.data(), sizeof(routes));
  Edges edges;
  for (std::uint64_t edge = 500'000; edges.count < 20; edge *= 2) edges.le_ns[edges.count++] = edge;
  instance->set_global("gap_edges", &edges, sizeof(edges));
  instance->load();
  return instance;
}

std::unique_ptr<Instance> load_baseline(const std::string& file, const std::string& name) {
  auto instance = std::make_unique<Instance>(file, std::vector<std::string>{name + "_ingress", name + "_egress"});
  instance->load();
  return instance;
}

}  // namespace inferwire::bench
