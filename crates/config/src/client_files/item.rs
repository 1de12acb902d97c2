//! Values of entries, in the notations of JSON, YAML and TOML.

use std::fmt::Write as _;

use serde_json::Value as Json;

fanlight_protocol::named! {
    /// The notation of a file.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum Language {
        /// JSON; readers may or may not allow comments, so none are written.
        Json = "json",
        /// YAML 1.2.
        Yaml = "yaml",
        /// TOML 1.0.
        Toml = "toml",
    }
}

/// The value as JSON in several lines. Lines after the first begin with `indent`; each level adds
/// `unit`.
pub(super) fn to_json(value: &Json, indent: &str, unit: &str) -> String {
    let inner = format!("{indent}{unit}");
    let block = |open: char, close: char, lines: Vec<String>| {
        format!(
            "{open}\n{inner}{}\n{indent}{close}",
            lines.join(&format!(",\n{inner}"))
        )
    };
    match value {
        Json::Object(members) if !members.is_empty() => {
            let line = |(key, value): (&String, &Json)| {
                format!("{}: {}", quoted(key), to_json(value, &inner, unit))
            };
            block('{', '}', members.iter().map(line).collect())
        }
        Json::Array(items) if items.iter().any(|item| item.is_object() || item.is_array()) => {
            let lines = items.iter().map(|item| to_json(item, &inner, unit));
            block('[', ']', lines.collect())
        }
        _ => to_flow(value),
    }
}

/// The value as JSON in one line, which is also YAML.
pub(super) fn to_flow(value: &Json) -> String {
    match value {
        Json::String(text) => quoted(text),
        Json::Array(items) => format!("[{}]", joined(items.iter().map(to_flow))),
        Json::Object(members) => {
            let pair =
                |(key, value): (&String, &Json)| format!("{}: {}", quoted(key), to_flow(value));
            format!("{{{}}}", joined(members.iter().map(pair)))
        }
        _ => value.to_string(),
    }
}

/// The members of a mapping as lines of YAML that begin with `indent`; any other value as one line.
pub fn to_yaml(value: &Json, indent: &str) -> String {
    let Json::Object(members) = value else {
        return format!("{indent}{}\n", to_yaml_scalar(value));
    };
    let mut lines = String::new();
    for (key, value) in members {
        let key = yaml_text(key);
        let inner = format!("{indent}  ");
        // Writing to a string cannot fail.
        let _ = match value {
            Json::Object(members) if !members.is_empty() => {
                write!(lines, "{indent}{key}:\n{}", to_yaml(value, &inner))
            }
            Json::Array(items) if items.iter().any(Json::is_object) => {
                let items: String = items
                    .iter()
                    .map(|item| to_yaml_item(item, &inner))
                    .collect();
                write!(lines, "{indent}{key}:\n{items}")
            }
            _ => writeln!(lines, "{indent}{key}: {}", to_yaml_scalar(value)),
        };
    }
    lines
}

/// A mapping as an entry of a YAML list, with its dash at `indent`.
pub(super) fn to_yaml_item(value: &Json, indent: &str) -> String {
    let lines = to_yaml(value, &format!("{indent}  "));
    format!("{indent}- {}", lines.trim_start())
}

fn to_yaml_scalar(value: &Json) -> String {
    match value {
        Json::String(text) => yaml_text(text),
        Json::Array(items) => format!("[{}]", joined(items.iter().map(to_yaml_scalar))),
        _ => to_flow(value),
    }
}

/// The members of a mapping as lines of a TOML table. Inner mappings are inline tables; null is left
/// out.
pub(super) fn to_toml(value: &Json) -> String {
    let members = value.as_object().into_iter().flatten();
    members
        .filter(|(_, value)| !value.is_null())
        .map(|(key, value)| format!("{} = {}\n", toml_key(key), to_toml_value(value)))
        .collect()
}

fn to_toml_value(value: &Json) -> String {
    match value {
        Json::Object(members) => {
            let pair = |(key, value): (&String, &Json)| {
                format!("{} = {}", toml_key(key), to_toml_value(value))
            };
            format!("{{ {} }}", joined(members.iter().map(pair)))
        }
        Json::Array(items) => format!("[{}]", joined(items.iter().map(to_toml_value))),
        _ => to_flow(value),
    }
}

fn joined(parts: impl Iterator<Item = String>) -> String {
    parts.collect::<Vec<_>>().join(", ")
}

/// A JSON string. YAML and TOML read it in the same way, since serde_json escapes no character
/// differently.
pub(crate) fn quoted(text: &str) -> String {
    serde_json::Value::from(text)
        .to_string()
        .replace('\u{7f}', "\\u007f")
}

/// A TOML key.
pub(crate) fn toml_key(key: &str) -> String {
    let is_bare = !key.is_empty()
        && key
            .chars()
            .all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '-'));
    if is_bare { key.to_owned() } else { quoted(key) }
}

/// A YAML text: plain if every reader takes it for a string, otherwise quoted.
fn yaml_text(text: &str) -> String {
    const WORDS: [&str; 10] = [
        "true", "false", "null", "yes", "no", "on", "off", "y", "n", "nan",
    ];
    let is_plain = text.starts_with(|c: char| c.is_ascii_alphabetic() || matches!(c, '/' | '_'))
        && text
            .chars()
            .all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.' | '/' | '@' | '+'))
        && !WORDS.contains(&text.to_ascii_lowercase().as_str());
    if is_plain {
        text.to_owned()
    } else {
        quoted(text)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn sample() -> Json {
        json!({
            "url": "http://127.0.0.1:8080/mcp",
            "args": ["-y", "true", "a b"],
            "on": true,
            "headers": { "X y": "\"quoted\"\n" },
            "none": {},
        })
    }

    #[test]
    fn json_is_indented_as_its_surroundings() {
        let expected = "{\n\t\t\"url\": \"http://127.0.0.1:8080/mcp\",\n\t\t\"args\": [\"-y\", \"true\", \"a b\"],\n\t\t\"on\": \
                        true,\n\t\t\"headers\": {\n\t\t\t\"X y\": \"\\\"quoted\\\"\\n\"\n\t\t},\n\t\t\"none\": {}\n\t}";
        assert_eq!(to_json(&sample(), "\t", "\t"), expected);
    }

    #[test]
    fn yaml_quotes_what_is_no_plain_string() {
        let expected = "url: \"http://127.0.0.1:8080/mcp\"\nargs: [\"-y\", \"true\", \"a b\"]\n\"on\": true\nheaders:\n  \"X y\": \
                        \"\\\"quoted\\\"\\n\"\nnone: {}\n";
        assert_eq!(to_yaml(&sample(), ""), expected);
        assert_eq!(
            to_yaml_item(&json!({ "name": "a", "b": "c" }), "  "),
            "  - name: a\n    b: c\n"
        );
    }

    #[test]
    fn toml_has_inline_tables() {
        let expected = "url = \"http://127.0.0.1:8080/mcp\"\nargs = [\"-y\", \"true\", \"a b\"]\non = true\nheaders = { \"X y\" = \
                        \"\\\"quoted\\\"\\n\" }\nnone = {  }\n";
        assert_eq!(to_toml(&sample()), expected);
    }
}
