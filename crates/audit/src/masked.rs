//! Arguments without secrets.

use fanlight_protocol::Json;
use fanlight_protocol::json::{ArrayBuilder, Kind, ObjectBuilder};

/// What stands for a secret.
const MASKED: &str = "***";
/// Levels of nesting that are looked into; what is deeper is masked.
const NESTING: usize = 32;
/// Parts of names of what is secret, in lower case, without what separates words.
const SECRET: [&str; 11] = [
    "password",
    "passwd",
    "passphrase",
    "secret",
    "token",
    "apikey",
    "accesskey",
    "privatekey",
    "credential",
    "authorization",
    "cookie",
];

/// A value without its secrets: members whose names say that they are, those that the schema of the tool calls so, and those
/// that `redact` names, by a path such as `customer.email` or by a name alone, wherever it is.
pub(crate) fn masked(value: &Json, schema: Option<&Json>, redact: &[String]) -> Json {
    Masking { redact }.value(value, schema, "", NESTING)
}

struct Masking<'a> {
    redact: &'a [String],
}

impl Masking<'_> {
    fn value(&self, value: &Json, schema: Option<&Json>, path: &str, nesting: usize) -> Json {
        let Some(nesting) = nesting.checked_sub(1) else { return Json::string(MASKED) };
        match value.kind() {
            Kind::Object => {
                let properties = schema.and_then(|schema| schema.get("properties"));
                let mut object = ObjectBuilder::new();
                for member in value.members() {
                    let Some(name) = member.name(value) else { continue };
                    let schema = properties.as_ref().and_then(|properties| properties.get(&name));
                    let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
                    if self.is_secret(&name, &path, schema.as_ref()) {
                        object.string(&name, MASKED);
                    } else {
                        let shown = self.value(&value.slice(member.value), schema.as_ref(), &path, nesting);
                        object.member(&name, &shown);
                    }
                }
                object.finish()
            }
            Kind::Array => {
                let items = schema.and_then(|schema| schema.get("items"));
                let mut list = ArrayBuilder::default();
                for element in value.elements() {
                    list.push(&self.value(&value.slice(element), items.as_ref(), path, nesting));
                }
                list.finish()
            }
            _ => value.clone(),
        }
    }

    fn is_secret(&self, name: &str, path: &str, schema: Option<&Json>) -> bool {
        let folded: String = name.chars().filter(|c| c.is_alphanumeric()).flat_map(char::to_lowercase).collect();
        let says_so = |schema: &Json| {
            let has = |member: &str, text: &str| schema.peek(member).is_some_and(|value| value.is_str(text));
            let is = |member: &str| schema.peek(member).is_some_and(|value| value.is_true());
            has("format", "password") || is("writeOnly") || is("x-secret") || schema.peek("x-mcp-header").is_some()
        };
        SECRET.iter().any(|part| folded.contains(part))
            || folded == "pin"
            || self.redact.iter().any(|one| one == path || one == name)
            || schema.is_some_and(says_so)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_are_masked_by_name_schema_and_path() {
        let value = Json::literal(
            r#"{"path":"/a","apiKey":"k","n":1.0,"card":{"no":"4111","cvc":"1"},"list":[{"access_token":"t","a":1}],"x":"h","Pin":1,"ping":2}"#,
        );
        let schema = Json::literal(
            r#"{"properties":{"x":{"x-mcp-header":"X"},"card":{"properties":{"no":{"format":"password"}}}}}"#,
        );
        let shown = masked(&value, Some(&schema), &["card.cvc".to_owned()]);
        assert_eq!(
            shown.as_text(),
            r#"{"path":"/a","apiKey":"***","n":1.0,"card":{"no":"***","cvc":"***"},"list":[{"access_token":"***","a":1}],"x":"***","Pin":"***","ping":2}"#
        );
    }
}
