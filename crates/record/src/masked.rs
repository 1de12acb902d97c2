//! Masks secrets in arguments.

use fanlight_protocol::Json;
use fanlight_protocol::json::{ArrayBuilder, Kind, ObjectBuilder};
use fanlight_protocol::secret;

/// The replacement for a secret.
pub(crate) const MASKED: &str = "***";
/// How many levels of nesting are searched. Deeper values are masked.
const NESTING: usize = 32;
/// The most schemas that are considered for one value. With more, the value is treated as secret.
const SCHEMAS: usize = 64;

/// Masks the secrets in a value: what [`secret`] recognizes, members that the tool's schema calls
/// secret, and members in `redact`. An entry of `redact` is a path such as `customer.email`, or a
/// name that counts everywhere.
pub(crate) fn mask_secrets(value: &Json, schema: Option<&Json>, redact: &[String]) -> Json {
    let masking = Masking {
        redact,
        root: schema,
    };
    match masking.with_parts(schema.cloned().into_iter().collect()) {
        Some(schemas) => masking.value(value, &schemas, "", NESTING),
        None => Json::string(MASKED),
    }
}

struct Masking<'a> {
    redact: &'a [String],
    /// The schema that references point into.
    root: Option<&'a Json>,
}

impl Masking<'_> {
    /// `schemas` are the schemas that may apply to the value, with their parts.
    fn value(&self, value: &Json, schemas: &[Json], path: &str, nesting: usize) -> Json {
        let Some(nesting) = nesting.checked_sub(1) else {
            return Json::string(MASKED);
        };
        match value.kind() {
            Kind::Object => {
                let mut object = ObjectBuilder::new();
                let secret_members = secret::Members::read(value);
                for member in value.members() {
                    let Some(name) = member.name(value) else {
                        continue;
                    };
                    let of_member = self.parts_without_secrets(member_schemas(schemas, &name));
                    let path = if path.is_empty() {
                        name.clone()
                    } else {
                        format!("{path}.{name}")
                    };
                    let inner = value.slice(member.value);
                    let is_secret = secret_members.hide(&name, &inner)
                        || self.redact.iter().any(|one| *one == path || *one == name);
                    match of_member.filter(|_| !is_secret) {
                        Some(schemas) => {
                            object.member(&name, &self.value(&inner, &schemas, &path, nesting))
                        }
                        None => object.string(&name, MASKED),
                    };
                }
                object.finish()
            }
            Kind::Array => {
                let of_element = self.parts_without_secrets(element_schemas(schemas));
                let mut secret_elements = secret::Elements::new(value);
                let mut list = ArrayBuilder::default();
                for element in value.items() {
                    list.push(&match &of_element {
                        Some(schemas) if !secret_elements.hide(&element) => {
                            self.value(&element, schemas, path, nesting)
                        }
                        _ => Json::string(MASKED),
                    });
                }
                list.finish()
            }
            Kind::String => match value.as_str() {
                Some(text) => secret::without_secrets(&text, MASKED)
                    .map_or_else(|| value.clone(), |text| Json::string(&text)),
                // A text that cannot be read cannot be searched either.
                None => Json::string(MASKED),
            },
            _ => value.clone(),
        }
    }

    /// The schemas with their parts; `None` if one calls its values secret, or if there are too many.
    fn parts_without_secrets(&self, schemas: Vec<Json>) -> Option<Vec<Json>> {
        let all = self.with_parts(schemas)?;
        (!all.iter().any(says_secret)).then_some(all)
    }

    /// Adds the schemas that these consist of or refer to; `None` if there are too many.
    fn with_parts(&self, mut all: Vec<Json>) -> Option<Vec<Json>> {
        let mut at = 0;
        while let Some(schema) = all.get(at).cloned() {
            if all.len() > SCHEMAS {
                return None;
            }
            for list in ["allOf", "anyOf", "oneOf"]
                .into_iter()
                .filter_map(|name| schema.get(name))
            {
                all.extend(list.items());
            }
            all.extend(
                ["if", "then", "else"]
                    .into_iter()
                    .filter_map(|name| schema.get(name)),
            );
            // Before 2019-09, `dependencies` held schemas and lists of names.
            for parts in ["dependentSchemas", "dependencies"]
                .into_iter()
                .filter_map(|name| schema.get(name))
            {
                all.extend(parts.members().map(|member| parts.slice(member.value)));
            }
            for name in ["$ref", "$dynamicRef", "$recursiveRef"] {
                if let Some(reference) = schema.peek(name) {
                    // A schema that is not here may call everything secret.
                    let target = self.target(&reference.as_str()?)?;
                    if !all.contains(&target) {
                        all.push(target);
                    }
                }
            }
            at += 1;
        }
        Some(all)
    }

    /// The target of a reference within the schema (JSON Pointer, RFC 6901).
    fn target(&self, reference: &str) -> Option<Json> {
        // Anchors are not looked for.
        self.root?.at_pointer(reference.strip_prefix('#')?)
    }
}

/// The schemas that may apply to a member.
fn member_schemas(schemas: &[Json], name: &str) -> Vec<Json> {
    let mut all = Vec::new();
    for schema in schemas {
        all.extend(
            schema
                .get("properties")
                .and_then(|properties| properties.get(name)),
        );
        // The patterns are not evaluated, because any of them could match.
        if let Some(patterns) = schema.get("patternProperties") {
            all.extend(
                patterns
                    .members()
                    .map(|member| patterns.slice(member.value)),
            );
        }
        for further in ["additionalProperties", "unevaluatedProperties"] {
            all.extend(schema.get(further).filter(Json::is_object));
        }
    }
    all
}

/// The schemas that may apply to an element of a list.
fn element_schemas(schemas: &[Json]) -> Vec<Json> {
    let mut all = Vec::new();
    for schema in schemas {
        for name in [
            "items",
            "prefixItems",
            "additionalItems",
            "unevaluatedItems",
            "contains",
        ] {
            if let Some(part) = schema.get(name) {
                // Before 2020-12, `items` could be a list.
                all.extend(part.items());
                all.extend(Some(part).filter(Json::is_object));
            }
        }
    }
    all
}

/// Whether a schema says that its values are secret (JSON Schema 2020-12 Validation, 7.3 and 9.4).
/// Values that are sent in a header count too (2026-07-28 server/tools, `x-mcp-header`).
fn says_secret(schema: &Json) -> bool {
    let has = |member: &str, text: &str| schema.says(member, text);
    let is = |member: &str| schema.flag(member);
    has("format", "password")
        || is("writeOnly")
        || is("x-secret")
        || schema.peek("x-mcp-header").is_some()
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
        let shown = mask_secrets(&value, Some(&schema), &["card.cvc".to_owned()]);
        assert_eq!(
            shown.as_text(),
            r#"{"path":"/a","apiKey":"***","n":1.0,"card":{"no":"***","cvc":"***"},"list":[{"access_token":"***","a":1}],"x":"***","Pin":"***","ping":2}"#
        );
    }

    #[test]
    fn secrets_are_masked_wherever_the_one_list_finds_them() {
        let value = Json::literal(
            r#"{"pwd":"s3","jwt":"s3","otp":53,"bearer":"s3","headers":[{"name":"Authorization","value":"s3"},{"key":"a","value":"b"}],"args":["run","--password","s3","-v"],"command":"run --password s3 -v","url":"https://me:s3@h/?token=s3&a=1","auth_header":["Authorization","s3"],"maxTokens":53,"tokens":64,"tokenEndpoint":"/t","author":"me","note":"Basic dXNlcjpzMw==","bad":"\ud800"}"#,
        );
        assert_eq!(
            mask_secrets(&value, None, &[]).as_text(),
            r#"{"pwd":"***","jwt":"***","otp":"***","bearer":"***","headers":[{"name":"Authorization","value":"***"},{"key":"a","value":"b"}],"args":["run","--password","***","-v"],"command":"run --password *** -v","url":"https://***@h/?token=***&a=1","auth_header":"***","maxTokens":53,"tokens":64,"tokenEndpoint":"/t","author":"me","note":"Basic ***","bad":"***"}"#
        );
    }

    #[test]
    fn schema_says_so_through_references_parts_and_lists() {
        let schema = Json::literal(
            r##"{"$defs":{"key":{"writeOnly":true},"loop":{"$ref":"#/$defs/loop"}},"properties":{
                "a":{"$ref":"#/$defs/key"},"b":{"anyOf":[{"type":"null"},{"properties":{"c":{"format":"password"}}}]},
                "d":{"items":{"properties":{"e":{"x-secret":true}}}},"f":{"items":{"format":"password"}},
                "g":{"additionalProperties":{"writeOnly":true}},"h":{"$ref":"#/$defs/loop"},"i":{"$ref":"#/nothing"},
                "j":{"items":[{},{"writeOnly":true}]},"k":{"dependentSchemas":{"x":{"properties":{"l":{"writeOnly":true}}}}},
                "m":{"$ref":"#anchor"},"n":{"$ref":"https://elsewhere.example"},"o":{"unevaluatedProperties":{"x-secret":true}},
                "q":{"if":{"properties":{"r":{"writeOnly":true}}}},"s":{"contains":{"format":"password"}},
                "t":{"dependencies":{"u":["v"],"v":{"properties":{"u":{"writeOnly":true}}}}},"w":{"$recursiveRef":"#/$defs/key"}}}"##,
        );
        let value = Json::literal(
            r#"{"a":"1","b":{"c":"2","x":3},"d":[{"e":4,"y":5}],"f":["6"],"g":{"any":"7"},"h":8,"i":9,"j":[1],"k":{"l":2},"m":3,"n":4,"o":{"p":5},"q":{"r":6},"s":[7],"t":{"u":8,"v":9},"w":1}"#,
        );
        assert_eq!(
            mask_secrets(&value, Some(&schema), &[]).as_text(),
            r#"{"a":"***","b":{"c":"***","x":3},"d":[{"e":"***","y":5}],"f":["***"],"g":{"any":"***"},"h":8,"i":"***","j":["***"],"k":{"l":"***"},"m":"***","n":"***","o":{"p":"***"},"q":{"r":"***"},"s":["***"],"t":{"u":"***","v":9},"w":"***"}"#
        );
        let many = format!(
            r#"{{"properties":{{"a":{{"anyOf":[{}{{}}]}}}}}}"#,
            "{},".repeat(SCHEMAS)
        );
        let many = Json::parse(many.into(), 64).unwrap();
        assert_eq!(
            mask_secrets(&Json::literal(r#"{"a":1}"#), Some(&many), &[]).as_text(),
            r#"{"a":"***"}"#
        );
    }
}
