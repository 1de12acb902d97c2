//! The id of a message whose middle is unknown: if the whole is a message, its beginning never
//! shows another id than the whole.

use bytes::Bytes;
use fanlight_protocol::json::DEFAULT_NESTING;
use fanlight_protocol::{Message, partial};

use crate::cost::{Cost, bounded};
use crate::with_number;

pub(crate) fn check(data: &[u8]) {
    let (cut, data) = with_number(data);
    let (head, tail) = data.split_at(cut % (data.len() + 1));
    let _ = bounded(data.len(), Cost::TEXT, || partial::id(head, tail));
    let id = match Message::parse(Bytes::copy_from_slice(data), DEFAULT_NESTING) {
        Ok(Message::Request(request)) => Some(request.id),
        Ok(Message::Response(response)) => Some(response.id()),
        Ok(Message::Notification(_)) => None,
        Err(_) => return,
    };
    if let Some(found) = partial::id_in_head(head) {
        assert_eq!(Some(found), id);
    }
}
