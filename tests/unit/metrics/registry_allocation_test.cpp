// SPDX-License-Identifier: Apache-2.0
// Counts calls of operator new; a program of its own, because it replaces it.
#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <new>

#include "agent/metrics/registry.h"

namespace {
std::atomic<std::size_t> g_allocations{0};
}

// noinline: else the compiler sees malloc behind new, free behind delete, and calls them mismatched.
[[gnu::noinline]] void* operator new(std::size_t bytes) {
  g_allocations.fetch_add(1, std::memory_order_relaxed);
  if (void* memory = std::malloc(bytes == 0 ? 1 : bytes)) return memory;
  throw std::bad_alloc();
}
[[gnu::noinline]] void operator delete(void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }

namespace inferwire::metrics {
namespace {

TEST(RegistryCost, WritingToASeriesThatExistsAllocatesNothing) {
  Registry registry;
  const std::string_view labels[] = {"production",           "llama-70b-instruct-server",         "vllm",  "server",
                                     "/v1/chat/completions", "meta-llama/Llama-3.1-70B-Instruct", "server"};
  std::vector<std::uint64_t> counts(registry.edges(FamilyId::kTimeToFirstChunkSeconds).size() + 1, 1);
  const auto write = [&] {
    registry.observe(FamilyId::kTimeToFirstChunkSeconds, labels, .25);
    registry.observe_counts(FamilyId::kTimeToFirstChunkSeconds, labels, counts, 1.5);
    registry.add(FamilyId::kRecordsTotal, {"request"});
    registry.set(FamilyId::kMapEntries, {"sockets"}, 5);
  };
  write();
  const std::size_t before = g_allocations;
  for (int i = 0; i < 1000; ++i) write();
  EXPECT_EQ(g_allocations, before);
}

}  // namespace
}  // namespace inferwire::metrics
