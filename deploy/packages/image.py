"""The files of the container image: the program, the libraries that it is linked to, root certificates, and nothing else."""

import pathlib
import re
import shutil
import subprocess
import sys

CERTIFICATES = pathlib.Path("/etc/ssl/certs/ca-certificates.crt")

# The same user as in distroless images and the Helm chart.
USER = 65532

FILES = {
    "etc/passwd": f"root:x:0:0:root:/root:/sbin/nologin\nfanlight:x:{USER}:{USER}:fanlight:/tmp:/sbin/nologin\n",
    "etc/group": f"root:x:0:\nfanlight:x:{USER}:\n",
    # Without this file, glibc would ask DNS before it reads /etc/hosts.
    "etc/nsswitch.conf": "passwd: files\ngroup: files\nhosts: files dns\n",
}


def make_root(program, root):
    if not program.runs_here():
        sys.exit(f"{program.path} is for another platform: its libraries are not here")
    if root.exists() and any(root.iterdir()):
        sys.exit(f"{root} is not empty")
    put(program.path, root / "usr/local/bin/fanlight", 0o755)
    for library in libraries(program.path) if program.glibc else []:
        put(library, root / library.relative_to("/"), 0o755)
    if not CERTIFICATES.exists():
        sys.exit(f"{CERTIFICATES} is missing: install ca-certificates")
    put(CERTIFICATES, root / CERTIFICATES.relative_to("/"), 0o644)
    for name, text in FILES.items():
        (root / name).write_text(text)
        (root / name).chmod(0o644)
    (root / "etc/fanlight").mkdir()
    # Mount points for the kernel's file systems in containers.
    for folder in ["proc", "dev", "sys"]:
        (root / folder).mkdir()
    (root / "tmp").mkdir()
    (root / "tmp").chmod(0o1777)


def put(source, target, mode):
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(source, target)
    target.chmod(mode)


def libraries(program):
    """The shared libraries of a program and their loader, by the paths where programs look for them."""
    lines = subprocess.run(["ldd", program.resolve()], capture_output=True, text=True, check=True).stdout
    if "not found" in lines:
        sys.exit(f"a library of {program} is missing here:\n{lines}")
    return [pathlib.Path(path) for path in re.findall(r"(/\S+) \(0x", lines)]
