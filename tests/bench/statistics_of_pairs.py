# SPDX-License-Identifier: Apache-2.0
"""Ratios of interleaved slices, with confidence intervals that assume nothing about their distribution.

The median: machines change their speed and do other things between, so a few pairs are far off, both ways.
"""

import random
import statistics


def typical(ratios, seed, resamples=4000):
    """The median and its 95 % interval by bootstrap over the pairs."""
    chance = random.Random(seed)
    medians = sorted(statistics.median(chance.choices(ratios, k=len(ratios))) for _ in range(resamples))
    return {
        "ratio": statistics.median(ratios),
        "low": medians[int(resamples * 0.025)],
        "high": medians[int(resamples * 0.975) - 1],
        "pairs": len(ratios),
    }


def compare(blocks, who, metric, seed):
    """Blocks of slices A1, some others, A2 and perhaps N ("none"): `who` over the mean of A1 and A2, A2 over A1 as the
    control, and the mean of A over N."""
    def value(block, name):
        return block[name][metric]

    def level(block):
        return (value(block, "a1") + value(block, "a2")) / 2

    result = {
        "over_empty": typical([value(block, who) / level(block) for block in blocks], seed),
        "control": typical([value(block, "a2") / value(block, "a1") for block in blocks], seed),
    }
    if all("none" in block for block in blocks):
        result["empty_over_none"] = typical([level(block) / value(block, "none") for block in blocks], seed)
    return result
