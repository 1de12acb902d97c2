//! Webhooks that tell who waits: for approvals, for held definitions, for servers that are down.
//!
//! Signatures and headers follow Standard Webhooks 1.0: HMAC-SHA256 over the id, the time and the
//! body, separated by dots.

use std::sync::Arc;
use std::time::Duration;

use aws_lc_rs::hmac;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use fanlight_canonical::BackendState;
use fanlight_config::{Config, NotifyOptions, Secret, origin_of, written_moment};
use fanlight_fair::limit;
use fanlight_gateway::Gateway;
use fanlight_grants::fetch::{self, FetchError, JSON, Requests};
use fanlight_protocol::{ObjectBuilder, epoch, sha256_hex};
use fanlight_record::{AuditLog, Notice};
use http::{HeaderMap, HeaderName, HeaderValue};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::sleep;
use tracing::warn;

/// The number of notices that wait for one webhook.
const QUEUE: usize = 64;
/// The number of attempts for one notice. Each pause is four times the one before.
const ATTEMPTS: u32 = 5;
/// The pause after the first failed attempt.
const PAUSE: Duration = Duration::from_secs(1);
/// The interval between two looks at the servers. One that is down at two of them is down.
const LOOK: Duration = Duration::from_secs(15);

/// The running webhooks. Dropping this ends them.
#[derive(Debug)]
pub struct Notifier(#[expect(dead_code, reason = "ends its tasks when it is dropped")] JoinSet<()>);

impl Notifier {
    /// Starts the configured webhooks, instead of those that `log` had.
    pub fn start(config: &Config, log: &Arc<AuditLog>, gateway: &Arc<Gateway>) -> Self {
        let mut tasks = JoinSet::new();
        let mut receivers = Vec::new();
        for options in &config.notify {
            let (receiver, notices) = mpsc::channel(QUEUE);
            let page = config.admin.public_url.clone();
            tasks.spawn(deliver(options.clone(), page, notices));
            receivers.push(receiver);
        }
        log.notify(receivers);
        let is_about_servers = |it: &NotifyOptions| it.events.contains(&"serverDown");
        if config.notify.iter().any(is_about_servers) {
            tasks.spawn(look_at_servers(Arc::clone(log), Arc::clone(gateway)));
        }
        Self(tasks)
    }
}

/// Tells of each server that is down, once until it is usable again.
async fn look_at_servers(log: Arc<AuditLog>, gateway: Arc<Gateway>) {
    let (mut before, mut told): (Vec<String>, Vec<String>) = Default::default();
    loop {
        sleep(limit("notifyLook", LOOK)).await;
        let is_down = |state: &BackendState| {
            matches!(
                state,
                BackendState::Down { .. } | BackendState::Failed { .. }
            )
        };
        let servers = gateway.status().into_iter();
        let down: Vec<String> = (servers.filter(|(_, status)| is_down(&status.state)))
            .map(|(name, _)| name)
            .collect();
        told.retain(|name| down.contains(name));
        for name in down.iter().filter(|name| before.contains(name)) {
            if !told.contains(name) {
                log.tell("serverDown", [("server", name.as_str())]);
                told.push(name.clone());
            }
        }
        before = down;
    }
}

/// Sends notices to a webhook, one after the other.
async fn deliver(
    options: NotifyOptions,
    page: Option<String>,
    mut notices: mpsc::Receiver<Notice>,
) {
    // Nothing is sent without a signature.
    let Some(secret) = options.secret.as_ref().map(Secret::expose) else {
        return;
    };
    let decoded = secret
        .strip_prefix("whsec_")
        .map(|key| STANDARD.decode(key));
    let key = decoded.and_then(Result::ok);
    let key = key.unwrap_or_else(|| secret.as_bytes().to_vec());
    let key = hmac::Key::new(hmac::HMAC_SHA256, &key);
    let requests = Requests::for_configured_places();
    while let Some(notice) = notices.recv().await {
        if !options.events.contains(&notice.event) {
            continue;
        }
        let body = body_of(&notice, page.as_deref());
        let mut pause = limit("notifyPause", PAUSE);
        for attempt in 1..=ATTEMPTS {
            let Err(problem) = send(&requests, options.url.expose(), &key, &body).await else {
                break;
            };
            if attempt == ATTEMPTS {
                let url = origin_of(options.url.expose());
                warn!(url, event = notice.event, %problem, "a webhook of `notify` was not reached");
            } else {
                sleep(pause).await;
                pause *= 4;
            }
        }
    }
}

/// The text that a webhook gets.
fn body_of(notice: &Notice, page: Option<&str>) -> String {
    let mut data = ObjectBuilder::new();
    for (name, text) in &notice.data {
        data.string(name, text);
    }
    if let Some(page) = page {
        let view = match notice.event {
            "approval" => "approvals",
            "pin" => "pins",
            _ => "servers",
        };
        data.string("link", &format!("{page}/ui#/{view}"));
    }
    let mut body = ObjectBuilder::new();
    body.string("type", notice.event)
        .string("timestamp", &written_moment(notice.at))
        .member("data", &data.finish());
    body.finish().as_text().to_owned()
}

/// Sends a notice once. Its id is the same at each attempt.
async fn send(
    requests: &Requests,
    url: &str,
    key: &hmac::Key,
    body: &str,
) -> Result<(), FetchError> {
    let url = fetch::url(url)?;
    let now = epoch::seconds().to_string();
    let headers = signed(key, &now, body);
    let answer = requests.post(&url, JSON, headers, body.to_owned()).await?;
    if answer.status.is_success() {
        return Ok(());
    }
    answer.ok(&url).map(drop)
}

/// The headers with the id, the time and the signature of a body.
fn signed(key: &hmac::Key, now: &str, body: &str) -> HeaderMap {
    let mut id = sha256_hex(body);
    id.truncate(32);
    let signature = hmac::sign(key, format!("{id}.{now}.{body}").as_bytes());
    let signature = format!("v1,{}", STANDARD.encode(signature.as_ref()));
    let named = [
        ("webhook-id", id.as_str()),
        ("webhook-timestamp", now),
        ("webhook-signature", &signature),
    ];
    let header = |(name, value)| {
        Some((
            HeaderName::from_static(name),
            HeaderValue::from_str(value).ok()?,
        ))
    };
    named.into_iter().filter_map(header).collect()
}

#[cfg(test)]
mod tests {
    use std::time::UNIX_EPOCH;

    use super::*;

    #[test]
    fn signature_is_that_of_standard_webhooks() {
        let key = hmac::Key::new(hmac::HMAC_SHA256, b"0123456789abcdef");
        let headers = signed(&key, "1700000000", "{}");
        let id = headers["webhook-id"].to_str().unwrap();
        assert_eq!(id, "44136fa355b3678a1146ad16f7e8649e");
        assert_eq!(headers["webhook-timestamp"], "1700000000");
        // Made with another implementation of HMAC.
        let made = "v1,YqszUAmnDUwgNz4rwmZ1EeMuIJm3OlBvUU/9fQ9ra5s=";
        assert_eq!(headers["webhook-signature"], made);
    }

    #[test]
    fn body_has_a_link_only_to_a_configured_page() {
        let notice = Notice {
            event: "approval",
            at: UNIX_EPOCH,
            data: vec![("server", "git".to_owned()), ("tool", "push".to_owned())],
        };
        let start = r#"{"type":"approval","timestamp":"1970-01-01T00:00:00Z","data":{"server":"git","tool":"push""#;
        assert_eq!(body_of(&notice, None), format!("{start}}}}}"));
        let link = r#","link":"https://ops.example/gate/ui#/approvals"}}"#;
        let page = Some("https://ops.example/gate");
        assert_eq!(body_of(&notice, page), format!("{start}{link}"));
    }
}
