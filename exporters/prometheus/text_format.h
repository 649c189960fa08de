// SPDX-License-Identifier: Apache-2.0
// Prometheus text exposition format 0.0.4:
// https://prometheus.io/docs/instrumenting/exposition_formats/#text-based-format
#pragma once

#include <string>
#include <string_view>

#include "agent/metrics/snapshot.h"

namespace inferwire::prometheus {

inline constexpr std::string_view kTextContentType = "text/plain; version=0.0.4; charset=utf-8";

// Families in the catalogue's order, series in the order of their labels, one HELP and TYPE for each family. The same
// snapshot always gives the same bytes.
std::string write_text(const metrics::Snapshot& snapshot);

}  // namespace inferwire::prometheus
