"""Programs under test: started, awaited, and ended."""

import os
import socket
import subprocess
import time
from pathlib import Path

from guide import ROOT

PATIENCE_S = 30


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def fanlight_binary():
    target = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
    named = os.environ.get("FANLIGHT_BIN")
    candidates = [Path(named)] if named else [target / "release/fanlight", target / "debug/fanlight"]
    found = next((path for path in candidates if path.is_file()), None)
    assert found, f"no Fanlight at {', '.join(map(str, candidates))}: run `cargo build --release`"
    return str(found)


class Process:
    """A program that ends with the test."""

    def __init__(self, name, command, folder, port):
        self.log = folder / f"{name}.log"
        self.name = name
        self.child = subprocess.Popen(command, cwd=folder, stdin=subprocess.DEVNULL, stdout=self.log.open("w"), stderr=subprocess.STDOUT)
        self._await(port)

    def _await(self, port):
        deadline = time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline:
            assert self.child.poll() is None, f"{self.name} has ended:\n{self.log.read_text()}"
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", port)) == 0:
                    return
            time.sleep(0.05)
        raise AssertionError(f"{self.name} does not listen:\n{self.log.read_text()}")

    def end(self):
        self.child.terminate()
        try:
            self.child.wait(PATIENCE_S)
        except subprocess.TimeoutExpired:
            self.child.kill()
