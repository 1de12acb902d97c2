//! The spellings of an item: with its server's name or prefix, and by a name that the configuration
//! gives it.

use std::collections::{BTreeMap, BTreeSet};

/// The separator before the hash of a shortened name.
const BEFORE_HASH: char = '_';
/// The length of a hash with its separator.
const HASH_LENGTH: usize = 9;

/// The configured names of one server.
#[derive(Clone, Debug, Default)]
pub struct ServerNames {
    /// The server's name.
    pub name: String,
    /// The configured prefix, if there is one.
    pub prefix: Option<String>,
    /// New names for its tools and prompts, by their own names.
    pub renames: Vec<(String, String)>,
}

/// All servers of a configuration, including disabled ones.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Servers {
    separator: String,
    max_length: Option<usize>,
    all: BTreeMap<String, Spelling>,
}

/// The spellings of one server's items.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Spelling {
    /// The server's prefix. Also the default prefix, if it differs only in the number that makes
    /// labels unique.
    prefixes: BTreeSet<String>,
    renames: BTreeMap<String, String>,
}

impl Servers {
    /// The servers of a configuration in its order, with the separator and the greatest length of
    /// names.
    pub fn new(servers: &[ServerNames], separator: &str, max_length: Option<usize>) -> Self {
        let mut labels: Vec<String> = Vec::with_capacity(servers.len());
        let mut all = BTreeMap::new();
        for ServerNames {
            name,
            prefix,
            renames,
        } in servers
        {
            let unique = unique_label(name, &labels);
            let default =
                || [label(name), unique.clone()].map(|label| format!("{label}{separator}"));
            let prefixes = prefix
                .clone()
                .map_or_else(|| default().into(), |prefix| BTreeSet::from([prefix]));
            labels.push(unique);
            all.insert(
                name.clone(),
                Spelling {
                    prefixes,
                    renames: renames.iter().cloned().collect(),
                },
            );
        }
        Self {
            separator: separator.to_owned(),
            max_length,
            all,
        }
    }

    /// Whether a pattern may begin with a prefix: it has the separator, or begins with a known
    /// prefix.
    pub(crate) fn has_prefix(&self, pattern: &str) -> bool {
        let head = pattern.split('*').next().unwrap_or_default();
        let mut prefixes = self
            .all
            .values()
            .flat_map(|server| &server.prefixes)
            .filter(|prefix| !prefix.is_empty());
        let has_separator = !self.separator.is_empty() && pattern.contains(&self.separator);
        has_separator || prefixes.any(|prefix| head.starts_with(prefix.as_str()))
    }

    /// Whether a pattern may match text that begins with a prefix of this server.
    pub(crate) fn may_begin_with_prefix(&self, server: &str, pattern: &str) -> bool {
        let head = pattern.split('*').next().unwrap_or_default();
        let is_open = head.len() < pattern.len();
        let mut prefixes = self
            .all
            .get(server)
            .into_iter()
            .flat_map(|server| &server.prefixes);
        prefixes
            .any(|prefix| head.starts_with(prefix.as_str()) || is_open && prefix.starts_with(head))
    }

    /// The spellings of an item without its server: its own name and its configured name. With
    /// `is_exact`, a configured name that is another item's own name is left out.
    pub(crate) fn bare<'a>(
        &'a self,
        server: &str,
        name: &'a str,
        is_exact: bool,
    ) -> impl Iterator<Item = &'a str> {
        let renames = self.all.get(server).map(|server| &server.renames);
        let new = renames.and_then(|renames| {
            let new = renames.get(name)?;
            (!is_exact || !renames.contains_key(new)).then_some(new.as_str())
        });
        std::iter::once(name).chain(new)
    }

    /// The spellings of an item with a prefix, whether or not clients use them now.
    pub(crate) fn prefixed<'a>(
        &'a self,
        server: &'a str,
        name: &'a str,
        is_exact: bool,
    ) -> impl Iterator<Item = String> + 'a {
        let prefixes = self
            .all
            .get(server)
            .into_iter()
            .flat_map(|server| &server.prefixes);
        prefixes.flat_map(move |prefix| {
            self.bare(server, name, is_exact)
                .map(move |bare| format!("{prefix}{bare}"))
        })
    }

    /// Whether `name`, or its shortened form for clients, satisfies `is_match`.
    pub(crate) fn any_matches(&self, name: &str, is_match: impl Fn(&str) -> bool) -> bool {
        is_match(name)
            || self
                .max_length
                .and_then(|max| shortened(name, max))
                .is_some_and(|short| is_match(&short))
    }
}

/// A server's name in the characters that common clients accept in tool names.
pub fn label(name: &str) -> String {
    name.chars()
        .map(|c| {
            if c.is_ascii_alphanumeric() || matches!(c, '_' | '-') {
                c
            } else {
                '_'
            }
        })
        .collect()
}

/// A label that no earlier server has. Names that differ only in characters that labels lack still
/// get different labels.
fn unique_label(name: &str, before: &[String]) -> String {
    let plain = label(name);
    let mut number = 1;
    let mut unique = plain.clone();
    while before.contains(&unique) {
        number += 1;
        unique = format!("{plain}-{number}");
    }
    unique
}

/// Shortens a name that is longer than `max` characters: its beginning and a hash of all of it,
/// which is the same in each process.
pub fn shortened(name: &str, max: usize) -> Option<String> {
    name.char_indices().nth(max)?;
    let kept: String = name.chars().take(max.saturating_sub(HASH_LENGTH)).collect();
    Some(format!("{kept}{BEFORE_HASH}{:08x}", hash(name)))
}

/// The 32-bit FNV-1a hash of `name`, which is the same in every process.
pub fn hash(name: &str) -> u32 {
    name.bytes().fold(0x811c_9dc5_u32, |hash, byte| {
        (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193)
    })
}
