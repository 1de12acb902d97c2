//! Envelopes: the parts of any message have correct ranges, and a response with another id is
//! otherwise unchanged.

use bytes::Bytes;
use fanlight_protocol::json::DEFAULT_NESTING;
use fanlight_protocol::{Json, Message};

use crate::cost::{Cost, bounded};

pub(crate) fn check(data: &[u8]) {
    let read = bounded(data.len(), Cost::TEXT, || {
        Message::parse(Bytes::copy_from_slice(data), DEFAULT_NESTING)
    });
    match read {
        Ok(Message::Response(response)) => {
            let sent = response
                .to_message(
                    &Json::literal("\"other\""),
                    Bytes::from_static(b"\"added\":true"),
                )
                .into_bytes();
            let Ok(Message::Response(again)) = Message::parse(sent, DEFAULT_NESTING) else {
                panic!("a response is no longer one");
            };
            assert_eq!(again.id().as_text(), "\"other\"");
            assert_eq!(again.is_error(), response.is_error());
            let body = response.with_body(&again.body());
            assert_eq!(body.id(), response.id());
        }
        Ok(Message::Notification(notification)) => {
            if let Some(range) = notification.param_range("progressToken") {
                Json::parse(notification.text.slice(range).into_bytes(), DEFAULT_NESTING)
                    .expect("a value");
            }
        }
        Ok(Message::Request(request)) => {
            assert!(request.params.is_none_or(|params| params.is_object()));
        }
        Err(_) => {}
    }
}
