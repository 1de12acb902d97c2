//! The whole program on a small scale: the fake server and the load, with nothing in between.

use std::process::{Command, Stdio};

use serde_json::Value;

/// A folder; dropping it removes the folder.
struct Folder(std::path::PathBuf);

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[test]
fn short_run_without_a_system_in_between_succeeds() {
    let folder =
        Folder(std::env::temp_dir().join(format!("fanlight-bench-smoke-{}", std::process::id())));
    std::fs::create_dir_all(&folder.0).unwrap();
    let output = folder.0.join("results.json");
    let mut command = Command::new(env!("CARGO_BIN_EXE_fanlight-bench"));
    command.args([
        "run",
        "--quick",
        "--systems=direct",
        "--only=calls,latency,lists,events,stdio",
    ]);
    command
        .args(["--seconds=0.05", "--output"])
        .arg(&output)
        .stdin(Stdio::null());
    let ran = command.output().unwrap();
    let (out, err) = (
        String::from_utf8_lossy(&ran.stdout),
        String::from_utf8_lossy(&ran.stderr),
    );
    assert!(ran.status.success(), "{out}\n{err}");

    let results: Value = serde_json::from_slice(&std::fs::read(&output).unwrap()).unwrap();
    assert_eq!(results["failures"], Value::Array(vec![]), "{err}");
    let medians = results["medians"].as_array().unwrap();
    for scenario in [
        "call modern text_200",
        "call legacy rows_1048576",
        "call modern structured_10240",
        "alone legacy",
        "half rate modern",
        "list modern",
        "events paced legacy",
        "events flood modern",
        "stdio modern",
    ] {
        let median = medians.iter().find(|median| median["scenario"] == scenario);
        let values = &median.unwrap_or_else(|| panic!("no {scenario} in {medians:#?}"))["values"];
        let rate = values
            .get("calls_per_s")
            .or_else(|| values.get("events_per_s"))
            .unwrap()
            .as_f64()
            .unwrap();
        assert!(rate > 0.0, "{scenario}: {values}");
    }
}

#[test]
fn peer_that_cannot_be_started_is_noted_and_the_others_are_measured() {
    let folder =
        Folder(std::env::temp_dir().join(format!("fanlight-bench-peers-{}", std::process::id())));
    std::fs::create_dir_all(&folder.0).unwrap();
    let (page, output) = (folder.0.join("page.md"), folder.0.join("results.json"));
    let mut command = Command::new(env!("CARGO_BIN_EXE_fanlight-bench"));
    command.args([
        "run",
        "--peers",
        "--quick",
        "--only-peers=direct,ghost",
        "--seconds=0.05",
    ]);
    command
        .args(["--peer", "ghost=/nowhere/gateway {port} {url}", "--write"])
        .arg(&page);
    let ran = command
        .arg("--output")
        .arg(&output)
        .stdin(Stdio::null())
        .output()
        .unwrap();
    assert!(
        ran.status.success(),
        "{}",
        String::from_utf8_lossy(&ran.stderr)
    );

    let page = std::fs::read_to_string(&page).unwrap();
    for era in ["modern", "legacy"] {
        assert!(page.contains(&format!("- ghost, {era}: `")), "{page}");
        assert!(
            page.contains(&format!("| ghost | {era} | – | – |")),
            "{page}"
        );
    }
    let results: Value = serde_json::from_slice(&std::fs::read(&output).unwrap()).unwrap();
    let medians = results["medians"].as_array().unwrap();
    for scenario in ["closed loop modern", "fixed rate legacy", "sessions modern"] {
        assert!(
            medians.iter().any(|median| median["scenario"] == scenario),
            "no {scenario} in {medians:#?}"
        );
    }
}

#[test]
fn program_that_is_missing_is_named_in_the_error() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_fanlight-bench"));
    let ran = command
        .args(["check", "--fanlight", "/nowhere/fanlight"])
        .output()
        .unwrap();
    assert!(!ran.status.success());
    let error = String::from_utf8_lossy(&ran.stderr);
    assert!(
        error.contains("/nowhere/fanlight was not found") || error.contains("valgrind"),
        "{error}"
    );
}
