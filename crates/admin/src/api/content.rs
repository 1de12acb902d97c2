//! `/api/content`: which calls keep their content, and times during which operators keep more.

use std::time::{Duration, SystemTime};

use axum::body::Body;
use axum::extract::State;
use axum::response::Response;
use fanlight_canonical::DEFAULT_PATH;
use fanlight_config::parse_duration;
use fanlight_telemetry::{ContentScope, ContentWindow};
use http::{HeaderMap, StatusCode};
use serde::Deserialize;

use super::Answer;
use super::body::read_members;
use super::endpoints::endpoint_at;
use crate::{About, Admin, AdminState, Refusal, answer, moment};

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

/// The body of a request to keep content.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Asked {
    r#for: String,
    server: Option<String>,
    endpoint: Option<String>,
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
    let asked: Asked = read_members(&admin, &headers, body).await?;
    let (lasts, scope) = (time(&asked)?, scope(&admin, &asked)?);
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
        ContentScope::Endpoint(_) => format!("endpoint {}", asked.endpoint.unwrap_or_default()),
    };
    let about = About(format!("content of {of} for {} s", lasts.as_secs()));
    Ok(about.attach_to(answer(&window_view(window))))
}

fn time(asked: &Asked) -> Result<Duration, Refusal> {
    let lasts = parse_duration(&asked.r#for);
    lasts.filter(|lasts| *lasts <= LONGEST).ok_or_else(|| {
        Refusal::bad_request("`for` must be a time up to `1h`, such as `10m`; `0s` ends it")
    })
}

fn scope(admin: &Admin, asked: &Asked) -> Result<ContentScope, Refusal> {
    let gateway = &admin.subject.gateway;
    match (&asked.server, &asked.endpoint) {
        (None, None) => Ok(ContentScope::All),
        (Some(server), None) if gateway.status().iter().any(|(name, _)| name == server) => {
            Ok(ContentScope::Server(server.clone()))
        }
        (Some(_), None) => Err(Refusal::bad_request("no server has the name in `server`")),
        (None, Some(path)) => {
            let endpoint = endpoint_at(gateway, Some(path))?;
            let path = endpoint.path().map_or("", |path| path).to_owned();
            Ok(ContentScope::Endpoint(path))
        }
        (Some(_), Some(_)) => Err(Refusal::bad_request(
            "give `server` or `endpoint`, not both",
        )),
    }
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
