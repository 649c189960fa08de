// SPDX-License-Identifier: Apache-2.0
#include "agent/model/peers.h"

namespace inferwire::model {
namespace {

constexpr std::string_view kOther = "other";
constexpr std::string_view kInference = "inference";
constexpr std::string_view kClasses[] = {"object_store", "model_hub",   "vector_db", "sql",      "cache", "dns",
                                         "nccl",         "kv_transfer", "gateway",   kInference, kOther};

struct UsualPort {
  std::uint16_t port;
  std::string_view peer;
};
// Only ports that hardly anything else uses: a wrong class is worse than `other`.
constexpr UsualPort kUsualPorts[] = {
    {53, "dns"},      {853, "dns"},        {1433, "sql"},       {1521, "sql"},        {3306, "sql"},
    {5432, "sql"},    {6432, "sql"},       {26257, "sql"},      {33060, "sql"},       {6379, "cache"},
    {11211, "cache"}, {6333, "vector_db"}, {6334, "vector_db"}, {19530, "vector_db"}, {11434, kInference},
};

}  // namespace

std::span<const std::string_view> peer_classes() { return kClasses; }

void Peers::saw_llm(const Identity& who, std::uint8_t role, std::uint16_t port) {
  Workload workload{who.name_space, std::string(workload_of(who)), who.container};
  if (llm_.size() >= kKnownMax && !llm_.contains(workload)) return;
  llm_[std::move(workload)].insert({role, port});
}

bool Peers::has_llm(const Identity& who) const {
  return llm_.contains({who.name_space, std::string(workload_of(who)), who.container});
}

std::string_view Peers::class_of(const Identity& who, std::uint8_t role, std::uint16_t port) const {
  if (const auto told = configured_.find(port); told != configured_.end()) return told->second;
  const auto known = llm_.find({who.name_space, std::string(workload_of(who)), who.container});
  if (known != llm_.end() && known->second.contains({role, port})) return kInference;
  for (const UsualPort& usual : kUsualPorts) {
    if (usual.port == port) return usual.peer;
  }
  return kOther;
}

}  // namespace inferwire::model
