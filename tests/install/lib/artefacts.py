"""One function for each way to install Fanlight: it installs into an empty place, tries, removes, and looks for leftovers."""

import json
import os
import pathlib
import platform
import re
import shutil
import signal
import subprocess
import tarfile
import venv

import gateway
import registry
import roots
import server
from gateway import ANY_PORTS, Failed, stopwatch

REPOSITORY = pathlib.Path(__file__).resolve().parents[3]


def run(*command, **options):
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, **options)
    if done.returncode != 0:
        raise Failed(f"{' '.join(map(str, command))}: status {done.returncode}: {done.stdout}{done.stderr}")
    return done.stdout


def nothing_left(before, after, what):
    left = sorted(path for path in before.keys() | after.keys() if before.get(path) != after.get(path))
    if left:
        raise Failed(f"{what} leaves or has changed {left}")


def archive(packages, work):
    """The archive, unpacked in a root with only the libraries that the program is linked to."""
    root = work / "root"
    for folder in ["proc", "dev", "tmp"]:
        (root / folder).mkdir(parents=True)
    (root / "tmp").chmod(0o1777)
    with tarfile.open(next(packages.glob("*.tar.gz"))) as tar:
        tar.extractall(root / "opt", filter="data")
    program = next(root.glob("opt/*/fanlight"))
    roots.add_libraries(root, program)
    before = roots.files(root)
    for path in ["completions/_fanlight", "man/man1/fanlight.1", "fanlight.service", "LICENSE"]:
        if not (program.parent / path).is_file():
            raise Failed(f"{path} is missing")
    command = roots.enter(root, ["/" + str(program.relative_to(root)), *ANY_PORTS])
    with gateway.running(command) as (_, *urls):
        gateway.first_call(*urls)
    nothing_left(before, roots.files(root), "a gateway that ran")


def static(_packages, work):
    """A static program, alone in a root, in front of an HTTP server; a program for another processor runs under qemu."""
    root, program = work / "root", pathlib.Path(os.environ["INSTALL_PROGRAM"])
    for folder in ["proc", "dev", "tmp"]:
        (root / folder).mkdir(parents=True)
    (root / "tmp").chmod(0o1777)
    shutil.copy(program, root / "fanlight")
    command = ["/fanlight"]
    machine = {0x3E: "x86_64", 0xB7: "aarch64"}[program.read_bytes()[18]]
    if machine != platform.machine():
        emulator = f"qemu-{machine}-static"
        shutil.copy(shutil.which(emulator) or emulator, root / emulator)
        command = [f"/{emulator}", *command]
    said = run(*roots.enter(root, [*command, "--version"]))
    if not re.fullmatch(r"fanlight \d+\.\d+\.\d+\n", said):
        raise Failed(f"its version is {said!r}")
    with server.serving() as url:
        config = root / "tmp/fanlight.yaml"
        config.write_text(f"mcpServers: {{units: {{url: '{url}'}}}}\n")
        run(*roots.enter(root, [*command, "validate", "--config", "/tmp/fanlight.yaml"]))
        with gateway.running(roots.enter(root, [*command, *ANY_PORTS, "--config", "/tmp/fanlight.yaml"])) as (_, *urls):
            gateway.first_call(*urls)


def deb(packages, work):
    """The .deb, installed in Debian's smallest system, which runs the service's command."""
    root = debian(work)
    package = next(packages.glob("*.deb"))
    shutil.copy(package, root / "tmp")
    # systemd keeps the state of services with dynamic users here.
    (root / "var/lib/private").mkdir(exist_ok=True)
    before = system_files(root)
    stopwatch.restart()
    run("chroot", root, "dpkg", "--install", f"/tmp/{package.name}")
    unit = root / "usr/lib/systemd/system/fanlight.service"
    if not (root / "etc/systemd/system/multi-user.target.wants/fanlight.service").is_symlink():
        raise Failed("the service is not enabled")
    for path in ["man/man1/fanlight-run.1.gz", "bash-completion/completions/fanlight", "zsh/vendor-completions/_fanlight"]:
        if not (root / "usr/share" / path).is_file():
            raise Failed(f"/usr/share/{path} is missing")
    verify_unit(unit, root / "usr/bin/fanlight", work)
    run_service(root, unit)
    config = root / "etc/fanlight/fanlight.yaml"
    config.write_text(config.read_text() + "# mine\n")
    run("chroot", root, "dpkg", "--install", f"/tmp/{package.name}")
    if not config.read_text().endswith("# mine\n"):
        raise Failed("an upgrade loses changes of the configuration")
    run("chroot", root, "dpkg", "--remove", "fanlight")
    if not config.exists():
        raise Failed("removing without purging loses the configuration")
    (root / "etc/fanlight/environment").write_text("SECRET=1\n")
    (root / "var/lib/private/fanlight").mkdir()
    run("chroot", root, "dpkg", "--purge", "fanlight")
    nothing_left(before, system_files(root), "a purge")


def rpm(packages, work):
    """The .rpm, installed by rpm into another distribution's root: its dependencies are there, but unknown to rpm."""
    root = debian(work)
    database = ["rpm", "--root", root, "--dbpath", "/var/lib/rpm"]
    run(*database, "--initdb")
    before = system_files(root)
    stopwatch.restart()
    run(*database, "--install", "--nodeps", next(packages.glob("*.rpm")))
    run(*database, "--verify", "--nodeps", "fanlight")
    run_service(root, root / "usr/lib/systemd/system/fanlight.service")
    run(*database, "--erase", "fanlight")
    nothing_left(before, system_files(root), "rpm --erase")


def debian(work):
    """The smallest Debian, made once and unpacked for each test."""
    cached = pathlib.Path(os.environ["INSTALL_CACHE"]) / "debian.tar"
    if not cached.exists():
        run("debootstrap", "--variant=minbase", "bookworm", work / "new")
        for of_apt in ["var/cache/apt/archives", "var/lib/apt/lists"]:
            shutil.rmtree(work / "new" / of_apt)
        # The file is renamed when it is complete, so that an interrupted run leaves no half of it.
        run("tar", "--create", "--file", f"{cached}.new", "--directory", work / "new", "--one-file-system", ".")
        os.rename(f"{cached}.new", cached)
        shutil.rmtree(work / "new")
    root = work / "root"
    root.mkdir()
    run("tar", "--extract", "--file", cached, "--directory", root)
    return root


def run_service(root, unit):
    """Runs the command of an installed unit, and makes a call."""
    start = next(line for line in unit.read_text().splitlines() if line.startswith("ExecStart="))
    command = roots.enter(root, [*start.removeprefix("ExecStart=").split(), *ANY_PORTS])
    with gateway.running(command) as (_, *urls):
        gateway.first_call(*urls)


def verify_unit(unit, program, work):
    """Lets this machine's systemd verify a unit, since the smallest Debian has no systemd."""
    copy = work / unit.name
    copy.write_text(unit.read_text().replace("/usr/bin/fanlight", str(program)))
    said = subprocess.run(["systemd-analyze", "verify", "--man=no", copy], capture_output=True, text=True)
    about = [line for line in said.stderr.splitlines() if "fanlight" in line]
    if about:
        raise Failed(f"systemd says of the unit: {about}")


def system_files(root):
    """The files of a system, except the journals and databases of dpkg and rpm, and the packages to install."""
    of_dpkg = ("var/log/dpkg.log", "var/lib/dpkg/status-old", "var/lib/dpkg/lock", "var/lib/dpkg/triggers/Lock")
    passed_over = ("tmp", "var/lib/rpm", *of_dpkg)
    return {path: what for path, what in roots.files(root).items() if not path.startswith(passed_over)}


def image(_packages, work):
    """The container image, built from the Dockerfile's last stage. Its files run as its user, without write access."""
    program = pathlib.Path(os.environ["INSTALL_PROGRAM"])
    context = work / "context"
    run(REPOSITORY / "deploy/package", "image-root", program, context / "image")
    lines = (REPOSITORY / "deploy/docker/Dockerfile").read_text().splitlines()
    last = lines[lines.index("FROM scratch") :]
    # Replaces the output of the first stage's compilation.
    (context / "Dockerfile").write_text("\n".join(last).replace("COPY --from=build /image /", "COPY image /") + "\n")
    storage = ["buildah", "--storage-driver", "vfs", "--root", work / "storage", "--runroot", work / "run"]
    run(*storage, "build", "--isolation", "chroot", "--format", "docker", "--tag", "fanlight", context)
    container = run(*storage, "from", "fanlight").strip()
    try:
        about = json.loads(run(*storage, "inspect", "--type", "image", "fanlight"))["Docker"]["config"]
        if about["User"] != "65532:65532" or about["Entrypoint"] != ["/usr/local/bin/fanlight"]:
            raise Failed(f"the image starts something else, or as someone else: {about}")
        root = pathlib.Path(run(*storage, "mount", container).strip())
        command = roots.enter(root, [*about["Entrypoint"], *ANY_PORTS], user=65532, read_only=True)
        with gateway.running(command) as (_, endpoint, admin):
            gateway.first_call(endpoint, admin)
            # The command that a container's health check runs.
            health = [*about["Entrypoint"], "status", "--admin", admin]
            run(*roots.enter(root, health, user=65532, read_only=True))
    finally:
        run(*storage, "rm", container)
        run(*storage, "rmi", "fanlight")


def npm(packages, work):
    """`npx fanlight` and `npm install --global`, from a registry with only these packages."""
    with registry.serving(packages) as url:
        environment = os.environ | {
            "npm_config_registry": url,
            "npm_config_cache": str(work / "cache"),
            "npm_config_update_notifier": "false",
            "npm_config_audit": "false",
            "npm_config_fund": "false",
            "HOME": str(work),
        }
        with gateway.running(["npx", "--yes", "fanlight", *ANY_PORTS], expected=None, env=environment, cwd=work) as (_, *urls):
            gateway.first_call(*urls)
        prefix = work / "prefix"
        run("npm", "install", "--global", "--prefix", prefix, "fanlight", env=environment)
        launcher = prefix / "bin/fanlight"
        with gateway.running([launcher, *ANY_PORTS], env=environment, cwd=work) as (process, *urls):
            gateway.first_call(*urls)
            # Only the launcher gets the signal: it passes it on, and ends with the program's
            # status.
            process.send_signal(signal.SIGTERM)
            process.wait(30)
        wrong = subprocess.run([launcher, "validate", "--config", "/no/such/file"], env=environment, capture_output=True)
        if wrong.returncode == 0:
            raise Failed("the launcher loses the program's exit status")
        run("npm", "uninstall", "--global", "--prefix", prefix, "fanlight", env=environment)
    left = [path for path in prefix.rglob("*") if not path.is_dir() and path.name != ".package-lock.json"]
    if left:
        raise Failed(f"npm uninstall leaves {left}")


def wheel(packages, work):
    """`uvx fanlight` from an index with only this wheel, and pip in a fresh virtual environment."""
    environment = os.environ | {
        "UV_CACHE_DIR": str(work / "cache"),
        "UV_NO_CONFIG": "1",
        "UV_PYTHON_DOWNLOADS": "never",
        "HOME": str(work),
    }
    environment.pop("VIRTUAL_ENV", None)
    with registry.serving(packages) as url:
        command = ["uvx", "--default-index", f"{url}/simple/", "fanlight", *ANY_PORTS]
        with gateway.running(command, expected=None, env=environment, cwd=work) as (_, *urls):
            gateway.first_call(*urls)
    fresh = work / "venv"
    venv.create(fresh, with_pip=True)
    before = roots.files(fresh)
    pip = [fresh / "bin/python", "-B", "-m", "pip", "--disable-pip-version-check", "--no-cache-dir"]
    run(*pip, "install", "--no-compile", "--no-index", "--find-links", packages, "fanlight")
    run(*pip, "check")
    with gateway.running([fresh / "bin/fanlight", *ANY_PORTS], cwd=work) as (_, *urls):
        gateway.first_call(*urls)
    run(*pip, "uninstall", "--yes", "fanlight")
    nothing_left(before, roots.files(fresh), "pip uninstall")


def cargo(_packages, work):
    """`cargo install --path`, from this repository."""
    root = work / "cargo"
    root.mkdir()
    # With a profile that is already compiled, this compiles nothing.
    profile = os.environ.get("INSTALL_PROFILE", "release")
    command = ["cargo", "install", "--quiet", "--locked", "--profile", profile, "--path", REPOSITORY / "crates/fanlight", "--root", root]
    run(*command)
    # The command may have had to compile, which does not count.
    stopwatch.restart()
    with gateway.running([root / "bin/fanlight", *ANY_PORTS], cwd=work) as (_, *urls):
        gateway.first_call(*urls)
    run("cargo", "uninstall", "--quiet", "--root", root, "fanlight")
    if list((root / "bin").iterdir()):
        raise Failed(f"cargo uninstall leaves {list((root / 'bin').iterdir())}")
