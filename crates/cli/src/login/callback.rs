//! The redirect target of `fanlight login`: an address of this machine (RFC 8252, 7.3), open until
//! the browser brings the answer to the sign-in.

use std::convert::Infallible;
use std::time::Duration;

use bytes::Bytes;
use fanlight_grants::Begun;
use fanlight_grants::oauth::CallbackParameters;
use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use http::header::{CONNECTION, CONTENT_SECURITY_POLICY, CONTENT_TYPE, HOST};
use http::{HeaderValue, Request, Response, StatusCode};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use tokio::net::{TcpListener, TcpStream};
use tokio::select;
use tokio::time::timeout;
use url::Url;

use crate::failure::{Result, interruptible};

const PATH: &str = "/oauth/callback";
/// The time limit for the user.
const LONGEST: Duration = Duration::from_secs(600);
/// The time limit of a connection, which has one small request.
const LONGEST_REQUEST: Duration = Duration::from_secs(5);
/// The most connections at a time. Browsers open some that they may never use.
const CONNECTIONS: usize = 64;

/// A listener for one answer.
pub(super) struct CallbackListener {
    listener: TcpListener,
    address: Url,
}

impl CallbackListener {
    pub(super) async fn open() -> Result<Self> {
        let cannot = |error: std::io::Error| failure!("cannot listen for the browser: {error}");
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.map_err(cannot)?;
        let address = listener.local_addr().map_err(cannot)?;
        let address = Url::parse(&format!("http://{address}{PATH}"));
        Ok(Self {
            listener,
            address: address?,
        })
    }

    /// The redirect URI that issuers share.
    pub(super) fn address(&self) -> &Url {
        &self.address
    }

    /// Waits for the answer to a sign-in. Requests from other programs and pages change nothing.
    pub(super) async fn wait(self, begun: &Begun) -> Result<CallbackParameters> {
        let found = Mutex::new(None);
        let answered = async {
            let mut open = FuturesUnordered::new();
            loop {
                select! {
                    accepted = self.listener.accept(), if open.len() < CONNECTIONS => {
                        let stream = accepted.map(|(stream, _)| self.serve(stream, begun, &found));
                        open.extend(stream);
                    }
                    Some(()) = open.next() => {
                        if let Some(parameters) = found.lock().take() {
                            return Ok(parameters);
                        }
                    }
                }
            }
        };
        let late = || failure!("no sign-in within ten minutes");
        interruptible(async {
            timeout(LONGEST, answered)
                .await
                .unwrap_or_else(|_| Err(late()))
        })
        .await
    }

    async fn serve(
        &self,
        stream: TcpStream,
        begun: &Begun,
        found: &Mutex<Option<CallbackParameters>>,
    ) {
        let service = service_fn(|request| {
            let answer = self.answer(&request, begun, found);
            async move { Ok::<_, Infallible>(answer) }
        });
        let served = http1::Builder::new()
            .keep_alive(false)
            .serve_connection(TokioIo::new(stream), service);
        let _ = timeout(LONGEST_REQUEST, served).await;
    }

    fn answer(
        &self,
        request: &Request<Incoming>,
        begun: &Begun,
        found: &Mutex<Option<CallbackParameters>>,
    ) -> Response<Full<Bytes>> {
        let named = request
            .headers()
            .get(HOST)
            .and_then(|host| host.to_str().ok());
        let is_here = named
            == self
                .address
                .as_str()
                .strip_prefix("http://")
                .and_then(|rest| rest.split('/').next());
        let parameters = CallbackParameters::from_query(request.uri().query().unwrap_or_default());
        let answer = parameters
            .filter(|parameters| is_here && begun.is_for(request.uri().path(), parameters));
        let (status, text) = match answer {
            Some(parameters) => {
                *found.lock() = Some(parameters);
                (
                    StatusCode::OK,
                    "Go back to the terminal to see the result. You can close this page.",
                )
            }
            None => (StatusCode::NOT_FOUND, "There is nothing here."),
        };
        let html = format!(
            "<!doctype html>\n<html lang=\"en\">\n<title>Fanlight</title>\n<p>{text}</p>\n</html>\n"
        );
        let mut response = Response::new(Full::new(Bytes::from(html)));
        *response.status_mut() = status;
        let headers = response.headers_mut();
        headers.insert(
            CONTENT_TYPE,
            HeaderValue::from_static("text/html; charset=utf-8"),
        );
        headers.insert(
            CONTENT_SECURITY_POLICY,
            HeaderValue::from_static("default-src 'none'; frame-ancestors 'none'"),
        );
        headers.insert(CONNECTION, HeaderValue::from_static("close"));
        response
    }
}
