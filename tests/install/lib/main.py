"""Packs a program, then installs, tries and removes each package: main.py [--only NAMES]."""

import argparse
import os
import pathlib
import subprocess
import sys
import tempfile

import artefacts
from gateway import Failed, stopwatch

# Packages that need their own root, and so the rights of root.
NEEDS_ROOT = {"archive", "static", "deb", "rpm", "image"}
# Packages that are tried as they are. They are only tried on request, since the usual program is
# not static.
UNPACKED = {"static"}


def main():
    usual = ["archive", "npm", "wheel", "deb", "rpm", "image", "cargo"]
    kinds = {name: getattr(artefacts, name) for name in [*usual, *UNPACKED]}
    parser = argparse.ArgumentParser()
    parser.add_argument("--only", default=",".join(usual))
    chosen = parser.parse_args().only.split(",")
    target = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", artefacts.REPOSITORY / "target"))
    program = pathlib.Path(os.environ.get("FANLIGHT_BIN", target / "release/fanlight"))
    cache = target / "install"
    cache.mkdir(parents=True, exist_ok=True)
    os.environ["INSTALL_CACHE"] = str(cache)
    os.environ["INSTALL_PROGRAM"] = str(program)
    failed = 0
    with tempfile.TemporaryDirectory(prefix="fanlight-install-") as folder:
        packages = pathlib.Path(folder, "packages")
        packing = [["binary", program, "--out", packages], ["finish", "--out", packages]]
        for arguments in packing if set(chosen) - UNPACKED else []:
            subprocess.run([artefacts.REPOSITORY / "deploy/package", *arguments], check=True, stdout=subprocess.DEVNULL)
        for name in chosen:
            if name in NEEDS_ROOT and os.geteuid() != 0:
                print(f"install: NOT CHECKED: {name}: needs root")
                continue
            failed += not tried(name, kinds[name], packages, pathlib.Path(folder, name))
    sys.exit(1 if failed else 0)


def tried(name, try_out, packages, work):
    work.mkdir()
    work.chmod(0o755)
    stopwatch.restart()
    try:
        try_out(packages, work)
        print(f"install: {name}: first trace after {stopwatch.seconds:.1f} s; removed without a trace", flush=True)
        return True
    except (Failed, subprocess.SubprocessError, OSError) as error:
        print(f"install: {name}: FAILED: {error}", flush=True)
        return False


main()
