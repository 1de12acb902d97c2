//! The allowed dependencies between the crates, direct and indirect: the invariants of
//! docs/architecture.md, read from `cargo tree` and `cargo metadata`.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;

use serde_json::Value;

const PREFIX: &str = "fanlight-";

struct Dependency {
    name: String,
    dev: bool,
}

/// The output of cargo about the workspace.
fn cargo(arguments: &[&str]) -> String {
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR")).join("../Cargo.toml");
    let mut cargo = Command::new(env!("CARGO"));
    let output = cargo
        .args(arguments)
        .args(["--offline", "--manifest-path"])
        .arg(manifest)
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8(output.stdout).unwrap()
}

/// The direct dependencies of every package of the workspace.
fn workspace() -> BTreeMap<String, Vec<Dependency>> {
    let metadata: Value =
        serde_json::from_str(&cargo(&["metadata", "--no-deps", "--format-version", "1"])).unwrap();
    let packages = metadata["packages"].as_array().unwrap().iter();
    packages
        .map(|package| {
            (
                package["name"].as_str().unwrap().to_owned(),
                dependencies(package),
            )
        })
        .collect()
}

fn dependencies(package: &Value) -> Vec<Dependency> {
    let of = |dependency: &Value| Dependency {
        name: dependency["name"].as_str().unwrap().to_owned(),
        dev: dependency["kind"] == "dev",
    };
    package["dependencies"]
        .as_array()
        .unwrap()
        .iter()
        .map(of)
        .collect()
}

/// Every package that `package` links outside of tests, directly or through others.
fn reached(package: &str) -> BTreeSet<String> {
    let tree = cargo(&[
        "tree",
        "--package",
        package,
        "--edges",
        "normal",
        "--prefix",
        "none",
        "--format",
        "{p}",
    ]);
    let names = tree
        .lines()
        .filter_map(|line| line.split_whitespace().next());
    let all: BTreeSet<_> = names.map(str::to_owned).collect();
    assert!(all.contains(package), "{tree}");
    all
}

/// Checks the packages that `package` reaches: of this workspace only those in `ours`, and of all
/// packages none in `never`.
fn assert_layer(package: &str, ours: &[&str], never: &[&str]) {
    for name in reached(package).iter().filter(|name| *name != package) {
        let is_allowed = !name.starts_with(PREFIX) || ours.contains(&name.as_str());
        assert!(
            is_allowed && !never.contains(&name.as_str()),
            "{package} must not reach {name}: `cargo tree -p {package} -e normal -i {name}` shows how it does"
        );
    }
}

const HTTP: &[&str] = &[
    "hyper",
    "hyper-util",
    "http",
    "http-body",
    "http-body-util",
    "h2",
    "reqwest",
    "tonic",
    "axum",
];
const CORE: &[&str] = &[
    "fanlight-canonical",
    "fanlight-protocol",
    "fanlight-telemetry",
];

#[test]
fn protocol_does_no_io_and_reaches_no_other_crate_of_ours() {
    assert_layer(
        "fanlight-protocol",
        &[],
        &[HTTP, &["tokio", "tokio-util", "futures-util"]].concat(),
    );
}

#[test]
fn leaves_reach_no_other_crate_of_ours() {
    assert_layer("fanlight-demo", &[], &[HTTP, &["tokio"]].concat());
    assert_layer("fanlight-fair", &[], HTTP);
}

#[test]
fn config_reaches_limits_and_protocol_alone_and_does_no_io() {
    assert_layer(
        "fanlight-config",
        &["fanlight-fair", "fanlight-protocol"],
        &["hyper", "reqwest"],
    );
}

#[test]
fn http_and_child_guard_reach_only_leaves() {
    assert_layer(
        "fanlight-child-guard",
        &["fanlight-config", "fanlight-fair", "fanlight-protocol"],
        &["hyper", "reqwest"],
    );
    assert_layer(
        "fanlight-http",
        &["fanlight-config", "fanlight-fair", "fanlight-protocol"],
        &["reqwest"],
    );
}

#[test]
fn telemetry_reaches_no_http_and_of_ours_only_protocol() {
    assert_layer("fanlight-telemetry", &["fanlight-protocol"], HTTP);
}

#[test]
fn otlp_reaches_only_telemetry_protocol_and_config() {
    assert_layer(
        "fanlight-otlp",
        &[
            "fanlight-config",
            "fanlight-fair",
            "fanlight-protocol",
            "fanlight-telemetry",
        ],
        &[],
    );
}

#[test]
fn canonical_form_reaches_no_http_and_no_edge() {
    assert_layer(
        "fanlight-canonical",
        CORE,
        &[HTTP, &["process-wrap"]].concat(),
    );
}

#[test]
fn gateway_reaches_no_http_and_no_edge() {
    assert_layer(
        "fanlight-gateway",
        &[CORE, &["fanlight-fair"]].concat(),
        &[HTTP, &["process-wrap"]].concat(),
    );
}

#[test]
fn backend_reaches_neither_gateway_nor_frontend() {
    let ours = &[
        "fanlight-child-guard",
        "fanlight-config",
        "fanlight-fair",
        "fanlight-http",
    ];
    assert_layer("fanlight-backend", &[CORE, ours].concat(), &["axum"]);
    // A pool drives the connections: ours, or the one of hyper-util.
    let mut folders = vec![Path::new(env!("CARGO_MANIFEST_DIR")).join("../crates/backend/src")];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            match path.is_dir() {
                true => folders.push(path),
                false => assert!(
                    !std::fs::read_to_string(&path)
                        .unwrap()
                        .split("\nmod tests {")
                        .next()
                        .unwrap()
                        .contains("hyper::client"),
                    "{}",
                    path.display()
                ),
            }
        }
    }
}

#[test]
fn policy_reaches_the_core_alone() {
    assert_layer("fanlight-policy", CORE, HTTP);
}

#[test]
fn credentials_reach_the_core_alone_and_do_no_io() {
    assert_layer("fanlight-credentials", CORE, &["hyper", "reqwest", "axum"]);
}

#[test]
fn record_reaches_no_edge() {
    let ours = [CORE, &["fanlight-credentials", "fanlight-fair"]].concat();
    assert_layer("fanlight-record", &ours, &["hyper", "reqwest", "axum"]);
}

#[test]
fn grants_and_authentication_reach_no_edge() {
    let below = &["fanlight-config", "fanlight-credentials", "fanlight-fair"];
    let ours = [CORE, below].concat();
    assert_layer("fanlight-grants", &ours, &["axum"]);
    assert_layer(
        "fanlight-auth",
        &[&ours[..], &["fanlight-grants"]].concat(),
        &["axum"],
    );
}

/// The crates below both the front end and the operators' page.
const BELOW_FRONTEND: &[&str] = &[
    "fanlight-config",
    "fanlight-credentials",
    "fanlight-fair",
    "fanlight-gateway",
    "fanlight-http",
    "fanlight-record",
];

#[test]
fn frontend_and_admin_reach_no_server_and_not_each_other() {
    let ours = [CORE, BELOW_FRONTEND].concat();
    assert_layer("fanlight-frontend", &ours, &["reqwest", "process-wrap"]);
    assert_layer("fanlight-admin", &ours, &["reqwest", "process-wrap"]);
}

#[test]
fn replicas_reach_no_server() {
    let edges = &[
        "fanlight-admin",
        "fanlight-auth",
        "fanlight-frontend",
        "fanlight-grants",
    ];
    let ours = [CORE, BELOW_FRONTEND, edges].concat();
    assert_layer("fanlight-replicas", &ours, &["process-wrap"]);
}

#[test]
fn typed_sdk_is_linked_by_tests_only() {
    for (package, dependencies) in workspace() {
        let uses_it = dependencies
            .iter()
            .any(|dependency| dependency.name == "rmcp" && !dependency.dev);
        assert!(
            !uses_it || package == "fanlight-tests",
            "{package} must not depend on rmcp"
        );
    }
}

#[test]
fn testkit_reaches_no_other_crate_and_is_linked_by_tests_only() {
    assert_layer("fanlight-testkit", &[], &[]);
    for (package, dependencies) in workspace() {
        let links_it = dependencies
            .iter()
            .any(|dependency| dependency.name == "fanlight-testkit" && !dependency.dev);
        assert!(
            !links_it || package == "fanlight-tests",
            "{package} may use fanlight-testkit in tests only"
        );
    }
}

#[test]
fn binary_tests_and_benchmarks_are_dependencies_of_no_crate() {
    for (package, dependencies) in workspace() {
        for dependency in dependencies {
            let is_root = [
                "fanlight",
                "fanlight-bench",
                "fanlight-figures",
                "fanlight-fuzz-targets",
                "fanlight-tests",
            ]
            .contains(&dependency.name.as_str());
            assert!(!is_root, "{package} must not depend on {}", dependency.name);
        }
    }
}
