# SPDX-License-Identifier: Apache-2.0
"""What the agent says: its metrics as sums over labels, and its records."""

import re

_SAMPLE = re.compile(r'^([a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{(.*)\})? (\S+)')
_LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')


class Metrics:
    """One scrape. Families by their names without the prefix: `total("tcp_connects_total", result="ok")`."""

    def __init__(self, text):
        self.samples = {}
        for line in text.splitlines():
            if line.startswith("#") or not (found := _SAMPLE.match(line)):
                continue
            name = found.group(1).removeprefix("inferwire_")
            labels = dict(_LABEL.findall(found.group(2) or ""))
            self.samples.setdefault(name, []).append((labels, float(found.group(3))))

    def select(self, name, **labels):
        """The samples whose labels are as given; a set means one of these."""
        def fits(have):
            return all(have.get(key) in wanted if isinstance(wanted, (set, frozenset)) else have.get(key) == wanted
                       for key, wanted in labels.items())
        return [(have, value) for have, value in self.samples.get(name, []) if fits(have)]

    def total(self, name, **labels):
        return sum(value for _, value in self.select(name, **labels))

    def by(self, label, name, **labels):
        """{label's value: sum}, without zeros."""
        sums = {}
        for have, value in self.select(name, **labels):
            sums[have[label]] = sums.get(have[label], 0) + value
        return {key: value for key, value in sums.items() if value}


class Change:
    """What was added between two scrapes."""

    def __init__(self, before, after):
        self.before, self.after = before, after

    def total(self, name, **labels):
        return self.after.total(name, **labels) - self.before.total(name, **labels)

    def by(self, label, name, **labels):
        before, after = self.before.by(label, name, **labels), self.after.by(label, name, **labels)
        return {key: value - before.get(key, 0) for key, value in after.items() if value != before.get(key, 0)}

    def buckets(self, name, **labels):
        """[(upper edge, samples in this bucket alone)] of a histogram."""
        cumulative = {}
        for key, value in self.by("le", name + "_bucket", **labels).items():
            cumulative[float(key)] = value
        result, below = [], 0
        for edge in sorted({float(labels["le"]) for labels, _ in self.after.select(name + "_bucket", **labels)}):
            here = cumulative.get(edge, below if edge not in cumulative else 0)
            here = max(here, below)
            result.append((edge, here - below))
            below = here
        return result
