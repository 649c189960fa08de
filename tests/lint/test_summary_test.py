#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""The last line of ./run test is right for passed, failed, skipped and unstartable tests (shapes as ctest writes them)."""

import contextlib
import io
import pathlib
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "support"))
import test_summary  # noqa: E402

PASSED = '<testcase name="a" status="run"><system-out>fine</system-out></testcase>'
FAILED = '<testcase name="b" status="fail"><failure message=""/><system-out>expected 1, got 2</system-out></testcase>'
SKIPPED = ('<testcase name="c" status="notrun"><skipped message="SKIP_REGULAR_EXPRESSION_MATCHED"/>'
           "<system-out>x_test.cpp:7: Skipped\nneeds root\n[  SKIPPED ] c (0 ms)</system-out></testcase>")
SCRIPT_SKIPPED = ('<testcase name="d" status="notrun"><skipped message="SKIP_RETURN_CODE=77"/>'
                  "<system-out>no nginx</system-out></testcase>")
UNSTARTABLE = '<testcase name="e" status="notrun"><skipped message="Unable to find executable"/></testcase>'


def summary(suites, broken=""):
    with tempfile.TemporaryDirectory() as folder:
        for name, cases in suites.items():
            (pathlib.Path(folder) / f"{name}.xml").write_text(f"<testsuite>{''.join(cases)}</testsuite>")
        if broken:
            (pathlib.Path(folder) / "broken").write_text(broken)
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            status = test_summary.main(folder)
        return status, printed.getvalue()


class Summary(unittest.TestCase):
    def last_line(self, suites, broken=""):
        status, printed = summary(suites, broken)
        return status, printed.splitlines()[-1]

    def test_all_suites_are_added_up(self):
        self.assertEqual(self.last_line({"unit": [PASSED, PASSED], "e2e": [PASSED]}), (0, "3 passed, 0 failed"))

    def test_a_failure_is_shown_and_fails_the_run(self):
        status, printed = summary({"unit": [PASSED, FAILED]})
        self.assertEqual((status, printed.splitlines()[-1]), (1, "1 passed, 1 failed"))
        self.assertIn("FAILED unit: b", printed)
        self.assertIn("expected 1, got 2", printed)

    def test_skips_are_counted_with_their_reason(self):
        status, printed = summary({"kernel": [PASSED, SKIPPED, SCRIPT_SKIPPED]})
        self.assertEqual((status, printed.splitlines()[-1]), (0, "1 passed, 0 failed, 2 skipped"))
        self.assertIn("skipped kernel: c: needs root", printed)
        self.assertIn("skipped kernel: d: no nginx", printed)

    def test_a_test_that_could_not_start_is_a_failure(self):
        self.assertEqual(self.last_line({"unit": [PASSED, UNSTARTABLE]}), (1, "1 passed, 1 failed"))

    def test_a_suite_without_result_is_a_failure(self):
        self.assertEqual(self.last_line({"unit": [PASSED]}, "preset asan does not build\n"), (1, "1 passed, 1 failed"))

    def test_no_test_at_all_is_not_success(self):
        self.assertEqual(self.last_line({}), (1, "0 passed, 0 failed"))


if __name__ == "__main__":
    unittest.main()
