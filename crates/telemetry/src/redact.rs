//! Removes secrets from content that somebody reads.
//!
//! [`secret`] recognizes them by names and shapes. A secret in free text cannot be recognized.
//! Therefore only operators read content.

use std::borrow::Cow;

use fanlight_protocol::json::{Kind, quote};
use fanlight_protocol::{Json, secret};

use crate::text::truncated;

/// The nesting limit of kept content: the limit of an answer, which contains it.
const NESTING: usize = 512;

/// The JSON text without secrets. If only its beginning is given, the result has the values before
/// the cut.
pub(crate) fn redacted(text: &str) -> String {
    let parse = |text: &str| Json::parse(text.to_owned().into(), NESTING).ok();
    let mut out = Vec::with_capacity(text.len());
    match parse(text) {
        Some(whole) => write(&mut out, &whole, false),
        None => match parse(&completed(text)) {
            Some(start) => write(&mut out, &start, true),
            None => write_blank(&mut out),
        },
    }
    String::from_utf8_lossy(&out).into_owned()
}

/// The limit of the members that [`members`] reads, and of the characters of a name.
const MEMBERS: (usize, usize) = (32, 64);

/// The members of an object, as texts.
pub(crate) fn members(object: &str) -> Vec<(String, String)> {
    let Ok(object) = Json::parse(object.to_owned().into(), NESTING) else {
        return Vec::new();
    };
    let members = object.members().take(MEMBERS.0).filter_map(|member| {
        let name = member.name(&object)?;
        let value = object.slice(member.value);
        let text = value
            .as_str()
            .map_or(value.as_text().into(), Cow::into_owned);
        Some((truncated(&name, MEMBERS.1).to_owned(), text))
    });
    members.collect()
}

/// Writes a value. If it was cut, its last part is incomplete.
fn write(out: &mut Vec<u8>, value: &Json, is_cut: bool) {
    match value.kind() {
        Kind::Object => write_object(out, value, is_cut),
        Kind::Array => write_array(out, value, is_cut),
        Kind::String => write_string(out, value),
        _ => out.extend_from_slice(value.bytes()),
    }
}

fn write_object(out: &mut Vec<u8>, value: &Json, is_cut: bool) {
    let mut secret_members = secret::Members::read(value);
    if is_cut {
        // The name of a value may have been cut off.
        secret_members = secret_members.hiding_values();
    }
    out.push(b'{');
    let mut members = value.members().peekable();
    while let Some(member) = members.next() {
        out.extend_from_slice(value.bytes().get(member.key.clone()).unwrap_or_default());
        out.push(b':');
        let inner = value.slice(member.value.clone());
        // A malformed name counts as secret.
        let is_hidden = member
            .name(value)
            .is_none_or(|name| secret_members.hide(&name, &inner));
        let has_more = members.peek().is_some();
        if is_hidden {
            write_blank(out);
        } else {
            write(out, &inner, is_cut && !has_more);
        }
        if has_more {
            out.push(b',');
        }
    }
    out.push(b'}');
}

fn write_array(out: &mut Vec<u8>, value: &Json, is_cut: bool) {
    let mut secret_elements = secret::Elements::new(value);
    out.push(b'[');
    let mut elements = value.elements().peekable();
    while let Some(element) = elements.next() {
        let element = value.slice(element);
        let has_more = elements.peek().is_some();
        if secret_elements.hide(&element) {
            write_blank(out);
        } else {
            write(out, &element, is_cut && !has_more);
        }
        if has_more {
            out.push(b',');
        }
    }
    out.push(b']');
}

fn write_blank(out: &mut Vec<u8>) {
    out.extend_from_slice(&quote(secret::BLANK));
}

/// Writes a string. A text without secrets keeps its escapes.
fn write_string(out: &mut Vec<u8>, value: &Json) {
    let Some(text) = value.as_str() else {
        return write_blank(out);
    };
    match secret::without_secrets(&text, secret::BLANK) {
        Some(clean) => out.extend_from_slice(&quote(&clean)),
        None => out.extend_from_slice(value.bytes()),
    }
}

/// A longer word in a cut string is kept. It is data, such as an image. A shorter one may be the
/// beginning of a secret that only its rest would show.
const WORD: usize = 4096;

/// The beginning of a JSON text up to its last complete value, with the brackets closed. A string
/// that was cut keeps its complete words.
pub(crate) fn completed(start: &str) -> String {
    let mut scan = Scan::default();
    for (at, byte) in start.bytes().enumerate() {
        scan.take(at, byte);
    }
    let (end, open) = match scan.text.filter(|text| !text.is_key) {
        Some(text) => (text.end(start.len()), scan.open.len()),
        None => (scan.end, scan.complete),
    };
    let mut out = start.get(..end).unwrap_or_default().to_owned();
    if scan.text.is_some_and(|text| !text.is_key) {
        out.push('"');
    }
    scan.open.truncate(open);
    out.extend(scan.open.iter().rev().map(|bracket| match bracket {
        b'{' => '}',
        _ => ']',
    }));
    out
}

/// The state after a part of the text.
#[derive(Default)]
struct Scan {
    /// The open brackets.
    open: Vec<u8>,
    /// The end of the last complete value, and how many brackets were open there.
    end: usize,
    complete: usize,
    /// Whether a string would be the name of a member.
    before_name: bool,
    /// The string that the text is in.
    text: Option<Text>,
}

#[derive(Clone, Copy)]
struct Text {
    start: usize,
    is_key: bool,
    /// The number of bytes that belong to the current escape.
    escape: usize,
    /// The start of the last character.
    character: usize,
    /// The end of the last complete word.
    word: usize,
}

impl Scan {
    fn take(&mut self, at: usize, byte: u8) {
        if let Some(text) = &mut self.text {
            if !text.take(at, byte) {
                return;
            }
            if !text.is_key {
                self.value_ends_at(at + 1);
            }
            self.text = None;
            return;
        }
        match byte {
            b'"' => {
                self.text = Some(Text {
                    start: at + 1,
                    is_key: self.before_name,
                    escape: 0,
                    character: at + 1,
                    word: at + 1,
                });
            }
            b'{' | b'[' => {
                self.open.push(byte);
                self.before_name = byte == b'{';
                self.value_ends_at(at + 1);
            }
            b'}' | b']' => {
                self.open.pop();
                self.before_name = false;
                self.value_ends_at(at + 1);
            }
            b',' => {
                self.before_name = self.open.last() == Some(&b'{');
                self.value_ends_at(at);
            }
            b':' => self.before_name = false,
            _ => {}
        }
    }

    fn value_ends_at(&mut self, end: usize) {
        (self.end, self.complete) = (end, self.open.len());
    }
}

impl Text {
    /// Takes the next byte. Returns whether it ends the string.
    fn take(&mut self, at: usize, byte: u8) -> bool {
        if self.escape > 0 {
            self.escape = match byte {
                b'u' if self.escape == ESCAPED => 4,
                _ if self.escape == ESCAPED => 0,
                _ => self.escape - 1,
            };
            return false;
        }
        if byte & 0xC0 != 0x80 {
            self.character = at;
        }
        match byte {
            b'"' => return true,
            b'\\' => self.escape = ESCAPED,
            b' ' => self.word = at,
            _ => {}
        }
        false
    }

    /// The place to end the string at, if the text ends at `cut`.
    fn end(self, cut: usize) -> usize {
        if cut - self.word < WORD {
            self.word
        } else {
            self.character.max(self.start)
        }
    }
}

/// The state right after a backslash.
const ESCAPED: usize = usize::MAX;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_are_replaced_at_any_depth() {
        let text = redacted(
            r#"{"a":1,"API_Key":"s3","deep":[{"x-auth-token":{"v":"s3"}},"t"],"pass\u0077ord":"s3"}"#,
        );
        assert_eq!(
            text,
            r#"{"a":1,"API_Key":"[redacted]","deep":[{"x-auth-token":"[redacted]"},"t"],"pass\u0077ord":"[redacted]"}"#
        );
        let members = members(r#"{"city":"Bern","n":1.0,"list":["a"]}"#);
        let texts = members.iter().map(|(name, text)| format!("{name}={text}"));
        assert_eq!(
            texts.collect::<Vec<_>>(),
            ["city=Bern", "n=1.0", r#"list=["a"]"#]
        );
    }

    #[test]
    fn secrets_are_replaced_wherever_a_name_stands() {
        for content in [
            r#"{"pwd":"s3cret","pass":"s3cret","auth":"s3cret","jwt":"s3cret","otp":53,"pin":53,"key":"s3cret"}"#,
            r#"{"headers":[{"name":"Authorization","value":"s3cret"}]}"#,
            r#"{"env":[{"key":"DB_PASS","value":"s3cret"}]}"#,
            r#"{"args":["--token","s3cret","-v","--api-key=s3cret"]}"#,
            r#"{"command":"deploy --password s3cret --port 1"}"#,
            r#"{"url":"https://me:s3cret@host/x?a=1&access_token=s3cret&b=2#id_token=s3cret"}"#,
            r#"{"text":"Authorization: Bearer s3cret"}"#,
            r#"{"text":"use bearer\ts3cret now"}"#,
            r#"{"text":"Server=a;Uid=me;Pwd=s3cret;"}"#,
            r#"{"text":"{\"user\":\"me\",\"password\":\"s3cret\"}"}"#,
            r#"{"text":"{\\\"pin\\\": 53}"}"#,
            r#"{"text":"\u0070assword\u003ds3cret"}"#,
        ] {
            let text = redacted(content);
            assert!(
                !text.contains("s3cret") && !text.contains("53") && text.contains("[redacted]"),
                "{text}"
            );
            assert!(Json::parse(text.clone().into(), 16).is_ok(), "{text}");
        }
    }

    #[test]
    fn content_without_secrets_keeps_its_bytes() {
        for content in [
            r#"{"text":"a \u0041: b = c. https://host/path?page=2&sort=up","keyboard":"qwerty","author":"me"}"#,
            r#"{"compass":"north","spin":1,"bearing":"Bear","mapping":{"to":[1.0,2E0]}}"#,
        ] {
            assert_eq!(redacted(content), content);
        }
    }

    #[test]
    fn secrets_of_cut_content_are_replaced_wherever_it_was_cut() {
        let whole = r#"{"a":"--password s3cret then https://me:s3cret@h","token":"s3cret","list":[{"value":"s3cret","x":[1,"Bearer s3cret é"],"name":"Authorization"}],"b":true}"#;
        for cut in 0..whole.len() {
            let start = crate::text::start_of(whole, cut);
            let text = redacted(start);
            assert!(!text.contains("s3c"), "{start}: {text}");
            assert!(
                Json::parse(text.clone().into(), 16).is_ok(),
                "{start}: {text}"
            );
        }
        assert!(redacted(whole).ends_with(r#""b":true}"#));
        // A long word has no better place to cut.
        let long = format!(r#"{{"data":"{}"#, "QUJD".repeat(2000));
        assert!(redacted(&long).len() > 8000);
        assert_eq!(redacted(""), r#""[redacted]""#);
    }

    #[test]
    fn cut_json_is_completed_with_its_complete_values() {
        for (start, whole) in [
            ("{", "{}"),
            (r#"{"a"#, "{}"),
            (r#"{"a":"#, "{}"),
            (r#"{"a":12"#, "{}"),
            (r#"{"a":12,"b":tr"#, r#"{"a":12}"#),
            (r#"{"a":"one two thr"#, r#"{"a":"one two"}"#),
            (r#"{"a":"one"#, r#"{"a":""}"#),
            (r#"{"a":"x \"y\" z\u00"#, r#"{"a":"x \"y\""}"#),
            (r#"{"a":[{"b":"c"},"#, r#"{"a":[{"b":"c"}]}"#),
            (r#"{"a":[{"b":"c"},{"d":["#, r#"{"a":[{"b":"c"},{"d":[]}]}"#),
            (r#"{"a":["{,","b"#, r#"{"a":["{,",""]}"#),
        ] {
            assert_eq!(completed(start), whole, "{start}");
        }
    }
}
