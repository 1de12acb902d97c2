//! The forms of a URI that rules compare. A server resolves `..`, decodes `%2e` and ignores case; a
//! pattern does not.

use std::string::FromUtf8Error;

/// The number of [`uri_forms`].
pub const URI_FORMS: usize = 3;

/// The forms of a URI, all [`folded`], in which a rule that forbids also applies: the whole URI, its
/// path alone, and that path without parameters and slashes at the end. For many servers these make
/// no difference.
pub fn uri_forms(uri: &str) -> [String; URI_FORMS] {
    let whole = folded(uri);
    let path = whole.split(['?', '#']).next().unwrap_or_default();
    let segments = path
        .split('/')
        .map(|segment| segment.split(';').next().unwrap_or_default());
    let bare = segments.collect::<Vec<_>>().join("/");
    let bare = bare.trim_end_matches('/').to_owned();
    [path.to_owned(), bare, whole]
}

/// A URI or a pattern for URIs, decoded and in lower case.
pub fn folded(uri: &str) -> String {
    String::from_utf8_lossy(&decoded_bytes(uri)).to_lowercase()
}

/// The text with its escapes decoded once, if that is UTF-8.
fn decoded(text: &str) -> Result<String, FromUtf8Error> {
    String::from_utf8(decoded_bytes(text))
}

fn decoded_bytes(text: &str) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        match (first, hex_pair(after)) {
            (b'%', Some(byte)) => {
                bytes.push(byte);
                rest = after.get(2..).unwrap_or_default();
            }
            _ => {
                bytes.push(*first);
                rest = after;
            }
        }
    }
    bytes
}

/// Whether a URI has no other spelling or reading, so that every server understands it alike.
///
/// It must be visible ASCII without dot segments, empty segments or a fragment. It must not escape
/// characters that need no escape (RFC 3986, section 6.2.2). Scheme and authority must be in lower
/// case. A `file:` URI must have no host, because any host may mean this machine (RFC 8089, section
/// 2). It needs its slashes, and so does `http:`: readers after the URL standard of WHATWG add
/// missing ones. Some servers extend the path beyond `?` or cut it at `;`, so no part there may look
/// like a dot segment either.
pub fn is_plain(uri: &str) -> bool {
    let is_visible = uri
        .bytes()
        .all(|byte| byte.is_ascii_graphic() && !matches!(byte, b'\\' | b'#'));
    let Some((scheme, rest)) = uri.split_once(':').filter(|_| is_visible) else {
        return false;
    };
    let is_lower = |text: &str| !text.bytes().any(|byte| byte.is_ascii_uppercase());
    let (authority, after) = match rest.strip_prefix("//") {
        Some(rest) => rest.split_at(rest.find(['/', '?']).unwrap_or(rest.len())),
        // `x:/a` may mean the same as `x:///a` (RFC 8089, appendix B), and `file:a` as `file:///a`.
        None if rest.starts_with('/') || SLASHED.contains(&scheme) => return false,
        None => ("", rest),
    };
    let path = after.split_once('?').map_or(after, |(path, _)| path);
    is_lower(scheme)
        && is_lower(authority)
        && is_plain_authority(scheme, authority)
        && has_needed_escapes_only(after)
        && is_plain_path(scheme, path)
        && decoded(after).is_ok_and(|text| has_one_form(&text))
}

/// The schemes whose URIs have an authority, whether it is written so or not ("special" schemes of the
/// URL standard of WHATWG).
const SLASHED: [&str; 6] = ["file", "ftp", "http", "https", "ws", "wss"];

/// Whether the authority has only one spelling: no user, escape, empty or default port, or dot at
/// the end.
fn is_plain_authority(scheme: &str, authority: &str) -> bool {
    let port = authority.rsplit_once(':').map(|(_, port)| port);
    let is_default = matches!(
        (scheme, port),
        (_, Some("")) | ("http" | "ws", Some("80")) | ("https" | "wss", Some("443"))
    );
    let host = port.map_or(authority, |port| {
        authority.strip_suffix(port).unwrap_or(authority)
    });
    !authority.contains(['@', '%'])
        && !is_default
        && !host.trim_end_matches(':').ends_with('.')
        && (scheme != "file" || authority.is_empty())
}

/// Whether a path has no parameters and no empty segment except the last one.
fn is_plain_path(scheme: &str, path: &str) -> bool {
    let segments: Vec<_> = path.strip_prefix('/').unwrap_or(path).split('/').collect();
    let last = segments.len().saturating_sub(1);
    // Systems with drives read another stream of the same file after a colon; `c|` is `c:`.
    let has_stream = scheme == "file"
        && (path.contains('|') || segments.iter().skip(1).any(|segment| segment.contains(':')));
    let has_two_paths = scheme == "file" && leads_elsewhere(&segments);
    let has_gap = segments
        .iter()
        .enumerate()
        .any(|(at, segment)| segment.is_empty() && at != last);
    !(path.contains(';') || has_stream || has_two_paths || has_gap)
}

/// Whether a Linux path leads to a file that also has another path, such as `/proc/self/root/etc`.
fn leads_elsewhere(segments: &[&str]) -> bool {
    match segments {
        ["proc", rest @ ..] => rest
            .iter()
            .any(|segment| ["root", "cwd", "fd", "exe", "map_files"].contains(segment)),
        ["dev", "fd", ..] => true,
        _ => false,
    }
}

/// Whether no part of a decoded text is or becomes a dot segment, whatever separates parts. Some
/// systems drop dots and spaces at the end of a name, and some servers replace look-alike
/// characters.
fn has_one_form(text: &str) -> bool {
    let ends_part = |c: char| matches!(c, '/' | '?' | '#' | ';' | '&' | '=' | '\\' | ',');
    text.split(ends_part)
        .all(|part| !part.ends_with(['.', ' ']))
        && !text.contains(looks_like_punctuation)
}

/// Whether Unicode normalization (NFKC) can turn a character into punctuation: dots, slashes, and
/// the full-width forms of all ASCII.
fn looks_like_punctuation(c: char) -> bool {
    matches!(c, '\u{2024}'..='\u{2026}' | '\u{2100}'..='\u{2106}' | '\u{fe10}'..='\u{fe6f}' | '\u{ff00}'..='\u{ffef}')
        || c.is_control()
}

fn has_needed_escapes_only(text: &str) -> bool {
    text.split('%').skip(1).all(|after| {
        let decoded = hex_pair(after.as_bytes());
        let is_needless = |byte: u8| {
            // With braces it would be a template for a server that decodes it.
            byte.is_ascii_alphanumeric() || b"-._~/\\%{}".contains(&byte) || byte.is_ascii_control()
        };
        decoded.is_some_and(|byte| !is_needless(byte))
    })
}

fn hex_pair(text: &[u8]) -> Option<u8> {
    let (high, low) = (text.first()?, text.get(1)?);
    let digit = |byte: &u8| {
        char::from(*byte)
            .to_digit(16)
            .and_then(|digit| u8::try_from(digit).ok())
    };
    Some(digit(high)? << 4 | digit(low)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_uris_have_one_reading() {
        for uri in [
            "file:///srv/docs/a.txt",
            "file:///srv/docs/",
            "file:///a%20b/%C3%A9",
            "https://example.com:8080/a?b=c&d=https://e.example/f",
            "https://[::1]:8080/a",
            "file:///c:/x",
            "file:///proc/cpuinfo",
            "file:///srv/proc/self/root/x",
            "urn:isbn:1",
            "x://host",
            "x:a/b",
        ] {
            assert!(is_plain(uri), "{uri}");
        }
        for uri in [
            "",
            "plain",
            "file:///srv/docs/../private",
            "file:///srv/./docs",
            "file:////private",
            "file:///srv//private",
            "file:///srv/docs/..",
            "file:///srv/%2e%2e/private",
            "file:///srv/%2E./private",
            "file:///srv/docs%2f..%2fprivate",
            "file:///srv/docs%5c..",
            "file:///srv/%70rivate",
            "file:///srv/a%00",
            "file:///srv/a%2500",
            "file:///srv/a%zz",
            "file:///srv/a%2",
            "file:///srv/a b",
            "file:///srv\\private",
            "file:///srv/é",
            "file:///srv/a#b",
            "FILE:///srv/a",
            "file://localhost/private",
            "x://Host/a",
            "x://user@host/a",
            "x:../a",
            "x:/a",
            "file:/srv/a",
            "file:srv/a",
            "https:example.com/a",
            "file:///c|/a",
            "file:///srv/x?/../../private/y",
            "file:///srv/x?..",
            "file:///srv/x?a=..&b",
            "file:///srv/..;/private/y",
            "file:///srv/..;a=b/private/y",
            "file:///srv/..%3b/private/y",
            "file:///srv/..%3B",
            "file:///srv/a;b/c",
            "file:///srv/x%3f/../y",
            "file:///srv/x%3f..",
            "file:///srv/x%23..",
            "file:///srv/%2e%2e;/private",
            "file:///srv/x?%2e%2e/y",
            "file:///srv/x?%2E%2E%2Fy",
            "file:///srv/x?a\\..\\y",
            "file:///srv/..%20/private",
            "file:///srv/.../private",
            "file:///srv/key.",
            "file:///srv/key%20",
            "file:///srv/key.txt::$DATA",
            "file:///srv/%EF%BC%8E%EF%BC%8E/private",
            "file:///srv/%E2%80%A5/private",
            "file:///srv/a%EF%BC%8Fb",
            "file:///srv/%c0%ae%c0%ae/private",
            "file:///srv/%c2%85",
            "file:///proc/self/root/private",
            "file:///proc/1/task/1/cwd/private",
            "file:///dev/fd/3",
            "file:///%7B+path%7D",
            "https://example.com:443/a",
            "https://example.com:/a",
            "http://example.com:80/a",
            "https://example.com./a",
            "https://example.com.:8080/a",
        ] {
            assert!(!is_plain(uri), "{uri}");
        }
    }

    #[test]
    fn folding_decodes_once_and_ignores_case() {
        assert_eq!(
            folded("file:///Srv/%53ECRET%2Fx%25"),
            "file:///srv/secret/x%"
        );
        assert_eq!(folded("a%C3%89%zz%"), "aé%zz%");
    }
}
