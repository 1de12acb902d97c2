//! Tests which texts are messages, and that replacing parts of them changes nothing else.

use super::*;

fn parse(text: &str) -> Result<Message, MessageError> {
    Message::parse(Bytes::copy_from_slice(text.as_bytes()), 64)
}

#[test]
fn message_kind_is_that_of_its_members() {
    let Ok(Message::Request(request)) =
        parse(r#"{"jsonrpc":"2.0","id":"a\u0041","method":"tools/call","params":{}}"#)
    else {
        panic!("not a request");
    };
    assert_eq!(
        (request.id.as_text(), &request.method),
        (r#""a\u0041""#, &Method::CallTool)
    );
    assert!(
        matches!(parse(r#"{"jsonrpc":"2.0","method":"x/y"}"#), Ok(Message::Notification(n)) if n.method.as_str() == "x/y")
    );
    assert!(
        matches!(parse(r#"{"jsonrpc":"2.0","id":1,"result":{}}"#), Ok(Message::Response(r)) if !r.is_error())
    );
}

#[test]
fn invalid_message_keeps_its_id_where_it_can_be_read() {
    let id_of = |text: &str| match parse(text) {
        Err(MessageError::Invalid { id, .. }) => id.map(|id| id.as_text().to_owned()),
        other => panic!("{other:?}"),
    };
    assert_eq!(id_of(r#"{"id":7,"method":"ping"}"#).as_deref(), Some("7"));
    assert_eq!(
        id_of(r#"{"jsonrpc":"2.0","id":7,"method":"a","method":"b"}"#).as_deref(),
        Some("7")
    );
    assert_eq!(
        id_of(r#"{"jsonrpc":"2.0","id":7,"id":8,"method":"b"}"#),
        None
    );
    assert_eq!(
        id_of(r#"{"jsonrpc":"2.0","id":null,"method":"ping"}"#),
        None
    );
    for (id, is_valid) in [
        ("1.0", true),
        ("-0", true),
        ("-7.00", true),
        ("1.5", false),
        ("1e0", false),
        ("1.0E1", false),
    ] {
        let parsed = parse(&format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"ping"}}"#));
        let answered =
            matches!(&parsed, Ok(Message::Request(request)) if request.id.as_text() == id);
        assert_eq!(answered, is_valid, "{id}");
    }
    assert_eq!(
        id_of(r#"{"jsonrpc":"2.0","id":1,"method":"ping","params":[1]}"#).as_deref(),
        Some("1")
    );
    assert_eq!(id_of(r#"{"jsonrpc":"2.0","id":1}"#).as_deref(), Some("1"));
    assert!(matches!(parse("[]"), Err(MessageError::Batch(_))));
    assert!(matches!(parse("{"), Err(MessageError::Syntax(_))));
}

#[test]
fn byte_order_mark_of_a_client_is_no_part_of_its_message() {
    let of_client =
        |text: &str| Message::parse_from_client(Bytes::copy_from_slice(text.as_bytes()), 64);
    let ping = r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#;
    let Ok(Message::Request(request)) = of_client(&format!("\u{feff}{ping}")) else {
        panic!("not a request");
    };
    assert_eq!(
        (request.id.as_text(), request.method.as_str()),
        ("1", "ping")
    );
    let twice = of_client(&format!("\u{feff}\u{feff}{ping}"));
    assert!(matches!(twice, Err(MessageError::Syntax(_))));
}

#[test]
fn absent_members_may_be_null_and_are_not_passed_on() {
    for (text, expected) in [
        (
            r#"{"jsonrpc":"2.0","id":1,"result":{"a":1.0},"error":null}"#,
            r#"{"jsonrpc":"2.0","id":1,"result":{"a":1.0}}"#,
        ),
        (
            r#"{"jsonrpc":"2.0","result":null,"id":1,"error":{"code":1,"message":"x"}}"#,
            r#"{"jsonrpc":"2.0","id":1,"error":{"code":1,"message":"x"}}"#,
        ),
        (
            r#"{"jsonrpc":"2.0","id":1,"method":null,"params":null,"result":{}}"#,
            r#"{"jsonrpc":"2.0","id":1,"result":{}}"#,
        ),
    ] {
        let Ok(Message::Response(response)) = parse(text) else {
            panic!("{text}")
        };
        assert_eq!(response.text.as_text(), expected);
    }
    let Ok(Message::Notification(notification)) =
        parse(r#"{"jsonrpc":"2.0","method":"x/y","params":null}"#)
    else {
        panic!()
    };
    let text = notification.text.as_text();
    assert_eq!(text, r#"{"jsonrpc":"2.0","method":"x/y"}"#);
    assert!(matches!(
        parse(r#"{"jsonrpc":"2.0","id":1,"method":"ping","params":null,"error":null}"#),
        Ok(Message::Request(Request { params: None, .. }))
    ));
    for wrong in [
        r#"{"jsonrpc":"2.0","id":1,"result":null}"#,
        r#"{"jsonrpc":"2.0","id":1,"result":null,"error":null}"#,
        r#"{"jsonrpc":"2.0","id":1,"result":{},"error":{},"params":null}"#,
    ] {
        assert!(parse(wrong).is_err(), "{wrong}");
    }
}

#[test]
fn confusable_members_of_a_clients_envelope_are_refused_under_its_id() {
    let parse =
        |text: &str| Message::parse_from_client(Bytes::copy_from_slice(text.as_bytes()), 64);
    for other in [
        "Method",
        "PARAMS",
        r"i\u0064\u0000",
        "ID",
        "\u{ff29}D",
        "Jsonrpc",
        "Result",
        "e\u{200b}rror",
    ] {
        let text = format!(r#"{{"jsonrpc":"2.0","id":7,"method":"ping","{other}":{{}}}}"#);
        match parse(&text) {
            Err(MessageError::Confusable { id, .. }) => {
                assert_eq!(id.unwrap().as_text(), "7", "{text}");
            }
            other => panic!("{text}: {other:?}"),
        }
        let sent_by_server = Message::parse(Bytes::from(text), 64);
        assert!(matches!(sent_by_server, Ok(Message::Request(_))), "{other}");
    }
    let response = parse(r#"{"jsonrpc":"2.0","id":7,"result":{},"Error":{}}"#);
    assert!(matches!(response, Err(MessageError::Confusable { .. })));
    assert!(matches!(
        parse(r#"{"jsonrpc":"2.0","id":7,"method":"ping","other":1}"#),
        Ok(Message::Request(_))
    ));
    let batch = Bytes::from_static(br#"[{"jsonrpc":"2.0","id":7,"method":"ping","Id":8}]"#);
    let messages = Message::parse_batch(batch, 64, 9, Sender::Client).unwrap();
    assert!(matches!(
        messages.as_slice(),
        [Err(MessageError::Confusable { .. })]
    ));
}

#[test]
fn batch_messages_are_independent() {
    let batch = |text: &'static str| {
        Message::parse_batch(Bytes::from_static(text.as_bytes()), 8, 3, Sender::Server)
    };
    let messages = batch(r#"[ {"jsonrpc":"2.0","method":"n"}, 7, [] ]"#).unwrap();
    assert!(matches!(
        messages.as_slice(),
        [
            Ok(Message::Notification(_)),
            Err(MessageError::Invalid { .. }),
            Err(MessageError::Batch(_))
        ]
    ));
    assert!(batch("[]").unwrap().is_empty());
    assert_eq!(batch("{}").unwrap_err(), BatchError::NoArray);
    assert!(matches!(batch("["), Err(BatchError::Syntax(_))));
    assert_eq!(batch("[1,1,1,1]").unwrap_err(), BatchError::TooLong(3));
}

#[test]
fn response_keeps_everything_but_its_id() {
    let text = r#"{ "result" : {"a":1.0} , "x":[ ], "id":7,"jsonrpc":"2.0"}"#;
    let Ok(Message::Response(response)) = parse(text) else {
        panic!("not a response")
    };
    let sent = response
        .to_message(
            &Json::string("q"),
            Bytes::from_static(b"\"resultType\":\"complete\""),
        )
        .into_bytes();
    assert_eq!(
        sent,
        r#"{ "result" : {"resultType":"complete","a":1.0} , "x":[ ], "id":"q","jsonrpc":"2.0"}"#
    );
    let other = response.with_body(&Json::literal("{\"bb\":22}"));
    assert_eq!(other.id().as_text(), "7");
    assert_eq!(other.body().as_text(), "{\"bb\":22}");
}

#[test]
fn notification_keeps_everything_but_a_replaced_parameter() {
    let text = r#"{ "params":{"uri" : "a","x":1.0},"method":"notifications/resources/updated","jsonrpc":"2.0" }"#;
    let Ok(Message::Notification(notification)) = parse(text) else {
        panic!("not a notification")
    };
    let other = notification.with_param("uri", &Json::string("longer"));
    assert_eq!(other.text.as_text(), text.replace("\"a\"", "\"longer\""));
    assert_eq!(
        other.params().unwrap().as_text(),
        r#"{"uri" : "longer","x":1.0}"#
    );
    assert_eq!(
        notification.with_param("none", &Json::null()).text,
        notification.text
    );
    let own = Notification::new(
        Method::ResourceUpdated,
        Some(&Json::literal(r#"{"uri":"b"}"#)),
    );
    assert_eq!(own.params().unwrap().as_text(), r#"{"uri":"b"}"#);
    assert_eq!(
        own.text.as_text(),
        Notification::new(Method::ResourceUpdated, own.params().as_ref())
            .text
            .as_text()
    );
}

#[test]
fn originated_response_has_correct_ranges() {
    let response = Response::from_error(&RpcError::new(-1, "no \"x\""));
    assert_eq!(
        (response.id().as_text(), response.error_code()),
        ("null", Some(-1))
    );
    assert_eq!(
        Response::from_result(&Json::empty_object())
            .to_message(&Json::literal("5"), Bytes::new())
            .into_bytes(),
        "{\"jsonrpc\":\"2.0\",\"id\":5,\"result\":{}}"
    );
}
