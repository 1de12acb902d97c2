//! The spellings of an item: with its server's name or prefix, and by a name that the configuration
//! gives it.

use std::collections::{BTreeMap, BTreeSet};

use fanlight_protocol::digest::sha256;
use serde::{Deserialize, Serialize};

/// The separator before the hash of a shortened name.
const BEFORE_HASH: char = '_';
/// The length of a hash with its separator.
const HASH_LENGTH: usize = 9;

/// The form of the names of tools and prompts that clients see.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum NameForm {
    /// Any name.
    #[default]
    Any,
    /// At most this many characters. A longer name is cut and ends with a hash of the whole name.
    AtMost(usize),
    /// At most this many of the characters `[A-Za-z0-9_-]`. Another name is cut and ends with a hash
    /// of the server's name and the item's own name, so no other item changes it.
    Safe(usize),
}

impl NameForm {
    /// The name that clients see instead of `whole`, the name with prefix of the item `own` of
    /// `server`; `None` if it has the form.
    pub fn replacement(self, whole: &str, server: &str, own: &str) -> Option<String> {
        match self {
            Self::Any => None,
            Self::AtMost(max) => {
                whole.char_indices().nth(max)?;
                Some(cut(whole, max, hash(whole)))
            }
            Self::Safe(max) if whole.len() <= max && whole.chars().all(is_safe) => None,
            Self::Safe(max) => {
                let names = [server, own].join("\0");
                let mut first = [0; 4];
                first.copy_from_slice(&sha256([names])[..4]);
                Some(cut(&label(whole), max, u32::from_be_bytes(first)))
            }
        }
    }

    /// Whether `name` may be a shortened or replaced name, which only the list can resolve.
    pub fn may_replace(self, name: &str) -> bool {
        let is_hash = |(_, hash): (&str, &str)| {
            hash.len() + 1 == HASH_LENGTH && hash.bytes().all(|byte| byte.is_ascii_hexdigit())
        };
        match self {
            Self::Any => false,
            Self::AtMost(max) => name.chars().nth(max.saturating_sub(1)).is_some(),
            Self::Safe(max) => {
                name.len() > max
                    || !name.chars().all(is_safe)
                    || name.rsplit_once(BEFORE_HASH).is_some_and(is_hash)
            }
        }
    }
}

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
    form: NameForm,
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
    /// The servers of a configuration in its order, with the separator and form of names.
    pub fn new(servers: &[ServerNames], separator: &str, form: NameForm) -> Self {
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
            form,
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
    pub(crate) fn bare_spellings<'a>(
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
    pub(crate) fn prefixed_spellings<'a>(
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
            self.bare_spellings(server, name, is_exact)
                .map(move |bare| format!("{prefix}{bare}"))
        })
    }

    /// Whether `spelling` of the item `name`, or its replacement for clients, satisfies `is_match`.
    pub(crate) fn any_matches(
        &self,
        spelling: &str,
        server: &str,
        name: &str,
        is_match: impl Fn(&str) -> bool,
    ) -> bool {
        is_match(spelling)
            || self
                .form
                .replacement(spelling, server, name)
                .is_some_and(|replaced| is_match(&replaced))
    }
}

/// A server's name in the characters that common clients accept in tool names.
pub fn label(name: &str) -> String {
    name.chars()
        .map(|c| if is_safe(c) { c } else { '_' })
        .collect()
}

/// Whether all common clients accept the character in names of tools.
fn is_safe(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '_' | '-')
}

/// A label that no earlier server has. Names that differ only in characters that labels lack still
/// get different labels.
pub fn unique_label(name: &str, before: &[String]) -> String {
    let plain = label(name);
    let mut number = 1;
    let mut unique = plain.clone();
    while before.contains(&unique) {
        number += 1;
        unique = format!("{plain}-{number}");
    }
    unique
}

/// The beginning of a name and a hash, together at most `max` characters.
fn cut(name: &str, max: usize, hash: u32) -> String {
    let kept: String = name.chars().take(max.saturating_sub(HASH_LENGTH)).collect();
    format!("{kept}{BEFORE_HASH}{hash:08x}")
}

/// The 32-bit FNV-1a hash of `name`, which is the same in every process.
pub fn hash(name: &str) -> u32 {
    name.bytes().fold(0x811c_9dc5_u32, |hash, byte| {
        (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193)
    })
}
