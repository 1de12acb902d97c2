//! The words of one server's tools, weighted by field, and of queries: parts of names, stems and
//! synonyms.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::LazyLock;

use fanlight_protocol::Json;
use fanlight_protocol::json::Kind;
use foldhash::fast::RandomState;

use super::{FIELDS, LENGTH, ToolText};

/// A term in a tool: the tool's number among its server's tools, and the term's weight in it.
type Posting = (u32, f32);

/// The words of one server's tools.
#[derive(Debug)]
pub(crate) struct ToolWords {
    tools: u32,
    /// The stems, each with the end of its postings.
    terms: Box<[(Box<str>, usize)]>,
    postings: Box<[Posting]>,
}

/// The limit of one server's words as they are written. A list that is larger than any real one is
/// indexed in part: each word takes many times its bytes.
const WORDS: usize = 1 << 17;
/// The limit of one server's postings.
const POSTINGS: usize = 1 << 22;
/// The limit of the words of one field of a tool.
const FIELD_WORDS: usize = 1 << 12;

/// Collects postings by term.
#[derive(Default)]
struct Builder {
    /// The terms of words as they are written; `None` for stop words.
    known: HashMap<String, Option<usize>, RandomState>,
    postings: usize,
    /// The number of each stem.
    numbers: HashMap<String, usize, RandomState>,
    terms: Vec<(String, Vec<Posting>)>,
}

impl Builder {
    fn term(&mut self, word: &str) -> Option<usize> {
        if let Some(known) = self.known.get(word) {
            return *known;
        }
        if self.known.len() >= WORDS {
            return None;
        }
        let term = (!is_stop(word)).then(|| {
            let stem = stem(word);
            let number = self.numbers.entry(stem.clone());
            *number.or_insert_with(|| {
                self.terms.push((stem, Vec::new()));
                self.terms.len() - 1
            })
        });
        self.known.insert(word.to_owned(), term);
        term
    }

    fn add(&mut self, tool: u32, text: &ToolText<'_>) {
        for ((weight, usual), text) in FIELDS.iter().zip(&text.0) {
            let mut found = Vec::new();
            for_each_word(text, |word| {
                if found.len() < FIELD_WORDS {
                    found.extend(self.term(word));
                }
            });
            let weight = weight / (1.0 - LENGTH + LENGTH * found.len() as f32 / usual);
            for term in found {
                let Some((_, postings)) = self.terms.get_mut(term) else {
                    continue;
                };
                match postings.last_mut() {
                    Some((last, sum)) if *last == tool => *sum += weight,
                    _ if self.postings < POSTINGS => {
                        self.postings += 1;
                        postings.push((tool, weight));
                    }
                    _ => {}
                }
            }
        }
    }
}

impl ToolWords {
    /// The words of a server's tools, in the order of its list.
    pub(crate) fn new<'a>(tools: impl Iterator<Item = ToolText<'a>>) -> Self {
        let mut builder = Builder::default();
        let mut count = 0;
        for text in tools {
            builder.add(count, &text);
            count += 1;
        }
        let (stems, postings): (Vec<_>, Vec<_>) = builder.terms.into_iter().unzip();
        let mut end = 0;
        let terms = stems.into_iter().zip(&postings).map(|(stem, postings)| {
            end += postings.len();
            (stem.into(), end)
        });
        Self {
            tools: count,
            terms: terms.collect(),
            postings: postings.concat().into(),
        }
    }

    /// The number of tools.
    pub(super) fn tools(&self) -> usize {
        self.tools as usize
    }

    /// The stems, in the order of their numbers.
    pub(super) fn stems(&self) -> impl Iterator<Item = &str> {
        self.terms.iter().map(|(stem, _)| &**stem)
    }

    /// The tools that have the term with this number.
    pub(super) fn postings(&self, term: usize) -> &[Posting] {
        let end = |term: usize| self.terms.get(term).map(|(_, end)| *end);
        let start = term.checked_sub(1).and_then(end).unwrap_or_default();
        let postings = end(term).and_then(|end| self.postings.get(start..end));
        postings.unwrap_or_default()
    }
}

/// Limits of the indexed part of one tool's schema: bytes, levels, and elements of an array.
const INDEXED: (usize, usize, usize) = (16 << 10, 12, 20);

impl ToolText<'static> {
    /// The texts of the tool with this name and definition, of the server with this name.
    pub(crate) fn new(server: &str, name: &str, tool: &Json) -> Self {
        let text = |member: &str| {
            let text = tool.peek(member).and_then(|text| text.as_str());
            text.unwrap_or_default().into_owned()
        };
        let description = text("description");
        let description = description.trim();
        let (first, rest) = description.split_at(first_sentence(description));
        let (mut names, mut texts) = (String::new(), String::new());
        if let Some(schema) = tool.get("inputSchema") {
            collect_texts(&schema, 0, &mut names, &mut texts);
        }
        let fields = [
            name.into(),
            text("title"),
            first.into(),
            rest.into(),
            names,
            texts,
            server.into(),
        ];
        Self(fields.map(Cow::Owned))
    }
}

/// The end of the first sentence.
fn first_sentence(text: &str) -> usize {
    let ends = |(at, c): &(usize, char)| match c {
        '\n' | '。' => true,
        '.' => text[at + 1..]
            .chars()
            .next()
            .is_none_or(char::is_whitespace),
        _ => false,
    };
    let end = text.char_indices().find(ends);
    end.map_or(text.len(), |(at, c)| at + c.len_utf8())
}

/// Collects the names and the descriptions of a schema's parameters.
fn collect_texts(schema: &Json, level: usize, names: &mut String, texts: &mut String) {
    let (bytes, levels, elements) = INDEXED;
    if level > levels || names.len() + texts.len() > bytes {
        return;
    }
    for member in schema.members() {
        let value = schema.slice(member.value.clone());
        if member.is(schema, "properties") {
            for property in value.members() {
                names.extend([&*property.name(&value).unwrap_or_default(), " "]);
                collect_texts(&value.slice(property.value), level + 1, names, texts);
            }
        } else if member.is(schema, "description") {
            texts.extend([&*value.as_str().unwrap_or_default(), " "]);
        } else if value.kind() == Kind::Array {
            for place in value.elements().take(elements) {
                let one = value.slice(place);
                if member.is(schema, "enum") {
                    texts.extend([&*one.as_str().unwrap_or_default(), " "]);
                }
                collect_texts(&one, level + 1, names, texts);
            }
        } else if !member.is(schema, "default") {
            collect_texts(&value, level + 1, names, texts);
        }
    }
}

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
    fn words_of_a_hostile_list_are_limited() {
        let tool = |numbers: std::ops::Range<usize>| {
            let text: String = numbers.map(|number| format!("{number} ")).collect();
            ToolText([
                "".into(),
                "".into(),
                "".into(),
                text.into(),
                "".into(),
                "".into(),
                "".into(),
            ])
        };
        let large = [1_000_000..1_100_000, 1_100_000..1_200_000].map(tool);
        assert_eq!(
            ToolWords::new(large.into_iter()).terms.len(),
            2 * FIELD_WORDS
        );
        let many = (1000..1200).map(|at| tool(at * 1000..(at + 1) * 1000));
        assert_eq!(ToolWords::new(many).terms.len(), WORDS);
    }

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
