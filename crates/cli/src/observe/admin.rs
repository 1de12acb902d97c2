//! A client of the JSON API of a running gateway (docs/api.md).

use std::fs;
use std::path::Path;
use std::time::Duration;

use bytes::Bytes;
use fanlight_config::MAX_FILE_SIZE;
use fanlight_config::settings::read_bounded;
use fanlight_grants::fetch;
use fanlight_protocol::sse::Event;
use fanlight_protocol::visible::plain;
use http::StatusCode;
use reqwest::{ClientBuilder, Identity};
use serde_json::Value;

use super::place::{Place, TOKEN};
use crate::cli::{AdminArgs, CommonArgs};
use crate::judge::peer::http::{EventStream, root_cause};
use crate::{Failure, Result, complain, configuration};

/// Time limit for an answer. There is no option, since the listener answers from memory.
const TIMEOUT: Duration = Duration::from_secs(10);
/// Time limit for finding out which gateway is listening.
const RECOGNISED: Duration = Duration::from_secs(3);
/// Time limit of an event stream. The client library requires a limit, so this is practically
/// endless.
const FOLLOWED: Duration = Duration::from_secs(365 * 86_400);
/// The size limit of an answer, in bytes.
const LONGEST: usize = 256 * 1024 * 1024;

/// The admin listener of a running gateway.
pub struct Admin {
    http: reqwest::Client,
    place: Place,
}

impl Admin {
    /// Finds the gateway named by `--admin`, else the configuration's gateway. Another gateway at
    /// the configured address is not accepted.
    pub async fn find(args: &AdminArgs, common: &CommonArgs) -> Result<Self> {
        let admin = Self::new(Place::find(args, common)?, args)?;
        let Some(expected) = admin.place.instance.clone() else {
            return Ok(admin);
        };
        let found = admin.instance().await;
        if matches!(&found, Ok(Some(found)) if *found == expected) {
            return Ok(admin);
        }
        for place in admin.place.further() {
            let next = Self::new(place, args)?;
            if next
                .instance()
                .await
                .is_ok_and(|found| found.as_deref() == Some(&expected))
            {
                return Ok(next);
            }
        }
        let is_fanlight = found?.is_some();
        if admin.place.may_be_another && is_fanlight {
            complain(&format!(
                "this is the gateway at {}, with a configuration of its own; the demo is not running\n",
                admin.display_name()
            ));
            return Ok(admin);
        }
        Err(failure!(
            "another process listens at {} ({}), not the gateway with this configuration: start \
             it, or name another gateway with `--admin`",
            admin.display_name(),
            admin.place.source
        ))
    }

    /// Finds the gateway for a command that can do without one: the one named by `--admin`, or the
    /// configuration's, if it is running and accepts the token; else `None`.
    pub async fn for_command(args: &AdminArgs, common: &CommonArgs) -> Result<Option<Self>> {
        if args.admin.is_some() {
            return Self::find(args, common).await.map(Some);
        }
        if common.demo || configuration::paths(common).is_none() {
            return Ok(None);
        }
        match Self::find(args, common).await {
            Ok(admin) => match admin.get(&["endpoints"], &[]).await {
                Ok(_) => Ok(Some(admin)),
                Err(refused) => {
                    complain(&format!("{refused}\n"));
                    Ok(None)
                }
            },
            Err(_) => Ok(None),
        }
    }

    /// The instance id of the gateway, if one answers. The request has no token.
    async fn instance(&self) -> Result<Option<String>> {
        let mut url = self.place.base.clone();
        url.set_path("/healthz");
        let answer = self
            .http
            .get(url)
            .timeout(RECOGNISED)
            .send()
            .await
            .map_err(|error| self.unreachable(&error))?;
        let instance = answer
            .headers()
            .get("fanlight-instance")
            .and_then(|value| value.to_str().ok());
        Ok(instance.map(str::to_owned))
    }

    fn new(place: Place, args: &AdminArgs) -> Result<Self> {
        let http = fetch::builder().no_proxy().timeout(TIMEOUT);
        let mut http = match &place.socket {
            Some(path) => http.unix_socket(path.as_path()),
            None => http,
        };
        if let (Some(address), Some(name)) = (place.address, place.base.host_str()) {
            http = http.resolve(name, address);
        }
        // A self-signed certificate named in the configuration is trusted as well. If it cannot be
        // read, the system's authorities may suffice.
        let own = place
            .certificate
            .as_ref()
            .and_then(|path| read_bounded(path, MAX_FILE_SIZE).ok());
        let own = own.and_then(|pem| fetch::authorities(&pem).ok());
        if let Some(own) = own {
            http = http.tls_certs_merge(own);
        }
        if place.base.scheme() == "https" {
            http = configure(http, args)?;
        } else if let Some(option) = options(args).next() {
            return Err(usage!(
                "{option} needs TLS, which {} does not use",
                place.display_name()
            ));
        }
        let http = http.build().map_err(|error| unusable(args, &error))?;
        Ok(Self { http, place })
    }

    /// Parses an answer as JSON.
    pub fn json(&self, answer: &[u8]) -> Result<Value> {
        serde_json::from_slice(answer).map_err(|_| self.unexpected("its answer is not JSON"))
    }

    /// Requests the path of the API with these segments, and returns the answer's bytes.
    pub async fn get(&self, path: &[&str], query: &[(&str, String)]) -> Result<Bytes> {
        let mut url = self.url_of(path)?;
        if !query.is_empty() {
            url.query_pairs_mut().extend_pairs(query);
        }
        self.send_expecting(self.http.get(url)).await
    }

    /// The event stream at the path of the API with these segments. It has no time limit.
    pub async fn follow(&self, path: &[&str]) -> Result<EventStream> {
        let mut url = self.url_of(path)?;
        url.set_query(Some("follow"));
        let stream = self.stream(self.http.get(url)).await?;
        Ok(EventStream::new(stream, LONGEST))
    }

    /// The gateway's events, with the traces that this query chooses. It has no time limit.
    pub async fn events(&self, query: &[(&str, String)]) -> Result<EventStream> {
        let mut url = self.url_of(&["events"])?;
        url.query_pairs_mut().extend_pairs(query);
        let stream = self.stream(self.http.get(url)).await?;
        Ok(EventStream::new(stream, LONGEST))
    }

    /// The next event of a stream; `None` at its end.
    pub async fn next_event(&self, stream: &mut EventStream) -> Result<Option<Event>> {
        stream
            .next()
            .await
            .map_err(|broken| failure!("the stream of {} broke off: {broken}", self.display_name()))
    }

    /// The failure for a stream that the gateway has ended.
    pub fn ended(&self) -> Failure {
        failure!(
            "{} has ended the stream: it is shutting down, or its settings have changed",
            self.display_name()
        )
    }

    /// Posts JSON to `path`, and returns the event stream that answers it.
    pub async fn post_followed(&self, path: &[&str], body: String) -> Result<EventStream> {
        let stream = self.post_streamed(path, body, "text/event-stream").await?;
        Ok(EventStream::new(stream, LONGEST))
    }

    /// Posts JSON to `path`, and returns the stream of this type that answers it.
    pub async fn post_streamed(
        &self,
        path: &[&str],
        body: String,
        kind: &str,
    ) -> Result<reqwest::Response> {
        let request = self.json_to(path, body)?;
        self.stream(request.header("accept", kind)).await
    }

    async fn stream(&self, request: reqwest::RequestBuilder) -> Result<reqwest::Response> {
        let mut answer = self.open(request.timeout(FOLLOWED)).await?;
        match answer.status() {
            StatusCode::OK => Ok(answer),
            status => {
                let body = fetch::body_of(&mut answer, LONGEST).await.ok().flatten();
                self.expect(status, body.unwrap_or_default())?;
                Err(self.unexpected("it sends no event stream"))
            }
        }
    }

    fn url_of(&self, path: &[&str]) -> Result<url::Url> {
        let mut url = self.place.base.clone();
        url.path_segments_mut()
            .map_err(|()| self.unexpected("its URL has no path"))?
            .clear()
            .push("api")
            .extend(path);
        Ok(url)
    }

    fn json_to(&self, path: &[&str], body: String) -> Result<reqwest::RequestBuilder> {
        let request = self.http.post(self.url_of(path)?);
        let request = request.header("content-type", "application/json");
        Ok(request.body(body))
    }

    /// Sends a request with the token, and returns the answer without its body.
    async fn open(&self, request: reqwest::RequestBuilder) -> Result<reqwest::Response> {
        let request = match &self.place.token {
            Some(token) => request.bearer_auth(token),
            None => request,
        };
        let answer = request.send().await;
        answer.map_err(|error| self.unreachable(&error))
    }

    /// Posts JSON to `path`, and returns the answer's bytes.
    pub async fn post_json(&self, path: &[&str], body: String) -> Result<Bytes> {
        let request = self.json_to(path, body)?.timeout(FOLLOWED);
        self.send_expecting(request).await
    }

    /// Requests a change at the path of the API with these segments, and returns the answer's bytes.
    pub async fn post(&self, path: &[&str]) -> Result<Bytes> {
        self.send_expecting(self.http.post(self.url_of(path)?))
            .await
    }

    /// As [`post`](Self::post), but returns any status with the answer's bytes.
    pub async fn try_post(&self, path: &[&str]) -> Result<(StatusCode, Bytes)> {
        self.send(self.http.post(self.url_of(path)?)).await
    }

    async fn send_expecting(&self, request: reqwest::RequestBuilder) -> Result<Bytes> {
        let (status, body) = self.send(request).await?;
        self.expect(status, body)
    }

    async fn send(&self, request: reqwest::RequestBuilder) -> Result<(StatusCode, Bytes)> {
        let mut answer = self.open(request).await?;
        let body = fetch::body_of(&mut answer, LONGEST)
            .await
            .map_err(|error| self.unreachable(&error))?;
        let body = body.ok_or_else(|| self.unexpected("its answer is too long"))?;
        Ok((answer.status(), body))
    }

    /// The body, if the status is 200.
    pub fn expect(&self, status: StatusCode, body: Bytes) -> Result<Bytes> {
        match status {
            StatusCode::OK => Ok(body),
            StatusCode::UNAUTHORIZED => Err(failure!(
                "{} requires a token, and {}; put a key or token of `auth` to which `admin.roles` gives a role into {TOKEN}, or \
                 `admin.token` of its configuration",
                self.display_name(),
                if self.place.token.is_some() {
                    "this one is wrong"
                } else {
                    "none was given"
                }
            )),
            StatusCode::FORBIDDEN => Err(failure!(
                "{} does not allow this{}; put a token with the role `operator` into {TOKEN}",
                self.display_name(),
                reason(&body)
            )),
            status => {
                let message = format!(
                    "{} answered with status {}{}",
                    self.display_name(),
                    status.as_u16(),
                    reason(&body)
                );
                Err(if status == StatusCode::NOT_FOUND {
                    Failure::not_found(message)
                } else {
                    Failure::other(message)
                })
            }
        }
    }

    /// The listener's name in messages, without secrets.
    pub fn display_name(&self) -> String {
        self.place.display_name()
    }

    fn unreachable(&self, error: &reqwest::Error) -> Failure {
        let what = if error.is_timeout() {
            "does not answer"
        } else {
            "cannot be reached"
        };
        let cause = root_cause(error).map(ToString::to_string);
        let help = cause.as_deref().and_then(help);
        let cause = cause.map(|cause| format!(": {}", plain(&cause, 200)));
        failure!(
            "the admin listener at {} ({}) {what}{}; {}",
            self.display_name(),
            self.place.source,
            cause.unwrap_or_default(),
            help.unwrap_or("is a gateway running there? Name another with `--admin`")
        )
    }

    fn unexpected(&self, what: &str) -> Failure {
        failure!(
            "{}: {what}; is that the admin listener of Fanlight?",
            self.display_name()
        )
    }
}

/// The listener's reason for a refusal, to append to a sentence.
fn reason(body: &[u8]) -> String {
    let answer: Option<Value> = serde_json::from_slice(body).ok();
    let reason = answer
        .as_ref()
        .and_then(|answer| answer.get("error")?.as_str());
    reason
        .map(|text| format!(": {}", plain(text, 300)))
        .unwrap_or_default()
}

/// The elements of a member of an answer; none if it is no array.
pub(super) fn elements<'a>(value: &'a Value, key: &str) -> impl Iterator<Item = &'a Value> {
    value[key].as_array().into_iter().flatten()
}

/// The text of a member of an answer; empty if it is none.
pub(super) fn text<'a>(value: &'a Value, key: &str) -> &'a str {
    value[key].as_str().unwrap_or_default()
}

/// The text of a member in visible characters, `longest` of them at most.
pub(super) fn plain_text(value: &Value, key: &str, longest: usize) -> String {
    plain(text(value, key), longest)
}

/// The text after a colon; nothing if it is empty.
pub(super) fn after_colon(text: &str) -> String {
    match text {
        "" => String::new(),
        text => format!(": {text}"),
    }
}

/// The options in use.
pub(super) fn options(args: &AdminArgs) -> impl Iterator<Item = &'static str> {
    let all = [
        ("--admin-cert", &args.admin_cert),
        ("--admin-key", &args.admin_key),
        ("--admin-ca", &args.admin_ca),
    ];
    all.into_iter()
        .filter(|(_, path)| path.is_some())
        .map(|(option, _)| option)
}

/// Gives a client the user's certificate, and the authorities to trust.
pub(super) fn configure(mut http: ClientBuilder, args: &AdminArgs) -> Result<ClientBuilder> {
    if let Some(path) = &args.admin_ca {
        let none = |_| {
            usage!(
                "--admin-ca {}: the file has no PEM certificate",
                path.display()
            )
        };
        http = http.tls_certs_merge(fetch::authorities(&read(path)?).map_err(none)?);
    }
    if let (Some(certificate), Some(key)) = (&args.admin_cert, &args.admin_key) {
        let pem = [read(certificate)?, b"\n".to_vec(), read(key)?].concat();
        // The cause is left out, since it may show a part of the key.
        let identity = Identity::from_pem(&pem).map_err(|_| no_identity(certificate, key))?;
        http = http.identity(identity);
    }
    Ok(http)
}

/// The failure if no client could be created.
pub(super) fn unusable(args: &AdminArgs, error: &reqwest::Error) -> Failure {
    match (&args.admin_cert, &args.admin_key) {
        (Some(certificate), Some(key)) => no_identity(certificate, key),
        _ => Failure::other(error),
    }
}

fn no_identity(certificate: &Path, key: &Path) -> Failure {
    usage!(
        "--admin-cert {} and --admin-key {} are not a PEM certificate and its private key",
        certificate.display(),
        key.display()
    )
}

/// The remedy for this cause of a failed connection.
pub(super) fn help(cause: &str) -> Option<&'static str> {
    let has = |part: &str| cause.contains(part);
    if has("CertificateRequired") {
        Some("it requires a client certificate: name one with --admin-cert and --admin-key")
    } else if has("AlertReceived") || has("fatal alert") {
        Some("it does not accept the certificate of --admin-cert, or the handshake")
    } else if has("certificate") {
        Some("name the authority that signed its certificate with --admin-ca")
    } else {
        None
    }
}

fn read(path: &Path) -> Result<Vec<u8>> {
    fs::read(path).map_err(|error| usage!("cannot read {}: {error}", path.display()))
}
