//! A value for a file, and its notation in JSON, YAML and TOML.

use std::fmt::Write as _;

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

/// A value to be written; members of mappings keep their order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Item {
    /// Null.
    Null,
    /// A boolean.
    Flag(bool),
    /// A number as digits.
    Number(String),
    /// A string.
    Text(String),
    /// A list.
    List(Vec<Item>),
    /// A mapping.
    Map(Vec<(String, Item)>),
}

impl Item {
    /// A string.
    pub fn text(text: impl Into<String>) -> Self {
        Self::Text(text.into())
    }

    /// A list of strings.
    pub fn texts<T: Into<String>>(texts: impl IntoIterator<Item = T>) -> Self {
        Self::List(texts.into_iter().map(Self::text).collect())
    }

    /// A mapping.
    pub fn map<K: Into<String>>(members: impl IntoIterator<Item = (K, Self)>) -> Self {
        Self::Map(
            members
                .into_iter()
                .map(|(key, value)| (key.into(), value))
                .collect(),
        )
    }

    /// The member of a mapping.
    pub fn member(&self, key: &str) -> Option<&Self> {
        let Self::Map(members) = self else {
            return None;
        };
        members
            .iter()
            .find(|(name, _)| name == key)
            .map(|(_, value)| value)
    }

    /// The value as JSON in several lines. Lines after the first begin with `indent`; each level
    /// adds `unit`.
    pub fn to_json(&self, indent: &str, unit: &str) -> String {
        let inner = format!("{indent}{unit}");
        let block = |open: char, close: char, lines: Vec<String>| {
            format!(
                "{open}\n{inner}{}\n{indent}{close}",
                lines.join(&format!(",\n{inner}"))
            )
        };
        match self {
            Self::Map(members) if !members.is_empty() => {
                let line = |(key, value): &(String, Self)| {
                    format!("{}: {}", quoted(key), value.to_json(&inner, unit))
                };
                block('{', '}', members.iter().map(line).collect())
            }
            Self::List(items)
                if items
                    .iter()
                    .any(|item| matches!(item, Self::Map(_) | Self::List(_))) =>
            {
                block(
                    '[',
                    ']',
                    items
                        .iter()
                        .map(|item| item.to_json(&inner, unit))
                        .collect(),
                )
            }
            _ => self.to_flow(),
        }
    }

    /// The value as JSON in one line, which is also YAML.
    pub fn to_flow(&self) -> String {
        match self {
            Self::Null => "null".to_owned(),
            Self::Flag(flag) => flag.to_string(),
            Self::Number(digits) => digits.clone(),
            Self::Text(text) => quoted(text),
            Self::List(items) => format!("[{}]", joined(items.iter().map(Self::to_flow))),
            Self::Map(members) => {
                let pair =
                    |(key, value): &(String, Self)| format!("{}: {}", quoted(key), value.to_flow());
                format!("{{{}}}", joined(members.iter().map(pair)))
            }
        }
    }

    /// The members of a mapping as lines of YAML that begin with `indent`; any other value as one
    /// line.
    pub fn to_yaml(&self, indent: &str) -> String {
        let Self::Map(members) = self else {
            return format!("{indent}{}\n", self.to_yaml_scalar());
        };
        let mut lines = String::new();
        for (key, value) in members {
            let key = yaml_text(key);
            // Writing to a string cannot fail.
            let _ = match value {
                Self::Map(inner) if !inner.is_empty() => {
                    write!(
                        lines,
                        "{indent}{key}:\n{}",
                        value.to_yaml(&format!("{indent}  "))
                    )
                }
                Self::List(items) if items.iter().any(|item| matches!(item, Self::Map(_))) => {
                    let items: String = items
                        .iter()
                        .map(|item| item.to_yaml_item(&format!("{indent}  ")))
                        .collect();
                    write!(lines, "{indent}{key}:\n{items}")
                }
                _ => writeln!(lines, "{indent}{key}: {}", value.to_yaml_scalar()),
            };
        }
        lines
    }

    /// A mapping as an entry of a YAML list, with its dash at `indent`.
    pub fn to_yaml_item(&self, indent: &str) -> String {
        let lines = self.to_yaml(&format!("{indent}  "));
        format!("{indent}- {}", lines.trim_start())
    }

    fn to_yaml_scalar(&self) -> String {
        match self {
            Self::Text(text) => yaml_text(text),
            Self::List(items) => format!("[{}]", joined(items.iter().map(Self::to_yaml_scalar))),
            _ => self.to_flow(),
        }
    }

    /// The members of a mapping as lines of a TOML table. Inner mappings are inline tables; null is
    /// left out.
    pub fn to_toml(&self) -> String {
        let Self::Map(members) = self else {
            return String::new();
        };
        let given = members.iter().filter(|(_, value)| *value != Self::Null);
        given
            .map(|(key, value)| format!("{} = {}\n", toml_key(key), value.to_toml_value()))
            .collect()
    }

    fn to_toml_value(&self) -> String {
        match self {
            Self::Map(members) => {
                let pair = |(key, value): &(String, Self)| {
                    format!("{} = {}", toml_key(key), value.to_toml_value())
                };
                format!("{{ {} }}", joined(members.iter().map(pair)))
            }
            Self::List(items) => format!("[{}]", joined(items.iter().map(Self::to_toml_value))),
            _ => self.to_flow(),
        }
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
    use super::*;

    fn sample() -> Item {
        Item::map([
            ("url", Item::text("http://127.0.0.1:8080/mcp")),
            ("args", Item::texts(["-y", "true", "a b"])),
            ("on", Item::Flag(true)),
            ("headers", Item::map([("X y", Item::text("\"quoted\"\n"))])),
            ("none", Item::Map(Vec::new())),
        ])
    }

    #[test]
    fn json_is_indented_as_its_surroundings() {
        let expected = "{\n\t\t\"url\": \"http://127.0.0.1:8080/mcp\",\n\t\t\"args\": [\"-y\", \"true\", \"a b\"],\n\t\t\"on\": \
                        true,\n\t\t\"headers\": {\n\t\t\t\"X y\": \"\\\"quoted\\\"\\n\"\n\t\t},\n\t\t\"none\": {}\n\t}";
        assert_eq!(sample().to_json("\t", "\t"), expected);
    }

    #[test]
    fn yaml_quotes_what_is_no_plain_string() {
        let expected = "url: \"http://127.0.0.1:8080/mcp\"\nargs: [\"-y\", \"true\", \"a b\"]\n\"on\": true\nheaders:\n  \"X y\": \
                        \"\\\"quoted\\\"\\n\"\nnone: {}\n";
        assert_eq!(sample().to_yaml(""), expected);
        assert_eq!(
            Item::map([("name", Item::text("a")), ("b", Item::text("c"))]).to_yaml_item("  "),
            "  - name: a\n    b: c\n"
        );
    }

    #[test]
    fn toml_has_inline_tables() {
        let expected = "url = \"http://127.0.0.1:8080/mcp\"\nargs = [\"-y\", \"true\", \"a b\"]\non = true\nheaders = { \"X y\" = \
                        \"\\\"quoted\\\"\\n\" }\nnone = {  }\n";
        assert_eq!(sample().to_toml(), expected);
    }
}
