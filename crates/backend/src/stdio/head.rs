//! Finding the id of a message of which only the beginning is at hand, or that is no JSON.
//!
//! Must not know: why it is wanted.

/// The integer that the outermost object of `text` has as `id`, as far as `text` goes.
pub(super) fn id_in(text: &[u8]) -> Option<i64> {
    let mut depth = 0_usize;
    let mut at = 0;
    while let Some(byte) = text.get(at) {
        match byte {
            b'{' | b'[' => depth += 1,
            b'}' | b']' => depth = depth.checked_sub(1)?,
            b'"' => {
                let end = string_end(text, at)?;
                if depth == 1
                    && text.get(at..end) == Some(b"\"id\"")
                    && let Some(value) = after_colon(text, end)
                {
                    return integer(value);
                }
                at = end;
                continue;
            }
            _ => {}
        }
        at += 1;
    }
    None
}

/// Just after the string that begins at `at` with its quote.
fn string_end(text: &[u8], at: usize) -> Option<usize> {
    let mut at = at + 1;
    loop {
        match text.get(at)? {
            b'"' => return Some(at + 1),
            b'\\' => at += 2,
            _ => at += 1,
        }
    }
}

fn after_colon(text: &[u8], at: usize) -> Option<&[u8]> {
    text.get(at..)?.trim_ascii_start().strip_prefix(b":").map(<[u8]>::trim_ascii_start)
}

/// A number that is whole: something else follows it.
fn integer(text: &[u8]) -> Option<i64> {
    let end = text.iter().position(|byte| !(byte.is_ascii_digit() || *byte == b'-'))?;
    std::str::from_utf8(text.get(..end)?).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_the_outermost_id_only() {
        for (text, id) in [
            (r#"{"jsonrpc":"2.0","id":7,"result":{"#, Some(7)),
            (r#"{ "id" : 7 ,"#, Some(7)),
            (r#"{"result":{"id":5,"a":["}\"]","#, None),
            (r#"{"result":{"id":5,"a":["}\"]"]},"id":6}"#, Some(6)),
            (r#"{"x":"\"id\":3","id":4}"#, Some(4)),
            (r#"{"x":"id","id":4}"#, Some(4)),
            (r#"{"id":"7"}"#, None),
            (r#"{"id":12"#, None),
            (r#"{"id":99999999999999999999,"#, None),
            (r#"]{"id":1}"#, None),
            ("no json", None),
            (r#"{"a\"#, None),
        ] {
            assert_eq!(id_in(text.as_bytes()), id, "{text}");
        }
    }
}
