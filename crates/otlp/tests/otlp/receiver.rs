//! A tiny OTLP/HTTP receiver on loopback, which answers and records every request.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use http_body_util::{BodyExt as _, Full};
use hyper::body::{Bytes, Incoming};
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

/// A received request.
#[derive(Debug)]
pub(crate) struct Received {
    /// The path.
    pub(crate) path: String,
    /// `content-type`.
    pub(crate) content_type: String,
    /// `authorization`, if there is one.
    pub(crate) authorization: Option<String>,
    /// The body.
    pub(crate) body: Bytes,
}

/// The receiver; dropping it ends it.
pub(crate) struct Receiver {
    /// `http://127.0.0.1:…`
    pub(crate) endpoint: String,
    /// The received requests.
    pub(crate) requests: mpsc::Receiver<Received>,
    task: JoinHandle<()>,
}

impl Receiver {
    /// Starts a receiver that answers with `status`. Requests beyond the capacity of `requests` are
    /// dropped.
    pub(crate) async fn start(status: StatusCode) -> Self {
        Self::answering(move |_| (status, Bytes::new())).await
    }

    /// Starts a receiver that answers each request, by its number from 0, with a status and a body.
    pub(crate) async fn answering(
        answers: impl Fn(usize) -> (StatusCode, Bytes) + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let endpoint = format!("http://{}", listener.local_addr().expect("an address"));
        let (sender, requests) = mpsc::channel(64);
        let (sender, answers, count) = (
            Arc::new(sender),
            Arc::new(answers),
            Arc::new(AtomicUsize::new(0)),
        );
        let task = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (sender, answers, count) = (
                    Arc::clone(&sender),
                    Arc::clone(&answers),
                    Arc::clone(&count),
                );
                let service = service_fn(move |request| {
                    let given = answers(count.fetch_add(1, Ordering::Relaxed));
                    answer(request, Arc::clone(&sender), given)
                });
                tokio::spawn(
                    hyper::server::conn::http1::Builder::new()
                        .serve_connection(TokioIo::new(stream), service),
                );
            }
        });
        Self {
            endpoint,
            requests,
            task,
        }
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
    (status, text): (StatusCode, Bytes),
) -> Result<Response<Full<Bytes>>, Infallible> {
    let header = |name: &str| {
        request
            .headers()
            .get(name)
            .map(|value| value.to_str().expect("text").to_owned())
    };
    let (content_type, authorization) = (
        header("content-type").unwrap_or_default(),
        header("authorization"),
    );
    let path = request.uri().path().to_owned();
    let body = request
        .into_body()
        .collect()
        .await
        .expect("a body")
        .to_bytes();
    let _ = sender.try_send(Received {
        path,
        content_type,
        authorization,
        body,
    });
    let mut response = Response::new(Full::new(text));
    *response.status_mut() = status;
    Ok(response)
}
