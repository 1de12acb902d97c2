//! A configuration of several files: the first has the options, and all have servers.
//!
//! Further files are those named to [`load_all`] and those that `include` of the first names. A server has one definition:
//! the same name in two files is an error that names both.

use std::fs::File;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::io::Read as _;
use std::path::{Path, PathBuf};

use crate::model::Config;
use crate::model::auth::AuthChoice;
use crate::model::listener::Tls;
use crate::option::Options as _;
use crate::option::fields::Fields;
use crate::option::reader::Reader;
use crate::read::file;
use crate::read::server::{self, Context};
use crate::report::mask::Masked;
use crate::report::problem::{ConfigErrors, Findings, quoted};
use crate::syntax::source::{Source, Syntax};
use crate::syntax::tree::{Node, Value};
use crate::{Loaded, MAX_FILE_SIZE, MAX_KEY_FILE_SIZE, keys, syntax, units};

/// Most files of one configuration. No option: it holds before options are known.
const MAX_FILES: usize = 256;
/// Options of a further file.
const OF_FURTHER_FILES: [&str; 3] = ["mcpServers", "servers", "$schema"];

/// A file that a configuration was read from, or a folder in which further ones may appear.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigFile {
    /// Where it is.
    pub path: PathBuf,
    /// What [`fingerprint`] said of it when it was read.
    pub fingerprint: Option<u64>,
}

/// Changes with the content of a file, or with the names in a folder; `None` if it cannot be read.
pub fn fingerprint(path: &Path) -> Option<u64> {
    if path.is_dir() {
        let mut names: Vec<_> =
            std::fs::read_dir(path).ok()?.filter_map(|entry| Some(entry.ok()?.file_name())).collect();
        names.sort();
        let mut hasher = DefaultHasher::new();
        names.hash(&mut hasher);
        return Some(hasher.finish());
    }
    read_bounded(path, MAX_KEY_FILE_SIZE).ok().map(|bytes| hash(&bytes))
}

fn hash(bytes: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    bytes.hash(&mut hasher);
    hasher.finish()
}

/// The servers that have been read, with the file and line of each.
#[derive(Default)]
struct Known(Vec<(String, PathBuf, usize)>);

impl Known {
    fn add(&mut self, root: &Node, source: &Source, origin: &Path) {
        for node in ["mcpServers", "servers"].into_iter().filter_map(|key| root.field(key)) {
            let Value::Map(entries) = &node.value else { continue };
            for entry in entries {
                let line = source.position(entry.key_span.start).line;
                self.0.push((entry.key.clone(), origin.to_owned(), line));
            }
        }
    }

    fn find(&self, name: &str) -> Option<&(String, PathBuf, usize)> {
        self.0.iter().find(|(known, ..)| known == name)
    }
}

/// Reads and checks the config files at `paths`, of which the first has the options, and those that it includes. `env`
/// looks up the variables that the files name.
///
/// # Errors
///
/// Every error of every file, or the one reason why one cannot be read.
pub fn load_all(paths: &[PathBuf], env: &dyn Fn(&str) -> Option<String>) -> Result<Loaded, ConfigErrors> {
    let Some((first, further)) = paths.split_first() else {
        return Err(ConfigErrors::of_file(Path::new(""), "no config file is named".to_owned(), "name one"));
    };
    let (text, mark) = read_text(first, MAX_FILE_SIZE)?;
    let mut known = Known::default();
    let mut loaded = parse_first(&text, first, env, !further.is_empty(), &mut known)?;
    loaded.files = vec![ConfigFile { path: first.clone(), fingerprint: mark }];
    let (included, folders) = included(&loaded.config, first)?;
    let mut errors: Option<ConfigErrors> = None;
    for path in further.iter().chain(&included) {
        let servers = read_text(path, MAX_FILE_SIZE).and_then(|(text, mark)| {
            loaded.files.push(ConfigFile { path: path.clone(), fingerprint: mark });
            parse_further(&text, path, env, &loaded.config, &mut known)
        });
        match servers {
            Ok((servers, warnings)) => {
                loaded.config.servers.extend(servers);
                loaded.warnings.extend(warnings);
            }
            Err(more) => match &mut errors {
                Some(errors) => errors.extend(more),
                None => errors = Some(more),
            },
        }
    }
    match read_keys(&mut loaded) {
        Ok(()) => {}
        Err(more) => match &mut errors {
            Some(errors) => errors.extend(more),
            None => errors = Some(more),
        },
    }
    // Where all servers are in one file, the place is shown.
    if paths.len() > 1 || !loaded.config.include.is_empty() {
        let is_known = |name: &str| loaded.config.servers.iter().any(|server| server.name == name);
        for (path, endpoint) in &loaded.config.endpoints {
            for name in endpoint.servers.iter().flatten().filter(|name| !is_known(name)) {
                let message =
                    format!("the endpoint {} names the server {}, which no file has", quoted(path), quoted(name));
                let error = ConfigErrors::of_file(first, message, "correct the name in `endpoints`");
                match &mut errors {
                    Some(errors) => errors.extend(error),
                    None => errors = Some(error),
                }
            }
        }
    }
    let of_listeners = [&loaded.config.tls, &loaded.config.admin.tls].into_iter().flatten().flat_map(Tls::files);
    for path in of_listeners.map(PathBuf::from) {
        loaded.files.push(ConfigFile { fingerprint: fingerprint(&path), path });
    }
    let folders = folders.into_iter().map(|path| ConfigFile { fingerprint: fingerprint(&path), path });
    loaded.files.extend(folders);
    errors.map_or(Ok(loaded), Err)
}

/// Reads the file with keys, if there is one.
fn read_keys(loaded: &mut Loaded) -> Result<(), ConfigErrors> {
    let most = loaded.config.limits.auth_keys;
    let AuthChoice::Required(auth) = &mut loaded.config.auth else { return Ok(()) };
    let Some(file) = &mut auth.keys else { return Ok(()) };
    let path = PathBuf::from(&file.file);
    let keys = keys::load_keys(&path, most)?;
    file.keys = keys.keys;
    loaded.warnings.extend(keys.warnings);
    loaded.files.push(ConfigFile { path, fingerprint: keys.fingerprint });
    Ok(())
}

/// Reads the first file, or the only one. `has_further` says whether servers may be in others.
pub(crate) fn parse_first(
    text: &str,
    origin: &Path,
    env: &dyn Fn(&str) -> Option<String>,
    has_further: bool,
    known: &mut impl KnownServers,
) -> Result<Loaded, ConfigErrors> {
    let read = Read::new(text, origin)?;
    let Read { source, root, masked, findings } = read;
    let mut reader = Reader { root: Config::SECTION, source: &source, env, findings };
    let folder = origin.parent().unwrap_or(Path::new(""));
    let config = root.as_ref().map(|root| file::read(&mut reader, root, folder, has_further)).unwrap_or_default();
    let warnings = reader.findings.conclude(origin, &source, &masked)?;
    root.iter().for_each(|root| known.note(root, &source, origin));
    Ok(Loaded { config, warnings, path: origin.to_owned(), files: Vec::new() })
}

/// Takes note of the servers of a file.
pub(crate) trait KnownServers {
    fn note(&mut self, root: &Node, source: &Source, origin: &Path);
}

impl KnownServers for Known {
    fn note(&mut self, root: &Node, source: &Source, origin: &Path) {
        self.add(root, source, origin);
    }
}

/// Servers are not compared with those of other files.
impl KnownServers for () {
    fn note(&mut self, _: &Node, _: &Source, _: &Path) {}
}

type Further = (Vec<crate::Server>, Vec<crate::Problem>);

fn parse_further(
    text: &str,
    origin: &Path,
    env: &dyn Fn(&str) -> Option<String>,
    config: &Config,
    known: &mut Known,
) -> Result<Further, ConfigErrors> {
    let Read { source, root, masked, findings } = Read::new(text, origin)?;
    let mut reader = Reader { root: Config::SECTION, source: &source, env, findings };
    let mut servers = Vec::new();
    if let Some(root) = &root
        && let Some(fields) = Fields::open(&mut reader, Config::SECTION, "the file", root)
    {
        let Value::Map(entries) = &root.value else { return Ok(Default::default()) };
        let is_option = |key: &str| Config::SECTION.find(key).is_some() && !OF_FURTHER_FILES.contains(&key);
        for entry in entries.iter().filter(|entry| is_option(&entry.key)) {
            let message = format!("{} has no effect in a further config file", quoted(&entry.key));
            reader.error(entry.key_span, message, "move it to the first file; others have `mcpServers` only");
        }
        let folder = origin.parent().unwrap_or(Path::new(""));
        let context = Context { folder, call_timeout: config.timeouts.call, concurrency: config.limits.concurrency };
        for key in ["mcpServers", "servers"] {
            let Some(entry) = fields.get(key) else { continue };
            if let Value::Map(entries) = &entry.value.value {
                for entry in entries {
                    if let Some((name, file, line)) = known.find(&entry.key) {
                        let message = format!(
                            "the server {} is configured twice (first in {} on line {line})",
                            quoted(name),
                            file.display()
                        );
                        reader.error(entry.key_span, message, "keep one of the two, or give one another name");
                    }
                }
            }
            servers.extend(server::read_all(&mut reader, entry, &context));
        }
    }
    let warnings = reader.findings.conclude(origin, &source, &masked)?;
    root.iter().for_each(|root| known.add(root, &source, origin));
    Ok((servers, warnings))
}

/// A file that has been read as a tree.
struct Read {
    source: Source,
    root: Option<Node>,
    masked: Masked,
    findings: Findings,
}

impl Read {
    fn new(text: &str, origin: &Path) -> Result<Self, ConfigErrors> {
        if text.len() > MAX_FILE_SIZE {
            let message = format!("the file is larger than {}", units::format_size(MAX_FILE_SIZE));
            return Err(ConfigErrors::of_file(origin, message, "is this the right file?"));
        }
        let source = Source::new(text);
        let syntax = Syntax::of(origin, source.text());
        let mut findings = Findings::default();
        let root = syntax::parse(&source, syntax, &mut findings);
        let masked = Masked::of(root.as_ref(), Config::SECTION, &source, syntax);
        Ok(Self { source, root, masked, findings })
    }
}

/// The files that `include` names, in the order of the patterns and of their names, and the folders that they are in.
fn included(config: &Config, first: &Path) -> Result<(Vec<PathBuf>, Vec<PathBuf>), ConfigErrors> {
    let folder = first.parent().unwrap_or(Path::new(""));
    let (mut files, mut folders) = (Vec::new(), Vec::new());
    for pattern in &config.include {
        let wrong = |message: String| ConfigErrors::of_file(first, message, "see `include` in docs/configuration.md");
        let whole = Path::new(&glob::Pattern::escape(&folder.to_string_lossy())).join(pattern);
        let whole = if Path::new(pattern).is_absolute() { PathBuf::from(pattern) } else { whole };
        let found = glob::glob(&whole.to_string_lossy())
            .map_err(|error| wrong(format!("`include` has the pattern {}: {}", quoted(pattern), error.msg)))?;
        let before = files.len();
        for file in found {
            let file = file.map_err(|error| wrong(format!("`include` cannot read a folder: {error}")))?;
            if file.is_file() && !files.contains(&file) && file != first {
                files.push(file);
            }
        }
        let is_pattern = pattern.contains(['*', '?', '[']);
        if files.len() == before && !is_pattern {
            return Err(wrong(format!("`include` names {}, and there is no such file", quoted(pattern))));
        }
        if files.len() > MAX_FILES {
            return Err(wrong(format!("`include` names more than {MAX_FILES} files")));
        }
        // New files may appear where the part without `*` ends.
        let plain = Path::new(pattern).components().take_while(|part| {
            let text = part.as_os_str().to_string_lossy();
            !text.contains(['*', '?', '['])
        });
        let plain = folder.join(plain.collect::<PathBuf>());
        if is_pattern && plain.is_dir() && !folders.contains(&plain) {
            folders.push(plain);
        }
    }
    Ok((files, folders))
}

/// The text of a file of at most `most` bytes; of a larger one, one byte more than that.
pub(crate) fn read_text(path: &Path, most: usize) -> Result<(String, Option<u64>), ConfigErrors> {
    let bytes = read_bounded(path, most).map_err(|error| {
        let help = "check the name and the permissions of the file";
        ConfigErrors::of_file(path, format!("cannot read the file: {error}"), help)
    })?;
    let mark = hash(&bytes);
    let text = String::from_utf8(bytes).map_err(|error| {
        let valid = error.utf8_error().valid_up_to();
        let line = 1 + error.as_bytes().iter().take(valid).filter(|byte| **byte == b'\n').count();
        let message = format!("the file is not UTF-8 text: see line {line}");
        ConfigErrors::of_file(path, message, "save it as UTF-8")
    })?;
    Ok((text, Some(mark)))
}

/// The bytes of a file; of a larger file than allowed, one byte more than that.
fn read_bounded(path: &Path, most: usize) -> std::io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let most = most as u64 + 1;
    File::open(path)?.take(most).read_to_end(&mut bytes)?;
    Ok(bytes)
}
