//! A client of the JSON API of a running gateway (docs/api.md).

use std::time::Duration;

use reqwest::{StatusCode, Url};
use serde_json::Value;

use crate::cli::AdminArgs;
use crate::failure::Failure;

/// The environment variable with the token; other users can see a command line.
const TOKEN: &str = "FANLIGHT_ADMIN_TOKEN";
/// Time limit for an answer. No option: the listener answers from memory.
const TIMEOUT: Duration = Duration::from_secs(10);
/// Most bytes of an answer.
const LONGEST: usize = 256 * 1024 * 1024;

/// The admin listener of a running gateway.
pub(crate) struct Admin {
    http: reqwest::Client,
    base: Url,
    token: Option<String>,
}

impl Admin {
    pub(crate) fn new(args: &AdminArgs) -> Result<Self, Failure> {
        let base =
            Url::parse(&args.admin).ok().filter(|url| matches!(url.scheme(), "http" | "https") && url.has_host());
        let wrong = || Failure::usage("--admin must be an http or https URL, such as http://127.0.0.1:8081");
        let base = base.ok_or_else(wrong)?;
        let http = reqwest::Client::builder().no_proxy().timeout(TIMEOUT).redirect(reqwest::redirect::Policy::none());
        let http = http.build().map_err(|error| Failure::other(error.to_string()))?;
        let token = std::env::var(TOKEN).ok().map(|token| token.trim().to_owned()).filter(|token| !token.is_empty());
        Ok(Self { http, base, token })
    }

    /// An answer as JSON.
    pub(crate) fn json(&self, answer: &[u8]) -> Result<Value, Failure> {
        serde_json::from_slice(answer).map_err(|_| self.unexpected("its answer is not JSON"))
    }

    /// The bytes of the answer at `path`.
    pub(crate) async fn get(&self, path: &str, query: &[(&str, String)]) -> Result<Vec<u8>, Failure> {
        let mut url = self.base.clone();
        url.set_path(path);
        if !query.is_empty() {
            url.query_pairs_mut().extend_pairs(query);
        }
        let (status, body) = self.send(self.http.get(url)).await?;
        self.expect(status, StatusCode::OK, body)
    }

    /// The status and the bytes of the answer to a change that is asked for at `path`, which has these segments.
    pub(crate) async fn post(&self, path: &[&str]) -> Result<(StatusCode, Vec<u8>), Failure> {
        let mut url = self.base.clone();
        url.path_segments_mut().map_err(|()| self.unexpected("its URL has no path"))?.clear().extend(path);
        self.send(self.http.post(url)).await
    }

    async fn send(&self, mut request: reqwest::RequestBuilder) -> Result<(StatusCode, Vec<u8>), Failure> {
        if let Some(token) = &self.token {
            request = request.bearer_auth(token);
        }
        let mut answer = request.send().await.map_err(|error| self.unreachable(&error))?;
        let mut body = Vec::new();
        while let Some(chunk) = answer.chunk().await.map_err(|error| self.unreachable(&error))? {
            if body.len() + chunk.len() > LONGEST {
                return Err(self.unexpected("its answer is too long"));
            }
            body.extend_from_slice(&chunk);
        }
        Ok((answer.status(), body))
    }

    /// The body, unless the status is another than `expected`.
    pub(crate) fn expect(&self, status: StatusCode, expected: StatusCode, body: Vec<u8>) -> Result<Vec<u8>, Failure> {
        match status {
            status if status == expected => Ok(body),
            StatusCode::UNAUTHORIZED => Err(Failure::other(format!(
                "{} requires a token, and {}; put `admin.token` of its configuration into {TOKEN}, `admin.viewerToken` to \
                 look only, or a token that `admin.roles` gives a role",
                self.shown(),
                if self.token.is_some() { "this one is wrong" } else { "none was given" }
            ))),
            StatusCode::FORBIDDEN => Err(Failure::other(format!(
                "{} does not allow this{}; put a token with the role `operator` into {TOKEN}",
                self.shown(),
                reason(&body)
            ))),
            status => {
                let message = format!("{} answered with status {}{}", self.shown(), status.as_u16(), reason(&body));
                Err(if status == StatusCode::NOT_FOUND { Failure::not_found(message) } else { Failure::other(message) })
            }
        }
    }

    /// Scheme, host and port of the URL, without anything secret.
    pub(crate) fn shown(&self) -> String {
        self.base.origin().ascii_serialization()
    }

    fn unreachable(&self, error: &reqwest::Error) -> Failure {
        let what = if error.is_timeout() { "does not answer" } else { "cannot be reached" };
        Failure::other(format!(
            "the admin listener at {} {what}; is a gateway running there? `--admin URL` names another",
            self.shown()
        ))
    }

    fn unexpected(&self, what: &str) -> Failure {
        Failure::other(format!("{}: {what}; is that the admin listener of Fanlight?", self.shown()))
    }
}

/// What the listener says of a refusal, to be put behind a sentence.
fn reason(body: &[u8]) -> String {
    let answer: Option<Value> = serde_json::from_slice(body).ok();
    let reason = answer.as_ref().and_then(|answer| answer.get("error")?.as_str());
    reason.map(|text| format!(": {}", crate::inspect::plain(text, 300))).unwrap_or_default()
}
