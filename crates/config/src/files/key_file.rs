//! Reads the options for the `keys` commands.

use std::path::PathBuf;

use super::{First, parse_first};
use crate::report::problem::ConfigErrors;
use crate::variables::Environment;
use crate::{MAX_FILE_SIZE, text_file};

/// The file with keys from the first of these config files. This checks the config file and does
/// not read the keys.
///
/// # Errors
///
/// Every error of the config file.
pub fn key_file(
    paths: &[PathBuf],
    env: &dyn Fn(&str) -> Option<String>,
) -> Result<Option<PathBuf>, ConfigErrors> {
    let Some(first) = paths.first() else {
        return Ok(None);
    };
    let (text, _) = text_file::read(first, MAX_FILE_SIZE)?;
    let environment = Environment::of_variables(env);
    let kind = First {
        has_further: true,
        reads_files: true,
        is_lenient: true,
    };
    let config = parse_first(&text, first, environment, kind, &mut Default::default())?.config;
    let keys = config.auth.methods().and_then(|auth| auth.keys.as_ref());
    Ok(keys.map(|keys| PathBuf::from(&keys.file)))
}
