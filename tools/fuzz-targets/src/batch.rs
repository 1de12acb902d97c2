//! JSON-RPC batches: each message of a batch reads like the message alone.

use bytes::Bytes;
use fanlight_protocol::json::DEFAULT_NESTING;
use fanlight_protocol::message::Sender;
use fanlight_protocol::{Json, Message};

use crate::cost::{Cost, bounded};

/// The most messages of a batch.
const MOST: usize = 100;

pub(crate) fn check(data: &[u8]) {
    let text = Bytes::copy_from_slice(data);
    let read = bounded(data.len(), Cost::ELEMENTS, || {
        Message::parse_batch(text.clone(), DEFAULT_NESTING, MOST, Sender::Client)
    });
    let Ok(messages) = read else { return };
    let batch = Json::parse(text, DEFAULT_NESTING).expect("a batch is JSON");
    let elements: Vec<_> = batch
        .elements()
        .map(|element| batch.slice(element))
        .collect();
    assert!(messages.len() <= MOST);
    assert_eq!(messages.len(), elements.len());
    for (message, element) in messages.iter().zip(elements) {
        let alone = Message::parse_from_client(element.into_bytes(), DEFAULT_NESTING);
        match (message, &alone) {
            // Each notification has its own number.
            (Ok(Message::Notification(one)), Ok(Message::Notification(other))) => {
                assert_eq!((&one.method, &one.text), (&other.method, &other.text));
            }
            _ => assert_eq!(format!("{message:?}"), format!("{alone:?}")),
        }
    }
}
