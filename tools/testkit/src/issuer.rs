//! An issuer of OAuth access tokens on loopback: metadata, rotating keys, tokens with any claims
//! and header, and introspection. It can be down, slow or hostile, and counts its requests.

mod key;

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use data_encoding::BASE64;
use http::{Request, Response, header};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::AbortHandle;

pub use self::key::{SigningKey, base64url, sha256};

/// Fanlight's name and password at each issuer, for introspection.
pub const CLIENT: (&str, &str) = ("fanlight", "a secret: with ünusual & characters");

/// An endpoint of an issuer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Place {
    /// The metadata, by RFC 8414 or OpenID Connect Discovery.
    Metadata,
    /// The keys.
    Keys,
    /// The introspection of tokens.
    Introspection,
}

/// The way in which an issuer answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Conduct {
    /// Correctly.
    Good,
    /// By closing the connection.
    Down,
    /// Not before its conduct changes.
    Slow,
    /// With this status.
    Status(u16),
    /// With a redirect to this URL.
    Redirect(String),
    /// With this text.
    Text(String),
}

/// A running issuer; dropping it ends it.
pub struct Issuer {
    shared: Arc<Shared>,
    task: AbortHandle,
}

struct Shared {
    /// The identifier.
    url: String,
    origin: String,
    /// The path of the identifier; empty for none.
    path: String,
    state: Mutex<State>,
    conduct: watch::Sender<HashMap<Place, Conduct>>,
    metadata: AtomicUsize,
    keys: AtomicUsize,
    introspections: AtomicUsize,
}

struct State {
    /// The published keys; the first one signs.
    keys: Vec<Arc<SigningKey>>,
    /// The claims of active opaque tokens.
    active: HashMap<String, Value>,
    /// Members that are added to the metadata or replace its members.
    metadata: Value,
    /// The name of the next key.
    next: usize,
}

impl Drop for Issuer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Issuer {
    /// Starts an issuer that signs with ES256.
    pub async fn start() -> Self {
        Self::start_with_path("").await
    }

    /// Starts an issuer whose identifier has a path, such as `/tenant`.
    pub async fn start_with_path(path: &str) -> Self {
        Self::start_at("127.0.0.1:0".parse().unwrap(), path).await
    }

    /// Starts an issuer at an address.
    pub async fn start_at(address: SocketAddr, path: &str) -> Self {
        let listener = TcpListener::bind(address).await.unwrap();
        let origin = format!("http://{}", listener.local_addr().unwrap());
        let keys = vec![Arc::new(SigningKey::es256("key-0"))];
        let state = State {
            keys,
            active: HashMap::new(),
            metadata: json!({}),
            next: 1,
        };
        let shared = Arc::new(Shared {
            url: format!("{origin}{path}"),
            origin,
            path: path.to_owned(),
            state: Mutex::new(state),
            conduct: watch::Sender::new(HashMap::new()),
            metadata: AtomicUsize::new(0),
            keys: AtomicUsize::new(0),
            introspections: AtomicUsize::new(0),
        });
        let task = tokio::spawn(serve(listener, Arc::clone(&shared)));
        Self {
            shared,
            task: task.abort_handle(),
        }
    }

    /// The identifier.
    pub fn url(&self) -> &str {
        &self.shared.url
    }

    /// The URL of the keys.
    pub fn jwks_uri(&self) -> String {
        format!("{}/keys", self.shared.origin)
    }

    /// The URL of the introspection endpoint.
    pub fn introspection_endpoint(&self) -> String {
        format!("{}/introspect", self.shared.origin)
    }

    /// The claims of an access token that is valid for an hour.
    pub fn claims(&self, subject: &str, audience: &str, scope: &str) -> Value {
        let now = seconds_from_now(0);
        json!({
            "iss": self.url(), "sub": subject, "aud": audience, "scope": scope,
            "iat": now, "exp": now + 3600, "client_id": "test", "jti": format!("{:016x}", fastrand::u64(..)),
        })
    }

    /// An access token that is valid for an hour, signed by the current key.
    pub fn token(&self, subject: &str, audience: &str, scope: &str) -> String {
        self.sign(&self.claims(subject, audience, scope))
    }

    /// A token with any claims, signed by the current key.
    pub fn sign(&self, claims: &Value) -> String {
        let key = self.key();
        key.sign(
            &json!({ "alg": key.algorithm(), "typ": "at+jwt", "kid": key.id() }),
            claims,
        )
    }

    /// The signing key.
    pub fn key(&self) -> Arc<SigningKey> {
        Arc::clone(&self.shared.state().keys[0])
    }

    /// Makes a key, which signs from now on and is published besides the others. `make` chooses its
    /// name and type.
    pub fn add_key(&self, make: fn(&str) -> SigningKey) {
        let mut state = self.shared.state();
        let key = make(&format!("key-{}", state.next));
        state.next += 1;
        state.keys.insert(0, Arc::new(key));
    }

    /// Makes a key, which signs from now on and is the only published one.
    pub fn rotate(&self) {
        self.add_key(SigningKey::es256);
        self.shared.state().keys.truncate(1);
    }

    /// Publishes only these keys; the first one signs.
    pub fn publish(&self, keys: Vec<Arc<SigningKey>>) {
        self.shared.state().keys = keys;
    }

    /// Adds or replaces members of the metadata.
    pub fn describe(&self, members: Value) {
        self.shared.state().metadata = members;
    }

    /// An opaque token whose introspection returns these claims and that it is active.
    pub fn opaque(&self, claims: Value) -> String {
        let token = format!("opaque-{:032x}", fastrand::u128(..));
        self.activate(&token, claims);
        token
    }

    /// Makes the introspection of a token return these claims and that it is active.
    pub fn activate(&self, token: &str, mut claims: Value) {
        claims["active"] = json!(true);
        self.shared.state().active.insert(token.to_owned(), claims);
    }

    /// Makes the introspection of a token return that it is not active.
    pub fn revoke(&self, token: &str) {
        self.shared.state().active.remove(token);
    }

    /// Changes the conduct of an endpoint.
    pub fn conduct(&self, place: Place, conduct: Conduct) {
        self.shared.conduct.send_modify(|all| {
            all.insert(place, conduct);
        });
    }

    /// Changes the conduct of all endpoints.
    pub fn conduct_all(&self, conduct: &Conduct) {
        for place in [Place::Metadata, Place::Keys, Place::Introspection] {
            self.conduct(place, conduct.clone());
        }
    }

    /// The number of requests to an endpoint.
    pub fn asked(&self, place: Place) -> usize {
        self.shared.counter(place).load(Ordering::SeqCst)
    }
}

/// The time `seconds` from now, in seconds since 1970.
pub fn seconds_from_now(seconds: i64) -> i64 {
    let now = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or(Duration::ZERO);
    i64::try_from(now.as_secs()).unwrap() + seconds
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    fn counter(&self, place: Place) -> &AtomicUsize {
        match place {
            Place::Metadata => &self.metadata,
            Place::Keys => &self.keys,
            Place::Introspection => &self.introspections,
        }
    }

    fn place(&self, path: &str) -> Option<Place> {
        let metadata = [
            format!("/.well-known/oauth-authorization-server{}", self.path),
            format!("{}/.well-known/openid-configuration", self.path),
        ];
        match path {
            "/keys" => Some(Place::Keys),
            "/introspect" => Some(Place::Introspection),
            _ => metadata
                .iter()
                .any(|one| one == path)
                .then_some(Place::Metadata),
        }
    }

    /// The correct answer to a request with this body.
    fn answer(&self, place: Place, authorization: &str, body: &[u8]) -> (u16, Value) {
        let state = self.state();
        match place {
            Place::Metadata => {
                let mut metadata = json!({
                    "issuer": self.url,
                    "jwks_uri": format!("{}/keys", self.origin),
                    "introspection_endpoint": format!("{}/introspect", self.origin),
                    "authorization_endpoint": format!("{}/authorize", self.origin),
                    "token_endpoint": format!("{}/token", self.origin),
                    "response_types_supported": ["code"],
                    "code_challenge_methods_supported": ["S256"],
                });
                for (name, value) in state.metadata.as_object().into_iter().flatten() {
                    metadata[name] = value.clone();
                }
                (200, metadata)
            }
            Place::Keys => (
                200,
                json!({ "keys": state.keys.iter().map(|key| key.jwk()).collect::<Vec<_>>() }),
            ),
            Place::Introspection if authorization != expected_authorization() => {
                (401, json!({ "error": "invalid_client" }))
            }
            Place::Introspection => {
                let body = String::from_utf8_lossy(body);
                let token = body.split('&').find_map(|pair| pair.strip_prefix("token="));
                (
                    200,
                    token
                        .and_then(|token| state.active.get(token))
                        .cloned()
                        .unwrap_or(json!({ "active": false })),
                )
            }
        }
    }
}

/// The `Authorization` of `CLIENT`, with both parts form-encoded (RFC 6749, 2.3.1).
fn expected_authorization() -> String {
    // Written out, so that the test does not depend on an encoder.
    let credentials = "fanlight:a+secret%3A+with+%C3%BCnusual+%26+characters";
    format!("Basic {}", BASE64.encode(credentials.as_bytes()))
}

async fn serve(listener: TcpListener, shared: Arc<Shared>) {
    let mut connections = tokio::task::JoinSet::new();
    while let Ok((connection, _)) = listener.accept().await {
        let shared = Arc::clone(&shared);
        connections.spawn(async move {
            let service = service_fn(move |request| handle(request, Arc::clone(&shared)));
            let _ = http1::Builder::new()
                .serve_connection(TokioIo::new(connection), service)
                .await;
        });
        while connections.try_join_next().is_some() {}
    }
}

/// `Err` closes the connection without an answer.
async fn handle(
    request: Request<Incoming>,
    shared: Arc<Shared>,
) -> Result<Response<Full<Bytes>>, std::io::Error> {
    let Some(place) = shared.place(request.uri().path()) else {
        return Ok(response(404, json!({}).to_string()));
    };
    shared.counter(place).fetch_add(1, Ordering::SeqCst);
    let authorization = request
        .headers()
        .get(header::AUTHORIZATION)
        .map_or(String::new(), |value| {
            String::from_utf8_lossy(value.as_bytes()).into_owned()
        });
    let body = request
        .into_body()
        .collect()
        .await
        .map_err(std::io::Error::other)?
        .to_bytes();
    let mut conduct = shared.conduct.subscribe();
    let conduct = conduct
        .wait_for(|all| all.get(&place) != Some(&Conduct::Slow))
        .await;
    let conduct = conduct.map_or(Conduct::Down, |all| {
        all.get(&place).cloned().unwrap_or(Conduct::Good)
    });
    match conduct {
        Conduct::Good | Conduct::Slow => {
            let (status, body) = shared.answer(place, &authorization, &body);
            Ok(response(status, body.to_string()))
        }
        Conduct::Down => Err(std::io::ErrorKind::ConnectionAborted.into()),
        Conduct::Status(status) => Ok(response(status, "{}".to_owned())),
        Conduct::Redirect(to) => {
            let mut redirect = response(302, String::new());
            redirect
                .headers_mut()
                .insert(header::LOCATION, to.parse().unwrap());
            Ok(redirect)
        }
        Conduct::Text(text) => Ok(response(200, text)),
    }
}

fn response(status: u16, body: String) -> Response<Full<Bytes>> {
    let response = Response::builder()
        .status(status)
        .header(header::CONTENT_TYPE, "application/json");
    response.body(Full::new(Bytes::from(body))).unwrap()
}
