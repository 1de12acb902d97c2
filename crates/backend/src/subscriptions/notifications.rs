//! Fanlight's own notifications, and the subscription id in notifications of servers.

use fanlight_protocol::json::DEFAULT_NESTING;
use fanlight_protocol::json::{Edits, Member, ObjectBuilder, rewrite_object};
use fanlight_protocol::meta::SUBSCRIPTION_ID;
use fanlight_protocol::{Json, Message, Method, Notification};

/// The id of the `subscriptions/listen` request that a notification belongs to.
pub(crate) fn subscription_id(notification: &Notification) -> Option<Json> {
    notification.params()?.get("_meta")?.get(SUBSCRIPTION_ID)
}

/// Removes the subscription id, which belongs to one hop, and `_meta` if that becomes empty.
pub(crate) fn without_subscription_id(notification: Notification) -> Notification {
    let Some(params) = notification.params() else {
        return notification;
    };
    let Some(at) = notification.param_range("_meta") else {
        return notification;
    };
    let meta = notification.text.slice(at.clone());
    let is_id = |member: &Member| member.is(&meta, SUBSCRIPTION_ID);
    if !meta.is_object() || !meta.members().any(|member| is_id(&member)) {
        return notification;
    }
    let kept = rewrite_object(&meta, |member| !is_id(member), b"");
    let text = if kept.members().next().is_some() {
        notification.with_value(at, &kept)
    } else {
        let rest = rewrite_object(&params, |member| !member.is(&params, "_meta"), b"");
        let mut edits = Edits::new(notification.text.bytes().clone());
        match notification
            .text
            .members()
            .find(|member| member.is(&notification.text, "params"))
        {
            Some(params) => edits.replace(params.value, rest.bytes().clone()),
            None => return notification,
        }
        edits.finish_json()
    };
    match Message::parse(text.into_bytes(), DEFAULT_NESTING) {
        Ok(Message::Notification(stripped)) => stripped,
        _ => notification,
    }
}

/// A notification that a resource has changed.
pub(crate) fn resource_updated(uri: &str) -> Notification {
    let mut params = ObjectBuilder::new();
    params.string("uri", uri);
    Notification::new(Method::ResourceUpdated, Some(&params.finish()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stripped(params: &str) -> String {
        let text = format!(r#"{{ "jsonrpc":"2.0","method":"n","params":{params} ,"x":1.0}}"#);
        let Ok(Message::Notification(notification)) = Message::parse(text.into(), 8) else {
            panic!()
        };
        without_subscription_id(notification)
            .text
            .as_text()
            .to_owned()
    }

    #[test]
    fn subscription_id_is_removed_and_other_bytes_are_kept() {
        for (given, left) in [
            (
                r#"{"_meta":{"io.modelcontextprotocol/subscriptionId":7}, "uri" : "a"}"#,
                r#"{ "uri" : "a"}"#,
            ),
            (
                r#"{ "_meta":{ "a" : 1.0,"io.modelcontextprotocol/subscriptionId":"x"} , "u":"\u0041" }"#,
                r#"{ "_meta":{ "a" : 1.0} , "u":"\u0041" }"#,
            ),
            (
                r#"{"_meta":{"io.modelcontextprotocol\/subscriptionId":7}}"#,
                "{}",
            ),
            (r#"{ "_meta":{},"n":1E2}"#, r#"{ "_meta":{},"n":1E2}"#),
            (r#"{"_meta":null}"#, r#"{"_meta":null}"#),
        ] {
            let expected = format!(r#"{{ "jsonrpc":"2.0","method":"n","params":{left} ,"x":1.0}}"#);
            assert_eq!(stripped(given), expected);
        }
    }

    #[test]
    fn made_notifications_are_valid_messages() {
        let updated = resource_updated("a:\"\n");
        assert_eq!(
            updated
                .params()
                .unwrap()
                .get("uri")
                .unwrap()
                .as_str()
                .as_deref(),
            Some("a:\"\n")
        );
    }
}
