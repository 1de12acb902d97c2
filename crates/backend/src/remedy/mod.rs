//! Advice for operators after a failed attempt to connect, guessed from the error and the process's
//! output.
//!
//! The first matching rule gives the remedy. A text names configuration keys, but never arguments
//! or environment values, which may be secret.

mod output;
mod program;
mod url;

use std::path::Path;

use fanlight_canonical::{BackendError, FailureDetails, Remedy, RemedyKind};

use crate::transport::stdio::ProcessSettings;

pub(crate) use url::find_for_url;

/// The remedy for a process that did not start, or did not remain a server. It has no `output` if it
/// did not start.
pub(crate) fn find_for_process(
    settings: &ProcessSettings,
    error: &BackendError,
    output: Option<&FailureDetails>,
) -> Option<Remedy> {
    let Some(output) = output else {
        return program::not_started(settings);
    };
    output::rule(settings, output).or_else(|| by_error(settings, error, output))
}

fn by_error(
    settings: &ProcessSettings,
    error: &BackendError,
    output: &FailureDetails,
) -> Option<Remedy> {
    if program_name(settings) == "docker" && !settings.args.iter().any(|arg| is_interactive(arg)) {
        let text = "put `-i` after `run` in `args`: without it the container has no standard input";
        return remedy(RemedyKind::Configuration, text);
    }
    if !output.stdout.is_empty() {
        let text = "it must write its log to standard error: look for an option that makes it serve over standard input \
                    and output (often `--stdio`) or that silences it";
        return remedy(RemedyKind::Server, text);
    }
    match error.cause() {
        BackendError::Timeout { .. } => {
            let text = "if it only starts slowly, give it a longer `startTimeout`; if it serves over HTTP, start it \
                        yourself and configure its `url`";
            remedy(RemedyKind::Time, text)
        }
        BackendError::Exited { .. } if output.is_empty() => {
            let text = "it ended by itself and wrote nothing: it may need an argument that makes it serve over standard \
                        input and output";
            remedy(RemedyKind::Server, text)
        }
        BackendError::Exited { .. } | BackendError::Unreachable { .. } => remedy(
            RemedyKind::Server,
            "run its command in a terminal to see why it ends",
        ),
        _ => None,
    }
}

/// Whether an argument of `docker run` connects standard input: `-i`, `-it`, `--interactive`.
fn is_interactive(arg: &str) -> bool {
    arg == "--interactive" || (arg.starts_with('-') && !arg.starts_with("--") && arg.contains('i'))
}

/// The command without its folder.
fn program_name(settings: &ProcessSettings) -> String {
    Path::new(&settings.command)
        .file_name()
        .unwrap_or_default()
        .to_string_lossy()
        .into_owned()
}

fn remedy(kind: RemedyKind, text: impl Into<String>) -> Option<Remedy> {
    Some(Remedy {
        kind,
        text: text.into().into(),
    })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::settings::ProcessPolicy;

    pub(super) fn settings(command: &str, args: &[&str]) -> ProcessSettings {
        ProcessSettings {
            name: Arc::from("b"),
            command: command.into(),
            args: args.iter().map(|arg| (*arg).to_owned()).collect(),
            env: Vec::new(),
            cwd: None,
            policy: ProcessPolicy::default(),
            grace: std::time::Duration::ZERO,
        }
    }

    fn wrote(stderr: &str, stdout: &str) -> FailureDetails {
        let lines = |text: &str| text.lines().map(Arc::from).collect();
        FailureDetails {
            stderr: lines(stderr),
            stdout: lines(stdout),
            ..FailureDetails::default()
        }
    }

    fn exited() -> BackendError {
        BackendError::Exited {
            status: Some("exit status: 1".into()),
        }
        .while_connecting()
    }

    fn text(command: &str, args: &[&str], error: &BackendError, output: &FailureDetails) -> String {
        find_for_process(&settings(command, args), error, Some(output))
            .map(|remedy| remedy.text.to_string())
            .unwrap_or_default()
    }

    #[test]
    fn what_a_process_wrote_tells_the_remedy() {
        for (command, stderr, expected) in [
            ("npx", "npm error code E404", "no package of this name"),
            (
                "uvx",
                "error: No solution found when resolving tool dependencies: not found in the package registry",
                "no package of this name",
            ),
            ("npx", "npm error code EAI_AGAIN", "HTTPS_PROXY"),
            (
                "uvx",
                "error: Failed to fetch: `https://packages.example/simple/x/`",
                "HTTPS_PROXY",
            ),
            ("node", "Error: Cannot find module '/srv/x.js'", "`args`"),
            (
                "python3",
                "ModuleNotFoundError: No module named 'mcp'",
                "installed",
            ),
            (
                "server",
                "Error: GITHUB_TOKEN environment variable is not set",
                "`env`",
            ),
            ("server", "error: unrecognized arguments: --foo", "`args`"),
            (
                "server",
                "Error: listen EADDRINUSE: address already in use :::3000",
                "`url`",
            ),
            (
                "docker",
                "Cannot connect to the Docker daemon at unix:///var/run/docker.sock.",
                "Docker is running",
            ),
            ("docker", "the input device is not a TTY", "leave `-t` out"),
            ("run.sh", "sh: 1: frobnicate: not found", "PATH"),
            ("server", "thread 'main' panicked", "in a terminal"),
        ] {
            let found = text(command, &["run", "-i"], &exited(), &wrote(stderr, ""));
            assert!(found.contains(expected), "{stderr}: {found}");
        }
    }

    #[test]
    fn error_tells_the_remedy_where_the_output_does_not() {
        let timeout = BackendError::Timeout {
            after: std::time::Duration::from_secs(90),
            sent: false,
        };
        assert!(text("a", &[], &timeout, &wrote("", "")).contains("`startTimeout`"));
        assert!(
            text("a", &[], &timeout, &wrote("", "Server running on stdio"))
                .contains("standard error")
        );
        assert!(
            text(
                "docker",
                &["run", "--rm", "image"],
                &timeout,
                &wrote("", "")
            )
            .contains("`-i`")
        );
        assert!(
            !text(
                "docker",
                &["run", "--rm", "-i", "image"],
                &timeout,
                &wrote("", "")
            )
            .contains("`-i`")
        );
        assert!(text("a", &[], &exited(), &wrote("", "")).contains("may need an argument"));
        let keeps_ending = BackendError::Unreachable { reason: "".into() };
        for output in [wrote("", ""), wrote("bye", "")] {
            let found = find_for_process(&settings("a", &[]), &keeps_ending, Some(&output));
            assert_eq!(found.unwrap().kind, RemedyKind::Server, "it did start");
        }
        assert_eq!(
            text(
                "a",
                &[],
                &BackendError::NoCommonRevision {
                    offered: "1".into()
                },
                &wrote("", "")
            ),
            ""
        );
    }
}
