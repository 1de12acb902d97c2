//! Lexical search for tools: BM25 over weighted fields, with stems, synonyms, prefixes and
//! misspellings.
//!
//! [`ToolWords`] are the words of one server's tools. They stay while its list does, since most
//! changes concern one server. A [`SearchIndex`] finds them in a merged list. A [`SearchScope`] has
//! the tools that one view shows. Document frequencies count these alone, so nothing that a client
//! may not see changes what it finds.

mod tool_words;

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::Arc;

use foldhash::fast::RandomState;

pub(crate) use tool_words::ToolWords;
use tool_words::{for_each_word, is_stop, stem, synonyms};

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
/// The part of its server's score that a tool gets.
const OF_SERVER: f32 = 0.15;
/// The limits of a query: the characters and words that are used.
const QUERY: (usize, usize) = (2000, 64);
/// The least bytes of a half of a word.
const HALF: usize = 3;
/// The maximum number of terms that match one word of a query.
const VARIANTS: usize = 48;
/// The maximum number of terms that a query is compared with to find misspelt ones.
const COMPARED: usize = 1 << 14;

/// The texts of one tool, in the order of its fields: name, title, first sentence and rest of the
/// description, names and descriptions of parameters, server.
pub(crate) struct ToolText<'a>(pub(crate) [Cow<'a, str>; FIELDS.len()]);

/// The words of the tools of a merged list.
#[derive(Debug)]
pub(crate) struct SearchIndex {
    /// All terms in alphabetical order.
    terms: Box<[Term]>,
    /// The position of each server's first tool in the list, and the words of its tools.
    servers: Box<[(usize, Arc<ToolWords>)]>,
    /// The number of tools.
    tools: usize,
}

/// A stem, with the servers that have it and its number among the terms of each.
#[derive(Debug)]
struct Term {
    stem: Box<str>,
    places: Box<[(u32, u32)]>,
}

/// The tools that one view shows.
#[derive(Debug)]
pub(crate) struct SearchScope {
    /// Whether the view shows each tool of the index.
    shown: Box<[bool]>,
    count: u32,
}

/// A word of a query with the terms that stand for it, each with its weight.
struct Wanted<'a> {
    word: String,
    terms: Vec<(&'a Term, f32)>,
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

impl SearchIndex {
    /// The index of the servers' tools, in the order of their list.
    pub(crate) fn new(servers: impl Iterator<Item = Arc<ToolWords>>) -> Self {
        let mut tools = 0;
        let servers = servers.map(|words| {
            tools += words.tools();
            (tools - words.tools(), words)
        });
        let servers: Box<[_]> = servers.collect();
        let mut places: HashMap<_, Vec<_>, RandomState> = HashMap::default();
        for (server, (_, words)) in (0..).zip(&servers) {
            for (at, stem) in (0..).zip(words.stems()) {
                places.entry(stem).or_default().push((server, at));
            }
        }
        let terms = places.into_iter().map(|(stem, places)| Term {
            stem: stem.into(),
            places: places.into(),
        });
        let mut terms: Vec<_> = terms.collect();
        terms.sort_unstable_by(|one, other| one.stem.cmp(&other.stem));
        let terms = terms.into();
        Self {
            terms,
            servers,
            tools,
        }
    }

    /// The tools of `scope` with a term: the position of each, the number of its server, and the term's
    /// weight.
    fn postings(
        &self,
        scope: &SearchScope,
        term: &Term,
    ) -> impl Iterator<Item = (usize, usize, f32)> {
        let places = term.places.iter().filter_map(|(server, at)| {
            let server = *server as usize;
            let (first, words) = self.servers.get(server)?;
            let postings = words.postings(*at as usize).iter();
            Some(postings.map(move |(tool, weight)| (first + *tool as usize, server, *weight)))
        });
        places.flatten().filter(|(tool, ..)| scope.shows(*tool))
    }

    /// The inverse document frequency of a term in `scope`.
    fn rarity(&self, scope: &SearchScope, term: &Term) -> f32 {
        let having = self.postings(scope, term).count() as f32;
        (1.0 + (scope.count as f32 - having + 0.5) / (having + 0.5)).ln()
    }

    /// The tools of `scope` that match `query`, each with its score, in no order.
    pub(crate) fn search(&self, scope: &SearchScope, query: &str) -> Vec<(u32, f32)> {
        let mut scores = vec![0.0_f32; self.tools];
        let mut of_servers = vec![0.0_f32; self.servers.len()];
        // The best match of one word, by tool and by server.
        let (mut best, mut best_of) = (scores.clone(), of_servers.clone());
        for wanted in self.query_words(scope, query) {
            for (term, weight) in &wanted.terms {
                let weight = weight * self.rarity(scope, term);
                for (tool, server, occurs) in self.postings(scope, term) {
                    let score = weight * occurs / (SATURATION + occurs);
                    raise(&mut best, tool, score);
                    raise(&mut best_of, server, score);
                }
            }
            add_and_clear(&mut scores, &mut best);
            add_and_clear(&mut of_servers, &mut best_of);
        }
        let mut found = Vec::new();
        for ((first, words), of_server) in self.servers.iter().zip(of_servers) {
            let scores = scores.iter().enumerate().skip(*first).take(words.tools());
            let matching = scores.filter(|(_, score)| **score > 0.0);
            found
                .extend(matching.map(|(tool, score)| (tool as u32, score + OF_SERVER * of_server)));
        }
        found
    }

    /// Why a tool of `scope` matches `query`: the best match of each word.
    pub(crate) fn explain(&self, scope: &SearchScope, query: &str, tool: u32) -> Vec<WordMatch> {
        let wanted = self.query_words(scope, query).into_iter();
        let best = wanted.filter_map(|Wanted { word, terms }| {
            let scored = terms.iter().filter_map(|(term, weight)| {
                let mut postings = self.postings(scope, term);
                let (_, _, occurs) = postings.find(|(at, ..)| *at == tool as usize)?;
                let score = weight * self.rarity(scope, term) * occurs / (SATURATION + occurs);
                Some((term, score))
            });
            let (term, score) = scored.max_by(|one, other| one.1.total_cmp(&other.1))?;
            let term = term.stem.to_string();
            Some(WordMatch { word, term, score })
        });
        best.collect()
    }

    /// The words of a query with the terms of `scope` that stand for them.
    fn query_words(&self, scope: &SearchScope, query: &str) -> Vec<Wanted<'_>> {
        let (longest, most) = QUERY;
        let query: String = query.chars().take(longest).collect();
        let mut all: Vec<Wanted<'_>> = Vec::new();
        let mut before = String::new();
        let mut compared = 0;
        for_each_word(&query, |word| {
            let is_new = |all: &[Wanted<'_>], stem: &str| {
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
                let terms = self.variants(scope, &word, &mut compared);
                if terms.is_empty() {
                    all.extend(self.halves(scope, &word).into_iter().flatten());
                }
                all.push(Wanted { word, terms });
            }
        });
        all
    }

    /// The two words that a stem is made of, if `scope` has both: "sitemap" also means "site map".
    fn halves(&self, scope: &SearchScope, word: &str) -> Option<[Wanted<'_>; 2]> {
        let half = |word: &str| {
            let word = stem(word);
            let terms = vec![(self.term(scope, &word)?, 1.0)];
            Some(Wanted { word, terms })
        };
        (HALF..=word.len().saturating_sub(HALF)).find_map(|at| {
            let (one, other) = word.split_at_checked(at)?;
            Some([half(one)?, half(other)?])
        })
    }

    /// The term with this stem, if a tool of `scope` has it.
    fn term(&self, scope: &SearchScope, stem: &str) -> Option<&Term> {
        let found = self.terms.binary_search_by(|term| (*term.stem).cmp(stem));
        let term = self.terms.get(found.ok()?)?;
        self.is_in(scope, term).then_some(term)
    }

    /// Whether a tool of `scope` has the term.
    fn is_in(&self, scope: &SearchScope, term: &Term) -> bool {
        self.postings(scope, term).next().is_some()
    }

    /// The terms of `scope` that stand for a stem. Counts those that it was compared with.
    fn variants(&self, scope: &SearchScope, stem: &str, compared: &mut usize) -> Vec<(&Term, f32)> {
        let own = self.term(scope, stem);
        let mut all: Vec<_> = own.map(|term| (term, 1.0)).into_iter().collect();
        // Comparing words takes the square of their length.
        let is_word = (4..32).contains(&stem.len()) && stem.is_ascii();
        if is_word {
            let longer = self.beginning(stem).filter(|term| *term.stem != *stem);
            let longer = longer.filter(|term| self.is_in(scope, term));
            all.extend(longer.take(VARIANTS).map(|term| (term, PREFIX)));
        }
        if is_word && own.is_none() {
            let misspelt = self.misspelt(scope, stem, compared);
            all.extend(misspelt.map(|term| (term, MISSPELT)));
        }
        let synonyms = synonyms(stem).iter();
        all.extend(synonyms.filter_map(|other| Some((self.term(scope, other)?, SYNONYM))));
        all.truncate(VARIANTS);
        all
    }

    /// The terms that begin with a text, in alphabetical order.
    fn beginning(&self, text: &str) -> impl Iterator<Item = &Term> {
        let start = self.terms.partition_point(|term| *term.stem < *text);
        let from = self.terms.iter().skip(start);
        from.take_while(move |term| term.stem.starts_with(text))
    }

    /// The terms of `scope` that differ in few letters.
    fn misspelt<'a>(
        &'a self,
        scope: &SearchScope,
        stem: &str,
        compared: &mut usize,
    ) -> impl Iterator<Item = &'a Term> {
        let most = if stem.len() < 8 { 1 } else { 2 };
        self.beginning(stem.get(..1).unwrap_or_default())
            .take_while(|_| {
                *compared += 1;
                *compared <= COMPARED
            })
            .filter(move |term| term.stem.len() > 3 && term.stem.len().abs_diff(stem.len()) <= most)
            .filter(move |term| strsim::osa_distance(stem, &term.stem) <= most)
            .filter(|term| self.is_in(scope, term))
    }
}

impl SearchScope {
    /// The scope with the tools at these positions.
    pub(crate) fn new(index: &SearchIndex, positions: impl Iterator<Item = u32>) -> Self {
        let mut shown = vec![false; index.tools];
        let mut count = 0;
        for tool in positions {
            if let Some(shown) = shown.get_mut(tool as usize) {
                *shown = true;
                count += 1;
            }
        }
        let shown = shown.into();
        Self { shown, count }
    }

    fn shows(&self, tool: usize) -> bool {
        self.shown.get(tool).is_some_and(|is_shown| *is_shown)
    }
}

fn raise(all: &mut [f32], at: usize, score: f32) {
    if let Some(best) = all.get_mut(at) {
        *best = best.max(score);
    }
}

fn add_and_clear(sums: &mut [f32], best: &mut [f32]) {
    for (sum, best) in sums.iter_mut().zip(best) {
        *sum += std::mem::take(best);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The index of these servers' tools, each with its name and first sentence.
    fn index(servers: &[&[(&'static str, &'static str)]]) -> SearchIndex {
        let words = |tools: &&[(&'static str, &'static str)]| {
            let texts = tools.iter().map(|(name, first)| {
                ToolText([*name, "", *first, "", "", "", ""].map(Cow::Borrowed))
            });
            Arc::new(ToolWords::new(texts))
        };
        SearchIndex::new(servers.iter().map(words))
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
            &[
                ("read_file", "Reads a file."),
                ("deleteFile", "Removes a file."),
            ],
            &[
                ("get_sitemap", "Fetches all pages of a site."),
                ("whois", "Looks up a domain."),
            ],
        ]);
        let scope = SearchScope::new(&index, 0..4);
        for (query, expected) in [
            ("reading files", 0),
            ("erase a document", 1),
            ("the site map", 2),
            ("domian", 3),
            ("sitepages", 2),
        ] {
            assert_eq!(first(&index, &scope, query), Some(expected), "{query}");
        }
        assert_eq!(index.search(&scope, "the and of sitezebra"), []);
        let why = index.explain(&scope, "erase", 1);
        assert_eq!((&*why[0].word, &*why[0].term), ("eras", "delet"));
    }

    #[test]
    fn hidden_tools_change_nothing() {
        let shown: &[_] = &[
            ("read_file", "Reads a file."),
            ("list_files", "Lists files."),
        ];
        let hidden: &[_] = &[
            ("file_secret", "A secret file of files, salary and file."),
            ("salary", "The salary."),
        ];
        let (whole, part) = (index(&[shown, hidden]), index(&[shown]));
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
}
