//! The compared gateways, their packages, and the commands that start them.

use crate::cli::PeersArgs;
use crate::era::Era;
use crate::error::{BenchError, Result};

/// A gateway, and its way to the server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Peer {
    pub(super) name: String,
    pub(super) link: Link,
    pub(super) source: Source,
}

/// The transport between a gateway and the server. Clients always use Streamable HTTP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Link {
    Http,
    Stdio,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Source {
    /// No gateway at all.
    Direct,
    Nginx,
    Fanlight,
    FastMcp,
    ContextForge,
    Supergateway,
    McpProxy,
    /// A command from the command line.
    Command(String),
}

/// A package of a registry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Package {
    PyPi(&'static str),
    Npm(&'static str),
}

/// The start of a process. Words and files may contain placeholders: `{url}` for the server's URL,
/// `{port}` for the port to listen on, `{command}` for the server's command as a line, and
/// `{command-json}` for the command as a configuration object. A word `{words}` stands for the
/// words of that command.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Recipe {
    /// The first word is the program, which belongs to the package unless this is a shell line.
    pub(super) words: Vec<String>,
    pub(super) variables: Vec<(&'static str, &'static str)>,
    /// The name and the text of a file in the folder of the start.
    pub(super) file: Option<(&'static str, &'static str)>,
}

impl Peer {
    /// The gateways that the command line selects.
    pub(super) fn all(args: &PeersArgs) -> Result<Vec<Self>> {
        let mut peers = Self::list();
        for text in &args.peer {
            let (name, command) = text
                .split_once('=')
                .ok_or_else(|| wrong(text, "it is not NAME=COMMAND"))?;
            let link = match (command.contains("{url}"), command.contains("{command}")) {
                (true, false) => Link::Http,
                (false, true) => Link::Stdio,
                _ => {
                    return Err(wrong(
                        text,
                        "its command has neither {url} nor {command}, or both",
                    ));
                }
            };
            if !command.contains("{port}") {
                return Err(wrong(text, "its command has no {port}"));
            }
            peers.push(Self {
                name: name.to_owned(),
                link,
                source: Source::Command(command.to_owned()),
            });
        }
        let only = &args.only_peers;
        if let Some(unknown) = only
            .iter()
            .find(|name| peers.iter().all(|peer| peer.name != **name))
        {
            let names: Vec<_> = peers.iter().map(|peer| peer.name.as_str()).collect();
            return Err(BenchError::Other(format!(
                "there is no {unknown:?} among {}",
                names.join(", ")
            )));
        }
        peers.retain(|peer| only.is_empty() || only.contains(&peer.name));
        Ok(peers)
    }

    fn list() -> Vec<Self> {
        let peer = |name: &str, link, source| Self {
            name: name.to_owned(),
            link,
            source,
        };
        vec![
            peer("direct", Link::Http, Source::Direct),
            peer("nginx", Link::Http, Source::Nginx),
            peer("fanlight", Link::Http, Source::Fanlight),
            peer("fastmcp", Link::Http, Source::FastMcp),
            peer("contextforge", Link::Http, Source::ContextForge),
            peer("fanlight", Link::Stdio, Source::Fanlight),
            peer("fastmcp", Link::Stdio, Source::FastMcp),
            peer("supergateway", Link::Stdio, Source::Supergateway),
            peer("mcp-proxy", Link::Stdio, Source::McpProxy),
        ]
    }

    /// The package to install, if any.
    pub(super) fn package(&self) -> Option<Package> {
        match self.source {
            Source::Direct | Source::Nginx | Source::Fanlight | Source::Command(_) => None,
            Source::FastMcp => Some(Package::PyPi("fastmcp")),
            Source::ContextForge => Some(Package::PyPi("mcp-contextforge-gateway")),
            Source::Supergateway => Some(Package::Npm("supergateway")),
            Source::McpProxy => Some(Package::Npm("mcp-proxy")),
        }
    }

    /// The start that the gateway's documentation describes, without a log line per request and
    /// without limits that the load would reach. `None` if this program starts it otherwise.
    pub(super) fn recipe(&self, era: Era) -> Option<Recipe> {
        let words = |text: &str| {
            text.split_whitespace()
                .map(str::to_owned)
                .collect::<Vec<_>>()
        };
        let recipe = match (&self.source, self.link) {
            (Source::Direct | Source::Nginx | Source::Fanlight, _) => return None,
            (Source::FastMcp, Link::Http) => Recipe {
                words: words(
                    "fastmcp run {url} --transport http --port {port} --no-banner --log-level ERROR",
                ),
                ..Recipe::default()
            },
            (Source::FastMcp, Link::Stdio) => Recipe {
                words: words(
                    "fastmcp run mcp.json --transport http --port {port} --no-banner --log-level ERROR",
                ),
                file: Some(("mcp.json", r#"{"mcpServers":{"s0":{command-json}}}"#)),
                ..Recipe::default()
            },
            (Source::ContextForge, _) => Recipe {
                words: words("mcpgateway --host 127.0.0.1 --port {port} --no-access-log"),
                // These secrets are only for this measurement; nothing outside of this machine
                // knows or reaches them.
                variables: vec![
                    ("JWT_SECRET_KEY", CONTEXT_FORGE_SECRET),
                    (
                        "AUTH_ENCRYPTION_SECRET",
                        "benchmark-benchmark-benchmark-encryption",
                    ),
                    ("PLATFORM_ADMIN_EMAIL", CONTEXT_FORGE_USER),
                    ("DATABASE_URL", "sqlite:///./mcp.db"),
                    ("SSRF_ALLOW_LOCALHOST", "true"),
                    ("RATE_LIMITING_ENABLED", "false"),
                ],
                file: None,
            },
            (Source::Supergateway, _) => {
                let mut words = words(
                    "supergateway --outputTransport streamableHttp --port {port} --logLevel none",
                );
                words.extend(["--stdio".to_owned(), "{command}".to_owned()]);
                words.extend((era == Era::Legacy).then(|| "--stateful".to_owned()));
                Recipe {
                    words,
                    ..Recipe::default()
                }
            }
            (Source::McpProxy, _) => {
                let mut words = words("mcp-proxy --host 127.0.0.1 --port {port} --server stream");
                words.extend((era == Era::Modern).then(|| "--upstreamProtocol=auto".to_owned()));
                words.extend(["--".to_owned(), "{words}".to_owned()]);
                Recipe {
                    words,
                    ..Recipe::default()
                }
            }
            (Source::Command(line), _) => {
                let words = ["/bin/sh", "-c"]
                    .map(str::to_owned)
                    .into_iter()
                    .chain([format!("exec {line}")])
                    .collect();
                Recipe {
                    words,
                    ..Recipe::default()
                }
            }
        };
        Some(recipe)
    }

    /// The gateway's name in results.
    pub(super) fn title(&self) -> String {
        match self.link {
            Link::Http => self.name.clone(),
            Link::Stdio => format!("{} (stdio)", self.name),
        }
    }
}

pub(super) const CONTEXT_FORGE_SECRET: &str = "benchmark-benchmark-benchmark-signatures";
pub(super) const CONTEXT_FORGE_USER: &str = "admin@example.com";

fn wrong(text: &str, why: &str) -> BenchError {
    BenchError::Other(format!("--peer {text:?}: {why}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn args(peer: &[&str], only: &[&str]) -> PeersArgs {
        let owned = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect();
        PeersArgs {
            peers: true,
            peer: owned(peer),
            only_peers: owned(only),
            sessions: None,
            rate: 1.0,
            write: None,
        }
    }

    #[test]
    fn command_says_by_its_placeholders_how_it_reaches_the_server() {
        let peers = Peer::all(&args(
            &["a=x {url} {port}", "b=y {port} '{command}'"],
            &["a", "b"],
        ))
        .unwrap();
        assert_eq!(
            peers.iter().map(|peer| peer.link).collect::<Vec<_>>(),
            [Link::Http, Link::Stdio]
        );
        assert_eq!(
            peers[0].recipe(Era::Modern).unwrap().words,
            ["/bin/sh", "-c", "exec x {url} {port}"]
        );
        for wrong in ["a", "a=x {port}", "a=x {url}", "a=x {url} {command} {port}"] {
            assert!(Peer::all(&args(&[wrong], &[])).is_err(), "{wrong}");
        }
        assert!(Peer::all(&args(&[], &["nobody"])).is_err());
    }

    #[test]
    fn every_peer_but_those_of_this_program_has_a_recipe_with_a_port() {
        for peer in Peer::list() {
            for era in Era::ALL {
                let has_port = peer
                    .recipe(era)
                    .map(|recipe| recipe.words.iter().any(|word| word.contains("{port}")));
                assert_eq!(has_port, peer.package().map(|_| true), "{peer:?}");
            }
        }
    }
}
