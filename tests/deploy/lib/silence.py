"""Healthy servers of each kind raise no alert: their metrics, growing as they did, are given to promtool with deploy/alerts.yaml."""

import json
import os
import pathlib
import re
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request

FANLIGHT, PROMTOOL, ALERTS = sys.argv[1:]
META = {"io.modelcontextprotocol/protocolVersion": "2026-07-28", "io.modelcontextprotocol/clientCapabilities": {}}


def port():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


def fetch(at, path, body=None, headers=None):
    request = urllib.request.Request(f"http://127.0.0.1:{at}{path}", body, headers or {})
    try:
        return urllib.request.urlopen(request, timeout=30).read().decode()
    except urllib.error.HTTPError as error:
        return error.read().decode()


def call(at, tool):
    params = {"name": tool, "arguments": {}, "_meta": META}
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}).encode()
    headers = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream",
               "MCP-Protocol-Version": "2026-07-28", "Mcp-Method": "tools/call", "Mcp-Name": tool}
    return fetch(at, "/mcp", body, headers)


def samples(at):
    """The value of each series of /metrics, by its name with labels."""
    lines = fetch(at, "/metrics").splitlines()
    pairs = (line.rsplit(" ", 1) for line in lines if not line.startswith("#"))
    return {series: float(value) for series, value in pairs}


def start(folder, config, ports):
    clients, operators = ports
    config |= {"listen": f"127.0.0.1:{clients}", "admin": {"listen": f"127.0.0.1:{operators}"}, "stateDir": str(folder / str(clients))}
    path = folder / f"{clients}.json"
    path.write_text(json.dumps(config))
    process = subprocess.Popen([FANLIGHT, "run", "--config", path], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    for _ in range(600):
        try:
            if '"ready":true' in fetch(operators, "/readyz"):
                return process
        except OSError:
            pass
        time.sleep(0.1)
    raise AssertionError("the gateway is not ready")


def main():
    folder = pathlib.Path(tempfile.mkdtemp())
    of_demo = lambda era, **more: {"command": FANLIGHT, "args": ["demo-server", era], **more}
    web, gateway = (port(), port()), (port(), port())
    processes = []
    try:
        processes.append(start(folder, {"mcpServers": {"only": of_demo("legacy", session="shared")}}, web))
        url = f"http://127.0.0.1:{web[0]}/mcp"
        servers = {
            "legacy": of_demo("legacy"), "modern": of_demo("modern"), "shared": of_demo("legacy", session="shared"),
            "web": {"url": url}, "of-users": {"url": url, "auth": {"type": "userKey", "header": "X-Key"}},
        }
        processes.append(start(folder, {"mcpServers": servers}, gateway))
        first = samples(gateway[1])
        for _ in range(5):
            for name in servers:
                call(gateway[0], f"{name}__none")
        then = samples(gateway[1])
    finally:
        for process in processes:
            process.terminate()
            process.wait()
    up = {name: then.get(f'fanlight_backend_up{{fanlight_backend_name="{name}"}}') for name in servers}
    assert all(value == 1 for value in up.values()), up

    def values(series, value):
        growth = value - first.get(series, 0) if re.match(r"\w+_(count|bucket|sum|total)\b", series) else 0
        return {"series": re.sub(r"\{|$", '{instance="i",job="fanlight",', series, count=1).removesuffix(",") + ("" if "{" in series else "}"),
                "values": f"{value}+{growth}x30"}

    names = re.findall(r"- alert: (\w+)", pathlib.Path(ALERTS).read_text())
    quiet = [{"eval_time": "25m", "alertname": name, "exp_alerts": []} for name in names]
    series = [values(*one) for one in then.items()] + [{"series": 'up{job="fanlight",instance="i"}', "values": "1x30"}]
    rules = {"rule_files": [os.path.realpath(ALERTS)], "evaluation_interval": "1m",
             "tests": [{"interval": "1m", "input_series": series, "alert_rule_test": quiet}]}
    path = folder / "silence.yaml"
    path.write_text(json.dumps(rules))
    subprocess.run([PROMTOOL, "test", "rules", path], check=True)


main()
