//! Lines: other cuts of the bytes never change the lines, and the limit holds.

use fanlight_protocol::line::{Line, LineDecoder};

use crate::with_number;

const LIMIT: usize = 16;

pub(crate) fn check(data: &[u8]) {
    let (step, data) = with_number(data);
    let expected: Vec<&[u8]> = data.split(|byte| *byte == b'\n').collect();
    let mut decoder = LineDecoder::new(LIMIT);
    let mut lines = Vec::new();
    for chunk in data.chunks(step % 9 + 1) {
        decoder.buffer_mut().extend_from_slice(chunk);
        while let Some(line) = decoder.next_line() {
            lines.push(line);
        }
        assert!(decoder.buffer_mut().len() <= LIMIT);
    }
    lines.extend(decoder.finish());
    let mut lines = lines.into_iter();
    let (last, complete) = expected
        .split_last()
        .expect("split yields at least one part");
    for line in complete {
        let trimmed = line.strip_suffix(b"\r").unwrap_or(line);
        if line.len() > LIMIT {
            assert!(matches!(lines.next(), Some(Line::TooLong { len, .. }) if len == line.len()));
        } else if !trimmed.is_empty() {
            assert!(matches!(lines.next(), Some(Line::Whole(text)) if text == trimmed));
        }
    }
    assert_eq!(lines.next().is_some(), !last.is_empty());
}
