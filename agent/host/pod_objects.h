// SPDX-License-Identifier: Apache-2.0
// Pods as the Kubernetes API writes them (JSON of v1.PodList and of watch events), as far as names need them.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "agent/base/result.h"
#include "agent/host/pod_directory.h"

namespace inferwire::host {

struct PodObject {
  // As cgroups have it; of a static pod the API knows another one, that of its mirror.
  std::string uid;
  PodName name;                                             // without a container
  std::unordered_map<std::string, std::string> containers;  // names by short id, those that have run before too
};

struct PodList {
  std::string resource_version;
  std::vector<PodObject> pods;
};

// Specifications are skipped while reading: they hold the environment.
base::Result<PodList> parse_pod_list(std::string_view json);

struct PodEvent {
  enum class Kind { kThere, kGone, kBookmark, kError };
  Kind kind = Kind::kError;
  PodObject pod;
  std::string resource_version;  // empty on errors
  int code = 0;                  // of an error; 410: the version is too old, list again
  std::string message;
};

// One line of a watch.
base::Result<PodEvent> parse_pod_event(std::string_view json);

// What a response that is no list says: the message of a v1.Status, else empty.
std::string status_message(std::string_view json);

}  // namespace inferwire::host
