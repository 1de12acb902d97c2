//! Indented JSON for terminals.

use fanlight_protocol::Json;
use fanlight_protocol::json::Kind;

/// Indents JSON. Only white space changes: numbers, escapes and the order of members stay.
pub fn indented(json: &Json) -> String {
    let mut out = String::with_capacity(json.bytes().len() * 2);
    indent(json, 0, &mut out);
    out
}

fn indent(json: &Json, depth: usize, out: &mut String) {
    let (open, close, parts): (char, char, Vec<(Option<Json>, Json)>) = match json.kind() {
        Kind::Object => (
            '{',
            '}',
            json.members()
                .map(|m| (Some(json.slice(m.key)), json.slice(m.value)))
                .collect(),
        ),
        Kind::Array => (
            '[',
            ']',
            json.elements()
                .map(|element| (None, json.slice(element)))
                .collect(),
        ),
        _ => return out.push_str(json.as_text()),
    };
    out.push(open);
    let last = parts.len();
    for (index, (key, value)) in parts.into_iter().enumerate() {
        out.push('\n');
        out.push_str(&"  ".repeat(depth + 1));
        if let Some(key) = key {
            out.push_str(key.as_text());
            out.push_str(": ");
        }
        indent(&value, depth + 1, out);
        if index + 1 < last {
            out.push(',');
        }
    }
    if last > 0 {
        out.push('\n');
        out.push_str(&"  ".repeat(depth));
    }
    out.push(close);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn indented_changes_only_white_space() {
        let json = Json::literal(r#"{"a":[1.0,{"b":"\u0041 x"}],"c":{},"d":[]}"#);
        let expected = "{\n  \"a\": [\n    1.0,\n    {\n      \"b\": \"\\u0041 x\"\n    }\n  ],\n  \"c\": {},\n  \"d\": []\n}";
        assert_eq!(indented(&json), expected);
    }
}
