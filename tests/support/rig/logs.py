# SPDX-License-Identifier: Apache-2.0
"""Reading logs of JSON lines while they are being written."""

import json
import os


def read_lines(path):
    """Every whole line of the file as an object; nothing when there is no file yet."""
    if not os.path.exists(path):
        return []
    with open(path, encoding="utf-8") as file:
        return [json.loads(line) for line in file if line.endswith("\n")]
