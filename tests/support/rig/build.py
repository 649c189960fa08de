# SPDX-License-Identifier: Apache-2.0
"""Where the compiled rigs and the agent are: $INFERWIRE_BINARY_DIR (a build folder), or the first preset that has them."""

import os
import pathlib

from .process import RigError

ROOT = pathlib.Path(__file__).resolve().parents[3]
SUPPORT = ROOT / "tests" / "support"


def build_folders():
    if "INFERWIRE_BINARY_DIR" in os.environ:
        return [pathlib.Path(os.environ["INFERWIRE_BINARY_DIR"])]
    return [ROOT / "build" / preset for preset in ("dev", "release", "asan")]


def binary(name):
    """A compiled rig: inferwire-wire, inferwire-scripted-server, inferwire-client."""
    for folder in build_folders():
        if (folder / "rigs" / name).exists():
            return str(folder / "rigs" / name)
    raise RigError(f"{name} is not built: run ./run test, or set INFERWIRE_BINARY_DIR to a build folder that has it")


def agent_binary():
    """The inferwire program of the same build folder, or None."""
    for folder in build_folders():
        if (folder / "inferwire").exists():
            return str(folder / "inferwire")
    return None
