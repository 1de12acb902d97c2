//! Fanlight, built by cargo.
//!
//! Must not know: what it is built for.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use tokio::process::Command;

use crate::error::{BenchError, Doing, Result, within};
use crate::system::this_program;

/// A release from nothing, on a busy machine.
const SECONDS: u64 = 3600;
/// What stands between flags in `CARGO_ENCODED_RUSTFLAGS`.
const SEPARATOR: &str = "\u{1f}";

/// The folder that this program's profile folder is in.
pub(crate) fn target_folder() -> Result<PathBuf> {
    let program = this_program()?;
    let folder = program.parent().and_then(Path::parent).map(Path::to_owned);
    folder.ok_or_else(|| BenchError::Other(format!("{} is in no folder", program.display())))
}

/// The Fanlight beside this program. Where cargo runs this program, Fanlight is built first: a measurement of yesterday's
/// Fanlight would help nobody.
pub(crate) async fn fanlight() -> Result<PathBuf> {
    let program = this_program()?.with_file_name("fanlight");
    let Some(cargo) = std::env::var_os("CARGO") else { return Ok(program) };
    let mut command = build(cargo);
    command.arg("--quiet");
    match program.parent().and_then(Path::file_name).and_then(|profile| profile.to_str()) {
        Some("debug") | None => {}
        Some(profile) => {
            command.args(["--profile", profile]);
        }
    }
    finish(command).await?;
    Ok(program)
}

/// A release of Fanlight for the target `host`, built below `folder` with one flag more for rustc. Since a target is named,
/// that is not used for what only runs while building.
pub(crate) async fn release(host: &str, folder: &Path, flag: OsString) -> Result<PathBuf> {
    let mut command = build(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.args(["--release", "--locked", "--target", host, "--target-dir"]).arg(folder);
    command.env("CARGO_ENCODED_RUSTFLAGS", with_flag(flag)?);
    finish(command).await?;
    Ok(folder.join(host).join("release").join("fanlight"))
}

fn build(cargo: OsString) -> Command {
    let mut command = Command::new(cargo);
    command.args(["build", "--package", "fanlight", "--manifest-path"]);
    command.arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../Cargo.toml")).kill_on_drop(true);
    command
}

/// The flags for rustc that are asked for already, and `flag`.
fn with_flag(flag: OsString) -> Result<String> {
    let flag = flag.into_string().map_err(|flag| BenchError::Other(format!("{} is no text", flag.display())))?;
    let var = |name: &str| std::env::var(name).ok().filter(|flags| !flags.is_empty());
    let encoded = var("CARGO_ENCODED_RUSTFLAGS").or_else(|| Some(encoded(&var("RUSTFLAGS")?)));
    Ok(encoded.into_iter().chain([flag]).collect::<Vec<_>>().join(SEPARATOR))
}

fn encoded(flags: &str) -> String {
    flags.split_whitespace().collect::<Vec<_>>().join(SEPARATOR)
}

async fn finish(mut command: Command) -> Result<()> {
    let built = async { command.status().await.doing("running cargo") };
    if within("cargo to build Fanlight", SECONDS, built).await?.success() {
        return Ok(());
    }
    Err(BenchError::Other("Fanlight could not be built".into()))
}
