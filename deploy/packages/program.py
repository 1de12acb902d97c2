"""A compiled Fanlight: its version, its platform, and its needs there."""

import dataclasses
import os
import pathlib
import platform
import re
import struct
import subprocess
import sys
import tempfile
import tomllib

REPOSITORY = pathlib.Path(__file__).resolve().parents[2]


@dataclasses.dataclass(frozen=True)
class Platform:
    """A platform with its names in each kind of package."""

    target: str
    deb: str | None
    rpm: str | None
    # The tag of a wheel; `{glibc}` stands for the oldest supported glibc, as in 2_34.
    wheel: str
    # Node's process.platform, process.arch, and the C library if npm distinguishes two.
    npm: tuple[str, str, str | None]


PLATFORMS = {
    one.target: one
    for one in [
        Platform("x86_64-unknown-linux-gnu", "amd64", "x86_64", "manylinux_{glibc}_x86_64", ("linux", "x64", "glibc")),
        Platform("aarch64-unknown-linux-gnu", "arm64", "aarch64", "manylinux_{glibc}_aarch64", ("linux", "arm64", "glibc")),
        # Static programs, for every Linux; the only ones for Linux with musl.
        Platform("x86_64-unknown-linux-musl", None, None, "musllinux_1_1_x86_64", ("linux", "x64", "musl")),
        Platform("aarch64-unknown-linux-musl", None, None, "musllinux_1_1_aarch64", ("linux", "arm64", "musl")),
        Platform("x86_64-apple-darwin", None, None, "macosx_11_0_x86_64", ("darwin", "x64", None)),
        Platform("aarch64-apple-darwin", None, None, "macosx_11_0_arm64", ("darwin", "arm64", None)),
        Platform("x86_64-pc-windows-msvc", None, None, "win_amd64", ("win32", "x64", None)),
    ]
}


def cargo_package():
    """`[workspace.package]` of Cargo.toml, the only place with the version, licence and address."""
    return tomllib.loads((REPOSITORY / "Cargo.toml").read_text())["workspace"]["package"]


def version():
    return cargo_package()["version"]


def release_time():
    """The time stamp of all packed files: SOURCE_DATE_EPOCH, else the commit's time. So the same program gives the same packages."""
    given = os.environ.get("SOURCE_DATE_EPOCH")
    if given:
        return int(given)
    commit = subprocess.run(["git", "log", "-1", "--format=%ct"], cwd=REPOSITORY, capture_output=True, text=True)
    # Without a repository, as in an unpacked source archive: 1980, the earliest time in a ZIP file.
    return int(commit.stdout or 315532800)


@dataclasses.dataclass(frozen=True)
class Program:
    path: pathlib.Path
    platform: Platform
    # The oldest glibc that has every symbol of the program, as (2, 34); none if the program is not
    # linked to glibc.
    glibc: tuple[int, int] | None

    @classmethod
    def read(cls, path):
        content = path.read_bytes()
        target = target_of(content, path)
        program = cls(path, PLATFORMS[target], newest_glibc_symbol(content) if target.endswith("-gnu") else None)
        program.check_version()
        return program

    @property
    def file_name(self):
        """The program's file name after the installation."""
        return "fanlight.exe" if "windows" in self.platform.target else "fanlight"

    def runs_here(self):
        arch, system = self.platform.target.split("-")[0], sys.platform
        here = {"linux": "linux", "darwin": "darwin", "win32": "windows"}[system] in self.platform.target
        return here and platform.machine().lower() in ({"aarch64", "arm64"} if arch == "aarch64" else {"x86_64", "amd64"})

    def completions(self):
        """The completions of each shell, with the usual name of its file."""
        names = {"bash": "fanlight.bash", "zsh": "_fanlight", "fish": "fanlight.fish"}
        return {shell: (name, self.output("completions", shell)) for shell, name in names.items()}

    def manual(self):
        """The manual pages by their file names."""
        with tempfile.TemporaryDirectory() as folder:
            self.output("man", "--out", folder)
            return {page.name: page.read_bytes() for page in sorted(pathlib.Path(folder).iterdir())}

    def output(self, *arguments):
        """The program's output, which needs a program for this machine."""
        if not self.runs_here():
            sys.exit(f"{self.path} cannot run here: pack it on a machine of its platform")
        return subprocess.run([self.path.resolve(), *arguments], capture_output=True, check=True).stdout

    def check_version(self):
        """Checks that the program's version is the package's."""
        if not self.runs_here():
            return
        said = self.output("--version").decode().strip()
        if said != f"fanlight {version()}":
            sys.exit(f"{self.path} is `{said}`, but Cargo.toml says {version()}: compile it again")


def target_of(content, path):
    """The target that a program was compiled for, from the header of its file."""
    if content[:4] == b"\x7fELF":
        machine = struct.unpack_from("<H", content, 18)[0]
        arch = {62: "x86_64", 183: "aarch64"}.get(machine)
        if b"/ld-musl" in content:
            sys.exit(f"{path} is linked to the musl of a system: the packages are for glibc, or for static programs")
        # The program contains the path of its dynamic loader.
        target = arch and f"{arch}-unknown-linux-{'gnu' if b'/ld-linux' in content else 'musl'}"
    elif content[:4] == b"\xcf\xfa\xed\xfe":
        cpu = struct.unpack_from("<I", content, 4)[0]
        target = {0x01000007: "x86_64-apple-darwin", 0x0100000C: "aarch64-apple-darwin"}.get(cpu)
    else:
        target = "x86_64-pc-windows-msvc" if content[:2] == b"MZ" else None
    if target is None:
        sys.exit(f"{path} is no program of a platform that is packed: {', '.join(PLATFORMS)}")
    return target


def newest_glibc_symbol(content):
    versions = {(int(major), int(minor)) for major, minor in re.findall(rb"\0GLIBC_(\d+)\.(\d+)", content)}
    return max(versions)
