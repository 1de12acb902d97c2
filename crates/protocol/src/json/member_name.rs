//! Finds member names that a lenient parser would take for another name.
//!
//! Fanlight reads members by their exact names. Servers may be more lenient:
//!
//! - Go's `encoding/json` ignores case by simple folding (`ſ` is `s`, the Kelvin sign is `k`), and
//!   its second version ignores separators too.
//! - C# and Jackson can be configured to ignore case. Java's `equalsIgnoreCase` takes `ı` and `İ`
//!   for `i`.
//! - pydantic accepts `task_id` for `taskId`.
//! - A parser written in C ends a name at NUL.
//!
//! In JavaScript, `Object.assign` gives the object the members of its `__proto__`.
//!
//! The server might then run something else than Fanlight has checked. So two names are confusable
//! here if any such parser could take one for the other. The comparison is coarser than each of
//! theirs.

use std::ops::ControlFlow;

use icu_normalizer::DecomposingNormalizer;
use smallvec::SmallVec;

use super::string::{decoded_characters, stands_for};
use crate::method::Method;

/// The most characters of a folded name that are compared. Each known name is shorter.
const MOST: usize = 64;
/// The characters of a name that are read, so that long names cost little. A longer name counts as
/// confusable if these could begin a known name, since parsers may ignore nearly all characters.
const MOST_READ: usize = 4096;

/// The name among `known` that a parser could take a key for. `raw` is the text between the key's
/// quotes. A key that equals a known name is confusable with it too; the caller has found such keys
/// before. Known names have only ASCII characters.
pub fn confusable<'k>(raw: &[u8], known: &[&'k str]) -> Option<&'k str> {
    let folded = Folded::new(decoded_characters(raw));
    known.iter().copied().find(|known| folded.could_be(known))
}

/// Whether `method`, which Fanlight does not know, could be taken for a known method. It would then
/// be forwarded without that method's checks.
pub fn is_confusable_method(method: &str) -> bool {
    let folded = Folded::new(method.chars());
    Method::KNOWN.iter().any(|known| folded.could_be(known))
}

/// Names of any script and length. Finds keys that other programs may take for one of them.
///
/// Unlike the known names of [`confusable`], they come from a configuration.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FoldedNames {
    names: Vec<Box<[char]>>,
    /// The number of characters of the longest name.
    longest: usize,
    /// Whether accents are ignored, because their order and composition may differ.
    without_marks: bool,
}

impl FoldedNames {
    /// Prepares `names`, in the same order.
    pub fn new<'n>(names: impl Iterator<Item = &'n str> + Clone) -> Self {
        let without_marks = names.clone().any(|name| !name.is_ascii());
        let names: Vec<Box<[char]>> = names
            .map(|name| {
                folded(name.chars())
                    .filter(|part| !(without_marks && is_mark(*part)))
                    .collect()
            })
            .collect();
        let longest = names
            .iter()
            .map(|name| name.len())
            .max()
            .unwrap_or_default();
        Self {
            names,
            longest,
            without_marks,
        }
    }

    /// Whether there are no names.
    pub fn is_empty(&self) -> bool {
        self.names.is_empty()
    }

    /// The position of the name that a key equals or could be taken for. `raw` is the text between
    /// the key's quotes.
    pub fn find(&self, raw: &[u8]) -> Option<usize> {
        if !self.is_empty() && stands_for(raw, "__proto__") {
            return Some(0);
        }
        if raw.len() > MOST_READ && !self.is_empty() {
            let mut read = 0;
            let characters = decoded_characters(raw)
                .take(MOST_READ)
                .inspect(|_| read += 1);
            let parts = folded(characters).filter(|part| !(self.without_marks && is_mark(*part)));
            let is_short = parts.take(self.longest + 1).count() <= self.longest;
            if is_short && read == MOST_READ {
                return Some(0);
            }
        }
        if raw.is_ascii() && !raw.contains(&b'\\') {
            let plain = || raw.iter().filter(|byte| !is_ignorable(char::from(**byte)));
            let plain = || plain().map(|byte| char::from(byte.to_ascii_lowercase()));
            return self
                .names
                .iter()
                .position(|name| plain().eq(name.iter().copied()));
        }
        self.find_folded(raw)
    }

    #[cold]
    fn find_folded(&self, raw: &[u8]) -> Option<usize> {
        let fold = |name: &mut dyn Iterator<Item = char>| -> Vec<char> {
            let parts = folded(name).filter(|part| !(self.without_marks && is_mark(*part)));
            // A text longer than each name equals none, so the rest need not be read.
            parts.take(self.longest + 1).collect()
        };
        let whole = fold(&mut decoded_characters(raw));
        // A parser written in C ends the name at NUL; other parsers may ignore NUL.
        let cut = fold(&mut decoded_characters(raw).take_while(|character| *character != '\0'));
        self.names
            .iter()
            .position(|name| **name == whole || **name == cut)
    }
}

/// The characters of a name in lower case and decomposed, without those that parsers may ignore.
fn folded(name: impl Iterator<Item = char>) -> impl Iterator<Item = char> {
    let parts = name
        .filter(|character| !is_ignorable(*character))
        .flat_map(|character| {
            let ascii = character.is_ascii().then(|| character.to_ascii_lowercase());
            let other = (!character.is_ascii()).then(|| decomposed(character));
            ascii.into_iter().chain(other.into_iter().flatten())
        });
    parts.filter(|part| !is_ignorable(*part))
}

/// Decomposes one character and converts it to lower case by way of upper case, which maps `ſ` to
/// `S`, `ı` to `I` and `ß` to `SS`. Decomposing a whole name at once could take long.
fn decomposed(character: char) -> impl Iterator<Item = char> {
    let parts: SmallVec<[char; 18]> = DecomposingNormalizer::new_nfkd()
        .normalize_iter(std::iter::once(character))
        .collect();
    parts
        .into_iter()
        .flat_map(char::to_uppercase)
        .flat_map(char::to_lowercase)
}

/// Whether the character is an accent or a similar mark on the previous one.
fn is_mark(character: char) -> bool {
    matches!(character, '\u{300}'..='\u{36f}' | '\u{1ab0}'..='\u{1aff}' | '\u{1dc0}'..='\u{1dff}')
        || matches!(character, '\u{20d0}'..='\u{20ff}' | '\u{fe20}'..='\u{fe2f}')
}

/// A name in lower case, without the characters that parsers may ignore.
#[derive(Default)]
struct Folded {
    characters: SmallVec<[u8; MOST]>,
    /// The length before the first NUL.
    before_nul: Option<usize>,
    /// Whether it contains a character that no known name has.
    is_foreign: bool,
    /// Whether it has more characters than are read.
    is_endless: bool,
}

impl Folded {
    fn new(mut name: impl Iterator<Item = char>) -> Self {
        let mut folded = Self::default();
        let mut read = 0..MOST_READ;
        let taken = name.try_for_each(|character| match read.next() {
            Some(_) => folded.take(character),
            None => {
                folded.is_endless = true;
                ControlFlow::Break(())
            }
        });
        folded.is_foreign = taken.is_break();
        folded
    }

    fn take(&mut self, character: char) -> ControlFlow<()> {
        if character == '\0' {
            self.before_nul.get_or_insert(self.characters.len());
            return ControlFlow::Continue(());
        }
        if character.is_ascii() || is_ignorable(character) {
            return self.push(character);
        }
        // The order of combining marks does not matter, because no known name has any.
        decomposed(character).try_for_each(|part| self.push(part))
    }

    fn push(&mut self, character: char) -> ControlFlow<()> {
        if is_ignorable(character) {
            return ControlFlow::Continue(());
        }
        match u8::try_from(character) {
            Ok(byte) if byte.is_ascii() && self.characters.len() < MOST => {
                self.characters.push(byte.to_ascii_lowercase());
                ControlFlow::Continue(())
            }
            _ => ControlFlow::Break(()),
        }
    }

    fn could_be(&self, known: &str) -> bool {
        let known = || {
            known
                .bytes()
                .filter(|byte| !is_separator(*byte))
                .map(|byte| byte.to_ascii_lowercase())
        };
        let is = |folded: &[u8]| known().eq(folded.iter().copied());
        self.is_endless
            || !self.is_foreign && is(&self.characters)
            || self
                .before_nul
                .and_then(|end| self.characters.get(..end))
                .is_some_and(is)
    }
}

fn is_separator(byte: u8) -> bool {
    matches!(byte, b'_' | b'-')
}

/// Whether parsers may ignore the character: separators, white space, control characters, invisible
/// characters, and U+FFFD, which replaces unreadable text. Also U+0307, because `İ` in lower case
/// is `i` with U+0307.
fn is_ignorable(character: char) -> bool {
    match character {
        '\0'..='\x7f' => {
            is_separator(character as u8)
                || character.is_ascii_control()
                || character.is_ascii_whitespace()
        }
        '\u{ad}'
        | '\u{307}'
        | '\u{34f}'
        | '\u{61c}'
        | '\u{180b}'..='\u{180f}'
        | '\u{115f}'
        | '\u{1160}' => true,
        '\u{200b}'..='\u{200f}'
        | '\u{202a}'..='\u{202e}'
        | '\u{2060}'..='\u{206f}'
        | '\u{3164}'
        | '\u{ffa0}' => true,
        '\u{fe00}'..='\u{fe0f}'
        | '\u{feff}'
        | '\u{fff0}'..='\u{fffd}'
        | '\u{e0000}'..='\u{e0fff}' => true,
        other => other.is_control() || other.is_whitespace(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KNOWN: [&str; 7] = [
        "name",
        "uri",
        "taskId",
        "_meta",
        "progressToken",
        "task",
        "io.modelcontextprotocol/clientInfo",
    ];

    fn found(raw: &str) -> Option<&'static str> {
        confusable(raw.as_bytes(), &KNOWN)
    }

    #[test]
    fn names_that_some_parser_reads_as_a_known_one_are_confusable() {
        for (raw, known) in [
            ("Name", "name"),
            ("NAME", "name"),
            (r"N\u0041ME", "name"),
            (r"name\u0000", "name"),
            (r"\u0000n\u0000ame", "name"),
            (r"name\u0000tail", "name"),
            (r"name\u0000\u00e9", "name"),
            ("ｎａｍｅ", "name"),
            ("ＮＡＭＥ", "name"),
            (r"\uff4eame", "name"),
            ("𝐧ame", "name"),
            ("na\u{200b}me", "name"),
            ("na\u{ad}me", "name"),
            (r"name\ud800", "name"),
            (r"na\udfffme", "name"),
            (r"na\ud83dme", "name"),
            ("name\u{fffd}", "name"),
            (" name ", "name"),
            ("na-me", "name"),
            ("URI", "uri"),
            ("urı", "uri"),
            ("urİ", "uri"),
            (r"ur\u0130", "uri"),
            ("tasKId", "taskId"),
            ("ta\u{17f}kId", "taskId"),
            ("tas\u{212a}Id", "taskId"),
            ("ta\u{17f}\u{212a}", "task"),
            ("task_id", "taskId"),
            ("_META", "_meta"),
            ("meta", "_meta"),
            ("__meta", "_meta"),
            ("_Meta", "_meta"),
            ("progre\u{df}Token", "progressToken"),
            ("progress_token", "progressToken"),
            ("progreSSToken", "progressToken"),
            (
                "IO.ModelContextProtocol/ClientInfo",
                "io.modelcontextprotocol/clientInfo",
            ),
            (
                "io.modelcontextprotoco\u{2113}/clientInfo",
                "io.modelcontextprotocol/clientInfo",
            ),
        ] {
            assert_eq!(found(raw), Some(known), "{raw:?}");
        }
    }

    #[test]
    fn name_of_millions_of_ignored_characters_is_read_in_part_and_counts_as_known() {
        let names = FoldedNames::new(["owner"].into_iter());
        for ignored in ["\u{200b}", "-", r"\u0000"] {
            let name = ignored.repeat(3 << 20);
            assert_eq!(found(&name), Some("name"));
            assert_eq!(names.find(name.as_bytes()), Some(0));
        }
        let long = "x".repeat(3 << 20);
        assert_eq!((found(&long), names.find(long.as_bytes())), (None, None));
    }

    #[test]
    fn configured_names_are_found_in_every_spelling() {
        let names = FoldedNames::new(["owner", "repo_id", "x"].into_iter());
        let find = |raw: &str| names.find(raw.as_bytes());
        for raw in [
            "owner",
            "Owner",
            "OWNER",
            r"\u006fwner",
            r"owner\u0000",
            r"owner\u0000x",
            "ｏｗｎｅｒ",
            "ow-ner",
            "o\u{200b}wner",
            "__proto__",
            r"__proto\u005f_",
        ] {
            assert_eq!(find(raw), Some(0), "{raw:?}");
        }
        for raw in ["repo_id", "repoId", "REPO-ID", "repoıd", r"repoid\ud800"] {
            assert_eq!(find(raw), Some(1), "{raw:?}");
        }
        for raw in [
            "",
            "own",
            "owners",
            "öwner",
            r"own\u0000er2",
            "xx",
            "\u{445}",
            &"owner".repeat(1000),
        ] {
            assert_eq!(find(raw), None, "{raw:?}");
        }
        assert!(FoldedNames::default().is_empty() && FoldedNames::default().find(b"x").is_none());
    }

    #[test]
    fn configured_names_may_have_any_script_and_length() {
        let long = "long_name_".repeat(20);
        let names = FoldedNames::new(["größe", "имя", &long].into_iter());
        let find = |raw: &str| names.find(raw.as_bytes());
        for (raw, at) in [
            ("größe", 0),
            ("GRÖSSE", 0),
            ("gro\u{308}ße", 0),
            (r"gr\u00f6\u00dfe", 0),
            ("Имя", 1),
            (r"\u0418мя", 1),
            (&long.to_uppercase(), 2),
            (&long.replace('_', ""), 2),
        ] {
            assert_eq!(find(raw), Some(at), "{raw:?}");
        }
        assert_eq!(find(&format!("{long}x")), None);
    }

    #[test]
    fn other_spellings_of_known_methods_are_confusable() {
        for method in [
            "Tools/Call",
            "tools/call\0",
            "TOOLS/CALL",
            "tools/ｃall",
            "tasks/Get",
            "resources/subscribe\0x",
        ] {
            assert!(is_confusable_method(method), "{method:?}");
        }
        for method in [
            "tools/calls",
            "x/y",
            "x/list",
            "tool/call",
            "tools\\call",
            "",
        ] {
            assert!(!is_confusable_method(method), "{method:?}");
        }
    }

    #[test]
    fn other_names_are_not_confusable() {
        let long = "n".repeat(1000);
        for raw in [
            "",
            "names",
            "nam",
            "title",
            "námé",
            "имя",
            "n\u{430}me",
            "taskIds",
            "x-name",
            r"\u0000",
            "é\u{0}",
            &long,
        ] {
            assert_eq!(found(raw), None, "{raw:?}");
        }
    }

    #[test]
    fn long_names_take_time_by_their_length() {
        // Each of these would be slow if the name were normalised as a whole.
        for filler in ["\u{200b}", "\u{307}", "\\u0000", "_"] {
            let long = format!("n{}ame", filler.repeat(1 << 20));
            assert_eq!(found(&long), Some("name"), "{filler:?}");
            assert_eq!(
                FoldedNames::new(["name"; 100].into_iter()).find(long.as_bytes()),
                Some(0),
                "{filler:?}"
            );
        }
    }
}
