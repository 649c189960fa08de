// SPDX-License-Identifier: Apache-2.0
// Serves a registry in which every family has series, with label values as hostile as the wire can send. Prints its
// address, stops at the end of standard input.
#include <cstdio>
#include <string>
#include <vector>

#include "agent/metrics/registry.h"
#include "exporters/prometheus/http_server.h"
#include "exporters/prometheus/prometheus_exporter.h"

namespace metrics = inferwire::metrics;
namespace prometheus = inferwire::prometheus;

namespace {

const std::string kHostile[] = {
    "ordinary",
    "quote\" backslash\\ brace} comma, equals=",
    "line\nfeed\r\ttab",
    std::string("nul\0byte", 8),
    "\xFF\xFE invalid \xC3( \xED\xA0\x80 UTF-8",
    "größe 模型 🦙",
    std::string(1000, 'x'),
    "# HELP fake Fake.",
    "",
};

void fill(metrics::Registry& registry, const metrics::Family& family) {
  int row = 0;
  for (const std::string& hostile : kHostile) {
    const std::vector<std::string_view> labels(family.label_count, hostile);
    ++row;
    if (family.type == metrics::MetricType::kHistogram) {
      registry.observe(family.id, labels, .0123 * row, 3);
      registry.observe(family.id, labels, 1e9);
    } else {
      registry.add(family.id, labels, row);
    }
  }
}

}  // namespace

int main() {
  metrics::Registry registry;
  for (const metrics::Family& family : metrics::catalogue()) fill(registry, family);
  prometheus::PrometheusExporter exporter(registry.edges(metrics::FamilyId::kScrapeSeconds));
  exporter.publish(registry.snapshot());
  const auto server =
      prometheus::HttpServer::start({.address = "127.0.0.1:0"}, {{"/metrics", [&] { return exporter.scrape(); }}});
  if (!server) {
    std::fprintf(stderr, "%s\n", server.error().to_string().c_str());
    return 1;
  }
  std::printf("%s\n", (*server)->address().c_str());
  std::fflush(stdout);
  while (std::getchar() != EOF) {
  }
  return 0;
}
