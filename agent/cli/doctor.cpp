// SPDX-License-Identifier: Apache-2.0
#include "agent/cli/doctor.h"

#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <nlohmann/json.hpp>
#include <optional>
#include <string_view>
#include <vector>

#include "agent/base/file.h"
#include "agent/capture/environment.h"
#include "agent/capture/kernel_source.h"
#include "agent/daemon/self_check.h"

namespace inferwire::cli {
namespace {

enum class Verdict { kOk, kNote, kBad };  // note: something is lost, or could be of use; bad: the agent cannot work

struct Finding {
  std::string name;
  Verdict verdict = Verdict::kOk;
  std::string says;
  std::string mend;  // empty if there is nothing to mend
};

std::string_view verdict_name(Verdict verdict) {
  switch (verdict) {
    case Verdict::kOk:
      return "ok";
    case Verdict::kNote:
      return "note";
    case Verdict::kBad:
      return "bad";
  }
  return "";
}

Finding from_result(std::string name, const base::Result<void>& result, std::string ok) {
  if (result) return {std::move(name), Verdict::kOk, std::move(ok), ""};
  return {std::move(name), Verdict::kBad, result.error().why, result.error().fix};
}

std::string one_line(const std::string& path) {
  auto text = base::read_text(path);
  if (!text) return "";
  return text->substr(0, text->find('\n'));
}

Finding look_at_kernel() {
  utsname name{};
  uname(&name);
  int major = 0, minor = 0;
  std::sscanf(name.release, "%d.%d", &major, &minor);
  Finding finding{"kernel", Verdict::kOk, std::string(name.release) + " " + name.machine, ""};
  if (std::pair(major, minor) < std::pair(5, 15)) {
    finding.verdict = Verdict::kBad;
    finding.mend = "use kernel 6.1 or newer (5.15 may work)";
  } else if (std::pair(major, minor) < std::pair(6, 1)) {
    finding.verdict = Verdict::kNote;
    finding.mend = "6.1 or newer is what is tested";
  }
  return finding;
}

// Of no use to the hooks of this version, which need neither; told because other tools and later rungs do.
std::vector<Finding> look_at_tracing() {
  std::vector<Finding> findings;
  const bool tracefs =
      access("/sys/kernel/tracing/events", F_OK) == 0 || access("/sys/kernel/debug/tracing/events", F_OK) == 0;
  findings.push_back(
      {"tracefs", Verdict::kOk, tracefs ? "mounted" : "not mounted; no hook of this version needs it", ""});
  const std::string paranoid = one_line("/proc/sys/kernel/perf_event_paranoid");
  findings.push_back({"perf_event_paranoid", Verdict::kOk,
                      (paranoid.empty() ? "not to be read" : paranoid) + "; no hook of this version needs it", ""});
  const std::string lockdown = one_line("/sys/kernel/security/lockdown");
  if (lockdown.find("[confidentiality]") != std::string::npos) {
    findings.push_back({"lockdown", Verdict::kBad, "confidentiality: kernel memory cannot be read by BPF programs",
                        "boot with lockdown=integrity or none"});
  } else {
    findings.push_back({"lockdown", Verdict::kOk, lockdown.empty() ? "none" : lockdown, ""});
  }
  return findings;
}

Finding look_at_capabilities() {
  return from_result("capabilities", capture::check_capabilities(), "CAP_BPF, CAP_PERFMON, CAP_NET_ADMIN");
}

// A stream from another cgroup.
Finding try_self_check(const std::string& cgroup_root, capture::PacketPrograms programs, daemon::SelfCheck& check) {
  Finding finding{"self-check", Verdict::kOk, "a stream from another cgroup was seen from both ends", ""};
  auto source = capture::KernelSource::open(std::move(programs));
  if (!source) return {"self-check", Verdict::kBad, source.error().why, source.error().fix};
  check.start(cgroup_root, std::chrono::steady_clock::now());
  while (!check.ended()) {
    usleep(10'000);
    check.poll(std::chrono::steady_clock::now());
    auto drained = (*source)->drain([&](const iw_header& header, std::span<const std::byte> bytes) {
      if (header.kind == IW_REC_DELIVERY) return;
      iw_record record;
      std::memcpy(&record, bytes.data(), sizeof record);
      check.takes(record, header.kind == IW_REC_FINAL);
    });
    if (!drained) return {"self-check", Verdict::kBad, drained.error().why, drained.error().fix};
  }
  if (check.state() != daemon::SelfCheck::State::kPassed) {
    return {"self-check", Verdict::kBad, check.reason(), "report it with this output"};
  }
  if (!check.reason().empty()) {
    finding.verdict = Verdict::kNote;
    finding.says = check.reason();
    finding.mend = "mount the cgroup hierarchy writable for a stronger proof";
  }
  return finding;
}

// The program that serves this hook; empty if none does.
std::string_view serving_program(const capture::Hook& hook, const capture::HookStates& states) {
  for (std::size_t i = 0; i < capture::kHooks.size(); ++i) {
    if (states[i].chosen && capture::kHooks[i].hook == hook.hook) return capture::kHooks[i].program;
  }
  return "";
}

Finding look_at_hook(std::size_t index, const capture::HookStates& states) {
  const capture::Hook& hook = capture::kHooks[index];
  const capture::HookState& state = states[index];
  Finding finding{std::string(hook.program), Verdict::kOk, "", ""};
  const std::string_view serving = serving_program(hook, states);
  if (state.chosen) {
    finding.says = "loads, attaches: " + std::string(hook.gives);
  } else if (!serving.empty()) {
    finding.says = std::string(serving) + " is used" + (state.unusable.empty() ? "" : " instead: " + state.unusable);
  } else {
    finding.verdict = hook.required ? Verdict::kBad : Verdict::kNote;
    finding.says = state.unusable + ". Lost: " + std::string(hook.without);
    finding.mend = hook.mend;
  }
  return finding;
}

void print_text(const std::vector<Finding>& findings, const capture::HookStates* states, bool works) {
  const auto print = [](std::string_view name, Verdict verdict, std::string_view says, std::string_view mend) {
    std::printf("%-4s  %-32.*s  %.*s\n", verdict_name(verdict).data(), static_cast<int>(name.size()), name.data(),
                static_cast<int>(says.size()), says.data());
    if (!mend.empty()) std::printf("      %-32s  mend: %.*s\n", "", static_cast<int>(mend.size()), mend.data());
  };
  for (const Finding& finding : findings) print(finding.name, finding.verdict, finding.says, finding.mend);
  if (states == nullptr) {
    std::printf("\nhooks: not tried, see above\n");
  } else {
    std::printf("\nhooks\n");
    for (std::size_t i = 0; i < capture::kHooks.size(); ++i) {
      const Finding finding = look_at_hook(i, *states);
      print(finding.name, finding.verdict, finding.says, finding.mend);
    }
  }
  std::printf("\n%s\n", works ? "the agent works here" : "the agent cannot work here");
}

void print_json(const std::vector<Finding>& findings, const capture::HookStates* states, bool works) {
  nlohmann::ordered_json report{{"type", "doctor"}, {"v", 1}, {"works", works}};
  for (const Finding& finding : findings) {
    nlohmann::ordered_json entry{{"verdict", verdict_name(finding.verdict)}, {"says", finding.says}};
    if (!finding.mend.empty()) entry["mend"] = finding.mend;
    report["checks"][finding.name] = std::move(entry);
  }
  report["hooks"] = nlohmann::ordered_json::array();
  for (std::size_t i = 0; states != nullptr && i < capture::kHooks.size(); ++i) {
    const capture::Hook& hook = capture::kHooks[i];
    const capture::HookState& state = (*states)[i];
    nlohmann::ordered_json entry{
        {"hook", hook.hook},     {"rung", hook.rung},         {"program", hook.program},
        {"signal", hook.signal}, {"required", hook.required}, {"while_followed", hook.while_followed},
        {"loads", state.loads},  {"attaches", state.chosen},  {"gives", hook.gives}};
    if (!state.unusable.empty()) {
      entry["reason"] = state.unusable;
    }
    if (serving_program(hook, *states).empty()) {
      entry["lost"] = hook.without;
      entry["mend"] = hook.mend;
    }
    report["hooks"].push_back(std::move(entry));
  }
  std::printf("%s\n", report.dump(2, ' ', false, nlohmann::json::error_handler_t::replace).c_str());
}

}  // namespace

int run_doctor(const DoctorOptions& options) {
  std::signal(SIGPIPE, SIG_IGN);
  if (const auto unknown = capture::unknown_deny_word(options.deny)) {
    std::fprintf(stderr, "inferwire: --hooks.deny: no hook, rung or program is called '%s'\n", unknown->c_str());
    return 2;
  }
  capture::ProgramOptions programs_wanted;
  programs_wanted.deny = options.deny;
  daemon::SelfCheck check;  // first: its child must not hold our descriptors
  std::vector<Finding> findings;
  findings.push_back(look_at_kernel());
  findings.push_back(look_at_capabilities());
  findings.push_back(from_result("BTF", capture::check_btf(), "/sys/kernel/btf/vmlinux"));
  auto cgroup = capture::open_cgroup_root(options.cgroup_root, options.host_root);
  findings.push_back(cgroup ? Finding{"cgroup v2 root", Verdict::kOk, cgroup->path, ""}
                            : Finding{"cgroup v2 root", Verdict::kBad,
                                      (cgroup.error().on.empty() ? "" : cgroup.error().on + ": ") + cgroup.error().why,
                                      cgroup.error().fix});
  for (Finding& finding : look_at_tracing()) findings.push_back(std::move(finding));

  const auto works = [&] {
    return std::none_of(findings.begin(), findings.end(), [](const Finding& f) { return f.verdict == Verdict::kBad; });
  };
  std::optional<capture::HookStates> states;
  bool hooks_work = false;
  if (works()) {
    if (auto programs = capture::PacketPrograms::load(cgroup->fd.get(), programs_wanted)) {
      states = programs->states();
      hooks_work = true;
      findings.push_back(try_self_check(cgroup->path, std::move(*programs), check));
    } else {
      states = capture::PacketPrograms::probe(cgroup->fd.get(), programs_wanted);  // also what works beside it
    }
  }
  const bool all = works() && hooks_work;
  (options.json ? print_json : print_text)(findings, states ? &*states : nullptr, all);
  return all ? 0 : 1;
}

}  // namespace inferwire::cli
