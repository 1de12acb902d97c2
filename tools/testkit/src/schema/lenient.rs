//! Parses JSON for schema validation. Similar values replace those that cannot be represented, such
//! as `1E400` or half a surrogate pair: for a schema they are just a number or a string.

use serde_json::Value;

pub(super) fn parse(text: &str) -> Result<Value, String> {
    match serde_json::from_str(text) {
        Ok(value) => Ok(value),
        Err(error) => serde_json::from_str(&tamed(text)).map_err(|_| format!("not JSON: {error}")),
    }
}

/// The text with representable numbers and escapes; invalid text stays invalid.
fn tamed(text: &str) -> String {
    let mut tamed = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let length = match first {
            '"' => string_length(rest),
            '-' | '0'..='9' => rest
                .find(|next: char| !"+-.eE0123456789".contains(next))
                .unwrap_or(rest.len()),
            _ => first.len_utf8(),
        };
        let (token, after) = rest.split_at(length);
        match first {
            '"' => push_string(&mut tamed, token),
            '-' | '0'..='9' if token.parse().is_ok_and(|number: f64| number.is_infinite()) => {
                tamed.push('1');
            }
            _ => tamed.push_str(token),
        }
        rest = after;
    }
    tamed
}

/// The length of the string that begins here, with its quotes.
fn string_length(text: &str) -> usize {
    let mut escaped = false;
    let end = text.char_indices().skip(1).find(|(_, character)| {
        let is_end = *character == '"' && !escaped;
        escaped = *character == '\\' && !escaped;
        is_end
    });
    end.map_or(text.len(), |(at, _)| at + 1)
}

/// Copies a string with the replacement character for every unpaired surrogate.
fn push_string(tamed: &mut String, string: &str) {
    let mut rest = string;
    while let Some(at) = rest.find('\\') {
        tamed.push_str(&rest[..at]);
        rest = &rest[at..];
        let length = match (surrogate(rest, 0), surrogate(rest, 6)) {
            (Some(0xD800..0xDC00), Some(0xDC00..0xE000)) => 12,
            (Some(0xD800..0xE000), _) => {
                tamed.push('\u{fffd}');
                rest = &rest[6..];
                continue;
            }
            _ => rest.char_indices().nth(2).map_or(rest.len(), |(at, _)| at),
        };
        tamed.push_str(&rest[..length]);
        rest = &rest[length..];
    }
    tamed.push_str(rest);
}

/// The code unit of the `\uXXXX` escape at this offset.
fn surrogate(text: &str, at: usize) -> Option<u32> {
    let digits = text.get(at..at + 6)?.strip_prefix("\\u")?;
    u32::from_str_radix(digits, 16).ok()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn lenient_parser_approximates_numbers_and_refuses_other_text() {
        assert_eq!(
            parse(r#"{"a":1E400,"b":[-1e999,2.5]}"#),
            Ok(json!({ "a": 1, "b": [1, 2.5] }))
        );
        assert_eq!(
            parse(r#""x\ud800\ud83d\ude00\\ud800\udc00""#),
            Ok(json!("x\u{fffd}😀\\ud800\u{fffd}"))
        );
        for wrong in ["{", "1E400,", "[01]", "\"a", "nul", "-", r#""\u12""#, ""] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
    }
}
