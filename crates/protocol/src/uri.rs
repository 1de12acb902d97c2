//! Finds the resources that a URI can be part of; the scheme of Fanlight's own resources.

/// The beginning of the URIs of results that Fanlight keeps. The rest of such a URI is a secret of its client.
pub const KEPT_RESULT: &str = "fanlight-result:";

/// The rest of a URI of a result that Fanlight keeps. A scheme has no case (RFC 3986, 3.1).
pub fn kept_result(uri: &str) -> Option<&str> {
    let (scheme, rest) = uri.split_at_checked(KEPT_RESULT.len())?;
    scheme.eq_ignore_ascii_case(KEPT_RESULT).then_some(rest)
}

/// The most parts of one URI. Each part is looked up by its text, so a URI of separators alone
/// would otherwise cost the square of its length.
const PARTS: usize = 64;

/// The prefixes of a URI that can name a resource containing it, at most 64. The URI itself comes
/// last.
pub fn with_parents(uri: &str) -> impl Iterator<Item = &str> {
    let ends = uri
        .bytes()
        .enumerate()
        .filter(|(_, byte)| matches!(byte, b'/' | b'?' | b'#'));
    let parents = ends
        .flat_map(|(at, _)| [at, at + 1])
        .filter(|end| *end < uri.len() && *end > 0);
    let mut last = 0;
    let parents = parents
        .filter(move |end| std::mem::replace(&mut last, *end) != *end)
        .take(PARTS);
    parents.chain([uri.len()]).filter_map(|end| uri.get(..end))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prefixes_end_at_separators() {
        let parents: Vec<_> = with_parents("a://b/c?d").collect();
        assert_eq!(
            parents,
            [
                "a:",
                "a:/",
                "a://",
                "a://b",
                "a://b/",
                "a://b/c",
                "a://b/c?",
                "a://b/c?d"
            ]
        );
        assert_eq!(with_parents("a/").collect::<Vec<_>>(), ["a", "a/"]);
        assert_eq!(with_parents("x").collect::<Vec<_>>(), ["x"]);
        assert_eq!(with_parents("é/ü").collect::<Vec<_>>(), ["é", "é/", "é/ü"]);
    }

    #[test]
    fn prefixes_of_a_uri_of_separators_are_bounded() {
        let long = "/".repeat(1 << 20);
        let parts: Vec<_> = with_parents(&long).collect();
        assert_eq!(
            (parts.len(), parts.first(), parts.last()),
            (PARTS + 1, Some(&"/"), Some(&long.as_str()))
        );
    }
}
