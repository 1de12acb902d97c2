//! The JSON Schema of the config file. Editors check files against it while the user types.
//!
//! schemars would not do: it derives from Rust types, while a value in the file may also be text
//! with a unit or with variables. The parser reads the same definitions.

use serde_json::{Map, Value, json};

use crate::definition::{Definition, Form, Section};
use crate::model::Config;
use crate::option::Options as _;
use crate::report::mask::may_be_secret;

/// The JSON Schema (2020-12) of the config file, indented, with a line break at the end.
///
/// It accepts every file that [`parse`](crate::parse) accepts. Only the parser makes some checks
/// (addresses, URLs, duplicate keys, sizes and durations out of range).
pub fn schema() -> String {
    let mut definitions = Map::new();
    let mut root = section(Config::SECTION, &mut definitions);
    root.insert(
        "$schema".to_owned(),
        json!("https://json-schema.org/draft/2020-12/schema"),
    );
    root.insert("title".to_owned(), json!("Fanlight configuration"));
    root.insert(
        "patternProperties".to_owned(),
        json!({ "^x-": { "description": "For values that YAML anchors name." } }),
    );
    root.insert(
        "oneOf".to_owned(),
        json!([{ "required": ["mcpServers"] }, { "required": ["servers"] }]),
    );
    let with_field =
        |name: &str| json!({ "required": [name], "properties": { name: { "type": "string" } } });
    if let Some(Value::Object(server)) = definitions.get_mut("server") {
        let transports = ["command", "url", "serverUrl", "httpUrl"]
            .into_iter()
            .map(with_field);
        let several =
            json!({ "required": ["urls"], "properties": { "urls": { "type": "array" } } });
        server.insert("oneOf".to_owned(), transports.chain([several]).collect());
    }
    definitions.extend(common());
    root.insert("$defs".to_owned(), Value::Object(definitions));
    let mut schema = Value::Object(root);
    // Other features in the build decide whether serde_json keeps or sorts the order of members:
    // one order for all builds.
    schema.sort_all_objects();
    format!("{schema:#}\n")
}

/// The schema of one mapping: its options, keys without effect, and no others. Adds the schemas of
/// its sections.
fn section(section: &Section, definitions: &mut Map<String, Value>) -> Map<String, Value> {
    let mut properties = Map::new();
    for alias in section.aliases {
        properties.insert(alias.key.to_owned(), describe(alias, definitions));
    }
    for option in section.definitions {
        let schema = describe(option, definitions);
        properties.insert(option.key.to_owned(), schema);
    }
    for name in section.foreign {
        let about = "A setting of a client; without effect here.";
        properties.insert((*name).to_owned(), json!({ "description": about }));
    }
    let mut schema = Map::new();
    schema.insert("type".to_owned(), json!("object"));
    schema.insert("properties".to_owned(), Value::Object(properties));
    schema.insert("additionalProperties".to_owned(), json!(false));
    schema
}

fn describe(option: &Definition, definitions: &mut Map<String, Value>) -> Value {
    let mut schema = form((option.form)(), definitions);
    schema["description"] = json!(option.about);
    if may_be_secret(&(option.form)()) {
        schema["writeOnly"] = json!(true);
    }
    if let Some(default) = option.default() {
        schema["default"] = default;
    }
    schema
}

/// The schema of an option's value. Null stands for an absent option everywhere.
fn form(of: Form, definitions: &mut Map<String, Value>) -> Value {
    match of {
        Form::Text(_) => json!({ "type": ["string", "null"] }),
        Form::Flag => any_of([json!({ "type": "boolean" })]),
        Form::Duration { max, .. } => any_of([
            json!({ "type": "number", "minimum": 0, "maximum": max.as_secs() }),
            json!({ "$ref": "#/$defs/duration" }),
        ]),
        Form::Size { min, max } => any_of([
            json!({ "type": "integer", "minimum": min, "maximum": max }),
            json!({ "$ref": "#/$defs/size" }),
        ]),
        Form::Count { min, max } => {
            any_of([json!({ "type": "integer", "minimum": min, "maximum": max })])
        }
        Form::Share => any_of([json!({ "type": "number", "minimum": 0, "maximum": 1 })]),
        Form::Choice(words) => {
            // YAML reads a bare `true` as a boolean, and YAML 1.1 reads `on` and `off` as ones.
            let booleans = [("true", true), ("on", true), ("off", false)].into_iter();
            let booleans = booleans.filter(|(word, _)| words.contains(word));
            let booleans = booleans.map(|(_, flag)| json!(flag));
            any_of([
                json!({ "enum": words.iter().map(|word| json!(word)).chain(booleans).collect::<Vec<_>>() }),
            ])
        }
        Form::OrOff(inner) => {
            json!({ "anyOf": [form(*inner, definitions), { "enum": ["off", false] }] })
        }
        Form::Texts(_) => json!({ "type": ["array", "null"], "items": { "type": "string" } }),
        Form::TextOrTexts(_) => {
            json!({ "anyOf": [{ "type": ["string", "null"] }, { "type": "array", "items": { "type": "string" } }] })
        }
        Form::FlagOrTexts(_) => {
            json!({ "anyOf": [{ "type": ["boolean", "null"] }, { "type": "array", "items": { "type": "string" } }] })
        }
        Form::WordOr(word, section) => {
            let reference = refer(section, definitions);
            any_of([json!({ "const": word }), reference])
        }
        Form::Sections(section) => {
            let reference = refer(section, definitions);
            json!({ "type": ["array", "null"], "items": reference })
        }
        Form::Scalars => {
            json!({ "type": ["array", "null"], "items": { "$ref": "#/$defs/scalar" } })
        }
        Form::Pairs => {
            json!({ "type": ["object", "null"], "additionalProperties": { "$ref": "#/$defs/scalar" } })
        }
        Form::Section(section) => {
            let reference = refer(section, definitions);
            json!({ "anyOf": [reference, { "type": "null" }] })
        }
        Form::Named(section) => json!({
            "type": ["object", "null"],
            "propertyNames": { "minLength": 1, "maxLength": 64 },
            "additionalProperties": refer(section, definitions)
        }),
        Form::Paths(section) => {
            let reference = refer(section, definitions);
            json!({
                "type": ["object", "null"],
                "propertyNames": { "pattern": "^/" },
                "additionalProperties": { "anyOf": [reference, { "type": "null" }] }
            })
        }
        Form::Map(inner) => {
            json!({ "type": ["object", "null"], "additionalProperties": form(*inner, definitions) })
        }
        Form::Json([], _) | Form::Any => json!({}),
        Form::Json(types, _) => {
            json!({ "type": types, "items": { "not": { "type": "array" } } })
        }
    }
}

fn refer(inner: &Section, definitions: &mut Map<String, Value>) -> Value {
    let schema = section(inner, definitions);
    definitions.insert(inner.name.to_owned(), Value::Object(schema));
    json!({ "$ref": format!("#/$defs/{}", inner.name) })
}

/// A value of one of these kinds, a text with variables that becomes one, or null.
fn any_of<const N: usize>(own: [Value; N]) -> Value {
    let others = [
        json!({ "$ref": "#/$defs/variable" }),
        json!({ "type": "null" }),
    ];
    json!({ "anyOf": own.into_iter().chain(others).collect::<Vec<_>>() })
}

fn common() -> Map<String, Value> {
    let texts = [
        (
            "variable",
            "Text with `${VAR}` or `${VAR:-default}` in it.",
            "\\$\\{",
        ),
        (
            "duration",
            "A number with a unit: ms, s, m, h or d.",
            "^([0-9]+(\\.[0-9]+)?(ms|s|m|h|d))+$|^[0-9]+(\\.[0-9]+)?$",
        ),
        (
            "size",
            "A whole number with a unit: B, KB, MB, GB, KiB, MiB or GiB.",
            "^[0-9]+( *([bB]|[kKmMgG][iI]?[bB]))?$",
        ),
    ];
    let text = |(name, about, pattern): (&str, &str, &str)| {
        (
            name.to_owned(),
            json!({ "description": about, "type": "string", "pattern": pattern }),
        )
    };
    let scalar = (
        "scalar".to_owned(),
        json!({ "type": ["string", "number", "boolean"] }),
    );
    texts.into_iter().map(text).chain([scalar]).collect()
}
