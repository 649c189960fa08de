# SPDX-License-Identifier: Apache-2.0
"""On what it was measured, and what processes have used of it."""

import os
import pathlib
import platform
import subprocess
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]


def _first(path, key):
    with open(path, encoding="utf-8") as lines:
        for line in lines:
            if line.startswith(key):
                return line.split(":", 1)[1].strip()
    return ""


def facts():
    """What a reader needs to judge the figures, without the machine's name."""
    git = ["git", "-C", str(ROOT)]
    revision = subprocess.run([*git, "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False)
    changed = subprocess.run([*git, "status", "--porcelain", "-uno"], capture_output=True, text=True, check=False)
    return {
        "date": time.strftime("%Y-%m-%d", time.gmtime()),
        "revision": revision.stdout.strip() + (" with changes" if changed.stdout.strip() else ""),
        "kernel": platform.release(),
        "architecture": platform.machine(),
        "cpu": _first("/proc/cpuinfo", "model name"),
        "cpus": os.cpu_count(),
        "virtual": "hypervisor" in _first("/proc/cpuinfo", "flags").split(),
        "memory_bytes": int(_first("/proc/meminfo", "MemTotal").split()[0]) * 1024,
        "load_before": round(os.getloadavg()[0], 2),
    }


def run_ns(pid):
    """CPU time of a process, all its threads, in nanoseconds (the scheduler's own account, not ticks)."""
    total = 0
    for task in pathlib.Path(f"/proc/{pid}/task").iterdir():
        try:
            total += int((task / "schedstat").read_text().split()[0])
        except OSError:
            continue  # the thread has ended meanwhile
    return total


def soft_interrupt_threads():
    """The kernel's threads that take over when there is too much to do in soft interrupts."""
    found = []
    for folder in pathlib.Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                if (folder / "comm").read_text().startswith("ksoftirqd/"):
                    found.append(int(folder.name))
            except OSError:
                continue
    return found


def resident_bytes(pid):
    """Resident memory without the kernel's maps, which a process maps to read them (the ring buffer even twice): they are
    counted as maps."""
    total, counts = 0, True
    with open(f"/proc/{pid}/smaps", encoding="utf-8") as lines:
        for line in lines:
            word = line.split(None, 1)[0]
            if not word.endswith(":"):
                counts = "bpf-map" not in line and "bpf_ringbuf" not in line
            elif word == "Rss:" and counts:
                total += int(line.split()[1]) * 1024
    return total


def storage_element_bytes(value_bytes):
    """What the kernel allocates for one element of socket storage: 64 bytes of its own, a pointer, the value, rounded up to
    a size class of kmalloc."""
    wanted = 64 + 8 + value_bytes
    for size in (64, 96, 128, 192, 256, 512, 1024, 2048, 4096, 8192):
        if wanted <= size:
            return size
    return wanted


SK_STORAGE = 24  # BPF_MAP_TYPE_SK_STORAGE


def maps_of(pid):
    """The kernel maps that a process holds: id -> {type, value_size, memlock_bytes}. Elements of socket storage are not in
    memlock_bytes."""
    found = {}
    for entry in pathlib.Path(f"/proc/{pid}/fdinfo").iterdir():
        try:
            fields = dict(line.split(":", 1) for line in entry.read_text().splitlines() if ":" in line)
        except OSError:
            continue
        if "map_id" in fields:
            found[int(fields["map_id"])] = {"type": int(fields["map_type"]), "value_size": int(fields["value_size"]),
                                            "memlock_bytes": int(fields["memlock"])}
    return found
