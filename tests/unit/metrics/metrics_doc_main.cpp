// SPDX-License-Identifier: Apache-2.0
#include <cstdio>

#include "agent/metrics/catalogue.h"

int main() {
  std::fputs(inferwire::metrics::catalogue_markdown().c_str(), stdout);
  return std::fflush(stdout) == 0 ? 0 : 1;
}
