//! Finds secrets in texts: credentials of URLs and of `Authorization`, JWTs, private keys, tokens
//! with a well-known beginning, and values after an option or name of a secret.

use super::names::{is_secret, may_be_count};
use super::{NAMES, VALUES, is_secret_option};

/// The longest label of a private key in PEM, and the longest name in `name: password`.
const LONGEST_NAME: usize = 64;
/// The shortest word that counts as a token because of its beginning.
const SHORTEST_TOKEN: usize = 16;
/// The beginnings of tokens of well-known services.
const BEGINNINGS: &[&str] = &[
    "sk-",
    "sk_",
    "rk_live_",
    "ghp_",
    "gho_",
    "ghu_",
    "ghs_",
    "ghr_",
    "github_pat_",
    "glpat-",
    "xoxa-",
    "xoxb-",
    "xoxp-",
    "xapp-",
    "npm_",
    "hf_",
    "AKIA",
    "ASIA",
    "AIza",
];
/// Options that take `user:password`.
const USERS: &[&str] = &["-u", "--user", "--proxy-user"];

type Range = std::ops::Range<usize>;

/// Whether a word begins as tokens of a well-known service do.
pub fn begins_like_token(word: &str) -> bool {
    BEGINNINGS.iter().any(|start| word.starts_with(start))
}

/// `text` with `blank` in place of its secrets; `None` if it has none.
pub fn without_secrets(text: &str, blank: &str) -> Option<String> {
    let (mut out, mut copied, mut at) = (String::new(), 0, 0);
    // Whether an object such as `{"name": "password", …` is open.
    let mut names_secret = false;
    while let Some(word) = word(text, at) {
        let name = text.get(word.clone())?;
        let is_one_of = |words: &[&str]| words.iter().any(|one| name.eq_ignore_ascii_case(one));
        names_secret &= !text.get(at..word.start)?.contains('}');
        names_secret |= is_one_of(NAMES) && names_one(text, word.end);
        // Each of these searches beyond the word only as far as it has found a secret, so that the
        // whole takes linear time.
        let found = after_scheme(text, word.end)
            .or_else(|| after_bearer(text, name, word.end))
            .or_else(|| after_option(text, &word))
            .or_else(|| after_name(text, &word, names_secret && is_one_of(VALUES)))
            .or_else(|| private_key(text, &word))
            .or_else(|| known_token(text, &word))
            .filter(|found| !found.is_empty());
        at = found.as_ref().map_or(word.end, |found| found.end);
        if let Some(found) = found {
            out.push_str(text.get(copied..found.start)?);
            out.push_str(blank);
            copied = found.end;
        }
    }
    if copied == 0 {
        return None;
    }
    out.push_str(text.get(copied..)?);
    Some(out)
}

/// Whether the value is a number of tokens, as in `"tokens": 512`.
pub(super) fn is_count(name: &str, value: &str) -> bool {
    let is_number = value.len() < 10 && value.bytes().all(|byte| byte.is_ascii_digit());
    is_number && may_be_count(name)
}

/// The range of the next word at `at` or later. A word consists of letters, digits, `_` and `-`.
fn word(text: &str, at: usize) -> Option<Range> {
    let is_part = |c: char| c.is_alphanumeric() || matches!(c, '_' | '-');
    let start = at + text.get(at..)?.find(is_part)?;
    let length = text.get(start..)?.find(|c| !is_part(c));
    Some(start..length.map_or(text.len(), |length| start + length))
}

/// Whether the value after this place, which is the end of a word such as `name`, names a secret.
fn names_one(text: &str, end: usize) -> bool {
    let rest = text.get(end..).unwrap_or_default();
    let value = rest.trim_start_matches(['\\', '"', '\'', ' ', '\t', ':', '=', '>']);
    let between = rest.get(..rest.len() - value.len()).unwrap_or_default();
    let Some(word) = word(value, 0).filter(|word| word.start == 0 && word.len() <= LONGEST_NAME)
    else {
        return false;
    };
    between.contains([':', '=', '>']) && value.get(word).is_some_and(is_secret)
}

/// The secret in `scheme://user:password@host`: the part before the `@`.
fn after_scheme(text: &str, end: usize) -> Option<Range> {
    let start = end + 3;
    let rest = text.get(end..)?.strip_prefix("://")?;
    let authority = rest
        .find(|c: char| c.is_whitespace() || "/?#\"'<>\\".contains(c))
        .unwrap_or(rest.len());
    let length = rest.get(..authority)?.rfind('@')?;
    Some(start..start + length)
}

/// The credentials after `Bearer` or another scheme of `Authorization`.
fn after_bearer(text: &str, name: &str, end: usize) -> Option<Range> {
    let is_bearer = ["bearer", "dpop"]
        .iter()
        .any(|scheme| name.eq_ignore_ascii_case(scheme));
    if !is_bearer && !name.eq_ignore_ascii_case("basic") {
        return None;
    }
    let rest = text.get(end..)?;
    let token = rest.trim_start_matches([' ', '\t', '\n', '\r']);
    let start = end + rest.len() - token.len();
    if start == end {
        return None;
    }
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
    (is_bearer || is_base64).then_some(start..start + length)
}

/// The word after an option of a command line, such as `--password`, or after the colon of
/// `-u user:password`. The option and its value may be elements of a list.
fn after_option(text: &str, option: &Range) -> Option<Range> {
    let name = text.get(option.clone())?;
    let is_user = USERS.contains(&name);
    if !is_user && !is_secret_option(name) {
        return None;
    }
    let rest = text.get(option.end..)?;
    let value = rest.trim_start_matches([' ', '\t', '\r', '\n', '\\', ',', '"', '\'']);
    let between = rest.get(..rest.len() - value.len())?;
    if !between.contains([' ', '\t', '\n', ',']) || value.starts_with("--") {
        return None;
    }
    let start = option.end + between.len();
    // In a list, the value ends where the next element begins.
    let ends = if between.contains(',') { ",]}" } else { "" };
    let is_end = |c: char| c.is_whitespace() || "\"'`;|&<>)".contains(c) || ends.contains(c);
    let secret = match value.find(|c| c == ':' || is_end(c)) {
        Some(colon) if is_user && value.get(colon..)?.starts_with(':') => colon + 1,
        _ if is_user => return None,
        _ => 0,
    };
    let length = match between.chars().next_back() {
        Some(quote @ ('"' | '\'')) => {
            let escapes = backslashes(between.get(..between.len() - 1)?);
            quoted(value, quote, escapes)
        }
        _ => value.find(is_end).unwrap_or(value.len()),
    };
    Some(start + secret..start + length)
}

/// The value in `name=value`, `name: value` or `<name>value<`. Name and value may be in quotes,
/// which may be escaped. The text may be JSON, a query, a connection string, a header, a variable
/// or an element of XML. The name is a secret's, or it stands for one.
fn after_name(text: &str, name: &Range, stands_for_one: bool) -> Option<Range> {
    let rest = text.get(name.end..)?;
    let skip = |text: &str, what: &[char]| text.len() - text.trim_start_matches(what).len();
    let mut at = skip(rest, &['\\', '"', '\'', ' ', '\t', ']']);
    let between = rest.get(..at)?;
    let before = text.get(..name.start)?.chars().next_back();
    let sign = rest
        .get(at..)?
        .chars()
        .next()
        .filter(|c| matches!(c, '=' | ':' | '>'))?;
    // The rest of a URL is no value.
    let is_url = rest.get(at..)?.starts_with("://");
    let name_text = text.get(name.clone())?;
    if is_url || !(stands_for_one || is_secret(name_text)) {
        return None;
    }
    if sign == '>' && at == 0 && matches!(before, Some('<' | ':')) {
        let value = rest.get(1..)?;
        let length = value.find('<').unwrap_or(value.len());
        return Some(name.end + 1..name.end + 1 + length);
    }
    if sign == '>' {
        return None;
    }
    at += 1;
    at += skip(rest.get(at..)?, &['=', '>']);
    at += skip(rest.get(at..)?, &[' ', '\t']);
    let value = rest.get(at..)?;
    let escapes = skip(value, &['\\']);
    let start = name.end + at;
    let first = value.get(escapes..)?.chars().next();
    if let Some(quote @ ('"' | '\'')) = first {
        let opening = escapes + 1;
        let length = quoted(value.get(opening..)?, quote, escapes);
        return Some(start + opening..start + opening + length);
    }
    if matches!(first, Some('[' | '{')) && sign == ':' {
        let level = between
            .find(['"', '\''])
            .map_or(0, |quote| backslashes(&between[..quote]));
        return Some(start..start + bracketed(value, level));
    }
    // A header in quotes ends with them.
    let around = before.filter(|c| matches!(c, '"' | '\'') && !between.contains(['"', '\'']));
    let lower = name_text.to_ascii_lowercase();
    let is_header = lower.ends_with("authorization") || lower.ends_with("cookie");
    let is_end = |c: char| match sign {
        _ if around == Some(c) || c == '\n' || c == '\r' => true,
        // The value of these headers has parts, which may be quoted.
        ':' if is_header => around.is_some() && c == '\\',
        // The value of a header may have two words: its scheme and the credentials.
        ':' => matches!(c, ',' | ';' | '"' | '}'),
        _ => c.is_whitespace() || "&;,\"'#)}\\<>".contains(c),
    };
    let length = value.find(is_end).unwrap_or(value.len());
    let is_count = is_count(name_text, value.get(..length)?.trim());
    (!is_count).then_some(start..start + length)
}

/// The number of backslashes at the end of a text.
fn backslashes(text: &str) -> usize {
    text.len() - text.trim_end_matches('\\').len()
}

/// The length of a text up to the quote that ends it. The quote that began it is escaped by
/// `escapes` backslashes, because the text is within another one.
fn quoted(text: &str, quote: char, escapes: usize) -> usize {
    let mut run = 0;
    for (at, c) in text.char_indices() {
        match c {
            '\\' => run += 1,
            _ if c == quote && ends_text(run, escapes) => return at - escapes.min(run),
            _ => run = 0,
        }
    }
    text.len()
}

/// Whether a quote after this many backslashes ends a text. Each level of escapes doubles those that
/// are within it.
fn ends_text(backslashes: usize, escapes: usize) -> bool {
    backslashes % (2 * (escapes + 1)) == escapes
}

/// The length of a list or object of JSON whose quotes are escaped by `escapes` backslashes.
fn bracketed(text: &str, escapes: usize) -> usize {
    let (mut open, mut run, mut is_text) = (0_usize, 0, false);
    for (at, c) in text.char_indices() {
        match c {
            '\\' => {
                run += 1;
                continue;
            }
            '"' if ends_text(run, escapes) => is_text = !is_text,
            '[' | '{' if !is_text => open += 1,
            ']' | '}' if !is_text && open <= 1 => return at + 1,
            ']' | '}' if !is_text => open -= 1,
            _ => {}
        }
        run = 0;
    }
    text.len()
}

/// A private key in PEM.
fn private_key(text: &str, word: &Range) -> Option<Range> {
    let is_begin = text.get(word.clone())?.ends_with("-----BEGIN");
    let rest = text.get(word.end..).filter(|_| is_begin)?;
    let label = rest.split("-----").next()?;
    let is_private = label.len() <= LONGEST_NAME && label.ends_with("PRIVATE KEY");
    if !is_private {
        return None;
    }
    let start = text.len() - rest.len();
    let length = rest.find("-----END").unwrap_or(rest.len());
    Some(start..start + length)
}

/// A token with a well-known beginning, or a JSON Web Token: three parts, of which the first is a
/// JSON object in base64.
fn known_token(text: &str, word: &Range) -> Option<Range> {
    let one = text.get(word.clone())?;
    let has_digit = || one.bytes().any(|byte| byte.is_ascii_digit());
    if one.len() >= SHORTEST_TOKEN && begins_like_token(one) && has_digit() {
        return Some(word.clone());
    }
    let rest = text.get(word.start..)?;
    if !rest.starts_with("eyJ") {
        return None;
    }
    let is_part = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.');
    let length = rest.find(|c| !is_part(c)).unwrap_or(rest.len());
    (rest.get(..length)?.matches('.').count() >= 2).then_some(word.start..word.start + length)
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
            (
                "run --password s3 --port 1",
                "run --password [redacted] --port 1",
            ),
            (
                "run --password=s3 --port 1",
                "run --password=[redacted] --port 1",
            ),
            ("run -token 's 3' x", "run -token '[redacted]' x"),
            ("run --password s3,s3]s3 x", "run --password [redacted] x"),
            ("run --db-password\ts3", "run --db-password\t[redacted]"),
            ("[--token, s3, x]", "[--token, [redacted], x]"),
            (
                "\"--api-key\", \"s\\\"3\", \"x\"",
                "\"--api-key\", \"[redacted]\", \"x\"",
            ),
            ("curl -u me:s3 https://h", "curl -u me:[redacted] https://h"),
            ("curl --user 'me:s 3'", "curl --user 'me:[redacted]'"),
            (
                "curl -H 'Cookie: a=s3; b=\"s3\"' h",
                "curl -H 'Cookie: [redacted]' h",
            ),
            (
                "Authorization: Digest username=\"me\", response=\"s3\"\nHost: h",
                "Authorization: [redacted]\nHost: h",
            ),
            (
                "[{\"name\":\"X-Auth\",\"value\":\"s3\"},{\"name\":\"X\",\"value\":\"v\"}]",
                "[{\"name\":\"X-Auth\",\"value\":\"[redacted]\"},{\"name\":\"X\",\"value\":\"v\"}]",
            ),
            (
                "<name>Authorization</name><value>s3</value>",
                "<name>Authorization</name><value>[redacted]</value>",
            ),
            ("<password>s3</password>", "<password>[redacted]</password>"),
            ("'secret' => 's3',", "'secret' => '[redacted]',"),
            (
                "{\"secrets\": [\"s3]\", \"s3\"], \"a\": 1}",
                "{\"secrets\": [redacted], \"a\": 1}",
            ),
            (
                "{\\\"password\\\":\\\"s\\\\\\\"3\\\",\\\"a\\\":1}",
                "{\\\"password\\\":\\\"[redacted]\\\",\\\"a\\\":1}",
            ),
            (
                "x\\n-----BEGIN RSA PRIVATE KEY-----\\nMII s3\\n-----END RSA PRIVATE KEY-----",
                "x\\n-----BEGIN[redacted]-----END RSA PRIVATE KEY-----",
            ),
            ("use ghp_0123456789abcdef now", "use [redacted] now"),
            (
                "my_very_long_name_that_goes_on_and_on_and_on_and_on_until_the_password=s3",
                "my_very_long_name_that_goes_on_and_on_and_on_and_on_until_the_password=[redacted]",
            ),
        ] {
            assert_eq!(without_secrets(text, "[redacted]").as_deref(), Some(clean));
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
            "sk-learn",
            "\"tokens\": 512, \"max_tokens\": 9",
            "run --no-password --author me --password-stdin x",
            "curl -u me https://h:1",
            "-----BEGIN CERTIFICATE-----",
        ] {
            assert_eq!(without_secrets(text, "[redacted]"), None, "{text}");
        }
    }

    #[test]
    fn long_text_is_searched_in_linear_time() {
        let parts = [
            "key=",
            "a://",
            "key='",
            "key:",
            "key:[",
            "key \\\"",
            "a: ",
            "name: ",
            "value:",
            "-u \"",
            "-u me",
            "--token \\",
            "bearer ",
            "basic.",
            "basic ",
            "eyJ.",
            "-----BEGIN ",
            "-----BEGIN PRIVATE KEY-----",
            "\"key\":\"\\\"",
            "name:key ",
            "<key>",
            "tokens:1 ",
            "max_tokens_",
            "@",
            "a b",
            "\\",
            "\"",
        ];
        let begun = std::time::Instant::now();
        for part in parts {
            without_secrets(&part.repeat(10_000), "");
            for other in parts {
                without_secrets(&[part, other].concat().repeat(100), "");
            }
        }
        assert!(begun.elapsed().as_secs() < 20, "{:?}", begun.elapsed());
    }
}
