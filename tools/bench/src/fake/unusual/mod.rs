//! A fake server with legal but unusual messages: members outside of the specification, numbers
//! that a double cannot hold, lists in pages, notifications during a call. It shows what a gateway
//! does not pass unchanged.
//!
//! Results and objects of MCP are open: receivers must expect unknown members (2025-11-25
//! schema.ts, `[key: string]: unknown`; 2026-07-28 likewise), and `_meta` is meant to be extended
//! (basic, General fields).

mod answers;

use serde::Deserialize;
use serde_json::value::RawValue;

use crate::era::Era;

/// The answers to one message, each a whole message.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Reply {
    pub(crate) notifications: Vec<String>,
    /// The response; `None` for a notification or a response.
    pub(crate) response: Option<String>,
    /// Whether the response opens a session.
    pub(crate) opens_session: bool,
}

#[derive(Debug, Deserialize)]
struct Request<'a> {
    #[serde(borrow, default)]
    id: Option<&'a RawValue>,
    #[serde(default)]
    method: Option<String>,
    #[serde(borrow, default)]
    params: Option<&'a RawValue>,
}

/// The members of parameters that the server reads.
#[derive(Debug, Default, Deserialize)]
struct Params<'a> {
    #[serde(default)]
    name: String,
    #[serde(default)]
    cursor: Option<String>,
    #[serde(borrow, default, rename = "_meta")]
    meta: Meta<'a>,
}

#[derive(Debug, Default, Deserialize)]
struct Meta<'a> {
    #[serde(borrow, default, rename = "progressToken")]
    progress_token: Option<&'a RawValue>,
}

/// A result, or an error.
enum Answer {
    Result(String),
    Error(String),
}

pub(crate) fn answer(era: Era, message: &[u8]) -> Reply {
    let Ok(request) = serde_json::from_slice::<Request<'_>>(message) else {
        return Reply::default();
    };
    let (Some(id), Some(method)) = (request.id, request.method.as_deref()) else {
        return Reply::default();
    };
    let text = request.params.map_or("{}", RawValue::get);
    let params: Params<'_> = serde_json::from_str(text).unwrap_or_default();
    let answer = match method {
        "tools/call" => answers::call(era, &params.name, text),
        _ => answers::answer(era, method, params.cursor.as_deref()),
    };
    let notifications = match (method, params.name.as_str()) {
        ("tools/call", "progress") => params
            .meta
            .progress_token
            .map(|token| answers::progress(token.get())),
        ("tools/call", "log") => Some(answers::log()),
        _ => None,
    };
    let (member, value) = match answer {
        Answer::Result(result) => ("result", result),
        Answer::Error(error) => ("error", error),
    };
    let response = format!(
        r#"{{"jsonrpc":"2.0","id":{},"{member}":{value}}}"#,
        id.get()
    );
    Reply {
        notifications: notifications.unwrap_or_default(),
        response: Some(response),
        opens_session: era == Era::Legacy && method == "initialize",
    }
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    #[test]
    fn every_message_is_json() {
        for era in Era::ALL {
            for (method, params) in [
                ("initialize", "{}"),
                ("server/discover", "{}"),
                ("tools/list", "{}"),
                ("tools/list", r#"{"cursor":"page 2/+é="}"#),
                (
                    "tools/call",
                    r#"{"name":"progress","_meta":{"progressToken":"t"}}"#,
                ),
                ("tools/call", r#"{"name":"log"}"#),
                ("tools/call", r#"{"name":"arrived","arguments":{"a":1.0}}"#),
                ("resources/read", "{}"),
                ("prompts/get", "{}"),
                ("nothing", "{}"),
            ] {
                let request = format!(
                    r#"{{"jsonrpc":"2.0","id":"a","method":"{method}","params":{params}}}"#
                );
                let reply = answer(era, request.as_bytes());
                let response: Value = serde_json::from_str(&reply.response.unwrap()).unwrap();
                assert_eq!(response["id"], "a");
                for text in reply.notifications {
                    serde_json::from_str::<Value>(&text).unwrap();
                }
            }
        }
        assert_eq!(
            answer(
                Era::Legacy,
                br#"{"jsonrpc":"2.0","method":"notifications/x"}"#
            ),
            Reply::default()
        );
    }

    #[test]
    fn parameters_are_returned_as_they_were_written() {
        let request = br#"{"id":1,"method":"tools/call","params":{"name":"arrived","arguments":{"b":1.0,"a":2}}}"#;
        let response: Value =
            serde_json::from_str(&answer(Era::Legacy, request).response.unwrap()).unwrap();
        let text = response["result"]["content"][0]["text"].as_str().unwrap();
        assert_eq!(text, r#"{"name":"arrived","arguments":{"b":1.0,"a":2}}"#);
    }
}
