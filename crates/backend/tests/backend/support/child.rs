//! Child processes scripted in the shell.

use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};

use fanlight_backend::{Secret, TransportSettings};

/// Reads a message a line; `$line` is the message, `$id` its id. `result` and `error` answer it.
const PRELUDE: &str = r#"
result() { printf '{"jsonrpc":"2.0","id":%s,"result":%s}\n' "$id" "$1"; }
error() { printf '{"jsonrpc":"2.0","id":%s,"error":%s}\n' "$id" "$1"; }
say() { printf '%s\n' "$1"; }
echo $$ >> "$STATE/starts"
while IFS= read -r line; do
  id=${line#*\"id\":}; id=${id%%,*}
  case "$line" in
"#;

const LEGACY: &str = r#"
    *'"method":"server/discover"'*) error '{"code":-32601,"message":"no such method"}';;
    *'"method":"initialize"'*) result '{"protocolVersion":"2025-06-18","capabilities":{"logging":{}}}';;
    *'"method":"notifications/initialized"'*) ;;
"#;

const MODERN: &str = r#"
    *'"method":"server/discover"'*) result '{"resultType":"complete","supportedVersions":["2026-07-28"],"capabilities":{}}';;
"#;

static COUNT: AtomicU32 = AtomicU32::new(0);

/// A script, and a folder in which it keeps what outlives a process.
pub(crate) struct Child {
    script: String,
    state: PathBuf,
}

impl Child {
    /// A process that answers by these branches of a shell `case` over the message.
    pub(crate) fn new(cases: &str) -> Self {
        Self::running(&format!("{PRELUDE}{cases}\n  esac\ndone\n"))
    }

    /// A legacy server.
    pub(crate) fn legacy(cases: &str) -> Self {
        Self::new(&format!("{cases}{LEGACY}"))
    }

    /// A modern server.
    pub(crate) fn modern(cases: &str) -> Self {
        Self::new(&format!("{cases}{MODERN}"))
    }

    /// A process that runs a whole script.
    pub(crate) fn running(script: &str) -> Self {
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let state = std::env::temp_dir().join(format!("fanlight-backend-{}-{number}", std::process::id()));
        std::fs::create_dir_all(&state).unwrap();
        Self { script: script.to_owned(), state }
    }

    pub(crate) fn transport(&self) -> TransportSettings {
        TransportSettings::Stdio {
            command: "sh".into(),
            args: vec!["-c".into(), self.script.clone()],
            env: vec![("STATE".into(), Secret::new(self.state.to_string_lossy()))],
            cwd: None,
        }
    }

    /// What the script wrote to a file of its folder.
    pub(crate) fn file(&self, name: &str) -> String {
        std::fs::read_to_string(self.state.join(name)).unwrap_or_default()
    }

    /// Whether the script made a file of its folder.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.state.join(name).exists()
    }

    /// The process ids of all starts so far.
    pub(crate) fn starts(&self) -> Vec<i32> {
        self.file("starts").lines().map(|line| line.parse().unwrap()).collect()
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.state);
    }
}

/// Whether a process exists, be it as a zombie.
pub(crate) fn exists(id: i32) -> bool {
    std::path::Path::new(&format!("/proc/{id}")).exists()
}
