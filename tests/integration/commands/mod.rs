//! How commands find their subject, and their output for people and for programs.

mod connect;
mod first_minute;
mod found;
mod gateways;
mod import;
mod json;
mod judge;
mod manual;
mod replay;
mod started;
mod walk;

use std::ffi::OsStr;
use std::path::Path;
use std::process::{Output, Stdio};

use tokio::process::Command;

use crate::harness::{fanlight, within};

/// The output of a command that ran in a folder.
struct Ran {
    status: i32,
    out: String,
    err: String,
}

impl Ran {
    fn new(output: &Output) -> Self {
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
        Self {
            status: output.status.code().unwrap_or(-1),
            out: text(&output.stdout),
            err: text(&output.stderr),
        }
    }

    /// Both streams, for failure messages.
    fn text(&self) -> String {
        format!("status {}\n{}\n{}", self.status, self.out, self.err)
    }

    /// The standard output as JSON.
    fn json(&self) -> serde_json::Value {
        serde_json::from_str(&self.out).unwrap_or_else(|error| panic!("{error}: {}", self.text()))
    }
}

/// Runs `fanlight` with these arguments in a folder.
async fn run_in(folder: &Path, arguments: &[&str]) -> Ran {
    run_with(folder, arguments, &[]).await
}

async fn run_with(folder: &Path, arguments: &[&str], variables: &[(&str, &str)]) -> Ran {
    let mut command = fanlight();
    command
        .current_dir(folder)
        .args(arguments)
        .envs(variables.iter().copied());
    finish(command).await
}

/// Runs a shell command in a folder.
async fn shell(folder: &Path, line: impl AsRef<OsStr>) -> Ran {
    let mut command = Command::new("sh");
    command
        .kill_on_drop(true)
        .current_dir(folder)
        .arg("-c")
        .arg(line);
    finish(command).await
}

async fn finish(mut command: Command) -> Ran {
    command.stdin(Stdio::null());
    Ran::new(
        &within(&format!("{command:?}"), command.output())
            .await
            .unwrap(),
    )
}
