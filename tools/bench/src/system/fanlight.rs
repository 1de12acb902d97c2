//! Fanlight with its default configuration, except for raised limits.

use std::ffi::OsString;
use std::fmt::Write as _;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use tokio::io::AsyncWriteExt as _;
use tokio::process::Command;

use super::process::{Cores, Process};
use super::{Bench, Kind, System, folder_with};
use crate::access::{self, AUDIENCE, Access, Issuer};
use crate::error::{BenchError, Doing as _, Result};

/// The differences from the default configuration.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct FanlightConfig {
    /// The number of possible clients, sessions and streams, if it exceeds the defaults.
    pub(crate) clients: Option<usize>,
}

/// The endpoint of [`Kind::FanlightRewriting`] that has a filter and shows all servers.
pub(crate) const FILTERED: &str = "/mcp/filtered";
/// The changes of a server's tools. Calls of `text_200` get two arguments, and both of their own
/// argument names are checked.
const REWRITING: &str = ", rename: { filler_010: other }, override: { text_200: { description: Changed. } }, \
    arguments: { text_200: { owner: { value: acme }, page: { default: 1 }, debug: { hidden: true } } }";
/// The place of the audit log, which is else in the user's folder.
const RECORD: &str = "file: audit.jsonl";
const HEADER: &str = ", headers: { Authorization: \"Bearer 0123456789abcdef\" }";
/// The same header, for a user who has deposited [`DEPOSITED`].
const GRANT: &str = ", auth: { type: userKey, prefix: \"Bearer \" }";
const DEPOSITED: &str = "0123456789abcdef";

impl FanlightConfig {
    /// The text of the file, for servers at `servers`.
    fn text(self, kind: Kind, servers: &[SocketAddr], issuer: Option<&Issuer>) -> String {
        let mut limits = Vec::new();
        if let Some(clients) = self.clients {
            // Streams may take three quarters of the connections.
            limits.push(format!("connections: {}", clients + clients.div_ceil(2)));
            limits.extend(["sessions", "concurrency"].map(|key| format!("{key}: {clients}")));
        }
        limits.extend((kind == Kind::FanlightNoSpans).then(|| "traces: 0".to_owned()));
        let record = match kind {
            Kind::FanlightNoRecord => "keepFor: off",
            _ => RECORD,
        };
        let limits = limits.join(", ");
        let mut text = format!("audit: {{ {record} }}\nlimits: {{ {limits} }}\n");
        if let (Kind::FanlightExporting, Some(collector)) = (kind, servers.first()) {
            let _ = writeln!(text, "telemetry: {{ endpoint: \"http://{collector}\" }}");
        }
        if kind == Kind::FanlightNoContent {
            text += "telemetry: { content: off }\n";
        }
        if kind == Kind::FanlightTls {
            text += "tls: { cert: cert.pem, key: key.pem }\n";
        }
        if let Some(issuer) = issuer {
            let _ = writeln!(
                text,
                "auth:\n  oauth: [{{ issuer: \"{}\", jwksUri: \"{}\", audience: {AUDIENCE} }}]\n  \
                 scopes: {{ read: mcp:read, call: mcp:call }}",
                Issuer::NAME,
                issuer.jwks_uri(),
            );
        }
        if kind == Kind::FanlightResults {
            text += "endpoints:\n  /mcp: { results: {} }\n";
        }
        let is_rewriting = kind == Kind::FanlightRewriting;
        if is_rewriting {
            // The filter hides nothing, so that lists have the same size as without it.
            let _ = writeln!(
                text,
                "endpoints:\n  /mcp: {{}}\n  {FILTERED}: {{ tools: {{ deny: [\"hidden_*\"] }} }}"
            );
            for number in 1..9 {
                let _ = writeln!(
                    text,
                    "  /mcp/{number}: {{ servers: [s{number}], tools: {{ deny: [\"*filler_00*\"] }} }}"
                );
            }
        }
        if kind == Kind::FanlightGrant {
            // An own key, so that none is left in a keyring.
            let _ = writeln!(text, "stateDir: state\nkeys: [\"{}\"]", "5e".repeat(32));
        }
        let more = match kind {
            Kind::FanlightRewriting => REWRITING,
            Kind::FanlightServerResults => ", results: {}",
            Kind::FanlightHeader => HEADER,
            Kind::FanlightGrant => GRANT,
            _ => "",
        };
        text += "mcpServers:\n";
        for (number, server) in servers.iter().enumerate() {
            let _ = writeln!(
                text,
                "  s{number}: {{ type: http, url: \"http://{server}/mcp\"{more} }}"
            );
        }
        text
    }
}

pub(super) async fn start(
    bench: &Bench,
    kind: Kind,
    servers: &[SocketAddr],
    config: &FanlightConfig,
) -> Result<System> {
    if !bench.fanlight.exists() {
        let hint = "build it with `cargo build --profile dist`, or name another with --fanlight";
        return Err(BenchError::Missing {
            program: bench.fanlight.clone(),
            hint,
        });
    }
    let issuer = if kind == Kind::FanlightTokens {
        Some(Issuer::start().await?)
    } else {
        None
    };
    let (folder, file) = folder_with(
        "fanlight.yaml",
        &config.text(kind, servers, issuer.as_ref()),
    )?;
    let tls = if kind == Kind::FanlightTls {
        Some(access::certify(folder.path())?)
    } else {
        None
    };
    if kind == Kind::FanlightGrant {
        deposit(bench, &file).await?;
    }
    let (process, address) = listening(bench, kind.as_str(), &file, bench.gateway).await?;
    let prefixes = match servers.len() {
        1 => vec![String::new()],
        several => (0..several).map(|number| format!("s{number}__")).collect(),
    };
    let access = Access {
        token: issuer.as_ref().map(|issuer| issuer.token.clone()),
        tls,
    };
    Ok(System {
        kind,
        address,
        access,
        prefixes,
        process: Some(process),
        _folder: Some(folder),
        _issuer: issuer,
    })
}

/// Deposits a key for a configuration's first server.
async fn deposit(bench: &Bench, config: &Path) -> Result<()> {
    let mut command = Command::new(&bench.fanlight);
    command.args(["login", "s0", "--config"]).arg(config);
    command
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped());
    let mut login = command.spawn().doing("depositing a key")?;
    if let Some(mut keyboard) = login.stdin.take() {
        keyboard
            .write_all(format!("{DEPOSITED}\n").as_bytes())
            .await
            .doing("depositing a key")?;
    }
    let ended = login.wait_with_output().await.doing("depositing a key")?;
    let said = String::from_utf8_lossy(&ended.stderr);
    if ended.status.success() {
        Ok(())
    } else {
        Err(BenchError::Other(format!(
            "no key could be deposited: {said}"
        )))
    }
}

/// Starts Fanlight with the default configuration in front of one stdio server: this command.
pub(super) async fn start_over_stdio(bench: &Bench, command: &[String]) -> Result<System> {
    let (program, args) = command
        .split_first()
        .ok_or_else(|| BenchError::Other("no command".into()))?;
    let text = format!(
        "audit: {{ {RECORD} }}\nmcpServers:\n  s0: {{ command: {program:?}, args: {args:?} }}\n"
    );
    let (folder, file) = folder_with("fanlight.yaml", &text)?;
    let (process, address) =
        listening(bench, Kind::Fanlight.as_str(), &file, bench.gateway).await?;
    Ok(System {
        process: Some(process),
        _folder: Some(folder),
        ..System::open(Kind::Fanlight, address)
    })
}

/// Starts Fanlight with a configuration file; also returns its address.
async fn listening(
    bench: &Bench,
    name: &str,
    config: &Path,
    cores: Cores,
) -> Result<(Process, SocketAddr)> {
    let mut words: Vec<OsString> = bench.runner.iter().map(Into::into).collect();
    words.push(bench.fanlight.clone().into());
    words.extend(
        [
            "run",
            "--listen",
            "127.0.0.1:0",
            "--admin",
            "off",
            "--config",
        ]
        .map(Into::into),
    );
    words.push(config.into());
    let program = PathBuf::from(words.remove(0));
    let mut process = Process::start(name, &program, &words, cores)?;
    let url = process.line_after("listening on http").await?;
    let host = url.trim_start_matches('s').strip_prefix("://");
    let address = host
        .and_then(|rest| rest.strip_suffix("/mcp"))
        .and_then(|address| address.parse().ok());
    let address =
        address.ok_or_else(|| BenchError::Other(format!("Fanlight listens at {url:?}")))?;
    Ok((process, address))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn configuration_has_only_what_differs_from_the_defaults() {
        let server: SocketAddr = "127.0.0.1:7".parse().unwrap();
        let plain = FanlightConfig::default().text(Kind::Fanlight, &[server], None);
        assert_eq!(
            plain,
            "audit: { file: audit.jsonl }\nlimits: {  }\nmcpServers:\n  s0: { type: http, url: \"http://127.0.0.1:7/mcp\" }\n"
        );
        let more = FanlightConfig { clients: Some(9) }.text(Kind::FanlightNoSpans, &[server], None);
        assert!(more.starts_with(
            "audit: { file: audit.jsonl }\nlimits: { connections: 14, sessions: 9, concurrency: 9, traces: 0 }\nmcp"
        ));
        let no_content = FanlightConfig::default().text(Kind::FanlightNoContent, &[server], None);
        assert!(no_content.contains("telemetry: { content: off }\nmcp"));
        let exporting = FanlightConfig::default().text(Kind::FanlightExporting, &[server], None);
        assert!(exporting.contains("telemetry: { endpoint: \"http://127.0.0.1:7\" }"));
    }
}
