//! The HTTP client of all signals.
//!
//! The batch processor calls it on a thread without a runtime, where an asynchronous client panics.
//! So requests run on the runtime in which the client was made.

use async_trait::async_trait;
use bytes::{Bytes, BytesMut};
use http::{HeaderMap, HeaderName, HeaderValue};
use opentelemetry_http::{HttpClient, HttpError, Request, Response};
use tokio::runtime::Handle;
use url::Url;

use crate::{OtlpTarget, StartError, USER_AGENT, tls};

/// The limit of the bytes that are read of a collector's answer.
const LONGEST_ANSWER: usize = 64 * 1024;

/// An HTTP client that can be used from any thread.
#[derive(Clone)]
pub(crate) struct Client {
    http: reqwest::Client,
    /// The URL of each request, whatever the caller has: the exporter would log its query.
    endpoint: Url,
    headers: HeaderMap,
    handle: Handle,
}

impl Client {
    pub(crate) fn new(target: &OtlpTarget, handle: Handle) -> Result<Self, StartError> {
        let mut http = reqwest::Client::builder()
            .timeout(target.timeout)
            .redirect(reqwest::redirect::Policy::none())
            .user_agent(USER_AGENT);
        if target.endpoint.scheme() == "https" {
            http = tls::for_http(&target.tls, http)?;
        }
        let http = http.build().map_err(|error| StartError::Exporter {
            reason: error.to_string(),
        })?;
        let headers = headers(target)?;
        Ok(Self {
            http,
            endpoint: target.endpoint.clone(),
            headers,
            handle,
        })
    }
}

/// The configured headers of each request to the collector.
pub(crate) fn headers(target: &OtlpTarget) -> Result<HeaderMap, StartError> {
    let mut headers = HeaderMap::new();
    for (name, value) in &target.headers {
        let header = HeaderName::try_from(name)
            .ok()
            .zip(HeaderValue::try_from(value).ok());
        let (name, mut value) = header.ok_or_else(|| StartError::Header { name: name.clone() })?;
        value.set_sensitive(true);
        headers.insert(name, value);
    }
    Ok(headers)
}

#[async_trait]
impl HttpClient for Client {
    async fn send_bytes(&self, request: Request<Bytes>) -> Result<Response<Bytes>, HttpError> {
        let (parts, body) = request.into_parts();
        let request = self
            .http
            .post(self.endpoint.clone())
            .headers(parts.headers)
            .headers(self.headers.clone())
            .body(body);
        self.handle.spawn(exchange(request)).await?
    }
}

async fn exchange(request: reqwest::RequestBuilder) -> Result<Response<Bytes>, HttpError> {
    // The URL could contain credentials, and log lines name the endpoint already.
    let mut answer = request.send().await.map_err(reqwest::Error::without_url)?;
    let mut body = BytesMut::new();
    // The exporter logs the text of a refusal, which could repeat the headers.
    while answer.status().is_success()
        && let Some(chunk) = answer.chunk().await.map_err(reqwest::Error::without_url)?
    {
        if body.len() + chunk.len() > LONGEST_ANSWER {
            return Err("the collector's answer is too long".into());
        }
        body.extend_from_slice(&chunk);
    }
    let mut response = Response::new(body.freeze());
    *response.status_mut() = answer.status();
    *response.headers_mut() = answer.headers().clone();
    Ok(response)
}

fanlight_protocol::opaque!(Client);
