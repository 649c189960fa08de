// SPDX-License-Identifier: Apache-2.0
#include "agent/host/pod_objects.h"

#include <algorithm>
#include <cctype>
#include <nlohmann/json.hpp>

namespace inferwire::host {
namespace {

using Json = nlohmann::json;

constexpr std::size_t kShortIdDigits = 12;

// Null instead of an exception; specifications and the history of who wrote which field are dropped while reading.
Json parse(std::string_view text) {
  const auto keep = [](int, Json::parse_event_t event, Json& parsed) {
    return event != Json::parse_event_t::key || (parsed != "spec" && parsed != "managedFields");
  };
  Json json = Json::parse(text.begin(), text.end(), keep, false);
  return json.is_object() ? json : Json();
}

// The member, or null if anything on the way is missing.
const Json& at(const Json& json, std::initializer_list<const char*> path) {
  static const Json kNull;
  const Json* here = &json;
  for (const char* name : path) {
    if (!here->is_object()) return kNull;
    const auto found = here->find(name);
    if (found == here->end()) return kNull;
    here = &*found;
  }
  return *here;
}

std::string text_at(const Json& json, std::initializer_list<const char*> path) {
  const Json& value = at(json, path);
  return value.is_string() ? value.get<std::string>() : "";
}

bool take_suffix(std::string& name, const std::string& suffix) {
  if (suffix.empty() || name.size() <= suffix.size() + 1 || !name.ends_with("-" + suffix)) return false;
  name.resize(name.size() - suffix.size() - 1);
  return true;
}

// Of a Job that a CronJob has made: "<cronjob>-<minutes since 1970>".
void take_minute(std::string& name) {
  constexpr std::size_t kMinuteDigits = 8;
  if (name.size() <= kMinuteDigits + 1 || name[name.size() - kMinuteDigits - 1] != '-') return;
  const auto is_digit = [](unsigned char c) { return std::isdigit(c) != 0; };
  if (std::all_of(name.end() - kMinuteDigits, name.end(), is_digit)) name.resize(name.size() - kMinuteDigits - 1);
}

// Who made the pod, and who made that as far as the pod says.
std::string owner_of(const Json& metadata, const std::string& pod) {
  // Groups of StatefulSets and Jobs.
  for (const char* label : {"leaderworkerset.sigs.k8s.io/name", "jobset.sigs.k8s.io/jobset-name"}) {
    if (std::string group = text_at(metadata, {"labels", label}); !group.empty()) return group;
  }
  const Json& owners = at(metadata, {"ownerReferences"});
  if (!owners.is_array()) return pod;
  for (const Json& owner : owners) {
    const Json& controls = at(owner, {"controller"});
    if (!controls.is_boolean() || !controls.get<bool>()) continue;
    std::string name = text_at(owner, {"name"});
    const std::string kind = text_at(owner, {"kind"});
    if (kind == "Node") return workload_of_static_pod(pod, name);
    if (kind == "Job") take_minute(name);
    if (kind == "ReplicaSet" && !take_suffix(name, text_at(metadata, {"labels", "pod-template-hash"}))) {
      take_suffix(name, text_at(metadata, {"labels", "rollouts-pod-template-hash"}));
    }
    return name.empty() ? pod : name;
  }
  return pod;
}

// "containerd://<64 hex>".
std::string short_id(const std::string& container_id) {
  const std::size_t at = container_id.find("://");
  return at == std::string::npos ? "" : container_id.substr(at + 3, kShortIdDigits);
}

PodObject read_pod(const Json& json) {
  PodObject pod;
  const Json& metadata = at(json, {"metadata"});
  pod.uid = text_at(metadata, {"annotations", "kubernetes.io/config.hash"});
  if (pod.uid.empty()) pod.uid = text_at(metadata, {"uid"});
  pod.name.name_space = text_at(metadata, {"namespace"});
  pod.name.pod = text_at(metadata, {"name"});
  pod.name.workload = owner_of(metadata, pod.name.pod);
  for (const char* list : {"initContainerStatuses", "containerStatuses", "ephemeralContainerStatuses"}) {
    const Json& statuses = at(json, {"status", list});
    if (!statuses.is_array()) continue;
    for (const Json& status : statuses) {
      const std::string name = text_at(status, {"name"});
      for (const std::string& id :
           {text_at(status, {"containerID"}), text_at(status, {"lastState", "terminated", "containerID"})}) {
        if (!short_id(id).empty()) pod.containers[short_id(id)] = name;
      }
    }
  }
  return pod;
}

}  // namespace

base::Result<PodList> parse_pod_list(std::string_view text) {
  const Json json = parse(text);
  const Json& items = at(json, {"items"});
  // An empty list may be written as null.
  if (text_at(json, {"kind"}) != "PodList" || !(items.is_array() || items.is_null())) {
    return base::fail("read the list of pods", "", "the answer is no PodList", "");
  }
  PodList list;
  list.resource_version = text_at(json, {"metadata", "resourceVersion"});
  for (const Json& item : items) {
    PodObject pod = read_pod(item);
    if (!pod.uid.empty() && !pod.name.pod.empty()) list.pods.push_back(std::move(pod));
  }
  return list;
}

base::Result<PodEvent> parse_pod_event(std::string_view text) {
  const Json json = parse(text);
  const std::string type = text_at(json, {"type"});
  const Json& object = at(json, {"object"});
  if (!object.is_object()) return base::fail("read a watch event", "", "it has no object", "");
  PodEvent event;
  event.resource_version = text_at(object, {"metadata", "resourceVersion"});
  if (type == "ERROR") {
    const Json& code = at(object, {"code"});
    if (code.is_number_integer()) event.code = code.get<int>();
    event.message = text_at(object, {"message"});
    event.resource_version.clear();
    return event;
  }
  if (type == "BOOKMARK") {
    event.kind = PodEvent::Kind::kBookmark;
    return event;
  }
  if (type != "ADDED" && type != "MODIFIED" && type != "DELETED") {
    return base::fail("read a watch event", "", "its type is '" + type + "'", "");
  }
  event.kind = type == "DELETED" ? PodEvent::Kind::kGone : PodEvent::Kind::kThere;
  event.pod = read_pod(object);
  if (event.pod.uid.empty() || event.pod.name.pod.empty()) {
    return base::fail("read a watch event", "", "its pod has no name", "");
  }
  return event;
}

std::string status_message(std::string_view text) { return text_at(parse(text), {"message"}); }

}  // namespace inferwire::host
