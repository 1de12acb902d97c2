//! Tests whether a URI can have come from a resource template (RFC 6570).
//!
//! This is for routing only: a variable matches any text that its operator could have produced. The
//! literal text at both ends is compared first, which rules out most templates. The rest takes URI
//! length × number of variables, and the length of URIs is limited.

/// A parsed template.
#[derive(Clone, Debug)]
pub struct UriTemplate(Vec<Part>);

#[derive(Clone, Debug)]
enum Part {
    /// Literal text.
    Literal(String),
    /// `{var}`, `{.var}`, `{;var}`: any text within one path segment.
    Segment,
    /// `{+var}`, `{#var}`, `{/var}`, `{?var}`, `{&var}`: any text, or none at all.
    Anything,
}

impl UriTemplate {
    /// Parses `template`. Returns `None` if its braces do not pair up or it has no variable.
    pub fn parse(template: &str) -> Option<Self> {
        let mut parts = Vec::new();
        let mut rest = template;
        while let Some((literal, after)) = rest.split_once('{') {
            let (expression, tail) = after.split_once('}')?;
            if !literal.is_empty() {
                parts.push(Part::Literal(literal.to_owned()));
            }
            parts.push(match expression.as_bytes().first()? {
                b'+' | b'#' | b'/' | b'?' | b'&' => Part::Anything,
                _ => Part::Segment,
            });
            rest = tail;
        }
        if parts.is_empty() || rest.contains('}') {
            return None;
        }
        if !rest.is_empty() {
            parts.push(Part::Literal(rest.to_owned()));
        }
        Some(Self(parts))
    }

    /// Whether `uri` can be an expansion of the template.
    pub fn matches(&self, uri: &str) -> bool {
        let mut text = uri.as_bytes();
        let mut parts = self.0.as_slice();
        if let [Part::Literal(prefix), rest @ ..] = parts {
            let Some(after) = text.strip_prefix(prefix.as_bytes()) else {
                return false;
            };
            (text, parts) = (after, rest);
        }
        if let [rest @ .., Part::Literal(suffix)] = parts {
            let Some(before) = text.strip_suffix(suffix.as_bytes()) else {
                return false;
            };
            (text, parts) = (before, rest);
        }
        // `reached[i]`: the parts so far can have produced the first `i` bytes.
        let mut reached = vec![false; text.len() + 1];
        if let Some(first) = reached.first_mut() {
            *first = true;
        }
        for part in parts {
            reached = part.advance(text, &reached);
        }
        reached.last() == Some(&true)
    }
}

impl Part {
    fn advance(&self, text: &[u8], reached: &[bool]) -> Vec<bool> {
        let mut next = vec![false; reached.len()];
        let mut running = false;
        for at in 0..reached.len() {
            let here = reached.get(at) == Some(&true);
            let (target, hit) = match self {
                Self::Literal(literal) => {
                    let ends = at + literal.len();
                    (ends, here && text.get(at..ends) == Some(literal.as_bytes()))
                }
                Self::Anything => {
                    running |= here;
                    (at, running)
                }
                Self::Segment => {
                    // At least one character, and no slash.
                    let hit = running && at > 0 && text.get(at - 1) != Some(&b'/');
                    running = hit || here;
                    (at, hit)
                }
            };
            if hit && let Some(slot) = next.get_mut(target) {
                *slot = true;
            }
        }
        next
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn matches(template: &str, uri: &str) -> bool {
        UriTemplate::parse(template).is_some_and(|template| template.matches(uri))
    }

    #[test]
    fn template_matches_its_expansions_only() {
        assert!(matches("file:///{path}", "file:///a"));
        assert!(!matches("file:///{path}", "file:///a/b"));
        assert!(!matches("file:///{path}", "file:///"));
        assert!(matches("file:///{+path}", "file:///a/b"));
        assert!(matches(
            "db://{table}/rows/{id}.json",
            "db://users/rows/7.json"
        ));
        assert!(!matches(
            "db://{table}/rows/{id}.json",
            "db://users/rows/7.xml"
        ));
        assert!(matches("q://x{?a,b}", "q://x?a=1&b=2"));
        assert!(matches("q://x{?a,b}", "q://x"));
        assert!(matches("{a}{b}", "xy"));
        assert!(!matches("{a}{b}", "x"));
        assert!(matches("a/{x}/a", "a/b/a"));
        assert!(!matches("aa{+x}aa", "aaa"), "the ends do not overlap");
        assert!(matches("aa{+x}aa", "aaaa"));
        assert!(UriTemplate::parse("no variables").is_none());
        assert!(UriTemplate::parse("broken{").is_none());
    }
}
