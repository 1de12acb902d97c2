//! The file with client keys: a name, a digest and rights for each. `fanlight keys` or people write
//! it.

mod edit;
mod entry;
mod values;

use std::collections::HashMap;
use std::path::Path;

use crate::option::{Fields, Options as _, Reader};
use crate::report::mask::Masked;
use crate::report::problem::{ConfigErrors, Finding, Findings, Problem, Severity, quoted};
use crate::syntax::{Node, Source, Span, Syntax};
use crate::{ConfigFile, Key, MAX_KEY_FILE_SIZE, syntax, text_file, units};

pub use edit::{with_key, without_keys};
use entry::{Entry, KeyList};
pub use values::{format_moment as written_moment, parse_moment};

/// The keys of a file.
#[derive(Debug, Clone, Default)]
pub struct Keys {
    /// The keys in the file's order.
    pub keys: Vec<Key>,
    /// Warnings for the file's author.
    pub warnings: Vec<Problem>,
    /// The file that was read.
    pub(crate) file: Option<ConfigFile>,
}

/// Keys that a file may have.
const MOST: usize = 10_000;

/// Reads a file with keys.
///
/// # Errors
///
/// Every error of the file, or the one reason why it cannot be read.
pub fn load_keys(path: &Path) -> Result<Keys, ConfigErrors> {
    if !path.exists() {
        let help = "`fanlight keys new NAME` makes a key, and the file";
        return Err(ConfigErrors::from_file(
            path,
            "there is no such file with keys".to_owned(),
            help,
        ));
    }
    let (text, file) = text_file::read(path, MAX_KEY_FILE_SIZE)?;
    if text.len() > MAX_KEY_FILE_SIZE {
        let message = format!(
            "the file is larger than {}",
            units::format_size(MAX_KEY_FILE_SIZE)
        );
        return Err(ConfigErrors::from_file(
            path,
            message,
            "is this the right file?",
        ));
    }
    let mut keys = parse_keys(&text, path)?;
    keys.file = Some(file);
    keys.warnings.extend(writable_by_others(path));
    Ok(keys)
}

/// Checks the text of a file with keys. `origin` is the file's name in messages.
///
/// # Errors
///
/// Every error of the text.
pub fn parse_keys(text: &str, origin: &Path) -> Result<Keys, ConfigErrors> {
    let source = Source::new(text);
    let mut findings = Findings::default();
    // A file without keys, such as a new one, may be empty.
    let is_empty = source
        .text()
        .lines()
        .all(|line| line.trim().is_empty() || line.trim_start().starts_with('#'));
    let root = if is_empty {
        None
    } else {
        syntax::parse(&source, Syntax::Yaml, &mut findings)
    };
    let masked = Masked::find(root.as_ref(), None, KeyList::SECTION, &source, Syntax::Yaml);
    let mut reader = Reader::new(KeyList::SECTION, &source, &|_: &str| None, findings);
    let keys = root
        .as_ref()
        .map(|root| read(&mut reader, root))
        .unwrap_or_default();
    let warnings = reader.findings.conclude(origin, &source, &masked)?;
    Ok(Keys {
        keys,
        warnings,
        file: None,
    })
}

fn read(reader: &mut Reader<'_>, root: &Node) -> Vec<Key> {
    let Some(fields) = Fields::open(reader, KeyList::SECTION, "the file", root) else {
        return Vec::new();
    };
    let Some(list) = fields.get("keys") else {
        return Vec::new();
    };
    let Some(items) = reader.items(list, "a list", "write a `-` in front of each key") else {
        return Vec::new();
    };
    if items.len() > MOST {
        let message = format!(
            "the file has {} keys, and at most {MOST} are allowed",
            items.len()
        );
        reader.error(
            list.key_span,
            message,
            "remove expired keys, or raise the limit",
        );
        return Vec::new();
    }
    let mut known: HashMap<[u8; 32], Span> = HashMap::with_capacity(items.len());
    let mut keys = Vec::with_capacity(items.len());
    for item in items {
        let Some(key) = read_key(reader, item) else {
            continue;
        };
        if let Some(earlier) = known.insert(key.sha256, item.span) {
            let finding = Finding::error(
                item.span,
                format!("the key of {} is there twice", quoted(&key.name)),
            );
            reader.findings.push(
                finding
                    .help("keep one of the two entries")
                    .first_at(earlier),
            );
        }
        keys.push(key);
    }
    keys
}

fn read_key(reader: &mut Reader<'_>, node: &Node) -> Option<Key> {
    let fields = Fields::open(reader, Entry::SECTION, "an entry of `keys`", node)?;
    let Entry {
        name,
        sha256,
        groups,
        scopes,
        expires,
        endpoints,
    } = fields.read(reader);
    let mut is_complete = true;
    for option in ["name", "sha256"] {
        if fields.get(option).is_none() {
            let help = "`fanlight keys new NAME` writes entries";
            reader.error(
                node.span,
                format!("`{option}` is missing in an entry of `keys`"),
                help,
            );
            is_complete = false;
        }
    }
    is_complete.then_some(Key {
        name,
        sha256,
        groups,
        scopes,
        expires,
        endpoints,
    })
}

/// Warns if other users can write the file, since they could admit clients.
fn writable_by_others(path: &Path) -> Option<Problem> {
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt as _;
        let mode = std::fs::metadata(path).ok()?.permissions().mode();
        (mode & 0o022 != 0).then(|| Problem {
            severity: Severity::Warning,
            file: path.to_owned(),
            position: None,
            message: "other users of this machine can add keys to this file".to_owned(),
            help: Some("take their right to write it away: `chmod go-w`".to_owned()),
            excerpt: None,
            is_missing: false,
        })
    }
    #[cfg(not(unix))]
    {
        let _ = (path, Severity::Warning);
        None
    }
}
