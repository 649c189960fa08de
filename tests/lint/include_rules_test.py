#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Plants one violation at a time in a small clean tree and expects the file, the line, the rule and a fix."""

import contextlib
import io
import pathlib
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).parent))
import include_rules  # noqa: E402

CLEAN = {
    "bpf/include/inferwire/event_abi.h": "#include <stdint.h>\n",
    "bpf/lib/state.h": '#include "inferwire/event_abi.h"\n',
    "bpf/lib/scan.h": '#include "state.h"\n',
    "bpf/packet.bpf.c": '#include <bpf/bpf_helpers.h>\n#include "scan.h"\n',
    "agent/base/result.h": "#include <tl/expected.hpp>\n#include <string>\n",
    "agent/base/handle.h": "#include <unistd.h>\n",
    "agent/decode/event.h": '#include "agent/base/result.h"\n#include "inferwire/event_abi.h"\n#include <chrono>\n',
    "agent/model/request.h": '#include "agent/decode/event.h"\n',
    "agent/model/request.cpp": '#include "agent/model/request.h"\n// steady_clock::now() is not for us\n',
    "agent/capture/loader.cpp": '#include "packet.skel.h"\n#include <bpf/libbpf.h>\n#include "agent/base/handle.h"\n',
    "agent/metrics/family.h": '#include "agent/base/result.h"\n#include <vector>\n',
    "agent/daemon/main.cpp": '#include "agent/model/request.h"\n#include "exporters/jsonl/writer.h"\n#include <thread>\n',
    "exporters/jsonl/writer.h": '#include "agent/metrics/family.h"\n#include <nlohmann/json.hpp>\n',
    "exporters/prometheus/server.cpp": '#include "agent/metrics/family.h"\n#include <microhttpd.h>\n',
    "tests/unit/model/request_test.cpp": '#include "agent/model/request.h"\n#include <gtest/gtest.h>\n',
    "tests/support/wire/wire.h": "#include <sys/epoll.h>\n",
}


def violations_of(files):
    with tempfile.TemporaryDirectory() as root:
        for name, text in files.items():
            path = pathlib.Path(root) / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        return include_rules.Tree(root).check()


class IncludeRules(unittest.TestCase):
    def planted(self, path, line, rule):
        """CLEAN with `line` added to `path` has this one violation, at that line."""
        text = CLEAN.get(path, "")
        number = text.count("\n") + 1
        found = violations_of({**CLEAN, path: text + line + "\n"})
        self.assertEqual([(v[0], v[1], v[2]) for v in found], [(path, number, rule)], found)
        self.assertTrue(found[0][4], "a violation says how to mend it")

    def test_a_clean_tree_has_no_violation(self):
        self.assertEqual(violations_of(CLEAN), [])

    def test_dependencies_go_one_way(self):
        self.planted("agent/base/result.h", '#include "agent/metrics/family.h"', "project")
        self.planted("agent/metrics/family.h", '#include "agent/decode/event.h"', "project")
        self.planted("agent/decode/event.h", '#include "agent/model/request.h"', "project")
        self.planted("agent/capture/loader.cpp", '#include "agent/model/request.h"', "project")
        self.planted("agent/model/request.h", '#include "bpf/lib/state.h"', "project")

    def test_exporters_see_base_and_metrics_and_not_each_other(self):
        self.planted("exporters/jsonl/writer.h", '#include "agent/model/request.h"', "project")
        self.planted("exporters/prometheus/server.cpp", '#include "exporters/jsonl/writer.h"', "project")

    def test_rigs_share_no_code_with_the_agent(self):
        self.planted("tests/support/wire/wire.h", '#include "agent/base/result.h"', "project")

    def test_angle_brackets_do_not_hide_a_project_file(self):
        self.planted("agent/base/result.h", "#include <agent/metrics/family.h>", "project")

    def test_libbpf_is_for_capture_only(self):
        self.planted("agent/daemon/main.cpp", "#include <bpf/bpf.h>", "library")
        self.planted("agent/daemon/main.cpp", '#include "packet.skel.h"', "project")
        self.planted("exporters/jsonl/writer.h", "  #  include <bpf/libbpf.h>", "library")

    def test_each_library_has_its_folders(self):
        self.planted("exporters/jsonl/writer.h", "#include <microhttpd.h>", "library")
        self.planted("agent/base/result.h", "#include <nlohmann/json.hpp>", "library")
        self.planted("agent/capture/loader.cpp", "#include <yaml-cpp/yaml.h>", "library")
        self.planted("agent/capture/loader.cpp", "#include <thread>", "library")

    def test_an_unknown_library_is_for_nobody(self):
        self.planted("agent/daemon/main.cpp", "#include <curl/curl.h>", "library")

    def test_pure_folders_reach_no_operating_system(self):
        for header in ("thread", "mutex", "unistd.h", "sys/socket.h", "fstream", "filesystem", "ctime", "linux/if.h"):
            self.planted("agent/model/request.cpp", f"#include <{header}>", "pure")
        self.planted("agent/metrics/family.h", "#include <atomic>", "pure")

    def test_pure_folders_reach_none_through_another_header(self):
        self.planted("agent/decode/event.h", '#include "agent/base/handle.h"', "pure")

    def test_pure_folders_ask_no_clock(self):
        self.planted("agent/model/request.cpp", "auto t = std::chrono::steady_clock::now();", "clock")
        self.planted("agent/decode/event.h", "const char* home = getenv(\"HOME\");", "clock")

    def test_a_quoted_path_starts_at_the_root(self):
        self.planted("agent/base/result.h", '#include "handle.h"', "path")
        self.planted("agent/base/result.h", '#include "agent/base/missing.h"', "path")

    def test_commented_includes_do_not_count(self):
        files = {**CLEAN, "agent/base/x.h": "/*\n#include <curl/curl.h>\n*/\n// #include <curl/curl.h>\n"}
        self.assertEqual(violations_of(files), [])

    def test_the_command_prints_file_line_rule_and_fix_and_fails(self):
        with tempfile.TemporaryDirectory() as root:
            folder = pathlib.Path(root) / "agent/model"
            folder.mkdir(parents=True)
            (folder / "x.cpp").write_text("#include <string>\n#include <thread>\n")
            printed = io.StringIO()
            with contextlib.redirect_stdout(printed):
                status = include_rules.main([root])
            self.assertEqual(status, 1)
            self.assertRegex(printed.getvalue(), r"(?m)^agent/model/x\.cpp:2: \[pure\] <thread> .*; fix: .+$")

    def test_an_empty_tree_is_an_error(self):
        with tempfile.TemporaryDirectory() as root, contextlib.redirect_stdout(io.StringIO()):
            self.assertEqual(include_rules.main([root]), 1)


if __name__ == "__main__":
    unittest.main()
