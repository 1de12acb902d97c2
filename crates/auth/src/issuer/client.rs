//! Requests to issuers. Their size and time are limited, and they have no redirects, cookies or
//! retries.

use std::sync::OnceLock;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE};
use http::{HeaderValue, StatusCode};
use reqwest::{RequestBuilder, Url, redirect};

/// The reason why an issuer has not answered. It is only logged; clients do not learn it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum FetchError {
    #[error("{0} cannot be used: the URL must be https, or http if the issuer is on this machine")]
    Url(String),
    #[error("no answer: {0}")]
    Transport(String),
    #[error("no answer within {0:?}")]
    Timeout(Duration),
    #[error("the status is {}, not 200", .0.as_u16())]
    Status(StatusCode),
    #[error("the answer has more than {0} bytes")]
    TooLong(usize),
    #[error("the answer is malformed")]
    Malformed,
    #[error("there are more than {0} keys")]
    TooManyKeys(usize),
    #[error("there is no usable key")]
    NoKeys,
    #[error("no metadata found by RFC 8414 or OpenID Connect Discovery: {0}")]
    NoMetadata(Box<Self>),
    #[error("the metadata belong to another issuer")]
    OtherIssuer,
    #[error("the metadata lack {0}")]
    Missing(&'static str),
    #[error("too many requests wait for the issuer")]
    Busy,
    #[error("a request has failed a moment ago")]
    JustFailed,
}

/// Bytes of an answer of an issuer: its metadata, its keys, or its answer about a token.
const LONGEST_ANSWER: usize = 256 << 10;

/// An HTTP client for one issuer.
#[derive(Debug)]
pub(crate) struct IssuerClient {
    /// Whether the issuer is on this machine, over http, as in tests and on laptops.
    is_local: bool,
    timeout: Duration,
    /// Uses the environment's proxy.
    proxied: OnceLock<reqwest::Client>,
    /// Uses no proxy, for servers on this machine.
    direct: OnceLock<reqwest::Client>,
}

impl IssuerClient {
    /// A client for `issuer` with a time limit.
    pub(crate) fn new(issuer: &str, timeout: Duration) -> Self {
        let is_local =
            Url::parse(issuer).is_ok_and(|url| url.scheme() == "http" && is_loopback(&url));
        Self {
            is_local,
            timeout,
            proxied: OnceLock::new(),
            direct: OnceLock::new(),
        }
    }

    /// Reads a document.
    pub(crate) async fn get(&self, url: &str) -> Result<Bytes, FetchError> {
        let (client, url) = self.client_for(url)?;
        self.send(client.get(url)).await
    }

    /// Sends a form, with a client's credentials if given, and reads the answer.
    pub(crate) async fn post(
        &self,
        url: &str,
        authorization: Option<HeaderValue>,
        form: String,
    ) -> Result<Bytes, FetchError> {
        let (client, url) = self.client_for(url)?;
        let mut request = client.post(url);
        if let Some(authorization) = authorization {
            request = request.header(AUTHORIZATION, authorization);
        }
        self.send(
            request
                .header(CONTENT_TYPE, "application/x-www-form-urlencoded")
                .body(form),
        )
        .await
    }

    /// The parsed URL, and the HTTP client to use for it.
    fn client_for(&self, url: &str) -> Result<(&reqwest::Client, Url), FetchError> {
        let refused = || FetchError::Url(url.to_owned());
        let parsed = Url::parse(url).map_err(|_| refused())?;
        let is_loopback = is_loopback(&parsed);
        let is_allowed = parsed.scheme() == "https"
            || (parsed.scheme() == "http" && self.is_local && is_loopback);
        if !is_allowed {
            return Err(refused());
        }
        let slot = if is_loopback {
            &self.direct
        } else {
            &self.proxied
        };
        if let Some(client) = slot.get() {
            return Ok((client, parsed));
        }
        let client = self
            .build(is_loopback)
            .map_err(|error| FetchError::Transport(described(&error)))?;
        Ok((slot.get_or_init(|| client), parsed))
    }

    fn build(&self, is_loopback: bool) -> reqwest::Result<reqwest::Client> {
        let mut builder = reqwest::Client::builder()
            .redirect(redirect::Policy::none())
            .retry(reqwest::retry::never())
            .connect_timeout(self.timeout)
            .tcp_nodelay(true);
        if is_loopback {
            builder = builder.no_proxy();
        }
        builder.build()
    }

    async fn send(&self, request: RequestBuilder) -> Result<Bytes, FetchError> {
        let request = request.header(ACCEPT, "application/json");
        match tokio::time::timeout(self.timeout, self.exchange(request)).await {
            Ok(outcome) => outcome,
            Err(_) => Err(FetchError::Timeout(self.timeout)),
        }
    }

    async fn exchange(&self, request: RequestBuilder) -> Result<Bytes, FetchError> {
        let transport = |error: reqwest::Error| FetchError::Transport(described(&error));
        let mut response = request.send().await.map_err(transport)?;
        if response.status() != StatusCode::OK {
            return Err(FetchError::Status(response.status()));
        }
        let mut body = BytesMut::new();
        while let Some(chunk) = response.chunk().await.map_err(transport)? {
            if body.len() + chunk.len() > LONGEST_ANSWER {
                return Err(FetchError::TooLong(LONGEST_ANSWER));
            }
            body.extend_from_slice(&chunk);
        }
        Ok(body.freeze())
    }
}

/// An error with all its causes, without the URL, which may contain a secret.
fn described(error: &reqwest::Error) -> String {
    let mut text = String::new();
    let mut cause = std::error::Error::source(error);
    while let Some(one) = cause {
        text = if text.is_empty() {
            one.to_string()
        } else {
            format!("{text}: {one}")
        };
        cause = one.source();
    }
    if text.is_empty() {
        "the request has failed".to_owned()
    } else {
        text
    }
}

fn is_loopback(url: &Url) -> bool {
    url.host_str()
        .is_some_and(fanlight_config::settings::is_loopback)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_https_is_used_but_on_this_machine() {
        let client = |issuer| IssuerClient::new(issuer, Duration::from_secs(1));
        let may_ask = |issuer, url| client(issuer).client_for(url).is_ok();
        assert!(may_ask("http://127.0.0.1:1/a", "http://localhost:2/keys"));
        assert!(may_ask("http://[::1]:1", "https://id.example.com/keys"));
        assert!(may_ask(
            "https://id.example.com",
            "https://keys.example.com/keys"
        ));
        for url in [
            "http://127.0.0.1/keys",
            "http://id.example.com/keys",
            "file:///etc/passwd",
            "data:,{}",
            "keys",
            "",
        ] {
            assert!(!may_ask("https://id.example.com", url), "{url}");
        }
        assert!(!may_ask(
            "http://127.0.0.1",
            "http://127.0.0.1.example.com/keys"
        ));
        assert!(!may_ask("http://127.0.0.1", "http://10.0.0.1/keys"));
    }
}
