//! The official schemas, with each definition found, parsed and compiled once.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, LazyLock, Mutex};

use jsonschema::Validator;
use serde_json::{Value, json};

use crate::revisions::{LEGACY, MODERN};

/// The folder of the tasks extension, beside the revisions' folders.
pub(super) const EXT_TASKS: &str = "ext-tasks";

/// The schemas by revision, or [`EXT_TASKS`].
pub(super) struct Official {
    schemas: HashMap<&'static str, Value>,
    validators: Mutex<HashMap<(String, String), Arc<Validator>>>,
}

/// The schemas of this machine, if it has any. The folder in `FANLIGHT_SPEC` must exist.
pub(super) fn installed() -> Option<&'static Official> {
    static INSTALLED: LazyLock<Option<Official>> =
        LazyLock::new(|| Some(Official::load(&folder()?)));
    INSTALLED.as_ref()
}

fn folder() -> Option<PathBuf> {
    if let Some(named) = std::env::var_os("FANLIGHT_SPEC") {
        return Some(named.into());
    }
    let beside = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/spec");
    beside.is_dir().then_some(beside)
}

impl Official {
    fn load(folder: &Path) -> Self {
        let names = LEGACY.iter().copied().chain([MODERN, EXT_TASKS]);
        let schemas = names.map(|name| {
            let path = folder.join(name).join("schema.json");
            let text = fs::read_to_string(&path)
                .unwrap_or_else(|error| panic!("{}: {error}", path.display()));
            let schema = serde_json::from_str(&text)
                .unwrap_or_else(|error| panic!("{}: {error}", path.display()));
            (name, schema)
        });
        Self {
            schemas: schemas.collect(),
            validators: Mutex::default(),
        }
    }

    pub(super) fn knows(&self, revision: &str) -> bool {
        self.schemas.contains_key(revision)
    }

    pub(super) fn defines(&self, schema: &str, definition: &str) -> bool {
        self.definitions(schema)
            .is_some_and(|(_, all)| all.get(definition).is_some())
    }

    /// Whether a union, such as `ServerRequest`, has a definition among its members.
    pub(super) fn unites(&self, schema: &str, union: &str, definition: &str) -> bool {
        let Some((keyword, all)) = self.definitions(schema) else {
            return false;
        };
        let wanted = format!("#/{keyword}/{definition}");
        let is_wanted = |member: &Value| member["$ref"] == wanted.as_str();
        match &all[union]["anyOf"] {
            Value::Array(members) => members.iter().any(is_wanted),
            // A union of one member is that member, by reference or inline.
            _ => {
                let only = &all[union];
                let method = |schema: &Value| schema["properties"]["method"].clone();
                is_wanted(only)
                    || (!method(only).is_null() && method(only) == method(&all[definition]))
            }
        }
    }

    /// The violations of a definition by a value: JSON pointers and messages.
    pub(super) fn check(
        &self,
        schema: &str,
        definition: &str,
        value: &Value,
    ) -> Vec<(String, String)> {
        let validator = self.validator(schema, definition);
        let shortened = |text: String| text.chars().take(300).collect();
        validator
            .iter_errors(value)
            .map(|error| {
                (
                    error.instance_path().to_string(),
                    shortened(error.to_string()),
                )
            })
            .collect()
    }

    fn validator(&self, schema: &str, definition: &str) -> Arc<Validator> {
        let mut validators = self.validators.lock().unwrap();
        let key = (schema.to_owned(), definition.to_owned());
        let validator = validators.entry(key).or_insert_with(|| {
            let (keyword, all) = self.definitions(schema).expect("a known schema");
            assert!(all.get(definition).is_some(), "{schema} has no {definition}");
            let dialect = &self.schemas[schema]["$schema"];
            let root = json!({ "$schema": dialect, "$ref": format!("#/{keyword}/{definition}"), keyword: all });
            let compiled = jsonschema::validator_for(&root);
            Arc::new(compiled.unwrap_or_else(|error| panic!("{schema} {definition}: {error}")))
        });
        Arc::clone(validator)
    }

    /// The keyword of the schema's dialect for definitions, and its value.
    fn definitions(&self, schema: &str) -> Option<(&'static str, &Value)> {
        let schema = self.schemas.get(schema)?;
        ["$defs", "definitions"]
            .into_iter()
            .find_map(|keyword| Some((keyword, schema.get(keyword)?)))
    }
}
