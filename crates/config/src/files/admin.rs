//! Reads the admin listener's options for commands that ask a running gateway.

use std::path::Path;

use super::own_variables;
use super::tree::Tree;
use crate::model::Config;
use crate::model::operators::Admin;
use crate::option::Options as _;
use crate::option::reader::Reader;
use crate::read::file;
use crate::report::problem::ConfigErrors;
use crate::syntax::{Node, Value};
use crate::variables::{Environment, Variables};
use crate::{MAX_FILE_SIZE, text_file};

/// Reads the operators' listener from the config file at `path`. The rest of the file is not
/// checked, and variables may be missing: a command that asks a running gateway need not have its
/// servers' variables.
///
/// # Errors
///
/// Every other error of `admin`, or the one reason why the file cannot be read.
pub fn load_admin(
    path: &Path,
    env: &dyn Fn(&str) -> Option<String>,
) -> Result<Admin, ConfigErrors> {
    let (text, _) = text_file::read(path, MAX_FILE_SIZE)?;
    let Tree {
        source,
        mut root,
        client,
        is_own,
        masked,
        findings,
    } = Tree::new(&text, path)?;
    // A file that cannot be read may only have variables of servers.
    let (own, _) = own_variables(root.as_ref(), path).unwrap_or_default();
    let environment = Environment::of_variables(env);
    let variables = Variables::new(environment, path, client.as_ref(), own, true);
    if let Some(Node {
        value: Value::Map(entries),
        ..
    }) = &mut root
    {
        entries.retain(|entry| entry.key == "admin");
    }
    let mut reader = Reader {
        is_own,
        ..Reader::new(Config::SECTION, &source, &variables, findings)
    };
    let folder = path.parent().unwrap_or(Path::new(""));
    let config = root
        .as_ref()
        .map(|root| file::read(&mut reader, root, folder, true))
        .unwrap_or_default();
    let errors = reader.findings.conclude(path, &source, &masked).err();
    errors
        .and_then(ConfigErrors::without_missing_variables)
        .map_or(Ok(config.admin), Err)
}
