# SPDX-License-Identifier: Apache-2.0
"""Two namespaces joined by a veth pair: a path without faults, as fast as the machine."""

from .netns import Netns

A_ADDRESS, B_ADDRESS = "10.78.0.1", "10.78.0.2"
A_ADDRESS6, B_ADDRESS6 = "fd78::1", "fd78::2"


class Veth:
    """Two fresh namespaces `a` and `b`. Each sends what it knows no other way for to the other one."""

    def __init__(self):
        self.a, self.b = Netns("a"), Netns("b")
        self.a.run(["ip", "link", "add", "veth0", "type", "veth", "peer", "name", "veth0", "netns", self.b.name])
        for end, own, peer, own6, peer6 in ((self.a, A_ADDRESS, B_ADDRESS, A_ADDRESS6, B_ADDRESS6),
                                            (self.b, B_ADDRESS, A_ADDRESS, B_ADDRESS6, A_ADDRESS6)):
            for kind in ("all", "veth0"):
                end.sysctl(f"net.ipv4.conf.{kind}.rp_filter", 0)
            end.run(["ip", "address", "add", f"{own}/24", "dev", "veth0"])
            end.run(["ip", "address", "add", f"{own6}/64", "dev", "veth0", "nodad"])
            end.run(["ip", "link", "set", "veth0", "up"])
            end.run(["ip", "route", "add", "default", "via", peer])
            end.run(["ip", "-6", "route", "add", "default", "via", peer6])

    def close(self):
        self.a.remove()
        self.b.remove()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()
