# SPDX-License-Identifier: Apache-2.0
"""The same stream gives the same chunks, tokens, outcome and code, however its bytes are cut and whatever the path does."""

import os
import pathlib
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "support"))
from rig import clients  # noqa: E402
from rig import wire as wire_rig  # noqa: E402
from rig.observe import FULL, gather, play, start_agent  # noqa: E402
from rig.scenario import scenario  # noqa: E402
from rig.servers import KINDS, Server  # noqa: E402
from rig.testing import main  # noqa: E402
from rig.wire import Wire  # noqa: E402

STREAMS_PER_CASE = 24 if FULL else 8
FRAMINGS = ("sse-lf", "sse-crlf", "ndjson")


def setUpModule():
    global agent
    agent = start_agent()


def same_streams(chunks=30, streams=STREAMS_PER_CASE, **options):
    """Streams of every framing, alike but for what `options` say."""
    return {f"{framing}-{i}": scenario(framing=framing, chunks=chunks, cadence_ms=5, ttft_ms=30, seed=i,
                                       jitter=0.5, reasoning=5, **options)
            for i in range(streams) for framing in [FRAMINGS[i % len(FRAMINGS)]]}


class Shapes(unittest.TestCase):
    def assert_right(self, seen, *, client_may_be_approximate=False):
        approximate = 0
        for name, one in seen.items():
            with self.subTest(name):
                self.assertEqual(one.client_line["outcome"], "complete", "the client did not get its stream")
                self.assertEqual(one.problems("server"), [])
                client_problems = one.problems("client")
                if client_may_be_approximate and one.client.get("approximate"):
                    approximate += 1
                else:
                    self.assertEqual(client_problems, [], f"approximate: {one.client.get('approximate', False)}")
        if client_may_be_approximate:
            print(f"client records marked approximate: {approximate} of {len(seen)}")


class CutTest(Shapes):
    """How the server cuts its bytes."""

    def check(self, **options):
        with Server("cpp") as server:
            self.assert_right(play(agent, server, same_streams(**options)))

    def test_whole_events(self):
        self.check()

    def test_byte_by_byte(self):
        # Many at once: packets of one connection then meet on several CPUs. An emulated one may stand still while it holds
        # the connection's lock, longer than the other waits.
        with Server("cpp") as server:
            self.assert_right(play(agent, server, same_streams(split=1, chunks=10, streams=48)),
                              client_may_be_approximate=bool(os.environ.get("INFERWIRE_VM")))

    def test_pieces_of_seven_bytes(self):
        self.check(split=7)

    def test_everything_in_one_write(self):
        self.check(split="single")

    def test_several_events_a_write(self):
        self.check(coalesce=4)

    def test_a_write_for_each_event_of_the_tail(self):
        self.check(tail="separate")

    def test_content_length(self):
        self.check(body="length")

    def test_until_close(self):
        self.check(body="close")

    def test_msg_more(self):
        self.check(more=True)

    def test_large_events(self):
        self.check(pad=5000)

    def test_after_an_interim_response(self):
        self.check(interim=103)

    def test_every_server_stack(self):
        for kind in KINDS:
            with self.subTest(kind), Server(kind) as server:
                self.assert_right(play(agent, server, same_streams()))

    def test_several_requests_on_a_connection_are_told_apart(self):
        with Server("cpp") as server:
            scenarios = {f"r{i}": scenario(chunks=3 + i, cadence_ms=3, ttft_ms=10) for i in range(6)}
            lines = clients.run_plan([clients.connection(server.host, server.port, [
                clients.request(name, one) for name, one in scenarios.items()])])
            self.assert_right(gather(agent, scenarios, server, lines))


class EndTest(Shapes):
    """How streams end."""

    def outcome_of(self, kind, one):
        with Server(kind) as server:
            return play(agent, server, {"s": one})["s"]

    def test_a_stream_without_its_end_marker_is_truncated_clean(self):
        self.assertEqual(self.outcome_of("cpp", scenario(done=False)).server["outcome"], "truncated_clean")

    def test_a_connection_closed_inside_the_body_is_truncated_abrupt_on_every_stack(self):
        for kind in KINDS:
            with self.subTest(kind):
                seen = self.outcome_of(kind, scenario(die_at=5, end="fin"))
                self.assertEqual([seen.server["outcome"], seen.client["outcome"]], ["truncated_abrupt"] * 2)
                self.assertEqual(seen.server["chunks"], 5)

    def test_a_reset_is_a_reset(self):
        seen = self.outcome_of("cpp", scenario(die_at=5, end="rst"))
        self.assertEqual([seen.server["outcome"], seen.client["outcome"]], ["reset"] * 2)

    def test_an_error_event_is_an_error_in_the_stream(self):
        for framing in FRAMINGS:
            with self.subTest(framing):
                seen = self.outcome_of("cpp", scenario(framing=framing, error_at=5))
                self.assertEqual([seen.server["outcome"], seen.client["outcome"]], ["error_in_stream"] * 2)
                self.assertEqual(seen.server["code"], 200)

    def test_a_client_that_leaves_is_a_client_abort(self):
        for how in ("fin", "rst"):
            with self.subTest(how), Server("cpp") as server:
                seen = play(agent, server, {"s": scenario(chunks=200, cadence_ms=10)},
                            request_options={"abort_after_events": 5, "abort": how})["s"]
                self.assertEqual(seen.server["outcome"], "client_abort")


class PathTest(Shapes):
    """What the path does to the packets."""

    def check(self, client_may_be_approximate=True, **faults):
        for host in (wire_rig.B_ADDRESS, wire_rig.B_ADDRESS6):
            with self.subTest(host), Wire(delay_ms=2, **faults) as wire, \
                    Server("cpp", netns=wire.b, host=host) as server:
                seen = play(agent, server, same_streams(), netns=wire.a)
                self.assert_right(seen, client_may_be_approximate=client_may_be_approximate)

    def test_a_path_without_faults(self):
        self.check(client_may_be_approximate=False)

    def test_a_quarter_reordered(self):
        self.check(reorder=0.25)

    def test_five_percent_duplicated(self):
        self.check(duplicate=0.05)

    def test_three_percent_lost(self):
        self.check(loss=0.03)

    def test_corrupted_segments_are_not_believed(self):
        self.check(corrupt=0.05)

    def test_corrupted_segments_behind_a_hole_are_not_believed_either(self):
        for seed in range(4):
            with self.subTest(seed), Wire(delay_ms=2, seed=seed, reorder=0.25, corrupt=0.1) as wire, \
                    Server("cpp", netns=wire.b, host=wire_rig.B_ADDRESS) as server:
                self.assert_right(play(agent, server, same_streams(split=7, chunks=10, streams=16), netns=wire.a),
                                  client_may_be_approximate=True)

    def test_everything_at_once_in_pieces_of_seven_bytes(self):
        with Wire(delay_ms=2, loss=0.02, reorder=0.1, duplicate=0.05, corrupt=0.02) as wire, \
                Server("cpp", netns=wire.b, host=wire_rig.B_ADDRESS) as server:
            self.assert_right(play(agent, server, same_streams(split=7, chunks=10), netns=wire.a),
                              client_may_be_approximate=True)


if __name__ == "__main__":
    main()
