#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Each rule finds what is planted, and says nothing about a clean tree."""

import os
import pathlib
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).parent))
import repository_rules  # noqa: E402

APACHE = "SPDX-License-Identifier: Apache-2.0\n"
KERNEL = "SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause\n"


def rules_broken(files, mode=0o755):
    with tempfile.TemporaryDirectory() as root:
        root = os.path.realpath(root)
        for name, text in files.items():
            path = pathlib.Path(root) / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text.replace("@ROOT@", root))
            path.chmod(mode)
        return [(name, number, rule) for name, number, rule, _, _ in repository_rules.check(root)]


class RepositoryRules(unittest.TestCase):
    def test_a_clean_tree_has_no_violation(self):
        self.assertEqual(rules_broken({
            "agent/base/x.h": "// " + APACHE, "bpf/lib/x.h": "/* " + KERNEL.strip() + " */\n",
            "tool.sh": "#!/bin/sh\n# " + APACHE, "a/CMakeLists.txt": "# " + APACHE,
            "deploy/packages/a.txt": "# why\ng++\ngit # reason\n# and\nbc\n",
            "x/package-lock.json": '{"resolved": "file:local"}\n', "README.md": "no licence line needed\n"}), [])

    def test_a_missing_or_wrong_licence_is_found(self):
        self.assertEqual(rules_broken({"agent/x.cpp": "int x;\n"}), [("agent/x.cpp", 1, "licence")])
        self.assertEqual(rules_broken({"bpf/x.h": "// " + APACHE}), [("bpf/x.h", 1, "licence")])
        self.assertEqual(rules_broken({"tool": "#!/bin/sh\necho\n"}), [("tool", 1, "licence")])

    def test_a_registry_host_in_a_lock_file_is_found(self):
        lock = '{\n"a": {"resolved": "' + "https:" + '//registry.example/a.tgz"}\n}\n'
        self.assertEqual(rules_broken({"x/package-lock.json": lock}), [("x/package-lock.json", 2, "lock")])

    def test_the_checkout_folder_is_found(self):
        self.assertEqual(rules_broken({"notes.md": "see\n@ROOT@/agent\n"}), [("notes.md", 2, "path")])

    def test_package_lists_are_sorted_names(self):
        self.assertEqual(rules_broken({"deploy/packages/a.txt": "git\ncmake\n"}), [("deploy/packages/a.txt", 2, "packages")])
        self.assertEqual(rules_broken({"deploy/packages/a.txt": "git cmake\n"}), [("deploy/packages/a.txt", 1, "packages")])

        self.assertEqual(rules_broken({"deploy/packages/a.txt": "git\n\ngit\n"}), [("deploy/packages/a.txt", 3, "packages")])

    def test_a_script_that_cannot_be_started_is_found(self):
        self.assertEqual(rules_broken({"tool.sh": "#!/bin/sh\n# " + APACHE}, 0o644), [("tool.sh", 1, "mode")])


if __name__ == "__main__":
    unittest.main()
