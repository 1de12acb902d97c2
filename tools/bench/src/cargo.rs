//! Fanlight, built by cargo.

use std::path::{Path, PathBuf};

use tokio::process::Command;

use crate::error::{BenchError, Doing, Result, within};
use crate::system::this_program;

/// A time-out for a release build without a cache on a busy machine.
const SECONDS: u64 = 3600;

/// The target folder: the parent of the profile folder that this program is in.
pub(crate) fn target_folder() -> Result<PathBuf> {
    let program = this_program()?;
    let folder = program.parent().and_then(Path::parent).map(Path::to_owned);
    folder.ok_or_else(|| BenchError::Other(format!("{} is in no folder", program.display())))
}

/// The Fanlight of the profile `dist`, as in packages. If cargo runs this program, it builds
/// Fanlight first, so that nobody measures an old build by mistake.
pub(crate) async fn fanlight() -> Result<PathBuf> {
    let program = target_folder()?.join("dist/fanlight");
    let Some(cargo) = std::env::var_os("CARGO") else {
        return Ok(program);
    };
    let mut command = Command::new(cargo);
    command
        .args(["build", "--quiet", "--profile", "dist"])
        .args(["--package", "fanlight", "--manifest-path"])
        .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../Cargo.toml"))
        .kill_on_drop(true);
    let built = async { command.status().await.doing("running cargo") };
    if within("cargo to build Fanlight", SECONDS, built)
        .await?
        .success()
    {
        return Ok(program);
    }
    Err(BenchError::Other("Fanlight could not be built".into()))
}
