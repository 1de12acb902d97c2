//! The words of definitions and queries: parts of names, stems and synonyms.

use std::collections::HashMap;
use std::sync::LazyLock;

use foldhash::fast::RandomState;

/// Words that say nothing about a tool, in alphabetical order.
static STOP: LazyLock<Vec<&str>> =
    LazyLock::new(|| include_str!("stop.txt").split_whitespace().collect());

/// The endings that stems lack: ending, replacement, and the least bytes that must remain.
const ENDINGS: [(&str, &str, usize); 16] = [
    ("ization", "iz", 3),
    ("isation", "iz", 3),
    ("ational", "at", 3),
    ("ingly", "", 3),
    ("edly", "", 3),
    ("ement", "", 4),
    ("ment", "", 4),
    ("ness", "", 4),
    ("ing", "", 3),
    ("ed", "", 3),
    ("tion", "t", 3),
    ("sion", "s", 3),
    ("ers", "", 4),
    ("er", "", 4),
    ("or", "", 4),
    ("ly", "", 4),
];

/// A general list of words with similar meanings, one group a line.
static SYNONYMS: LazyLock<HashMap<String, Vec<String>, RandomState>> = LazyLock::new(|| {
    let mut all: HashMap<String, Vec<String>, RandomState> = HashMap::default();
    let lines = include_str!("synonyms.txt").lines();
    for line in lines.filter(|line| !line.starts_with('#')) {
        let stems: Vec<_> = line.split_whitespace().map(stem).collect();
        for one in &stems {
            let known = all.entry(one.clone()).or_default();
            known.extend(stems.iter().filter(|other| *other != one).cloned());
        }
    }
    all
});

/// The stems of the synonyms of a stem.
pub(super) fn synonyms(stem: &str) -> &'static [String] {
    SYNONYMS.get(stem).map_or(&[], Vec::as_slice)
}

/// Whether a word in lower case says nothing about a tool.
pub(super) fn is_stop(word: &str) -> bool {
    STOP.binary_search(&word).is_ok()
}

/// The stem of a word in lower case. English endings are cut roughly; the same is done to both
/// sides of a comparison.
pub(super) fn stem(word: &str) -> String {
    let mut stem = word.to_owned();
    if !stem.is_ascii() || stem.bytes().any(|byte| byte.is_ascii_digit()) {
        return stem;
    }
    singular(&mut stem);
    if stem.len() < 4 {
        return stem;
    }
    let has_vowel = |text: &str| text.bytes().any(|byte| b"aeiouy".contains(&byte));
    let cut = ENDINGS.iter().find_map(|(ending, with, least)| {
        let rest = stem.strip_suffix(ending)?;
        let is_word = rest.len() + with.len() >= *least && has_vowel(rest);
        (is_word && !(*ending == "ed" && rest.ends_with('e'))).then(|| format!("{rest}{with}"))
    });
    if let Some(cut) = cut {
        stem = cut;
        // "mapping" is "map".
        if let [.., before, last] = stem.as_bytes()
            && before == last
            && stem.len() > 3
            && !b"aeiouylsz".contains(last)
        {
            stem.pop();
        }
    }
    if stem.len() > 3 && stem.ends_with('e') {
        stem.pop();
    }
    if stem.ends_with('y') {
        stem.pop();
        stem.push('i');
    }
    stem
}

fn singular(word: &mut String) {
    let ends = |ending: &str| word.ends_with(ending);
    let cut = match word.len() {
        0..=2 => 0,
        3 if ends("as") => 0,
        5.. if ends("ies") => {
            word.truncate(word.len() - 3);
            word.push('y');
            return;
        }
        5.. if ["sses", "ches", "shes", "xes"].iter().any(|it| ends(it)) => 2,
        _ if ends("s") && !["ss", "us", "is"].iter().any(|it| ends(it)) => 1,
        _ => 0,
    };
    word.truncate(word.len() - cut);
}

/// Calls `each` with every word of a text, in lower case. Names are taken apart where letters and
/// digits meet or capitals begin a word. Scripts without spaces give pairs of characters.
pub(super) fn for_each_word(text: &str, mut each: impl FnMut(&str)) {
    let mut word = String::new();
    let mut before: Option<char> = None;
    let mut chars = text.chars().peekable();
    let mut end = |word: &mut String| {
        if !word.is_empty() {
            each(word);
            word.clear();
        }
    };
    while let Some(c) = chars.next() {
        let next = chars.peek().copied();
        if is_ideograph(c) {
            if !before.is_some_and(is_ideograph) {
                end(&mut word);
            }
            word.push(c);
            match next.filter(|next| is_ideograph(*next)) {
                Some(next) => {
                    word.push(next);
                    end(&mut word);
                }
                // The pair before has it.
                None if before.is_some_and(is_ideograph) => word.clear(),
                None => end(&mut word),
            }
        } else if c.is_alphanumeric() {
            let begins = before.is_some_and(|before| begins_word(before, c, next));
            if begins {
                end(&mut word);
            }
            match c.is_ascii() {
                // Most words are, and the general way takes several times as long.
                true => word.push(c.to_ascii_lowercase()),
                false => word.extend(c.to_lowercase()),
            }
        } else if matches!(c, '\'' | '\u{2019}') && next == Some('s') {
            chars.next();
        } else {
            end(&mut word);
        }
        before = Some(c);
    }
    end(&mut word);
}

/// Whether `c` begins a word although `before` is a letter or digit.
fn begins_word(before: char, c: char, next: Option<char>) -> bool {
    let ends_capitals =
        before.is_uppercase() && c.is_uppercase() && next.is_some_and(char::is_lowercase);
    (before.is_lowercase() && c.is_uppercase())
        || ends_capitals
        || (before.is_alphanumeric() && before.is_numeric() != c.is_numeric())
        || is_ideograph(before)
}

fn is_ideograph(c: char) -> bool {
    matches!(c, '\u{3040}'..='\u{30ff}' | '\u{3400}'..='\u{9fff}' | '\u{ac00}'..='\u{d7af}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_taken_apart() {
        let words = |text| {
            let mut all = Vec::new();
            for_each_word(text, |word| all.push(word.to_owned()));
            all.join(" ")
        };
        assert_eq!(words("getHTTPResponse2x"), "get http response 2 x");
        assert_eq!(words("list_the-Files, user's"), "list the files user");
        assert_eq!(words("查询余票abc"), "查询 询余 余票 abc");
        assert_eq!(words("a 票 b"), "a 票 b");
    }

    #[test]
    fn forms_of_a_word_have_one_stem() {
        for forms in [
            "create creates created creating creation",
            "map maps mapped mapping",
            "query queries",
            "branch branches",
            "deploy deployment deploying",
            "calculate calculator calculation",
        ] {
            let mut stems: Vec<_> = forms.split(' ').map(stem).collect();
            stems.dedup();
            assert_eq!(stems.len(), 1, "{stems:?}");
        }
        assert_eq!(stem("string"), "string");
        assert_eq!(stem("need"), "need");
    }

    #[test]
    fn stop_words_are_in_order() {
        assert!(STOP.is_sorted());
        assert!(is_stop("the") && !is_stop("file"));
    }
}
