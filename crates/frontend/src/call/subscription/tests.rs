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

fn asked(filter: &'static str) -> Result<Interest, RpcError> {
    let mut params = ObjectBuilder::new();
    params.member("notifications", &Json::literal(filter));
    interest(Some(&params.finish()), 3)
}

#[test]
fn filter_is_read_and_acknowledged() {
    let all = r#"{"toolsListChanged":true,"promptsListChanged":false,"x/y":{ "a":1.0},"resourceSubscriptions":["a:\u0062"],"taskIds":["t"]}"#;
    let read = asked(all).unwrap();
    assert_eq!(
        (read.tools, read.prompts, read.resources, read.session),
        (true, false, false, false)
    );
    assert_eq!(
        (read.uris.as_slice(), read.tasks.as_slice()),
        (&["a:b".into()][..], &["t".into()][..])
    );
    assert_eq!(
        acknowledged(&Json::literal(r#""\u0031""#), &read).as_text(),
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

#[test]
fn subscription_id_is_inserted_without_other_changes() {
    const ID: &str = "io.modelcontextprotocol/subscriptionId";
    let id = Json::literal(r#""\u0041""#);
    let own = format!(r#""{ID}":"\u0041""#);
    for (text, expected) in [
        (
            r#"{ "jsonrpc":"2.0","method":"n","params":{ "a":1.0 ,"_meta":{ "k" : 1E400}} }"#,
            format!(r#"{{ "jsonrpc":"2.0","method":"n","params":{{ "a":1.0 ,"_meta":{{{own}, "k" : 1E400}}}} }}"#),
        ),
        (
            r#"{"method":"n","params":{ },"jsonrpc":"2.0"}"#,
            format!(r#"{{"method":"n","params":{{"_meta":{{{own}}} }},"jsonrpc":"2.0"}}"#),
        ),
        (r#"{"jsonrpc":"2.0","method":"n"}"#, format!(r#"{{"params":{{"_meta":{{{own}}}}},"jsonrpc":"2.0","method":"n"}}"#)),
        (
            r#"{"jsonrpc":"2.0","method":"n","params":{"_meta":{"io.modelcontextprotocol/subscription\u0049d":7,"k":0}}}"#,
            r#"{"jsonrpc":"2.0","method":"n","params":{"_meta":{"io.modelcontextprotocol/subscription\u0049d":"\u0041","k":0}}}"#
                .to_owned(),
        ),
    ] {
        assert_eq!(with_id(&notification(text), &id).as_text(), expected);
    }
}

#[test]
fn subscription_id_is_removed_for_legacy_clients() {
    let text = r#"{"jsonrpc":"2.0","method":"n","params":{"_meta":{"io.modelcontextprotocol/subscriptionId":7,"k":0}}}"#;
    let without = without_id(&notification(text));
    assert_eq!(
        without.as_text(),
        r#"{"jsonrpc":"2.0","method":"n","params":{"_meta":{"k":0}}}"#
    );
    let other = r#"{ "jsonrpc":"2.0","method":"n","params":{"_meta":{"k":0} } }"#;
    assert_eq!(without_id(&notification(other)).as_text(), other);
}
