//! Notifications that nobody sent, and the key of one hop that is taken out of those that somebody
//! did.
//!
//! Must not know: whom they are for.

use fanlight_protocol::json::{Edits, Member, ObjectBuilder, quote, rewrite_object};
use fanlight_protocol::message::notification_text;
use fanlight_protocol::meta::SUBSCRIPTION_ID;
use fanlight_protocol::{Json, Message, Method, Notification};

/// Deep enough for everything that is written here.
const NESTING: usize = 8;

/// The `subscriptions/listen` request that a notification answers.
pub(crate) fn subscription_id(notification: &Notification) -> Option<Json> {
    notification.params()?.get("_meta")?.get(SUBSCRIPTION_ID)
}

/// The same notification without the id of the subscription on this hop, and without `_meta` if
/// nothing else is in it.
pub(crate) fn without_subscription_id(notification: Notification, nesting: usize) -> Notification {
    let Some(params) = notification.params() else { return notification };
    let Some(at) = notification.param_range("_meta") else { return notification };
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
        match notification.text.members().find(|member| member.is(&notification.text, "params")) {
            Some(params) => edits.replace(params.value, rest.bytes().clone()),
            None => return notification,
        }
        edits.finish_json()
    };
    match Message::parse(text.into_bytes(), nesting) {
        Ok(Message::Notification(stripped)) => stripped,
        _ => notification,
    }
}

/// A notification with another method and other params; its other members stay.
pub(crate) fn with(notification: &Notification, method: Method, params: &Json) -> Option<Notification> {
    let text = &notification.text;
    let mut edits = Edits::new(text.bytes().clone());
    for member in text.members() {
        if member.is(text, "method") {
            edits.replace(member.value, quote(method.as_str()));
        } else if member.is(text, "params") {
            edits.replace(member.value, params.bytes().clone());
        }
    }
    // What is put in was in a message before, within its limit.
    match Message::parse(edits.finish_json().into_bytes(), usize::MAX) {
        Ok(Message::Notification(told)) => Some(told),
        _ => None,
    }
}

/// A notification that a list has changed.
pub(crate) fn changed(method: &Method) -> Option<Notification> {
    parse(&notification_text(method.as_str(), None))
}

/// A notification that a resource has changed.
pub(crate) fn updated(uri: &str) -> Option<Notification> {
    let mut params = ObjectBuilder::new();
    params.string("uri", uri);
    parse(&notification_text(Method::ResourceUpdated.as_str(), Some(&params.finish())))
}

fn parse(text: &Json) -> Option<Notification> {
    match Message::parse(text.bytes().clone(), NESTING) {
        Ok(Message::Notification(notification)) => Some(notification),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stripped(params: &str) -> String {
        let text = format!(r#"{{ "jsonrpc":"2.0","method":"n","params":{params} ,"x":1.0}}"#);
        let Ok(Message::Notification(notification)) = Message::parse(text.into(), 8) else { panic!() };
        without_subscription_id(notification, 8).text.as_text().to_owned()
    }

    #[test]
    fn the_id_goes_and_every_other_byte_stays() {
        for (given, left) in [
            (r#"{"_meta":{"io.modelcontextprotocol/subscriptionId":7}, "uri" : "a"}"#, r#"{ "uri" : "a"}"#),
            (
                r#"{ "_meta":{ "a" : 1.0,"io.modelcontextprotocol/subscriptionId":"x"} , "u":"\u0041" }"#,
                r#"{ "_meta":{ "a" : 1.0} , "u":"\u0041" }"#,
            ),
            (r#"{"_meta":{"io.modelcontextprotocol\/subscriptionId":7}}"#, "{}"),
            (r#"{ "_meta":{},"n":1E2}"#, r#"{ "_meta":{},"n":1E2}"#),
            (r#"{"_meta":null}"#, r#"{"_meta":null}"#),
        ] {
            let expected = format!(r#"{{ "jsonrpc":"2.0","method":"n","params":{left} ,"x":1.0}}"#);
            assert_eq!(stripped(given), expected);
        }
    }

    #[test]
    fn announcements_are_messages() {
        assert!(changed(&Method::ToolsChanged).is_some());
        let updated = updated("a:\"\n").unwrap();
        assert_eq!(updated.params().unwrap().get("uri").unwrap().as_str().as_deref(), Some("a:\"\n"));
    }
}
