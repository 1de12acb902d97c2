//! Finds the id of a message of which only the beginning and the end are available, because it is
//! too long or not JSON.

use bytes::Bytes;

use crate::json::{Json, Kind};

/// The id of a message that begins with `head` and ends with `tail`, if either contains it. Some
/// senders write it first, others last.
pub fn id(head: &[u8], tail: &[u8]) -> Option<Json> {
    id_in_head(head).or_else(|| id_in_tail(tail))
}

/// The member `id` of the object that begins with `head`, if its value is complete there and is a
/// string or an integer.
pub fn id_in_head(head: &[u8]) -> Option<Json> {
    let mut depth = 0_usize;
    let mut at = 0;
    // Set if the next string is a key of the outermost object.
    let mut key = false;
    while let Some(byte) = head.get(at) {
        match byte {
            b'"' => {
                let end = string_end(head, at)?;
                if std::mem::take(&mut key) && is_id(head.get(at..end)?) {
                    return value(head, end);
                }
                at = end;
                continue;
            }
            b'{' | b'[' => {
                depth += 1;
                key = depth == 1 && *byte == b'{';
            }
            b'}' | b']' => depth = depth.checked_sub(1)?,
            b',' => key = depth == 1,
            _ => {}
        }
        at += 1;
    }
    None
}

/// The offset after the string that begins at `start`.
fn string_end(head: &[u8], start: usize) -> Option<usize> {
    let mut at = start + 1;
    loop {
        match head.get(at)? {
            b'"' => return Some(at + 1),
            b'\\' => at += 2,
            _ => at += 1,
        }
    }
}

fn is_id(quoted: &[u8]) -> bool {
    let key = Json::parse(Bytes::copy_from_slice(quoted), 1).ok();
    key.and_then(|key| key.as_str().map(|key| key == "id")) == Some(true)
}

/// The member `id`, if it is the last one of the object that ends with `tail`. Only the last member
/// of the outermost object is followed by nothing but a brace.
fn id_in_tail(tail: &[u8]) -> Option<Json> {
    const KEY: &[u8] = b"\"id\"";
    let inner = tail.trim_ascii_end().strip_suffix(b"}")?;
    let at = inner.windows(KEY.len()).rposition(|window| window == KEY)?;
    let value = inner
        .get(at + KEY.len()..)?
        .trim_ascii_start()
        .strip_prefix(b":")?;
    valid_id(value)
}

/// The value after a key that ends at `key_end`, if the text after the value shows its end.
fn value(head: &[u8], key_end: usize) -> Option<Json> {
    let rest = head.get(key_end..)?;
    let start = key_end + 1 + rest.iter().position(|byte| *byte == b':')?;
    let start = start
        + head
            .get(start..)?
            .iter()
            .position(|byte| !byte.is_ascii_whitespace())?;
    let end = if head.get(start) == Some(&b'"') {
        string_end(head, start)?
    } else {
        start
            + head
                .get(start..)?
                .iter()
                .position(|byte| matches!(byte, b',' | b'}') || byte.is_ascii_whitespace())?
    };
    valid_id(head.get(start..end)?)
}

fn valid_id(text: &[u8]) -> Option<Json> {
    let id = Json::parse(Bytes::copy_from_slice(text), 1).ok()?;
    (id.kind() == Kind::String || id.is_integer()).then_some(id)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn id_text(id: Option<Json>) -> Option<String> {
        id.map(|id| id.as_text().to_owned())
    }

    fn id(head: &str) -> Option<String> {
        id_text(id_in_head(head.as_bytes()))
    }

    #[test]
    fn id_in_the_tail_is_found() {
        let last = |tail: &str| id_text(id_in_tail(tail.as_bytes()));
        assert_eq!(
            last(r#"xxx"}]},"jsonrpc":"2.0","id":7}"#).as_deref(),
            Some("7")
        );
        assert_eq!(
            last(r#""}, "id" : "a\"b" } "#).as_deref(),
            Some(r#""a\"b""#)
        );
        for none in [
            r#"{"id":7},"x":1}"#,
            r#"\"id\":7"}"#,
            r#"{"a":{"id":7}}"#,
            r#""id":7"#,
            "",
            r#""id":null}"#,
        ] {
            assert_eq!(last(none), None, "{none}");
        }
        assert_eq!(
            id_text(super::id(br#"{"jsonrpc":"2.0","id":1,"re"#, br#""id":2}}"#)).as_deref(),
            Some("1")
        );
    }

    #[test]
    fn id_in_the_head_is_that_of_the_outermost_object() {
        assert_eq!(
            id(r#"{"jsonrpc":"2.0","id": 7 ,"method":"x","params":{"a":"aaaa"#).as_deref(),
            Some("7")
        );
        assert_eq!(
            id(r#" { "i\u0064" : "a\"b" , "params":"#).as_deref(),
            Some(r#""a\"b""#)
        );
        assert_eq!(
            id(r#"{"params":{"id":1,"x":[{"id":2}]},"id":3,"#).as_deref(),
            Some("3")
        );
        assert_eq!(
            id(r#"{"method":"id","x":"\"id\":9","id":-4}"#).as_deref(),
            Some("-4")
        );
        for none in [
            "",
            "{",
            r#"{"id"#,
            r#"{"id":"#,
            r#"{"id":12"#,
            r#"{"id":"ab"#,
            r#"{"id":null,"#,
            r#"{"id":1.5,"#,
            r#"{"id":[1],"#,
            r#"["id",1,"#,
            r#"{"params":{"id":1,"#,
            "}}}",
        ] {
            assert_eq!(id(none), None, "{none}");
        }
    }

    proptest! {
        #[test]
        fn id_in_head_never_panics(head in "[\\[\\]{}\":,idx\\\\ 0-9]{0,40}") {
            let _ = id_in_head(head.as_bytes());
        }

        #[test]
        fn id_in_head_does_not_depend_on_what_follows(id in 0u32.., tail in "[ -~]{0,20}") {
            let head = format!("{{\"jsonrpc\":\"2.0\",\"id\":{id},\"params\":{{\"x\":\"{tail}");
            let found = id_in_head(head.as_bytes()).unwrap();
            prop_assert_eq!(found.as_text(), id.to_string());
        }
    }
}
