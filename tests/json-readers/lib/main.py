"""Calls with doubled, renamed and escaped members, and the servers' readings of calls that pass: see ../README.md."""
import itertools
import json
import os
import shutil
import subprocess
import sys
import tempfile
import urllib.error
import urllib.request
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[2]
FANLIGHT = os.environ.get("FANLIGHT_BIN", str(ROOT / "target/release/fanlight"))
JARS = [f"/usr/share/java/jackson-{part}.jar" for part in ("core", "annotations", "databind")]
POLICY = """
permit(principal, action, resource);
forbid(principal, action, resource) when { resource.name == "shut" };
forbid(principal, action == Action::"call", resource) when {
  context.arguments has disk && context.arguments.disk like "/etc*"
};
"""

# Spellings of a name that some reader takes for the name: letters that fold to others, and escapes,
# which mean the same text.
FOLDED = {
    "name": ["name", "Name", "NAME", "ｎame", "nam\\u0065", "na\\u006De", " name", "name\\u0000"],
    "arguments": ["arguments", "Arguments", "argumentſ", "argument\\u017f", "ARGUMENTS", "\\u0061rguments"],
    "disk": ["disk", "Disk", "DISK", "diſk", "dis\\u212a", "diſ\\u212a", "\\u0064isk", "ｄｉｓｋ", "ḋisk"],
}
TOOLS = ["look", "shut", "sh\\u0075t", "Shut", "ſhut"]
DISKS = ["/data", "/etc/passwd", "\\/etc\\/passwd", "/\\u0065tc/passwd"]


def bodies():
    """Calls, the plain ones first: each is the text of `params` without its braces."""
    def call(members):
        return ",".join(f'"{name}":{value}' for name, value in members)

    def arguments(members):
        return "{" + call([(name, f'"{disk}"') for name, disk in members]) + "}"

    yield call([("name", '"look"'), ("arguments", arguments([("disk", "/data")]))])
    yield call([("name", '"look"'), ("arguments", "{}")])
    for spelling, disk in itertools.product(FOLDED["disk"], DISKS):
        yield call([("name", '"look"'), ("arguments", arguments([(spelling, disk)]))])
        for first in ([("disk", "/data"), (spelling, disk)], [(spelling, disk), ("disk", "/data")]):
            yield call([("name", '"look"'), ("arguments", arguments(first))])
    for spelling, tool in itertools.product(FOLDED["name"], TOOLS):
        own, other = ("name", '"look"'), (spelling, f'"{tool}"')
        for members in ([other], [own, other], [other, own]):
            yield call([*members, ("arguments", "{}")])
    evil = arguments([("disk", "/etc/passwd")])
    for spelling in FOLDED["arguments"]:
        own, other = ("arguments", arguments([("disk", "/data")])), (spelling, evil)
        for members in ([other], [own, other], [other, own]):
            yield call([("name", '"look"'), *members])
    for odd in ('["/etc"]', '{"disk":"/etc"}', "null", "1", "true", '"/etc"'):
        yield f'"name":"look","arguments":{{"disk":{odd}}}'
        yield f'"name":"look","arguments":{odd}'


def readers(folder):
    """The command of each reader that can be tried here."""
    found = {"python": [sys.executable, str(HERE / "reader.py")], "javascript": ["node", str(HERE / "reader.mjs")]}
    if shutil.which("go"):
        build = ["go", "build", "-o", str(folder / "reader-go"), str(HERE / "reader.go")]
        environment = {**os.environ, "GOFLAGS": "-mod=mod", "GO111MODULE": "off", "GOCACHE": str(folder / "go")}
        subprocess.run(build, check=True, env=environment)
        found["go"] = [str(folder / "reader-go")]
    if shutil.which("javac") and all(Path(jar).exists() for jar in JARS):
        path = ":".join([*JARS, str(folder)])
        subprocess.run(["javac", "-cp", path, "-d", str(folder), str(HERE / "Reader.java")], check=True)
        found["jackson"] = ["java", "-cp", path, "Reader"]
        found["jackson that folds"] = ["java", "-cp", path, "Reader", "fold"]
    for missing in {"go", "jackson"} - set(found):
        print(f"NOT TRIED: {missing}, which is not on this machine")
    return found


class Gateway:
    """Fanlight in front of one reader, and a session of a client with it."""

    def __init__(self, folder, command):
        (folder / "p.cedar").write_text(POLICY)
        config = {"listen": "127.0.0.1:0", "admin": {"listen": "127.0.0.1:0"}, "policy": {"files": ["p.cedar"]},
                  "mcpServers": {"reader": {"command": command[0], "args": command[1:]}}}
        (folder / "fanlight.json").write_text(json.dumps(config))
        self.process = subprocess.Popen([FANLIGHT, "run", "--config", str(folder / "fanlight.json")], stdout=subprocess.PIPE,
                                        stderr=subprocess.DEVNULL, text=True, cwd=folder)
        line = next(line for line in self.process.stdout if line.startswith("listening on "))
        self.url, self.session = line.split()[2], None
        text = ('{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},'
                '"clientInfo":{"name":"test","version":"1"}}}')
        self.send(text)
        self.send('{"jsonrpc":"2.0","method":"notifications/initialized"}')

    def send(self, text):
        headers = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}
        if self.session:
            headers |= {"Mcp-Session-Id": self.session, "MCP-Protocol-Version": "2025-11-25"}
        request = urllib.request.Request(self.url, text.encode(), headers)
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                self.session = self.session or answer.headers.get("Mcp-Session-Id")
                body = answer.read().decode()
        except urllib.error.HTTPError as error:
            body = error.read().decode()
        data = [line.removeprefix("data: ") for line in body.splitlines() if line.startswith("data: {")]
        return json.loads(data[-1] if data else body or "null")

    def stop(self):
        self.process.terminate()
        self.process.wait(timeout=30)


def is_permitted(seen):
    """Whether the policy permits the call that a server has read."""
    return seen["name"] == "look" and not str(seen["disk"] or "").startswith("/etc")


def check(name, command, folder):
    """Sends all calls to one reader; returns what is wrong."""
    gateway, wrong, passed = Gateway(folder, command), [], 0
    try:
        for number, params in enumerate(bodies()):
            answer = gateway.send(f'{{"jsonrpc":"2.0","id":{number + 1},"method":"tools/call","params":{{{params}}}}}')
            content = (answer or {}).get("result", {}).get("content")
            if content:
                passed += 1
                seen = json.loads(content[0]["text"])
                if not is_permitted(seen):
                    wrong.append(f"{name} has read {seen} of {params}")
            elif number < 2:
                wrong.append(f"{name}: a plain call does not pass: {answer}")
    finally:
        gateway.stop()
    print(f"{name}: {passed} of {number + 1} calls have passed, {len(wrong)} of them otherwise than decided")
    return wrong


def main():
    wrong = []
    with tempfile.TemporaryDirectory() as built:
        for name, command in readers(Path(built)).items():
            with tempfile.TemporaryDirectory() as folder:
                wrong += check(name, command, Path(folder))
    print(*wrong, sep="\n")
    sys.exit(bool(wrong))


main()
