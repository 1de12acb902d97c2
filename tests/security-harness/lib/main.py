"""A third-party security harness, directly and through Fanlight: see README.md."""

import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "proxies/lib"))
from issuer import Issuer  # noqa: E402
from processes import Process, fanlight_binary, free_port  # noqa: E402
from server import DOCUMENT, INPUT, META, REVISION, REVOCABLE, Server  # noqa: E402

HERE = Path(__file__).resolve().parents[1]
HARNESS = Path(sys.executable).with_name("agent-security")
RUN_TIMEOUT_S = 600
PUBLIC_URL = "https://mcp.example.com"
SERVER_AUDIENCE = "https://server.example.com/mcp"
# Tests that both legs must exercise: "inconclusive" is no result for these.
REQUIRED = [f"MCP-RC-{number:03}" for number in range(1, 13)] + ["MCP-021", "MCP-022"]


def request(method, params=None, capabilities=None):
    meta = {"_meta": {f"{META}clientCapabilities": capabilities}} if capabilities else {}
    return {"method": method, "params": {**(params or {}), **meta}}


def call(name, arguments=None, capabilities=None):
    return request("tools/call", {"name": name, "arguments": arguments or {}}, capabilities)


def options(url, issuer, other_issuer, audience):
    """The arguments of the harness: two users, and a fixture for each of its tests that needs one."""
    bearer = lambda token: f"Authorization: Bearer {token}"  # noqa: E731
    other = bearer(issuer.token("bob", audience))
    asked, tasks = {"elicitation": {}}, {"extensions": {f"{META}tasks": {}}}
    answers = {INPUT: {"action": "accept", "content": {"ok": True}}}
    fixtures = {
        "mrtr-probe": call("approve", {"amount": 1}, asked),
        "mrtr-altered-probe": call("approve", {"amount": 1000}, asked),
        "mrtr-input-responses": answers,
        "handle-create": {**call("open_draft"), "handlePath": "result.structuredContent.handle"},
        "handle-access": call("read_draft", {"handle": "$HANDLE"}),
        "cache-invalidation": call("revoke"),
        "cache-verify": request("tools/list"),
        "task-create": call("long_job", None, tasks),
        "task-read": request("tasks/get", {"taskId": "$TASK_ID"}, tasks),
        "trace-probe": request("tools/list"),
        "issuer-probe": request("tools/list"),
    }
    texts = {
        "header": bearer(issuer.token("ann", audience)),
        "mrtr-attacker-header": other,
        "handle-attacker-header": other,
        "task-attacker-header": other,
        "trace-attacker-header": "traceparent: 00-ffffffffffffffffffffffffffffffff-ffffffffffffffff-01",
        "issuer-attacker-header": bearer(other_issuer.token("ann", audience)),
        "audience-attacker-header": bearer(issuer.token("ann", "https://other.example.com/mcp")),
        "cache-forbidden-tool": REVOCABLE,
        "cache-resource-uri": DOCUMENT,
    }
    named = {**{name: json.dumps(value) for name, value in fixtures.items()}, **texts}
    arguments = ["--transport", "http", "--url", url, "--protocol-version", REVISION]
    return arguments + [part for name, value in named.items() for part in (f"--{name}", value)]


def run_harness(arguments, folder):
    """The harness's result for each test: `passed`, `failed` or `inconclusive`, and the reason."""
    report = folder / "report.json"
    environment = {"PATH": os.environ["PATH"], "HOME": str(folder), "NO_PROXY": "*"}
    command = [str(HARNESS), "test", "mcp", *arguments, "--report", str(report)]
    with (folder / "harness.log").open("w") as log:
        # The exit code says only that something failed.
        subprocess.run(command, cwd=folder, env=environment, stdout=log, stderr=log, timeout=RUN_TIMEOUT_S, check=False)
    results = json.loads(report.read_text())["results"]
    state = lambda one: "inconclusive" if one["not_evaluated"] else "passed" if one["passed"] else "failed"  # noqa: E731
    return {one["test_id"]: (state(one), f"{one['name']}: {one['details']}") for one in results}


def directly(folder, issuer, other):
    server = Server(issuer, SERVER_AUDIENCE)
    try:
        return run_harness(options(server.url, issuer, other, SERVER_AUDIENCE), folder)
    finally:
        server.close()


def through_fanlight(folder, issuer, other):
    """Runs the harness through Fanlight. The server only accepts Fanlight's own credentials."""
    server, port = Server(issuer, SERVER_AUDIENCE), free_port()
    own = {"Authorization": f"Bearer {issuer.token('fanlight', SERVER_AUDIENCE)}"}
    config = {
        "listen": f"127.0.0.1:{port}",
        "publicUrl": PUBLIC_URL,
        "auth": {"oauth": [{"issuer": issuer.url}]},
        "mcpServers": {"target": {"type": "http", "url": server.url, "headers": own}},
    }
    path = folder / "fanlight.json"
    path.write_text(json.dumps(config))
    gateway = Process("fanlight", [fanlight_binary(), "run", "--admin", "off", "--config", str(path)], folder, port)
    try:
        return run_harness(options(f"http://127.0.0.1:{port}/mcp", issuer, other, f"{PUBLIC_URL}/mcp"), folder)
    finally:
        gateway.end()
        server.close()


def expected():
    """The tests that may fail only through Fanlight, with the reasons."""
    lines = (HERE / "expected.txt").read_text().splitlines()
    pairs = [line.partition("#") for line in lines if line.strip() and not line.startswith("#")]
    return {name.strip(): reason.strip() for name, _, reason in pairs}


def compare(direct, through):
    """Prints a line for each test; returns the numbers of expected and unexpected results."""
    known, good, bad = expected(), 0, 0
    for name in sorted(direct.keys() | through.keys()):
        (was, _), (found, why) = direct.get(name, ("absent", "")), through.get(name, ("absent", ""))
        is_lost = was == "passed" and found != "passed"
        is_open = name in REQUIRED and "inconclusive" in (was, found)
        is_wrong = is_open or is_lost != (name in known)
        good, bad = good + (not is_wrong), bad + is_wrong
        print(f"{'FAIL' if is_wrong else 'ok  '}  {name:<12} {was:<12} {found:<12} {known.get(name, '')}".rstrip())
        if is_wrong:
            print(f"      {why}" if is_lost or is_open else "      is listed in expected.txt but not lost: remove the line")
    missing = [name for name in REQUIRED if name not in through]
    for name in missing:
        print(f"FAIL  {name} was not run")
    return good, bad + len(missing)


def main():
    work = Path(tempfile.mkdtemp(prefix="fanlight-security-harness-"))
    issuer, other = Issuer(), Issuer()
    try:
        reports = []
        for name, leg in (("direct", directly), ("through", through_fanlight)):
            folder = work / name
            folder.mkdir()
            reports.append(leg(folder, issuer, other))
        print(f"      {'test':<12} {'direct':<12} through Fanlight")
        good, bad = compare(*reports)
        print(f"{good} passed, {bad} failed")
        return 1 if bad or not good else 0
    finally:
        issuer.close()
        other.close()
        if not os.environ.get("KEEP_WORK"):
            shutil.rmtree(work, ignore_errors=True)
        else:
            print(f"kept: {work}", file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main())
