//! The allowed dependencies between the crates: the invariants of docs/architecture.md, read from `cargo metadata`.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use serde_json::Value;

const PREFIX: &str = "fanlight-";

struct Dependency {
    name: String,
    dev: bool,
}

/// The direct dependencies of every package of the workspace.
fn workspace() -> BTreeMap<String, Vec<Dependency>> {
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR")).join("../Cargo.toml");
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--no-deps", "--format-version", "1", "--offline", "--manifest-path"])
        .arg(manifest)
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let metadata: Value = serde_json::from_slice(&output.stdout).unwrap();
    let packages = metadata["packages"].as_array().unwrap().iter();
    packages.map(|package| (package["name"].as_str().unwrap().to_owned(), dependencies(package))).collect()
}

fn dependencies(package: &Value) -> Vec<Dependency> {
    let of = |dependency: &Value| Dependency {
        name: dependency["name"].as_str().unwrap().to_owned(),
        dev: dependency["kind"] == "dev",
    };
    package["dependencies"].as_array().unwrap().iter().map(of).collect()
}

/// What `package` depends on when it is not being tested.
fn normal<'a>(workspace: &'a BTreeMap<String, Vec<Dependency>>, package: &str) -> Vec<&'a str> {
    let all = workspace.get(package).unwrap_or_else(|| panic!("no package {package} in the workspace"));
    all.iter().filter(|dependency| !dependency.dev).map(|dependency| dependency.name.as_str()).collect()
}

fn assert_layer(package: &str, ours: &[&str], never: &[&str]) {
    let workspace = workspace();
    for dependency in normal(&workspace, package) {
        if dependency.starts_with(PREFIX) {
            assert!(ours.contains(&dependency), "{package} must not depend on {dependency}");
        }
        assert!(!never.contains(&dependency), "{package} must not depend on {dependency}");
    }
}

#[test]
fn protocol_does_no_io_and_knows_no_other_crate_of_ours() {
    assert_layer(
        "fanlight-protocol",
        &[],
        &["tokio", "tokio-util", "hyper", "hyper-util", "http", "reqwest", "futures-util"],
    );
}

#[test]
fn config_and_demo_are_leaves() {
    assert_layer("fanlight-config", &[], &["tokio", "hyper", "reqwest"]);
    assert_layer("fanlight-demo", &[], &["tokio", "hyper", "reqwest"]);
}

#[test]
fn http_pool_is_a_leaf() {
    assert_layer("fanlight-http-pool", &[], &["reqwest"]);
}

#[test]
fn telemetry_links_no_http_and_of_ours_only_protocol() {
    assert_layer("fanlight-telemetry", &["fanlight-protocol"], &["hyper", "hyper-util", "http", "reqwest", "tonic"]);
}

#[test]
fn otlp_depends_on_telemetry_only() {
    assert_layer("fanlight-otlp", &["fanlight-telemetry"], &[]);
}

#[test]
fn backend_knows_neither_gateway_nor_frontend() {
    let ours = ["fanlight-canonical", "fanlight-http-pool", "fanlight-protocol", "fanlight-telemetry"];
    assert_layer("fanlight-backend", &ours, &["hyper", "http-body"]);
}

#[test]
fn gateway_knows_no_transport() {
    assert_layer(
        "fanlight-gateway",
        &["fanlight-backend", "fanlight-protocol"],
        &["hyper", "hyper-util", "http", "http-body", "http-body-util", "reqwest", "process-wrap"],
    );
}

#[test]
fn frontend_reaches_backends_only_through_the_gateway() {
    let ours = ["fanlight-gateway", "fanlight-protocol", "fanlight-telemetry"];
    assert_layer("fanlight-frontend", &ours, &["reqwest", "process-wrap"]);
}

#[test]
fn http_edge_is_a_leaf() {
    assert_layer("fanlight-http-edge", &[], &["reqwest"]);
}

#[test]
fn admin_depends_on_the_core_telemetry_and_http_edge_only() {
    let ours =
        ["fanlight-canonical", "fanlight-gateway", "fanlight-http-edge", "fanlight-protocol", "fanlight-telemetry"];
    assert_layer("fanlight-admin", &ours, &["reqwest", "process-wrap"]);
}

#[test]
fn the_typed_sdk_is_for_tests_only() {
    for (package, dependencies) in workspace() {
        let uses_it = dependencies.iter().any(|dependency| dependency.name == "rmcp" && !dependency.dev);
        assert!(!uses_it || package == "fanlight-tests", "{package} must not depend on rmcp");
    }
}

#[test]
fn nothing_depends_on_the_binary_the_tests_or_the_benchmarks() {
    for (package, dependencies) in workspace() {
        for dependency in dependencies {
            let taboo = ["fanlight", "fanlight-bench", "fanlight-tests"].contains(&dependency.name.as_str());
            assert!(!taboo, "{package} must not depend on {}", dependency.name);
        }
    }
}
