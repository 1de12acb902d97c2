//! The operator's own guardrails.

use std::time::Duration;

use serde_json::json;

use super::auth::values::URI;
use super::headers::Headers;
use super::life::FOLDER;
use super::rates::RateMatch;
use super::values::{TOKEN, url_without_secrets};
use crate::definition::Visible;
use crate::option::{Flag, Maybe, Nested, OneOrMany, Parsed, checked, choice, options, time};
use crate::settings::Secret;

options! {
    /// A program that decides over HTTP whether calls of tools may continue.
    pub struct HookOptions: "hook", "in an entry of `hooks`";
    options {
        /// Its URL, which gets a `POST` with a JSON object.
        "url" => url: Secret = Secret::new(String::new()), HOOK_URL, example "http://127.0.0.1:9090/judge";
        /// The time of the question: before a `call` runs, before the client gets its `result`, or
        /// both.
        "when" => when: Vec<HookTime> = vec![HookTime::Call], OneOrMany(HOOK_TIME), example "[call, result]";
        /// The calls that it judges. Default: all. A task's result counts as a call of any
        /// tool.
        "match" => only: RateMatch = RateMatch::default(), Nested::<RateMatch>::KIND;
        /// Headers sent to it.
        "headers" => headers: Vec<(String, Secret)> = Vec::new(), Headers, example "{Authorization: \"Bearer ${HOOK_TOKEN}\"}";
        /// A file with certificates (PEM) of authorities that are trusted for it in addition to the
        /// system's; relative to the folder of this file.
        "caFile" => ca_file: Option<String> = None, Maybe(FOLDER), example "internal-ca.pem";
        /// Whether its answer may have another `result` for the client. Spans and the audit log
        /// tell.
        "mayReplace" => may_replace: bool = false, Flag;
        /// The time limit for its answer.
        "timeout" => timeout: Duration = Duration::from_millis(200), time(Duration::from_millis(1), Duration::from_secs(60));
        /// The decision if it does not answer in time, or answers wrongly.
        "onFailure" => on_failure: HookFailure = HookFailure::Deny, FAILURE;
    }
}

/// The URL of a hook, whose path and query may hold a secret.
const HOOK_URL: Parsed<Secret> = Parsed {
    visible: URI.visible,
    parse: |reader, text| (URI.parse)(reader, text).map(Secret::new),
    show: |url| match url.expose() {
        "" => json!(""),
        url => json!(url_without_secrets(url)),
    },
};

fanlight_protocol::named! {
    /// The time at which a hook is asked.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum HookTime {
        /// The hook judges the call before it runs.
        Call = "call",
        /// The hook judges the result before the client gets it.
        Result = "result",
    }
}

choice! {
    /// The decision if a hook does not answer.
    HookFailure, FAILURE {
        /// The call is denied.
        Deny = "deny",
        /// The call continues.
        Allow = "allow",
    }
}

const HOOK_TIME: Parsed<HookTime> = checked!(
    Visible::All,
    |text| text.parse().ok(),
    "is no moment",
    "write `call`, `result`, or both",
    |time: &HookTime| json!(time.as_str())
);

options! {
    /// A webhook that tells what waits for somebody.
    pub struct NotifyOptions: "notify", "in an entry of `notify`";
    options {
        /// Its URL, which gets a `POST` with a JSON object.
        "url" => url: Secret = Secret::new(String::new()), HOOK_URL, example "https://chat.example.com/hook";
        /// The key of its signatures: 16 characters or more, or `whsec_` and base64.
        "secret" => secret: Option<Secret> = None, Maybe(TOKEN), example "${NOTIFY_SECRET}";
        /// The events: a call waits for an `approval`, a `pin` holds a definition, a server is down
        /// (`serverDown`).
        "events" => events: Vec<&'static str> = EVENTS.to_vec(), OneOrMany(EVENT), example "[approval, pin]";
    }
}

const EVENTS: [&str; 3] = ["approval", "pin", "serverDown"];

const EVENT: Parsed<&'static str> = checked!(
    Visible::All,
    |text| EVENTS.into_iter().find(|event| *event == text),
    "is no event",
    "write some of `approval`, `pin` and `serverDown`",
    |event| json!(event)
);
