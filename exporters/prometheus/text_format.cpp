// SPDX-License-Identifier: Apache-2.0
#include "exporters/prometheus/text_format.h"

#include <charconv>
#include <cmath>
#include <cstdint>

namespace inferwire::prometheus {
namespace {

using metrics::Family;
using metrics::FamilySnapshot;
using metrics::MetricType;

// Doubles hold every integer up to here exactly.
constexpr double kExactIntegersMax = 9007199254740992.0;  // 2^53

template <class... Format>
void append_chars(std::string& out, Format... value_and_format) {
  char buffer[400];  // fixed notation of a small double takes up to 345
  const auto [end, error] = std::to_chars(buffer, buffer + sizeof buffer, value_and_format...);
  if (error == std::errc()) out.append(buffer, end);
}

void append_number(std::string& out, double value) {
  if (std::isnan(value)) {
    out += "NaN";
  } else if (std::isinf(value)) {
    out += value > 0 ? "+Inf" : "-Inf";
  } else if (std::trunc(value) == value && std::fabs(value) <= kExactIntegersMax) {
    append_chars(out, static_cast<std::int64_t>(value));
  } else {
    append_chars(out, value);  // the shortest text that reads back as the same double
  }
}

void append_escaped_help(std::string& out, std::string_view help) {
  for (const char c : help) {
    if (c == '\\') {
      out += "\\\\";
    } else if (c == '\n') {
      out += "\\n";
    } else {
      out += c;
    }
  }
}

void append_escaped_value(std::string& out, std::string_view value) {
  for (const char c : value) {
    if (c == '\\') {
      out += "\\\\";
    } else if (c == '"') {
      out += "\\\"";
    } else if (c == '\n') {
      out += "\\n";
    } else {
      out += c;
    }
  }
}

// a="1",b="2"
std::string label_text(const Family& family, const metrics::LabelValues& values) {
  std::string text;
  for (std::size_t at = 0; at < values.size(); ++at) {
    if (at > 0) text += ',';
    text += family.labels()[at];
    text += "=\"";
    append_escaped_value(text, values[at]);
    text += '"';
  }
  return text;
}

// `labels` without braces; may be empty.
void append_name(std::string& out, std::string_view name, std::string_view suffix, std::string_view labels) {
  out += name;
  out += suffix;
  if (!labels.empty()) {
    out += '{';
    out += labels;
    out += '}';
  }
  out += ' ';
}

// The `le` texts are the same for all series of a family. Never in scientific notation: queries name them.
std::vector<std::string> le_labels(const std::vector<double>& edges) {
  std::vector<std::string> labels;
  for (const double edge : edges) {
    std::string& label = labels.emplace_back("le=\"");
    append_chars(label, edge, std::chars_format::fixed);
    label += '"';
  }
  labels.emplace_back("le=\"+Inf\"");
  return labels;
}

void append_histograms(std::string& out, const FamilySnapshot& family) {
  const std::string_view name = family.family->name;
  const auto les = le_labels(*family.edges);
  for (std::size_t at = 0; at < family.series.size(); ++at) {
    const auto& series = family.series[at];
    const std::string labels = label_text(*family.family, *series.label_values);
    const std::string before_le = labels.empty() ? "" : labels + ",";
    const auto buckets = family.buckets_of(at);
    std::uint64_t cumulative = 0;
    for (std::size_t bucket = 0; bucket < buckets.size(); ++bucket) {
      cumulative += buckets[bucket];
      out += name;
      out += "_bucket{";
      out += before_le;
      out += les[bucket];
      out += "} ";
      append_chars(out, cumulative);
      out += '\n';
    }
    append_name(out, name, "_sum", labels);
    append_number(out, series.value);
    out += '\n';
    append_name(out, name, "_count", labels);
    append_chars(out, series.count);
    out += '\n';
  }
}

void append_values(std::string& out, const FamilySnapshot& family) {
  for (const auto& series : family.series) {
    append_name(out, family.family->name, "", label_text(*family.family, *series.label_values));
    append_number(out, series.value);
    out += '\n';
  }
}

void append_family(std::string& out, const FamilySnapshot& family) {
  out += "# HELP ";
  out += family.family->name;
  out += ' ';
  append_escaped_help(out, family.family->help);
  out += "\n# TYPE ";
  out += family.family->name;
  out += ' ';
  out += type_name(family.family->type);
  out += '\n';
  if (family.family->type == MetricType::kHistogram) {
    append_histograms(out, family);
  } else {
    append_values(out, family);
  }
}

}  // namespace

std::string write_text(const metrics::Snapshot& snapshot) {
  std::string out;
  out.reserve(snapshot.samples() * 160 + 4096);
  for (const auto& family : snapshot.families) append_family(out, family);
  return out;
}

}  // namespace inferwire::prometheus
