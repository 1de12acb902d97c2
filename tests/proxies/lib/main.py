"""Fanlight behind nginx and HAProxy: see README.md."""

import getpass
import grp
import json
import os
import shutil
import subprocess
import sys
import tempfile
import urllib.request
from pathlib import Path

from client import ADDRESS, HOST, Client, events
from guide import blocks, replaced
from processes import Process, fanlight_binary, free_port

# The pause between two progress reports; the client must see most of it.
PAUSE_MS = 300


def gateway(name, folder):
    """Starts a gateway with the demo servers, as the guide configures it; returns its ports for clients and operators."""
    binary = json.dumps(fanlight_binary())
    port, admin = free_port(), free_port()
    path = folder / f"{name}.yaml"
    path.write_text(
        f"""
listen: 127.0.0.1:{port}
admin: {{listen: "127.0.0.1:{admin}"}}
publicUrl: https://{HOST}
trustedProxies: [127.0.0.1]
keys: ["{'ab' * 32}"]
mcpServers:
  library: {{command: {binary}, args: [demo-server, legacy]}}
  workshop: {{command: {binary}, args: [demo-server, modern]}}
"""
    )
    return Process(name, [fanlight_binary(), "run", "--config", str(path)], folder, port), port, admin


def certify(folder):
    """A certificate of the guide's host, alone and with its key in one file."""
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2"]
        + ["-subj", f"/CN={HOST}", "-addext", f"subjectAltName=DNS:{HOST}", "-keyout", "mcp.key", "-out", "cert.pem"],
        cwd=folder,
        check=True,
        capture_output=True,
    )
    both = (folder / "cert.pem").read_text() + (folder / "mcp.key").read_text()
    (folder / "mcp.pem").write_text(both)
    return str(folder / "cert.pem")


def nginx(folder, ports):
    listen = free_port()
    server = replaced(
        blocks("nginx")[0],
        ("listen 443 ssl", f"listen 127.0.0.1:{listen} ssl"),
        ("/etc/ssl/mcp.pem", f"{folder}/cert.pem"),
        ("/etc/ssl/mcp.key", f"{folder}/mcp.key"),
        ("127.0.0.1:8080", f"127.0.0.1:{ports[0]}"),
    )
    temporary = "\n".join(f"{kind}_temp_path {folder}/{kind};" for kind in ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"])
    user = f"{getpass.getuser()} {grp.getgrgid(os.getgid()).gr_name}"
    path = folder / "nginx.conf"
    path.write_text(
        f"daemon off;\nuser {user};\npid {folder}/nginx.pid;\nevents {{}}\nhttp {{\naccess_log off;\n{temporary}\n{server}\n}}\n"
    )
    return Process("nginx", ["/usr/sbin/nginx", "-c", str(path), "-e", "stderr"], folder, listen), listen


def haproxy(name, folder, backend, pairs):
    listen = free_port()
    frontend = replaced(
        blocks("haproxy")[0].split("\nbackend ")[0],
        ("bind :443", f"bind 127.0.0.1:{listen}"),
        ("/etc/haproxy/mcp.pem", f"{folder}/mcp.pem"),
    )
    path = folder / f"{name}.cfg"
    path.write_text(f"{frontend}\n{replaced(backend, *pairs)}\n")
    return Process(name, ["/usr/sbin/haproxy", "-db", "-f", str(path)], folder, listen), listen


def check_call(client, _):
    response = client.call("workshop__convert_units", {"value": 1, "from": "km", "to": "m"})
    text = response.read().decode()
    assert response.status == 200 and '"value":1000' in text.replace(" ", ""), (response.status, text)


def check_metadata(client, _):
    """Checks that Fanlight answers below `/.well-known`: without `auth.oauth` with its own 404."""
    response = client.request("GET", "/.well-known/oauth-protected-resource/mcp")
    assert response.status == 404 and response.headers["Content-Type"] == "application/json", response.headers


def check_stream(client, _):
    arguments = {"to": 3, "delay_ms": PAUSE_MS}
    response = client.call("library__slow_count", arguments, {"progressToken": "p"})
    arrived = events(response)
    methods = [message.get("method", "response") for _, message in arrived]
    assert methods.count("notifications/progress") == 3 and methods[-1] == "response", methods
    passed = arrived[-1][0] - arrived[0][0]
    assert passed > PAUSE_MS / 1000, f"the events arrived together, within {passed:.3f} s"


def check_address(client, admin):
    client.call("workshop__roll_dice", {}, X_Forwarded_For="192.0.2.7").read()
    with urllib.request.urlopen(f"http://127.0.0.1:{admin}/api/traces?tool=workshop__roll_dice&limit=1") as answer:
        trace = json.load(answer)["traces"][0]["traceId"]
    with urllib.request.urlopen(f"http://127.0.0.1:{admin}/api/traces/{trace}") as answer:
        text = json.dumps(json.load(answer))
    assert ADDRESS in text and "192.0.2.7" not in text, text


def check_host(client, _):
    response = client.request("POST", "/mcp", {}, host="attacker.example")
    response.read()
    assert response.status == 403, response.status


CHECKS = {
    "a call is answered": check_call,
    "what is below /.well-known passes": check_metadata,
    "progress arrives while the call runs": check_stream,
    "the trace has the client's address": check_address,
    "another host is refused": check_host,
}


def check_sessions(client):
    """Checks that each of ten sessions is found again; each gateway has some of them."""
    sessions = [client.open_session() for _ in range(10)]
    statuses = [client.in_session(session) for session in sessions for _ in range(3)]
    assert set(statuses) == {200}, statuses


def main():
    folder = Path(tempfile.mkdtemp(prefix="fanlight-proxies-"))
    processes, passed, failed = [], 0, 0

    def check(what, one, *arguments):
        nonlocal passed, failed
        try:
            one(*arguments)
            passed += 1
            print(f"ok      {what}")
        except Exception as error:  # noqa: BLE001, each failure is reported, and the others are tried
            failed += 1
            print(f"FAILED  {what}: {type(error).__name__}: {error}")

    try:
        ca_file = certify(folder)
        gateways = [gateway(name, folder) for name in ["one", "two"]]
        processes += [process for process, _, _ in gateways]
        ports, admins = [port for _, port, _ in gateways], [admin for _, _, admin in gateways]
        single, several = blocks("haproxy")[0].split("\n\n")[1], blocks("haproxy")[1]
        first = ("127.0.0.1:8080", f"127.0.0.1:{ports[0]}")
        both = [first, ("127.0.0.1:8090", f"127.0.0.1:{ports[1]}"), ("port 8081", f"port {admins[0]}"), ("port 8091", f"port {admins[1]}")]
        proxies = {
            "nginx": nginx(folder, ports),
            "haproxy": haproxy("haproxy", folder, single, [first]),
        }
        pair = haproxy("haproxy-two", folder, several, both)
        processes += [process for process, _ in [*proxies.values(), pair]]
        for name, (_, port) in proxies.items():
            for what, one in CHECKS.items():
                check(f"{name}: {what}", one, Client(port, ca_file), admins[0])
        check("haproxy: sessions of two gateways", check_sessions, Client(pair[1], ca_file))
    finally:
        for process in reversed(processes):
            process.end()
        if os.environ.get("KEEP_WORK") or failed:
            print(f"logs and configurations are in {folder}")
        else:
            shutil.rmtree(folder)
    print(f"{passed} passed, {failed} failed")
    return 1 if failed else 0


sys.exit(main())
