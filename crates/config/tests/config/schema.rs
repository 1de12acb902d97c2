//! The schema, the parser and the files made from the definitions agree.

use fanlight_config::{parse, reference, sample, schema};
use serde_json::{Value, json};
use std::path::Path;

use crate::examples;

const SECTIONS: [&str; 17] = [
    "top",
    "server",
    "admin",
    "telemetry",
    "limits",
    "timeouts",
    "filter",
    "naming",
    "override",
    "argument",
    "auth",
    "issuer",
    "claims",
    "introspection",
    "keys",
    "proxy",
    "scopes",
];

fn validator() -> jsonschema::Validator {
    let schema: Value = serde_json::from_str(&schema()).unwrap();
    jsonschema::meta::validate(&schema).unwrap();
    jsonschema::validator_for(&schema).unwrap()
}

/// The messages of the parser's errors about a value.
fn parser_errors(value: &Value) -> Vec<String> {
    match parse(&value.to_string(), Path::new("fanlight.json"), &crate::env) {
        Ok(_) => Vec::new(),
        Err(errors) => errors
            .problems()
            .iter()
            .map(|p| p.message().to_owned())
            .collect(),
    }
}

/// A good file with one field set in the given section.
fn with_field(section: &str, name: &str, value: &Value) -> Value {
    let mut file = json!({ "mcpServers": { "a": { "command": "run" } } });
    match section {
        "top" => file[name] = value.clone(),
        "server" => file["mcpServers"]["a"][name] = value.clone(),
        "filter" => file["mcpServers"]["a"]["tools"] = json!({ name: value }),
        "override" => file["mcpServers"]["a"]["override"] = json!({ "t": { name: value } }),
        "argument" => {
            file["mcpServers"]["a"]["arguments"] = json!({ "t": { "a": { name: value } } });
        }
        "auth" => file["auth"] = json!({ name: value }),
        "issuer" => file["auth"]["oauth"] = json!([{ name: value }]),
        "claims" | "introspection" => file["auth"]["oauth"] = json!([{ section: { name: value } }]),
        "keys" | "proxy" | "scopes" => {
            file["auth"][section] = json!({ name: value });
        }
        section => file[section] = json!({ name: value }),
    }
    file
}

/// Each section with the names of its fields in the schema, and whether the schema restricts their
/// values.
fn schema_fields() -> Vec<(String, String, bool)> {
    let schema: Value = serde_json::from_str(&schema()).unwrap();
    let sections = SECTIONS;
    let mut fields = Vec::new();
    for section in sections {
        let place = if section == "top" {
            &schema
        } else {
            &schema["$defs"][section]
        };
        assert_eq!(place["additionalProperties"], json!(false), "{section}");
        for (name, field) in place["properties"].as_object().unwrap() {
            assert!(field["description"].is_string(), "{section} {name}");
            let says = ["type", "anyOf"].iter().any(|key| field.get(key).is_some());
            fields.push((section.to_owned(), name.clone(), says));
        }
    }
    fields
}

#[test]
fn generated_files_are_current() {
    for (name, current) in [
        ("config/schema.json", schema()),
        ("config/fanlight.yaml", sample()),
        ("docs/configuration.md", reference()),
    ] {
        fanlight_testkit::generated::assert_file(name, &current);
    }
}

#[test]
fn every_option_is_in_the_sample_and_the_reference() {
    let (sample, reference) = (sample(), reference());
    // An endpoint's `servers` is an option, not another name.
    let aliases = [
        "serverUrl",
        "httpUrl",
        "disabled",
        "disabledTools",
        "excludeTools",
        "includeTools",
        "$schema",
    ];
    let fields = schema_fields();
    // Another program's key may be an option elsewhere.
    let is_option = |name: &str, says: bool| {
        !says && fields.iter().any(|(_, other, says)| other == name && *says)
    };
    let fields = fields
        .iter()
        .filter(|(_, name, says)| !is_option(name, *says));
    for (section, name, says) in fields {
        let documented = [format!("| `{name}` |"), format!("- `{name}`: ")]
            .iter()
            .any(|text| reference.contains(text));
        let shown = sample.contains(&format!("{name}: ")) || sample.contains(&format!("{name}:\n"));
        // Other programs' keys are only listed.
        let is_json = section == "argument";
        let known = *says || name == "$schema" || is_json;
        assert_eq!(documented, known, "{section} {name}");
        assert_eq!(
            shown,
            known && !aliases.contains(&name.as_str()),
            "{section} {name}"
        );
    }
}

#[test]
fn every_example_fits_the_schema() {
    let validator = validator();
    for name in examples::names() {
        let text = std::fs::read_to_string(examples::folder().join(&name)).unwrap();
        let value = yaml_as_json(&text);
        let errors: Vec<String> = validator
            .iter_errors(&value)
            .map(|e| e.to_string())
            .collect();
        assert_eq!(errors, [""; 0], "{name}");
    }
}

#[test]
fn every_field_of_the_schema_is_read_by_the_parser() {
    let fields = schema_fields();
    assert!(fields.len() > 50, "{}", fields.len());
    for (section, name, says) in fields {
        // No field accepts a list of lists, so the parser must reject it.
        let file = with_field(&section, &name, &json!([[]]));
        let errors = parser_errors(&file);
        assert!(
            !errors.iter().any(|e| e.starts_with("unknown")),
            "{section} {name}: {errors:?}"
        );
        assert_eq!(!errors.is_empty(), says, "{section} {name}: {errors:?}");
        assert_eq!(!validator().is_valid(&file), says, "{section} {name}");
    }
}

#[test]
fn every_field_of_the_parser_is_in_the_schema() {
    let known = schema_fields();
    for section in SECTIONS {
        // For a key that resembles none, the parser lists its known fields.
        let file = with_field(section, "qqqqqqqq", &json!(1));
        let errors = parse(&file.to_string(), Path::new("fanlight.json"), &crate::env).unwrap_err();
        let unknown = errors
            .problems()
            .iter()
            .find(|problem| problem.message().starts_with("unknown"))
            .unwrap();
        let (_, names) = unknown.help().unwrap().split_once(": ").unwrap();
        for name in names.split(", ") {
            let found = known.iter().any(|(s, n, _)| s == section && n == name);
            assert!(found, "{section} {name}");
        }
        assert!(!validator().is_valid(&file), "{section}");
    }
}

#[test]
fn schema_and_parser_agree_on_values() {
    let server = |fields: Value| json!({ "mcpServers": { "a": fields } });
    let with = |name: &str, value: Value| {
        let mut fields = json!({ "command": "run" });
        fields[name] = value;
        server(fields)
    };
    let top = |name: &str, value: Value| with_field("top", name, &value);
    for good in [
        json!({ "servers": {} }),
        json!({ "mcpServers": null }),
        server(json!({ "url": "http://e.com" })),
        server(json!({ "url": "http://e.com", "command": null })),
        with("timeout", json!("1m30s")),
        with("timeout", json!(0.5)),
        with("timeout", json!("${T}")),
        with("timeout", Value::Null),
        with("enabled", json!("${YES}")),
        with("concurrency", json!("${N}")),
        with("era", json!("modern")),
        with("session", json!("per-client")),
        with("args", json!(["a", 1, true])),
        with("env", json!({ "A": 1 })),
        with("description", json!([[]])),
        top("listen", json!("127.0.0.1:1")),
        top("limits", json!({ "requestBody": "64 kib", "traces": null })),
        top("admin", json!({ "listen": null })),
        top("ssePath", Value::Null),
        top("ssePath", json!("off")),
        top("$schema", json!("./schema.json")),
    ] {
        assert_eq!(parser_errors(&good), [""; 0], "{good}");
        assert!(validator().is_valid(&good), "{good}");
    }
    for bad in [
        json!({}),
        json!([]),
        json!({ "servers": {}, "mcpServers": {} }),
        server(json!({})),
        server(json!({ "command": "run", "url": "http://e.com" })),
        server(json!({ "url": "http://e.com", "httpUrl": "http://e.com" })),
        json!({ "mcpServers": { "": { "command": "run" } } }),
        with("timeout", json!("soon")),
        with("timeout", json!(-1)),
        with("timeout", json!(86_401)),
        with("enabled", json!("true")),
        with("concurrency", json!(0)),
        with("concurrency", json!(1.5)),
        with("era", json!("new")),
        with("session", json!("private")),
        with("args", json!([null])),
        with("env", json!({ "A": null })),
        with("tools", json!({ "allow": [1] })),
        top("limits", json!({ "requestBody": "1 lot" })),
        top("limits", json!({ "requestBody": 5 })),
        top("allowedHosts", json!("x")),
    ] {
        assert!(!parser_errors(&bad).is_empty(), "{bad}");
        assert!(!validator().is_valid(&bad), "{bad}");
    }
}

/// A YAML text as a JSON value, read by another parser.
fn yaml_as_json(text: &str) -> Value {
    serde_saphyr::from_str(text).unwrap()
}
