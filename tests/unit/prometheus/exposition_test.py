# SPDX-License-Identifier: Apache-2.0
"""Reads /metrics of a real server as Prometheus would: promtool, the Python client's parser, and the grammar itself.

exposition_test.py PATH-OF-prometheus_exposition_server
"""
import http.client
import re
import shutil
import subprocess
import sys

LABEL = r'[a-zA-Z_][a-zA-Z0-9_]*="(?:[^"\\\n]|\\["\\n])*"'
SAMPLE = re.compile(
    r'([a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{(%s(?:,%s)*)\})? ([+-]?(?:Inf|[0-9.]+(?:e[+-]?[0-9]+)?)|NaN)' % (LABEL, LABEL))
SUFFIXES = {"counter": {""}, "gauge": {""}, "histogram": {"_bucket", "_sum", "_count"}}

failures = []


def expect(condition, message):
    if not condition:
        failures.append(message)


def check_grammar(text):
    """Format 0.0.4, strictly: HELP, TYPE, then all samples of the family, and no sample twice."""
    expect(text.endswith("\n"), "the last line has no end")
    family = kind = None
    families, samples = set(), set()
    for line in text[:-1].split("\n"):
        if line.startswith("# HELP "):
            family, kind = line.split(" ")[2], None
            expect(family not in families, f"{family} comes twice")
            families.add(family)
        elif line.startswith("# TYPE "):
            _, _, name, kind = line.split(" ")
            expect(name == family, f"TYPE of {name} under HELP of {family}")
        else:
            match = SAMPLE.fullmatch(line)
            expect(match, f"not a sample: {line!r}")
            if match is None:
                continue
            name = match[1]
            expect(kind and name.startswith(family) and name[len(family):] in SUFFIXES[kind],
                   f"{name} stands under {family}")
            expect((name, match[2]) not in samples, f"twice: {line}")
            samples.add((name, match[2]))
    return families, len(samples)


def check_histograms(parsed):
    for family in parsed:
        if family.type != "histogram":
            continue
        by_series = {}
        for sample in family.samples:
            labels = tuple(sorted((k, v) for k, v in sample.labels.items() if k != "le"))
            by_series.setdefault(labels, []).append(sample)
        for labels, rows in by_series.items():
            buckets = [(float(r.labels["le"]), r.value) for r in rows if r.name.endswith("_bucket")]
            count = [r.value for r in rows if r.name.endswith("_count")]
            expect(buckets == sorted(buckets), f"{family.name}: edges or counts fall: {buckets}")
            expect([v for _, v in buckets] == sorted(v for _, v in buckets), f"{family.name}: counts fall: {buckets}")
            expect(buckets[-1][0] == float("inf"), f"{family.name}: no +Inf bucket")
            expect(count == [buckets[-1][1]], f"{family.name}: count {count} and +Inf {buckets[-1]} differ")
            expect(all("e" not in r.labels["le"] for r in rows if "le" in r.labels), f"{family.name}: le in 1e9 form")


def check_values(parsed):
    chunks = next(f for f in parsed if f.name == "inferwire_output_chunks")
    models = {s.labels["model"]: s.value for s in chunks.samples}
    for model, value in {
            "ordinary": 1,
            'quote" backslash\\ brace} comma, equals=': 2,
            "line\ufffdfeed\ufffd\ufffdtab": 3,
            "nul\ufffdbyte": 4,
            "größe 模型 🦙": 6,
            "x" * 128: 7,
            "# HELP fake Fake.": 8,
            "": 9,
    }.items():
        expect(models.get(model) == value, f"model {model!r}: {models.get(model)} instead of {value}")
    expect(sum(models.values()) == sum(range(1, 10)), "something was lost")


def main():
    if shutil.which("promtool") is None:
        print("skipped: promtool is missing (Debian package prometheus)")
        return 77
    try:
        from prometheus_client.parser import text_string_to_metric_families
    except ImportError:
        print("skipped: python3-prometheus-client is missing")
        return 77

    server = subprocess.Popen([sys.argv[1]], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        host, port = server.stdout.readline().strip().rsplit(":", 1)
        connection = http.client.HTTPConnection(host, int(port), timeout=20)
        connection.request("GET", "/metrics")
        response = connection.getresponse()
        raw = response.read()
        expect(response.status == 200, f"status {response.status}")
        expect(response.getheader("Content-Type") == "text/plain; version=0.0.4; charset=utf-8", "wrong content type")
    finally:
        server.stdin.close()
        server.wait(20)

    text = raw.decode("utf-8", "strict")
    families, samples = check_grammar(text)
    parsed = list(text_string_to_metric_families(text))
    check_histograms(parsed)
    check_values(parsed)

    lint = subprocess.run(["promtool", "check", "metrics"], input=raw, capture_output=True)
    expect(lint.returncode == 0, f"promtool: {(lint.stdout + lint.stderr).decode()}")
    broken = subprocess.run(["promtool", "check", "metrics"], input=b'x{a="\xff"} 1\n', capture_output=True)
    expect(broken.returncode != 0, "promtool accepts anything: this test shows nothing")

    for failure in failures:
        print(failure)
    print(f"{len(families)} families, {samples} samples, {len(raw)} bytes, {len(failures)} failures")
    return 1 if failures else 0


sys.exit(main())
