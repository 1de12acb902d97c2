//! The JSON API, as docs/api.md has it.
//!
//! Must not know: HTTP connections, who may ask.

mod asked;
mod body;
mod call;
mod catalogue;
mod events;
mod overview;
mod sessions;
mod traces;

use std::borrow::Cow;
use std::sync::Arc;
use std::time::SystemTime;

use http::request::Parts;
use http::{Method, StatusCode};
use hyper::body::Incoming;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

use crate::Subject;
use crate::guard::Guard;
use crate::reply::{self, Reply, refused};
use crate::router::reads;
use crate::settings::AdminSettings;

/// What answers below `/api/`.
pub(crate) struct Api {
    pub(crate) subject: Arc<Subject>,
    settings: Arc<AdminSettings>,
    latest: Arc<overview::Latest>,
    followers: Arc<Semaphore>,
    shutdown: CancellationToken,
}

impl Api {
    pub(crate) fn new(
        subject: Subject,
        settings: &Arc<AdminSettings>,
        started: SystemTime,
        shutdown: CancellationToken,
    ) -> Self {
        let subject = Arc::new(subject);
        Self {
            latest: Arc::new(overview::Latest::new(Arc::clone(&subject), started)),
            subject,
            followers: Arc::new(Semaphore::new(settings.max_followers.clamp(1, Semaphore::MAX_PERMITS))),
            settings: Arc::clone(settings),
            shutdown,
        }
    }

    /// Answers a request for what is at `path` below `/api/`.
    pub(crate) async fn answer(&self, path: &str, head: &Parts, body: Incoming) -> Result<Reply, Box<Reply>> {
        if path == "call" {
            if head.method != Method::POST {
                return Err(reply::method("POST"));
            }
            Guard::json_body(&head.headers)?;
            let text = body::read(body, self.settings.max_body, self.settings.body_timeout).await?;
            return call::answer(&self.subject, text, self.settings.nesting).await.map(reply::json);
        }
        reads(head)?;
        let query = Query(head.uri.query().unwrap_or_default());
        match path {
            "overview" => Ok(reply::json(self.latest.with_uptime())),
            "traces" => traces::list(&self.subject, &query).map(reply::json),
            "catalogue" => catalogue::answer(&self.subject.gateway, &query).await.map(reply::json),
            "sessions" => sessions::answer(self.subject.clients.seen(), &query).map(reply::json),
            "config" => Ok(reply::json(self.subject.config.clone())),
            "events" => self.events(),
            _ => match path.strip_prefix("traces/") {
                Some(id) => traces::one(&self.subject, id).map(reply::json),
                None => Err(refused(StatusCode::NOT_FOUND, "no such part of the API; docs/api.md lists them")),
            },
        }
    }

    fn events(&self) -> Result<Reply, Box<Reply>> {
        let Ok(slot) = Arc::clone(&self.followers).try_acquire_owned() else {
            let message = format!(
                "{} pages and programs follow the events already, the limit here (limits.adminFollowers)",
                self.settings.max_followers
            );
            return Err(refused(StatusCode::SERVICE_UNAVAILABLE, &message));
        };
        let ring = self.subject.telemetry.ring().cloned();
        let follower = events::Follower::new(
            ring,
            Arc::clone(&self.latest),
            self.settings.keep_alive,
            self.shutdown.clone(),
            slot,
        );
        Ok(reply::events(follower.stream()))
    }
}

/// What stands behind the `?`.
pub(crate) struct Query<'a>(&'a str);

impl Query<'_> {
    /// The first value of this name that is not empty.
    pub(crate) fn get(&self, name: &str) -> Option<Cow<'_, str>> {
        let mut pairs = url::form_urlencoded::parse(self.0.as_bytes());
        pairs.find(|(key, value)| key == name && !value.is_empty()).map(|(_, value)| value)
    }

    /// The same as a number within limits.
    pub(crate) fn number(&self, name: &str, default: usize, most: usize) -> Result<usize, Box<Reply>> {
        let Some(text) = self.get(name) else { return Ok(default) };
        match text.parse::<usize>() {
            Ok(number) if number > 0 => Ok(number.min(most)),
            _ => Err(refused(StatusCode::BAD_REQUEST, &format!("`{name}` must be a number from 1 to {most}"))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queries_are_read_as_forms_are() {
        let query = Query("text=a+b%26c&limit=7&tool=&error=true");
        assert_eq!(query.get("text").unwrap(), "a b&c");
        assert!(query.get("tool").is_none() && query.get("backend").is_none());
        assert_eq!(query.number("limit", 100, 500).unwrap(), 7);
        assert_eq!(query.number("other", 100, 500).unwrap(), 100);
        assert_eq!(Query("limit=9999").number("limit", 100, 500).unwrap(), 500);
        assert!(Query("limit=0").number("limit", 100, 500).is_err());
        assert!(Query("limit=x").number("limit", 100, 500).is_err());
    }
}
