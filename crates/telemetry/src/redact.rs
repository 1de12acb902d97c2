//! Redacts arguments and results before they are recorded: values of members whose name looks secret are replaced, and
//! the text is truncated.
//!
//! Redaction goes by names of members. It catches the usual mistakes and cannot recognize a secret in free text, which is
//! why content is not recorded by default.

use fanlight_protocol::Json;
use fanlight_protocol::json::Kind;

/// Parts of secret member names, compared in lower case without `-` and `_`.
const SECRET: [&str; 14] = [
    "password",
    "passwd",
    "passphrase",
    "secret",
    "token",
    "authorization",
    "cookie",
    "apikey",
    "accesskey",
    "privatekey",
    "credential",
    "sessionid",
    "signature",
    "bearer",
];
const BLANK: &[u8] = b"\"[redacted]\"";
const CUT: &str = "…";

/// `content` without secrets, at most about `longest` bytes.
pub(crate) fn redacted(content: &Json, longest: usize) -> String {
    let mut out = Vec::with_capacity(content.bytes().len().min(longest) + CUT.len());
    write(&mut out, content, longest);
    let mut text = String::from_utf8_lossy(&out).into_owned();
    if text.len() > longest {
        let end = (0..=longest).rev().find(|end| text.is_char_boundary(*end)).unwrap_or(0);
        text.truncate(end);
        text.push_str(CUT);
    }
    text
}

/// Stops soon after `longest` bytes. The nesting of `value` was bounded when it was parsed.
fn write(out: &mut Vec<u8>, value: &Json, longest: usize) {
    match value.kind() {
        Kind::Object => {
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
                // A malformed name counts as secret.
                if member.name(value).is_none_or(|name| is_secret(&name)) {
                    out.extend_from_slice(BLANK);
                } else {
                    write(out, &value.slice(member.value), longest);
                }
            }
            out.push(b'}');
        }
        Kind::Array => {
            out.push(b'[');
            for (index, element) in value.elements().enumerate() {
                if out.len() > longest {
                    return;
                }
                if index > 0 {
                    out.push(b',');
                }
                write(out, &value.slice(element), longest);
            }
            out.push(b']');
        }
        _ => {
            let bytes = value.bytes();
            out.extend_from_slice(bytes.get(..bytes.len().min(longest + 1)).unwrap_or_default());
        }
    }
}

fn is_secret(name: &str) -> bool {
    let plain: String = name.chars().filter(|c| !matches!(c, '-' | '_')).flat_map(char::to_lowercase).collect();
    SECRET.iter().any(|secret| plain.contains(secret))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn json(text: &str) -> Json {
        Json::parse(text.to_owned().into(), 16).unwrap()
    }

    #[test]
    fn secrets_are_replaced_at_any_depth() {
        let content = json(r#"{"a":1,"API_Key":"s3","deep":[{"x-auth-token":{"v":"s3"}},"t"],"pass\u0077ord":"s3"}"#);
        let text = redacted(&content, 4096);
        assert!(!text.contains("s3"), "{text}");
        assert_eq!(
            text,
            r#"{"a":1,"API_Key":"[redacted]","deep":[{"x-auth-token":"[redacted]"},"t"],"pass\u0077ord":"[redacted]"}"#
        );
    }

    #[test]
    fn content_is_truncated_between_characters() {
        let text = redacted(&json(&format!(r#"{{"a":"{}"}}"#, "é".repeat(5000))), 100);
        assert!(text.len() <= 100 + CUT.len() && text.ends_with(CUT));
        let many = format!("[{}0]", "0,".repeat(100_000));
        assert!(redacted(&json(&many), 64).len() <= 64 + CUT.len());
    }
}
