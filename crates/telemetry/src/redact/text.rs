//! Finds secrets in texts: credentials of URLs and of `Authorization`, JWTs, and values after the
//! name of a secret.

use super::names::is_secret;

const BLANK: &str = "[redacted]";

/// The limit of a name that is examined, in bytes.
const LONGEST_NAME: usize = 64;

/// `text` without its secrets; `None` if it has none.
pub(super) fn without_secrets(text: &str) -> Option<String> {
    let (mut out, mut copied, mut at) = (String::new(), 0, 0);
    while let Some((start, end)) = next_secret(text, at) {
        out.push_str(text.get(copied..start).unwrap_or_default());
        out.push_str(BLANK);
        (copied, at) = (end, end);
    }
    if copied == 0 {
        return None;
    }
    out.push_str(text.get(copied..).unwrap_or_default());
    Some(out)
}

/// The range of the next secret that begins at `from` or later.
fn next_secret(text: &str, from: usize) -> Option<(usize, usize)> {
    let rest = text.get(from..)?;
    let mut at = 0;
    while let Some(word) = word(rest, at) {
        let (start, end) = word;
        let name = rest.get(start..end).unwrap_or_default();
        let found = after_scheme(rest, name, end)
            .or_else(|| after_bearer(rest, name, end))
            .or_else(|| after_name(rest, name, end))
            .or_else(|| jwt(rest, start));
        if let Some((start, end)) = found.filter(|(start, end)| start < end) {
            return Some((from + start, from + end));
        }
        at = end;
    }
    None
}

/// The range of the next word at `at` or later. A word consists of letters, digits, `_` and `-`.
fn word(text: &str, at: usize) -> Option<(usize, usize)> {
    let is_part = |c: char| c.is_alphanumeric() || matches!(c, '_' | '-');
    let start = at + text.get(at..)?.find(is_part)?;
    let length = text.get(start..)?.find(|c| !is_part(c));
    Some((start, length.map_or(text.len(), |length| start + length)))
}

/// The secret in `scheme://user:password@host`: the part before the `@`.
fn after_scheme(text: &str, _: &str, end: usize) -> Option<(usize, usize)> {
    let start = end + 3;
    let rest = text.get(end..)?.strip_prefix("://")?;
    let authority = rest
        .find(|c: char| c.is_whitespace() || "/?#\"'<>\\".contains(c))
        .unwrap_or(rest.len());
    let length = rest.get(..authority)?.rfind('@')?;
    Some((start, start + length))
}

/// The credentials after `Bearer` or another scheme of `Authorization`.
fn after_bearer(text: &str, name: &str, end: usize) -> Option<(usize, usize)> {
    let is_bearer = ["bearer", "dpop"]
        .iter()
        .any(|scheme| name.eq_ignore_ascii_case(scheme));
    if !is_bearer && !name.eq_ignore_ascii_case("basic") {
        return None;
    }
    let rest = text.get(end..)?;
    let token = rest.trim_start_matches([' ', '\t', '\n', '\r']);
    let start = end + rest.len() - token.len();
    let length = token
        .find(|c: char| c.is_whitespace() || "\"'\\,;<>".contains(c))
        .unwrap_or(token.len());
    // "Basic" is also an ordinary word. Credentials are longer than most words, and have a fixed
    // alphabet.
    let is_base64 = length >= 8
        && token
            .get(..length)?
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || b"+/=".contains(&b));
    (start > end && (is_bearer || is_base64)).then_some((start, start + length))
}

/// The value in `name=value` or `name: value`. Both may be in quotes, which may be escaped. The
/// text may be JSON, a query, a connection string, a header or a variable.
fn after_name(text: &str, name: &str, end: usize) -> Option<(usize, usize)> {
    if name.len() > LONGEST_NAME {
        return None;
    }
    let rest = text.get(end..)?;
    let skip = |text: &str, what: &[char]| text.len() - text.trim_start_matches(what).len();
    let mut at = skip(rest, &['\\', '"', '\'', ' ']);
    let sign = rest
        .get(at..)?
        .chars()
        .next()
        .filter(|c| matches!(c, '=' | ':'))?;
    // The rest of a URL is not such a value.
    if rest.get(at..)?.starts_with("://") || !is_secret(name) {
        return None;
    }
    at += sign.len_utf8();
    at += skip(rest.get(at..)?, &[' ', '\t']);
    let value = rest.get(at..)?;
    let quote = value
        .trim_start_matches('\\')
        .chars()
        .next()
        .filter(|c| matches!(c, '"' | '\''));
    let opening = if quote.is_some() {
        skip(value, &['\\']) + 1
    } else {
        0
    };
    let value = value.get(opening..)?;
    let length = match quote {
        Some(quote) => value.find(quote).map(|end| {
            value
                .get(..end)
                .unwrap_or_default()
                .trim_end_matches('\\')
                .len()
        }),
        // The value of a header may have two words: its scheme and the credentials.
        None if sign == ':' => value.find(['\n', '\r', ',', ';', '"', '}']),
        None => value.find(|c: char| c.is_whitespace() || "&;,\"'#)}\\<>".contains(c)),
    };
    let start = end + at + opening;
    Some((start, start + length.unwrap_or(value.len())))
}

/// A JSON Web Token: three parts, of which the first is a JSON object in base64.
fn jwt(text: &str, start: usize) -> Option<(usize, usize)> {
    let rest = text.get(start..)?;
    if !rest.starts_with("eyJ") {
        return None;
    }
    let is_part = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.');
    let length = rest.find(|c| !is_part(c)).unwrap_or(rest.len());
    (rest.get(..length)?.matches('.').count() >= 2).then_some((start, start + length))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn named_secrets_are_replaced() {
        for (text, clean) in [
            ("https://me:s3@host/a", "https://[redacted]@host/a"),
            ("https://s3@host", "https://[redacted]@host"),
            (
                "see (https://h/?token=s3&x=1)",
                "see (https://h/?token=[redacted]&x=1)",
            ),
            ("Authorization: Bearer s3", "Authorization: [redacted]"),
            ("say Bearer s3, then", "say Bearer [redacted], then"),
            ("curl -H 'Basic dXNlcjpwYXNz'", "curl -H 'Basic [redacted]'"),
            ("PASSWORD=s3 next", "PASSWORD=[redacted] next"),
            ("\"pin\": 1234}", "\"pin\": [redacted]}"),
            ("\\\"jwt\\\":\\\"s3\\\",", "\\\"jwt\\\":\\\"[redacted]\\\","),
            ("got eyJhbGciOi.eyJzdWIi.c2ln!", "got [redacted]!"),
            ("a=1 key='s3' b", "a=1 key='[redacted]' b"),
        ] {
            assert_eq!(without_secrets(text).as_deref(), Some(clean));
        }
    }

    #[test]
    fn text_without_secrets_is_left_alone() {
        for text in [
            "",
            "a basic idea",
            "the bearer",
            "key",
            "https://host:80/x@y",
            "author: me",
            "x = y",
            "token",
            "eyJ.a",
        ] {
            assert_eq!(without_secrets(text), None, "{text}");
        }
    }

    #[test]
    fn long_text_is_searched_in_linear_time() {
        let long = "key=".repeat(50_000) + &"a://".repeat(50_000);
        let begun = std::time::Instant::now();
        without_secrets(&long);
        assert!(begun.elapsed().as_secs() < 5);
    }
}
