//! The words of one server's tools, weighted by field.

use std::collections::HashMap;

use foldhash::fast::RandomState;

use super::words::{for_each_word, is_stop, stem};
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

/// Collects postings by term.
#[derive(Default)]
struct Builder {
    /// The terms of words as they are written; `None` for stop words.
    known: HashMap<String, Option<usize>, RandomState>,
    /// The number of each stem.
    numbers: HashMap<String, usize, RandomState>,
    terms: Vec<(String, Vec<Posting>)>,
}

impl Builder {
    fn term(&mut self, word: &str) -> Option<usize> {
        if let Some(known) = self.known.get(word) {
            return *known;
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
            for_each_word(text, |word| found.extend(self.term(word)));
            let weight = weight / (1.0 - LENGTH + LENGTH * found.len() as f32 / usual);
            for term in found {
                let Some((_, postings)) = self.terms.get_mut(term) else {
                    continue;
                };
                match postings.last_mut() {
                    Some((last, sum)) if *last == tool => *sum += weight,
                    _ => postings.push((tool, weight)),
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
