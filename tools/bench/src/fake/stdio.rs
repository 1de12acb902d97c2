//! The fake server over stdio, as fast as lines can be read and written.

use std::io::{Read as _, Write as _};

use bytes::BytesMut;

use super::rpc::{Incoming, Outcome, Rpc, acknowledgement, error_response, put_response};
use crate::era::Era;
use crate::error::{Doing, Result};

/// The most bytes of one read.
const CHUNK: usize = 64 << 10;

/// Answers every line of standard input until it ends. Requests that arrive together get their
/// answers together.
pub(crate) fn serve(era: Era, tools: usize) -> Result<()> {
    let rpc = Rpc::new(era, tools);
    let (mut input, mut output) = (std::io::stdin().lock(), std::io::stdout().lock());
    let mut received = Vec::new();
    let mut chunk = vec![0; CHUNK];
    let mut answers = BytesMut::new();
    loop {
        let count = input.read(&mut chunk).doing("reading standard input")?;
        if count == 0 {
            return Ok(());
        }
        received.extend_from_slice(chunk.get(..count).unwrap_or_default());
        let whole = memchr::memrchr(b'\n', &received).map_or(0, |end| end + 1);
        let rest = received.split_off(whole);
        received
            .split(|byte| *byte == b'\n')
            .for_each(|line| put_answer(&rpc, line, &mut answers));
        received = rest;
        output
            .write_all(&answers)
            .and_then(|()| output.flush())
            .doing("writing standard output")?;
        answers.clear();
    }
}

fn put_answer(rpc: &Rpc, line: &[u8], answers: &mut BytesMut) {
    let Ok(message) = serde_json::from_slice::<Incoming<'_>>(line) else {
        return;
    };
    let Some(id) = message.id else { return };
    match rpc.answer(&message) {
        Outcome::Nothing => return,
        // Nothing changes here, so no notification follows.
        Outcome::Subscribed => {
            answers.extend_from_slice(acknowledgement(id, &message.params).as_bytes());
        }
        Outcome::Result(result) | Outcome::Opened(result) | Outcome::Progress(_, result) => {
            put_response(answers, id.get(), &result);
        }
        Outcome::Error(code, text) => answers.extend_from_slice(&error_response(id, code, text)),
    }
    answers.extend_from_slice(b"\n");
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake::payload::Tool;

    #[test]
    fn line_is_answered_with_a_line() {
        let rpc = Rpc::new(Era::Modern, 1);
        let mut answers = BytesMut::new();
        put_answer(
            &rpc,
            br#"{"id":7,"method":"tools/call","params":{"name":"text_200"}}"#,
            &mut answers,
        );
        put_answer(&rpc, b"not json", &mut answers);
        put_answer(
            &rpc,
            br#"{"method":"notifications/cancelled"}"#,
            &mut answers,
        );
        let result = Tool::Text(200).result(Era::Modern);
        let expected = [br#"{"jsonrpc":"2.0","id":7,"result":"#, &*result, b"}\n"].concat();
        assert_eq!(answers, expected);
        answers.clear();
        let listen = r#"{"id":8,"method":"subscriptions/listen","params":{"notifications":{"toolsListChanged":true}}}"#;
        put_answer(&rpc, listen.as_bytes(), &mut answers);
        let text = String::from_utf8(answers.to_vec()).unwrap();
        assert!(
            text.contains("acknowledged")
                && text.contains(r#"subscriptionId":8}"#)
                && text.ends_with("\n"),
            "{text}"
        );
    }
}
