//! Masks the secrets of a message, and keeps all other bytes.

use std::ops::Range;

use bytes::Bytes;
use fanlight_protocol::Json;
use fanlight_protocol::json::{Kind, MAX_NESTING, pointer_step, quote};
use fanlight_protocol::secret::{self, is_secret, without_secrets};

use super::values::Values;

/// The text that stands for a secret.
pub(super) const MASKED: &str = "[masked]";

/// The byte order mark with which some servers begin.
const MARK: char = '\u{feff}';
/// The members that have a JSON Schema, in definitions and questions.
const SCHEMAS: &[&str] = &["inputSchema", "outputSchema", "requestedSchema"];
/// The members of a schema whose members are schemas.
const NAMED: &[&str] = &[
    "properties",
    "patternProperties",
    "$defs",
    "definitions",
    "dependentSchemas",
];
/// The members of a schema that may be values of its kind.
const EXAMPLES: &[&str] = &["default", "const", "example", "examples", "value", "values"];

/// A text without secrets, and where they were.
pub(super) struct Clean {
    pub(super) text: String,
    /// JSON Pointers.
    pub(super) masked: Vec<String>,
    /// The secrets that were texts of their own.
    pub(super) originals: Vec<String>,
}

/// Masks a message. A text that is no JSON is masked as one string.
pub(super) fn mask_message(text: &str, values: &Values) -> Clean {
    let body = text.strip_prefix(MARK).unwrap_or(text);
    let Ok(json) = Json::parse(Bytes::copy_from_slice(body.as_bytes()), MAX_NESTING) else {
        let clean = mask_values(text, values);
        let masked = clean.iter().map(|_| String::new()).collect();
        return Clean {
            text: clean.unwrap_or_else(|| text.to_owned()),
            masked,
            originals: Vec::new(),
        };
    };
    let mut masking = Masking {
        values,
        path: String::new(),
        edits: Vec::new(),
        masked: Vec::new(),
        originals: Vec::new(),
    };
    // White space around the value is no part of it.
    let start = text.len() - text.trim_start_matches([' ', '\t', '\n', '\r', MARK]).len();
    masking.value(&json, start, Place::default());
    masking.finish(text)
}

/// A text without secrets; `None` if it has none.
pub(super) fn mask_values(text: &str, values: &Values) -> Option<String> {
    let by_name = without_secrets(text, MASKED);
    let by_value = values.mask_values(by_name.as_deref().unwrap_or(text), MASKED);
    by_value.or(by_name)
}

/// The place of a value, as far as it matters.
#[derive(Clone, Copy, Default)]
struct Place {
    /// The value is a JSON Schema.
    is_schema: bool,
    /// The value is the schema of a secret.
    is_secret: bool,
    /// The value is `params`, or the `_meta` in it.
    has_token: bool,
}

struct Masking<'a> {
    values: &'a Values,
    /// The JSON Pointer of the current value.
    path: String,
    /// Other text at these places.
    edits: Vec<(Range<usize>, Vec<u8>)>,
    masked: Vec<String>,
    originals: Vec<String>,
}

impl Masking<'_> {
    /// `start` is the value's place in the message.
    fn value(&mut self, value: &Json, start: usize, place: Place) {
        match value.kind() {
            Kind::Object => self.object(value, start, place),
            Kind::Array => self.array(value, start, place),
            Kind::String => match value.as_str() {
                Some(text) => {
                    if let Some(clean) = mask_values(&text, self.values) {
                        self.replace(value, start, &clean);
                    }
                }
                // A text that is no Unicode cannot be searched.
                None => self.replace(value, start, MASKED),
            },
            _ if self.values.are_in(value.bytes()) => self.replace(value, start, MASKED),
            _ => {}
        }
    }

    fn object(&mut self, object: &Json, start: usize, place: Place) {
        let secret_members = secret::Members::read(object);
        for member in object.members() {
            let (key, inner) = (member.key.clone(), object.slice(member.value.clone()));
            let name = member.name(object);
            let clean = name
                .as_deref()
                .and_then(|name| mask_values(name, self.values));
            let shown = clean.as_deref().or(name.as_deref()).unwrap_or(MASKED);
            let length = self.enter(shown);
            if name.is_none() || clean.is_some() {
                self.edit(start + key.start..start + key.end, shown);
            }
            let (name, at) = (name.unwrap_or_default(), start + member.value.start);
            if place.is_schema {
                self.mask_schema_member(&name, &inner, at, place.is_secret);
            } else if secret_members.hide(&name, &inner) && !is_progress_token(place, &name) {
                self.replace(&inner, at, MASKED);
            } else {
                let within = Place {
                    is_schema: SCHEMAS.contains(&&*name) && inner.is_object(),
                    is_secret: false,
                    has_token: name == "params" || (place.has_token && name == "_meta"),
                };
                self.value(&inner, at, within);
            }
            self.path.truncate(length);
        }
    }

    /// Masks a member of a schema. The names of properties are no names of secrets' values.
    fn mask_schema_member(&mut self, name: &str, value: &Json, start: usize, is_secret_one: bool) {
        let schema = |is_secret| Place {
            is_schema: true,
            is_secret,
            has_token: false,
        };
        match value.kind() {
            _ if is_secret_one && EXAMPLES.contains(&name) => self.replace(value, start, MASKED),
            Kind::Object if NAMED.contains(&name) => {
                for member in value.members() {
                    let inner = value.slice(member.value.clone());
                    let property = member.name(value).unwrap_or_default();
                    let length = self.enter(&property);
                    let (at, is_secret) = (start + member.value.start, is_secret(&property));
                    if is_secret && !matches!(inner.kind(), Kind::Object | Kind::Bool) {
                        self.replace(&inner, at, MASKED);
                    } else {
                        self.value(&inner, at, schema(is_secret));
                    }
                    self.path.truncate(length);
                }
            }
            Kind::Object | Kind::Array if !EXAMPLES.contains(&name) => {
                self.value(value, start, schema(is_secret_one));
            }
            _ => self.value(value, start, Place::default()),
        }
    }

    fn array(&mut self, array: &Json, start: usize, place: Place) {
        let mut secret_elements = secret::Elements::new(array);
        for (index, element) in array.elements().enumerate() {
            let (at, inner) = (start + element.start, array.slice(element));
            let length = self.enter(&index.to_string());
            // A list in a schema has names, such as the required properties.
            match secret_elements.hide(&inner) && !place.is_schema {
                true => self.replace(&inner, at, MASKED),
                false => self.value(&inner, at, place),
            }
            self.path.truncate(length);
        }
    }

    /// Appends a step to the path; returns the length before.
    fn enter(&mut self, step: &str) -> usize {
        let length = self.path.len();
        self.path += &pointer_step(step);
        length
    }

    fn replace(&mut self, value: &Json, start: usize, clean: &str) {
        if clean == MASKED {
            let original = value.as_str().unwrap_or_else(|| value.as_text().into());
            self.originals.push(original.into_owned());
        }
        self.edit(start..start + value.bytes().len(), clean);
    }

    fn edit(&mut self, place: Range<usize>, clean: &str) {
        self.edits.push((place, quote(clean)));
        self.masked.push(self.path.clone());
    }

    fn finish(self, text: &str) -> Clean {
        let Self {
            values,
            edits,
            mut masked,
            originals,
            ..
        } = self;
        let (mut out, mut copied) = (Vec::with_capacity(text.len()), 0);
        for (place, clean) in edits {
            out.extend_from_slice(text.as_bytes().get(copied..place.start).unwrap_or_default());
            out.extend(clean);
            copied = place.end;
        }
        out.extend_from_slice(text.as_bytes().get(copied..).unwrap_or_default());
        // The edits are at borders of tokens, so the text stays UTF-8.
        let mut text = String::from_utf8(out).unwrap_or_default();
        // A value can span several strings.
        if values.are_in(text.as_bytes()) {
            text = format!("\"{MASKED}\"");
            masked = vec![String::new()];
        }
        masked.dedup();
        Clean {
            text,
            masked,
            originals,
        }
    }
}

/// Whether the member is a progress token, which opens nothing.
fn is_progress_token(place: Place, name: &str) -> bool {
    place.has_token && name == "progressToken"
}

#[cfg(test)]
mod tests {
    use super::*;

    fn values() -> Values {
        let mut values = Values::default();
        values.configure(vec!["c0nfigured".to_owned()]);
        values
    }

    fn clean(text: &str) -> (String, Vec<String>) {
        let Clean { text, masked, .. } = mask_message(text, &values());
        (text, masked)
    }

    #[test]
    fn other_bytes_stay_as_they_are() {
        for text in [
            "{ \"a\" : 1.0e5,\t\"b\":[ \"\\u0041\\/\", null ] }",
            r#"{"params":{"progressToken":"t","_meta":{"progressToken":7}}}"#,
            "no JSON at all",
            "",
        ] {
            assert_eq!(clean(text), (text.to_owned(), Vec::new()));
        }
        let (text, masked) =
            clean(" { \"x\" : \"a c0nfigured z\" , \"token\" : { \"y\" : 1 } }\r\n");
        assert_eq!(
            text,
            " { \"x\" : \"a [masked] z\" , \"token\" : \"[masked]\" }\r\n"
        );
        assert_eq!(masked, ["/x", "/token"]);
    }

    #[test]
    fn secrets_are_masked_wherever_they_stand() {
        for (text, pointers) in [
            (
                r#"{"params":{"arguments":{"p/w~d":"c0nfigured"}}}"#,
                &["/params/arguments/p~1w~0d"][..],
            ),
            (r#"{"c0nfigured":1}"#, &["/[masked]"]),
            (r#"["run","--password","hunter22"]"#, &["/2"]),
            (
                r#"{"url":"https://me:hunter22@host/?token=hunter22"}"#,
                &["/url"],
            ),
            (
                r#"{"headers":[{"name":"Authorization","value":"hunter22"}]}"#,
                &["/headers/0/value"],
            ),
            (r#"{"text":"{\"password\":\"hunter22\"}"}"#, &["/text"]),
            (
                r#"{"a":{"_meta":{"progressToken":"hunter22"}}}"#,
                &["/a/_meta/progressToken"],
            ),
            ("key c0nfigured, token=hunter22", &[""]),
            (r#"{"bad":"\ud800 c0nfigured"}"#, &["/bad"]),
            (r#"{"a":"c0nfi","b":"gured c0nfigure\u0064"}"#, &["/b"]),
        ] {
            let (text, masked) = clean(text);
            assert!(
                !text.contains("hunter22") && !text.contains("c0nfigured"),
                "{text}"
            );
            assert_eq!(masked, pointers, "{text}");
        }
    }

    #[test]
    fn value_across_strings_masks_the_whole_message() {
        let mut values = Values::default();
        values.configure(vec![r#""user":"root","x""#.to_owned()]);
        let clean = mask_message(r#"{"user":"root","x":1}"#, &values);
        assert_eq!(
            (&*clean.text, &*clean.masked),
            ("\"[masked]\"", &[String::new()][..])
        );
    }

    #[test]
    fn schemas_keep_the_names_of_properties() {
        let text = r#"{"tools":[{"name":"login","inputSchema":{"type":"object","properties":{"password":{"type":"string","minLength":8},"token":true},"required":["password","token"]}}]}"#;
        assert_eq!(clean(text), (text.to_owned(), Vec::new()));
        let (text, masked) = clean(
            r#"{"inputSchema":{"properties":{"password":{"type":"string","default":"hunter22","examples":["hunter22"]},"pin":"hunter22","x":{"default":{"token":"hunter22"}}}}}"#,
        );
        assert!(!text.contains("hunter22"), "{text}");
        assert_eq!(masked.len(), 4, "{masked:?}");
    }
}
