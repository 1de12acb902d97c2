//! What all links to one HTTP server share: the client with its pool, the URL and the headers
//! that the configuration sets.
//!
//! Must not know: sessions, messages.

use std::error::Error as _;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use fanlight_protocol::sse;
use reqwest::header::{self, HeaderMap, HeaderName, HeaderValue};
use reqwest::{Client, Url, redirect};
use tokio::runtime::Handle;
use tokio::sync::Semaphore;
use tokio_util::task::TaskTracker;

use crate::error::BackendError;
use crate::excerpt::excerpt;
use crate::settings::{Identity, Secret, origin_of};
use crate::throttle::Throttle;

/// Messages that nobody waits for, sent at the same time at most.
const ASIDE: usize = 64;

pub(crate) struct HttpEndpoint {
    pub(super) client: Client,
    /// Without user information.
    pub(super) url: Url,
    /// What every request carries.
    pub(super) headers: HeaderMap,
    /// Scheme, host and port: all that errors show of the URL.
    origin: String,
    /// For what a server can provoke at will.
    pub(super) warnings: Throttle,
    aside: Arc<Semaphore>,
    runtime: Handle,
}

impl HttpEndpoint {
    pub(crate) fn new(
        url: &str,
        configured: &[(String, Secret)],
        identity: &Identity,
        connect_timeout: Duration,
        concurrency: usize,
    ) -> Result<Self, BackendError> {
        let unusable = |reason: String| BackendError::Unreachable { reason };
        let origin = origin_of(url);
        let url = Url::parse(url).map_err(|error| unusable(format!("its URL is not valid: {error}")))?;
        if !matches!(url.scheme(), "http" | "https") {
            return Err(unusable(format!("its URL begins with {}:, not http: or https:", url.scheme())));
        }
        let mut builder = Client::builder()
            .redirect(redirect::Policy::none())
            .retry(reqwest::retry::never())
            .connect_timeout(connect_timeout)
            .tcp_nodelay(true)
            .pool_max_idle_per_host(concurrency);
        if is_loopback(&url) {
            builder = builder.no_proxy();
            if url.scheme() == "http" {
                // Without a proxy and redirects there is nobody to speak TLS with, and to decode the
                // system's root certificates takes milliseconds.
                builder = builder.tls_certs_only([]);
            }
        }
        let client = builder.build().map_err(|error| unusable(format!("no HTTP client: {}", innermost(&error))))?;
        // Building a request moves user information from the URL into a header.
        let template = client.post(url).build().map_err(|_| unusable("its URL is not valid".into()))?;
        let mut headers = template.headers().clone();
        headers.extend(user_agent(identity));
        for (name, value) in configured {
            set(&mut headers, name, value).map_err(unusable)?;
        }
        headers.insert(header::ACCEPT, HeaderValue::from_static("application/json, text/event-stream"));
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        debug_assert_eq!(sse::CONTENT_TYPE, "text/event-stream");
        Ok(Self {
            client,
            url: template.url().clone(),
            headers,
            origin,
            warnings: Throttle::default(),
            aside: Arc::new(Semaphore::new(ASIDE)),
            runtime: Handle::current(),
        })
    }

    /// Runs a task that nobody waits for, unless too many such tasks are running.
    pub(super) fn aside(&self, tasks: &TaskTracker, task: impl Future<Output = ()> + Send + 'static) {
        let Ok(permit) = Arc::clone(&self.aside).try_acquire_owned() else { return };
        let task = async move {
            task.await;
            drop(permit);
        };
        // The task may be begun by dropping a future, outside of the runtime.
        tasks.spawn_on(task, &self.runtime);
    }

    /// Why there is no response. Says nothing of the URL but its origin.
    pub(super) fn failure(&self, error: &reqwest::Error) -> BackendError {
        if error.is_connect() || error.is_builder() {
            let reason = format!("cannot connect to {}: {}", self.origin, innermost(error));
            return BackendError::Unreachable { reason };
        }
        tracing::debug!(origin = self.origin, reason = innermost(error), "exchange failed");
        BackendError::ClosedEarly
    }
}

fn user_agent(identity: &Identity) -> Option<(HeaderName, HeaderValue)> {
    let value = format!("{}/{}", identity.name, identity.version);
    Some((header::USER_AGENT, HeaderValue::from_str(&value).ok()?))
}

/// Sets a configured header, unless it is one of the protocol's or of HTTP's own.
fn set(headers: &mut HeaderMap, name: &str, value: &Secret) -> Result<(), String> {
    let shown = excerpt(name.as_bytes(), 64);
    let name: HeaderName = name.parse().map_err(|_| format!("the header name {shown:?} is not valid"))?;
    let mut value =
        HeaderValue::from_str(value.expose()).map_err(|_| format!("the value of the header {name} is not valid"))?;
    value.set_sensitive(true);
    if is_ours(&name) {
        tracing::warn!(header = %name, "configured header ignored: the transport sets it");
        return Ok(());
    }
    headers.insert(name, value);
    Ok(())
}

fn is_ours(name: &HeaderName) -> bool {
    const OURS: [HeaderName; 6] = [
        header::ACCEPT,
        header::CONTENT_TYPE,
        header::CONTENT_LENGTH,
        header::CONNECTION,
        header::TRANSFER_ENCODING,
        header::UPGRADE,
    ];
    OURS.contains(name) || name.as_str().starts_with("mcp-")
}

fn is_loopback(url: &Url) -> bool {
    let host = url.host_str().unwrap_or_default();
    let address = host.trim_start_matches('[').trim_end_matches(']');
    host == "localhost" || address.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback())
}

/// The last of an error's causes, which says what happened; those before it can hold the URL.
fn innermost(error: &reqwest::Error) -> String {
    let mut cause = error.source();
    let mut innermost = None;
    while let Some(next) = cause {
        innermost = Some(next);
        cause = next.source();
    }
    innermost.map_or_else(|| "unknown reason".into(), |cause| excerpt(cause.to_string().as_bytes(), 200))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn endpoint(url: &str, headers: &[(&str, &str)]) -> Result<HttpEndpoint, BackendError> {
        let headers: Vec<_> = headers.iter().map(|(name, value)| ((*name).to_owned(), Secret::new(*value))).collect();
        let identity = Identity { name: "fanlight".into(), version: "1".into() };
        HttpEndpoint::new(url, &headers, &identity, Duration::from_secs(1), 8)
    }

    #[tokio::test]
    async fn configuration_sets_headers_but_not_those_of_the_protocol() {
        let configured = [("Authorization", "Bearer t"), ("Mcp-Session-Id", "x"), ("accept", "*/*"), ("X-A", "1")];
        let endpoint = endpoint("http://me:pw@127.0.0.1:1/mcp", &configured).unwrap();
        assert_eq!(endpoint.url.as_str(), "http://127.0.0.1:1/mcp");
        assert_eq!(endpoint.headers["authorization"], "Bearer t");
        assert_eq!(endpoint.headers["accept"], "application/json, text/event-stream");
        assert_eq!(endpoint.headers["x-a"], "1");
        assert_eq!(endpoint.headers["user-agent"], "fanlight/1");
        assert!(!endpoint.headers.contains_key("mcp-session-id"));
    }

    #[tokio::test]
    async fn user_information_of_the_url_becomes_a_header() {
        let endpoint = endpoint("http://me:pw@127.0.0.1:1/mcp", &[]).unwrap();
        assert_eq!(endpoint.headers["authorization"], "Basic bWU6cHc=");
    }

    #[tokio::test]
    async fn unusable_settings_are_named_without_secrets() {
        for (url, header) in [("ftp://a/s3cret", None), ("s3cret", None), ("http://a", Some(("x", "s3cret\n")))] {
            let error = endpoint(url, header.as_slice()).err().unwrap().to_string();
            assert!(!error.contains("s3cret"), "{error}");
        }
    }

    #[test]
    fn knows_loopback() {
        for (url, loopback) in
            [("http://localhost:1", true), ("http://127.9.9.9", true), ("http://[::1]:2", true), ("http://a.b", false)]
        {
            assert_eq!(is_loopback(&Url::parse(url).unwrap()), loopback, "{url}");
        }
    }
}
