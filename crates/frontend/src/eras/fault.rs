//! Errors about malformed or unsupported messages, worded for their sender.

use fanlight_protocol::json::{
    AmbiguousMember, DEFAULT_NESTING, ObjectBuilder, SyntaxError, SyntaxErrorKind, Unreadable,
};
use fanlight_protocol::message::BatchError;
use fanlight_protocol::{Era, Json, MessageError, Method, RpcError, code};

/// The error for text that is not a message, and the id to answer to, if it was readable.
pub fn message_error(error: MessageError) -> (RpcError, Option<Json>) {
    match error {
        MessageError::Syntax(SyntaxError {
            kind: SyntaxErrorKind::Depth,
            ..
        }) => {
            let message = format!(
                "the message is nested more than {DEFAULT_NESTING} levels deep, the limit here"
            );
            (RpcError::new(code::INVALID_REQUEST, message), None)
        }
        MessageError::Syntax(_) => (RpcError::new(code::PARSE, error.to_string()), None),
        MessageError::Batch(_) => {
            let message =
                "only protocol version 2025-03-26 has batches: send one message at a time";
            (RpcError::new(code::INVALID_REQUEST, message), None)
        }
        MessageError::Confusable { ref id, .. } => {
            let id = id.clone();
            (RpcError::new(code::INVALID_PARAMS, error.to_string()), id)
        }
        MessageError::Invalid { ref id, .. } => {
            let id = id.clone();
            (RpcError::new(code::INVALID_REQUEST, error.to_string()), id)
        }
    }
}

/// The error for a malformed or unsupported batch.
pub(crate) fn batch_error(error: &BatchError) -> RpcError {
    match error {
        BatchError::Syntax(_) => RpcError::new(code::PARSE, error.to_string()),
        BatchError::NoArray | BatchError::TooLong(_) => {
            RpcError::new(code::INVALID_REQUEST, error.to_string())
        }
    }
}

/// The error for a member that a server could read differently than Fanlight does.
pub(crate) fn ambiguous_error(member: &AmbiguousMember, place: &str) -> RpcError {
    RpcError::new(code::INVALID_PARAMS, format!("{member} in {place}"))
}

/// The error for parameters that a rule depends on, and that programs could read differently.
pub(crate) fn unreadable_error(place: &str, why: &Unreadable) -> RpcError {
    RpcError::new(code::INVALID_PARAMS, format!("{place}: {why}"))
}

/// Whether a request may be part of a batch. `initialize` "MUST NOT" (2025-03-26 basic/lifecycle,
/// Initialization), and revisions without sessions have no batches.
pub(crate) fn check_in_batch(method: &Method, era: Era) -> Result<(), RpcError> {
    if era == Era::Legacy && *method != Method::Initialize {
        return Ok(());
    }
    let message = format!(
        "{} cannot be part of a batch: send it alone",
        shorten(method.as_str())
    );
    Err(RpcError::new(code::INVALID_REQUEST, message))
}

/// The error for a `requestState` that Fanlight did not give to this client: it could be another
/// client's.
pub(crate) fn unknown_state() -> RpcError {
    RpcError::new(
        code::INVALID_PARAMS,
        "\"requestState\" was not given to this client here: repeat the call without it",
    )
}

/// The error for a method that the client's revision does not have.
pub(crate) fn method_not_found(method: &str) -> RpcError {
    RpcError::new(
        code::METHOD_NOT_FOUND,
        format!("no such method: {}", shorten(method)),
    )
}

/// The message with `error`. It omits an id that was not readable: the id is optional in 2025-11-25
/// and 2026-07-28, and never null (schema, JSONRPCErrorResponse).
pub(crate) fn message(id: Option<&Json>, error: &RpcError) -> Json {
    ObjectBuilder::new()
        .string("jsonrpc", "2.0")
        .optional("id", id)
        .member("error", &error.to_json())
        .finish()
}

/// A client's text, shortened for an error message.
pub(crate) fn shorten(text: &str) -> String {
    const LIMIT: usize = 100;
    match text.char_indices().nth(LIMIT) {
        Some((cut, _)) => format!("{:?}…", text.get(..cut).unwrap_or_default()),
        None => format!("{text:?}"),
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use fanlight_protocol::Message;

    use super::*;

    fn fault_parts(text: impl Into<Bytes>) -> (i64, String, Option<String>) {
        let error = Message::parse(text.into(), DEFAULT_NESTING).unwrap_err();
        let (error, id) = message_error(error);
        (
            error.code,
            error.message,
            id.map(|id| id.as_text().to_owned()),
        )
    }

    #[test]
    fn each_fault_has_its_code() {
        assert_eq!(fault_parts("{").0, code::PARSE);
        assert_eq!(fault_parts("[]").0, code::INVALID_REQUEST);
        let (code, message, id) = fault_parts("[".repeat(DEFAULT_NESTING + 1));
        assert_eq!((code, id), (code::INVALID_REQUEST, None));
        assert!(message.contains("128 levels"), "{message}");
        assert_eq!(
            fault_parts(r#"{"id":3,"method":"x"}"#).2.as_deref(),
            Some("3")
        );
    }

    #[test]
    fn batches_have_their_rules() {
        assert!(check_in_batch(&Method::ListTools, Era::Legacy).is_ok());
        assert!(check_in_batch(&Method::Initialize, Era::Legacy).is_err());
        assert!(check_in_batch(&Method::ListTools, Era::Modern).is_err());
    }

    #[test]
    fn messages_have_an_id_only_if_there_is_one() {
        let error = RpcError::new(-1, "no");
        let with = message(Some(&Json::literal("1.0")), &error);
        assert_eq!(
            with.as_text(),
            r#"{"jsonrpc":"2.0","id":1.0,"error":{"code":-1,"message":"no"}}"#
        );
        assert_eq!(
            message(None, &error).as_text(),
            r#"{"jsonrpc":"2.0","error":{"code":-1,"message":"no"}}"#
        );
    }

    #[test]
    fn long_texts_are_cut_between_characters() {
        let long = "é".repeat(200);
        assert_eq!(
            shorten(&long)
                .chars()
                .filter(|character| *character == 'é')
                .count(),
            100
        );
        assert_eq!(shorten("a\nb"), r#""a\nb""#);
    }
}
