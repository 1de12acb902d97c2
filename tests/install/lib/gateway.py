"""A gateway right after its installation: its first call, and the call's trace."""

import contextlib
import json
import os
import re
import select
import signal
import subprocess
import time
import urllib.request

REVISION = "2026-07-28"
# The limit from an empty place to the first trace.
MOST_SECONDS = 60
ANY_PORTS = ["--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"]


class Stopwatch:
    """The time from an empty place to the first trace."""

    def __init__(self):
        self.restart()

    def restart(self):
        self.begun, self.seconds = time.monotonic(), None

    def first_trace(self):
        if self.seconds is None:
            self.seconds = time.monotonic() - self.begun
            if self.seconds > MOST_SECONDS:
                raise Failed(f"the first trace was there after {self.seconds:.0f} s, more than {MOST_SECONDS}")


stopwatch = Stopwatch()


class Failed(Exception):
    """A failure, with the text for the report."""


@contextlib.contextmanager
def running(command, expected=0, **popen):
    """Starts a gateway whose output names its addresses; yields (its process, endpoint, admin listener), then ends it.
    Its exit status must be `expected`; None is for launchers with a status of their own."""
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True, **popen
    )
    try:
        # The log is read at the end, since it is far shorter than a pipe's capacity.
        yield process, *addresses(process)
        # The test may have ended it already.
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGTERM)
        _, log = process.communicate(timeout=30)
        if expected is not None and process.returncode != expected:
            raise Failed(f"it ended with status {process.returncode}: {log}")
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def addresses(process):
    """The endpoint and the admin listener, as the gateway prints them."""
    deadline, text = time.monotonic() + MOST_SECONDS, ""
    output = process.stdout.fileno()
    while time.monotonic() < deadline:
        if not select.select([output], [], [], 0.2)[0]:
            continue
        read = os.read(output, 65536).decode()
        text += read
        found = re.search(r"^listening on (\S+)\n.*^admin on (\S+)\n", text, re.MULTILINE | re.DOTALL)
        if found:
            return found.groups()
        if not read:
            raise Failed(f"it has ended: {text}{process.communicate()[1]}")
    raise Failed(f"it does not say where it listens: {text}")


def request(url, body=None, headers=None):
    headers = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"} | (headers or {})
    data = None if body is None else json.dumps(body).encode()
    with urllib.request.urlopen(urllib.request.Request(url, data, headers), timeout=30) as response:
        text = response.read().decode()
        if "event-stream" in response.headers["Content-Type"]:
            text = re.search(r"^data: ?(\{.*)$", text, re.MULTILINE).group(1)
        return json.loads(text)


def ask(url, method, params=None, name=None):
    """One request of revision 2026-07-28 and its result."""
    meta = {f"io.modelcontextprotocol/{key}": value for key, value in [("protocolVersion", REVISION), ("clientCapabilities", {})]}
    body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": (params or {}) | {"_meta": meta}}
    headers = {"MCP-Protocol-Version": REVISION, "Mcp-Method": method} | ({"Mcp-Name": name} if name else {})
    answer = request(url, body, headers)
    if "result" not in answer:
        raise Failed(f"{method} was answered with {answer}")
    return answer["result"]


def first_call(endpoint, admin, token=None):
    """Calls a tool of the demo, and finds the call in the traces of the gateway."""
    names = [tool["name"] for tool in ask(endpoint, "tools/list")["tools"]]
    tool = next(name for name in names if name.endswith("convert_units"))
    result = ask(endpoint, "tools/call", {"name": tool, "arguments": {"value": 1, "from": "km", "to": "m"}}, tool)
    if result["structuredContent"].get("value") != 1000:
        raise Failed(f"1 km is not 1000 m: {result}")
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    deadline = time.monotonic() + 10
    # The trace is stored after the answer has been sent.
    while "convert_units" not in json.dumps(request(f"{admin}/api/traces", headers=headers)):
        if time.monotonic() > deadline:
            raise Failed("the call is not among the traces")
        time.sleep(0.05)
    stopwatch.first_trace()
