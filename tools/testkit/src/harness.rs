//! Starts the real binary, finds its addresses, records its log, and ends it.

use std::collections::VecDeque;
use std::ffi::OsStr;
use std::fs;
use std::net::SocketAddr;
use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::io::{AsyncBufReadExt, AsyncRead, BufReader};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::sync::watch;

pub use crate::patience::{PATIENCE, within};
use crate::schema::{Checks, Direction, Listening};
use crate::{programs, usage};

/// The number of log lines kept for failure messages.
const LOG_LINES: usize = 4000;

/// A running `fanlight run` with its listeners.
pub struct Gateway {
    /// The address of the MCP endpoint.
    pub mcp: SocketAddr,
    /// The address of the admin listener.
    pub admin: SocketAddr,
    /// Its output on standard output and standard error.
    pub log: ShownLog,
    listening: Listening,
    child: Child,
    _files: TempFile,
}

impl Gateway {
    /// Starts `fanlight run` on free ports and waits until it has logged its addresses.
    pub async fn start(config_text: &str) -> Self {
        Self::start_with(config_text, &[]).await
    }

    /// [`Self::start`] with more arguments.
    pub async fn start_with(config_text: &str, more: &[&str]) -> Self {
        let config = TempFile::new("yaml", config_text);
        let mut command = fanlight();
        command
            .args(["run", "--config"])
            .arg(config.path())
            .args(more);
        Self::running(command, config).await
    }

    /// [`Self::start`] with this variable in its environment.
    pub async fn start_with_env(config_text: &str, name: &str, value: impl AsRef<OsStr>) -> Self {
        let config = TempFile::new("yaml", config_text);
        let mut command = fanlight();
        command
            .args(["run", "--config"])
            .arg(config.path())
            .env(name, value);
        Self::running(command, config).await
    }

    /// Starts `fanlight run` with a configuration that the test owns.
    pub async fn start_at(path: PathBuf) -> Self {
        let mut command = fanlight();
        command.args(["run", "--config"]).arg(path);
        Self::running(command, TempFile::folder()).await
    }

    /// [`Self::start_at`] with this variable in its environment.
    pub async fn start_at_with_env(path: PathBuf, name: &str, value: impl AsRef<OsStr>) -> Self {
        Self::start_at_with_envs(path, &[(name, value)]).await
    }

    /// [`Self::start_at`] with these variables in its environment.
    pub async fn start_at_with_envs(
        path: PathBuf,
        variables: &[(&str, impl AsRef<OsStr>)],
    ) -> Self {
        let mut command = fanlight();
        command.args(["run", "--config"]).arg(path);
        command.envs(variables.iter().map(|(name, value)| (name, value)));
        Self::running(command, TempFile::folder()).await
    }

    /// [`Self::start`] with a soft and a hard limit of open files.
    pub async fn start_with_files(config_text: &str, soft: u32, hard: u32) -> Self {
        let config = TempFile::new("yaml", config_text);
        let mut command = Command::new("sh");
        let limited =
            format!("ulimit -Sn {soft}; ulimit -Hn {hard} 2>/dev/null; exec \"$0\" \"$@\"");
        command
            .kill_on_drop(true)
            .args(["-c", &limited])
            .arg(programs::fanlight());
        command.args(["run", "--config"]).arg(config.path());
        Self::running(command, config).await
    }

    /// [`Self::start`] with a disk of this size at a folder, which only its process sees. It needs
    /// the permission to make user namespaces.
    pub async fn start_with_disk(config_text: &str, folder: &Path, size: &str) -> Self {
        let config = TempFile::new("yaml", config_text);
        let mut command = Command::new("unshare");
        let mounted = r#"mount -t tmpfs -o mode=0700,size="$0" tmpfs "$1" && shift && exec "$@""#;
        command
            .kill_on_drop(true)
            .args(["--user", "--map-root-user", "--mount", "sh", "-c"])
            .args([mounted, size])
            .arg(folder)
            .arg(programs::fanlight());
        command.args(["run", "--config"]).arg(config.path());
        Self::running(command, config).await
    }

    /// [`Self::start`] on a kernel without Landlock, or one where it is `disabled`.
    pub async fn start_without_landlock(config_text: &str, is_disabled: bool) -> Self {
        let config = TempFile::new("yaml", config_text);
        let mut command = Command::new(programs::without_landlock());
        command
            .kill_on_drop(true)
            .arg(if is_disabled { "disabled" } else { "unknown" })
            .arg(programs::fanlight());
        command.args(["run", "--config"]).arg(config.path());
        Self::running(command, config).await
    }

    /// Starts the embedded demo: without subcommand and configuration, in an empty folder.
    pub async fn demo() -> Self {
        let folder = TempFile::folder();
        let mut command = fanlight();
        command.current_dir(folder.path());
        Self::running(command, folder).await
    }

    /// Starts `fanlight run` at the addresses in a configuration that the test owns.
    pub async fn start_at_addresses_of(path: PathBuf) -> Self {
        let mut command = fanlight();
        command.args(["run", "--config"]).arg(path);
        Self::spawned(command, TempFile::folder()).await
    }

    /// Starts `fanlight run` at the addresses in its configuration.
    pub async fn start_at_configured_addresses(config_text: &str) -> Self {
        Self::start_at_configured_addresses_with_env(config_text, &[]).await
    }

    /// [`Self::start_at_configured_addresses`] with these variables in its environment.
    pub async fn start_at_configured_addresses_with_env(
        config_text: &str,
        variables: &[(&str, String)],
    ) -> Self {
        let config = TempFile::new("yaml", config_text);
        let mut command = fanlight();
        command
            .args(["run", "--no-watch", "--config"])
            .arg(config.path());
        command.envs(variables.iter().map(|(name, value)| (name, value)));
        Self::spawned(command, config).await
    }

    async fn running(mut command: Command, files: TempFile) -> Self {
        command.args(["--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"]);
        Self::spawned(command, files).await
    }

    async fn spawned(mut command: Command, files: TempFile) -> Self {
        command.stdin(Stdio::null());
        let mut child = spawn(command);
        let log = ShownLog(Log::default());
        log.follow("err", child.stderr.take().unwrap());
        log.follow("out", child.stdout.take().unwrap());
        let mcp = log.address("listening on http", "/mcp").await;
        let admin = log.address("admin on http", "").await;
        Self {
            mcp,
            admin,
            log,
            listening: Listening::new(mcp),
            child,
            _files: files,
        }
    }

    /// The schema checks of all its messages to raw clients.
    pub fn checks(&self) -> &Checks {
        &self.listening.checks
    }

    /// Starts `fanlight stdio` with raw standard input and output.
    pub fn stdio(config_text: &str) -> StdioGateway {
        Self::stdio_with(config_text, &[])
    }

    /// [`Self::stdio`] with more arguments.
    pub fn stdio_with(config_text: &str, more: &[&str]) -> StdioGateway {
        let config = TempFile::new("yaml", config_text);
        let mut command = fanlight();
        command
            .args(["stdio", "--config"])
            .arg(config.path())
            .args(more)
            .stdin(Stdio::piped());
        let mut child = spawn(command);
        let log = ShownLog(Log::default());
        log.follow("err", child.stderr.take().unwrap());
        let (stdin, stdout) = (child.stdin.take(), child.stdout.take());
        StdioGateway {
            stdin,
            stdout,
            log,
            checks: Checks::new(Direction::ToClient),
            child,
            _config: config,
        }
    }

    /// The file or folder of its configuration.
    pub fn config_path(&self) -> &Path {
        self._files.path()
    }

    /// Replaces its configuration file in the way that editors do.
    pub fn configure(&self, config_text: &str) {
        let new = self._files.path().with_extension("new");
        fs::write(&new, config_text).unwrap();
        fs::rename(&new, self._files.path()).unwrap();
    }

    /// Sends SIGHUP.
    pub fn hang_up(&self) {
        send_signal(&self.child, rustix::process::Signal::HUP);
    }

    /// Its resident memory, in bytes.
    pub fn memory(&self) -> u64 {
        usage::resident_memory(self.pid())
    }

    /// The URL of the MCP endpoint.
    pub fn url(&self) -> String {
        format!("http://{}/mcp", self.mcp)
    }

    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.child.id().expect("it runs")
    }

    /// The peak of its resident memory so far, in bytes.
    pub fn peak_memory(&self) -> u64 {
        usage::peak_memory(self.pid())
    }

    /// The number of its threads whose name begins with this.
    pub fn threads(&self, name: &str) -> usize {
        usage::threads(self.pid(), name)
    }

    /// Its soft and hard limit of open files.
    pub fn max_files(&self) -> (u64, u64) {
        usage::max_files(self.pid())
    }

    /// Sends SIGTERM twice, the second time after the first was logged, and waits for its exit.
    pub async fn terminate_twice(mut self) -> ExitStatus {
        send_signal(&self.child, rustix::process::Signal::TERM);
        self.log
            .line_with("a second signal stops immediately")
            .await;
        signal_and_wait(&mut self.child, rustix::process::Signal::TERM).await
    }

    /// Kills it, so that it can finish nothing, and waits for its exit.
    pub async fn kill(&mut self) {
        signal_and_wait(&mut self.child, rustix::process::Signal::KILL).await;
    }

    /// Sends SIGTERM, as a service manager does, and waits for its exit.
    pub async fn terminate(mut self) -> ExitStatus {
        signal_and_wait(&mut self.child, rustix::process::Signal::TERM).await
    }
}

/// A running `fanlight stdio`.
pub struct StdioGateway {
    /// Its input, which the client takes; dropping it ends the input.
    pub stdin: Option<ChildStdin>,
    /// Its output, which the client takes.
    pub stdout: Option<ChildStdout>,
    /// Its output on standard error.
    pub log: ShownLog,
    /// The schema checks of all its messages.
    pub checks: Checks,
    child: Child,
    _config: TempFile,
}

impl Drop for StdioGateway {
    fn drop(&mut self) {
        self.checks.conclude();
    }
}

impl StdioGateway {
    /// The number of its listening TCP sockets.
    pub fn listening_sockets(&self) -> usize {
        let process = format!("/proc/{}", self.child.id().unwrap());
        let files = fs::read_dir(format!("{process}/fd")).unwrap();
        let open: Vec<PathBuf> = files
            .filter_map(|file| fs::read_link(file.ok()?.path()).ok())
            .collect();
        let tables = ["tcp", "tcp6"]
            .map(|table| fs::read_to_string(format!("{process}/net/{table}")).unwrap_or_default());
        // The fourth field of each line is the state, 0A for listening; the tenth is the socket's
        // inode.
        let fields = tables
            .iter()
            .flat_map(|table| table.lines())
            .map(|line| line.split_whitespace().collect::<Vec<_>>());
        let sockets = fields
            .filter(|line| line.get(3) == Some(&"0A"))
            .map(|line| format!("socket:[{}]", line[9]));
        sockets
            .filter(|socket| open.iter().any(|file| file.as_os_str() == socket.as_str()))
            .count()
    }

    /// Waits until it exits by itself.
    pub async fn ended(&mut self) -> ExitStatus {
        within("the gateway to end", self.child.wait())
            .await
            .unwrap()
    }
}

fn send_signal(child: &Child, signal: rustix::process::Signal) {
    let pid = child
        .id()
        .and_then(|pid| rustix::process::Pid::from_raw(pid.try_into().unwrap()));
    rustix::process::kill_process(pid.expect("it has ended already"), signal).unwrap();
}

/// Sends a signal to a gateway and waits for its exit.
pub async fn signal_and_wait(child: &mut Child, signal: rustix::process::Signal) -> ExitStatus {
    send_signal(child, signal);
    within("the gateway to end", child.wait()).await.unwrap()
}

/// A command that runs the binary under test; the process is killed when the test ends.
pub fn fanlight() -> Command {
    fanlight_at(programs::fanlight())
}

/// A command that runs a copy of the binary under test, as [`fanlight`] does.
pub fn fanlight_at(program: &Path) -> Command {
    let mut command = Command::new(program);
    // The process knows nothing of other runs, unless a test wants it to.
    command
        .kill_on_drop(true)
        .env("XDG_STATE_HOME", "/dev/null");
    // The keyring of the user who runs the tests stays untouched.
    command.env("DBUS_SESSION_BUS_ADDRESS", "unix:path=/dev/null");
    command
}

/// Sets the limits that the configuration of a command has under `x-limits`, such as `header=1s,batch=3`. The program itself
/// passes over such a key, and only builds with debug assertions read the variable.
pub fn set_limits(command: &mut Command) {
    let arguments = command.as_std().get_args().collect::<Vec<_>>();
    let config = arguments.windows(2).find(|pair| pair[0] == "--config");
    let text = config.and_then(|pair| fs::read_to_string(pair[1]).ok());
    let text = text.unwrap_or_default();
    if let Some((_, rest)) = text.split_once("x-limits") {
        let rest = rest.trim_start_matches(['"', ':', ' ']);
        let end = rest.find(['"', '\n']).unwrap_or(rest.len());
        command.env("FANLIGHT_TEST_LIMITS", &rest[..end]);
    }
}

fn spawn(mut command: Command) -> Child {
    set_limits(&mut command);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    command
        .spawn()
        .unwrap_or_else(|error| panic!("cannot start {command:?}: {error}"))
}

/// The output of a process, line by line.
#[derive(Clone)]
pub struct Log(Arc<watch::Sender<VecDeque<String>>>);

impl Default for Log {
    fn default() -> Self {
        Self(Arc::new(watch::Sender::new(VecDeque::new())))
    }
}

impl Log {
    /// Records the lines of a stream, each with `name` in front, and prints them if the test fails.
    pub fn print(name: &'static str, stream: impl AsyncRead + Unpin + Send + 'static) -> ShownLog {
        let log = Self::default();
        log.follow(name, stream);
        ShownLog(log)
    }

    fn follow(&self, name: &'static str, stream: impl AsyncRead + Unpin + Send + 'static) {
        let log = self.clone();
        tokio::spawn(async move {
            let mut lines = BufReader::new(stream).lines();
            while let Ok(Some(line)) = lines.next_line().await {
                log.push(format!("{name}| {line}"));
            }
            log.push(format!("{name}| (closed)"));
        });
    }

    fn push(&self, line: String) {
        self.0.send_modify(|lines| {
            if lines.len() == LOG_LINES {
                lines.pop_front();
            }
            lines.push_back(line);
        });
    }

    /// All recorded lines.
    pub fn text(&self) -> String {
        self.0
            .borrow()
            .iter()
            .map(|line| format!("{line}\n"))
            .collect()
    }

    /// Waits for a line that contains `part` and returns it. A line may follow the answer to the
    /// request that it is about.
    pub async fn line_with(&self, part: &str) -> String {
        self.line_with_all(&[part]).await
    }

    /// Waits for a line that contains each of these parts and returns it.
    pub async fn line_with_all(&self, parts: &[&str]) -> String {
        let mut changes = self.0.subscribe();
        let is_it = |line: &&String| parts.iter().all(|part| line.contains(part));
        let found = |lines: &VecDeque<String>| lines.iter().any(|line| is_it(&line));
        let waited = tokio::time::timeout(PATIENCE, changes.wait_for(found)).await;
        let lines = match waited {
            Ok(Ok(lines)) => lines,
            _ => panic!("no line with {parts:?} in\n{}", self.text()),
        };
        lines.iter().find(is_it).cloned().unwrap()
    }

    /// Waits for a line with an address between these texts, and returns the address.
    pub async fn address(&self, before: &str, after: &str) -> SocketAddr {
        let ended = "out| (closed)";
        let line = tokio::select! {
            line = self.line_with(before) => line,
            _ = self.line_with(ended) => panic!("it ended before saying `{before}…`:\n{}", self.text()),
        };
        let address = line
            .split(before)
            .nth(1)
            .unwrap()
            .split_whitespace()
            .next()
            .unwrap();
        let address = address.trim_start_matches('s').trim_start_matches("://");
        let address = address
            .strip_suffix(after)
            .unwrap_or_else(|| panic!("`{after}` at the end of `{line}`"));
        address
            .parse()
            .unwrap_or_else(|error| panic!("{error} in `{line}`"))
    }
}

/// The log of a process under test; it is printed if its test fails.
pub struct ShownLog(Log);

impl Deref for ShownLog {
    type Target = Log;

    fn deref(&self) -> &Log {
        &self.0
    }
}

impl Drop for ShownLog {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("--- log of the gateway\n{}---", self.text());
        }
    }
}

/// A temporary file or folder; dropping it deletes it.
pub struct TempFile(PathBuf);

impl TempFile {
    /// Creates a file with this text.
    pub fn new(extension: &str, text: &str) -> Self {
        let file = Self::unused(extension);
        fs::write(file.path(), text).unwrap();
        file
    }

    /// Creates an empty folder.
    pub fn folder() -> Self {
        let folder = Self::unused("d");
        fs::create_dir(folder.path()).unwrap();
        folder
    }

    /// The path.
    pub fn path(&self) -> &Path {
        &self.0
    }

    fn unused(extension: &str) -> Self {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = format!("fanlight-test-{}-{number}.{extension}", std::process::id());
        Self(std::env::temp_dir().join(name))
    }
}

impl Drop for TempFile {
    fn drop(&mut self) {
        let _ = if self.0.is_dir() {
            fs::remove_dir_all(&self.0)
        } else {
            fs::remove_file(&self.0)
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn log_finds_lines_and_addresses_at_any_time() {
        let (mut writer, reader) = tokio::io::duplex(64);
        let log = Log::default();
        log.follow("out", reader);
        let text = b"hello\nlistening on http://127.0.0.1:4321/mcp\n";
        tokio::io::AsyncWriteExt::write_all(&mut writer, text)
            .await
            .unwrap();
        assert_eq!(
            log.address("listening on http://", "/mcp").await,
            "127.0.0.1:4321".parse().unwrap()
        );
        assert_eq!(log.line_with("hel").await, "out| hello");
        assert_eq!(log.line_with_all(&["out", "hel"]).await, "out| hello");
    }

    #[test]
    fn temporary_file_is_removed_with_its_owner() {
        let (file, folder) = (TempFile::new("txt", "x"), TempFile::folder());
        let paths = [file.path().to_owned(), folder.path().to_owned()];
        assert_eq!(fs::read_to_string(&paths[0]).unwrap(), "x");
        drop((file, folder));
        assert!(paths.iter().all(|path| !path.exists()));
    }
}
