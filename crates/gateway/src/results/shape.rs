//! The beginning and the shape of a text, for clients that get it shortened.

use std::collections::VecDeque;

use bytes::Bytes;
use fanlight_protocol::json::{Json, Kind, MAX_NESTING, pointer_step};

use super::part::line_count;

/// The most values of a JSON text that are described.
const VALUES: usize = 64;

/// The beginning of a text that takes at most `most` bytes as a JSON string.
pub(super) fn head(text: &str, most: usize) -> &str {
    let mut size = 0;
    let is_beyond = |character: char| {
        size += match character {
            '"' | '\\' | '\n' | '\r' | '\t' => 2,
            '\0'..'\x20' => 6,
            _ => character.len_utf8(),
        };
        size > most
    };
    text.split(is_beyond).next().unwrap_or_default()
}

/// The shape of a text, in at most `most` bytes: the types and lengths of its values if it is JSON,
/// else its number of lines.
pub(super) fn describe_text(text: &Bytes, most: usize) -> String {
    let first = text.iter().find(|byte| !byte.is_ascii_whitespace());
    let may_be_json = matches!(first, Some(b'{' | b'['));
    let parse = || Json::parse(text.clone(), MAX_NESTING).ok();
    match may_be_json.then(parse).flatten() {
        Some(value) => describe_json(&value, most),
        None => format!("text, {} lines", line_count(text)),
    }
}

/// The types and lengths of the values in a JSON value, by JSON Pointer; of an array, of its
/// first element.
pub(super) fn describe_json(value: &Json, most: usize) -> String {
    let mut shape = String::from("JSON");
    let mut next = VecDeque::from([(String::new(), value.clone())]);
    for _ in 0..VALUES {
        let Some((pointer, value)) = next.pop_front() else {
            return shape;
        };
        let described = match value.kind() {
            Kind::Object => format!("object of {}", value.members().count()),
            Kind::Array => format!("array of {}", value.elements().count()),
            Kind::String => format!("string of {} bytes", value.bytes().len() - 2),
            Kind::Number => "number".to_owned(),
            Kind::Bool => "boolean".to_owned(),
            Kind::Null => "null".to_owned(),
        };
        let line = match &*pointer {
            "" => format!(", {described}"),
            pointer => format!("\n{pointer}: {described}"),
        };
        if shape.len() + line.len() > most {
            break;
        }
        shape += &line;
        let room = VALUES.saturating_sub(next.len());
        next.extend(value.members().take(room).filter_map(|member| {
            let step = pointer_step(&member.name(&value)?);
            Some((format!("{pointer}{step}"), value.slice(member.value)))
        }));
        let first = value.items().next();
        next.extend(first.map(|first| (format!("{pointer}/0"), first)));
    }
    if next.is_empty() {
        shape
    } else {
        shape + "\n…"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn head_ends_between_characters_and_fits_as_json() {
        for (text, most, expected) in [
            ("aé€", 5, "aé"),
            ("aé€", 6, "aé€"),
            ("a\"b", 2, "a"),
            ("\u{1}b", 6, "\u{1}"),
            ("abc", 0, ""),
        ] {
            assert_eq!(head(text, most), expected, "{text:?} {most}");
            assert!(Json::string(head(text, most)).bytes().len() <= most + 2);
        }
    }

    #[test]
    fn shape_gives_types_and_lengths_by_pointer() {
        let text = r#" {"rows":[{"id":1,"a/b":"xy"},{}],"ok":true,"none":null}"#;
        let expected = "JSON, object of 3\n/rows: array of 2\n/ok: boolean\n/none: null\n/rows/0: object of 2\n\
                        /rows/0/id: number\n/rows/0/a~1b: string of 2 bytes";
        let of_text = |text: &str, most| describe_text(&text.to_owned().into(), most);
        assert_eq!(of_text(text, 1000), expected);
        assert_eq!(of_text(text, 40), "JSON, object of 3\n/rows: array of 2\n…");
        assert_eq!(of_text("{no\njson", 1000), "text, 2 lines");
        let wide = format!("[{}]", ["[]"; 5000].join(","));
        assert_eq!(of_text(&wide, 1000), "JSON, array of 5000\n/0: array of 0");
    }
}
