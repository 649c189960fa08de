# SPDX-License-Identifier: Apache-2.0
"""What the kernel itself counts: the counters of a network namespace (as nstat shows them), and ss."""

import collections
import re

from rig.process import run

SHOWN_STATES = {"ESTAB": "established", "SYN-SENT": "syn_sent", "FIN-WAIT-1": "fin_wait1", "FIN-WAIT-2": "fin_wait2",
                "CLOSE-WAIT": "close_wait", "LAST-ACK": "last_ack", "CLOSING": "closing"}


def counters(pid="self"):
    """{"TcpExtListenDrops": 3, "TcpRetransSegs": 0, ...} of the namespace of a process."""
    result = collections.Counter()
    for name in ("netstat", "snmp"):
        with open(f"/proc/{pid}/net/{name}", encoding="ascii") as file:
            lines = file.read().splitlines()
        for names, values in zip(lines[::2], lines[1::2]):
            group = names.split(":")[0]
            for key, value in zip(names.split()[1:], values.split()[1:]):
                result[group + key] = int(value)
    return result


def listen_queues(port, netns=None):
    """[(accept queue's length, its limit)] of the sockets that listen on a port, as `ss -ltn` shows them."""
    shown = run(["ss", "-Hltn", f"sport = :{port}"], netns=netns).stdout
    return sorted((int(fields[1]), int(fields[2])) for fields in map(str.split, shown.splitlines()) if len(fields) > 3)


def states(pid, netns=None):
    """{state: sockets} of a process's connections."""
    shown = run(["ss", "-Htanp"], netns=netns).stdout.splitlines()
    return collections.Counter(SHOWN_STATES[line.split()[0]] for line in shown
                               if f"pid={pid}," in line and line.split()[0] in SHOWN_STATES)


def smoothed_rtt_ms(port, side, netns=None):
    """`rtt` of the one connection to a port, of its end on this side, as `ss -ti` shows it."""
    shown = run(["ss", "-Htin", f"{'sport' if side == 'server' else 'dport'} = :{port}"], netns=netns).stdout
    return float(re.findall(r" rtt:([0-9.]+)/", shown)[0])
