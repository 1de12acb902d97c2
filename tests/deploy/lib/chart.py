"""Checks the Helm chart: lints it, renders it with its defaults and with everything enabled, checks the result against the schemas
of Kubernetes, and compares it with the plain manifests. It does the same with each block of values in docs/guides/kubernetes.md;
the second block is the chart's file for several replicas. The program (FANLIGHT_BIN) reads each rendered configuration.

    chart.py CHART MANIFESTS            # MANIFESTS is the file with the plain manifests
    chart.py --write CHART MANIFESTS    # writes it
"""

import copy
import http.server
import json
import logging
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import threading
import tomllib

import helm_python as helm
import kubernetes_validate
import yaml

logging.getLogger("kubernetes-validate").setLevel(logging.ERROR)

# The oldest supported version, which has every field of the chart, and the newest known version.
VERSIONS = ["1.30", "1.37"]

ROOT = pathlib.Path(__file__).parents[3]
PROGRAM = os.environ.get("FANLIGHT_BIN", ROOT / "target/release/fanlight")
GUIDE = pathlib.Path(__file__).parents[3] / "docs/guides/kubernetes.md"

# Kinds of other projects, whose schemas are not part of Kubernetes.
FOREIGN = {"HTTPRoute", "PrometheusRule", "ServiceMonitor"}

REPLICA_TLS = {"cert": "/etc/replicas/tls.crt", "key": "/etc/replicas/tls.key", "clientCa": "/etc/replicas/ca.crt"}

EVERYTHING = {
    "replicaCount": 2,
    "config": {
        "auth": {"keys": {"file": "keys.yaml"}},
        "publicUrl": "https://mcp.example.com",
        "keys": ["${FANLIGHT_SEAL}"],
        "replicas": {"valkey": "${VALKEY_URL}", "listen": "${POD_IP}:8443", "tls": REPLICA_TLS},
        "admin": {"token": "is replaced", "listen": "127.0.0.1:1", "roles": {"viewer": ["user:key#prometheus"]}},
        "listen": "127.0.0.1:2",
        "policy": {"files": ["team.cedar"]},
        "pins": {"mode": "hold"},
        "hooks": [{"url": "http://127.0.0.1:9090/judge"}],
        "mcpServers": {"everything": {"url": "http://everything:3001/mcp"}},
    },
    "files": {
        "keys.yaml": f"keys:\n  - name: prometheus\n    sha256: {'ab' * 32}\n",
        "team.cedar": "permit (principal, action, resource);\n",
        "fanlight.lock.json": '{"version": 1, "servers": {}}\n',
    },
    "persistence": {"enabled": True, "size": "2Gi", "storageClass": "fast"},
    "admin": {"existingSecret": "operators", "secretKey": "admin", "service": {"port": 9081, "annotations": {"a": "b"}}},
    "service": {"type": "LoadBalancer", "port": 8000, "sessionAffinity": "None", "annotations": {"a": "b"}},
    "serviceAccount": {"name": "gateway", "annotations": {"a": "b"}},
    "envFrom": [{"secretRef": {"name": "fanlight-secrets"}}],
    "env": [{"name": "RUST_LOG", "value": "info"}],
    "imagePullSecrets": [{"name": "registry"}],
    "priorityClassName": "high",
    "podAnnotations": {"a.example/b": "c"},
    "podLabels": {"team": "platform"},
    "nodeSelector": {"kubernetes.io/arch": "amd64"},
    "tolerations": [{"key": "dedicated", "operator": "Exists"}],
    "affinity": {"nodeAffinity": {}},
    "topologySpreadConstraints": [
        {"maxSkew": 1, "topologyKey": "kubernetes.io/hostname", "whenUnsatisfiable": "ScheduleAnyway"}
    ],
    "extraVolumes": [{"name": "keys", "secret": {"secretName": "fanlight-keys"}}],
    "extraVolumeMounts": [{"name": "keys", "mountPath": "/etc/keys", "readOnly": True}],
    "autoscaling": {"enabled": True},
    "podDisruptionBudget": {"enabled": True},
    "networkPolicy": {
        "enabled": True,
        "clients": [{"namespaceSelector": {}}],
        "operators": [{"podSelector": {"matchLabels": {"app": "prometheus"}}}],
        "egress": [{"to": [{"ipBlock": {"cidr": "10.0.0.0/8"}}]}],
    },
    "serviceMonitor": {"enabled": True, "labels": {"release": "prometheus"}, "credentials": {"name": "scrape", "key": "key"}},
    "prometheusRule": {"enabled": True, "labels": {"release": "prometheus"}},
    "dashboard": {"enabled": True},
    "ingress": {
        "enabled": True,
        "className": "nginx",
        "annotations": {"nginx.ingress.kubernetes.io/proxy-buffering": "off"},
        "hosts": ["mcp.example.com"],
        "tls": [{"hosts": ["mcp.example.com"], "secretName": "mcp-tls"}],
    },
    "httpRoute": {"enabled": True, "parentRefs": [{"name": "public"}], "hostnames": ["mcp.example.net", "*.example.org"]},
}

# The minimal values of the chart.
UNAUTHENTICATED = {"config": {"auth": "none", "mcpServers": {"everything": {"url": "http://everything:3001/mcp"}}}}

HEAD = """# Fanlight in Kubernetes without Helm: what the chart in deploy/helm renders for `auth: none`. Made by
# `tests/deploy/run --write`. Put a token into the Secret, your servers and namespace into the ConfigMap, and replace `auth: none`
# there unless everyone who reaches the service may call every tool.
"""


def fail(message):
    sys.exit(f"chart: {message}")


def check_version(folder):
    """The chart has the version of the program, which is the tag of the image that it runs."""
    cargo = tomllib.loads((pathlib.Path(__file__).parents[3] / "Cargo.toml").read_text())
    version = cargo["workspace"]["package"]["version"]
    chart = yaml.safe_load((pathlib.Path(folder) / "Chart.yaml").read_text())
    if (chart["version"], chart["appVersion"]) != (version, version):
        fail(f"Chart.yaml has not the version of Cargo.toml, {version}: see CONTRIBUTING.md, Releases")


def render(chart, values):
    """The manifests by kind, and by kind and name for the second one of a kind, such as `Service-admin`."""
    files = chart.render(values, name="fanlight", namespace="default", is_install=True)
    return by_kind(text for path, text in files.items() if not path.endswith(".txt"))


def by_kind(texts):
    manifests = {}
    for document in (one for text in texts for one in yaml.safe_load_all(text) if one):
        name = re.search("-(admin|dashboard)$", document["metadata"]["name"])
        manifests[document["kind"] + (name[0] if name else "")] = document
    return manifests


def check(manifests, what):
    """Checks the manifests against their schemas, and has the program read the configuration."""
    for kind, manifest in manifests.items():
        if manifest["kind"] in FOREIGN:
            continue
        for version in VERSIONS:
            try:
                kubernetes_validate.validate(copy.deepcopy(manifest), version, strict=True)
            except kubernetes_validate.ValidationError as error:
                fail(f"{what}: {kind} is not valid in Kubernetes {version}: {error.message}")
    with tempfile.TemporaryDirectory() as folder:
        for name, text in (EVERYTHING["files"] | manifests["ConfigMap"]["data"]).items():
            # The guide's keys are on a volume of their own.
            (pathlib.Path(folder) / name).write_text(text.replace("/etc/fanlight-keys/", ""))
        variables = {
            "FANLIGHT_ADMIN_TOKEN": "a" * 48, "FANLIGHT_SEAL": "ab" * 32, "POD_IP": "10.0.0.1", "SEARCH_TOKEN": "x",
            "VALKEY_URL": "valkey://valkey",
        }
        run = subprocess.run(
            [PROGRAM, "validate", "--config", f"{folder}/fanlight.yaml"], env=os.environ | variables, capture_output=True, text=True,
        )
        if run.returncode != 0:
            fail(f"{what}: the program refuses the configuration:\n{run.stdout}{run.stderr}")


def check_everything(manifests):
    kinds = {
        "ConfigMap", "ConfigMap-dashboard", "HTTPRoute", "HorizontalPodAutoscaler", "Ingress", "NetworkPolicy", "PodDisruptionBudget",
        "PrometheusRule", "Service", "Service-admin", "ServiceAccount", "ServiceMonitor", "StatefulSet",
    }
    if set(manifests) != kinds:
        fail(f"with everything switched on there are {sorted(manifests)}")
    config = yaml.safe_load(manifests["ConfigMap"]["data"]["fanlight.yaml"])
    roles = EVERYTHING["config"]["admin"]["roles"]
    if (config["listen"], config["admin"]) != (
        "0.0.0.0:8080", {"listen": "0.0.0.0:8081", "token": "${FANLIGHT_ADMIN_TOKEN}", "roles": roles},
    ):
        fail(f"the chart does not decide where Fanlight listens: {config}")
    if not {"fanlight.default.svc", "mcp.example.com", "mcp.example.net"} <= set(config["allowedHosts"]):
        fail(f"names of the Service or the routes are refused: {config['allowedHosts']}")
    workload = manifests["StatefulSet"]["spec"]
    if "replicas" in workload:
        fail("the StatefulSet sets a number of replicas against the autoscaler")
    if manifests["HorizontalPodAutoscaler"]["spec"]["scaleTargetRef"]["kind"] != "StatefulSet":
        fail("the autoscaler scales no StatefulSet")
    if workload["serviceName"] != manifests["Service-admin"]["metadata"]["name"]:
        fail("the StatefulSet names no Service")
    container = workload["template"]["spec"]["containers"][0]
    check_state(config, container, [claim["metadata"]["name"] for claim in workload["volumeClaimTemplates"]])
    check_monitoring(manifests)
    context = container["securityContext"]
    if not context["readOnlyRootFilesystem"] or context["capabilities"]["drop"] != ["ALL"]:
        fail("the container may do more than it needs")
    policy = manifests["NetworkPolicy"]["spec"]
    if policy["ingress"][1]["from"][0]["podSelector"]["matchLabels"] != {"app": "prometheus"}:
        fail("operators cannot reach the admin port")
    if not any(rule["ports"] == [{"port": "admin"}] and "namespaceSelector" in rule["from"][0] for rule in policy["ingress"]):
        fail("Prometheus cannot reach the admin port")
    replicas, link = [{"podSelector": policy["podSelector"]}], [{"port": 8443}]
    for direction, peers in (("ingress", "from"), ("egress", "to")):
        if {"ports": link, peers: replicas} not in policy[direction]:
            fail(f"the network policy keeps replicas from each other: {direction}")


def check_state(config, container, volumes):
    """Checks that state, and with it the audit log, is on one of these volumes, and that the process has a HOME there."""
    mounts = [mount["mountPath"] for mount in container["volumeMounts"] if mount["name"] in volumes and not mount.get("readOnly")]
    home = {one["name"]: one.get("value") for one in container["env"]}["HOME"]
    for path in (config["stateDir"], f"{home}/."):
        if not any(path.startswith(f"{mount}/") for mount in mounts):
            fail(f"no writable volume of {volumes} has {path}")


def check_monitoring(manifests):
    """Checks that only the admin Service has the admin port, that its metrics are read by a viewer, and that the rules are ours."""
    ports = [[port["name"] for port in manifests[kind]["spec"]["ports"]] for kind in ("Service", "Service-admin")]
    if ports != [["mcp"], ["admin"]]:
        fail(f"the ports of the Services are {ports}")
    monitor = manifests["ServiceMonitor"]["spec"]
    labels = manifests["Service-admin"]["metadata"]["labels"]
    selected = monitor["selector"]["matchLabels"].items()
    if not selected <= labels.items() or selected <= manifests["Service"]["metadata"]["labels"].items():
        fail("the ServiceMonitor does not select the admin Service alone")
    if monitor["endpoints"][0]["authorization"]["credentials"] != EVERYTHING["serviceMonitor"]["credentials"]:
        fail("the ServiceMonitor does not read as a viewer")
    if manifests["PrometheusRule"]["spec"] != yaml.safe_load((ROOT / "deploy/alerts.yaml").read_text()):
        fail("the PrometheusRule is not alerts.yaml")
    dashboard = json.loads(manifests["ConfigMap-dashboard"]["data"]["fanlight.json"])
    if dashboard != json.loads((ROOT / "deploy/grafana-dashboard.json").read_text()):
        fail("the ConfigMap is not the dashboard")


def check_token(folder):
    """Checks against an API server which admin token an installation gets: a random one, or the one that is there."""
    secrets = []

    def kinds(version, *names):
        facts = {"namespaced": True, "verbs": ["get"]}
        resources = [{"name": f"{name.lower()}s", "singularName": name.lower(), "kind": name, **facts} for name in names]
        return {"kind": "APIResourceList", "groupVersion": version, "resources": resources}

    class Api(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            known = {
                "/version": {"major": "1", "minor": "37", "gitVersion": "v1.37.0"},
                "/api": {"kind": "APIVersions", "versions": ["v1"]},
                "/api/v1": kinds("v1", "ConfigMap", "Secret", "Service", "ServiceAccount"),
                "/apis": {
                    "kind": "APIGroupList",
                    "groups": [{"name": "apps", "versions": [{"groupVersion": "apps/v1", "version": "v1"}]}],
                },
                "/apis/apps/v1": kinds("apps/v1", "Deployment"),
                "/api/v1/namespaces/default/secrets": {
                    "kind": "SecretList", "apiVersion": "v1", "metadata": {},
                    # Helm itself looks for earlier releases by a label.
                    "items": [] if "labelSelector" in self.path else secrets,
                },
            }
            path = self.path.partition("?")[0]
            # Without a schema, which would be in another format, Helm checks nothing by it.
            self.send_response(200 if path in known or path == "/openapi/v2" else 404)
            self.send_header("Content-Type", "application/json")
            self.end_headers()
            body = known.get(path, {"kind": "Status", "apiVersion": "v1", "code": 404, "reason": "NotFound"})
            self.wfile.write(b"" if path == "/openapi/v2" else json.dumps(body).encode())

        def log_message(self, *_):
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Api)
    threading.Thread(target=server.serve_forever, daemon=True).start()

    def token():
        with helm.Config(kube_apiserver=f"http://127.0.0.1:{server.server_port}", namespace="default") as cluster:
            release = cluster.install(folder, "fanlight", UNAUTHENTICATED, dry_run="server")
        return by_kind([release["manifest"]])["Secret-admin"]["data"]["token"]

    first = token()
    if first == token():
        fail("two installations have the same admin token")
    secrets.append({"kind": "Secret", "apiVersion": "v1", "metadata": {"name": "fanlight-admin"}, "data": {"token": first}})
    if first != token():
        fail("an installation does not keep the admin token")
    server.shutdown()


def merged(values, others):
    """Merges values in the way that Helm merges several files."""
    both = dict(values)
    for name, other in others.items():
        both[name] = merged(both[name], other) if isinstance(both.get(name), dict) and isinstance(other, dict) else other
    return both


def lint(folder, values):
    report = helm.lint(folder, values, strict=True)
    problems = [message for message in report["messages"] if message["severity"] >= 2]
    if problems or report["errors"]:
        fail(f"lint: {problems} {report['errors']}")


def texts(value):
    """All texts in a configuration."""
    if isinstance(value, (dict, list)):
        return [text for part in (value.values() if isinstance(value, dict) else value) for text in texts(part)]
    return [value] if isinstance(value, str) else []


def check_mounts(config, pod, guide):
    """Checks that a volume has each file in the configuration, and that the guide's commands make each variable and secret."""
    mounts = [mount["mountPath"] for mount in pod["containers"][0]["volumeMounts"]]
    for path in filter(lambda text: text.startswith("/"), texts(config)):
        if not any(path.startswith(f"{mount}/") for mount in mounts):
            fail(f"{GUIDE.name}: no volume has {path}")
    secrets = [one["secretRef"]["name"] for one in pod["containers"][0].get("envFrom", [])]
    secrets += [volume["secret"]["secretName"] for volume in pod["volumes"] if "secret" in volume]
    variables = {name for text in texts(config) for name in re.findall(r"\$\{(\w+)\}", text)}
    variables -= {one["name"] for one in pod["containers"][0]["env"]}
    commands = [f"secret generic {name} " for name in secrets] + [f"--from-literal={name}=" for name in variables]
    for command in commands:
        if command not in guide:
            fail(f"{GUIDE.name}: no command has {command}")


def check_guide(folder, chart):
    guide = GUIDE.read_text()
    blocks = re.findall(r"^```yaml tested=tests/deploy/run\n(.*?)^```$", guide, re.MULTILINE | re.DOTALL)
    if len(blocks) < 2 or blocks[1] != (pathlib.Path(folder) / "values-replicas.yaml").read_text():
        fail(f"{GUIDE.name}: the second block of values is not values-replicas.yaml")
    values = {}
    for block in blocks:
        values = merged(values, yaml.safe_load(block))
        lint(folder, values)
        manifests = render(chart, values)
        check(manifests, GUIDE.name)
        config = yaml.safe_load(manifests["ConfigMap"]["data"]["fanlight.yaml"])
        if merged(config, values["config"]) != config or config["mcpServers"] != values["config"]["mcpServers"]:
            fail(f"{GUIDE.name}: the chart does not pass on its configuration: {config}")
        check_mounts(config, manifests["Deployment"]["spec"]["template"]["spec"], guide)
    return len(blocks)


def plain(manifests):
    manifests = copy.deepcopy(manifests)
    account = manifests["ServiceAccount"]
    manifests["Secret"] = {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {**copy.deepcopy(account["metadata"]), "name": "fanlight-admin"},
        "type": "Opaque",
        "stringData": {"token": "CHANGE ME: openssl rand -hex 32"},
    }
    for manifest in manifests.values():
        manifest["metadata"]["labels"] = {
            name: value
            for name, value in manifest["metadata"]["labels"].items()
            if name not in ("helm.sh/chart", "app.kubernetes.io/managed-by")
        }
    order = ["ServiceAccount", "Secret", "ConfigMap", "Service", "Service-admin", "Deployment"]

    class Dumper(yaml.SafeDumper):
        """Writes multi-line texts as blocks."""

    def text(dumper, value):
        return dumper.represent_scalar("tag:yaml.org,2002:str", value, style="|" if "\n" in value else None)

    Dumper.add_representer(str, text)
    documents = [manifests[kind] for kind in order]
    return HEAD + "".join("---\n" + yaml.dump(one, Dumper=Dumper, sort_keys=False, width=120) for one in documents)


def main():
    arguments = sys.argv[1:]
    writes = arguments[:1] == ["--write"]
    folder, path = arguments[1:] if writes else arguments
    check_version(folder)
    lint(folder, UNAUTHENTICATED)
    chart = helm.Chart.load(folder)
    defaults = render(chart, UNAUTHENTICATED)
    check(defaults, "defaults")
    pod = defaults["Deployment"]["spec"]["template"]["spec"]
    volumes = [volume["name"] for volume in pod["volumes"]]
    check_state(yaml.safe_load(defaults["ConfigMap"]["data"]["fanlight.yaml"]), pod["containers"][0], volumes)
    if defaults != render(chart, UNAUTHENTICATED):
        fail("two renders differ")
    check_token(folder)
    everything = render(chart, EVERYTHING)
    check(everything, "everything")
    check_everything(everything)
    guide = check_guide(folder, chart)
    for values, problem in (
        ({}, "config.auth is missing"),
        (UNAUTHENTICATED | {"serviceMonitor": {"enabled": True}}, "serviceMonitor.credentials.name is missing"),
    ):
        try:
            render(chart, values)
            fail(f"it renders although {problem}")
        except helm.HelmRenderError as error:
            if problem not in str(error):
                fail(f"unexpected: {error}")
    current = plain(defaults)
    file = pathlib.Path(path)
    if writes:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(current)
    elif not file.exists() or file.read_text() != current:
        fail(f"{file} is not what the chart renders: tests/deploy/run --write")
    print(f"chart: {len(defaults)} manifests by default, {len(everything)} with everything, and {guide} examples of "
          f"the guide, valid in {', '.join(VERSIONS)}")


main()
