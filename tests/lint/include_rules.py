#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Reads every #include of the tree against the table of who may include whom (docs/architecture.md, "the flow").

    include_rules.py [ROOT]     prints each violation as file:line: [rule] what; fix: how. Exit status 1 if there is any.

Rules:
  project   a folder includes only the folders that its row names (dependencies go one way)
  path      "quoted" includes start at the repository root (or bpf/include), and the file exists
  library   a third-party or system header is used only in the folders that its row names; an unknown one nowhere
  pure      pure folders reach no operating system header, clock or thread, not even through another header
  clock     pure folders call no clock, environment or random source: time is an argument
"""

import pathlib
import re
import sys

# --- The table. A row holds for its folder and everything below it; the longest matching row wins. -------------------

# folder: what of the project it may include, besides itself. "inferwire" is bpf/include/inferwire, the shared ABI.
PROJECT = {
    "bpf/include": [],
    "bpf/lib": ["inferwire"],
    "bpf": ["inferwire", "bpf/lib"],
    "agent/base": [],
    "agent/metrics": ["agent/base", "inferwire"],
    "agent/decode": ["agent/base", "inferwire", "bpf/lib"],
    "agent/model": ["agent/base", "agent/decode", "agent/metrics", "inferwire"],
    "agent/host": ["agent/base"],
    "agent/join": ["agent/base", "agent/decode", "agent/metrics", "agent/model", "agent/host/readings.h"],
    "agent/capture": ["agent/base", "agent/decode", "inferwire", "bpf/lib", "skeleton"],
    "agent/daemon": ["agent", "exporters", "inferwire"],
    "agent/cli": ["agent", "exporters", "inferwire"],
    "exporters": ["agent/base", "agent/metrics"],
    # The rigs judge the agent's results, so they share no code with it.
    "tests/support": [],
    "tests": ["agent", "exporters", "inferwire", "bpf/lib", "skeleton", "tests"],
}

# Logic without an operating system: no system call, clock, thread. Tests give them everything as arguments.
PURE = ["agent/decode", "agent/model", "agent/join", "agent/metrics", "bpf/lib", "bpf/include"]

# library: (header patterns, folders that may include it).
LIBRARIES = {
    "libbpf": (r"bpf/.*", ["agent/capture", "bpf", "tests/kernel", "tests/bench"]),
    "kernel types": (r"vmlinux\.h", ["bpf"]),
    "libelf": (r"(libelf|gelf|elf)\.h", ["agent/capture"]),
    "libmicrohttpd": (r"microhttpd\.h", ["exporters/prometheus"]),
    "nlohmann-json": (r"nlohmann/.*", ["agent/host", "agent/daemon", "agent/cli", "exporters", "tests"]),
    "libcurl": (r"curl/.*", ["agent/host"]),
    "yaml-cpp": (r"yaml-cpp/.*", ["agent/daemon", "tests/unit/daemon"]),
    "CLI11": (r"CLI/.*", ["agent/cli", "agent/daemon", "tests"]),
    "spdlog": (r"spdlog/.*", ["agent/base", "tests/unit/base"]),
    "tl::expected": (r"tl/expected\.hpp", ["agent/base"]),
    "libcap": (r"sys/capability\.h", ["agent/capture", "agent/daemon", "agent/cli", "tests"]),
    "cpp-httplib": (r"httplib\.h", ["tests/support"]),
    "GoogleTest": (r"(gtest|gmock)/.*", ["tests"]),
    "threads": (r"thread|future|pthread\.h|stop_token|semaphore|latch|barrier",
                ["agent/daemon", "agent/cli", "exporters", "tests"]),  # agent/cli: to sleep between two screens
    "locks": (r"mutex|shared_mutex|condition_variable|atomic",
              ["agent/base", "agent/capture", "agent/daemon", "agent/host", "agent/cli", "exporters", "tests"]),
    "files and streams": (r"fstream|filesystem|iostream|ctime|time\.h|random|syncstream|stdio\.h",
                          ["agent/base", "agent/capture", "agent/host", "agent/daemon", "agent/cli", "exporters", "tests"]),
    "operating system": (r"(sys|net|netinet|arpa|linux|asm|rdma|infiniband)/.*|(unistd|fcntl|poll|signal|sched|spawn|dirent|"
                         r"dlfcn|errno|getopt|grp|pwd|ifaddrs|netdb|syscall|termios|ucontext|mntent|glob|ftw|libgen|"
                         r"endian|byteswap|limits|ncurses|curses)\.h",
                         ["agent/base", "agent/capture", "agent/host", "agent/daemon", "agent/cli", "exporters", "tests", "bpf"]),
    # Free of system calls: anyone may include them.
    "C language": (r"(stdint|stddef|stdbool|string|assert|inttypes|math|stdarg|ctype|stdlib|regex)\.h", [""]),
    # Byte order and printing of addresses, nothing that talks to a kernel.
    "addresses": (r"arpa/inet\.h|netinet/in\.h", [""]),
}
# Rows of LIBRARIES that make a folder impure when they are reached through any chain of includes.
IMPURE = ["threads", "locks", "files and streams", "operating system", "libbpf", "spdlog", "libcap", "libmicrohttpd"]
# bpf/ headers meet these only in the branch that the kernel compiles.
KERNEL_BRANCH = ["bpf/lib", "bpf/include"]

CLOCK = re.compile(r"\b(?:system_clock|steady_clock|high_resolution_clock|utc_clock)::now\b|\bclock_gettime\s*\(|"
                   r"\bgettimeofday\s*\(|\bstd::time\s*\(|\btime\s*\(\s*(?:nullptr|NULL|0)\s*\)|\b(?:secure_)?getenv\s*\(|"
                   r"\brandom_device\b|\bthis_thread\b|\bbpf_ktime_get")

SOURCES = ("bpf", "agent", "exporters", "tests")
SUFFIXES = {".h", ".c", ".cpp", ".hpp", ".cc"}
INCLUDE = re.compile(r'^\s*#\s*include\s*(?:"([^"]+)"|<([^>]+)>)')

# ----------------------------------------------------------------------------------------------------------------------


def row(table, path):
    """The longest folder of the table that holds path, or None."""
    best = None
    for folder in table:
        if (path == folder or path.startswith(folder + "/")) and (best is None or len(folder) > len(best)):
            best = folder
    return best


def within(path, folders):
    return any(folder == "" or path == folder or path.startswith(folder + "/") for folder in folders)


def library_of(header):
    """The name of the row of LIBRARIES; the specific rows come before "operating system". None: the C++ library."""
    for name in ["addresses"] + list(LIBRARIES):
        if re.fullmatch(LIBRARIES[name][0], header):
            return name
    return None


def is_cxx_standard(header):
    return "/" not in header and "." not in header


def without_comments_and_strings(text):
    """Same lines, with comments and string contents blanked."""
    def blank(match):
        token = match.group(0)
        return re.sub(r"[^\n]", " ", token) if token[0] == "/" else '""'
    return re.sub(r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"', blank, text, flags=re.S)


class Tree:
    def __init__(self, root):
        self.root = pathlib.Path(root)
        self.violations = []
        self.includes = {}  # path -> [(line, quoted, header)]
        for top in SOURCES:
            for file in sorted((self.root / top).rglob("*")):
                parts = file.relative_to(self.root).parts
                if file.suffix in SUFFIXES and file.is_file() and "node_modules" not in parts and "build" not in parts:
                    self.read(file)

    def read(self, file):
        path = file.relative_to(self.root).as_posix()
        text = file.read_text(errors="replace")
        found = []
        # Includes are looked for in the raw lines that are not inside a comment.
        bare = re.sub(r"/\*.*?\*/", lambda m: re.sub(r"[^\n]", " ", m.group(0)), text, flags=re.S)
        for number, line in enumerate(bare.splitlines(), 1):
            match = INCLUDE.match(line)
            if match:
                found.append((number, match.group(1) is not None, match.group(1) or match.group(2)))
        self.includes[path] = found
        if within(path, PURE) and not within(path, KERNEL_BRANCH):
            for number, line in enumerate(without_comments_and_strings(text).splitlines(), 1):
                match = CLOCK.search(line)
                if match:
                    self.report(path, number, "clock", f"{match.group(0).strip()} in a pure folder",
                                "take the time (or the value) as an argument; agent/daemon passes it")

    def report(self, path, line, rule, what, fix):
        self.violations.append((path, line, rule, what, fix))

    def resolve(self, path, header):
        """The project file that a quoted include of `path` names, "skeleton", or None."""
        if header.endswith(".skel.h"):
            return "skeleton"
        for candidate in (header, f"bpf/include/{header}"):
            if candidate in self.includes or (self.root / candidate).is_file():
                return candidate
        if path.startswith("bpf/"):  # kernel programs: beside themselves, or in bpf/lib
            for folder in (pathlib.PurePosixPath(path).parent.as_posix(), "bpf/lib"):
                if f"{folder}/{header}" in self.includes:
                    return f"{folder}/{header}"
        return None

    def check(self):
        for path in self.includes:
            for line, quoted, header in self.includes[path]:
                target = self.resolve(path, header)
                if target is not None and (quoted or target != "skeleton"):
                    self.check_project(path, line, target)
                elif quoted:
                    self.report(path, line, "path", f'"{header}" is no file of the project',
                                "write the path from the repository root, or <header> for a library")
                else:
                    self.check_library(path, line, header)
            if within(path, PURE) and not within(path, KERNEL_BRANCH):
                self.check_pure(path)
        return sorted(self.violations)

    def check_project(self, path, line, target):
        folder = row(PROJECT, path)
        if folder is None:
            self.report(path, line, "project", f"{path} is in no folder of the table", "add a row to PROJECT")
            return
        # exporters/prometheus may include itself, not exporters/jsonl; "bpf" covers its own files only by its row.
        own = "/".join(path.split("/")[:2]) if folder in ("exporters", "tests") else folder
        named = "inferwire" if target.startswith("bpf/include/inferwire/") else target
        if within(target, [own]) or within(named, PROJECT[folder]):
            return
        allowed = ", ".join(PROJECT[folder]) or "nothing but itself"
        self.report(path, line, "project", f"{folder} may not include {named} (may: {allowed})",
                    "move what is needed to a folder that both may include, or pass it as an argument")

    def check_library(self, path, line, header):
        name = library_of(header)
        if name is None:
            if not is_cxx_standard(header):
                self.report(path, line, "library", f"<{header}> belongs to no library of the table",
                            "use one that the project has, or add a row to LIBRARIES with its folders and the reason in "
                            "docs/decisions/")
            return
        folders = LIBRARIES[name][1]
        if within(path, folders):
            return
        if within(path, KERNEL_BRANCH) and name == "operating system":
            return
        rule = "pure" if within(path, PURE) and name in IMPURE else "library"
        self.report(path, line, rule, f"<{header}> ({name}) is for {', '.join(folders)} only",
                    "move this code there" if rule == "library" else "keep the logic here and the system access in a caller")

    def check_pure(self, path):
        """Impure headers that `path` reaches through headers of the project (direct ones: check_library)."""
        for line, _, header in self.includes[path]:
            first = self.resolve(path, header)
            if first in (None, "skeleton") or within(first, PURE):
                continue  # pure headers are checked themselves
            seen, queue = {first}, [(first, [first])]
            while queue:
                current, chain = queue.pop()
                for _, _, inner in self.includes.get(current, []):
                    target = self.resolve(current, inner)
                    if target is None and library_of(inner) in IMPURE:
                        self.report(path, line, "pure", f"reaches <{inner}> through {' -> '.join(chain)}",
                                    "include a header without system access, or split that header")
                        queue = []
                        break
                    if target not in (None, "skeleton") and target not in seen:
                        seen.add(target)
                        queue.append((target, chain + [target]))


def main(arguments):
    root = pathlib.Path(arguments[0]) if arguments else pathlib.Path(__file__).resolve().parents[2]
    tree = Tree(root)
    violations = tree.check()
    for path, line, rule, what, fix in violations:
        print(f"{path}:{line}: [{rule}] {what}; fix: {fix}")
    print(f"{len(tree.includes)} files, {sum(map(len, tree.includes.values()))} includes, {len(violations)} violations")
    if not tree.includes:
        print("no source file found: wrong root?")
        return 1
    return 1 if violations else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
