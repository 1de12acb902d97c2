"""npm packages: one with the program for each platform, and `fanlight`, which depends on them optionally, so that npm installs the
machine's package. None runs a script during the installation."""

import json
import sys
import tarfile

from .archive import tar_gz
from .program import REPOSITORY, cargo_package, version

# The owner's scope, in which nobody else can publish a platform's package.
SCOPE = "@fanlight-mcp"
HERE = REPOSITORY / "deploy/packages"


def common(name, description):
    package = cargo_package()
    return {
        "name": name,
        "version": package["version"],
        "description": description,
        "license": package["license"],
        "repository": {"type": "git", "url": f"git+{package['repository']}.git"},
        "homepage": package["repository"],
    }


def pack(path, manifest, entries):
    """Writes the same archive as `npm pack`."""
    text = json.dumps(manifest, indent=2) + "\n"
    licence = ("package/LICENSE", (REPOSITORY / "LICENSE").read_bytes(), 0o644)
    return tar_gz(path, [("package/package.json", text.encode(), 0o644), licence, *entries])


def platform(program, out):
    system, arch, libc = program.platform.npm
    name = f"{system}-{arch}-musl" if libc == "musl" else f"{system}-{arch}"
    manifest = common(f"{SCOPE}/{name}", f"The program of fanlight for {name}; install `fanlight`.")
    manifest |= {"os": [system], "cpu": [arch], "preferUnplugged": True}
    if libc:
        manifest["libc"] = [libc]
    entry = (f"package/bin/{program.file_name}", program.path.read_bytes(), 0o755)
    return [pack(out / f"fanlight-mcp-{name}-{version()}.tgz", manifest, [entry])]


def wrapper(out):
    """Writes the package `fanlight` for the platforms whose packages are in `out`."""
    platforms = [manifest_of(path)["name"] for path in sorted(out.glob(f"fanlight-mcp-*-{version()}.tgz"))]
    if not platforms:
        sys.exit(f"no package of a platform in {out}")
    manifest = common("fanlight", "A transparent, aggregating MCP proxy with built-in tracing.")
    manifest |= {
        "keywords": ["mcp", "model-context-protocol", "gateway", "proxy", "tracing", "opentelemetry"],
        "bin": {"fanlight": "fanlight.js"},
        "engines": {"node": ">=18"},
        # Exactly this version, since another version is another program.
        "optionalDependencies": dict.fromkeys(platforms, version()),
    }
    entries = [
        ("package/fanlight.js", (HERE / "npm/fanlight.js").read_bytes(), 0o755),
        ("package/README.md", (HERE / "npm/README.md").read_bytes(), 0o644),
    ]
    return pack(out / f"fanlight-{version()}.tgz", manifest, entries)


def manifest_of(path):
    with tarfile.open(path) as tar:
        return json.load(tar.extractfile("package/package.json"))
