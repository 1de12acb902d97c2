//! The remedy for a program that could not be started.

use std::ffi::OsStr;
use std::path::Path;

use fanlight_canonical::{Remedy, RemedyKind};

use super::{program_name, remedy};
use crate::log::excerpt;
use crate::transport::stdio::{ProcessSettings, find_program};

/// The number of characters of a command or path to show.
const SHOWN: usize = 200;

/// Programs that servers are often started with, and how to install them.
const KNOWN: &[(&[&str], &str)] = &[
    (
        &["npx", "npm", "node"],
        "Node.js (https://nodejs.org; Debian and Ubuntu: `apt install nodejs npm`)",
    ),
    (
        &["uvx", "uv"],
        "uv (https://docs.astral.sh/uv; `pipx install uv`)",
    ),
    (&["bunx", "bun"], "Bun (https://bun.sh)"),
    (&["deno"], "Deno (https://deno.com)"),
    (&["pnpm", "yarn"], "it by `npm install -g`"),
    (
        &["docker"],
        "Docker (https://docs.docker.com/engine/install)",
    ),
    (
        &["podman"],
        "Podman (Debian and Ubuntu: `apt install podman`)",
    ),
    (
        &["python", "python3", "pip", "pip3"],
        "Python (Debian and Ubuntu: `apt install python3`)",
    ),
    (&["pipx"], "pipx (Debian and Ubuntu: `apt install pipx`)"),
    (
        &["java"],
        "a Java runtime (Debian and Ubuntu: `apt install default-jre`)",
    ),
    (&["dotnet"], "the .NET SDK (https://dotnet.microsoft.com)"),
    (&["go"], "Go (https://go.dev)"),
    (&["cargo"], "Rust (https://rustup.rs)"),
    (
        &["ruby", "gem", "bundle"],
        "Ruby (Debian and Ubuntu: `apt install ruby`)",
    ),
    (&["php"], "PHP (Debian and Ubuntu: `apt install php-cli`)"),
];

/// The reason why the program in these settings cannot start, as far as the file system shows.
pub(super) fn not_started(settings: &ProcessSettings) -> Option<Remedy> {
    let command = &settings.command;
    if let Some(cwd) = settings.cwd.as_ref().filter(|cwd| !cwd.is_dir()) {
        let text = format!("create the folder {}, or correct `cwd`", display_path(cwd));
        return remedy(RemedyKind::Configuration, text);
    }
    let files = find_program(settings, command);
    if let [file, ..] = files.as_slice() {
        let text = format!(
            "make the program executable: `chmod +x {}`; a script must begin with `#!`",
            display_path(file)
        );
        return remedy(RemedyKind::Program, text);
    }
    if let Some((program, rest)) = command.trim().split_once(char::is_whitespace) {
        // The first word is an option, a package or a file; the rest could be secret.
        let first = rest.split_whitespace().next().unwrap_or_default();
        let first = first
            .split_once('=')
            .map_or(first.to_owned(), |(name, _)| format!("{name}=…"));
        let (program, first) = (
            excerpt(program.as_bytes(), SHOWN),
            excerpt(first.as_bytes(), 40),
        );
        let others = if rest.split_whitespace().count() > 1 {
            " and what follows"
        } else {
            ""
        };
        let text = format!(
            "`command` is the name of one program: write `{program}` there, and put `{first}`{others} in `args`"
        );
        return remedy(RemedyKind::Configuration, text);
    }
    if command.contains('/') {
        let text = format!(
            "there is no file {}: correct `command`",
            display_path(Path::new(command))
        );
        return remedy(RemedyKind::Program, text);
    }
    let name = program_name(settings);
    let install = match KNOWN
        .iter()
        .find(|(programs, _)| programs.contains(&&*name))
    {
        Some((_, package)) => format!("install {package}"),
        None => "install it".to_owned(),
    };
    let text = format!(
        "`{name}` is in no folder of PATH: {install}, write its whole path as `command`, or set PATH in `env`",
        name = excerpt(name.as_bytes(), SHOWN)
    );
    remedy(RemedyKind::Program, text)
}

fn display_path(path: impl AsRef<OsStr>) -> String {
    excerpt(path.as_ref().as_encoded_bytes(), SHOWN)
}

#[cfg(test)]
mod tests {
    use super::super::tests::settings;
    use super::*;

    fn text(settings: &ProcessSettings) -> (RemedyKind, String) {
        let remedy = not_started(settings).unwrap();
        (remedy.kind, remedy.text.to_string())
    }

    #[test]
    fn missing_program_names_package_and_not_the_whole_path() {
        let mut missing = settings("npx", &[]);
        missing.env = vec![("PATH".into(), crate::settings::Secret::new("/nowhere"))];
        let (kind, text) = text(&missing);
        assert_eq!(kind, RemedyKind::Program);
        assert!(
            text.contains("in no folder of PATH: install Node.js") && !text.contains("/nowhere"),
            "{text}"
        );
    }

    #[test]
    fn command_with_spaces_is_taken_apart_without_secrets() {
        let (kind, one) = text(&settings("nothing-here --foo", &[]));
        assert_eq!(kind, RemedyKind::Configuration);
        assert!(
            one.ends_with("write `nothing-here` there, and put `--foo` in `args`"),
            "{one}"
        );
        let (_, more) = text(&settings("nothing-here --token=s3cret s3cret", &[]));
        assert!(
            more.contains("put `--token=…` and what follows in `args`") && !more.contains("s3cret"),
            "{more}"
        );
    }

    #[test]
    fn files_and_folders_are_named() {
        assert!(
            text(&settings("/nowhere/run", &[]))
                .1
                .contains("no file /nowhere/run")
        );
        let folder = ProcessSettings {
            cwd: Some("/nowhere/at/all".into()),
            ..settings("sh", &[])
        };
        assert!(
            text(&folder)
                .1
                .contains("/nowhere/at/all, or correct `cwd`")
        );
        assert!(
            text(&settings("/etc/passwd", &[]))
                .1
                .contains("chmod +x /etc/passwd")
        );
    }
}
