//! Gateways that forward requests to each other, and their legacy clients.

use std::fs;
use std::net::SocketAddr;

use fanlight_tests::slicer;

use crate::fleet::Place;
use crate::group::{Group, members, until};
use crate::harness::{Gateway, TempFile};
use crate::ports;
use crate::raw_client::{
    Connection, INITIALIZED, JSON_HEADERS, NEWEST_LEGACY, Response, initialize,
};
use crate::tls::{Authority, Pair};

/// Gateways whose certificates have one authority.
pub(crate) struct LinkedGroup {
    pub(crate) group: Group,
    pub(crate) authority: Authority,
    files: LinkFiles,
}

/// A folder with a replica's certificate, its key, and the authorities of all replicas.
pub(crate) struct LinkFiles(TempFile);

/// A gateway of a [`LinkedGroup`].
pub(crate) struct Linked {
    pub(crate) gateway: Gateway,
    /// The address for other replicas.
    pub(crate) link: SocketAddr,
}

impl LinkedGroup {
    /// A group with this server entry and more raw members of the configuration.
    pub(crate) fn new(entry: String, more: &str) -> Self {
        Self::from_group(Group::new(entry, more))
    }

    pub(crate) fn from_group(group: Group) -> Self {
        let authority = Authority::new();
        let files = LinkFiles::issue(&authority);
        Self {
            group,
            authority,
            files,
        }
    }

    /// The same group with another configuration for replicas that start from now on.
    pub(crate) fn with_group(self, group: Group) -> Self {
        Self { group, ..self }
    }

    /// Starts a gateway that has joined the others and that they can reach.
    pub(crate) async fn start(&self, valkey: &str) -> Linked {
        self.start_with(valkey, &self.files).await
    }

    /// [`Self::start`] with files of its own.
    pub(crate) async fn start_with(&self, valkey: &str, files: &LinkFiles) -> Linked {
        let link = ports::free();
        let gateway = self.group.start_with(valkey, &files.options(link)).await;
        Linked { gateway, link }
    }

    /// [`Self::start`] at these addresses, with these environment variables.
    pub(crate) async fn start_at(
        &self,
        valkey: &str,
        place: Place,
        variables: &[(&str, String)],
    ) -> Linked {
        let gateway = self
            .group
            .start_at(valkey, &self.options_at(place), variables)
            .await;
        Linked {
            gateway,
            link: place.replicas,
        }
    }

    /// The configuration text of a gateway at these addresses.
    pub(crate) fn text_at(&self, valkey: &str, place: Place) -> String {
        self.group.text(valkey, &self.options_at(place))
    }

    fn options_at(
        &self,
        Place {
            clients,
            operators,
            replicas,
        }: Place,
    ) -> String {
        let listen = format!(r#"}},"listen":"{clients}","admin":{{"listen":"{operators}""#);
        format!("{}{listen}", self.files.options(replicas))
    }

    /// Starts two gateways that know each other.
    pub(crate) async fn start_two(&self, valkey: &str) -> (Linked, Linked) {
        self.start_two_with(valkey, [&self.files, &self.files])
            .await
    }

    /// [`Self::start_two`], each gateway with files of its own.
    pub(crate) async fn start_two_with(
        &self,
        valkey: &str,
        [one, other]: [&LinkFiles; 2],
    ) -> (Linked, Linked) {
        let both = tokio::join!(self.start_with(valkey, one), self.start_with(valkey, other));
        for one in [&both.0, &both.1] {
            until("two replicas", async || members(&one.gateway).await == 2).await;
        }
        both
    }

    /// A client certificate of the replicas' authority.
    pub(crate) fn pair(&self) -> Pair {
        self.authority.client("spiffe://example.com/replica")
    }
}

impl LinkFiles {
    /// Files with a new certificate of this authority.
    pub(crate) fn issue(authority: &Authority) -> Self {
        let files = Self(TempFile::folder());
        files.put("ca.pem", &authority.pem());
        files.put_pair(&authority.server());
        files
    }

    /// Replaces the certificate and its key.
    pub(crate) fn put_pair(&self, pair: &Pair) {
        self.put("cert.pem", &pair.pem());
        self.put("key.pem", &pair.key());
    }

    /// Replaces a file.
    pub(crate) fn put(&self, name: &str, text: &str) {
        let file = self.0.path().join(name);
        fs::write(file.with_extension("new"), text).unwrap();
        fs::rename(file.with_extension("new"), file).unwrap();
    }

    /// The members of `replicas` that use these files for the connection to Valkey.
    pub(crate) fn for_valkey(&self) -> String {
        let file = |name| self.0.path().join(name);
        let (cert, key, ca) = (file("cert.pem"), file("key.pem"), file("ca.pem"));
        format!(r#","caFile":{ca:?},"tls":{{"cert":{cert:?},"key":{key:?}}}"#)
    }

    /// The members of `replicas` for a link at this address.
    fn options(&self, link: SocketAddr) -> String {
        let file = |name| self.0.path().join(name);
        let (cert, key, ca) = (file("cert.pem"), file("key.pem"), file("ca.pem"));
        format!(r#","listen":"{link}","tls":{{"cert":{cert:?},"key":{key:?},"clientCa":{ca:?}}}"#)
    }
}

/// A legacy client whose requests go to any of the gateways.
pub(crate) struct Client {
    key: &'static str,
    pub(crate) session: String,
}

impl Client {
    /// Opens a session at a gateway.
    pub(crate) async fn open(at: &Linked, key: &'static str) -> Self {
        Self::open_with(at, key, "{}").await
    }

    /// Opens a session with these raw capabilities.
    pub(crate) async fn open_with(at: &Linked, key: &'static str, capabilities: &str) -> Self {
        let client = Self::open_on(Connection::open(at.gateway.mcp).await, key, capabilities).await;
        assert_eq!(client.post(at, INITIALIZED).await.status, 202);
        client
    }

    /// Opens a session on a connection, without the notification `initialized`.
    pub(crate) async fn open_on(
        connection: Connection,
        key: &'static str,
        capabilities: &str,
    ) -> Self {
        let client = Self::without_session(key);
        let response = client
            .send_on(
                connection,
                "POST",
                &JSON_HEADERS,
                &initialize(NEWEST_LEGACY, capabilities),
            )
            .await;
        assert_eq!(response.status, 200);
        Self {
            session: response.header("mcp-session-id").unwrap().to_owned(),
            ..client
        }
    }

    /// A client without a session.
    pub(crate) const fn without_session(key: &'static str) -> Self {
        Self {
            key,
            session: String::new(),
        }
    }

    /// Another client that uses this client's session id.
    pub(crate) fn stolen_by(&self, key: &'static str) -> Self {
        Self {
            key,
            session: self.session.clone(),
        }
    }

    pub(crate) async fn post(&self, at: &Linked, body: &str) -> Response {
        self.send(at, "POST", &JSON_HEADERS, body).await
    }

    pub(crate) async fn stream(&self, at: &Linked, last_event_id: Option<&str>) -> Response {
        let mut headers = vec![("Accept", "text/event-stream")];
        headers.extend(last_event_id.map(|id| ("Last-Event-ID", id)));
        self.send(at, "GET", &headers, "").await
    }

    pub(crate) async fn send(
        &self,
        at: &Linked,
        method: &str,
        more: &[(&str, &str)],
        body: &str,
    ) -> Response {
        self.send_on(Connection::open(at.gateway.mcp).await, method, more, body)
            .await
    }

    async fn send_on(
        &self,
        mut connection: Connection,
        method: &str,
        more: &[(&str, &str)],
        body: &str,
    ) -> Response {
        let authorization = format!("Bearer {}", self.key);
        let mut headers = vec![("Authorization", authorization.as_str())];
        headers.extend_from_slice(more);
        if !self.session.is_empty() {
            headers.extend([
                ("Mcp-Session-Id", self.session.as_str()),
                ("MCP-Protocol-Version", NEWEST_LEGACY),
            ]);
        }
        connection
            .request(method, "/mcp", &headers, body.as_bytes())
            .await;
        connection.response().await
    }
}

/// Sends a modern request of a client with capabilities, and returns the answer.
pub(crate) async fn modern(at: &Linked, key: &str, body: &str) -> String {
    let mut headers = crate::raw_client::modern_headers(body);
    headers.push(("Authorization".to_owned(), format!("Bearer {key}")));
    let own = headers
        .iter()
        .map(|(name, value)| (name.as_str(), value.as_str()));
    let headers: Vec<_> = JSON_HEADERS.into_iter().chain(own).collect();
    let mut connection = Connection::open(at.gateway.mcp).await;
    connection
        .request("POST", "/mcp", &headers, body.as_bytes())
        .await;
    connection.response().await.messages().await.1
}

/// The code of an error.
pub(crate) fn error_code(answer: &str) -> Option<&str> {
    slicer::member(answer, "error.code")
}
