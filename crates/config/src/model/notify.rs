//! Webhooks that tell who waits.

use serde_json::json;

use super::hooks::HOOK_URL;
use super::values::TOKEN;
use crate::definition::Visible;
use crate::option::kind::{Maybe, Parsed, checked};
use crate::option::options;
use crate::option::several::OneOrMany;
use crate::settings::Secret;

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
