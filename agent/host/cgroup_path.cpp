// SPDX-License-Identifier: Apache-2.0
#include "agent/host/cgroup_path.h"

#include <algorithm>
#include <vector>

namespace inferwire::host {
namespace {

constexpr std::size_t kContainerIdDigits = 64;
constexpr std::size_t kShortIdDigits = 12;
constexpr std::size_t kUidLength = 36;

bool is_hex(char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); }

bool remove_suffix(std::string_view& text, std::string_view suffix) {
  if (!text.ends_with(suffix)) return false;
  text.remove_suffix(suffix.size());
  return true;
}

std::vector<std::string_view> split(std::string_view path) {
  std::vector<std::string_view> parts;
  while (!path.empty()) {
    const std::size_t slash = path.find('/');
    if (slash != 0) parts.push_back(path.substr(0, slash));
    if (slash == std::string_view::npos) break;
    path.remove_prefix(slash + 1);
  }
  return parts;
}

// The short id in "<runtime>-<64 hex>.scope", "<64 hex>", "<64 hex>.scope"; else empty. A conmon scope holds the
// monitor of a container, not the container.
std::string container_id(std::string_view part) {
  remove_suffix(part, ".scope");
  if (part.size() < kContainerIdDigits) return "";
  const std::string_view id = part.substr(part.size() - kContainerIdDigits);
  const std::string_view runtime = part.substr(0, part.size() - kContainerIdDigits);
  if (!std::all_of(id.begin(), id.end(), is_hex)) return "";
  if (!runtime.empty() && runtime.back() != '-' && runtime.back() != ':') return "";
  if (runtime.find("conmon") != std::string_view::npos) return "";
  return std::string(id.substr(0, kShortIdDigits));
}

// The uid in "kubepods-burstable-pod<uid with _>.slice" or "pod<uid>"; else empty. Static pods have 32 hex digits.
std::string pod_uid(std::string_view part) {
  // The systemd driver's name for the cgroupfs driver, when the two are mixed up: "<slice>:cri-containerd:<64 hex>".
  part = part.substr(0, part.find(".slice:") == std::string_view::npos ? part.size() : part.find(".slice:") + 6);
  if (remove_suffix(part, ".slice")) {
    const std::size_t at = part.rfind("-pod");
    if (!part.starts_with("kubepods") && part.find("-kubepods") == std::string_view::npos) return "";
    if (at == std::string_view::npos) return "";
    part.remove_prefix(at + 1);
  }
  if (!part.starts_with("pod")) return "";
  part.remove_prefix(3);
  std::string uid(part);
  std::replace(uid.begin(), uid.end(), '_', '-');
  const auto is_uid_character = [](char c) { return is_hex(c) || c == '-'; };
  if (uid.size() != kUidLength && uid.size() != kUidLength - 4) return "";
  if (!std::all_of(uid.begin(), uid.end(), is_uid_character)) return "";
  return uid;
}

// systemd writes "\x2d" for a '-' inside a name.
std::string undo_unit_escapes(std::string_view name) {
  std::string plain;
  for (std::size_t i = 0; i < name.size(); ++i) {
    const bool escape =
        i + 3 < name.size() && name[i] == '\\' && name[i + 1] == 'x' && is_hex(name[i + 2]) && is_hex(name[i + 3]);
    if (!escape) {
      plain += name[i];
      continue;
    }
    const auto digit = [](char c) { return c <= '9' ? c - '0' : c - 'a' + 10; };
    plain += static_cast<char>(digit(name[i + 2]) * 16 + digit(name[i + 3]));
    i += 3;
  }
  return plain;
}

}  // namespace

CgroupOwner parse_cgroup_path(std::string_view path) {
  const std::vector<std::string_view> parts = split(path);
  CgroupOwner owner;
  std::string unit;
  for (std::string_view part : parts) {
    // The deepest pod wins: a kind node is a container whose pods are containers. In it the first container does: what
    // a pod's container runs in containers of its own is that container's.
    if (std::string uid = pod_uid(part); !uid.empty()) {
      owner.pod = std::move(uid);
      owner.container = container_id(part);
    } else if (std::string id = container_id(part); !id.empty()) {
      if (owner.pod.empty() || owner.container.empty()) owner.container = std::move(id);
    } else if (part.ends_with(".service") && !part.starts_with("user@")) {
      unit = undo_unit_escapes(part);
    }
  }
  if (!owner.pod.empty()) {
    owner.workload = owner.pod;
  } else if (!owner.container.empty()) {
    owner.workload = owner.container;
  } else {
    owner.workload = std::move(unit);
  }
  return owner;
}

}  // namespace inferwire::host
