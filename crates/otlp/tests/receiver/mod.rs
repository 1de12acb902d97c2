//! A tiny OTLP/HTTP receiver on loopback: answers every request and records it.

use std::convert::Infallible;
use std::sync::Arc;

use http_body_util::{BodyExt as _, Full};
use hyper::body::{Bytes, Incoming};
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

/// One request.
#[derive(Debug)]
pub(crate) struct Received {
    /// Its path.
    pub(crate) path: String,
    /// `content-type`.
    pub(crate) content_type: String,
    /// `authorization`, if there is one.
    pub(crate) authorization: Option<String>,
    /// Its body.
    pub(crate) body: Bytes,
}

/// The receiver; it ends when this is dropped.
pub(crate) struct Receiver {
    /// `http://127.0.0.1:…`
    pub(crate) endpoint: String,
    /// What it got.
    pub(crate) requests: mpsc::Receiver<Received>,
    task: JoinHandle<()>,
}

impl Receiver {
    /// Starts a receiver that answers with `status`. Requests beyond the capacity of `requests` are dropped.
    pub(crate) async fn start(status: StatusCode) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let endpoint = format!("http://{}", listener.local_addr().expect("an address"));
        let (sender, requests) = mpsc::channel(64);
        let sender = Arc::new(sender);
        let task = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let sender = Arc::clone(&sender);
                let service = service_fn(move |request| answer(request, Arc::clone(&sender), status));
                tokio::spawn(
                    hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service),
                );
            }
        });
        Self { endpoint, requests, task }
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn answer(
    request: Request<Incoming>,
    sender: Arc<mpsc::Sender<Received>>,
    status: StatusCode,
) -> Result<Response<Full<Bytes>>, Infallible> {
    let header = |name: &str| request.headers().get(name).map(|value| value.to_str().expect("text").to_owned());
    let (content_type, authorization) = (header("content-type").unwrap_or_default(), header("authorization"));
    let path = request.uri().path().to_owned();
    let body = request.into_body().collect().await.expect("a body").to_bytes();
    let _ = sender.try_send(Received { path, content_type, authorization, body });
    let mut response = Response::new(Full::new(Bytes::new()));
    *response.status_mut() = status;
    Ok(response)
}
