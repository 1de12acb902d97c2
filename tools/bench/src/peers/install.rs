//! Installs gateways from their registries, each into its own folder.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use serde::Deserialize;

use super::roster::Package;
use crate::error::{BenchError, Doing, Result};
use crate::system::{Cores, Process, Surroundings};

/// A package that is installed.
#[derive(Clone, Debug)]
pub(super) struct Installed {
    /// The folder of its programs.
    pub(super) programs: PathBuf,
    pub(super) version: String,
}

/// The time-out of downloading and unpacking, in seconds.
const PATIENCE: u64 = 900;
/// A file that marks a complete installation.
const COMPLETE: &str = "complete";

impl Package {
    pub(super) fn name(self) -> &'static str {
        let (Self::PyPi(name) | Self::Npm(name)) = self;
        name
    }

    /// Installs the newest version into `root`, unless there is one already.
    pub(super) async fn install(self, root: &Path) -> Result<Installed> {
        let folder = root.join(self.name());
        if !folder.join(COMPLETE).exists() {
            eprintln!("  installing {}", self.name());
            self.download(&folder).await?;
            std::fs::write(folder.join(COMPLETE), "")
                .doing(format!("installing {}", self.name()))?;
        }
        let version = self.version(&folder).await?;
        let programs = folder.join(if matches!(self, Self::PyPi(_)) {
            "bin"
        } else {
            "node_modules/.bin"
        });
        Ok(Installed { programs, version })
    }

    async fn download(self, folder: &Path) -> Result<()> {
        std::fs::create_dir_all(folder).doing(format!("making {}", folder.display()))?;
        match self {
            Self::PyPi(name) => {
                run(
                    "python3",
                    Path::new("python3"),
                    &["-m", "venv", "."],
                    folder,
                )
                .await?;
                let args = [
                    "-m",
                    "pip",
                    "install",
                    "--quiet",
                    "--disable-pip-version-check",
                    name,
                ];
                run("pip", &folder.join("bin/python"), &args, folder).await?;
            }
            Self::Npm(name) => {
                let args = [
                    "install",
                    "--no-audit",
                    "--no-fund",
                    "--loglevel=error",
                    "--prefix",
                    ".",
                    name,
                ];
                run("npm", Path::new("npm"), &args, folder).await?;
            }
        }
        Ok(())
    }

    async fn version(self, folder: &Path) -> Result<String> {
        let unknown = || BenchError::Other(format!("{} does not say its version", self.name()));
        match self {
            Self::PyPi(name) => {
                let args = ["-m", "pip", "show", "--disable-pip-version-check", name];
                let lines = run("pip", &folder.join("bin/python"), &args, folder).await?;
                let version = lines.iter().find_map(|line| line.strip_prefix("Version: "));
                version.map(str::to_owned).ok_or_else(unknown)
            }
            Self::Npm(name) => {
                #[derive(Deserialize)]
                struct Manifest {
                    version: String,
                }
                let file = folder.join("node_modules").join(name).join("package.json");
                let text = std::fs::read(&file).doing(format!("reading {}", file.display()))?;
                let manifest = serde_json::from_slice::<Manifest>(&text);
                manifest
                    .map(|manifest| manifest.version)
                    .map_err(|_| unknown())
            }
        }
    }
}

/// Runs a program to its end; returns its output.
async fn run(name: &str, program: &Path, args: &[&str], folder: &Path) -> Result<Vec<String>> {
    run_in(
        name,
        program,
        args,
        &Surroundings {
            folder: Some(folder.to_owned()),
            variables: Vec::new(),
        },
    )
    .await
}

pub(super) async fn run_in(
    name: &str,
    program: &Path,
    args: &[&str],
    surroundings: &Surroundings,
) -> Result<Vec<String>> {
    let args: Vec<OsString> = args.iter().map(Into::into).collect();
    Process::start_in(name, program, &args, Cores::Any, surroundings)?
        .finish(PATIENCE)
        .await
}

/// The first line of a program's version output; a dash if there is no such program.
pub(super) async fn version_of(program: &Path, option: &str) -> String {
    let name = program.display().to_string();
    let lines = run(&name, program, &[option], Path::new("/"))
        .await
        .unwrap_or_default();
    lines.into_iter().next().unwrap_or_else(|| "-".to_owned())
}
