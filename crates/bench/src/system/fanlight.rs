//! Fanlight with its default configuration, but for what a measurement needs more of.

use std::ffi::OsString;
use std::fmt::Write as _;
use std::net::SocketAddr;

use super::process::Process;
use super::{Bench, Kind, System, TempFile};
use crate::error::{BenchError, Result};

/// What differs from the defaults.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct FanlightConfig {
    /// How many clients, sessions and streams there may be, where that is more than the defaults.
    pub(crate) clients: Option<usize>,
    /// Entries on one page of a merged list.
    pub(crate) page_size: Option<usize>,
    /// Traces that are kept; none are recorded if that is 0 and they go nowhere else.
    pub(crate) traces: Option<usize>,
    /// Where spans and metrics go besides.
    pub(crate) collector: Option<SocketAddr>,
}

impl FanlightConfig {
    /// The file, for backends at `servers`.
    pub(crate) fn file(self, servers: &[SocketAddr]) -> Result<TempFile> {
        TempFile::new("fanlight.yaml", &self.text(servers))
    }

    /// The file's text, for backends at `servers`.
    fn text(self, servers: &[SocketAddr]) -> String {
        let mut text = String::new();
        let mut limits = String::new();
        if let Some(clients) = self.clients {
            // Streams may take three quarters of the connections.
            let _ = writeln!(limits, "  connections: {}", clients + clients.div_ceil(2));
            for key in ["streams", "sessions", "backendSessions", "concurrency"] {
                let _ = writeln!(limits, "  {key}: {clients}");
            }
        }
        if let Some(size) = self.page_size {
            let _ = writeln!(limits, "  pageSize: {size}");
        }
        if let Some(traces) = self.traces {
            let _ = writeln!(limits, "  traces: {traces}");
        }
        if !limits.is_empty() {
            let _ = write!(text, "limits:\n{limits}");
        }
        if let Some(collector) = self.collector {
            let _ = writeln!(text, "telemetry: {{ endpoint: \"http://{collector}\" }}");
        }
        text += "mcpServers:\n";
        for (number, server) in servers.iter().enumerate() {
            let _ = writeln!(text, "  s{number}: {{ type: http, url: \"http://{server}/mcp\" }}");
        }
        text
    }
}

/// The configuration with one shared server over stdio, which is `command`.
pub(crate) fn stdio_config(command: &str, args: &[&str]) -> String {
    let args: Vec<String> = args.iter().map(|arg| format!("{arg:?}")).collect();
    format!("mcpServers:\n  echo: {{ command: {command:?}, args: [{}], session: shared }}\n", args.join(", "))
}

pub(super) async fn start(
    bench: &Bench,
    kind: Kind,
    servers: &[SocketAddr],
    config: &FanlightConfig,
) -> Result<System> {
    if !bench.fanlight.exists() {
        let hint = "build it with `cargo build --release`, or name another with --fanlight";
        return Err(BenchError::Missing { program: bench.fanlight.clone(), hint });
    }
    let file = config.file(servers)?;
    let mut args: Vec<OsString> =
        ["run", "--listen", "127.0.0.1:0", "--admin", "off", "--config"].map(Into::into).into();
    args.push(file.path().into());
    let mut process = Process::start(kind.as_str(), &bench.fanlight, &args, bench.gateway)?;
    let said = process.line_after("listening on http://").await?;
    let address = said.strip_suffix("/mcp").and_then(|address| address.parse().ok());
    let address = address.ok_or_else(|| BenchError::Other(format!("Fanlight listens at {said:?}")))?;
    let prefixes = match servers.len() {
        1 => vec![String::new()],
        several => (0..several).map(|number| format!("s{number}__")).collect(),
    };
    Ok(System { kind, address, prefixes, process: Some(process), _files: vec![file] })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_differs_is_said() {
        let server: SocketAddr = "127.0.0.1:7".parse().unwrap();
        let plain = FanlightConfig::default().text(&[server]);
        assert_eq!(plain, "mcpServers:\n  s0: { type: http, url: \"http://127.0.0.1:7/mcp\" }\n");
        let more = FanlightConfig { clients: Some(9), page_size: Some(5), traces: Some(0), collector: Some(server) };
        let more = more.text(&[server]);
        assert!(more.starts_with(
            "limits:\n  connections: 14\n  streams: 9\n  sessions: 9\n  backendSessions: 9\n  concurrency: 9\n  pageSize: 5\n  traces: 0\ntelemetry: { endpoint: \"http://127.0.0.1:7\" }\nmcp"
        ));
    }
}
