# SPDX-License-Identifier: Apache-2.0
"""Boots Debian's kernels under QEMU with the host's user space, runs guest.py in each, and prints a table.

    vm.py --build DIR [--kernel 6.1,6.12] [--only TEST,...] [--repetitions N] [--timeout SECONDS]

Everything is kept in build/vm/<kernel>/: package, initial file system, console, output, results.json.
"""

import argparse
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
WORK = ROOT / "build" / "vm"
KERNELS = ("6.1", "6.12")
# To reach the host's files; then what the tests need of the network. As modprobe names them.
BOOT_MODULES = ("virtio_pci", "9p", "9pnet_virtio", "overlay")
TEST_MODULES = ("veth", "tun", "sch_tbf", "sch_netem", "tcp_bbr", "tcp_cubic", "nf_tables", "nft_reject_inet", "nft_compat",
                "ipt_REJECT", "ip_tables", "iptable_filter", "xt_tcpudp", "nft_numgen", "nft_reject_ipv4", "dummy")


def say(text):
    print(f"vm: {text}", flush=True)


def run(argv, **options):
    done = subprocess.run([str(word) for word in argv], capture_output=True, text=True, check=False, **options)
    if done.returncode != 0:
        sys.exit(f"vm: {argv[0]} failed:\n{done.stdout}{done.stderr}")
    return done.stdout


def newest_package(kernel):
    """The newest linux-image of a series that APT offers."""
    names = re.findall(rf"^(linux-image-{re.escape(kernel)}\.[0-9][0-9.+a-z-]*-amd64) ",
                       run(["apt-cache", "search", "--names-only", f"^linux-image-{kernel}\\."]), re.M)
    names = [name for name in names if "cloud" not in name and "rt-" not in name and "dbg" not in name]
    if not names:
        sys.exit(f"vm: APT offers no kernel {kernel}: run `apt-get update`, and look at its sources")
    return max(names, key=lambda name: [int(number) for number in re.findall(r"\d+", name)])


def fetch(kernel, folder):
    """The folder with the unpacked package, and the kernel's release."""
    package = newest_package(kernel)
    release = package.removeprefix("linux-image-")
    tree = folder / "tree"
    if not (tree / "boot" / f"vmlinuz-{release}").exists():
        say(f"{kernel}: fetching {package}")
        shutil.rmtree(tree, ignore_errors=True)
        tree.mkdir(parents=True)
        run(["apt-get", "download", package], cwd=folder)
        archive = max(folder.glob(f"{package}_*.deb"), key=lambda path: path.stat().st_mtime)
        run(["dpkg", "-x", archive, tree])
        archive.unlink()
        # APT's packages of Debian 13 and later have /usr/lib/modules only.
        if not (tree / "lib" / "modules").exists() and (tree / "usr" / "lib" / "modules").exists():
            (tree / "lib").symlink_to("usr/lib")
        run(["depmod", "-b", tree, release])
    return tree, release


def module_files(tree, release, names):
    """Files of the modules and of what they depend on, in the order in which they load; built-in ones have none."""
    files = []
    for name in names:
        shown = subprocess.run(["modprobe", "-d", tree, "-S", release, "--show-depends", name], capture_output=True, text=True,
                               check=False)
        for path in re.findall(r"^insmod (\S+)", shown.stdout, re.M):
            if path not in files:
                files.append(path)
    return [pathlib.Path(path) for path in files]


def make_initial_files(tree, release, folder):
    root = folder / "initial"
    shutil.rmtree(root, ignore_errors=True)
    for name in ("bin", "proc", "sys", "dev", "modules"):
        (root / name).mkdir(parents=True)
    shutil.copy("/bin/busybox", root / "bin" / "busybox")
    shutil.copy(HERE / "init", root / "init")
    names = []
    for path in module_files(tree, release, BOOT_MODULES + TEST_MODULES):
        target = root / "modules" / path.name.removesuffix(".xz")
        if path.suffix == ".xz":
            with open(target, "wb") as out:
                subprocess.run(["xz", "-dc", path], stdout=out, check=True)
        else:
            shutil.copy(path, target)
        names.append(target.name)
    (root / "modules" / "list").write_text("\n".join(names) + "\n", encoding="utf-8")
    image = folder / "initial.cpio"
    listed = run(["find", "."], cwd=root)
    with open(image, "wb") as out:
        subprocess.run(["cpio", "--quiet", "-o", "-H", "newc"], input=listed.encode(), stdout=out, cwd=root, check=True)
    return image


def boot(kernel, options):
    """Runs guest.py in a guest; its results."""
    folder = WORK / kernel
    results = folder / "results"
    shutil.rmtree(results, ignore_errors=True)
    results.mkdir(parents=True)
    tree, release = fetch(kernel, folder)
    image = make_initial_files(tree, release, folder)
    words = ["/usr/bin/python3", HERE / "guest.py", "--kernel", kernel, "--build", options.build.resolve(), "--results", "/results",
             "--repetitions", options.repetitions] + (["--only", options.only] if options.only else [])
    (results / "guest.sh").write_text(
        "export PATH=/usr/local/sbin:/usr/sbin:/sbin:/usr/local/bin:/usr/bin:/bin HOME=/root INFERWIRE_VM=1\n"
        f"cd '{ROOT}' && exec {' '.join(str(word) for word in words)}\n", encoding="utf-8")
    say(f"{kernel}: booting {release}")
    began = time.monotonic()
    command = ["qemu-system-x86_64", "-accel", "tcg,thread=multi", "-cpu", "max", "-smp", "2", "-m", "3072", "-nographic",
               "-no-reboot", "-kernel", tree / "boot" / f"vmlinuz-{release}", "-initrd", image, "-append",
               "console=ttyS0 quiet panic=-1 oops=panic net.ifnames=0",
               "-virtfs", "local,path=/,mount_tag=host,security_model=none,readonly=on,multidevs=remap",
               "-virtfs", f"local,path={results},mount_tag=results,security_model=none"]
    progress = results / "progress"
    with open(folder / "console", "wb") as console, subprocess.Popen(
            [str(word) for word in command], stdin=subprocess.DEVNULL, stdout=console, stderr=subprocess.STDOUT) as guest:
        shown = 0
        while guest.poll() is None:
            if time.monotonic() - began > options.timeout:
                guest.kill()
                say(f"{kernel}: killed after {options.timeout} s")
            time.sleep(0.5)
            lines = progress.read_text(encoding="utf-8").splitlines() if progress.exists() else []
            for line in lines[shown:]:
                say(f"{kernel}: {time.monotonic() - began:5.0f} s  {line}")
            shown = len(lines)
    try:
        found = json.loads((results / "results.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        found = {"tests": []}
    status = (results / "status").read_text().strip() if (results / "status").exists() else "none: the guest did not end by itself"
    found.update(release=release, status=status, seconds=round(time.monotonic() - began))
    return found


def show(results):
    """The table of tests by kernel. True if all is well."""
    names = {test["name"]: None for found in results.values() for test in found["tests"]}
    print(f"\n{'':56}" + "".join(f"{kernel:>16}" for kernel in results))
    well = True
    for name in names:
        cells = []
        for found in results.values():
            test = next((test for test in found["tests"] if test["name"] == name), None)
            cells.append("-" if test is None else test["verdict"])
            well &= test is None or test["verdict"] != "FAILED"
        print(f"{name:56}" + "".join(f"{cell:>16}" for cell in cells))
    for kernel, found in results.items():
        print(f"{kernel}: Linux {found['release']}, {len(found['tests'])} tests in {found['seconds']} s")
        for test in found["tests"]:
            if test["verdict"] == "FAILED":
                print(f"  {test['name']}: {test['why']}")
        if found["status"] != "0" or not found["tests"]:
            well = False
            print(f"  the guest's status is {found['status']}; see build/vm/{kernel}/console and results/output")
    return well


def main():
    parser = argparse.ArgumentParser(description="Tests on other kernels.")
    parser.add_argument("--build", type=pathlib.Path, required=True, help="build folder with agent, rigs and tests")
    parser.add_argument("--kernel", default=",".join(KERNELS), help="series, separated by commas")
    parser.add_argument("--only", default="", help="tests whose name contains one of these words")
    parser.add_argument("--repetitions", type=int, default=1, help="of each scenario")
    parser.add_argument("--timeout", type=int, default=2400, help="seconds for each kernel")
    options = parser.parse_args()
    if os.geteuid() != 0:
        sys.exit("vm: needs root, to see all of the host's files")
    results = {kernel: boot(kernel, options) for kernel in options.kernel.split(",")}
    well = show(results)
    (WORK / "results.json").write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    sys.exit(0 if well else 1)


if __name__ == "__main__":
    main()
