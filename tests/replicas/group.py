#!/usr/bin/env python3
"""Three replicas of Fanlight behind nginx that take the arguments of one `fanlight run`: see as-one.

nginx is configured as in docs/replicas.md: round robin, so that a session's requests and a suspended call's retries reach other
replicas than their owner.
"""

import ctypes
import json
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs/replicas.md"
BINARY = os.environ["FANLIGHT_REPLICA"]
REPLICAS = 3
PATIENCE_S = 30
END_WITH_PARENT = 1  # PR_SET_PDEATHSIG of prctl(2)
LIBC = ctypes.CDLL(None)


def main():
    arguments = sys.argv[1:]
    if arguments[0] != "run":
        # Over stdio, each client has one process.
        os.execv(BINARY, [BINARY, *arguments])
    ending = []
    for name in (signal.SIGTERM, signal.SIGINT):
        signal.signal(name, lambda *_: ending.append(True))
    with tempfile.TemporaryDirectory(prefix="fanlight-group-") as folder:
        return serve(Path(folder), arguments, ending)


def serve(folder, arguments, ending):
    config = json.loads(Path(arguments[arguments.index("--config") + 1]).read_text())
    logging = arguments[arguments.index("--log") :][:2] if "--log" in arguments else []
    certify(folder)
    valkey = free_port()
    background = [start(folder, "valkey", [os.environ["VALKEY_SERVER"], "--port", str(valkey), "--save", "", "--dir", str(folder)])]
    listens(valkey)
    replicas = [replica(folder, f"replica-{n}", config, valkey, logging) for n in range(REPLICAS)]
    clients = [address(one, r"listening on http://([\d.]+:\d+)") for one in replicas]
    operators = [address(one, r"admin on http://([\d.]+:\d+)") for one in replicas]
    for admin in operators:
        until(f"{admin} to know the others", lambda: f"fanlight_replicas {REPLICAS}" in fetched(f"http://{admin}/metrics"))
    # The test itself decides whether the servers are there.
    until("the replicas to be ready", lambda: all(fetched(f"http://{admin}/readyz") for admin in operators), fails=False)
    listen = free_port()
    background.append(nginx(folder, listen, clients))
    listens(listen)
    print(f"listening on http://127.0.0.1:{listen}/mcp\nadmin on http://{operators[0]}", flush=True)
    while not ending and all(one.process.poll() is None for one in replicas):
        time.sleep(0.05)
    statuses = [one.end() for one in replicas]
    for one in reversed(background):
        one.end()
    for one in replicas:
        # The complete log, which the test shows.
        print(f"--- {one.name}, ended with {one.process.returncode}\n{one.log.read_text(errors='replace')}", flush=True)
    return max(statuses, key=abs)


class Running:
    """A process that ends with this one. Its own session keeps signals to this process group away from it."""

    def __init__(self, name, process, log):
        self.name, self.process, self.log = name, process, log

    def end(self):
        self.process.terminate()
        try:
            return self.process.wait(PATIENCE_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            return self.process.wait()


def start(folder, name, command):
    log = folder / f"{name}.log"
    process = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=log.open("w"),
        stderr=subprocess.STDOUT,
        start_new_session=True,
        preexec_fn=lambda: LIBC.prctl(END_WITH_PARENT, signal.SIGKILL),
    )
    return Running(name, process, log)


def replica(folder, name, config, valkey, logging):
    tls = {"cert": f"{folder}/cert.pem", "key": f"{folder}/key.pem", "clientCa": f"{folder}/ca.pem"}
    shared = {"valkey": f"valkey://127.0.0.1:{valkey}", "listen": f"127.0.0.1:{free_port()}", "tls": tls}
    path = folder / f"{name}.json"
    path.write_text(json.dumps({**config, "keys": ["ab" * 32], "replicas": shared}))
    anywhere = "127.0.0.1:0"
    return start(folder, name, [BINARY, "run", "--config", str(path), "--listen", anywhere, "--admin", anywhere, *logging])


def nginx(folder, listen, clients):
    """nginx as configured on the page, except for addresses and TLS."""
    block = re.search(r"^```nginx\b[^\n]*\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL).group(1)
    for n, client in enumerate(clients, 1):
        block = block.replace(f"10.0.0.{n}:8080", client)
    block = block.replace("listen 443 ssl;", f"listen 127.0.0.1:{listen};")
    block = re.sub(r"^ *ssl_certificate.*\n", "", block, flags=re.MULTILINE)
    temporary = " ".join(f"{kind}_temp_path {folder}/{kind};" for kind in ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"])
    path = folder / "nginx.conf"
    path.write_text(
        f"daemon off; master_process off; pid {folder}/nginx.pid; events {{ worker_connections 1024; }}\n"
        f"http {{ access_log off; {temporary}\n{block} }}\n"
    )
    return start(folder, "nginx", ["/usr/sbin/nginx", "-c", str(path), "-e", "stderr"])


def certify(folder):
    """An authority for the replicas, and one certificate for all of them."""

    def openssl(*arguments):
        subprocess.run(["openssl", *arguments], cwd=folder, check=True, capture_output=True)

    new_key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"]
    openssl("req", "-x509", *new_key, "-days", "2", "-subj", "/CN=replicas", "-keyout", "ca.key", "-out", "ca.pem")
    openssl("req", *new_key, "-subj", "/CN=replica", "-keyout", "key.pem", "-out", "request.pem")
    (folder / "names").write_text("subjectAltName=DNS:localhost,IP:127.0.0.1\n")
    by = ["-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial", "-days", "2", "-extfile", "names"]
    openssl("x509", "-req", "-in", "request.pem", *by, "-out", "cert.pem")


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def listens(port):
    def connects():
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", port)) == 0

    until(f"port {port}", connects)


def address(one, pattern):
    found = []

    def is_said():
        assert one.process.poll() is None, f"{one.name} has ended:\n{one.log.read_text()}"
        found[:] = re.findall(pattern, one.log.read_text(errors="replace"))
        return bool(found)

    until(f"{one.name} to listen", is_said)
    return found[0]


def fetched(url):
    """The text at a URL; empty unless the status is 200."""
    try:
        with urllib.request.urlopen(url, timeout=2) as answer:
            return answer.read().decode()
    except (urllib.error.URLError, OSError):
        return ""


def until(what, holds, fails=True):
    deadline = time.monotonic() + PATIENCE_S
    while not holds():
        if time.monotonic() > deadline:
            assert not fails, f"waited too long for {what}"
            return
        time.sleep(0.05)


sys.exit(main())
