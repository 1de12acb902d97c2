//! Patterns in which `*` stands for any characters.

/// Whether a pattern with `*` matches a whole name. Takes at most the product of both lengths.
pub fn matches(pattern: &str, name: &str) -> bool {
    let Some((head, rest)) = pattern.split_once('*') else {
        return pattern == name;
    };
    let Some(mut name) = name.strip_prefix(head) else {
        return false;
    };
    // Finding each part as early as possible is best, except for the last one, which must end the
    // name.
    let mut rest = rest;
    while let Some((part, after)) = rest.split_once('*') {
        let Some(at) = name.find(part) else {
            return false;
        };
        name = name.get(at + part.len()..).unwrap_or_default();
        rest = after;
    }
    name.ends_with(rest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_match_whole_names() {
        for (pattern, name) in [
            ("read", "read"),
            ("*", ""),
            ("*", "anything"),
            ("read_*", "read_"),
            ("*_file", "read_file"),
            ("a*b*c", "a-b-b-c"),
            ("*b*b*", "bb"),
            ("**", "x"),
            ("é*", "éa"),
        ] {
            assert!(matches(pattern, name), "{pattern} {name}");
        }
        for (pattern, name) in [
            ("read", "read_file"),
            ("read", "Read"),
            ("", "x"),
            ("*_file", "read_files"),
            ("a*a", "a"),
            ("*b*b*", "b"),
            ("ab*bc", "abc"),
        ] {
            assert!(!matches(pattern, name), "{pattern} {name}");
        }
    }
}
