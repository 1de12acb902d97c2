//! Fanlight's configuration file: reading, checking, schema, reference.
//!
//! A file is JSON or YAML; the `mcp.json` of a desktop client is one without changes. [`load`] yields a complete [`Config`] or
//! every problem of the file at once, each with its position, an excerpt and a hint.
//!
//! Each option is defined once, with the struct that holds it, in `model`: key, type, default, range, description,
//! example. The `option` module turns a definition into a parser; `output` makes the JSON Schema, docs/configuration.md
//! and config/fanlight.yaml from the same definitions.
//!
//! Reading a file: `syntax` (text to a tree of nodes with spans) → `option` (fields of a section, with variables replaced) →
//! `read` (checks between options, servers) → `report` (problems, with secrets masked).
//!
//! This crate has no I/O but [`load`]: it opens no connection, and reads the process environment only through the function
//! that its caller passes.

mod definition;
mod model;
mod option;
mod output;
mod read;
mod report;
mod syntax;
mod units;

use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};

pub use fanlight_settings::{Secret, Transport};
pub use model::Config;
pub use model::limits::{Limits, Timeouts};
pub use model::operators::{Admin, OtlpChoice, Telemetry, TrustChoice};
pub use model::secret::SealKey;
pub use model::server::{EraChoice, Server, SessionChoice};
pub use model::tools::ToolFilter;
pub use output::reference::reference;
pub use output::sample::sample;
pub use output::schema::schema;
pub use report::problem::{ConfigErrors, Problem, Severity};
pub use syntax::source::Position;

use option::Options as _;
use option::reader::Reader;
use read::file;
use report::mask::Masked;
use report::problem::Findings;
use syntax::source::{Source, Syntax};

/// Size of the largest config file, in bytes.
pub const MAX_FILE_SIZE: usize = 1 << 20;

/// A config file that can be used.
#[derive(Debug, Clone)]
pub struct Loaded {
    /// Its content.
    pub config: Config,
    /// Settings without effect, or not with the effect that their author may expect; in the order of the file.
    pub warnings: Vec<Problem>,
    /// The file, as passed to [`load`] or [`parse`].
    pub path: PathBuf,
    /// Every file that it was read from, and every folder that an included file may appear in.
    pub files: Vec<PathBuf>,
}

/// Reads and checks a config file. `env` looks up the variables that the file names.
///
/// # Errors
///
/// Every error of the file, or the one reason why it cannot be read.
pub fn load(path: &Path, env: &dyn Fn(&str) -> Option<String>) -> Result<Loaded, ConfigErrors> {
    let bytes = read_bounded(path).map_err(|error| {
        let help = "check the name and the permissions of the file";
        ConfigErrors::of_file(path, format!("cannot read the file: {error}"), help)
    })?;
    let text = String::from_utf8(bytes).map_err(|error| {
        let valid = error.utf8_error().valid_up_to();
        let line = 1 + error.as_bytes().iter().take(valid).filter(|byte| **byte == b'\n').count();
        let message = format!("the file is not UTF-8 text: see line {line}");
        ConfigErrors::of_file(path, message, "save it as UTF-8")
    })?;
    parse(&text, path, env)
}

/// Checks the text of a config file. `origin` is its name in messages; its extension tells YAML from JSON, and a relative
/// `cwd` is relative to its folder. `env` looks up the variables that the text names.
///
/// # Errors
///
/// Every error of the text.
pub fn parse(text: &str, origin: &Path, env: &dyn Fn(&str) -> Option<String>) -> Result<Loaded, ConfigErrors> {
    if text.len() > MAX_FILE_SIZE {
        let message = format!("the file is larger than {}", units::format_size(MAX_FILE_SIZE));
        return Err(ConfigErrors::of_file(origin, message, "is this the right file?"));
    }
    let source = Source::new(text);
    let syntax = Syntax::of(origin, source.text());
    let mut findings = Findings::default();
    let root = syntax::parse(&source, syntax, &mut findings);
    let masked = Masked::of(root.as_ref(), Config::SECTION, &source, syntax);

    let mut reader = Reader { root: Config::SECTION, source: &source, env, findings };
    let folder = origin.parent().unwrap_or(Path::new(""));
    let config = root.map(|root| file::read(&mut reader, &root, folder)).unwrap_or_default();
    let warnings = reader.findings.conclude(origin, &source, &masked)?;
    Ok(Loaded { config, warnings, path: origin.to_owned(), files: vec![origin.to_owned()] })
}

/// The bytes of a file; of a larger file than allowed, one byte more than that.
fn read_bounded(path: &Path) -> std::io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let most = MAX_FILE_SIZE as u64 + 1;
    File::open(path)?.take(most).read_to_end(&mut bytes)?;
    Ok(bytes)
}
