//! `/api/content`: which calls keep their content, and times during which operators keep more.

use std::time::{Duration, SystemTime};

use axum::body::Body;
use axum::extract::State;
use axum::response::Response;
use fanlight_canonical::DEFAULT_PATH;
use fanlight_config::parse_duration;
use fanlight_protocol::Json;
use fanlight_telemetry::{ContentScope, ContentWindow};
use http::{HeaderMap, StatusCode};

use super::Answer;
use super::body::read_json;
use super::endpoints::endpoint_at;
use crate::access::About;
use crate::reply::{Refusal, answer};
use crate::values::moment;
use crate::{Admin, AdminState};

/// The longest time that can be asked for at once.
const LONGEST: Duration = Duration::from_secs(3600);

answers! {
    /// The calls whose content is kept.
    pub(crate) struct Contents {
        /// `off`, `errors` or `on`: the level where neither the server nor the endpoint has its own.
        level: &'static str,
        /// The times during which operators keep content.
        windows: Vec<Window>,
    }

    /// A time during which the content of some calls is kept.
    pub(crate) struct Window {
        /// The server of the calls; null for any.
        server: Option<String>,
        /// The endpoint of the calls; null for any.
        endpoint: Option<String>,
        until_ms: f64,
    }
}

/// Lists the times.
pub(super) async fn list(State(admin): AdminState) -> Response {
    let telemetry = &admin.subject.telemetry;
    let level = telemetry.content().unwrap_or_default().level;
    answer(&Contents {
        level: level.as_str(),
        windows: telemetry
            .content_windows()
            .into_iter()
            .map(window_view)
            .collect(),
    })
}

/// Keeps content for the time in the body.
pub(super) async fn keep(State(admin): AdminState, headers: HeaderMap, body: Body) -> Answer {
    let body = read_json(&admin, &headers, body).await?;
    let (lasts, scope) = (time(&body)?, scope(&admin, &body)?);
    let window = ContentWindow {
        scope,
        until: SystemTime::now() + lasts,
    };
    if !admin.subject.telemetry.keep_content(window.clone()) {
        let text = "the configuration has `content` for this server or endpoint, which holds";
        return Err(Refusal::new(StatusCode::CONFLICT, text));
    }
    let of = match &window.scope {
        ContentScope::All => "all calls".to_owned(),
        ContentScope::Server(name) => format!("server {name}"),
        ContentScope::Endpoint(_) => format!(
            "endpoint {}",
            member(&body, "endpoint")?.unwrap_or_default()
        ),
    };
    let about = About(format!("content of {of} for {} s", lasts.as_secs()));
    Ok(about.attach_to(answer(&window_view(window))))
}

fn time(body: &Json) -> Result<Duration, Refusal> {
    let lasts = member(body, "for")?.and_then(|text| parse_duration(&text));
    lasts.filter(|lasts| *lasts <= LONGEST).ok_or_else(|| {
        Refusal::bad_request("`for` must be a time up to `1h`, such as `10m`; `0s` ends it")
    })
}

fn scope(admin: &Admin, body: &Json) -> Result<ContentScope, Refusal> {
    let gateway = &admin.subject.gateway;
    match (member(body, "server")?, member(body, "endpoint")?) {
        (None, None) => Ok(ContentScope::All),
        (Some(server), None) if gateway.status().iter().any(|(name, _)| *name == server) => {
            Ok(ContentScope::Server(server))
        }
        (Some(_), None) => Err(Refusal::bad_request("no server has the name in `server`")),
        (None, Some(path)) => {
            let endpoint = endpoint_at(gateway, Some(&path))?;
            let path = endpoint.path().map_or("", |path| path).to_owned();
            Ok(ContentScope::Endpoint(path))
        }
        (Some(_), Some(_)) => Err(Refusal::bad_request(
            "give `server` or `endpoint`, not both",
        )),
    }
}

/// The text of a member.
fn member(body: &Json, name: &str) -> Result<Option<String>, Refusal> {
    let Some(value) = body.get(name) else {
        return Ok(None);
    };
    let text = value.as_str().map(std::borrow::Cow::into_owned);
    let text = text.ok_or_else(|| Refusal::bad_request(format!("`{name}` must be a text")));
    text.map(Some)
}

fn window_view(window: ContentWindow) -> Window {
    let (server, endpoint) = match window.scope {
        ContentScope::All => (None, None),
        ContentScope::Server(name) => (Some(name), None),
        ContentScope::Endpoint(path) if path.is_empty() => (None, Some(DEFAULT_PATH.to_owned())),
        ContentScope::Endpoint(path) => (None, Some(path)),
    };
    Window {
        server,
        endpoint,
        until_ms: moment(window.until),
    }
}
