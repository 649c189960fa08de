#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Adds up the JUnit files of a folder that ctest wrote, one per suite, and ends with "N passed, N failed[, N skipped]".

Shows the output of each failed test and the reason of each skipped one. A test that could not be started (ctest calls
it "notrun" without a skip message) is a failure; so is each line of the file `broken` (a suite that gave no result).
"""

import pathlib
import sys
import xml.etree.ElementTree

SHOWN_LINES = 80


def verdict(case):
    """passed, failed or skipped."""
    if case.get("status") == "run":
        return "passed"
    skipped = case.find("skipped")
    if skipped is not None and skipped.get("message", "").startswith("SKIP_"):
        return "skipped"
    if case.get("status") == "disabled":
        return "skipped"
    return "failed"


def output(case):
    text = case.findtext("system-out") or ""
    return [line for line in text.splitlines() if line.strip()]


def skip_reason(case):
    """The line after GoogleTest's "file:line: Skipped", or the last line that a script printed."""
    lines = output(case)
    for index, line in enumerate(lines):
        if line.endswith(": Skipped") and index + 1 < len(lines):
            return lines[index + 1].strip()
    return lines[-1].strip() if lines else "no reason given"


def main(folder):
    totals = {"passed": 0, "failed": 0, "skipped": 0}
    for path in sorted(pathlib.Path(folder).glob("*.xml")):
        counts = {"passed": 0, "failed": 0, "skipped": 0}
        for case in xml.etree.ElementTree.parse(path).getroot().iter("testcase"):
            result = verdict(case)
            counts[result] += 1
            if result == "failed":
                message = case.find("skipped")
                why = f" ({message.get('message')})" if message is not None else ""
                print(f"FAILED {path.stem}: {case.get('name')}{why}")
                for line in output(case)[-SHOWN_LINES:]:
                    print(f"    {line}")
            elif result == "skipped":
                print(f"skipped {path.stem}: {case.get('name')}: {skip_reason(case)}")
        print(f"{path.stem}: {counts['passed']} passed, {counts['failed']} failed, {counts['skipped']} skipped")
        for result, count in counts.items():
            totals[result] += count
    broken = pathlib.Path(folder) / "broken"
    if broken.exists():
        for line in broken.read_text().splitlines():
            print(f"FAILED {line}")
            totals["failed"] += 1
    line = f"{totals['passed']} passed, {totals['failed']} failed"
    if totals["skipped"]:
        line += f", {totals['skipped']} skipped"
    print(line)
    return 1 if totals["failed"] or not totals["passed"] else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
