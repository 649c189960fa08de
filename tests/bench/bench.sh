#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# ./run bench: builds the programs of the benchmarks beside the release build, then runs them.
#
#   bench.sh [--quick] [--seed N] [--only STAGE,...] [--out FILE]
set -euo pipefail
cd "$(dirname "$0")/../.."
release=${INFERWIRE_RELEASE_DIR:-build/release}
tools=${INFERWIRE_BENCH_DIR:-build/bench}
mkdir -p "$tools"
log=$tools/build.log
{ cmake -S tests/bench -B "$tools" -G Ninja && cmake --build "$tools" -j "$(nproc)"; } >"$log" 2>&1 || {
  tail -n 40 "$log"
  exit 1
}
exec /usr/bin/python3 tests/bench/bench.py --agent "$release/inferwire" \
  --object "$release/skeletons/inferwire_skeletons/packet.bpf.o" --tools "$tools" "$@"
