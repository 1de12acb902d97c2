//! The fake server's answer to one message, over any transport.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use bytes::{BufMut as _, Bytes, BytesMut};
use serde::Deserialize;
use serde_json::value::RawValue;

use super::payload::{Tool, tool_list};
use crate::era::Era;

/// The members of a message that the server reads.
#[derive(Debug, Deserialize)]
pub(crate) struct Incoming<'a> {
    #[serde(borrow, default)]
    pub(crate) id: Option<&'a RawValue>,
    #[serde(borrow, default)]
    pub(crate) method: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    pub(crate) params: Params<'a>,
}

#[derive(Debug, Default, Deserialize)]
pub(crate) struct Params<'a> {
    #[serde(borrow, default)]
    pub(crate) name: Option<Cow<'a, str>>,
    #[serde(borrow, default, rename = "_meta")]
    pub(crate) meta: Meta<'a>,
    #[serde(default)]
    pub(crate) arguments: Option<Arguments>,
    #[serde(borrow, default)]
    pub(crate) notifications: Option<&'a RawValue>,
}

#[derive(Debug, Default, Deserialize)]
pub(crate) struct Meta<'a> {
    #[serde(borrow, default, rename = "progressToken")]
    pub(crate) progress_token: Option<&'a RawValue>,
}

/// Arguments of the tool `progress`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
pub(crate) struct Arguments {
    /// The number of notifications before the result.
    #[serde(default)]
    pub(crate) events: u32,
    /// Milliseconds between two notifications; zero sends them without a pause.
    #[serde(default)]
    pub(crate) every_ms: u64,
}

/// The answer to a message.
#[derive(Debug, PartialEq)]
pub(crate) enum Outcome {
    /// No answer, for a notification or a response.
    Nothing,
    /// The text of a result, or of an error.
    Result(Bytes),
    Error(i32, &'static str),
    /// The result of `initialize`, which opens a session.
    Opened(Bytes),
    /// Notifications, then the result.
    Progress(Arguments, Bytes),
    /// A subscription: a stream that stays open.
    Subscribed,
}

/// One fake server without a transport.
#[derive(Clone, Debug)]
pub(crate) struct Rpc {
    pub(crate) era: Era,
    list: Bytes,
    /// Results by tool, so that each is made once.
    results: Arc<Mutex<HashMap<Tool, Bytes>>>,
}

impl Rpc {
    pub(crate) fn new(era: Era, tools: usize) -> Self {
        Self {
            era,
            list: tool_list(era, tools).into(),
            results: Arc::default(),
        }
    }

    pub(crate) fn answer(&self, message: &Incoming<'_>) -> Outcome {
        let Some(method) = message.method.as_deref().filter(|_| message.id.is_some()) else {
            return Outcome::Nothing;
        };
        match (method, self.era) {
            ("tools/call", _) => self.call(&message.params),
            ("tools/list", _) => Outcome::Result(self.list.clone()),
            ("server/discover", Era::Modern) => Outcome::Result(Bytes::from_static(DISCOVERED)),
            ("subscriptions/listen", Era::Modern) => Outcome::Subscribed,
            ("initialize", Era::Legacy) => Outcome::Opened(Bytes::from_static(INITIALIZED)),
            ("ping" | "logging/setLevel", Era::Legacy) => {
                Outcome::Result(Bytes::from_static(b"{}"))
            }
            _ => Outcome::Error(-32601, "Method not found"),
        }
    }

    fn call(&self, params: &Params<'_>) -> Outcome {
        let Some(tool) = params.name.as_deref().and_then(Tool::from_name) else {
            return Outcome::Error(-32602, "Unknown tool");
        };
        let mut results = self.results.lock().unwrap_or_else(PoisonError::into_inner);
        let result = results
            .entry(tool)
            .or_insert_with(|| tool.result(self.era))
            .clone();
        match (tool, params.meta.progress_token, params.arguments) {
            (Tool::Progress, Some(_), Some(arguments)) => Outcome::Progress(arguments, result),
            _ => Outcome::Result(result),
        }
    }
}

const DISCOVERED: &[u8] = br#"{"resultType":"complete","supportedVersions":["2026-07-28"],"capabilities":{"tools":{"listChanged":true}},"ttlMs":60000,"cacheScope":"public","_meta":{"io.modelcontextprotocol/serverInfo":{"name":"fake","version":"1"}}}"#;
const INITIALIZED: &[u8] = br#"{"protocolVersion":"2025-11-25","capabilities":{"tools":{"listChanged":true},"logging":{}},"serverInfo":{"name":"fake","version":"1"}}"#;

/// The text of a response with `result`.
pub(crate) fn response(id: &RawValue, result: &[u8]) -> Bytes {
    let mut text = BytesMut::with_capacity(result.len() + 64);
    put_response(&mut text, id.get(), result);
    text.freeze()
}

pub(crate) fn put_response(text: &mut BytesMut, id: &str, result: &[u8]) {
    text.put_slice(br#"{"jsonrpc":"2.0","id":"#);
    text.put_slice(id.as_bytes());
    text.put_slice(br#","result":"#);
    text.put_slice(result);
    text.put_u8(b'}');
}

/// The notification that begins a subscription (2026-07-28 schema,
/// `SubscriptionsAcknowledgedNotification`).
pub(crate) fn acknowledgement(id: &RawValue, params: &Params<'_>) -> String {
    let wanted = params.notifications.map_or("{}", RawValue::get);
    format!(
        r#"{{"jsonrpc":"2.0","method":"notifications/subscriptions/acknowledged","params":{{"_meta":{{"io.modelcontextprotocol/subscriptionId":{}}},"notifications":{wanted}}}}}"#,
        id.get()
    )
}

pub(crate) fn error_response(id: &RawValue, code: i32, message: &str) -> Bytes {
    format!(
        r#"{{"jsonrpc":"2.0","id":{},"error":{{"code":{code},"message":"{message}"}}}}"#,
        id.get()
    )
    .into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(era: Era, text: &str) -> Outcome {
        Rpc::new(era, 3).answer(&serde_json::from_str(text).unwrap())
    }

    #[test]
    fn opening_depends_on_the_era() {
        let initialize = r#"{"id":1,"method":"initialize","params":{}}"#;
        assert!(matches!(
            answer(Era::Legacy, initialize),
            Outcome::Opened(_)
        ));
        assert!(matches!(
            answer(Era::Modern, initialize),
            Outcome::Error(-32601, _)
        ));
        let discover = r#"{"id":1,"method":"server/discover"}"#;
        assert!(matches!(answer(Era::Modern, discover), Outcome::Result(_)));
        assert!(matches!(
            answer(Era::Legacy, discover),
            Outcome::Error(-32601, _)
        ));
    }

    #[test]
    fn call_is_answered_with_the_result_of_its_tool() {
        let Outcome::Result(result) = answer(
            Era::Modern,
            r#"{"id":"a","method":"tools/call","params":{"name":"text_300"}}"#,
        ) else {
            panic!("no result")
        };
        assert_eq!(result, Tool::Text(300).result(Era::Modern));
        let unknown = r#"{"id":1,"method":"tools/call","params":{"name":"nothing"}}"#;
        assert!(matches!(
            answer(Era::Legacy, unknown),
            Outcome::Error(-32602, _)
        ));
        assert_eq!(
            answer(Era::Legacy, r#"{"method":"notifications/initialized"}"#),
            Outcome::Nothing
        );
    }

    #[test]
    fn progress_needs_a_token() {
        let with = r#"{"id":1,"method":"tools/call","params":{"name":"progress","arguments":{"events":3},"_meta":{"progressToken":7}}}"#;
        assert!(matches!(
            answer(Era::Modern, with),
            Outcome::Progress(
                Arguments {
                    events: 3,
                    every_ms: 0
                },
                _
            )
        ));
        let without = r#"{"id":1,"method":"tools/call","params":{"name":"progress","arguments":{"events":3}}}"#;
        assert!(matches!(answer(Era::Modern, without), Outcome::Result(_)));
    }

    #[test]
    fn id_is_returned_as_written() {
        let message: Incoming<'_> =
            serde_json::from_str(r#"{"id":"\u0041","method":"x"}"#).unwrap();
        assert_eq!(
            response(message.id.unwrap(), b"{}"),
            r#"{"jsonrpc":"2.0","id":"\u0041","result":{}}"#
        );
    }
}
