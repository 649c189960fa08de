# SPDX-License-Identifier: Apache-2.0
"""Ratios of interleaved slices, with confidence intervals that assume nothing about their distribution."""

import math
import random


def mean_ratio(ratios, seed, resamples=4000):
    """Geometric mean and its 95 % interval by bootstrap over the blocks."""
    logs = [math.log(ratio) for ratio in ratios]
    chance = random.Random(seed)
    means = sorted(sum(chance.choices(logs, k=len(logs))) / len(logs) for _ in range(resamples))
    return {
        "ratio": math.exp(sum(logs) / len(logs)),
        "low": math.exp(means[int(resamples * 0.025)]),
        "high": math.exp(means[int(resamples * 0.975) - 1]),
        "pairs": len(logs),
    }


def compare(blocks, metric, seed):
    """Blocks of slices A1, B, A2 and perhaps N ("none"): B over the mean of its neighbours, A2 over A1 as the control,
    and N over the same mean."""
    def value(block, name):
        return block[name][metric]

    def level(block):
        return (value(block, "a1") + value(block, "a2")) / 2

    result = {
        "agent_over_empty": mean_ratio([value(block, "b") / level(block) for block in blocks], seed),
        "empty_over_empty": mean_ratio([value(block, "a2") / value(block, "a1") for block in blocks], seed),
    }
    if all("none" in block for block in blocks):
        result["empty_over_none"] = mean_ratio([level(block) / value(block, "none") for block in blocks], seed)
    return result
