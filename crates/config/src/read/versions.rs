//! The canaries and mirrors that servers name, which are entries like servers.

use crate::option::reader::suggest;
use crate::report::problem::quoted;
use crate::{Config, Server};

/// A fault of a version that a server names.
pub(crate) struct WrongVersion {
    /// The server that names it.
    pub(crate) server: String,
    /// The option: `canary` or `mirror`.
    pub(crate) option: &'static str,
    pub(crate) message: String,
    pub(crate) help: String,
}

/// A fault of an endpoint that names a server.
pub(crate) struct WrongEndpoint {
    pub(crate) path: String,
    pub(crate) message: String,
    pub(crate) help: String,
}

/// The fault of a name that no server has, and its help.
fn unknown_server(name: &str, known: &[&str]) -> (String, String) {
    let help = match suggest(name, known) {
        Some(meant) => format!("did you mean `{meant}`?"),
        None => format!("the servers: {}", known.join(", ")),
    };
    (format!("no server is called {}", quoted(name)), help)
}

impl Server {
    /// The server's other versions, each with the option that names it.
    pub(crate) fn versions(&self) -> impl Iterator<Item = (&'static str, &str)> {
        let versions = [("canary", &self.canary), ("mirror", &self.mirror)];
        versions
            .into_iter()
            .filter_map(|(option, version)| Some((option, version.as_ref()?.server.as_str())))
    }
}

impl Config {
    /// The server whose canary or mirror is the entry `name`, and the naming option. Clients do not
    /// see such an entry.
    pub fn version_of(&self, name: &str) -> Option<(&'static str, &Server)> {
        self.servers.iter().find_map(|server| {
            let (option, _) = server.versions().find(|(_, version)| *version == name)?;
            Some((option, server))
        })
    }

    /// The servers that clients may see: all except other versions of a server.
    pub fn servers_of_clients(&self) -> impl Iterator<Item = &Server> {
        self.servers
            .iter()
            .filter(|server| self.version_of(&server.name).is_none())
    }

    /// The servers that endpoints name and cannot show: unknown ones, and versions of others.
    pub(crate) fn wrong_endpoints(&self) -> Vec<WrongEndpoint> {
        let known = self.servers.iter().map(|server| server.name.as_str());
        let known: Vec<&str> = known.collect();
        let problem = |name: &str| {
            if !known.contains(&name) {
                return Some(unknown_server(name, &known));
            }
            let (option, of) = self.version_of(name)?;
            let (name, of) = (quoted(name), quoted(&of.name));
            Some((
                format!("{name} is the `{option}` of {of}, which clients are not shown"),
                format!("name {of}; a second entry with the same URL or command can be shown, too"),
            ))
        };
        let mut wrong = Vec::new();
        for (path, endpoint) in &self.endpoints {
            let problems = endpoint.servers.iter().flatten();
            let problems = problems.filter_map(|name| problem(name));
            wrong.extend(problems.map(|(message, help)| WrongEndpoint {
                path: path.clone(),
                message,
                help,
            }));
        }
        wrong
    }

    /// The impossible versions.
    pub(crate) fn wrong_versions(&self) -> Vec<WrongVersion> {
        let known: Vec<&str> = self
            .servers
            .iter()
            .map(|server| server.name.as_str())
            .collect();
        let mut wrong = Vec::new();
        for server in &self.servers {
            for (option, name) in server.versions() {
                let problem = self.problem_with(server, option, name, &known);
                wrong.extend(problem.map(|(message, help)| WrongVersion {
                    server: server.name.clone(),
                    option,
                    message,
                    help,
                }));
            }
        }
        wrong
    }

    fn problem_with(
        &self,
        server: &Server,
        option: &str,
        name: &str,
        known: &[&str],
    ) -> Option<(String, String)> {
        let own = quoted(&server.name);
        if name.is_empty() {
            let help = format!(
                "write the entry of `mcpServers` that it is: `{option}: {{server: NAME, share: 0.05}}`"
            );
            return Some((format!("the `{option}` of {own} has no `server`"), help));
        }
        let Some(version) = self.servers.iter().find(|version| version.name == name) else {
            return Some(unknown_server(name, known));
        };
        if name == server.name {
            return Some((
                format!("{own} is its own `{option}`"),
                "name another entry of `mcpServers`".to_owned(),
            ));
        }
        let (further, _) = version.versions().next()?;
        let message = format!(
            "{} is the `{option}` of {own} and has a `{further}` of its own",
            quoted(name)
        );
        Some((
            message,
            "remove one of the two: versions of versions are not followed".to_owned(),
        ))
    }
}
