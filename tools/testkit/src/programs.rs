//! The programs that tests start: the binary under test and this crate's child processes.
//!
//! Cargo tells a test only the paths of its own package's programs. Other packages' programs are in
//! the folder of the test's profile. `cargo test --workspace` may have built them already; a
//! program that is missing, or older than its sources, is built once per test process.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;
use std::time::SystemTime;

/// The binary under test. `FANLIGHT_TEST_BINARY` names another one, for tests of a release.
pub fn fanlight() -> &'static Path {
    static BINARY: LazyLock<PathBuf> =
        LazyLock::new(|| match std::env::var_os("FANLIGHT_TEST_BINARY") {
            Some(binary) => binary.into(),
            None => built("fanlight", "fanlight", &product_sources()),
        });
    &BINARY
}

/// The child process of a [`crate::scripted::Backend`] over stdio.
pub fn scripted_stdio() -> &'static Path {
    static BINARY: LazyLock<PathBuf> = LazyLock::new(|| own("scripted-stdio"));
    &BINARY
}

/// A program that becomes another on a simulated kernel without Landlock.
pub fn without_landlock() -> &'static Path {
    static BINARY: LazyLock<PathBuf> = LazyLock::new(|| own("without-landlock"));
    &BINARY
}

/// A program that tries ways around a sandbox.
pub fn sandbox_escape() -> &'static Path {
    static BINARY: LazyLock<PathBuf> = LazyLock::new(|| own("sandbox-escape"));
    &BINARY
}

fn own(name: &str) -> PathBuf {
    built(
        "fanlight-testkit",
        name,
        &[workspace().join("tools/testkit/src")],
    )
}

/// The sources of the product.
fn product_sources() -> Vec<PathBuf> {
    vec![workspace().join("crates"), workspace().join("tools/demo")]
}

fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The program `name` of `package`, which is no older than any of its `sources`.
fn built(package: &str, name: &str, sources: &[PathBuf]) -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let profile_folder = test
        .parent()
        .and_then(Path::parent)
        .expect("target/<profile>/deps/<test>");
    let program = profile_folder.join(format!("{name}{}", std::env::consts::EXE_SUFFIX));
    let newest_source = sources.iter().map(|folder| newest(folder)).max();
    if modified(&program) <= newest_source {
        build(name, profile_folder);
    }
    assert!(
        program.exists(),
        "{} is missing; run `cargo build -p {package}`",
        program.display()
    );
    program
}

/// Builds a program with the features that dependencies have in the workspace's tests, so that
/// nothing is compiled twice. For this, cargo must also be asked for some test.
fn build(name: &str, profile_folder: &Path) {
    let mut cargo = std::process::Command::new(env!("CARGO"));
    cargo.args([
        "build",
        "--workspace",
        "--bin",
        name,
        "--test",
        "docs",
        "--manifest-path",
    ]);
    cargo.arg(workspace().join("Cargo.toml"));
    cargo.arg("--target-dir").args(profile_folder.parent());
    match profile_folder.file_name().and_then(OsStr::to_str) {
        None | Some("debug") => {}
        Some(profile) => _ = cargo.args(["--profile", profile]),
    }
    let status = cargo.status().unwrap();
    assert!(
        status.success(),
        "`cargo build --workspace --bin {name} --test docs` failed: {status}"
    );
}

fn modified(path: &Path) -> Option<SystemTime> {
    fs::metadata(path).ok()?.modified().ok()
}

fn newest(path: &Path) -> SystemTime {
    if !path.is_dir() {
        return modified(path).unwrap_or(SystemTime::UNIX_EPOCH);
    }
    let entries = fs::read_dir(path)
        .unwrap()
        .map(|entry| newest(&entry.unwrap().path()));
    entries.max().unwrap_or(SystemTime::UNIX_EPOCH)
}
