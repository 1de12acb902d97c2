//! How an item can be written: with its server's name or prefix in front, and by a name that the configuration gives it.

use std::collections::{BTreeMap, BTreeSet};

/// Stands between the hash of a shortened name and what is left of the name.
const BEFORE_HASH: char = '_';
/// The characters of a hash and of what stands before it.
const HASH_LENGTH: usize = 9;

/// What a configuration says of the names of one server.
#[derive(Clone, Debug, Default)]
pub struct ServerNames {
    /// Its name.
    pub name: String,
    /// Its prefix, if the configuration gives it one.
    pub prefix: Option<String>,
    /// New names for its tools and prompts, by their own names.
    pub renames: Vec<(String, String)>,
}

/// All servers of a configuration, also those that are switched off.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Servers {
    separator: String,
    max_length: Option<usize>,
    all: BTreeMap<String, Spelling>,
}

/// How the items of one server can be written.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Spelling {
    /// Its prefix, and the default one where it differs only in the number of a label that several servers have.
    prefixes: BTreeSet<String>,
    renames: BTreeMap<String, String>,
}

impl Servers {
    /// The servers of a configuration in its order, with the separator and the greatest length of names.
    #[must_use]
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

    /// Whether names that begin like `pattern` may have a prefix in front: it has the separator, or begins with a prefix.
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

    /// What a server's item can be called without its server: its own name, and the one that it is renamed to. `is_exact`
    /// leaves out a new name that is another item's own.
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

    /// What a server's item can be called with a prefix, whether or not clients see that now.
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

    /// `name`, and what it becomes if it is too long for clients.
    pub(crate) fn any_matches(&self, name: &str, is_match: impl Fn(&str) -> bool) -> bool {
        is_match(name)
            || self
                .max_length
                .and_then(|max| shortened(name, max))
                .is_some_and(|short| is_match(&short))
    }
}

/// A server's name in the characters that tool names may have for common clients.
#[must_use]
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

/// The label of a server after those of the servers before it: names that differ only in characters that labels lack get
/// different ones all the same.
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

/// A name of at most `max` characters for one that is longer: its beginning and a hash of all of it, the same in each
/// process.
#[must_use]
pub fn shortened(name: &str, max: usize) -> Option<String> {
    name.char_indices().nth(max)?;
    let kept: String = name.chars().take(max.saturating_sub(HASH_LENGTH)).collect();
    Some(format!("{kept}{BEFORE_HASH}{:08x}", hash(name)))
}

/// The 32-bit FNV-1a hash of `name`, which every process makes the same.
#[must_use]
pub fn hash(name: &str) -> u32 {
    name.bytes().fold(0x811c_9dc5_u32, |hash, byte| {
        (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193)
    })
}
