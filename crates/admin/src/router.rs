//! Which answer belongs to which path, and who gets it.
//!
//! Must not know: what is in the answers.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::SystemTime;

use http::request::Parts;
use http::{Method, Request, StatusCode};
use hyper::body::Incoming;
use tokio_util::sync::CancellationToken;

use crate::api::Api;
use crate::guard::Guard;
use crate::reply::{self, Reply, refused};
use crate::settings::AdminSettings;
use crate::token::Token;
use crate::{Subject, ready, ui};

const READ: &str = "GET, HEAD";

/// The listener's answers.
pub(crate) struct Router {
    guard: Guard,
    token: Option<Token>,
    api: Api,
}

impl Router {
    pub(crate) fn new(
        subject: Subject,
        settings: &Arc<AdminSettings>,
        address: SocketAddr,
        started: SystemTime,
        shutdown: CancellationToken,
    ) -> Self {
        Self {
            guard: Guard::new(address, &settings.allowed_hosts),
            token: settings.token.as_deref().map(Token::new),
            api: Api::new(subject, settings, started, shutdown),
        }
    }

    /// Answers one request.
    pub(crate) async fn answer(&self, request: Request<Incoming>) -> Reply {
        let (head, body) = request.into_parts();
        match self.route(&head, body).await {
            Ok(reply) => reply,
            Err(refusal) => *refusal,
        }
    }

    async fn route(&self, head: &Parts, body: Incoming) -> Result<Reply, Box<Reply>> {
        self.guard.host(head)?;
        let path = head.uri.path();
        let subject = &self.api.subject;
        match path {
            "/" => reads(head).map(|()| reply::moved("/ui")),
            "/healthz" => reads(head).map(|()| reply::text(StatusCode::OK, "text/plain; charset=utf-8", "ok")),
            "/readyz" => {
                reads(head)?;
                let is_ready = ready::is_ready(&subject.gateway, &subject.draining);
                let status = if is_ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
                let report = ready::report(&subject.gateway, is_ready, self.may_see(head));
                Ok(reply::text(status, "application/json", report.into_bytes()))
            }
            "/metrics" => {
                self.admit(head)?;
                reads(head)?;
                Ok(reply::text(
                    StatusCode::OK,
                    "text/plain; version=0.0.4; charset=utf-8",
                    subject.telemetry.prometheus(),
                ))
            }
            _ => match (ui::asset(path), path.strip_prefix("/api/")) {
                // The page shows nothing of its own, so that it can ask for the token.
                (Some(asset), _) => reads(head).map(|()| asset.reply(&head.headers)),
                (None, Some(rest)) => {
                    self.admit(head)?;
                    self.guard.origin(head)?;
                    self.api.answer(rest, head, body).await
                }
                (None, None) => {
                    let message = "nothing is served here; /ui, /api/…, /metrics, /healthz and /readyz are";
                    Err(refused(StatusCode::NOT_FOUND, message))
                }
            },
        }
    }

    fn may_see(&self, head: &Parts) -> bool {
        self.token.as_ref().is_none_or(|token| token.is_in(&head.headers))
    }

    fn admit(&self, head: &Parts) -> Result<(), Box<Reply>> {
        if self.may_see(head) { Ok(()) } else { Err(reply::unauthorized()) }
    }
}

/// Only reading is served.
pub(crate) fn reads(head: &Parts) -> Result<(), Box<Reply>> {
    if matches!(head.method, Method::GET | Method::HEAD) { Ok(()) } else { Err(reply::method(READ)) }
}
