//! Lexical search for tools: BM25 over weighted fields, with stems, synonyms, prefixes and
//! misspellings.
//!
//! A [`SearchIndex`] has the words of all tools of a merged list. A [`SearchScope`] has the tools
//! that one view shows. Document frequencies count these alone, so nothing that a client may not see
//! changes what it finds.

mod texts;
mod words;

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};
use std::ops::Bound;

use foldhash::fast::RandomState;

use words::{for_each_word, is_stop, stem, synonyms};

/// The fields of a tool, each with its weight and its usual number of words. The constants are on
/// a plateau: half or twice of any changes little.
const FIELDS: [(f32, f32); 7] = [
    (4.0, 3.0),   // name
    (3.0, 3.0),   // title
    (1.5, 10.0),  // first sentence of the description
    (0.4, 25.0),  // rest of the description
    (0.4, 5.0),   // names of parameters
    (0.15, 30.0), // descriptions of parameters
    (1.0, 2.0),   // server
];
/// How much a field counts less because it is longer than usual.
const LENGTH: f32 = 0.5;
/// How soon more occurrences of a word stop counting.
const SATURATION: f32 = 1.0;
/// The weights of words that are not the query's own.
const SYNONYM: f32 = 0.5;
const PREFIX: f32 = 0.4;
const MISSPELT: f32 = 0.6;
const HALF: f32 = 0.5;
/// The part of its server's score that a tool gets.
const OF_SERVER: f32 = 0.15;
/// The most characters and words of a query that count.
const QUERY: (usize, usize) = (2000, 64);
/// The most terms that stand for one word of a query.
const VARIANTS: usize = 48;

/// The texts of one tool, in the order of its fields: name, title, first sentence and rest of the
/// description, names and descriptions of parameters, server.
pub(crate) struct ToolText<'a> {
    /// The number of its server.
    pub(crate) server: u32,
    /// The texts.
    pub(crate) fields: [Cow<'a, str>; FIELDS.len()],
}

/// The words of the tools of a merged list.
#[derive(Debug)]
pub(crate) struct SearchIndex {
    terms: BTreeMap<Box<str>, u32>,
    /// The end of each term's postings.
    ends: Box<[u32]>,
    postings: Box<[Posting]>,
    /// The number of each tool's server.
    servers: Box<[u32]>,
}

/// A term in a tool: the tool's position in the list, and the term's weight in it.
type Posting = (u32, f32);

/// The tools that one view shows.
#[derive(Debug)]
pub(crate) struct SearchScope {
    /// A bit for each tool of the index.
    shown: Box<[u64]>,
    /// The number of shown tools that have each term.
    frequencies: Box<[u32]>,
    count: u32,
}

/// A word of a query with the terms that stand for it, each with its weight.
struct Wanted {
    word: String,
    terms: Vec<(u32, f32)>,
}

/// A word of a query, the term of a tool that matched it, and the score of that match.
#[derive(Clone, Debug, PartialEq)]
pub struct WordMatch {
    /// The stem of the query's word.
    pub word: String,
    /// The stem of the tool's word.
    pub term: String,
    /// The score.
    pub score: f32,
}

/// Collects postings by term.
#[derive(Default)]
struct Builder {
    /// The terms of words as they are written; `None` for stop words.
    known: HashMap<String, Option<u32>, RandomState>,
    terms: HashMap<String, u32, RandomState>,
    all: Vec<(u32, Posting)>,
}

impl Builder {
    fn term(&mut self, word: &str) -> Option<u32> {
        if let Some(known) = self.known.get(word) {
            return *known;
        }
        let next = self.terms.len() as u32;
        let term = (!is_stop(word)).then(|| *self.terms.entry(stem(word)).or_insert(next));
        self.known.insert(word.to_owned(), term);
        term
    }

    fn add(&mut self, tool: u32, text: &ToolText<'_>) {
        let mut found = Vec::new();
        for ((weight, usual), text) in FIELDS.iter().zip(&text.fields) {
            let start = found.len();
            for_each_word(text, |word| {
                found.extend(self.term(word).map(|term| (term, 0.0)));
            });
            let length = (found.len() - start) as f32;
            let weight = weight / (1.0 - LENGTH + LENGTH * length / usual);
            found.iter_mut().skip(start).for_each(|it| it.1 = weight);
        }
        found.sort_unstable_by_key(|(term, _)| *term);
        for same in found.chunk_by(|one, other| one.0 == other.0) {
            let weight = same.iter().map(|(_, weight)| weight).sum();
            self.all
                .extend(same.first().map(|(term, _)| (*term, (tool, weight))));
        }
    }
}

impl SearchIndex {
    /// The index of `tools`, in the order of their list.
    pub(crate) fn new<'a>(tools: impl Iterator<Item = ToolText<'a>>) -> Self {
        let mut builder = Builder::default();
        let mut servers = Vec::new();
        for (tool, text) in (0..).zip(tools) {
            servers.push(text.server);
            builder.add(tool, &text);
        }
        let Builder { terms, all, .. } = builder;
        // Sorted by counting, since there may be a million.
        let mut ends = vec![0_u32; terms.len() + 1];
        let at = |ends: &mut [u32], term: u32| -> usize {
            let next = ends.get_mut(term as usize + 1);
            next.map_or(0, |next| {
                *next += 1;
                *next as usize - 1
            })
        };
        all.iter().for_each(|(term, _)| {
            at(&mut ends, *term);
        });
        let mut before = 0;
        for end in &mut ends {
            before += std::mem::replace(end, before);
        }
        let mut postings = vec![Posting::default(); all.len()];
        for (term, posting) in all {
            let at = at(&mut ends, term);
            if let Some(place) = postings.get_mut(at) {
                *place = posting;
            }
        }
        let terms = terms.into_iter();
        Self {
            terms: terms.map(|(term, id)| (term.into(), id)).collect(),
            ends: ends.into(),
            postings: postings.into(),
            servers: servers.into(),
        }
    }

    fn postings(&self, term: u32) -> &[Posting] {
        let at = |at: u32| self.ends.get(at as usize).map(|at| *at as usize);
        let range = at(term).zip(at(term + 1));
        range
            .and_then(|(start, end)| self.postings.get(start..end))
            .unwrap_or_default()
    }

    /// The tools of `scope` that match `query`, each with its score, in no order.
    pub(crate) fn search(&self, scope: &SearchScope, query: &str) -> Vec<(u32, f32)> {
        let tools = self.servers.len();
        let servers = self
            .servers
            .iter()
            .max()
            .map_or(0, |last| *last as usize + 1);
        let mut scores = vec![0.0_f32; tools];
        let mut of_servers = vec![0.0_f32; servers];
        // The best match of one word, by tool and by server.
        let mut best = vec![0.0_f32; tools];
        let mut best_of = vec![0.0_f32; servers];
        for wanted in self.query_words(scope, query) {
            for (term, weight) in &wanted.terms {
                let weight = weight * scope.rarity(*term);
                for (tool, occurs) in self.postings(*term) {
                    if !scope.shows(*tool) {
                        continue;
                    }
                    let score = weight * occurs / (SATURATION + occurs);
                    raise(&mut best, *tool, score);
                    let server = self.servers.get(*tool as usize);
                    raise(&mut best_of, server.copied().unwrap_or_default(), score);
                }
            }
            add_and_clear(&mut scores, &mut best);
            add_and_clear(&mut of_servers, &mut best_of);
        }
        let of_server = |tool: usize| {
            let server = self.servers.get(tool).map(|server| *server as usize);
            server.and_then(|server| of_servers.get(server)).copied()
        };
        let found = scores.iter().enumerate().filter(|(_, score)| **score > 0.0);
        found
            .map(|(tool, score)| {
                let server = of_server(tool).unwrap_or_default();
                (tool as u32, score + OF_SERVER * server)
            })
            .collect()
    }

    /// Why a tool of `scope` matches `query`: the best match of each word.
    pub(crate) fn explain(&self, scope: &SearchScope, query: &str, tool: u32) -> Vec<WordMatch> {
        let wanted = self.query_words(scope, query).into_iter();
        let best = wanted.filter_map(|Wanted { word, terms }| {
            let scored = terms.iter().filter_map(|(term, weight)| {
                let postings = self.postings(*term);
                let at = postings.binary_search_by_key(&tool, |(tool, _)| *tool);
                let (_, occurs) = postings.get(at.ok()?)?;
                let score = weight * scope.rarity(*term) * occurs / (SATURATION + occurs);
                Some((*term, score))
            });
            let (term, score) = scored.max_by(|one, other| one.1.total_cmp(&other.1))?;
            let name = self.terms.iter().find(|(_, id)| **id == term)?.0;
            let term = name.to_string();
            Some(WordMatch { word, term, score })
        });
        best.collect()
    }

    /// The words of a query with the terms of `scope` that stand for them.
    fn query_words(&self, scope: &SearchScope, query: &str) -> Vec<Wanted> {
        let (longest, most) = QUERY;
        let query: String = query.chars().take(longest).collect();
        let mut all: Vec<Wanted> = Vec::new();
        let mut before = String::new();
        for_each_word(&query, |word| {
            let is_new = |all: &[Wanted], stem: &str| {
                all.len() < most && all.iter().all(|it| it.word != stem)
            };
            let pair = stem(&format!("{before}{word}"));
            let is_pair = !before.is_empty() && is_new(&all, &pair);
            // "site map" also means "sitemap".
            if let Some(term) = self
                .term(scope, &pair)
                .filter(|_| is_pair && !is_stop(word))
            {
                let terms = vec![(term, 1.0)];
                all.push(Wanted { word: pair, terms });
            }
            before.clear();
            if is_stop(word) {
                return;
            }
            before.push_str(word);
            let word = stem(word);
            if is_new(&all, &word) {
                let terms = self.variants(scope, &word);
                all.push(Wanted { word, terms });
            }
        });
        all
    }

    /// The id of a stem, if a tool of `scope` has it.
    fn term(&self, scope: &SearchScope, stem: &str) -> Option<u32> {
        let term = self.terms.get(stem).copied();
        term.filter(|term| scope.frequency(*term) > 0)
    }

    /// The terms of `scope` that stand for a stem.
    fn variants(&self, scope: &SearchScope, stem: &str) -> Vec<(u32, f32)> {
        let own = self.term(scope, stem);
        let mut all: Vec<_> = own.map(|term| (term, 1.0)).into_iter().collect();
        let is_word = stem.len() > 3 && stem.is_ascii();
        if is_word {
            let longer = self.from(scope, stem);
            let longer = longer.take_while(|(term, _)| term.starts_with(stem));
            all.extend(
                longer
                    .map(|(_, id)| (id, PREFIX))
                    .filter(|(id, _)| Some(*id) != own),
            );
        }
        if is_word && own.is_none() {
            self.misspelt(scope, stem, &mut all);
            if all.is_empty() {
                self.halves(scope, stem, &mut all);
            }
        }
        let synonyms = synonyms(stem).iter();
        all.extend(synonyms.filter_map(|other| Some((self.term(scope, other)?, SYNONYM))));
        all.truncate(VARIANTS);
        all
    }

    /// The terms of `scope` from `first` on, in alphabetical order.
    fn from<'a>(
        &'a self,
        scope: &'a SearchScope,
        first: &str,
    ) -> impl Iterator<Item = (&'a str, u32)> + use<'a> {
        let all = self
            .terms
            .range::<str, _>((Bound::Included(first), Bound::Unbounded));
        all.filter(|(_, id)| scope.frequency(**id) > 0)
            .map(|(term, id)| (&**term, *id))
    }

    /// Adds the terms that differ in few letters.
    fn misspelt(&self, scope: &SearchScope, stem: &str, all: &mut Vec<(u32, f32)>) {
        let first = stem.get(..1).unwrap_or_default();
        let most = if stem.len() < 8 { 1 } else { 2 };
        let similar = self
            .from(scope, first)
            .take_while(|(term, _)| term.starts_with(first))
            .filter(|(term, _)| term.len() > 3 && term.len().abs_diff(stem.len()) <= most)
            .filter(|(term, _)| distance(stem.as_bytes(), term.as_bytes()) <= most);
        all.extend(similar.map(|(_, id)| (id, MISSPELT)));
    }

    /// Adds the two terms that a stem consists of.
    fn halves(&self, scope: &SearchScope, whole: &str, all: &mut Vec<(u32, f32)>) {
        for at in 3..whole.len().saturating_sub(2) {
            let (first, second) = whole.split_at(at);
            let first = self.term(scope, &stem(first));
            if let Some((first, second)) = first.zip(self.term(scope, &stem(second))) {
                all.extend([(first, HALF), (second, HALF)]);
            }
        }
    }
}

impl SearchScope {
    /// The scope with the tools at these positions.
    pub(crate) fn new(index: &SearchIndex, shown: impl Iterator<Item = u32>) -> Self {
        let mut scope = Self {
            shown: vec![0; index.servers.len().div_ceil(64)].into(),
            frequencies: vec![0; index.ends.len()].into(),
            count: 0,
        };
        for tool in shown {
            if let Some(bits) = scope.shown.get_mut(tool as usize / 64) {
                *bits |= 1 << (tool % 64);
                scope.count += 1;
            }
        }
        for term in 0..index.terms.len() as u32 {
            let shown = index.postings(term).iter();
            let count = shown.filter(|(tool, _)| scope.shows(*tool)).count();
            if let Some(frequency) = scope.frequencies.get_mut(term as usize) {
                *frequency = count as u32;
            }
        }
        scope
    }

    fn shows(&self, tool: u32) -> bool {
        let bits = self.shown.get(tool as usize / 64);
        bits.is_some_and(|bits| bits >> (tool % 64) & 1 == 1)
    }

    fn frequency(&self, term: u32) -> u32 {
        let frequency = self.frequencies.get(term as usize);
        frequency.copied().unwrap_or_default()
    }

    /// The inverse document frequency of a term.
    fn rarity(&self, term: u32) -> f32 {
        let (all, having) = (self.count as f32, self.frequency(term) as f32);
        (1.0 + (all - having + 0.5) / (having + 0.5)).ln()
    }
}

fn raise(all: &mut [f32], at: u32, score: f32) {
    if let Some(best) = all.get_mut(at as usize) {
        *best = best.max(score);
    }
}

fn add_and_clear(sums: &mut [f32], best: &mut [f32]) {
    for (sum, best) in sums.iter_mut().zip(best) {
        *sum += std::mem::take(best);
    }
}

/// The number of letters that have to be added, left out, changed or swapped with the next.
fn distance(one: &[u8], other: &[u8]) -> usize {
    let mut older = Vec::new();
    let mut above: Vec<usize> = (0..=other.len()).collect();
    for (i, a) in one.iter().enumerate() {
        let mut row = vec![i + 1];
        for (j, b) in other.iter().enumerate() {
            let at = |row: &[usize], at: usize| row.get(at).copied().unwrap_or(usize::MAX / 2);
            let mut least = (at(&above, j) + usize::from(a != b))
                .min(at(&above, j + 1) + 1)
                .min(at(&row, j) + 1);
            let is_swapped =
                i > 0 && j > 0 && one.get(i - 1) == Some(b) && other.get(j - 1) == Some(a);
            if is_swapped {
                least = least.min(at(&older, j - 1) + 1);
            }
            row.push(least);
        }
        older = std::mem::replace(&mut above, row);
    }
    above.last().copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn index(tools: &[(u32, &'static str, &'static str)]) -> SearchIndex {
        SearchIndex::new(tools.iter().map(|(server, name, first)| {
            ToolText {
                server: *server,
                fields: ["", "", "", "", "", "", ""]
                    .map(Cow::Borrowed)
                    .iter()
                    .enumerate()
                    .map(|(at, _)| match at {
                        0 => Cow::Borrowed(*name),
                        2 => Cow::Borrowed(*first),
                        _ => Cow::Borrowed(""),
                    })
                    .collect::<Vec<_>>()
                    .try_into()
                    .unwrap(),
            }
        }))
    }

    fn first(index: &SearchIndex, scope: &SearchScope, query: &str) -> Option<u32> {
        let found = index.search(scope, query);
        found
            .into_iter()
            .max_by(|a, b| a.1.total_cmp(&b.1))
            .map(|found| found.0)
    }

    #[test]
    fn tools_are_found_by_other_words() {
        let index = index(&[
            (0, "read_file", "Reads a file."),
            (0, "deleteFile", "Removes a file."),
            (1, "get_sitemap", "Fetches all pages of a site."),
            (1, "whois", "Looks up a domain."),
        ]);
        let scope = SearchScope::new(&index, 0..4);
        for (query, expected) in [
            ("reading files", 0),
            ("erase a document", 1),
            ("the site map", 2),
            ("domian", 3),
        ] {
            assert_eq!(first(&index, &scope, query), Some(expected), "{query}");
        }
        assert_eq!(index.search(&scope, "the and of"), []);
        let why = index.explain(&scope, "erase", 1);
        assert_eq!((&*why[0].word, &*why[0].term), ("eras", "delet"));
    }

    #[test]
    fn hidden_tools_change_nothing() {
        let all = [
            (0, "read_file", "Reads a file."),
            (0, "list_files", "Lists files."),
            (1, "file_secret", "A secret file of files, salary and file."),
            (1, "salary", "The salary."),
        ];
        let (whole, part) = (index(&all), index(&all[..2]));
        let scope = SearchScope::new(&whole, 0..2);
        let only = SearchScope::new(&part, 0..2);
        for query in ["file", "list salary", "salry", "secret", "read the files"] {
            assert_eq!(
                whole.search(&scope, query),
                part.search(&only, query),
                "{query}"
            );
        }
    }

    /// Prints time and memory at 10,000 tools of 200 servers; `cargo test --release -- --ignored
    /// --nocapture ten_thousand`.
    #[test]
    #[ignore = "measures"]
    fn ten_thousand_tools_are_searched_quickly() {
        let word = |number: usize| {
            let letters = b"etaoinsrhldcumfp";
            let letters = (0..7).map(|at| letters[number >> (2 * at) & 15] as char);
            letters.collect::<String>()
        };
        // A few words are common, and most are rare.
        let text = |tool: usize, words: usize| {
            let words = (0..words).map(|at| {
                let hash = (tool * 7919 + at * 104_729) % 1_000_003;
                word(hash * hash / 1_000_003 * hash / 1_000_003 % 30_000)
            });
            words.collect::<Vec<_>>().join(" ")
        };
        let began = std::time::Instant::now();
        let tools = (0..10_000).map(|tool| ToolText {
            server: (tool % 200) as u32,
            fields: [3, 3, 10, 30, 5, 40, 1].map(|words| Cow::Owned(text(tool, words))),
        });
        let tools: Vec<_> = tools.collect();
        let made = began.elapsed();
        let index = SearchIndex::new(tools.into_iter());
        let built = began.elapsed() - made;
        let scope = SearchScope::new(&index, 0..10_000);
        let scoped = began.elapsed() - made - built;
        let bytes = index.postings.len() * size_of::<Posting>() + index.terms.len() * 80;
        let bytes_of_view = index.terms.len() * 4 + 10_000 / 8;
        let mut times: Vec<_> = (0..200)
            .map(|query| {
                let query = text(query * 31, 8);
                let began = std::time::Instant::now();
                assert!(!index.search(&scope, &query).is_empty());
                began.elapsed()
            })
            .collect();
        times.sort();
        let median = times[100];
        println!(
            "index {built:?}, {bytes} bytes; view {scoped:?}, {bytes_of_view} bytes; search {median:?}"
        );
        assert!(bytes < 60 << 20 && bytes_of_view < 2 << 20);
    }

    #[test]
    fn distance_counts_swaps_once() {
        assert_eq!(distance(b"domian", b"domain"), 1);
        assert_eq!(distance(b"abc", b"abd"), 1);
        assert_eq!(distance(b"", b"ab"), 2);
    }
}
