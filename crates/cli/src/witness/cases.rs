//! The exchanges of the perfect client with the perfect server, and the cases, which each judge one
//! part of an exchange. They are in `cases.json`, as they are sent.
//!
//! Results and objects of MCP are open: receivers must expect unknown members (2025-11-25
//! schema.ts, `[key: string]: unknown`; 2026-07-28 likewise), and `_meta` is meant to be extended
//! (basic, General fields).

use std::sync::LazyLock;

use fanlight_protocol::Era;
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

use super::comparison::braced;

/// The cursor of the second page of tools; a cursor may be any text.
pub(super) const SECOND_PAGE: &str = "page 2/+é=";
/// The method of a subscription, which has no answer while it lasts.
pub(super) const LISTEN: &str = "subscriptions/listen";
/// The only tool of the second server.
pub(super) const SECOND: &str = "second";
/// The answers of the client to the server's questions, by method.
pub(super) const ANSWERS: [(&str, &str); 2] = [
    (
        "elicitation/create",
        r#"{"action":"accept","content":{"city":"Zürich","amount":1.50},"_meta":{"example.com/answer":[1]}}"#,
    ),
    (
        "sampling/createMessage",
        r#"{"role":"assistant","content":{"type":"text","text":"yes","example":1},"model":"witness","stopReason":"endTurn"}"#,
    ),
];
/// The names of the two clients that send the same request.
pub(super) const TWINS: [&str; 2] = ["witness-client-a", "witness-client-b"];

/// A request, and the messages that the server sends for it. In the server's texts, `%params`
/// stands for the parameters as they arrived, and `%who` for the argument of that name.
#[derive(Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Exchange {
    pub(super) method: String,
    /// The tool of a call, the prompt, or the URI; else empty.
    pub(super) name: String,
    /// Further members of the parameters.
    #[serde(deserialize_with = "members")]
    pub(super) params: String,
    /// Members of `_meta`.
    #[serde(deserialize_with = "members")]
    pub(super) meta: String,
    #[serde(deserialize_with = "text")]
    pub(super) id: String,
    /// The messages before the answer, without `jsonrpc`.
    pub(super) before: Vec<Box<RawValue>>,
    /// The milliseconds before the answer.
    pub(super) wait: u64,
    /// The member `result` or `error` of the answer.
    #[serde(deserialize_with = "members")]
    pub(super) answer: String,
    /// The answer to a repeated request with `inputResponses`.
    #[serde(deserialize_with = "members")]
    pub(super) retried: String,
    /// Further members of the tool's definition.
    #[serde(deserialize_with = "members")]
    pub(super) definition: String,
}

/// The judged part of an exchange.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Look {
    /// A part of the response.
    Answer,
    /// A part of the first page of tools.
    Page,
    /// A part of the entry in the list with the method `of`.
    Entry,
    /// The parameters of the notifications with the method `of`, as an array.
    Notifications,
    /// The time at which progress arrives.
    Timely,
    /// A part of the server's first question.
    Question,
    /// A part of the parameters that the server repeats.
    Arrived,
    /// The server's own request state, as it comes back.
    State,
    /// The header field `of` at the server.
    Header,
    /// The messages with the method `of` when two clients send the same request; without a method,
    /// the answers.
    Twins,
}

/// One judged part.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Case {
    pub(super) name: String,
    /// The only era of the case; empty for both.
    #[serde(default)]
    era: String,
    /// The name of the exchange, or its method if it is no call.
    pub(super) exchange: String,
    pub(super) look: Look,
    #[serde(default)]
    pub(super) of: String,
    /// A JSON Pointer, or the expected value of a header field.
    #[serde(default)]
    pub(super) at: String,
    /// Whether the digits of numbers and the order of members count.
    #[serde(default)]
    pub(super) exactly: bool,
}

/// The content of `cases.json`.
#[derive(Default, Deserialize)]
pub(super) struct Cases {
    pub(super) exchanges: Vec<Exchange>,
    pub(super) cases: Vec<Case>,
}

/// The one list of cases; empty if the file is invalid, which a test excludes.
pub(super) static ALL: LazyLock<Cases> = LazyLock::new(|| {
    let text = include_str!("cases.json");
    serde_json::from_str(text).unwrap_or_default()
});

impl Default for Exchange {
    /// A call that is answered with a short text.
    fn default() -> Self {
        let own = String::from;
        Self {
            method: own("tools/call"),
            name: String::new(),
            params: own(r#""arguments":{}"#),
            meta: String::new(),
            id: String::new(),
            before: Vec::new(),
            wait: 0,
            answer: own(r#""result":{"content":[{"type":"text","text":"done"}]}"#),
            retried: String::new(),
            definition: own(
                r#""description":"Answers in an unusual manner.","inputSchema":{"type":"object"}"#,
            ),
        }
    }
}

impl Exchange {
    /// The key by which cases name it.
    fn key(&self) -> &str {
        match self.is_call() {
            true => &self.name,
            false => &self.method,
        }
    }

    /// True for a call of a tool.
    pub(super) fn is_call(&self) -> bool {
        self.method == "tools/call"
    }
}

impl Case {
    pub(super) fn is_of(&self, era: Era) -> bool {
        self.era.is_empty() || self.era == era.as_str()
    }
}

/// The exchange with this key.
pub(super) fn find_exchange(key: &str) -> Result<&'static Exchange, String> {
    let found = ALL.exchanges.iter().find(|it| it.key() == key);
    found.ok_or_else(|| format!("no exchange is called {key}"))
}

fn text<'de, D: Deserializer<'de>>(from: D) -> Result<String, D::Error> {
    let raw = Box::<RawValue>::deserialize(from)?;
    Ok(raw.get().to_owned())
}

/// The text of an object without its braces.
fn members<'de, D: Deserializer<'de>>(from: D) -> Result<String, D::Error> {
    Ok(braced(&text(from)?).to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_case_has_its_exchange() {
        let all: Cases = serde_json::from_str(include_str!("cases.json")).unwrap();
        assert!(all.cases.len() > 70 && all.exchanges.len() > 40);
        for case in &all.cases {
            let is_entry = matches!(case.look, Look::Entry | Look::Page);
            assert!(
                is_entry || find_exchange(&case.exchange).is_ok(),
                "{}",
                case.name
            );
        }
        assert_eq!(find_exchange("numbers").unwrap().id, "");
        assert_eq!(find_exchange("text-id").unwrap().id, r#""call 1""#);
    }
}
