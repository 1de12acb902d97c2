//! The HTTP client for everything that Fanlight itself fetches, such as metadata, keys and tokens.
//! The size and time of answers are limited. There are no redirects, cookies or retries, and
//! [`Trust`] says which places get requests.

mod error;
mod guard;

use std::error::Error;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use fanlight_config::settings::FOLLOWS_METADATA;
use http::header::{ACCEPT, CONTENT_TYPE, InvalidHeaderValue};
use http::{HeaderMap, HeaderValue, Method, StatusCode, Uri};
use hyper_util::client::proxy::matcher::Matcher;
use reqwest::{Certificate, ClientBuilder, Response, redirect};
use serde::de::DeserializeOwned;
use url::Url;

pub use self::error::FetchError;
pub(crate) use self::error::{display_url, visible};
pub use self::guard::Trust;
pub(crate) use self::guard::is_loopback;
use self::guard::{Guard, NotPublic};

/// The time limit of a request, unless [`Requests::with_time_limit`] sets another one. There is no option:
/// people and calls cannot wait longer.
const TIMEOUT: Duration = Duration::from_secs(10);

/// The size limit of an answer. There is no option: metadata, keys and tokens have some thousand
/// bytes.
const LONGEST: usize = 256 << 10;

/// The media type of a form.
pub const FORM: HeaderValue = HeaderValue::from_static("application/x-www-form-urlencoded");

/// The media type of JSON.
pub const JSON: HeaderValue = HeaderValue::from_static("application/json");

/// A header value that is never logged.
///
/// # Errors
///
/// If a header cannot contain the text.
pub fn secret_value(text: &str) -> Result<HeaderValue, InvalidHeaderValue> {
    let mut value = HeaderValue::from_str(text)?;
    value.set_sensitive(true);
    Ok(value)
}

/// An HTTP client.
#[derive(Debug)]
pub struct Requests {
    /// Limits the places that get requests; `None` for places that only the configuration names.
    guard: Option<Arc<Guard>>,
    authorities: Vec<Certificate>,
    within: Duration,
    /// Connects directly, to checked addresses.
    direct: OnceLock<reqwest::Client>,
    /// Connects through the environment's proxy, which resolves names itself.
    proxied: OnceLock<reqwest::Client>,
    proxies: Option<Matcher>,
}

/// An answer.
#[derive(Debug)]
pub struct Answer {
    /// The status.
    pub status: StatusCode,
    /// The header fields.
    pub headers: HeaderMap,
    /// The body.
    pub body: Bytes,
}

impl Requests {
    /// Creates a client for the server of `trust`, and for places that the server names.
    ///
    /// # Errors
    ///
    /// If the certificates are not in PEM.
    pub fn new(trust: &Trust) -> Result<Self, FetchError> {
        let configured = trust.configured.iter().chain([&trust.server]);
        let pem = trust.authorities.as_deref();
        let authorities = pem.map(authorities).transpose()?.unwrap_or_default();
        Ok(Self::for_discovery(configured.cloned()).with_authorities(authorities))
    }

    /// Adds certificate authorities to the trusted ones.
    #[must_use]
    pub fn with_authorities(self, authorities: Vec<Certificate>) -> Self {
        Self {
            authorities,
            ..self
        }
    }

    /// Creates a client for configured places, and for places that their answers name.
    pub fn for_discovery(configured: impl IntoIterator<Item = Url>) -> Self {
        Self {
            guard: Some(Arc::new(Guard::new(configured))),
            proxies: Some(Matcher::from_env()),
            ..Self::for_configured_places()
        }
    }

    /// Creates a client for configured places only, which it connects to directly.
    pub fn for_configured_places() -> Self {
        Self {
            guard: None,
            authorities: Vec::new(),
            within: TIMEOUT,
            direct: OnceLock::new(),
            proxied: OnceLock::new(),
            proxies: None,
        }
    }

    /// Sets another time limit.
    #[must_use]
    pub fn with_time_limit(self, within: Duration) -> Self {
        Self { within, ..self }
    }

    /// Checks whether a URL may get requests, or be shown to a user as a link.
    ///
    /// # Errors
    ///
    /// If it may not.
    pub fn permits(&self, url: &Url) -> Result<(), FetchError> {
        let guard = self.guard.as_ref();
        guard.map_or(Ok(()), |guard| {
            guard
                .check(url)
                .map_err(|reason| FetchError::forbidden(url, reason))
        })
    }

    /// Reads a document.
    ///
    /// # Errors
    ///
    /// If there is none.
    pub async fn get(&self, url: &Url) -> Result<Answer, FetchError> {
        let answer = self
            .send(Method::GET, url, HeaderMap::new(), Bytes::new())
            .await?;
        answer.ok(url)
    }

    /// Reads a JSON document.
    ///
    /// # Errors
    ///
    /// If it cannot be read, or is something else.
    pub async fn get_json<T: DeserializeOwned>(&self, url: &Url) -> Result<T, FetchError> {
        self.get(url).await?.json(url)
    }

    /// Sends a document of this media type with further header fields.
    ///
    /// # Errors
    ///
    /// If there is no answer.
    pub async fn post(
        &self,
        url: &Url,
        media_type: HeaderValue,
        mut headers: HeaderMap,
        body: impl Into<Bytes>,
    ) -> Result<Answer, FetchError> {
        headers.insert(CONTENT_TYPE, media_type);
        self.send(Method::POST, url, headers, body.into()).await
    }

    async fn send(
        &self,
        method: Method,
        url: &Url,
        headers: HeaderMap,
        body: Bytes,
    ) -> Result<Answer, FetchError> {
        self.permits(url)?;
        let exchange = async {
            if let Some(guard) = &self.guard {
                guard
                    .check_literal(url)
                    .await
                    .map_err(|reason| FetchError::forbidden(url, reason))?;
            }
            let mut request = self.client_for(url)?.request(method, url.clone());
            if self.guard.is_some() {
                request = request.header(FOLLOWS_METADATA, "1");
            }
            let request = request.header(ACCEPT, JSON).headers(headers).body(body);
            let failed = |error: reqwest::Error| no_answer(url, &error);
            let mut response = request.send().await.map_err(failed)?;
            let body = body_of(&mut response, LONGEST).await.map_err(failed)?;
            Ok(Answer {
                status: response.status(),
                headers: std::mem::take(response.headers_mut()),
                body: body.ok_or_else(|| FetchError::TooLong {
                    url: display_url(url),
                    most: LONGEST,
                })?,
            })
        };
        match tokio::time::timeout(self.within, exchange).await {
            Ok(outcome) => outcome,
            Err(_) => Err(FetchError::Timeout {
                url: display_url(url),
                within: self.within,
            }),
        }
    }

    fn client_for(&self, url: &Url) -> Result<&reqwest::Client, FetchError> {
        let is_proxied = !is_loopback(url)
            && self.proxies.as_ref().is_some_and(|proxies| {
                let uri = url.as_str().parse::<Uri>();
                uri.is_ok_and(|uri| proxies.intercept(&uri).is_some())
            });
        let slot = if is_proxied {
            &self.proxied
        } else {
            &self.direct
        };
        if let Some(client) = slot.get() {
            return Ok(client);
        }
        let unusable = |error| FetchError::Certificates(causes(&error));
        let client = self.build(is_proxied).map_err(unusable)?;
        Ok(slot.get_or_init(|| client))
    }

    fn build(&self, is_proxied: bool) -> reqwest::Result<reqwest::Client> {
        let mut builder = builder().connect_timeout(self.within);
        if !self.authorities.is_empty() {
            builder = builder.tls_certs_merge(self.authorities.iter().cloned());
        }
        if !is_proxied {
            builder = builder.no_proxy();
            if let Some(guard) = &self.guard {
                builder = builder.dns_resolver(Arc::clone(guard));
            }
        }
        builder.build()
    }
}

impl Answer {
    /// The answer if it is a success.
    ///
    /// # Errors
    ///
    /// If it has another status than 200.
    pub fn ok(self, url: &Url) -> Result<Self, FetchError> {
        match self.status {
            StatusCode::OK => Ok(self),
            status => Err(FetchError::status(url, status)),
        }
    }

    /// The document in the body. A repeated member is refused, since two readers could interpret it
    /// differently.
    ///
    /// # Errors
    ///
    /// If it is something else.
    pub fn json<T: DeserializeOwned>(&self, url: &Url) -> Result<T, FetchError> {
        // The error's own text could reveal a token.
        serde_json::from_slice(&self.body).map_err(|error| {
            let place = format!("line {}, column {}", error.line(), error.column());
            FetchError::malformed(url, format!("it is not the expected JSON, at {place}"))
        })
    }
}

/// A builder of HTTP clients without redirects and retries.
pub fn builder() -> ClientBuilder {
    reqwest::Client::builder()
        .redirect(redirect::Policy::none())
        .retry(reqwest::retry::never())
        .tcp_nodelay(true)
}

/// The body of a response; `None` if it has more than `most` bytes.
///
/// # Errors
///
/// If the connection breaks.
pub async fn body_of(response: &mut Response, most: usize) -> reqwest::Result<Option<Bytes>> {
    let mut body = BytesMut::new();
    while let Some(chunk) = response.chunk().await? {
        if body.len() + chunk.len() > most {
            return Ok(None);
        }
        body.extend_from_slice(&chunk);
    }
    Ok(Some(body.freeze()))
}

/// The URL in a text.
///
/// # Errors
///
/// If it is none.
pub fn url(text: &str) -> Result<Url, FetchError> {
    text.parse()
        .map_err(|error: url::ParseError| FetchError::Forbidden {
            url: visible(text, 200),
            reason: error.to_string(),
        })
}

/// The certificates in a file of authorities to trust besides the system's.
///
/// # Errors
///
/// If there are none.
pub fn authorities(pem: &[u8]) -> Result<Vec<Certificate>, FetchError> {
    let found = Certificate::from_pem_bundle(pem).unwrap_or_default();
    if found.is_empty() {
        let none = "there is no certificate in PEM form".to_owned();
        return Err(FetchError::Certificates(none));
    }
    Ok(found)
}

fn no_answer(url: &Url, error: &reqwest::Error) -> FetchError {
    let mut cause = error.source();
    while let Some(one) = cause {
        if one.is::<NotPublic>() {
            return FetchError::forbidden(url, one);
        }
        cause = one.source();
    }
    FetchError::NoAnswer {
        url: display_url(url),
        reason: causes(error),
    }
}

/// The causes of an error, without its own text, which contains the URL.
fn causes(error: &dyn Error) -> String {
    let causes = std::iter::successors(error.source(), |cause| (*cause).source());
    let texts: Vec<_> = causes.map(ToString::to_string).collect();
    if texts.is_empty() {
        "the request has failed".to_owned()
    } else {
        visible(&texts.join(": "), 300)
    }
}
