# SPDX-License-Identifier: Apache-2.0
"""TTFT is the time of the first content, whatever a server sends before it."""

import pathlib
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "support"))
from rig import join  # noqa: E402
from rig.observe import FULL, MS, play, start_agent  # noqa: E402
from rig.scenario import scenario  # noqa: E402
from rig.servers import KINDS, Server  # noqa: E402
from rig.testing import main  # noqa: E402

TOLERANCE_NS = 2 * MS  # beyond what the logs' clocks leave open
SILENCE_S = 10 if FULL else 3


def setUpModule():
    global agent
    agent = start_agent()


class FirstContentTest(unittest.TestCase):
    def check(self, kind, one):
        with Server(kind) as server:
            seen = play(agent, server, {"s": one})["s"]
        self.assertEqual(seen.problems("server") + seen.problems("client"), [])
        self.assertLess(abs(seen.ttft_error_ns(seen.server["ttft_ns"]["server"])), TOLERANCE_NS)
        return seen

    def test_the_head_long_before_the_first_token_on_every_stack(self):
        for kind in KINDS:
            with self.subTest(kind):
                seen = self.check(kind, scenario(ttft_ms=400, head="early", chunks=5))
                self.assertLess(seen.server["ttfb_ns"], 200 * MS)

    def test_the_head_with_the_first_token_on_every_stack(self):
        for kind in KINDS:
            with self.subTest(kind):
                seen = self.check(kind, scenario(ttft_ms=400, head="first", chunks=5))
                self.assertGreater(seen.server["ttfb_ns"], 390 * MS)

    def test_a_role_only_chunk_is_not_the_first_token(self):
        for kind in KINDS:
            with self.subTest(kind):
                seen = self.check(kind, scenario(ttft_ms=800, role_early_ms=10, chunks=5))
                self.assertGreater(seen.server["ttft_ns"]["server"], 790 * MS)

    def test_reasoning_is_content_and_the_first_output_comes_after_it(self):
        seen = self.check("uvicorn", scenario(ttft_ms=50, cadence_ms=40, chunks=10, reasoning=5))
        self.assertEqual(seen.server["chunks_reasoning"], 5)
        self.assertLess(abs(seen.ttft_error_ns(seen.server["first_output_ns"], "c")), TOLERANCE_NS)

    def test_pings_through_a_silence_before_the_first_token(self):
        for comment in ("p", "P"):
            with self.subTest(comment):
                one = scenario(ttft_ms=SILENCE_S * 1000, comments_every_ms=1000, comment=comment, chunks=5)
                seen = self.check("uvicorn", one)
                self.assertEqual(seen.server["comments"], one.kinds().count(comment))
                self.assertGreaterEqual(seen.server["comments"], SILENCE_S - 1)

    def test_pings_through_a_silence_between_tokens_do_not_shorten_the_gap(self):
        one = scenario(ttft_ms=50, gaps_ms=[20, SILENCE_S * 1000, 20], chunks=4, comments_every_ms=1000)
        seen = self.check("node", one)
        silence_of_log_ns = max(join.gaps([before for before, _ in join.chunk_writes(seen.server_line)]))
        self.assertLess(abs(seen.server["gap_ns"]["sent"]["max"] - silence_of_log_ns), 10 * MS)

    def test_tool_calls_are_content(self):
        one = scenario(ttft_ms=60, chunks=6)
        one.script["texts"]["k"] = one.script["texts"]["c"].replace('"content":" tok%i"', (
            '"tool_calls":[{"index":0,"function":{"arguments":"a%i"}}]'))
        one.script["steps"] = [[wait, kinds.replace("c", "k")] for wait, kinds in one.script["steps"]]
        seen = self.check("cpp", one)
        self.assertEqual(seen.server["chunks_tool"], 6)


if __name__ == "__main__":
    main()
