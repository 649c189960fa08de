# SPDX-License-Identifier: Apache-2.0
"""How a test program of the rigs ends: exit 0 passed, 1 failed, 77 skipped as a whole (it prints why)."""

import os
import sys
import unittest

SKIPPED = 77


def require_root():
    """Skips the calling test or class where network namespaces cannot be made."""
    if os.geteuid() != 0:
        raise unittest.SkipTest("needs root: makes network namespaces")
    if not os.path.exists("/dev/net/tun"):
        raise unittest.SkipTest("needs /dev/net/tun")


def main():
    """Runs the tests of the calling program and exits."""
    program = unittest.main(module="__main__", verbosity=2, exit=False)
    result = program.result
    if not result.wasSuccessful():
        sys.exit(1)
    if result.skipped and result.testsRun <= len(result.skipped):
        print("skipped: " + "; ".join(sorted({reason for _, reason in result.skipped})))
        sys.exit(SKIPPED)
    sys.exit(0)
