//! `fanlight import`: copies the servers of the clients on this machine into a Fanlight
//! configuration.

mod merge;
mod report;
mod secrets;
mod sources;
mod text;

use std::path::{Path, PathBuf};

use crate::cli::{ImportArgs, Secrets};
use crate::connect::{absolute, machine_places};
use crate::replace::{self, NewFile};
use crate::{Result, complain, say};
use merge::{LeftOut, Taken, merge};
use secrets::Moved;
use sources::Source;

/// The servers to import, and the resulting files.
struct Import {
    sources: Vec<Source>,
    taken: Vec<Taken>,
    left_out: Vec<LeftOut>,
    moved: Moved,
    /// The text of the configuration.
    text: String,
    /// The path of the configuration; `None` for standard output.
    output: Option<PathBuf>,
    /// The path of the file with secrets, if there is one.
    env_file: Option<PathBuf>,
}

/// Shows the servers to import, and writes the configuration.
pub fn import(args: &ImportArgs) -> Result {
    let import = Import::new(args)?;
    if import.taken.is_empty() {
        report::show(&import, args, false);
        return Err(failure!(
            "no server was found; --from names a file or a client",
        ));
    }
    let existing = import.existing();
    if args.dry_run || (!existing.is_empty() && !args.force) {
        report::show(&import, args, false);
        if args.dry_run {
            return Ok(());
        }
        let names: Vec<_> = existing
            .iter()
            .map(|path| path.display().to_string())
            .collect();
        let names = names.join(" and ");
        return Err(usage!(
            "nothing was written, since {names} already exists; --force replaces it, --output \
             names another file"
        ));
    }
    import.write(args)?;
    report::show(&import, args, true);
    Ok(())
}

impl Import {
    fn new(args: &ImportArgs) -> Result<Self> {
        let places = machine_places();
        let output = (args.output != Path::new("-")).then(|| absolute(&args.output));
        let mut sources = Vec::new();
        for from in &args.from {
            sources.extend(sources::find(from, places.as_ref())?);
        }
        if args.from.is_empty() {
            sources = sources::machine_sources(places.as_ref());
        }
        let (mut taken, mut left_out) = merge(&sources);
        // Standard output cannot hold a second file.
        let kind = args.secrets.unwrap_or(if output.is_some() {
            Secrets::EnvFile
        } else {
            Secrets::Variables
        });
        if kind == Secrets::EnvFile && output.is_none() {
            return Err(usage!(
                "--secrets env-file writes a file beside the configuration: name it with --output",
            ));
        }
        let mut moved = Moved::default();
        if kind != Secrets::Keep {
            for server in &mut taken {
                server.value = moved.entry(&server.name, &server.value);
            }
        }
        taken.retain(|server| match text::check(server, &moved) {
            Ok(()) => true,
            Err(reason) => {
                let path = server
                    .from
                    .first()
                    .map(|place| place.path.clone())
                    .unwrap_or_default();
                left_out.push(LeftOut {
                    path,
                    reason: format!("`{}` cannot be used: {reason}", server.name),
                });
                false
            }
        });
        let writes_secrets = kind == Secrets::EnvFile && !moved.variables.is_empty();
        let env_file = output
            .as_ref()
            .filter(|_| writes_secrets)
            .map(|path| path.with_extension("env"));
        let text = text::configuration(&taken, env_file.as_deref());
        Ok(Self {
            sources,
            taken,
            left_out,
            moved,
            text,
            output,
            env_file,
        })
    }

    /// The files to write that already exist.
    fn existing(&self) -> Vec<&Path> {
        let files = [&self.output, &self.env_file].into_iter().flatten();
        files
            .map(PathBuf::as_path)
            .filter(|path| path.exists())
            .collect()
    }

    /// Writes secrets, then the configuration that refers to them.
    fn write(&self, args: &ImportArgs) -> Result {
        if let Some(path) = &self.env_file {
            write(path, &self.moved.to_env_file(), true)?;
        }
        match &self.output {
            Some(path) => write(path, &self.text, args.secrets == Some(Secrets::Keep)),
            None if args.json => Ok(()),
            None => {
                say!("{}", self.text.trim_end());
                Ok(())
            }
        }
    }
}

/// Writes a file. A file with secrets becomes readable only by its owner, even if it existed
/// before.
fn write(path: &Path, text: &str, has_secrets: bool) -> Result {
    let failed = |error: std::io::Error| failure!("cannot write {}: {error}", path.display());
    let path = replace::target(path);
    if has_secrets {
        hide(&path).map_err(failed)?;
    }
    replace::replace(&path, text, NewFile::OfOwner).map_err(failed)
}

#[cfg(unix)]
fn hide(path: &Path) -> std::io::Result<()> {
    use std::os::unix::fs::PermissionsExt as _;
    if path.exists() {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600))
    } else {
        Ok(())
    }
}

#[cfg(not(unix))]
fn hide(_: &Path) -> std::io::Result<()> {
    Ok(())
}

/// Prints a line for people: on standard error if standard output is for a program.
fn tell(args: &ImportArgs, line: &str) {
    if args.json || args.output == Path::new("-") {
        complain(&format!(
            "{}\n",
            fanlight_protocol::visible::escaped_lines(line)
        ));
    } else {
        say!("{line}");
    }
}
