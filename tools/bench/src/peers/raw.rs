//! Parts of JSON texts, verbatim: numbers keep their digits, objects the order of their members.

use std::collections::BTreeMap;

use serde_json::value::RawValue;

/// The text at a JSON pointer (RFC 6901).
pub(super) fn at<'a>(text: &'a str, pointer: &str) -> Option<&'a str> {
    let mut value: &RawValue = serde_json::from_str(text).ok()?;
    for token in pointer.split('/').skip(1) {
        let token = token.replace("~1", "/").replace("~0", "~");
        value = match value.get().as_bytes().first()? {
            b'[' => *serde_json::from_str::<Vec<&RawValue>>(value.get())
                .ok()?
                .get(token.parse::<usize>().ok()?)?,
            _ => *serde_json::from_str::<BTreeMap<String, &RawValue>>(value.get())
                .ok()?
                .get(&token)?,
        };
    }
    Some(value.get())
}

/// The string at a JSON pointer.
pub(super) fn text_at(text: &str, pointer: &str) -> Option<String> {
    serde_json::from_str(at(text, pointer)?).ok()
}

/// The elements of an array.
pub(super) fn elements(array: &str) -> Vec<String> {
    let elements: Vec<&RawValue> = serde_json::from_str(array).unwrap_or_default();
    elements
        .into_iter()
        .map(|element| element.get().to_owned())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn part_is_as_it_was_written() {
        let text = r#"{"a/b": [0, {"c": 1.50,  "d~": "x"}]}"#;
        assert_eq!(at(text, "/a~1b/1/c"), Some("1.50"));
        assert_eq!(text_at(text, "/a~1b/1/d~0").as_deref(), Some("x"));
        assert_eq!(at(text, ""), Some(text));
        for missing in ["/x", "/a~1b/2", "/a~1b/x", "/a~1b/0/c"] {
            assert_eq!(at(text, missing), None, "{missing}");
        }
        assert_eq!(elements("[1.0, {}]"), ["1.0", "{}"]);
    }
}
