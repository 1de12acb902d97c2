//! `build`: Fanlight as it is released, compiled by a profile of itself under the load that this program makes.
//!
//! A small call runs once through more code than the processor's nearest cache holds. A compiler that has counted which
//! ways are taken puts those side by side and the rest elsewhere. The rustc book, Profile-guided Optimization, has the steps.
//!
//! Must not know: what is measured, or how cargo is called.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::process::Command;

use crate::cargo;
use crate::cli::BuildArgs;
use crate::era::Era;
use crate::error::{BenchError, Doing, Result, within};
use crate::results::Results;
use crate::scenario::{Group, Plan, Run};
use crate::system::{Bench, Cores, Kind};

/// What is counted: the ways of ordinary requests, not the start, nor what is there for measuring.
const GROUPS: [Group; 5] = [Group::Calls, Group::Lists, Group::Events, Group::Idle, Group::Stdio];

pub(crate) async fn run(args: &BuildArgs) -> Result<()> {
    let rustc = Rustc::ask().await?;
    // Known to be there before the first minutes have gone by.
    let merger = merger(args.llvm_profdata.as_deref(), &rustc).await?;
    let folder = cargo::target_folder()?.join("guided");
    let counts = folder.join("counts");
    forget(&counts)?;
    eprintln!("building a Fanlight that counts");
    let counting = cargo::release(&rustc.host, &folder.join("counting"), flag("-Cprofile-generate=", &counts)).await?;
    eprintln!("counting");
    train(&counting, args).await?;
    let profile = folder.join("fanlight.profdata");
    let merge = [OsStr::new("merge"), OsStr::new("-o"), profile.as_os_str(), counts.as_os_str()];
    said_by(&merger, merge).await?;
    eprintln!("building Fanlight by what was counted");
    let built = cargo::release(&rustc.host, &folder.join("release"), flag("-Cprofile-use=", &profile)).await?;
    let program = folder.join("fanlight");
    // Not written over: one that runs goes on.
    forget(&program)?;
    std::fs::copy(&built, &program).doing(format!("copying {}", built.display()))?;
    println!("{}", program.display());
    Ok(())
}

/// The compiler.
struct Rustc {
    host: String,
    sysroot: PathBuf,
}

impl Rustc {
    async fn ask() -> Result<Self> {
        let version = said_by("rustc", ["-vV"]).await?;
        let host = version.lines().find_map(|line| line.strip_prefix("host: "));
        let host = host.ok_or_else(|| BenchError::Other(format!("rustc names no host:\n{version}")))?.to_owned();
        let sysroot = said_by("rustc", ["--print", "sysroot"]).await?;
        Ok(Self { host, sysroot: sysroot.trim().into() })
    }
}

/// What merges counts: the one that is named, or that of the toolchain, or whichever is in `PATH`. It has to read what the
/// toolchain's LLVM writes.
async fn merger(named: Option<&Path>, rustc: &Rustc) -> Result<PathBuf> {
    let own = rustc.sysroot.join("lib/rustlib").join(&rustc.host).join("bin/llvm-profdata");
    let candidates = match named {
        Some(named) => vec![named.to_owned()],
        None => vec![own, "llvm-profdata".into()],
    };
    for candidate in candidates {
        if said_by(&candidate, ["merge", "--help"]).await.is_ok() {
            return Ok(candidate);
        }
    }
    Err(BenchError::Missing {
        program: named.map_or_else(|| "llvm-profdata".into(), Path::to_owned),
        hint: "`rustup component add llvm-tools` brings it",
    })
}

/// Has `fanlight` count what it does for clients of both eras.
async fn train(fanlight: &Path, args: &BuildArgs) -> Result<()> {
    let bench = Bench { fanlight: fanlight.to_owned(), gateway: Cores::Any, load: Cores::Any };
    let plan = Plan {
        groups: GROUPS.to_vec(),
        systems: vec![Kind::Fanlight, Kind::Fanlight10],
        eras: Era::ALL.to_vec(),
        rounds: 1,
        window: Duration::try_from_secs_f64(args.seconds).unwrap_or(Duration::from_secs(1)),
        connections: 16,
        streams: 200,
        churn: Duration::ZERO,
    };
    let mut run = Run { bench, plan, results: Results::default() };
    run.all().await;
    match run.results.failures.as_slice() {
        [] => Ok(()),
        failures => Err(BenchError::Other(failures.join("\n"))),
    }
}

/// What a short program writes to its standard output.
async fn said_by<A: AsRef<OsStr>>(program: impl AsRef<OsStr>, args: impl IntoIterator<Item = A>) -> Result<String> {
    let name = program.as_ref().display().to_string();
    let mut command = Command::new(program);
    command.args(args).kill_on_drop(true);
    let output = async { command.output().await.doing(format!("running {name}")) };
    let output = within(&name, 120, output).await?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    Err(BenchError::Other(format!("{name}: {}", String::from_utf8_lossy(&output.stderr).trim())))
}

fn flag(name: &str, path: &Path) -> OsString {
    let mut flag = OsString::from(name);
    flag.push(path);
    flag
}

/// Removes what an earlier run has left.
fn forget(path: &Path) -> Result<()> {
    let removed = if path.is_dir() { std::fs::remove_dir_all(path) } else { std::fs::remove_file(path) };
    match removed {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
    .doing(format!("removing {}", path.display()))
}
