# SPDX-License-Identifier: Apache-2.0
"""The clock of every log: CLOCK_MONOTONIC in nanoseconds."""

import time


def monotonic_ns() -> int:
    return time.clock_gettime_ns(time.CLOCK_MONOTONIC)


def realtime_offset_ns() -> int:
    """What to add to a monotonic time to get Unix time: the tightest of many paired readings."""
    best_width, best_offset = None, 0
    for _ in range(200):
        before = time.clock_gettime_ns(time.CLOCK_MONOTONIC)
        unix = time.clock_gettime_ns(time.CLOCK_REALTIME)
        after = time.clock_gettime_ns(time.CLOCK_MONOTONIC)
        if best_width is None or after - before < best_width:
            best_width, best_offset = after - before, unix - (before + after) // 2
    return best_offset
