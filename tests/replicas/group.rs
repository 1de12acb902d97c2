//! Gateways with one configuration.

use std::fs;
use std::path::Path;
use std::time::Duration;

use fanlight_tests::slicer;
use tokio::time::sleep;

use crate::harness::{Gateway, TempFile, within};
use crate::raw_client::{Connection, JSON_HEADERS, Response, modern_headers, modern_request};
use crate::scripted::{Backend, Era, Reply, Transport, config};
use crate::signing_in::KEYS;

const SEAL: &str = r#""keys":["1111111111111111111111111111111111111111111111111111111111111111"]"#;

/// A modern server with the tools `search` and `erase`, which both answer.
pub(crate) async fn backend() -> Backend {
    let backend = Backend::start(Era::Modern, Transport::Http).await;
    backend.offers_tools(&["search", "erase"]);
    backend.on(
        "tools/call",
        Reply::result(Era::Modern.complete(r#""content":[]"#)),
    );
    backend
}

/// Gateways whose clients have the keys of [`KEYS`].
pub(crate) struct Group {
    keys: TempFile,
    config: String,
}

impl Group {
    /// A group with this server entry and more raw members of the configuration.
    pub(crate) fn new(entry: String, more: &str) -> Self {
        Self::with_auth(entry, "", more)
    }

    /// [`Self::new`], with more raw members of `auth`.
    pub(crate) fn with_auth(entry: String, auth: &str, more: &str) -> Self {
        let keys = TempFile::new("yaml", KEYS);
        let auth = format!(r#","auth":{{"keys":{{"file":{:?}}}{auth}}}"#, keys.path());
        Self::with(entry, &format!("{auth}{more}"), keys)
    }

    /// [`Self::new`] with unauthenticated clients.
    pub(crate) fn without_auth(entry: String, more: &str) -> Self {
        Self::with(entry, more, TempFile::new("yaml", KEYS))
    }

    fn with(entry: String, more: &str, keys: TempFile) -> Self {
        let servers = config(&[entry]);
        let servers = servers.trim_end().strip_suffix('}').unwrap();
        Self {
            config: format!(r#"{servers},{SEAL}{more}"#),
            keys,
        }
    }

    /// The configuration text for this Valkey, with more raw members of `replicas`.
    pub(crate) fn text(&self, valkey: &str, more: &str) -> String {
        debug_assert!(fs::exists(self.keys.path()).unwrap());
        format!(
            r#"{},"replicas":{{"valkey":"{valkey}"{more}}}}}"#,
            self.config
        )
    }

    /// The configuration text of a gateway without replicas.
    pub(crate) fn alone(&self) -> String {
        format!("{}}}", self.config)
    }

    /// The file with the client keys.
    pub(crate) fn keys(&self) -> &Path {
        self.keys.path()
    }

    /// Starts a gateway and waits until it has joined the others.
    pub(crate) async fn start(&self, valkey: String) -> Gateway {
        self.start_with(&valkey, "").await
    }

    /// [`Self::start`] with more raw members of `replicas`.
    pub(crate) async fn start_with(&self, valkey: &str, more: &str) -> Gateway {
        let gateway = Gateway::start(&self.text(valkey, more)).await;
        gateway.log.line_with("joined the other replicas").await;
        gateway
    }

    /// [`Self::start_with`] at the addresses in these members, with these environment variables.
    pub(crate) async fn start_at(
        &self,
        valkey: &str,
        more: &str,
        variables: &[(&str, String)],
    ) -> Gateway {
        let gateway =
            Gateway::start_at_configured_addresses_with_env(&self.text(valkey, more), variables)
                .await;
        gateway.log.line_with("joined the other replicas").await;
        gateway
    }

    /// Starts a gateway that need not reach Valkey.
    pub(crate) async fn start_alone(&self, valkey: String) -> Gateway {
        Gateway::start(&self.text(&valkey, "")).await
    }
}

/// Calls a tool with this client key.
pub(crate) async fn call(gateway: &Gateway, tool: &str, key: &str) -> Response {
    request(
        gateway,
        "tools/call",
        &format!(r#""name":"{tool}","arguments":{{}}"#),
        key,
    )
    .await
}

/// Sends a modern request with this client key.
pub(crate) async fn request(gateway: &Gateway, method: &str, params: &str, key: &str) -> Response {
    request_with(
        gateway,
        method,
        params,
        &[("Authorization", format!("Bearer {key}"))],
    )
    .await
}

/// Sends a modern request with these header fields.
pub(crate) async fn request_with(
    gateway: &Gateway,
    method: &str,
    params: &str,
    fields: &[(&str, String)],
) -> Response {
    send(gateway, &modern_request("1", method, params, ""), fields).await
}

/// Sends a body with these header fields besides the usual ones.
pub(crate) async fn send(gateway: &Gateway, body: &str, fields: &[(&str, String)]) -> Response {
    let mut headers = modern_headers(body);
    headers.extend(
        fields
            .iter()
            .map(|(name, value)| ((*name).to_owned(), value.clone())),
    );
    let own = headers
        .iter()
        .map(|(name, value)| (name.as_str(), value.as_str()));
    let headers: Vec<_> = JSON_HEADERS.into_iter().chain(own).collect();
    let mut connection = Connection::open(gateway.mcp).await;
    connection
        .request("POST", "/mcp", &headers, body.as_bytes())
        .await;
    connection.response().await
}

/// Sends a request to the operators' listener.
pub(crate) async fn admin(gateway: &Gateway, method: &str, path: &str) -> (u16, String) {
    let mut connection = Connection::open(gateway.admin).await;
    let origin = format!("http://{}", gateway.admin);
    connection
        .request(method, path, &[("Origin", &origin)], b"")
        .await;
    let mut response = connection.response().await;
    (response.status, response.text().await)
}

/// A raw member of the overview's section on replicas.
pub(crate) async fn of_replicas(gateway: &Gateway, path: &[&str]) -> String {
    let (_, overview) = admin(gateway, "GET", "/api/overview").await;
    let path: Vec<_> = ["replicas"].iter().chain(path).copied().collect();
    slicer::member_at(&overview, &path)
        .unwrap_or("null")
        .to_owned()
}

/// The number of replicas that a gateway knows.
pub(crate) async fn members(gateway: &Gateway) -> usize {
    of_replicas(gateway, &["members"])
        .await
        .matches(r#""id":"#)
        .count()
}

/// Repeats a question until `holds` says yes.
pub(crate) async fn until(what: &str, mut holds: impl AsyncFnMut() -> bool) {
    within(what, async {
        while !holds().await {
            sleep(Duration::from_millis(20)).await;
        }
    })
    .await;
}
