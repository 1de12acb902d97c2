//! An OAuth authorization server on loopback: metadata, registration, codes with PKCE, tokens of
//! each kind of grant, and revocation. It records every request, and can be down, slow or hostile.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard};

use aws_lc_rs::digest::{SHA256, digest};
use bytes::Bytes;
use data_encoding::BASE64URL_NOPAD;
use http::{HeaderMap, Request, Response, header};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::AbortHandle;
use tokio_rustls::TlsAcceptor;

use crate::issuer::{Conduct, base64url};
use crate::patience::within;
use crate::tls::Pair;

/// A running authorization server; dropping it ends it.
pub struct AuthorizationServer {
    shared: Arc<Shared>,
    task: AbortHandle,
}

/// A request to the server.
#[derive(Clone, Debug)]
pub struct Asked {
    /// The HTTP method.
    pub method: String,
    /// The path.
    pub path: String,
    /// The header fields.
    pub headers: HeaderMap,
    /// The parameters of the query, or of the form in the body.
    pub parameters: BTreeMap<String, String>,
    /// The body.
    pub body: String,
}

/// Makes the answer to a token request: the status and the document.
type Grant = dyn Fn(&Asked) -> (u16, Value) + Send + Sync;

struct Shared {
    url: String,
    state: Mutex<State>,
    asked: watch::Sender<Vec<Asked>>,
    conduct: watch::Sender<HashMap<String, Conduct>>,
}

struct State {
    metadata: Value,
    grant: Option<Arc<Grant>>,
    /// The nonce that proofs in token requests need; the first request without it gets it.
    nonce: Option<String>,
    /// Members that are added to each token's document or replace its members.
    token: Value,
    issued: usize,
    valid: HashSet<String>,
    /// Unredeemed codes with their challenges.
    codes: HashMap<String, String>,
    /// Clients with their registered redirect URIs. No others are accepted for these clients (RFC
    /// 9700, 4.1.3).
    redirect_uris: HashSet<(String, String)>,
    /// Returns the address to which browsers go instead of back.
    elsewhere: Option<Arc<Elsewhere>>,
    /// Further documents by path.
    documents: HashMap<String, Value>,
}

type Elsewhere = dyn Fn(&Asked) -> String + Send + Sync;

/// The client identifier of registered clients.
const REGISTERED: &str = "registered";

impl Drop for AuthorizationServer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Asked {
    /// A parameter of the query or form.
    pub fn parameter(&self, name: &str) -> Option<&str> {
        self.parameters.get(name).map(String::as_str)
    }

    /// A header field.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).and_then(|value| value.to_str().ok())
    }
}

impl AuthorizationServer {
    /// Starts a server whose issuer has no path.
    pub async fn start() -> Self {
        Self::start_with(None).await
    }

    /// Starts an HTTPS server with the certificate of `pair`.
    pub async fn start_over_tls(pair: &Pair) -> Self {
        Self::start_with(Some(pair.acceptor(&["http/1.1"]))).await
    }

    async fn start_with(tls: Option<TlsAcceptor>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let scheme = if tls.is_some() { "https" } else { "http" };
        let url = format!("{scheme}://{}", listener.local_addr().unwrap());
        let state = State {
            metadata: json!({}),
            grant: None,
            nonce: None,
            token: json!({}),
            issued: 0,
            valid: HashSet::new(),
            codes: HashMap::new(),
            redirect_uris: HashSet::new(),
            elsewhere: None,
            documents: HashMap::new(),
        };
        let (asked, conduct) = (
            watch::Sender::new(Vec::new()),
            watch::Sender::new(HashMap::new()),
        );
        let shared = Arc::new(Shared {
            url,
            state: Mutex::new(state),
            asked,
            conduct,
        });
        let task = tokio::spawn(serve(listener, tls, Arc::clone(&shared)));
        Self {
            shared,
            task: task.abort_handle(),
        }
    }

    /// The issuer.
    pub fn url(&self) -> &str {
        &self.shared.url
    }

    /// Adds or replaces members of the metadata; null removes one.
    pub fn describe(&self, members: Value) {
        self.shared.state().metadata = members;
    }

    /// Adds or replaces members of token documents; null removes one.
    pub fn grants_with(&self, members: Value) {
        self.shared.state().token = members;
    }

    /// Publishes a document at a path.
    pub fn publish(&self, path: &str, document: Value) {
        self.shared
            .state()
            .documents
            .insert(path.to_owned(), document);
    }

    /// Answers token requests in this way, instead of granting all.
    pub fn on_token(&self, grant: impl Fn(&Asked) -> (u16, Value) + Send + Sync + 'static) {
        self.shared.state().grant = Some(Arc::new(grant));
    }

    /// Sends browsers to the address that `elsewhere` returns for a request, instead of back.
    pub fn sends_browsers(&self, elsewhere: impl Fn(&Asked) -> String + Send + Sync + 'static) {
        self.shared.state().elsewhere = Some(Arc::new(elsewhere));
    }

    /// Accepts no redirect URI of a client but this one, and those that it registers.
    pub fn knows(&self, client: &str, redirect_uri: &str) {
        let known = (client.to_owned(), redirect_uri.to_owned());
        self.shared.state().redirect_uris.insert(known);
    }

    /// Requires this nonce in the proofs of token requests.
    pub fn wants_nonce(&self, nonce: &str) {
        self.shared.state().nonce = Some(nonce.to_owned());
    }

    /// Changes the answers to requests for a path.
    pub fn conduct(&self, path: &str, conduct: Conduct) {
        self.shared.conduct.send_modify(|all| {
            all.insert(path.to_owned(), conduct);
        });
    }

    /// Whether the server has issued this access token and not revoked it.
    pub fn is_valid(&self, token: &str) -> bool {
        self.shared.state().valid.contains(token)
    }

    /// Revokes all access tokens.
    pub fn revoke_all(&self) {
        self.shared.state().valid.clear();
    }

    /// All requests for a path so far.
    pub fn asked(&self, path: &str) -> Vec<Asked> {
        self.shared
            .asked
            .borrow()
            .iter()
            .filter(|asked| asked.path == path)
            .cloned()
            .collect()
    }

    /// The paths of all requests, in order.
    pub fn paths(&self) -> Vec<String> {
        self.shared
            .asked
            .borrow()
            .iter()
            .map(|asked| asked.path.clone())
            .collect()
    }

    /// Waits for `count` requests for a path.
    pub async fn wait_for(&self, path: &str, count: usize) -> Vec<Asked> {
        let mut all = self.shared.asked.subscribe();
        let enough =
            |all: &Vec<Asked>| all.iter().filter(|asked| asked.path == path).count() >= count;
        within(&format!("{count} × {path}"), all.wait_for(enough))
            .await
            .unwrap();
        self.asked(path)
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    fn metadata(&self) -> Value {
        let at = |path: &str| format!("{}{path}", self.url);
        let metadata = json!({
            "issuer": self.url,
            "authorization_endpoint": at("/authorize"),
            "token_endpoint": at("/token"),
            "registration_endpoint": at("/register"),
            "revocation_endpoint": at("/revoke"),
            "response_types_supported": ["code"],
            "code_challenge_methods_supported": ["S256"],
            "authorization_response_iss_parameter_supported": true,
            "token_endpoint_auth_methods_supported":
                ["none", "client_secret_basic", "client_secret_post", "private_key_jwt"],
        });
        with(metadata, &self.state().metadata)
    }

    fn answer(&self, asked: &Asked) -> Response<Full<Bytes>> {
        match asked.path.as_str() {
            "/.well-known/oauth-authorization-server" => document(200, &self.metadata()),
            "/authorize" => self.authorize(asked),
            "/token" => self.token(asked),
            "/register" => {
                let mut registered: Value = serde_json::from_str(&asked.body).unwrap_or_default();
                registered["client_id"] = json!(REGISTERED);
                let redirect_uris = registered["redirect_uris"].as_array().into_iter().flatten();
                for uri in redirect_uris.filter_map(Value::as_str) {
                    let known = (REGISTERED.to_owned(), uri.to_owned());
                    self.state().redirect_uris.insert(known);
                }
                document(201, &registered)
            }
            "/revoke" => {
                self.state()
                    .valid
                    .remove(asked.parameter("token").unwrap_or_default());
                document(200, &json!({}))
            }
            path => match self.state().documents.get(path) {
                Some(found) => document(200, found),
                None => document(404, &json!({})),
            },
        }
    }

    /// Redirects the browser back at once, with a code.
    fn authorize(&self, asked: &Asked) -> Response<Full<Bytes>> {
        let redirected = |location: &str| {
            let mut redirect = document(302, &json!({}));
            let location = location.parse().unwrap();
            redirect.headers_mut().insert(header::LOCATION, location);
            redirect
        };
        let elsewhere = self.state().elsewhere.clone();
        if let Some(elsewhere) = elsewhere {
            return redirected(&elsewhere(asked));
        }
        let to = asked.parameter("redirect_uri").unwrap();
        let client = asked.parameter("client_id").unwrap_or_default();
        let known = self.state().redirect_uris.clone();
        let mut of_client = known.iter().filter(|(of, _)| of == client).peekable();
        if of_client.peek().is_some() && !of_client.any(|(_, uri)| uri == to) {
            return document(400, &json!({ "error": "invalid_redirect_uri" }));
        }
        let code = format!("code-{:032x}", fastrand::u128(..));
        let challenge = asked
            .parameter("code_challenge")
            .unwrap_or_default()
            .to_owned();
        self.state().codes.insert(code.clone(), challenge);
        let state = asked.parameter("state").unwrap_or_default();
        let between = if to.contains('?') { '&' } else { '?' };
        let location = format!("{to}{between}code={code}&state={state}");
        let supported = "authorization_response_iss_parameter_supported";
        if self.metadata()[supported] == json!(true) {
            let issuer = self.url.replace(':', "%3A");
            return redirected(&format!("{location}&iss={issuer}"));
        }
        redirected(&location)
    }

    fn token(&self, asked: &Asked) -> Response<Full<Bytes>> {
        let mut state = self.state();
        if let Some(nonce) = state.nonce.clone()
            && !asked
                .header("dpop")
                .is_some_and(|proof| payload(proof)["nonce"] == nonce.as_str())
        {
            let mut refusal = document(400, &json!({ "error": "use_dpop_nonce" }));
            refusal
                .headers_mut()
                .insert("dpop-nonce", nonce.parse().unwrap());
            return refusal;
        }
        if asked.parameter("grant_type") == Some("authorization_code") {
            let challenge = asked
                .parameter("code")
                .and_then(|code| state.codes.remove(code));
            let verifier = asked.parameter("code_verifier").unwrap_or_default();
            if challenge != Some(base64url(digest(&SHA256, verifier.as_bytes()).as_ref())) {
                return document(400, &json!({ "error": "invalid_grant" }));
            }
        }
        state.issued += 1;
        let number = state.issued;
        let (status, granted) = match state.grant.clone() {
            Some(grant) => grant(asked),
            None => {
                let kind = if asked.header("dpop").is_some() {
                    "DPoP"
                } else {
                    "Bearer"
                };
                let token = json!({
                    "access_token": format!("token-{number}"), "refresh_token": format!("refresh-{number}"),
                    "token_type": kind, "expires_in": 3600, "scope": asked.parameter("scope"),
                });
                (200, with(token, &state.token))
            }
        };
        if let Some(token) = granted["access_token"].as_str() {
            state.valid.insert(token.to_owned());
        }
        document(status, &granted)
    }
}

/// The claims of an unverified JWT.
pub fn payload(token: &str) -> Value {
    let part = token.split('.').nth(1).unwrap_or_default();
    let claims = BASE64URL_NOPAD.decode(part.as_bytes());
    serde_json::from_slice(&claims.unwrap_or_default()).unwrap_or_default()
}

/// The document with these members added or replaced; null removes one.
pub(crate) fn with(mut document: Value, members: &Value) -> Value {
    for (name, value) in members.as_object().into_iter().flatten() {
        document[name] = value.clone();
    }
    document
        .as_object_mut()
        .unwrap()
        .retain(|_, value| !value.is_null());
    document
}

/// The parameters in a query or form.
fn parameters(text: &str) -> BTreeMap<String, String> {
    let decoded = |text: &str| {
        let (mut bytes, mut rest) = (Vec::new(), text.as_bytes());
        while let [first, after @ ..] = rest {
            rest = match (first, after) {
                (b'%', [high, low, after @ ..]) => {
                    let hex = [*high, *low];
                    bytes.push(u8::from_str_radix(std::str::from_utf8(&hex).unwrap(), 16).unwrap());
                    after
                }
                _ => {
                    bytes.push(if *first == b'+' { b' ' } else { *first });
                    after
                }
            };
        }
        String::from_utf8(bytes).unwrap()
    };
    let pair = |pair: &str| {
        pair.split_once('=')
            .map(|(name, value)| (decoded(name), decoded(value)))
    };
    text.split('&').filter_map(pair).collect()
}

async fn serve(listener: TcpListener, tls: Option<TlsAcceptor>, shared: Arc<Shared>) {
    let mut connections = tokio::task::JoinSet::new();
    while let Ok((connection, _)) = listener.accept().await {
        let (shared, tls) = (Arc::clone(&shared), tls.clone());
        connections.spawn(async move {
            let Some(tls) = tls else {
                return serve_connection(connection, shared).await;
            };
            // A client that trusts another authority has left.
            if let Ok(connection) = tls.accept(connection).await {
                serve_connection(connection, shared).await;
            }
        });
        while connections.try_join_next().is_some() {}
    }
}

async fn serve_connection(connection: impl AsyncRead + AsyncWrite + Unpin, shared: Arc<Shared>) {
    let service = service_fn(move |request| handle(request, Arc::clone(&shared)));
    let _ = http1::Builder::new()
        .serve_connection(TokioIo::new(connection), service)
        .await;
}

/// `Err` closes the connection without an answer.
async fn handle(
    request: Request<Incoming>,
    shared: Arc<Shared>,
) -> Result<Response<Full<Bytes>>, std::io::Error> {
    let (head, body) = request.into_parts();
    let body = body
        .collect()
        .await
        .map_err(std::io::Error::other)?
        .to_bytes();
    let body = String::from_utf8_lossy(&body).into_owned();
    let path = head.uri.path().to_owned();
    let form = head
        .uri
        .query()
        .unwrap_or(if body.starts_with('{') { "" } else { &body });
    let (method, parameters) = (head.method.to_string(), parameters(form));
    let asked = Asked {
        method,
        path: path.clone(),
        headers: head.headers,
        parameters,
        body,
    };
    shared.asked.send_modify(|all| all.push(asked.clone()));
    let mut conduct = shared.conduct.subscribe();
    let conduct = conduct
        .wait_for(|all| all.get(&path) != Some(&Conduct::Slow))
        .await;
    let conduct = conduct.map_or(Conduct::Down, |all| {
        all.get(&path).cloned().unwrap_or(Conduct::Good)
    });
    match conduct {
        Conduct::Good | Conduct::Slow => Ok(shared.answer(&asked)),
        Conduct::Down => Err(std::io::ErrorKind::ConnectionAborted.into()),
        Conduct::Status(status) => Ok(document(status, &json!({}))),
        Conduct::Redirect(to) => {
            let mut redirect = document(302, &json!({}));
            redirect
                .headers_mut()
                .insert(header::LOCATION, to.parse().unwrap());
            Ok(redirect)
        }
        Conduct::Text(text) => Ok(response(200, text)),
    }
}

fn document(status: u16, document: &Value) -> Response<Full<Bytes>> {
    response(status, document.to_string())
}

fn response(status: u16, body: String) -> Response<Full<Bytes>> {
    let response = Response::builder()
        .status(status)
        .header(header::CONTENT_TYPE, "application/json");
    response.body(Full::new(Bytes::from(body))).unwrap()
}
