#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Rules about files that no compiler checks. Prints each violation as file:line: [rule] what; fix: how.

  licence   the first lines of each source file name its licence: bpf/ GPL-2.0-only OR BSD-2-Clause, the rest Apache-2.0
  lock      npm lock files name versions and hashes, not the host that they once came from
  path      nothing names the folder that the tree happens to be checked out in
  packages  deploy/packages/*.txt: one Debian package a line, each once, blocks sorted
  mode      scripts that people start (./run, *.sh) are executable
"""

import os
import pathlib
import re
import shutil
import subprocess
import sys

SOURCE_SUFFIXES = {".c", ".h", ".cpp", ".hpp", ".py", ".sh", ".js", ".mjs", ".ts", ".go", ".cmake"}
LICENCES = {True: "GPL-2.0-only OR BSD-2-Clause", False: "Apache-2.0"}  # under bpf/?
BUILT = {".git", "build", "node_modules", "__pycache__"}
PACKAGE = re.compile(r"[a-z0-9][a-z0-9+.-]+")


def files_of(root):
    """Tracked and new files; all but built ones where git or its folder is missing."""
    names = []
    if shutil.which("git"):
        listed = subprocess.run(["git", "-C", root, "ls-files", "-co", "--exclude-standard", "-z"],
                                capture_output=True, text=True, check=False)
        names = [name for name in listed.stdout.split("\0") if name]
    if not names:
        paths = (path.relative_to(root) for path in pathlib.Path(root).rglob("*"))
        names = [path.as_posix() for path in paths if not BUILT.intersection(path.parts)]
    return sorted(name for name in names if (pathlib.Path(root) / name).is_file())


def is_source(name, text):
    path = pathlib.PurePosixPath(name)
    return path.suffix in SOURCE_SUFFIXES or path.name == "CMakeLists.txt" or (not path.suffix and text.startswith("#!"))


def check_licence(name, text):
    wanted = LICENCES[name.startswith("bpf/")]
    head = "\n".join(text.splitlines()[:3])
    match = re.search(r"SPDX-License-Identifier:\s*([^*\n]+?)\s*(?:\*/)?$", head, flags=re.M)
    if match is None:
        yield 1, "licence", "no SPDX-License-Identifier in the first three lines", f"add the line, with {wanted}"
    elif match.group(1) != wanted:
        yield 1, "licence", f"licence is {match.group(1)}", f"this folder is {wanted}"


def check_lock(text):
    for number, line in enumerate(text.splitlines(), 1):
        if re.search(r'"resolved":\s*"https?://', line):
            yield (number, "lock", "names the registry that a package came from",
                   "npm install --package-lock-only --omit-lockfile-registry-resolved")
            return


def check_packages(text):
    seen, previous = set(), ""
    for number, line in enumerate(text.splitlines(), 1):
        name = line.split("#", 1)[0].strip()
        if not name:
            previous = ""  # a comment or an empty line starts a new block
            continue
        if not PACKAGE.fullmatch(name):
            yield number, "packages", f"{name!r} is no package name", "one name a line"
        elif name in seen:
            yield number, "packages", f"{name} is there twice", "leave one"
        elif name < previous:
            yield number, "packages", f"{name} after {previous}", "sort the block"
        seen.add(name)
        previous = name


def check(root):
    root = os.path.realpath(root)
    for name in files_of(root):
        path = pathlib.Path(root) / name
        try:
            text = path.read_text()
        except UnicodeDecodeError:
            continue
        found = []
        if is_source(name, text):
            found += check_licence(name, text)
        if path.name == "package-lock.json":
            found += check_lock(text)
        if name.startswith("deploy/packages/") and path.suffix == ".txt":
            found += check_packages(text)
        if (name == "run" or name == ".ci/run" or path.suffix == ".sh") and text.startswith("#!") and not os.access(path, os.X_OK):
            found.append((1, "mode", "not executable", f"chmod +x {name}"))
        for number, line in enumerate(text.splitlines(), 1):
            if root + "/" in line:
                found.append((number, "path", f"names {root}", "use a path relative to the tree"))
        for number, rule, what, fix in found:
            yield name, number, rule, what, fix


def main(arguments):
    root = arguments[0] if arguments else pathlib.Path(__file__).resolve().parents[2]
    count = 0
    for name, number, rule, what, fix in check(root):
        print(f"{name}:{number}: [{rule}] {what}; fix: {fix}")
        count += 1
    print(f"{count} violations")
    return 1 if count else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
