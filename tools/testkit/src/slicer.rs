//! Finds members in JSON text and returns their raw text. Only for tests: it expects well-formed
//! JSON and returns `None` for errors that it notices.

/// The raw text of the value at `path` in `text`: member names or array indices, joined by `.`, as
/// in `result.content.0.text`. Names are compared without decoding escapes; [`member_at`] finds
/// names that contain a dot.
pub fn member<'a>(text: &'a str, path: &str) -> Option<&'a str> {
    let steps: Vec<&str> = path.split('.').collect();
    member_at(text, &steps)
}

/// The raw text of the value at the end of `steps`. A slow answer becomes an event stream, whose last
/// message is read.
pub fn member_at<'a>(text: &'a str, steps: &[&str]) -> Option<&'a str> {
    let text = text.trim_matches(WHITE);
    let message = match text.as_bytes().first()? {
        b'{' | b'[' => text,
        _ => text
            .lines()
            .rev()
            .find_map(|line| line.strip_prefix("data:"))?,
    };
    steps
        .iter()
        .try_fold(message.trim_matches(WHITE), |value, step| {
            match value.as_bytes().first()? {
                b'{' => members(value)?
                    .into_iter()
                    .find(|(name, _)| name == step)
                    .map(|(_, value)| value),
                b'[' => elements(value)?.into_iter().nth(step.parse().ok()?),
                _ => None,
            }
        })
}

/// The members of an object, in order, each name without its quotes and each value as raw text.
pub fn members(object: &str) -> Option<Vec<(&str, &str)>> {
    parts(object, '{', '}')?
        .into_iter()
        .map(|part| {
            let name_end = value_end(part)?;
            let name = part.get(1..name_end.checked_sub(1)?)?;
            let rest = part.get(name_end..)?.trim_start_matches(WHITE);
            Some((name, rest.strip_prefix(':')?.trim_matches(WHITE)))
        })
        .collect()
}

/// The elements of an array, in order, as raw text.
pub fn elements(array: &str) -> Option<Vec<&str>> {
    parts(array, '[', ']')
}

/// The text inside a string without escapes; `None` if the value is not a string or has escapes.
pub fn plain_string(value: &str) -> Option<&str> {
    let inner = value.strip_prefix('"')?.strip_suffix('"')?;
    (!inner.contains('\\')).then_some(inner)
}

/// `text` without the white space between tokens.
pub fn compact(text: &str) -> String {
    let mut compact = String::with_capacity(text.len());
    let mut in_string = false;
    let mut escaped = false;
    for character in text.chars() {
        if in_string || !WHITE.contains(&character) {
            compact.push(character);
        }
        match character {
            _ if escaped => escaped = false,
            '\\' if in_string => escaped = true,
            '"' => in_string = !in_string,
            _ => {}
        }
    }
    compact
}

const WHITE: [char; 4] = [' ', '\t', '\n', '\r'];

/// The texts between the commas of an object or array.
fn parts(text: &str, open: char, close: char) -> Option<Vec<&str>> {
    let mut rest = text
        .trim_matches(WHITE)
        .strip_prefix(open)?
        .strip_suffix(close)?
        .trim_matches(WHITE);
    let mut parts = Vec::new();
    while !rest.is_empty() {
        let end = part_end(rest)?;
        parts.push(rest.get(..end)?.trim_matches(WHITE));
        rest = match rest.get(end..)?.strip_prefix(',') {
            Some(after) => after.trim_start_matches(WHITE),
            None => return Some(parts),
        };
    }
    parts.is_empty().then_some(parts)
}

/// The offset of the first comma outside strings and brackets, or of the end.
fn part_end(text: &str) -> Option<usize> {
    let mut at = 0;
    while at < text.len() {
        match text.as_bytes().get(at)? {
            b',' => return Some(at),
            b'"' | b'{' | b'[' => at += value_end(text.get(at..)?)?,
            _ => at += 1,
        }
    }
    Some(at)
}

/// The length of the string, object or array at the start of `text`.
fn value_end(text: &str) -> Option<usize> {
    let mut depth = 0usize;
    let mut in_string = false;
    let mut escaped = false;
    for (at, byte) in text.bytes().enumerate() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if in_string => escaped = true,
            b'"' => {
                in_string = !in_string;
                if !in_string && depth == 0 {
                    return Some(at + 1);
                }
            }
            _ if in_string => {}
            b'{' | b'[' => depth += 1,
            b'}' | b']' => {
                depth = depth.checked_sub(1)?;
                if depth == 0 {
                    return Some(at + 1);
                }
            }
            _ => {}
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn member_is_found_with_its_own_text() {
        let text =
            r#" { "a" : 1.0 , "b":{"c,}":[ -0 ,"x\"]",{"d":1E400}] }, "":null,"e\u0041":{} } "#;
        assert_eq!(member(text, "a"), Some("1.0"));
        assert_eq!(member_at(text, &["b", "c,}", "0"]), Some("-0"));
        assert_eq!(member_at(text, &["b", "c,}", "1"]), Some(r#""x\"]""#));
        assert_eq!(member_at(text, &["b", "c,}", "2", "d"]), Some("1E400"));
        assert_eq!(member_at(text, &[""]), Some("null"));
        assert_eq!(member(text, r"e\u0041"), Some("{}"));
        assert_eq!(member(text, "missing"), None);
        assert_eq!(member(text, "a.b"), None);
    }

    #[test]
    fn last_message_of_an_event_stream_is_read() {
        let stream = ":\n\nevent: message\ndata: {\"a\":1}\n\nevent: message\ndata: {\"a\":2}\n\n";
        assert_eq!(member(stream, "a"), Some("2"));
        assert_eq!(member("text", "a"), None);
    }

    #[test]
    fn members_and_elements_are_listed_in_order() {
        assert_eq!(
            members(r#"{"b":1,"a":[2,3]}"#),
            Some(vec![("b", "1"), ("a", "[2,3]")])
        );
        assert_eq!(elements("[ ]"), Some(vec![]));
        assert_eq!(
            elements(r#"["a,b" , [1,2],3 ]"#),
            Some(vec![r#""a,b""#, "[1,2]", "3"])
        );
    }

    #[test]
    fn incomplete_text_is_refused() {
        assert_eq!(members(r#"{"a":1"#), None);
        assert_eq!(members("[1]"), None);
        assert_eq!(elements(r#"["a]"#), None);
        assert_eq!(members(r#"{"a":1,}"#), None);
    }

    #[test]
    fn compact_changes_only_white_space_outside_strings() {
        assert_eq!(
            compact("{ \"a b\\\" c\" :\n[ 1 ,\t2 ] }"),
            "{\"a b\\\" c\":[1,2]}"
        );
    }

    #[test]
    fn plain_string_is_recognised() {
        assert_eq!(plain_string("\"abc\""), Some("abc"));
        assert_eq!(plain_string(r#""a\u0041""#), None);
        assert_eq!(plain_string("1"), None);
    }
}
