// SPDX-License-Identifier: Apache-2.0
#include "agent/capture/packet_programs.h"

#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <cstdarg>
#include <cstring>
#include <sstream>

#include "agent/base/log.h"
#include "agent/capture/packet_skeleton.h"
#include "inferwire/event_abi.h"

namespace inferwire::capture {
namespace {

constexpr char kWhat[] = "load the kernel programs";
constexpr char kNotInBuild[] = "not part of this build";

struct LinkDestroyer {
  void operator()(bpf_link* link) const { bpf_link__destroy(link); }
};
using Link = std::unique_ptr<bpf_link, LinkDestroyer>;

// Collects what libbpf prints while it is alive. libbpf's print function is global: one at a time, on one thread.
class LibbpfLog {
 public:
  LibbpfLog() {
    current_ = this;
    previous_ = libbpf_set_print(&LibbpfLog::print);
  }
  ~LibbpfLog() {
    libbpf_set_print(previous_);
    current_ = nullptr;
  }
  LibbpfLog(const LibbpfLog&) = delete;
  LibbpfLog& operator=(const LibbpfLog&) = delete;
  const std::string& text() const { return text_; }

 private:
  static int print(libbpf_print_level level, const char* format, va_list arguments) {
    constexpr std::size_t kKeepBytes = 1u << 20;
    if (level == LIBBPF_DEBUG || current_ == nullptr) return 0;
    va_list again;
    va_copy(again, arguments);
    const int length = std::vsnprintf(nullptr, 0, format, arguments);
    if (length > 0) {
      std::string line(static_cast<std::size_t>(length) + 1, '\0');
      std::vsnprintf(line.data(), line.size(), format, again);
      line.pop_back();
      current_->text_ += line;
      if (current_->text_.size() > kKeepBytes) current_->text_.erase(0, current_->text_.size() - kKeepBytes / 2);
    }
    va_end(again);
    return 0;
  }

  static LibbpfLog* current_;
  libbpf_print_fn_t previous_ = nullptr;
  std::string text_;
};
LibbpfLog* LibbpfLog::current_ = nullptr;

// The routes that are one path; those with '*' are found by code.
#define IW_ROUTE_ROW(id, path) {id, path},
constexpr std::pair<std::uint32_t, std::string_view> kAllRoutes[] = {IW_ROUTES(IW_ROUTE_ROW)};
#undef IW_ROUTE_ROW

bpf_program* find_program(packet_bpf* skeleton, std::string_view name) {
  return bpf_object__find_program_by_name(skeleton->obj, std::string(name).c_str());
}

// An open, configured, not yet loaded object in which only `wanted` programs will be loaded.
base::Result<packet_bpf*> open_object(const ProgramOptions& options, const std::array<bool, kHooks.size()>& wanted) {
  packet_bpf* skeleton = packet_bpf__open();
  if (skeleton == nullptr) {
    return base::fail("open the kernel programs", "", base::errno_text(errno), "this build is broken: report it");
  }
  bpf_program* program = nullptr;
  bpf_object__for_each_program(program, skeleton->obj) bpf_program__set_autoload(program, false);
  for (std::size_t i = 0; i < kHooks.size(); ++i) {
    if (bpf_program* chosen = find_program(skeleton, kHooks[i].program)) bpf_program__set_autoload(chosen, wanted[i]);
  }

  if (skeleton->rodata->abi_version != IW_ABI_VERSION) {
    packet_bpf__destroy(skeleton);
    return base::fail(kWhat, "", "programs and agent speak different versions of the record layout", "build both anew");
  }
  const std::size_t edges = std::min<std::size_t>(options.gap_edges_ns.size(), IW_GAP_EDGES_MAX);
  std::copy_n(options.gap_edges_ns.begin(), edges, skeleton->bss->gap_edges.le_ns);
  skeleton->bss->gap_edges.count = static_cast<std::uint32_t>(edges);
  skeleton->rodata->trace_deliveries = options.trace_deliveries ? 1 : 0;
  timespec tick{};  // of the coarse clock: it goes by the kernel's jiffies
  if (clock_getres(CLOCK_MONOTONIC_COARSE, &tick) == 0 && tick.tv_nsec > 0) {
    skeleton->rodata->jiffy_ns = static_cast<std::uint64_t>(tick.tv_nsec);
  }
  for (const auto& [id, path] : kAllRoutes) {
    if (path.find('*') == std::string_view::npos) skeleton->rodata->routes.hash[id] = route_hash(path);
  }
  const std::size_t routes = std::min<std::size_t>(options.routes.size(), IW_ROUTE_MAX - IW_ROUTE_CONFIGURED);
  for (std::size_t i = 0; i < routes; ++i) {
    skeleton->rodata->routes.hash[IW_ROUTE_CONFIGURED + i] = route_hash(options.routes[i]);
  }
  bpf_map__set_max_entries(skeleton->maps.records,
                           ring_buffer_size(options.ringbuf_bytes, static_cast<std::uint32_t>(getpagesize())));
  return skeleton;
}

bool walks_open_requests(const Hook& hook) { return hook.hook == "open_requests"; }

bool has_lower_rung(std::size_t index) {
  return std::any_of(kHooks.begin() + index + 1, kHooks.end(),
                     [&](const Hook& lower) { return lower.hook == kHooks[index].hook; });
}

// Empty if this one program loads alone, else why not.
std::string try_alone(const ProgramOptions& options, std::size_t index) {
  std::array<bool, kHooks.size()> wanted{};
  wanted[index] = true;
  auto skeleton = open_object(options, wanted);
  if (!skeleton) return skeleton.error().why;
  if (find_program(*skeleton, kHooks[index].program) == nullptr) {
    packet_bpf__destroy(*skeleton);
    return kNotInBuild;
  }
  LibbpfLog log;
  const int error = packet_bpf__load(*skeleton);
  packet_bpf__destroy(*skeleton);
  if (error == 0) return "";
  base::log_debug(log.text());
  const std::string reason = load_failure_reason(log.text());
  return reason.empty() ? base::errno_text(-error) : reason;
}

Link attach(packet_bpf* skeleton, const Hook& hook, bpf_program* program, int cgroup_fd) {
  if (hook.rung == "cgroup_skb" || hook.rung == "cgroup") return Link(bpf_program__attach_cgroup(program, cgroup_fd));
  if (hook.rung == "iter_map") {
    bpf_iter_link_info target{};
    target.map.map_fd = static_cast<std::uint32_t>(bpf_map__fd(skeleton->maps.sockets));
    LIBBPF_OPTS(bpf_iter_attach_opts, options, .link_info = &target, .link_info_len = sizeof target);
    return Link(bpf_program__attach_iter(program, &options));
  }
  if (hook.rung == "iter_task_file") return Link(bpf_program__attach_iter(program, nullptr));
  return Link(bpf_program__attach(program));
}

}  // namespace

struct PacketPrograms::Links {
  std::array<Link, kHooks.size()> links;
};

std::uint32_t ring_buffer_size(std::uint32_t bytes, std::uint32_t page_bytes) {
  constexpr std::uint32_t kMost = 1u << 30;
  return std::bit_ceil(std::clamp(bytes, page_bytes, kMost));
}

std::uint64_t route_hash(std::string_view path) {
  std::uint64_t hash = 0xcbf29ce484222325ull;
  for (const char c : path) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3ull;
  return hash;
}

std::string failed_program(std::string_view log) {
  constexpr std::string_view kBegin = "prog '";
  for (const std::string_view end : {"': BPF program load failed", "': failed to prepare load attributes"}) {
    const std::size_t at = log.find(end);
    const std::size_t begin = at == std::string_view::npos ? at : log.rfind(kBegin, at);
    if (begin == std::string_view::npos) continue;
    return std::string(log.substr(begin + kBegin.size(), at - begin - kBegin.size()));
  }
  return "";
}

std::string load_failure_reason(std::string_view log) {
  std::string verifier, warning, line;
  bool inside = false;
  std::istringstream lines{std::string(log)};
  while (std::getline(lines, line)) {
    if (line.find("BEGIN PROG LOAD LOG") != std::string::npos) {
      inside = true;
      verifier.clear();
    } else if (line.find("END PROG LOAD LOG") != std::string::npos) {
      inside = false;
    } else if (inside) {
      const bool statistics = line.rfind("processed ", 0) == 0 || line.rfind("verification time", 0) == 0 ||
                              line.rfind("stack depth", 0) == 0;
      if (!line.empty() && !statistics) verifier = line;
    } else if (warning.empty() && line.rfind("libbpf: ", 0) == 0) {
      warning = line.substr(8);
    }
  }
  return verifier.empty() ? warning : verifier;
}

void PacketPrograms::SkeletonCloser::operator()(packet_bpf* skeleton) const { packet_bpf__destroy(skeleton); }

PacketPrograms::PacketPrograms() : links_(std::make_unique<Links>()) {}
PacketPrograms::PacketPrograms(PacketPrograms&&) noexcept = default;
PacketPrograms& PacketPrograms::operator=(PacketPrograms&&) noexcept = default;
PacketPrograms::~PacketPrograms() {
  links_.reset();  // before the programs and maps they refer to
  skeleton_.reset();
}

// Loads and attaches what states_ has chosen. `again`: something turned out to be unusable, states_ says what.
base::Result<void> PacketPrograms::try_once(int cgroup_fd, const ProgramOptions& options, bool& again) {
  std::array<bool, kHooks.size()> wanted{};
  for (std::size_t i = 0; i < kHooks.size(); ++i) wanted[i] = states_[i].chosen;
  links_ = std::make_unique<Links>();
  skeleton_.reset();
  auto opened = open_object(options, wanted);
  if (!opened) return tl::unexpected(opened.error());
  skeleton_.reset(*opened);

  for (std::size_t i = 0; i < kHooks.size(); ++i) {
    if (wanted[i] && find_program(skeleton_.get(), kHooks[i].program) == nullptr) {
      states_[i].unusable = kNotInBuild;
      again = true;
    }
  }
  if (again) return {};

  int error = 0;
  std::string log_text;
  {
    LibbpfLog log;
    error = packet_bpf__load(skeleton_.get());
    log_text = log.text();
  }
  if (error != 0) {
    base::log_debug(log_text);
    // libbpf stops at the first program that fails and names it: most often that is all that needs to be tried.
    const std::string named = failed_program(log_text);
    for (const bool all : {false, true}) {
      for (std::size_t i = 0; i < kHooks.size() && !again; ++i) {
        if (!wanted[i] || (!all && kHooks[i].program != named)) continue;
        states_[i].unusable = try_alone(options, i);
        states_[i].loads = states_[i].unusable.empty();
        again |= !states_[i].unusable.empty();
      }
    }
    if (again) return {};
    const std::string reason = load_failure_reason(log_text);
    return base::fail(
        kWhat, "", reason.empty() ? base::errno_text(-error) : reason,
        "run `inferwire doctor`; each program loads alone, so memory or a smaller ringbuf_bytes may help");
  }

  LibbpfLog quiet;
  for (std::size_t i = 0; i < kHooks.size(); ++i) {
    if (!wanted[i]) continue;
    states_[i].loads = true;
    links_->links[i] = attach(skeleton_.get(), kHooks[i], find_program(skeleton_.get(), kHooks[i].program), cgroup_fd);
    if (links_->links[i] == nullptr) {
      states_[i].unusable = "loads, but cannot be attached: " + base::errno_text(errno);
      again = true;
    }
  }
  return {};
}

// Rungs that have another below them are expected to fail somewhere: tried alone, that costs less than a whole load.
void PacketPrograms::try_upper_rungs(const ProgramOptions& options) {
  for (std::size_t i = 0; i < kHooks.size(); ++i) {
    if (!has_lower_rung(i) || !states_[i].unusable.empty()) continue;
    states_[i].unusable = try_alone(options, i);
    states_[i].loads = states_[i].unusable.empty();
  }
  choose(states_);
}

base::Result<PacketPrograms> PacketPrograms::load(int cgroup_fd, const ProgramOptions& options) {
  PacketPrograms programs;
  programs.states_ = initial_states(options.deny);
  programs.try_upper_rungs(options);
  for (;;) {
    // Each round without success makes at least one more entry unusable.
    for (std::size_t i = 0; i < kHooks.size(); ++i) {
      if (kHooks[i].required && !programs.states_[i].chosen) {
        return base::fail(kWhat, kHooks[i].program, programs.states_[i].unusable,
                          std::string(kHooks[i].mend) + "; run `inferwire doctor`");
      }
    }
    bool again = false;
    if (auto tried = programs.try_once(cgroup_fd, options, again); !tried) return tl::unexpected(tried.error());
    choose(programs.states_);
    if (!again) return programs;
  }
}

HookStates PacketPrograms::probe(int cgroup_fd, const ProgramOptions& options) {
  PacketPrograms programs;
  programs.states_ = initial_states(options.deny);
  programs.try_upper_rungs(options);
  for (bool again = true; again;) {
    again = false;
    auto tried = programs.try_once(cgroup_fd, options, again);
    if (!tried) {
      for (HookState& state : programs.states_) {
        if (state.chosen) state.unusable = tried.error().why;
      }
    }
    choose(programs.states_);
  }
  return programs.states_;
}

base::Result<void> PacketPrograms::serve_followed(bool wanted) {
  for (std::size_t i = 0; i < kHooks.size(); ++i) {
    if (!kHooks[i].while_followed || !states_[i].chosen || (links_->links[i] != nullptr) == wanted) continue;
    if (!wanted) {
      links_->links[i].reset();
      continue;
    }
    links_->links[i] = attach(skeleton_.get(), kHooks[i], find_program(skeleton_.get(), kHooks[i].program), -1);
    if (links_->links[i] == nullptr) {
      return base::fail("attach the program", kHooks[i].program, base::errno_text(errno), std::string(kHooks[i].mend));
    }
  }
  return {};
}

void PacketPrograms::detach() {
  for (std::size_t i = 0; i < kHooks.size(); ++i) {
    if (!walks_open_requests(kHooks[i])) links_->links[i].reset();
  }
}

int PacketPrograms::link_of(std::string_view hook) const {
  for (std::size_t i = 0; i < kHooks.size(); ++i) {
    if (kHooks[i].hook == hook && links_->links[i] != nullptr) return bpf_link__fd(links_->links[i].get());
  }
  return -1;
}

int PacketPrograms::open_requests_link() const { return link_of("open_requests"); }

int PacketPrograms::older_sockets_link() const { return link_of("older_sockets"); }

}  // namespace inferwire::capture
