"""Secrets that the configuration refers to, in OpenBao and in a keyring: see README.md."""

import http.server
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "proxies/lib"))
from processes import PATIENCE_S, Process, fanlight_binary, free_port  # noqa: E402

ROOT_TOKEN = "root-of-the-test"


class Handler(http.server.BaseHTTPRequestHandler):
    """Answers in JSON."""

    def answer(self, value):
        body = json.dumps(value).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def body(self):
        return json.loads(self.rfile.read(int(self.headers["Content-Length"])))

    def log_message(self, *_):
        pass


class McpServer(Handler):
    """A modern MCP server whose only tool returns the key that it received."""

    handshakes = 0

    def do_POST(self):
        request = self.body()
        method = request.get("method")
        result = {"resultType": "complete"}
        if method == "server/discover":
            McpServer.handshakes += 1
            result |= {"supportedVersions": ["2026-07-28"], "capabilities": {"tools": {}}}
        elif method == "tools/list":
            result |= {"tools": [{"name": "key", "inputSchema": {"type": "object"}}]}
        else:
            result |= {"content": [{"type": "text", "text": f"key={self.headers['X-Key']}"}]}
        self.answer({"jsonrpc": "2.0", "id": request.get("id"), "result": result})


def serve(handler):
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server.server_address[1]


def post(url, value, headers=None):
    request = urllib.request.Request(url, json.dumps(value).encode(), {"Content-Type": "application/json", **(headers or {})})
    try:
        with urllib.request.urlopen(request, timeout=PATIENCE_S) as answer:
            return answer.read().decode()
    except urllib.error.HTTPError as refused:
        return refused.read().decode()


class Bao:
    """OpenBao for the time of the test, with everything in memory."""

    def __init__(self, folder):
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        command = [os.environ["BAO"], "server", "-dev", f"-dev-root-token-id={ROOT_TOKEN}", f"-dev-listen-address=127.0.0.1:{self.port}"]
        self.process = Process("openbao", command, folder, self.port)
        deadline = time.monotonic() + PATIENCE_S
        while "Development mode" not in self.process.log.read_text():
            assert time.monotonic() < deadline, self.process.log.read_text()
            time.sleep(0.05)

    def write(self, path, value):
        answer = post(f"{self.url}/v1/{path}", value, {"X-Vault-Token": ROOT_TOKEN})
        assert "errors" not in answer, (path, answer)


class Gateway:
    """Fanlight with one server, whose header refers to a secret."""

    def __init__(self, folder, name, reference, server, environment):
        self.port = free_port()
        path = folder / f"{name}.yaml"
        other = json.dumps(fanlight_binary())
        path.write_text(
            f"""
listen: 127.0.0.1:{self.port}
admin: {{listen: "127.0.0.1:0"}}
stateDir: off
mcpServers:
  wiki: {{url: "http://127.0.0.1:{server}/mcp", headers: {{X-Key: "${{{reference}}}"}}}}
  other: {{command: {other}, args: [demo-server, modern]}}
"""
        )
        clean = {key: value for key, value in os.environ.items() if not key.startswith(("VAULT_", "BAO"))}
        command = ["env", "-i", *(f"{key}={value}" for key, value in (clean | environment).items())]
        self.process = Process(name, [*command, fanlight_binary(), "run", "--config", str(path)], folder, self.port)

    def key(self):
        meta = {"io.modelcontextprotocol/protocolVersion": "2026-07-28", "io.modelcontextprotocol/clientCapabilities": {}}
        params = {"name": "wiki__key", "arguments": {}, "_meta": meta}
        request = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
        headers = {"Accept": "application/json, text/event-stream", "MCP-Protocol-Version": "2026-07-28", "Mcp-Method": "tools/call", "Mcp-Name": "wiki__key"}
        return post(f"http://127.0.0.1:{self.port}/mcp", request, headers)


def check(name, condition, shown=""):
    assert condition, f"{name}: {shown}"
    print(f"ok  {name}")


def main():
    folder = Path(tempfile.mkdtemp(prefix="fanlight-secrets-"))
    server, processes = serve(McpServer), []
    bao = Bao(folder)
    processes.append(bao.process)
    bao.write("secret/data/wiki", {"data": {"token": "first-key"}})

    def gateway(name, reference, environment):
        started = Gateway(folder, name, reference, server, environment)
        processes.append(started.process)
        return started

    try:
        def of_bao(path):
            return f"exec:1s {os.environ['BAO']} kv get -mount=secret -field=token {path}"

        with_token = {"BAO_ADDR": bao.url, "BAO_TOKEN": ROOT_TOKEN}
        one = gateway("token", of_bao("wiki"), with_token)
        check("a secret is read", "key=first-key" in one.key(), one.key())

        bao.write("secret/data/wiki", {"data": {"token": "second-key"}})
        before = McpServer.handshakes
        deadline = time.monotonic() + PATIENCE_S
        while "key=second-key" not in one.key():
            assert time.monotonic() < deadline, one.key()
            time.sleep(0.1)
        print("ok  it is read again after its time")
        shown = one.process.log.read_text()
        check("no secret is in the log", "first-key" not in shown and ROOT_TOKEN not in shown)
        check("the server was not replaced", McpServer.handshakes == before)

        for name, path, environment, why in [
            ("absent", "none", with_token, "No value found"),
            ("refused", "wiki", {**with_token, "BAO_TOKEN": "wrong"}, "ended with"),
        ]:
            failing = gateway(name, of_bao(path), environment)
            answer, log = failing.key(), failing.process.log.read_text()
            check(f"{name}: the server alone is not used, and the log says why", "key=" not in answer and why in log, log)

        stored = subprocess.run(
            ["secret-tool", "store", "--label=wiki", "service", "wiki", "username", "token"], input=b"key-of-the-ring", check=False
        )
        check("the keyring of the test takes a secret", stored.returncode == 0)
        ring = gateway("keyring", "keyring:wiki/token", {})
        check("a secret is read from the keyring", "key=key-of-the-ring" in ring.key(), ring.key() + ring.process.log.read_text())
        check_sealing_key(folder)
    finally:
        for process in reversed(processes):
            process.end()


def check_sealing_key(folder):
    """The key that encrypts what users grant, which is in the keyring if there was one before anything was kept."""
    away = {"DBUS_SESSION_BUS_ADDRESS": "unix:path=/dev/null"}

    def said(name, environment):
        config = folder / f"{name}.yaml"
        config.write_text(
            f"stateDir: {folder / name}\nmcpServers:\n  notes: {{url: 'http://127.0.0.1:9/mcp', auth: {{type: user}}}}\n"
        )
        ran = subprocess.run(
            [fanlight_binary(), "check", "--config", str(config)],
            env={**os.environ, **environment}, capture_output=True, text=True, timeout=PATIENCE_S, check=False,
        )
        return ran.stdout + ran.stderr

    first = said("in-keyring", {})
    check("what users grant is encrypted with a key in the keyring", "with a key in the system's keyring" in first, first)
    without = said("in-keyring", away)
    check("without the keyring, there is no other key", "is in the system's keyring" in without and "unlock" in without, without)
    again = said("in-keyring", {})
    check("with the keyring, it is there again", "with a key in the system's keyring" in again, again)
    first = said("in-file", away)
    check("where there is no keyring, the key is in a file", "in-file/key" in first, first)
    again = said("in-file", {})
    check("a command that has kept nothing does not decide that", "with a key in the system's keyring" in again, again)


if __name__ == "__main__":
    main()
