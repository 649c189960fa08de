# SPDX-License-Identifier: Apache-2.0
"""Plays scenarios while the agent watches, and gathers what all three saw of each."""

import dataclasses
import os
import unittest

from . import clients, join
from .agent import Agent
from .build import agent_binary
from .clock import realtime_offset_ns

MS = 1_000_000
# The long variants: $INFERWIRE_FULL=1.
FULL = os.environ.get("INFERWIRE_FULL", "") not in ("", "0")


@dataclasses.dataclass
class Seen:
    """One request: what was asked for, both logs, and the agent's records by role."""
    scenario: object
    server_line: dict
    client_line: dict
    records: dict
    unix_offset_ns: int

    def _record(self, role):
        if role not in self.records:
            raise AssertionError(f"{self.client_line['tag']}: no record of the {role} role")
        return self.records[role]

    @property
    def server(self):
        return self._record("server")

    @property
    def client(self):
        return self._record("client")

    def problems(self, role):
        """What is not as the scenario says, as sentences."""
        if role not in self.records:
            return [f"no record of the {role} role"]
        return join.exact_problems(self.records[role], self.scenario.expected(), self.server_line)

    def ttft_error_ns(self, ttft_ns, kinds=join.CHUNK_KINDS):
        """How far a TTFT (server view) is outside of what the clocks before and after each call allow.

        The request came in between the client's first and last send, the event was handed over between the clocks around
        its write: a slow wake-up of either program is no error of the agent.
        """
        before, after = next((before, after) for before, after, written in self.server_line["steps"]
                             if set(written) & set(kinds))
        return join.outside(ttft_ns, before - self.client_line["sent_last_ns"], after - self.client_line["sent_first_ns"])


def require_agent():
    """Skips the calling module where the agent cannot run."""
    if os.geteuid() != 0:
        raise unittest.SkipTest("needs root: loads kernel programs")
    if agent_binary() is None:
        raise unittest.SkipTest("inferwire is not built")


def start_agent(**options):
    """For setUpModule: the agent, stopped by the module's clean-up, which also checks that it ended well."""
    require_agent()
    agent = Agent(**options)
    unittest.addModuleCleanup(agent.close)
    return agent


def gather(agent, scenarios, server, client_lines, *, roles=("server", "client"), timeout_s=15):
    """Joins logs and records of requests that have ended; {tag: Seen}. Missing records are left out of `records`."""
    offset = realtime_offset_ns()
    server_lines = {line["tag"]: line for line in server.log(requests=len(client_lines))}
    keys = {(role, tag): (role, client_lines[tag]["local_port"], server_lines[tag]["local_port"],
                          client_lines[tag]["ordinal"]) for tag in client_lines for role in roles}

    def all_there(records):
        index = join.index_records(records)
        return all(join.of_this_request(index.get(key, []), client_lines[tag], offset)
                   for (_, tag), key in keys.items()) and index
    index = agent.wait_for(all_there, timeout_s) or join.index_records(agent.records())
    result = {}
    for tag, line in client_lines.items():
        found = {role: join.of_this_request(index.get(keys[role, tag], []), line, offset) for role in roles}
        for role, records in found.items():
            if len(records) > 1:
                raise AssertionError(f"{tag}: {len(records)} final records of the {role} role")
        result[tag] = Seen(scenarios[tag], server_lines[tag], line,
                           {role: records[0] for role, records in found.items() if records}, offset)
    return result


def play(agent, server, scenarios, *, netns=None, kind="cpp", request_options=None, roles=("server", "client"), **options):
    """Each scenario on a connection of its own, all at once; {name: Seen}.

    `request_options` and `options` go into each planned request and connection (clients/main.cpp).
    """
    plan = [clients.connection(server.host, server.port, [clients.request(name, one, **(request_options or {}))], **options)
            for name, one in scenarios.items()]
    lines = clients.run_plan(plan, kind=kind, netns=netns)
    return gather(agent, scenarios, server, lines, roles=roles)
