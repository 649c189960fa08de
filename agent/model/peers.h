// SPDX-License-Identifier: Apache-2.0
// The label `peer`: what kind of service is behind a port. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <tuple>

#include "agent/model/identity.h"

namespace inferwire::model {

// "object_store", "sql", "inference", ..., "other": all that the label can be.
std::span<const std::string_view> peer_classes();

class Peers {
 public:
  // What the user says of ports wins over everything else.
  explicit Peers(std::map<std::uint16_t, std::string> configured = {}) : configured_(std::move(configured)) {}

  // This workload has LLM requests on that port: as a server, or as a client of it.
  void saw_llm(const Identity& who, std::uint8_t role, std::uint16_t port);

  // Has the workload had LLM requests at all?
  bool has_llm(const Identity& who) const;

  // A constant, or a text that lives as long as this. `port`: the service's; 0 = not known.
  std::string_view class_of(const Identity& who, std::uint8_t role, std::uint16_t port) const;

 private:
  static constexpr std::size_t kKnownMax = 16'384;
  // Namespace, workload, container.
  using Workload = std::tuple<std::string, std::string, std::string>;

  std::map<std::uint16_t, std::string> configured_;
  std::map<Workload, std::set<std::pair<std::uint8_t, std::uint16_t>>> llm_;  // role and port
};

}  // namespace inferwire::model
