"""A wheel with the program as a script (the Python Packaging User Guide's binary distribution format), for `uvx fanlight` and
`pip install fanlight`."""

import base64
import hashlib

from .archive import zip_file
from .program import REPOSITORY, cargo_package, version

HERE = REPOSITORY / "deploy/packages"


def make(program, out):
    glibc = "_".join(map(str, program.glibc or ()))
    tag = f"py3-none-{program.platform.wheel.format(glibc=glibc)}"
    info = f"fanlight-{version()}.dist-info"
    entries = [
        (f"fanlight-{version()}.data/scripts/{program.file_name}", program.path.read_bytes(), 0o755),
        (f"{info}/METADATA", metadata().encode(), 0o644),
        (f"{info}/WHEEL", f"Wheel-Version: 1.0\nGenerator: fanlight\nRoot-Is-Purelib: false\nTag: {tag}\n".encode(), 0o644),
        (f"{info}/licenses/LICENSE", (REPOSITORY / "LICENSE").read_bytes(), 0o644),
    ]
    record = "".join(f"{name},sha256={digest(content)},{len(content)}\n" for name, content, _ in entries)
    entries.append((f"{info}/RECORD", f"{record}{info}/RECORD,,\n".encode(), 0o644))
    return [zip_file(out / f"fanlight-{version()}-{tag}.whl", entries)]


def digest(content):
    return base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()


def metadata():
    package = cargo_package()
    fields = [
        ("Metadata-Version", "2.4"),
        ("Name", "fanlight"),
        ("Version", package["version"]),
        ("Summary", "A transparent, aggregating MCP proxy with built-in tracing."),
        ("Keywords", "mcp,gateway,proxy,tracing"),
        ("License-Expression", package["license"]),
        ("License-File", "LICENSE"),
        ("Project-URL", f"Source, {package['repository']}"),
        ("Requires-Python", ">=3.8"),
        ("Description-Content-Type", "text/markdown"),
    ]
    return "".join(f"{name}: {value}\n" for name, value in fields) + "\n" + (HERE / "python/README.md").read_text()
