//! Removes secrets from arguments and results before they are recorded, and shortens them.
//!
//! [`secret`] recognizes them by names and shapes. A secret in free text cannot be recognized.
//! Therefore content is not recorded by default.

use fanlight_protocol::Json;
use fanlight_protocol::json::{Kind, quote};
use fanlight_protocol::secret::{self, is_secret};

use crate::text::truncated;

const BLANK: &str = "[redacted]";
const CUT: &str = "…";

/// `content` without secrets, limited to about `longest` bytes.
pub(crate) fn redacted(content: &Json, longest: usize) -> String {
    let mut out = Vec::with_capacity(content.bytes().len().min(longest) + CUT.len());
    write(&mut out, content, longest);
    let mut text = String::from_utf8_lossy(&out).into_owned();
    if text.len() > longest {
        let end = (0..=longest)
            .rev()
            .find(|end| text.is_char_boundary(*end))
            .unwrap_or(0);
        text.truncate(end);
        text.push_str(CUT);
    }
    text
}

/// The limit of the members that [`redacted_members`] reads, and of the characters of a name.
const MEMBERS: (usize, usize) = (32, 64);

/// The members of an object without secrets. Each value is a text of at most `longest` bytes.
pub(crate) fn redacted_members(content: &Json, longest: usize) -> Vec<(String, String)> {
    let members = content.members().take(MEMBERS.0).filter_map(|member| {
        let name = member.name(content)?;
        let value = content.slice(member.value);
        let text = match value.as_str() {
            _ if is_secret(&name) => BLANK.to_owned(),
            Some(text) => truncated(&redacted_text(&text), longest).to_owned(),
            None => redacted(&value, longest),
        };
        Some((truncated(&name, MEMBERS.1).to_owned(), text))
    });
    members.collect()
}

/// `text` without secrets.
pub(crate) fn redacted_text(text: &str) -> String {
    secret::without_secrets(text, BLANK).unwrap_or_else(|| text.to_owned())
}

/// Writes a value, and stops soon after `longest` bytes. The parser has already limited the nesting
/// of `value`.
fn write(out: &mut Vec<u8>, value: &Json, longest: usize) {
    match value.kind() {
        Kind::Object => write_object(out, value, longest),
        Kind::Array => write_array(out, value, longest),
        Kind::String => write_string(out, value, longest),
        _ => {
            let bytes = value.bytes();
            out.extend_from_slice(
                bytes
                    .get(..bytes.len().min(longest + 1))
                    .unwrap_or_default(),
            );
        }
    }
}

fn write_object(out: &mut Vec<u8>, value: &Json, longest: usize) {
    let secret_members = secret::Members::of(value);
    out.push(b'{');
    for (index, member) in value.members().enumerate() {
        if out.len() > longest {
            return;
        }
        if index > 0 {
            out.push(b',');
        }
        out.extend_from_slice(value.bytes().get(member.key.clone()).unwrap_or_default());
        out.push(b':');
        let inner = value.slice(member.value.clone());
        // A malformed name counts as secret.
        let is_hidden = member
            .name(value)
            .is_none_or(|name| secret_members.hide(&name, &inner));
        if is_hidden {
            write_blank(out);
        } else {
            write(out, &inner, longest);
        }
    }
    out.push(b'}');
}

fn write_array(out: &mut Vec<u8>, value: &Json, longest: usize) {
    let mut secret_elements = secret::Elements::of(value);
    out.push(b'[');
    for (index, element) in value.elements().enumerate() {
        if out.len() > longest {
            return;
        }
        if index > 0 {
            out.push(b',');
        }
        let element = value.slice(element);
        if secret_elements.hide(&element) {
            write_blank(out);
        } else {
            write(out, &element, longest);
        }
    }
    out.push(b']');
}

fn write_blank(out: &mut Vec<u8>) {
    out.extend_from_slice(&quote(BLANK));
}

/// Writes a string. It reads only the beginning that can be shown. A text without secrets keeps its
/// escapes.
fn write_string(out: &mut Vec<u8>, value: &Json, longest: usize) {
    let bytes = value.bytes();
    let shown = bytes
        .get(..bytes.len().min(longest + 1))
        .unwrap_or_default();
    let Some(text) = value.as_str() else {
        return write_blank(out);
    };
    let end = (0..=text.len().min(longest))
        .rev()
        .find(|end| text.is_char_boundary(*end))
        .unwrap_or(0);
    match secret::without_secrets(text.get(..end).unwrap_or_default(), BLANK) {
        // The text is already too long without its last part, which was not read.
        Some(clean) => {
            out.extend_from_slice(&quote(&clean));
            if end < text.len() {
                out.resize(out.len().max(longest + 1), b' ');
            }
        }
        None => out.extend_from_slice(shown),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn json(text: &str) -> Json {
        Json::parse(text.to_owned().into(), 16).unwrap()
    }

    #[test]
    fn secrets_are_replaced_at_any_depth() {
        let content = json(
            r#"{"a":1,"API_Key":"s3","deep":[{"x-auth-token":{"v":"s3"}},"t"],"pass\u0077ord":"s3"}"#,
        );
        let text = redacted(&content, 4096);
        assert!(!text.contains("s3"), "{text}");
        assert_eq!(
            text,
            r#"{"a":1,"API_Key":"[redacted]","deep":[{"x-auth-token":"[redacted]"},"t"],"pass\u0077ord":"[redacted]"}"#
        );
    }

    #[test]
    fn secrets_are_replaced_wherever_a_name_stands() {
        for content in [
            r#"{"pwd":"s3cret","pass":"s3cret","auth":"s3cret","jwt":"s3cret","otp":53,"pin":53,"key":"s3cret"}"#,
            r#"{"headers":[{"name":"Authorization","value":"s3cret"}]}"#,
            r#"{"env":[{"key":"DB_PASS","value":"s3cret"}]}"#,
            r#"{"args":["--token","s3cret","-v","--api-key=s3cret"]}"#,
            r#"{"url":"https://me:s3cret@host/x?a=1&access_token=s3cret&b=2#id_token=s3cret"}"#,
            r#"{"text":"Authorization: Bearer s3cret"}"#,
            r#"{"text":"use bearer\ts3cret now"}"#,
            r#"{"text":"Server=a;Uid=me;Pwd=s3cret;"}"#,
            r#"{"text":"{\"user\":\"me\",\"password\":\"s3cret\"}"}"#,
            r#"{"text":"{\\\"pin\\\": 53}"}"#,
            r#"{"text":"\u0070assword\u003ds3cret"}"#,
        ] {
            let text = redacted(&json(content), 4096);
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
            assert_eq!(redacted(&json(content), 4096), content);
        }
    }

    #[test]
    fn content_is_truncated_between_characters() {
        let text = redacted(&json(&format!(r#"{{"a":"{}"}}"#, "é".repeat(5000))), 100);
        assert!(text.len() <= 100 + CUT.len() && text.ends_with(CUT));
        let many = format!("[{}0]", "0,".repeat(100_000));
        assert!(redacted(&json(&many), 64).len() <= 64 + CUT.len());
        let cut = redacted(
            &json(&format!(r#""token=s3cret {}""#, "a ".repeat(100_000))),
            64,
        );
        assert!(
            cut.len() <= 64 + CUT.len() && cut.ends_with(CUT) && !cut.contains("s3cret"),
            "{cut}"
        );
    }
}
