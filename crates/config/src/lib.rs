//! Fanlight's configuration file: reading, checking, schema.
//!
//! A file is JSON or YAML; the `mcp.json` of a desktop client is one as it stands. [`load`] yields a complete [`Config`] or
//! every problem of the file at once, each with its place, the text it is about and what to do.
//!
//! The way of a file, one module for each step: `source` (text and places) → `syntax` (a tree of nodes) → `secrets` (what may
//! be shown) → `file`, `server` and `transport` (fields, by way of `reader`, which substitutes variables) → `problem` and `render`.
//! `fields` and `limits` hold the tables of all fields, which the `schema` is made from too.
//!
//! This crate is a leaf. It knows nothing of the protocol, opens no connection, and reads the process environment only
//! through the function its caller gives it.

mod config;
mod fields;
mod file;
mod limits;
mod problem;
mod reader;
mod render;
mod schema;
mod secrets;
mod server;
mod shown;
mod source;
mod substitute;
mod syntax;
mod telemetry;
mod transport;
mod tree;
mod units;

use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};

pub use config::{
    Admin, Config, EraChoice, OtlpChoice, SealKey, Secret, Server, SessionChoice, Telemetry, ToolFilter, Transport,
    TrustChoice,
};
pub use limits::{Limits, Timeouts};
pub use problem::{ConfigErrors, Problem, Severity};
pub use schema::schema;
pub use source::Position;

use problem::Findings;
use reader::Reader;
use secrets::Masked;
use source::Source;
use syntax::Syntax;

/// Size of the largest config file, in bytes.
pub const MAX_FILE_SIZE: usize = 1 << 20;

/// A config file that can be used.
#[derive(Debug, Clone)]
pub struct Loaded {
    /// What it says.
    pub config: Config,
    /// What in it has no effect, or not the one its author may expect; in the order of the file.
    pub warnings: Vec<Problem>,
    /// The file, as it was named to [`load`] or [`parse`].
    pub path: PathBuf,
}

/// Reads and checks a config file. `env` looks up the variables the file names.
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

/// Checks the text of a config file. `origin` is what messages call it; its extension tells YAML from JSON, and its folder
/// is what a relative `cwd` is relative to. `env` looks up the variables the text names.
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
    let masked = Masked::of(root.as_ref(), &source, syntax);

    let mut reader = Reader { source: &source, env, findings };
    let folder = origin.parent().unwrap_or(Path::new(""));
    let config = root.map(|root| file::read(&mut reader, &root, folder)).unwrap_or_default();
    let warnings = reader.findings.conclude(origin, &source, &masked)?;
    Ok(Loaded { config, warnings, path: origin.to_owned() })
}

/// The bytes of a file; of one that is too large, one more than may be.
fn read_bounded(path: &Path) -> std::io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let most = MAX_FILE_SIZE as u64 + 1;
    File::open(path)?.take(most).read_to_end(&mut bytes)?;
    Ok(bytes)
}
