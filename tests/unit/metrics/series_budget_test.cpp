// SPDX-License-Identifier: Apache-2.0
// How many samples an ordinary node exports: eight servers with two routes each behind a gateway, all on one node, so
// that every request is seen by both ends.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "agent/metrics/registry.h"

namespace inferwire::metrics {
namespace {

struct Route {
  std::string_view path;
  std::string_view streamed;
};
constexpr Route kRoutes[] = {{"/v1/chat/completions", "true"}, {"/v1/embeddings", "false"}};

const std::vector<std::string_view> kServerPhases = {"upload", "accept_wait",    "read_wait", "server",
                                                     "hold",   "first_delivery", "stream",    "drain"};
const std::vector<std::string_view> kClientPhases = {"send", "wait", "first_read", "stream", "drain"};

struct Side {
  std::string workload;
  std::string_view role;
  std::string port;
  std::vector<std::string> models;
};

// Everything that one side of LLM traffic writes.
void write_side(Registry& registry, const Side& side) {
  const std::string_view ns = "inference", container = "main";
  const std::string_view name = side.workload, role = side.role, port = side.port;
  const std::string pod = side.workload + "-7d4b9c6f5-x2x7z";
  for (const auto& [path, streamed] : kRoutes) {
    for (const std::string_view model : side.models) {
      for (const auto& [code, outcome] : {std::pair{"200", "complete"}, std::pair{"503", "complete"}}) {
        const std::string_view shown = std::string_view(code) == "200" ? model : "";
        registry.add(FamilyId::kRequestsTotal,
                     {ns, name, container, pod, role, port, "http1", path, shown, code, outcome});
      }
    }
    registry.observe(FamilyId::kRequestDurationSeconds, {ns, name, container, role, path, streamed}, 1);
    registry.add(FamilyId::kRequestDurationSecondsSquaredTotal, {ns, name, container, role, path, streamed}, 1);
    registry.observe(FamilyId::kTimeToFirstByteSeconds, {ns, name, container, role, path}, 1);
    registry.observe(FamilyId::kRequestBodyBytes, {ns, name, container, role, path}, 1);
    registry.observe(FamilyId::kResponseBodyBytes, {ns, name, container, role, path}, 1);
  }
  for (const auto phase : role == "server" ? kServerPhases : kClientPhases) {
    registry.observe(FamilyId::kRequestPhaseSeconds, {ns, name, container, role, phase}, 1);
  }
  registry.add(FamilyId::kRequestRetransmittedSegmentsTotal, {ns, name, container, pod, role, "stream"});
  for (const std::string_view model : side.models) {
    for (const std::string_view view : {"server", "user"}) {
      registry.observe(FamilyId::kTimeToFirstChunkSeconds, {ns, name, container, role, kRoutes[0].path, model, view},
                       1);
    }
    for (const std::string_view view : {"sent", "delivered"}) {
      registry.observe(FamilyId::kTimePerOutputChunkSeconds, {ns, name, container, role, model, view}, 1);
    }
    registry.observe(FamilyId::kTimePerOutputTokenSeconds, {ns, name, container, role, model}, 1);
    registry.add(FamilyId::kOutputChunksTotal, {ns, name, container, pod, role, model});
    registry.add(FamilyId::kOutputTokensTotal, {ns, name, container, pod, role, model});
    registry.add(FamilyId::kInputTokensTotal, {ns, name, container, pod, role, model});
    if (role == "server") {
      registry.observe(FamilyId::kServerQueueSeconds, {ns, name, container, model, "wire"}, 1);
      registry.observe(FamilyId::kServerPrefillSeconds, {ns, name, container, model, "wire"}, 1);
    }
  }
  registry.observe(FamilyId::kChunksPerDelivery, {ns, name, container, role}, 1);
  registry.add(FamilyId::kRequestsInFlight, {ns, name, container, pod, role, port});
  registry.add(FamilyId::kStreamsInFlight, {ns, name, container, pod, role, port});
  registry.add(FamilyId::kConnectionsOpen, {ns, name, container, pod, role, port});
  registry.raise(FamilyId::kStreamSilenceSecondsMax, {ns, name, container, pod, role}, 1);
}

// Everything that TCP writes of one side: a server that was reset in several ways and dropped connections, or a client.
void write_tcp(Registry& registry, const Side& side) {
  const std::string_view ns = "inference", container = "main";
  const std::string_view name = side.workload, role = side.role, peer = "inference";
  const std::string pod = side.workload + "-7d4b9c6f5-x2x7z";
  for (const std::string_view direction : {"sent", "received"}) {
    registry.add(FamilyId::kTcpSegmentsTotal, {ns, name, container, pod, role, direction, peer});
    registry.add(FamilyId::kTcpPayloadBytesTotal, {ns, name, container, pod, role, direction, peer});
    registry.add(FamilyId::kTcpHeaderBytesTotal, {ns, name, container, pod, role, direction, peer});
    registry.add(FamilyId::kTcpZeroWindowSecondsTotal, {ns, name, container, pod, direction});
  }
  for (const std::string_view type : {"syn", "fast", "rto", "tlp"}) {
    registry.add(FamilyId::kTcpRetransmittedSegmentsTotal, {ns, name, container, pod, role, type});
  }
  for (const std::string_view cause : {"abort_on_close", "stale_reuse", "no_listener"}) {
    registry.add(FamilyId::kTcpResetsTotal, {ns, name, container, pod, role, "sent", cause});
  }
  registry.add(FamilyId::kTcpConnectionsOpenedTotal, {ns, name, container, pod, role, peer});
  registry.add(FamilyId::kTcpRttSamplesTotal, {ns, name, container, pod, role, peer});
  registry.add(FamilyId::kTcpRttSampleSecondsTotal, {ns, name, container, pod, role, peer});
  registry.observe(FamilyId::kTcpRttSeconds, {ns, name, container, role, peer}, 1);
  registry.observe(FamilyId::kTcpQueueingDelaySeconds, {ns, name, container, peer}, 1);
  for (const std::string_view state : {"established", "close_wait", "fin_wait2"}) {
    registry.add(FamilyId::kTcpConnections, {ns, name, container, pod, state});
  }
  if (role == "client") {
    registry.observe(FamilyId::kTcpConnectSeconds, {ns, name, container, peer}, 1);
    for (const std::string_view result : {"ok", "refused", "timeout"}) {
      registry.add(FamilyId::kTcpConnectsTotal, {ns, name, container, pod, peer, result});
    }
    return;
  }
  registry.observe(FamilyId::kTcpAcceptWaitSeconds, {ns, name, container}, 1);
  for (const FamilyId gauge : {FamilyId::kTcpListeners, FamilyId::kTcpAcceptQueueLength, FamilyId::kTcpAcceptQueueLimit,
                               FamilyId::kTcpSynQueueLength}) {
    registry.add(gauge, {ns, name, container, pod, side.port}, 1);
  }
  registry.add(FamilyId::kTcpListenDropsTotal, {ns, name, container, pod, side.port, "accept_queue_full"});
}

TEST(SeriesBudget, EightServersWithTwoRoutesAndAGatewayStayUnder6000Samples) {
  Registry registry;
  for (int server = 0; server < 8; ++server) {
    const std::string number = std::to_string(server);
    const Side side{"vllm-" + number, "server", "800" + number, {server < 4 ? "llama-8b" : "qwen-32b"}};
    write_side(registry, side);
    write_tcp(registry, side);
  }
  // The gateway serves two models and has an upstream side to eight servers.
  for (const Side& side : {Side{"gateway", "server", "8080", {"llama-8b", "qwen-32b"}},
                           Side{"gateway", "client", "8000", {"llama-8b", "qwen-32b"}}}) {
    write_side(registry, side);
    write_tcp(registry, side);
  }

  const auto snapshot = registry.snapshot();
  EXPECT_LT(snapshot->samples(), 6000u);
  EXPECT_EQ(snapshot->find(FamilyId::kSeriesLimitHitsTotal), nullptr);
  RecordProperty("samples", static_cast<int>(snapshot->samples()));
}

}  // namespace
}  // namespace inferwire::metrics
