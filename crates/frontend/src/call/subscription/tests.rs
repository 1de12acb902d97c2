//! Subscription filters, notifications and the ids on them.

use bytes::Bytes;
use fanlight_protocol::Message;

use super::*;

fn notification(text: &'static str) -> Notification {
    match Message::parse(Bytes::from_static(text.as_bytes()), 64) {
        Ok(Message::Notification(notification)) => notification,
        other => panic!("{other:?}"),
    }
}

fn params(filter: &'static str) -> Json {
    ObjectBuilder::new()
        .member("notifications", &Json::literal(filter))
        .finish()
}

fn asked(filter: &'static str) -> Result<Interest, RpcError> {
    interest(Some(&params(filter)), 3)
}

#[test]
fn filter_is_read_and_acknowledged() {
    let all = r#"{"toolsListChanged":true,"promptsListChanged":false,"x/y":{ "a":1.0},"resourceSubscriptions":["a:\u0062"],"taskIds":["t"]}"#;
    let read = asked(all).unwrap();
    assert_eq!((read.lists, read.session), (Change::Tools.into(), false));
    assert_eq!(
        (read.uris.clone(), read.tasks.clone()),
        (["a:b".into()].into(), ["t".into()].into())
    );
    assert_eq!(
        acknowledged(&Json::literal(r#""\u0031""#), Some(&params(all)), &read).as_text(),
        r#"{"jsonrpc":"2.0","method":"notifications/subscriptions/acknowledged","params":{"_meta":{"io.modelcontextprotocol/subscriptionId":"\u0031"},"notifications":{"toolsListChanged":true,"resourceSubscriptions":["a:b"],"taskIds":["t"],"x/y":{ "a":1.0}}}}"#
    );
    assert!(asked("{}").unwrap().is_empty());
    for wrong in [
        "[]",
        "null",
        r#"{"toolsListChanged":1}"#,
        r#"{"resourceSubscriptions":"a"}"#,
        r#"{"resourceSubscriptions":["a",1]}"#,
        r#"{"taskIds":{}}"#,
        r#"{"taskIds":[],"taskIds":[]}"#,
    ] {
        assert_eq!(
            asked(wrong).unwrap_err().code,
            code::INVALID_PARAMS,
            "{wrong}"
        );
    }
    assert_eq!(interest(None, 3).unwrap_err().code, code::INVALID_PARAMS);
}

#[test]
fn only_requested_notifications_are_wanted() {
    let honoured =
        asked(r#"{"promptsListChanged":true,"resourceSubscriptions":["a:b"],"taskIds":["t"]}"#)
            .unwrap();
    for (text, wanted) in [
        (
            r#"{"jsonrpc":"2.0","method":"notifications/prompts/list_changed"}"#,
            true,
        ),
        (
            r#"{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}"#,
            false,
        ),
        (
            r#"{"jsonrpc":"2.0","method":"notifications/resources/updated","params":{"uri":"a:b"}}"#,
            true,
        ),
        (
            r#"{"jsonrpc":"2.0","method":"notifications/tasks","params":{"taskId":"\u0074"}}"#,
            true,
        ),
        (
            r#"{"jsonrpc":"2.0","method":"notifications/tasks","params":{"taskId":"u"}}"#,
            false,
        ),
        (
            r#"{"jsonrpc":"2.0","method":"notifications/tasks/status","params":{"taskId":"t"}}"#,
            false,
        ),
        (
            r#"{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"error"}}"#,
            false,
        ),
        (
            r#"{"jsonrpc":"2.0","method":"notifications/progress","params":{}}"#,
            false,
        ),
        (r#"{"jsonrpc":"2.0","method":"notifications/x"}"#, false),
        (r#"{"jsonrpc":"2.0","method":"x"}"#, false),
    ] {
        assert_eq!(is_wanted(&honoured, &notification(text)), wanted, "{text}");
    }
    let unknown = asked(r#"{"x/y":{}}"#).unwrap();
    for (method, wanted) in [("x", true), ("elicitation/complete", false)] {
        let text = format!(r#"{{"jsonrpc":"2.0","method":"notifications/{method}"}}"#);
        let is_wanted = is_wanted(&unknown, &notification(text.leak()));
        assert_eq!(is_wanted, wanted, "{method}");
    }
}
