//! Starts a child process, and ends it with all its descendants: through a guard if there is one,
//! otherwise as a process group.
//!
//! The start waits for a free file when Fanlight has as many open files as it may; they become free
//! as calls end, and those kept for later use are closed meanwhile
//! ([`fanlight_http::client::shortages`]). The child's environment has few of Fanlight's own
//! variables, which include the secrets of all servers.

use std::collections::BTreeMap;
use std::error::Error;
use std::ffi::{OsStr, OsString};
use std::io;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use bytes::Bytes;
use fanlight_canonical::BackendError;
use fanlight_config::settings::is_own_variable;
use fanlight_http::client::{is_out_of_files, wait_for_file};
use process_wrap::tokio::{ChildWrapper, CommandWrap, KillOnDrop, ProcessGroup};
use rustix::fs::{Access, access};
use rustix::process::{Pid, Signal, kill_process, kill_process_group, test_kill_process_group};
use tokio::process::{ChildStderr, ChildStdin, ChildStdout, Command};
use tokio::time::{Instant, sleep, timeout};

use super::ProcessSettings;
use crate::log::excerpt;
use crate::settings::{ProcessPolicy, Secret};

/// The interval for polling whether the rest of a process group has ended.
const POLL: Duration = Duration::from_millis(20);
/// The folders to search for programs without a `PATH`, as in the C library.
const DEFAULT_PATH: &str = "/bin:/usr/bin";

/// A process that was just started.
pub(super) struct Spawned {
    pub(super) process: Process,
    pub(super) stdin: ChildStdin,
    pub(super) stdout: ChildStdout,
    pub(super) stderr: ChildStderr,
    /// The first bytes for its standard input.
    pub(super) order: Bytes,
}

/// A running process with all its descendants.
pub(super) struct Process {
    child: Box<dyn ChildWrapper>,
    extent: Extent,
}

/// The processes that end together with a process.
enum Extent {
    /// The process group, until it has ended.
    Group(Option<Pid>),
    /// All its descendants. The child is their guard, which ends last.
    Guarded,
}

/// Starts the process. Waits while there are no files for its pipes; the caller limits the time.
/// Errors name the command, but neither its arguments nor its environment.
pub(super) async fn spawn(settings: &ProcessSettings) -> Result<Spawned, BackendError> {
    let env = environment(std::env::vars_os(), &settings.policy, &settings.env);
    let spawned = with_files(|| match &settings.policy.guard {
        Some(guard) => spawn_guarded(settings, env.clone(), guard),
        // Never start without the configured sandbox.
        None if !settings.policy.sandbox.is_empty() => Err(io::Error::new(
            io::ErrorKind::Unsupported,
            "this system has no sandbox for it",
        )),
        None => spawn_group(settings, env.clone()),
    })
    .await;
    let (mut process, order) =
        spawned.map_err(|error| unreachable(settings, &reason(&error, settings)))?;
    let child = &mut process.child;
    let pipes = (
        child.stdin().take(),
        child.stdout().take(),
        child.stderr().take(),
    );
    let (Some(stdin), Some(stdout), Some(stderr)) = pipes else {
        return Err(unreachable(settings, "it has no pipes"));
    };
    Ok(Spawned {
        process,
        stdin,
        stdout,
        stderr,
        order,
    })
}

type Environment = BTreeMap<OsString, OsString>;

fn spawn_group(settings: &ProcessSettings, env: Environment) -> io::Result<(Process, Bytes)> {
    let mut command = CommandWrap::with_new(&settings.command, |command| {
        command.args(&settings.args).env_clear().envs(env);
        pipes(command);
        if let Some(cwd) = &settings.cwd {
            command.current_dir(cwd);
        }
    });
    let child = command
        .wrap(ProcessGroup::leader())
        .wrap(KillOnDrop)
        .spawn()?;
    let group = child
        .id()
        .and_then(|id| Pid::from_raw(i32::try_from(id).ok()?));
    Ok((
        Process {
            child,
            extent: Extent::Group(group),
        },
        Bytes::new(),
    ))
}

#[cfg(target_os = "linux")]
fn spawn_guarded(
    settings: &ProcessSettings,
    env: Environment,
    guard: &Path,
) -> io::Result<(Process, Bytes)> {
    use fanlight_child_guard::{Order, STEP, SUBCOMMAND, encode};

    // The guard would notice, but could only log it.
    check(settings, &env)?;
    let order = Order {
        parent: std::process::id(),
        grace: settings.grace,
        command: settings.command.clone().into(),
        args: settings.args.iter().map(OsString::from).collect(),
        env: env.into_iter().collect(),
        cwd: settings.cwd.clone().map(Into::into),
    };
    // The guard starts the intermediate step, which starts the server and reads the rest of the
    // order.
    let Order { parent, grace, .. } = order;
    let step = Order {
        parent,
        grace,
        command: guard.into(),
        args: vec![STEP.into(), settings.name.to_string().into()],
        env: Vec::new(),
        cwd: None,
    };
    let orders = [
        encode(&step)?,
        encode(&settings.policy.sandbox)?,
        encode(&order)?,
    ]
    .concat();
    let mut command = Command::new(guard);
    command
        .arg0("fanlight")
        .arg(SUBCOMMAND)
        .arg(&*settings.name)
        .env_clear()
        .process_group(0);
    pipes(&mut command);
    let child = Box::new(command.spawn()?);
    Ok((
        Process {
            child,
            extent: Extent::Guarded,
        },
        orders.into(),
    ))
}

#[cfg(not(target_os = "linux"))]
fn spawn_guarded(_: &ProcessSettings, _: Environment, _: &Path) -> io::Result<(Process, Bytes)> {
    Err(io::ErrorKind::Unsupported.into())
}

fn pipes(command: &mut Command) {
    command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
}

/// Checks that the working directory exists, and that the command is found in it or in the
/// process's own `PATH`.
fn check(settings: &ProcessSettings, env: &Environment) -> io::Result<()> {
    let folder = settings.cwd.as_deref().unwrap_or(Path::new(""));
    if settings.cwd.is_some() && !folder.is_dir() {
        return Err(io::ErrorKind::NotFound.into());
    }
    let files = candidates(folder, &settings.command, path_of(env));
    if files.is_empty() {
        return Err(io::ErrorKind::NotFound.into());
    }
    let can_run = files
        .iter()
        .any(|file| access(file, Access::EXEC_OK).is_ok());
    if can_run {
        Ok(())
    } else {
        Err(io::ErrorKind::PermissionDenied.into())
    }
}

/// The files that may be the command; in the folders of `path` if it is a bare name.
fn candidates(folder: &Path, command: &str, path: &OsStr) -> Vec<PathBuf> {
    let files: Vec<PathBuf> = if command.contains('/') {
        vec![folder.join(command)]
    } else {
        std::env::split_paths(path)
            .map(|place| folder.join(place).join(command))
            .collect()
    };
    files.into_iter().filter(|file| file.is_file()).collect()
}

fn path_of(env: &Environment) -> &OsStr {
    env.get(OsStr::new("PATH"))
        .map_or(OsStr::new(DEFAULT_PATH), OsString::as_os_str)
}

/// The `PATH` for programs of a process with these settings.
fn search_path(settings: &ProcessSettings) -> OsString {
    path_of(&environment(
        std::env::vars_os(),
        &settings.policy,
        &settings.env,
    ))
    .to_owned()
}

/// The files that may be this command for a process with these settings.
pub(crate) fn find_program(settings: &ProcessSettings, command: &str) -> Vec<PathBuf> {
    candidates(
        settings.cwd.as_deref().unwrap_or(Path::new("")),
        command,
        &search_path(settings),
    )
}

fn unreachable(settings: &ProcessSettings, reason: &str) -> BackendError {
    // A command that is no file may be a whole command line, with secrets after the program.
    let program = if find_program(settings, &settings.command).is_empty() {
        settings.command.split_whitespace().next()
    } else {
        Some(settings.command.as_str())
    };
    let file = Path::new(program.unwrap_or_default())
        .file_name()
        .unwrap_or_default()
        .to_string_lossy();
    BackendError::Unreachable {
        reason: format!("cannot start {:?}: {reason}", excerpt(file.as_bytes(), 80)),
    }
}

fn reason(error: &io::Error, settings: &ProcessSettings) -> String {
    match error.kind() {
        io::ErrorKind::NotFound if settings.cwd.as_ref().is_some_and(|cwd| !cwd.is_dir()) => {
            "its working directory does not exist".into()
        }
        io::ErrorKind::NotFound => "no such command".into(),
        _ => error.to_string(),
    }
}

impl Process {
    /// The process id; the guard's, if there is one.
    pub(super) fn id(&self) -> Option<u32> {
        self.child.id()
    }

    /// Waits until the process ends. A guard ends with the last descendant, and with the process's
    /// own status.
    pub(super) async fn wait(&mut self) -> Option<ExitStatus> {
        self.child.wait().await.ok()
    }

    /// Ends the process, whose standard input has been closed, and then the rest of its
    /// descendants. Takes a bounded time and leaves no zombie. `grace` is the time to end by
    /// itself, then after SIGTERM, then after SIGKILL.
    pub(super) async fn end(&mut self, grace: Duration) {
        if timeout(grace, self.wait()).await.is_err() {
            self.signal(Signal::TERM);
            // A guard kills the rest after `grace`, and gives up after the same time again.
            let patience = if matches!(self.extent, Extent::Guarded) {
                3 * grace
            } else {
                grace
            };
            if timeout(patience, self.wait()).await.is_err() {
                self.signal(Signal::KILL);
                let _ = timeout(grace, self.wait()).await;
            }
        }
        self.end_group(grace).await;
    }

    /// Ends the process group. Remaining processes are not children of this process, so their end
    /// can only be polled.
    async fn end_group(&mut self, grace: Duration) {
        if self.group_exists() {
            self.signal(Signal::TERM);
            let deadline = Instant::now() + grace;
            while self.group_exists() && Instant::now() < deadline {
                sleep(POLL).await;
            }
            if self.group_exists() {
                self.signal(Signal::KILL);
            }
        }
        if let Extent::Group(group) = &mut self.extent {
            // From here on, the system may reuse the number.
            *group = None;
        }
    }

    fn group_exists(&self) -> bool {
        matches!(self.extent, Extent::Group(Some(group)) if test_kill_process_group(group).is_ok())
    }

    /// Sends a signal. A failure means that the process has just ended.
    fn signal(&self, signal: Signal) {
        match self.extent {
            Extent::Group(Some(group)) => {
                let _ = kill_process_group(group, signal);
            }
            Extent::Group(None) => {}
            Extent::Guarded => {
                // Without an id, the guard has already been waited for.
                let guard = self
                    .child
                    .id()
                    .and_then(|id| Pid::from_raw(i32::try_from(id).ok()?));
                if let Some(guard) = guard {
                    let _ = kill_process(guard, signal);
                    // Something may have stopped the guard.
                    let _ = kill_process(guard, Signal::CONT);
                }
            }
        }
    }
}

impl Drop for Process {
    /// There is no time for a proper end, so it is killed with all its descendants.
    fn drop(&mut self) {
        match self.extent {
            Extent::Group(_) => self.signal(Signal::KILL),
            #[cfg(target_os = "linux")]
            Extent::Guarded => self.signal(fanlight_child_guard::KILL),
            #[cfg(not(target_os = "linux"))]
            Extent::Guarded => {}
        }
    }
}

/// Repeats an attempt until it no longer fails for lack of a file. The caller limits the time.
async fn with_files<T, E: Error + 'static>(
    mut attempt: impl FnMut() -> Result<T, E>,
) -> Result<T, E> {
    let mut is_first = true;
    loop {
        match attempt() {
            Err(error) if is_out_of_files(&error) => {
                if std::mem::take(&mut is_first) {
                    tracing::warn!(%error, "waiting for a file: as many are open as the limit allows");
                }
                wait_for_file().await;
            }
            outcome => return outcome,
        }
    }
}

/// Variables that every process inherits: those that the SDKs' clients pass on, and the time zone,
/// language and temporary folder.
const COMMON: &[&str] = &[
    "HOME", "LANG", "LC_*", "LOGNAME", "PATH", "SHELL", "TERM", "TMPDIR", "TZ", "USER",
];

/// Common variables about the user. In a sandbox with `user`, they would describe another user.
const OF_USER: &[&str] = &["HOME", "LOGNAME", "SHELL", "USER"];

/// The environment of a process. Of Fanlight's `own` variables it has the common ones and those
/// that match the policy's patterns; the `set` variables override them.
pub(super) fn environment(
    own: impl Iterator<Item = (OsString, OsString)>,
    policy: &ProcessPolicy,
    set: &[(String, Secret)],
) -> BTreeMap<OsString, OsString> {
    let is_other_user = policy.sandbox.user.is_some();
    let is_inherited = |name: &OsStr, value: &OsStr| {
        // Some shells export functions in this form. That is code, which not every program expects
        // in such a variable.
        let is_common = COMMON.iter().any(|pattern| fits(name, pattern))
            && !value.as_encoded_bytes().starts_with(b"()")
            && !(is_other_user && OF_USER.iter().any(|own| name == *own));
        is_common
            || (!is_own(name)
                && policy
                    .inherit_env
                    .iter()
                    .any(|pattern| is_passed_on(name, pattern, policy)))
    };
    let mut all: BTreeMap<_, _> = own
        .filter(|(name, value)| is_inherited(name, value))
        .collect();
    all.extend(
        set.iter()
            .map(|(name, value)| (name.into(), value.expose().into())),
    );
    all
}

/// Whether a variable contains a secret of Fanlight itself.
fn is_own(name: &OsStr) -> bool {
    is_own_variable(&name.to_string_lossy())
}

/// Whether a pattern passes a variable on. Variables of Fanlight's own options may contain secrets,
/// so only their full names do.
fn is_passed_on(name: &OsStr, pattern: &str, policy: &ProcessPolicy) -> bool {
    name == pattern
        || (fits(name, pattern) && !policy.own_variables.iter().any(|own| name == own.as_str()))
}

/// Whether a name matches a pattern. A `*` at the end stands for any text.
fn fits(name: &OsStr, pattern: &str) -> bool {
    match pattern.strip_suffix('*') {
        Some(start) => name.as_encoded_bytes().starts_with(start.as_bytes()),
        None => name == pattern,
    }
}

#[cfg(test)]
mod tests {
    use std::io;

    use fanlight_http::client::shortages;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn attempt_without_a_file_is_repeated_and_announced() {
        let mut shortage = shortages();
        let mut outcomes = [Err(24), Err(23), Ok(())].into_iter();
        let attempt = || {
            outcomes
                .next()
                .unwrap()
                .map_err(io::Error::from_raw_os_error)
        };
        with_files(attempt).await.unwrap();
        assert!(shortage.has_changed().unwrap());
        shortage.mark_unchanged();
        let refused = with_files(|| Err::<(), _>(io::Error::from(io::ErrorKind::NotFound))).await;
        assert_eq!(refused.unwrap_err().kind(), io::ErrorKind::NotFound);
    }
}

#[cfg(test)]
mod environment_tests {
    use super::*;
    use crate::settings::Sandbox;

    fn names(inherit: &[&str], set: &[(&str, &str)]) -> Vec<String> {
        names_of(None, inherit, set)
    }

    fn names_of(user: Option<&str>, inherit: &[&str], set: &[(&str, &str)]) -> Vec<String> {
        let own = [
            ("FANLIGHT_ADMIN_TOKEN", "s3cret"),
            ("OTEL_EXPORTER_OTLP_HEADERS", "s3cret"),
            ("HOME", "/home/me"),
            ("LC_ALL", "C"),
            ("LC", "x"),
            ("PATH", "/bin"),
            ("PATHS", "x"),
            ("TERM", "() { :; }; echo"),
            ("AWS_KEY", "k"),
            ("AWS_REGION", "r"),
        ];
        let own = own
            .into_iter()
            .map(|(name, value)| (name.into(), value.into()));
        let inherit: Vec<String> = inherit.iter().map(|name| (*name).to_owned()).collect();
        let set: Vec<_> = set
            .iter()
            .map(|(name, value)| ((*name).to_owned(), Secret::new(*value)))
            .collect();
        let user = user.map(str::to_owned);
        let sandbox = Sandbox {
            user,
            ..Sandbox::default()
        };
        let own_variables = vec!["AWS_KEY".to_owned()];
        let policy = ProcessPolicy {
            inherit_env: inherit,
            own_variables,
            sandbox,
            ..ProcessPolicy::default()
        };
        let all = environment(own, &policy, &set);
        all.into_iter()
            .map(|(name, value)| format!("{}={}", name.display(), value.display()))
            .collect()
    }

    #[test]
    fn environment_has_common_variables_and_no_secret() {
        assert_eq!(names(&[], &[]), ["HOME=/home/me", "LC_ALL=C", "PATH=/bin"]);
    }

    #[test]
    fn environment_of_another_user_has_no_home_of_this_one() {
        assert_eq!(names_of(Some("other"), &[], &[]), ["LC_ALL=C", "PATH=/bin"]);
        assert_eq!(
            names_of(Some("other"), &["HOME"], &[]),
            ["HOME=/home/me", "LC_ALL=C", "PATH=/bin"]
        );
        assert_eq!(
            names_of(Some("other"), &[], &[("HOME", "/srv")]),
            ["HOME=/srv", "LC_ALL=C", "PATH=/bin"]
        );
    }

    #[test]
    fn environment_has_what_the_entry_names() {
        assert_eq!(
            names(&["AWS_REGION"], &[]),
            ["AWS_REGION=r", "HOME=/home/me", "LC_ALL=C", "PATH=/bin"]
        );
        assert_eq!(
            names(&["AWS_R*"], &[("HOME", "/")]),
            ["AWS_REGION=r", "HOME=/", "LC_ALL=C", "PATH=/bin"]
        );
    }

    #[test]
    fn environment_never_has_secrets_of_fanlight() {
        for pattern in ["*", "F*", "FANLIGHT_*", "FANLIGHT_ADMIN_TOKEN"] {
            let names = names(&[pattern, "O*"], &[]);
            assert!(
                !names.iter().any(|name| name.contains("s3cret")),
                "{names:?}"
            );
        }
        assert_eq!(names(&["*"], &[]).len(), 7);
        // A variable of Fanlight's own options is passed on by its full name.
        assert!(!names(&["AWS_*"], &[]).contains(&"AWS_KEY=k".to_owned()));
        assert!(names(&["AWS_KEY"], &[]).contains(&"AWS_KEY=k".to_owned()));
    }
}
