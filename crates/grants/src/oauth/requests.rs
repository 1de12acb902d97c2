//! Requests to authorization servers. Their size and time are limited, they have no redirects,
//! cookies or retries, and go only to places that [`Trust`] allows.

use std::error::Error;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::header::{ACCEPT, CONTENT_TYPE, WWW_AUTHENTICATE};
use http::{HeaderMap, HeaderValue, StatusCode, Uri};
use hyper_util::client::proxy::matcher::Matcher;
use reqwest::{Certificate, RequestBuilder, redirect};
use serde::Serialize;
use serde::de::DeserializeOwned;
use url::Url;

use crate::oauth::challenge::Challenge;
use crate::oauth::error::{OAuthError, shown, visible};
use crate::oauth::guard::{Guard, GuardedResolver, NotPublic, Trust, is_loopback};

/// The time limit of a request. There is no option: people and calls cannot wait longer.
const TIMEOUT: Duration = Duration::from_secs(10);

/// The size limit of an answer. There is no option: metadata and tokens have some thousand bytes.
const LONGEST: usize = 256 << 10;

/// An HTTP client that trusts one server.
pub struct Requests {
    guard: Arc<Guard>,
    authorities: Vec<Certificate>,
    /// Connects directly, to checked addresses.
    direct: OnceLock<reqwest::Client>,
    /// Connects through the environment's proxy, which resolves names itself.
    proxied: OnceLock<reqwest::Client>,
    proxies: Matcher,
}

/// An answer.
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

impl Requests {
    /// Creates a client for the server of `trust`.
    ///
    /// # Errors
    ///
    /// If the certificates are not in PEM.
    pub fn new(trust: &Trust) -> Result<Self, OAuthError> {
        let authorities = match trust
            .authorities
            .as_ref()
            .map(|pem| Certificate::from_pem_bundle(pem))
        {
            None => Vec::new(),
            Some(Ok(found)) if !found.is_empty() => found,
            Some(_) => {
                return Err(OAuthError::Key(
                    "there is no certificate in PEM form".to_owned(),
                ));
            }
        };
        let (direct, proxied) = (OnceLock::new(), OnceLock::new());
        let guard = Arc::new(Guard::new(trust));
        Ok(Self {
            guard,
            authorities,
            direct,
            proxied,
            proxies: Matcher::from_env(),
        })
    }

    /// Checks whether a URL may get requests, or be shown to a user as a link.
    ///
    /// # Errors
    ///
    /// If it may not.
    pub fn permits(&self, url: &Url) -> Result<(), OAuthError> {
        self.guard
            .check(url)
            .map_err(|reason| forbidden(url, reason))
    }

    /// Reads a JSON document.
    ///
    /// # Errors
    ///
    /// If it cannot be read, or is something else.
    pub async fn get_json<T: DeserializeOwned>(&self, url: &Url) -> Result<T, OAuthError> {
        let answer = self.send(url, |client| client.get(url.clone())).await?;
        match answer.status {
            StatusCode::OK => answer.json(url),
            status => Err(OAuthError::Status {
                url: shown(url),
                status,
            }),
        }
    }

    /// A server's challenge to a request without credentials; `None` if it sends none.
    ///
    /// # Errors
    ///
    /// If it does not answer.
    pub async fn challenge(&self, server: &Url) -> Result<Option<Challenge>, OAuthError> {
        let answer = self
            .post_json(
                server,
                &serde_json::json!({ "jsonrpc": "2.0", "method": "ping", "id": 0 }),
            )
            .await?;
        let is_refused = answer.status == StatusCode::UNAUTHORIZED;
        Ok(
            Challenge::from_headers(answer.headers.get_all(WWW_AUTHENTICATE))
                .filter(|_| is_refused),
        )
    }

    /// Sends a form with further header fields.
    pub(crate) async fn post_form(
        &self,
        url: &Url,
        headers: HeaderMap,
        form: String,
    ) -> Result<Answer, OAuthError> {
        let form_type = HeaderValue::from_static("application/x-www-form-urlencoded");
        let request = |client: &reqwest::Client| {
            client
                .post(url.clone())
                .headers(headers)
                .header(CONTENT_TYPE, form_type)
        };
        self.send(url, |client| request(client).body(form)).await
    }

    /// Sends a JSON document.
    pub(crate) async fn post_json(
        &self,
        url: &Url,
        document: &impl Serialize,
    ) -> Result<Answer, OAuthError> {
        let text =
            serde_json::to_vec(document).map_err(|error| OAuthError::malformed(url, error))?;
        let json = HeaderValue::from_static("application/json");
        self.send(url, |client| {
            client
                .post(url.clone())
                .header(CONTENT_TYPE, json)
                .body(text)
        })
        .await
    }

    async fn send(
        &self,
        url: &Url,
        request: impl FnOnce(&reqwest::Client) -> RequestBuilder,
    ) -> Result<Answer, OAuthError> {
        self.permits(url)?;
        let outcome = tokio::time::timeout(TIMEOUT, async {
            self.guard
                .check_literal(url)
                .await
                .map_err(|reason| forbidden(url, reason))?;
            let json = HeaderValue::from_static("application/json");
            Answer::read(url, request(self.client_for(url)?).header(ACCEPT, json)).await
        });
        outcome.await.unwrap_or_else(|_| {
            Err(OAuthError::Timeout {
                url: shown(url),
                within: TIMEOUT,
            })
        })
    }

    fn client_for(&self, url: &Url) -> Result<&reqwest::Client, OAuthError> {
        let is_proxied = url
            .as_str()
            .parse::<Uri>()
            .is_ok_and(|uri| self.proxies.intercept(&uri).is_some());
        let is_proxied = is_proxied && !is_loopback(url);
        let slot = if is_proxied {
            &self.proxied
        } else {
            &self.direct
        };
        if let Some(client) = slot.get() {
            return Ok(client);
        }
        let client = self.build(is_proxied).map_err(|error| unusable(&error))?;
        Ok(slot.get_or_init(|| client))
    }

    fn build(&self, is_proxied: bool) -> reqwest::Result<reqwest::Client> {
        let mut builder = reqwest::Client::builder()
            .redirect(redirect::Policy::none())
            .retry(reqwest::retry::never())
            .connect_timeout(TIMEOUT)
            .pool_max_idle_per_host(1)
            .tcp_nodelay(true);
        if !self.authorities.is_empty() {
            builder = builder.tls_certs_merge(self.authorities.iter().cloned());
        }
        if !is_proxied {
            builder = builder
                .dns_resolver(Arc::new(GuardedResolver(Arc::clone(&self.guard))))
                .no_proxy();
        }
        builder.build()
    }
}

impl Answer {
    async fn read(url: &Url, request: RequestBuilder) -> Result<Self, OAuthError> {
        let mut response = request
            .send()
            .await
            .map_err(|error| no_answer(url, &error))?;
        let mut body = BytesMut::new();
        while let Some(chunk) = response
            .chunk()
            .await
            .map_err(|error| no_answer(url, &error))?
        {
            if body.len() + chunk.len() > LONGEST {
                return Err(OAuthError::TooLong {
                    url: shown(url),
                    most: LONGEST,
                });
            }
            body.extend_from_slice(&chunk);
        }
        let headers = std::mem::take(response.headers_mut());
        Ok(Self {
            status: response.status(),
            headers,
            body: body.freeze(),
        })
    }

    /// The document in the body. A repeated member is refused, since two readers could interpret it
    /// differently.
    pub(crate) fn json<T: DeserializeOwned>(&self, url: &Url) -> Result<T, OAuthError> {
        // The error's own text could reveal a token.
        serde_json::from_slice(&self.body).map_err(|error| {
            let place = format!("line {}, column {}", error.line(), error.column());
            OAuthError::malformed(url, format!("it is not the expected JSON, at {place}"))
        })
    }
}

fn unusable(error: &reqwest::Error) -> OAuthError {
    OAuthError::Key(format!("certificates cannot be used: {}", causes(error)))
}

fn forbidden(url: &Url, reason: impl ToString) -> OAuthError {
    OAuthError::Forbidden {
        url: shown(url),
        reason: reason.to_string(),
    }
}

fn no_answer(url: &Url, error: &reqwest::Error) -> OAuthError {
    let mut cause = error.source();
    while let Some(one) = cause {
        if one.is::<NotPublic>() {
            return forbidden(url, one);
        }
        cause = one.source();
    }
    OAuthError::NoAnswer {
        url: shown(url),
        reason: causes(error),
    }
}

/// The causes of an error, without its own text, which contains the URL.
fn causes(error: &dyn Error) -> String {
    let mut texts = Vec::new();
    let mut cause = error.source();
    while let Some(one) = cause {
        texts.push(one.to_string());
        cause = one.source();
    }
    if texts.is_empty() {
        "the request has failed".to_owned()
    } else {
        visible(&texts.join(": "), 300)
    }
}
