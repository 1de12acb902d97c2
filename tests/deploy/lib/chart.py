"""Checks the Helm chart: lints it, renders it with its defaults and with everything enabled, checks the result against the schemas
of Kubernetes, and compares it with the plain manifests. It does the same with each block of values in docs/guides/kubernetes.md;
the second block is the chart's file for several replicas.

    chart.py CHART MANIFESTS            # MANIFESTS is the file with the plain manifests
    chart.py --write CHART MANIFESTS    # writes it
"""

import copy
import logging
import pathlib
import re
import sys
import tomllib

import helm_python as helm
import kubernetes_validate
import yaml

logging.getLogger("kubernetes-validate").setLevel(logging.ERROR)

# The oldest supported version, which has every field of the chart, and the newest known version.
VERSIONS = ["1.30", "1.37"]

GUIDE = pathlib.Path(__file__).parents[3] / "docs/guides/kubernetes.md"

# Kinds of other projects, whose schemas are not part of Kubernetes.
FOREIGN = {"ServiceMonitor", "HTTPRoute"}

EVERYTHING = {
    "replicaCount": 2,
    "config": {
        "auth": {"keys": {"file": "/etc/keys/keys.yaml"}},
        "publicUrl": "https://mcp.example.com",
        "replicas": {"valkey": "${VALKEY_URL}", "listen": "${POD_IP}:8443"},
        "admin": {"token": "is replaced", "listen": "127.0.0.1:1"},
        "listen": "127.0.0.1:2",
    },
    "admin": {"existingSecret": "operators"},
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
    "serviceMonitor": {"enabled": True, "labels": {"release": "prometheus"}},
    "httpRoute": {"enabled": True, "parentRefs": [{"name": "public"}], "hostnames": ["mcp.example.com"]},
}

# The minimal values of the chart.
UNAUTHENTICATED = {"config": {"auth": "none", "mcpServers": {"everything": {"url": "http://everything:3001/mcp"}}}}

HEAD = """# Fanlight in Kubernetes without Helm: what the chart in deploy/helm renders for `auth: none`. Made by
# `tests/deploy/run --write`. Put a token into the Secret, and your servers into the ConfigMap; and replace `auth: none`
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
    files = chart.render(values, name="fanlight", namespace="default", is_install=True)
    manifests = {}
    for path, text in files.items():
        if path.endswith(".txt"):
            continue
        for document in yaml.safe_load_all(text):
            if document:
                manifests[document["kind"]] = document
    return manifests


def check(manifests, what):
    for kind, manifest in manifests.items():
        if kind in FOREIGN:
            continue
        for version in VERSIONS:
            try:
                kubernetes_validate.validate(copy.deepcopy(manifest), version, strict=True)
            except kubernetes_validate.ValidationError as error:
                fail(f"{what}: {kind} is not valid in Kubernetes {version}: {error.message}")


def check_everything(manifests):
    kinds = {
        "ConfigMap", "Deployment", "HTTPRoute", "HorizontalPodAutoscaler", "NetworkPolicy", "PodDisruptionBudget", "Service",
        "ServiceAccount", "ServiceMonitor",
    }
    if set(manifests) != kinds:
        fail(f"with everything switched on there are {sorted(manifests)}")
    config = yaml.safe_load(manifests["ConfigMap"]["data"]["fanlight.yaml"])
    if (config["listen"], config["admin"]) != (
        "0.0.0.0:8080", {"listen": "0.0.0.0:8081", "token": "${FANLIGHT_ADMIN_TOKEN}"},
    ):
        fail(f"the chart does not decide where Fanlight listens: {config}")
    if "replicas" in manifests["Deployment"]["spec"]:
        fail("the Deployment sets a number of replicas against the autoscaler")
    container = manifests["Deployment"]["spec"]["template"]["spec"]["containers"][0]
    context = container["securityContext"]
    if not context["readOnlyRootFilesystem"] or context["capabilities"]["drop"] != ["ALL"]:
        fail("the container may do more than it needs")
    policy = manifests["NetworkPolicy"]["spec"]
    if policy["ingress"][1]["from"][0]["podSelector"]["matchLabels"] != {"app": "prometheus"}:
        fail("operators cannot reach the admin port")
    replicas, link = [{"podSelector": policy["podSelector"]}], [{"port": 8443}]
    for direction, peers in (("ingress", "from"), ("egress", "to")):
        if {"ports": link, peers: replicas} not in policy[direction]:
            fail(f"the network policy keeps replicas from each other: {direction}")


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
    # A randomly generated value would be the same for everyone.
    secret = manifests["Secret"]
    del secret["data"]
    secret["stringData"] = {"token": "CHANGE ME: openssl rand -hex 32"}
    for manifest in manifests.values():
        manifest["metadata"]["labels"] = {
            name: value
            for name, value in manifest["metadata"]["labels"].items()
            if name not in ("helm.sh/chart", "app.kubernetes.io/managed-by")
        }
    order = ["ServiceAccount", "Secret", "ConfigMap", "Service", "Deployment"]

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
    everything = render(chart, EVERYTHING)
    check(everything, "everything")
    check_everything(everything)
    guide = check_guide(folder, chart)
    try:
        render(chart, {})
        fail("it renders a configuration that does not say how clients are authenticated")
    except helm.HelmRenderError as error:
        if not re.search("config.auth is missing", str(error)):
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
