//! The JSON Schema of the config file, made from the tables the parser reads. Editors check files against it while one types.

use serde_json::{Map, Value, json};

use crate::config::Config;
use crate::fields::{Section, Shape};
use crate::limits::{CALL, CONCURRENCY, LIMITS, LimitField, Limits, Measure, TIMEOUTS, Timeouts};
use crate::units::{format_duration, format_size};

/// The JSON Schema (2020-12) of the config file, indented, with a line break at the end.
///
/// It accepts every file that [`parse`](crate::parse) accepts. Some checks (addresses, URLs, duplicate keys, sizes and
/// durations out of range) only the parser makes.
pub fn schema() -> String {
    let mut root = Map::new();
    root.insert("$schema".to_owned(), json!("https://json-schema.org/draft/2020-12/schema"));
    root.insert("title".to_owned(), json!("Fanlight configuration"));
    root.extend(section(Section::Top));
    root.insert("oneOf".to_owned(), json!([{ "required": ["mcpServers"] }, { "required": ["servers"] }]));
    root.insert("$defs".to_owned(), definitions());
    let mut schema = Value::Object(root);
    // Whether serde_json keeps or sorts the order of members depends on what else is built: one order for all builds.
    schema.sort_all_objects();
    format!(
        "{schema:#}
"
    )
}

/// The schema of one mapping: its fields, those without effect, and no others.
fn section(section: Section) -> Map<String, Value> {
    let mut properties = Map::new();
    match section {
        Section::Limits => {
            let mut defaults = Limits::default();
            for field in LIMITS {
                let value = *(field.slot)(&mut defaults);
                let mut schema = limit(field);
                describe(&mut schema, field.about, Some(shown(field.measure, value)));
                properties.insert(field.name.to_owned(), schema);
            }
        }
        Section::Timeouts => {
            let mut defaults = Timeouts::default();
            for field in TIMEOUTS {
                let value = format_duration(*(field.slot)(&mut defaults));
                let mut schema = duration(field.max.as_secs());
                describe(&mut schema, field.about, Some(json!(value)));
                properties.insert(field.name.to_owned(), schema);
            }
        }
        _ => {
            let defaults = Config::default();
            for field in section.fields() {
                let mut schema = shape(field.shape);
                let default = field.default.map(|default| default(&defaults));
                describe(&mut schema, field.about, default);
                properties.insert(field.name.to_owned(), schema);
            }
        }
    }
    for name in section.ignored() {
        let about = "A setting of a client; without effect here.";
        properties.insert((*name).to_owned(), json!({ "description": about }));
    }
    let mut schema = Map::new();
    schema.insert("type".to_owned(), json!("object"));
    schema.insert("properties".to_owned(), Value::Object(properties));
    schema.insert("additionalProperties".to_owned(), json!(false));
    schema
}

/// The schema of a field's value. Null stands for an absent field everywhere.
fn shape(shape: Shape) -> Value {
    match shape {
        Shape::Text | Shape::Address | Shape::Path => {
            json!({ "type": ["string", "null"] })
        }
        Shape::Flag => any_of(json!({ "type": "boolean" })),
        Shape::Duration => duration(CALL.max.as_secs()),
        Shape::Concurrency => limit(&CONCURRENCY),
        Shape::Choice(words) => any_of(json!({ "enum": words })),
        Shape::Texts => json!({ "type": ["array", "null"], "items": { "type": "string" } }),
        Shape::Scalars => {
            json!({ "type": ["array", "null"], "items": { "$ref": "#/$defs/scalar" } })
        }
        Shape::Pairs => json!({
            "type": ["object", "null"],
            "additionalProperties": { "$ref": "#/$defs/scalar" }
        }),
        Shape::Of(section) => {
            let name = match section {
                Section::Admin => "admin",
                Section::Telemetry => "telemetry",
                Section::Limits => "limits",
                Section::Timeouts => "timeouts",
                Section::Tools => "tools",
                Section::Top | Section::Server => "server",
            };
            json!({ "anyOf": [{ "$ref": format!("#/$defs/{name}") }, { "type": "null" }] })
        }
        Shape::Servers => json!({
            "type": ["object", "null"],
            "propertyNames": { "minLength": 1, "maxLength": 64 },
            "additionalProperties": { "$ref": "#/$defs/server" }
        }),
        Shape::Anything => json!({}),
    }
}

fn definitions() -> Value {
    let with_field = |name: &str| json!({ "required": [name], "properties": { name: { "type": "string" } } });
    let mut server = section(Section::Server);
    server.insert("oneOf".to_owned(), ["command", "url", "serverUrl", "httpUrl"].into_iter().map(with_field).collect());
    json!({
        "server": server,
        "admin": section(Section::Admin),
        "telemetry": section(Section::Telemetry),
        "limits": section(Section::Limits),
        "timeouts": section(Section::Timeouts),
        "tools": section(Section::Tools),
        "scalar": { "type": ["string", "number", "boolean"] },
        "variable": {
            "description": "Text with `${VAR}` or `${VAR:-default}` in it.",
            "type": "string",
            "pattern": "\\$\\{"
        },
        "duration": {
            "description": "A number with a unit: ms, s, m, h or d.",
            "type": "string",
            "pattern": "^([0-9]+(\\.[0-9]+)?(ms|s|m|h|d))+$|^[0-9]+(\\.[0-9]+)?$"
        },
        "size": {
            "description": "A whole number with a unit: B, KB, MB, GB, KiB, MiB or GiB.",
            "type": "string",
            "pattern": "^[0-9]+( *([bB]|[kKmMgG][iI]?[bB]))?$"
        }
    })
}

/// A value of its own kind, a text with variables that becomes one, or null.
fn any_of(own: Value) -> Value {
    json!({ "anyOf": [own, { "$ref": "#/$defs/variable" }, { "type": "null" }] })
}

fn duration(max_seconds: u64) -> Value {
    json!({ "anyOf": [
        { "type": "number", "minimum": 0, "maximum": max_seconds },
        { "$ref": "#/$defs/duration" },
        { "$ref": "#/$defs/variable" },
        { "type": "null" }
    ] })
}

fn limit(field: &LimitField) -> Value {
    let number = json!({ "type": "integer", "minimum": field.min, "maximum": field.max });
    match field.measure {
        Measure::Count => any_of(number),
        Measure::Bytes => json!({ "anyOf": [
            number,
            { "$ref": "#/$defs/size" },
            { "$ref": "#/$defs/variable" },
            { "type": "null" }
        ] }),
    }
}

fn shown(measure: Measure, value: usize) -> Value {
    match measure {
        Measure::Bytes => json!(format_size(value)),
        Measure::Count => json!(value),
    }
}

fn describe(schema: &mut Value, about: &str, default: Option<Value>) {
    if let Value::Object(schema) = schema {
        schema.insert("description".to_owned(), json!(about));
        if let Some(default) = default {
            schema.insert("default".to_owned(), default);
        }
    }
}
