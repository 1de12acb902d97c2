//! Whether a URI has only one reading: a server resolves `..`, decodes `%2e` and ignores case, a pattern does not.

/// A text in which what a pattern denies is searched: the URI decoded and in lower case.
pub(super) fn folded(uri: &str) -> String {
    let mut bytes = Vec::with_capacity(uri.len());
    let mut rest = uri.as_bytes();
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
    String::from_utf8_lossy(&bytes).to_lowercase()
}

/// Whether servers have no other reading of a URI than its text: visible ASCII, no dot segments or empty segments, no
/// escapes of what needs none (RFC 3986, section 6.2.2), scheme and authority in lower case, no fragment, and no host in
/// a `file:` URI, where all hosts may mean this machine (RFC 8089, section 2).
pub(super) fn is_plain(uri: &str) -> bool {
    let is_visible = uri.bytes().all(|byte| byte.is_ascii_graphic() && !matches!(byte, b'\\' | b'#'));
    let Some((scheme, rest)) = uri.split_once(':').filter(|_| is_visible) else { return false };
    let is_lower = |text: &str| !text.bytes().any(|byte| byte.is_ascii_uppercase());
    let (authority, after) = match rest.strip_prefix("//") {
        Some(rest) => rest.split_at(rest.find(['/', '?']).unwrap_or(rest.len())),
        None => ("", rest),
    };
    let path = after.split_once('?').map_or(after, |(path, _)| path);
    let segments: Vec<_> = path.strip_prefix('/').unwrap_or(path).split('/').collect();
    let last = segments.len().saturating_sub(1);
    let is_segment = |(at, segment): (usize, &&str)| match *segment {
        "." | ".." => false,
        "" => at == last,
        _ => true,
    };
    is_lower(scheme)
        && is_lower(authority)
        && !authority.contains(['@', '%'])
        && (scheme != "file" || authority.is_empty())
        && segments.iter().enumerate().all(is_segment)
        && has_needed_escapes_only(after)
}

fn has_needed_escapes_only(text: &str) -> bool {
    text.split('%').skip(1).all(|after| {
        let decoded = hex_pair(after.as_bytes());
        let is_needless =
            |byte: u8| byte.is_ascii_alphanumeric() || b"-._~/\\%".contains(&byte) || byte.is_ascii_control();
        decoded.is_some_and(|byte| !is_needless(byte))
    })
}

fn hex_pair(text: &[u8]) -> Option<u8> {
    let (high, low) = (text.first()?, text.get(1)?);
    let digit = |byte: &u8| char::from(*byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
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
            "https://example.com:8080/a?b=/../c",
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
        ] {
            assert!(!is_plain(uri), "{uri}");
        }
    }

    #[test]
    fn folding_decodes_once_and_ignores_case() {
        assert_eq!(folded("file:///Srv/%53ECRET%2Fx%25"), "file:///srv/secret/x%");
        assert_eq!(folded("a%C3%89%zz%"), "aé%zz%");
    }
}
