//! Messages of clients, and the errors for texts that are no messages.

use bytes::Bytes;
use fanlight_frontend::message_fault;
use fanlight_protocol::json::DEFAULT_NESTING;
use fanlight_protocol::line::Line;
use fanlight_protocol::message::Sender;
use fanlight_protocol::{Json, Message, MessageError, RpcError, code};

/// The maximum size of a message of a client, in bytes.
pub(super) const MESSAGE: usize = 64 << 20;

/// The maximum number of messages in a batch.
const BATCH: usize = 100;

/// The error for a text that is no message, and the id of its request.
pub(super) type Malformed = Box<(Json, RpcError)>;

/// The messages of a text: one, or all of a batch.
pub(super) fn messages(text: Bytes) -> Vec<Result<Message, Malformed>> {
    match Message::parse_from_client(text, DEFAULT_NESTING) {
        Err(MessageError::Batch(batch)) => {
            match Message::parse_batch(batch, DEFAULT_NESTING, BATCH, Sender::Client) {
                Ok(all) => all.into_iter().map(checked).collect(),
                Err(error) => vec![invalid(error.to_string())],
            }
        }
        one => vec![checked(one)],
    }
}

/// The messages of a line.
pub(super) fn messages_of_line(line: Line) -> Vec<Result<Message, Malformed>> {
    match line {
        Line::Whole(text) => messages(text),
        Line::TooLong { .. } => vec![invalid(format!("more than {MESSAGE} bytes"))],
    }
}

fn invalid(message: String) -> Result<Message, Malformed> {
    let error = RpcError::new(code::INVALID_REQUEST, message);
    Err(Box::new((Json::null(), error)))
}

fn checked(message: Result<Message, MessageError>) -> Result<Message, Malformed> {
    message.map_err(|error| {
        let (error, id) = message_fault(error);
        Box::new((id.unwrap_or_default(), error))
    })
}
