//! Suggestions for misspelt names.

use crate::show::plain;

/// Most names that are suggested.
const MOST: usize = 3;
/// Least likeness of two names, of 1.
const LIKENESS: f64 = 0.85;

/// Text to append to a message that `name` does not exist: the similar names in `known`, or nothing.
pub(crate) fn did_you_mean<'a>(name: &str, known: impl Iterator<Item = &'a str>) -> String {
    let meant: Vec<String> = closest(name, known).into_iter().map(|name| plain(name, 100)).collect();
    match meant.as_slice() {
        [] => String::new(),
        meant => format!("; did you mean {}?", meant.join(" or ")),
    }
}

/// The names of `known` that are most like `name`, the most similar first.
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

/// From 0 to 1. A name without the prefix of its server is as like as can be, as is one with a prefix that is not there.
fn likeness(one: &str, other: &str) -> f64 {
    let (short, long) = if one.len() < other.len() { (one, other) } else { (other, one) };
    let before = long.strip_suffix(short).filter(|_| !short.is_empty());
    if before.is_some_and(|before| before.is_empty() || before.ends_with(['_', '-', '.', '/', ':'])) {
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
        let known = ["shop__flaky", "shop__order", "library__search_books", "library__renew"];
        let closest = |name| closest(name, known.into_iter());
        assert_eq!(closest("flaky"), ["shop__flaky"]);
        assert_eq!(closest("Shop__Flaky"), ["shop__flaky"]);
        assert_eq!(closest("serch_books"), ["library__search_books"]);
        assert_eq!(closest("bookshop__flaky")[0], "shop__flaky");
        assert!(closest("weather").is_empty() && closest("").is_empty());
    }

    #[test]
    fn sentence_has_at_most_three_names() {
        assert_eq!(did_you_mean("x", ["weather"].into_iter()), "");
        assert_eq!(did_you_mean("sho", ["shop", "show", "shot", "shoe"].into_iter()).matches(" or ").count(), 2);
    }
}
