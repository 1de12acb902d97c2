//! Suggestions for misspelt names.

use fanlight_protocol::visible::plain;

/// The limit of suggested names.
const MOST: usize = 3;
/// The least similarity of a suggested name; 1 means equal.
const LIKENESS: f64 = 0.85;

/// Text to append to a message that `name` does not exist: the similar names in `known`, or
/// nothing.
pub fn did_you_mean<'a>(name: &str, known: impl Iterator<Item = &'a str>) -> String {
    let meant: Vec<String> = closest(name, known)
        .into_iter()
        .map(|name| plain(name, 100))
        .collect();
    match meant.as_slice() {
        [] => String::new(),
        meant => format!("; did you mean {}?", meant.join(" or ")),
    }
}

/// The same for a pattern in which `*` matches any characters: the name in `known` most similar to
/// its other characters.
pub fn did_the_pattern_mean(pattern: &str, known: impl Iterator<Item = String>) -> String {
    let wanted = pattern.replace('*', "").to_lowercase();
    let length = wanted.chars().count();
    let compared = |name: &str| -> String {
        let name = name.to_lowercase();
        match (pattern.starts_with('*'), pattern.ends_with('*')) {
            (false, true) => name.chars().take(length).collect(),
            (true, false) => name
                .chars()
                .skip(name.chars().count().saturating_sub(length))
                .collect(),
            _ => name,
        }
    };
    let found = known.map(|name| (likeness(&wanted, &compared(&name)), name));
    let nearest = found
        .filter(|(like, _)| !wanted.is_empty() && *like > LIKENESS)
        .max_by(|(a, one), (b, other)| {
            // Among equally similar names, prefer the shortest.
            a.total_cmp(b)
                .then_with(|| other.len().cmp(&one.len()))
                .then_with(|| other.cmp(one))
        });
    nearest
        .map(|(_, name)| format!("; did you mean {}?", plain(&name, 100)))
        .unwrap_or_default()
}

/// The most similar names in `known`, best first.
fn closest<'a>(name: &str, known: impl Iterator<Item = &'a str>) -> Vec<&'a str> {
    let wanted = name.to_lowercase();
    let mut found: Vec<(f64, &str)> = known
        .map(|known| (likeness(&wanted, &known.to_lowercase()), known))
        .filter(|(like, _)| *like > LIKENESS)
        .collect();
    found.sort_by(|(a, one), (b, other)| b.total_cmp(a).then_with(|| one.cmp(other)));
    found.dedup();
    found.into_iter().map(|(_, name)| name).take(MOST).collect()
}

/// The similarity, from 0 to 1. A missing or additional server prefix does not lower it.
fn likeness(one: &str, other: &str) -> f64 {
    let (short, long) = if one.len() < other.len() {
        (one, other)
    } else {
        (other, one)
    };
    let before = long.strip_suffix(short).filter(|_| !short.is_empty());
    if before.is_some_and(|before| before.is_empty() || before.ends_with(['_', '-', '.', '/', ':']))
    {
        return 1.0;
    }
    let last = |name: &str| name.rsplit("__").next().unwrap_or_default().to_owned();
    strsim::jaro_winkler(one, other).max(0.99 * strsim::jaro_winkler(&last(one), &last(other)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tool_is_found_without_its_prefix_and_despite_a_slip() {
        let known = [
            "shop__flaky",
            "shop__order",
            "library__search_books",
            "library__renew",
        ];
        let closest = |name| closest(name, known.into_iter());
        assert_eq!(closest("flaky"), ["shop__flaky"]);
        assert_eq!(closest("Shop__Flaky"), ["shop__flaky"]);
        assert_eq!(closest("serch_books"), ["library__search_books"]);
        assert_eq!(closest("bookshop__flaky")[0], "shop__flaky");
        assert!(closest("weather").is_empty() && closest("").is_empty());
    }

    #[test]
    fn pattern_is_compared_with_what_it_leaves_of_a_name() {
        let known = || {
            [
                "delete_entities",
                "memory/delete_entities",
                "memory__delete_entities",
                "read_graph",
            ]
        };
        let meant = |pattern| did_the_pattern_mean(pattern, known().into_iter().map(str::to_owned));
        for (pattern, name) in [
            ("delte_*", "delete_entities"),
            ("memory/delet_*", "memory/delete_entities"),
            ("memry__delete_*", "memory__delete_entities"),
            ("*_entites", "delete_entities"),
            ("red_graph", "read_graph"),
            ("READ_*", "read_graph"),
        ] {
            assert_eq!(
                meant(pattern),
                format!("; did you mean {name}?"),
                "{pattern}"
            );
        }
        assert_eq!(meant("zzz_*"), "");
        assert_eq!(meant("*"), "");
    }

    #[test]
    fn sentence_has_at_most_three_names() {
        assert_eq!(did_you_mean("x", ["weather"].into_iter()), "");
        assert_eq!(
            did_you_mean("sho", ["shop", "show", "shot", "shoe"].into_iter())
                .matches(" or ")
                .count(),
            2
        );
    }
}
