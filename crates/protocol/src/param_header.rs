//! Tool parameters that are mirrored into headers: the `x-mcp-header` annotations of an input
//! schema, and the header values for a call's arguments.
//!
//! Source: 2026-07-28 server/tools, x-mcp-header, and streamable-http, Custom Headers from Tool
//! Parameters.

use std::collections::HashSet;
use std::sync::Arc;

use crate::json::{Edits, Json, Kind, Unreadable, retain_elements};
use crate::word;

/// Parameters of one tool that are mirrored into headers. A tool with more is left out of the lists of modern HTTP servers.
pub const MAX_MIRRORED: usize = 64;

const ANNOTATION: &str = "x-mcp-header";

/// The greatest safe integer. Doubles are not exact for integers beyond ±(2^53 − 1).
const SAFE_INTEGER: i64 = (1 << 53) - 1;

/// A parameter that is mirrored into the header `Mcp-Param-{name}`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParamHeader {
    /// The annotated name: the part of the header's name after `Mcp-Param-`.
    pub name: String,
    /// The property names that lead to the value in the call's arguments.
    pub path: Vec<Arc<str>>,
}

/// The reason why the annotations of an input schema, and so the tool, are invalid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AnnotationError {
    /// An annotation is not a string, is empty, or contains characters that a header name may not
    /// have.
    #[error("x-mcp-header {value} is not a header name")]
    Name {
        /// The annotation's value, as text.
        value: String,
    },
    /// Two annotations are equal, ignoring case.
    #[error("x-mcp-header {name:?} occurs twice")]
    Duplicate {
        /// The name.
        name: String,
    },
    /// The annotated parameter is not a string, an integer or a boolean.
    #[error("x-mcp-header {name:?} is on a parameter that is not a string, integer or boolean")]
    Type {
        /// The name.
        name: String,
    },
    /// An annotation is not reachable through `properties` alone.
    #[error("x-mcp-header is not reachable through `properties` alone")]
    Unreachable,
    /// Programs could read the tool's definition differently.
    #[error("the definition cannot be read for its x-mcp-header: {0}")]
    Unreadable(#[from] Unreadable),
    /// More parameters are annotated than a request can repeat in headers. The specification sets
    /// no limit, but every HTTP server has one.
    #[error("more than {limit} parameters have an x-mcp-header")]
    TooMany {
        /// The limit that applied.
        limit: usize,
    },
}

/// The mirrored parameters of a tool, of which there may be at most `limit`.
///
/// # Errors
///
/// If an annotation breaks the rules, or programs could read a definition with annotations
/// differently.
pub fn annotations_of_tool(tool: &Json, limit: usize) -> Result<Vec<ParamHeader>, AnnotationError> {
    if !tool.may_contain(word!(ANNOTATION)) {
        return Ok(Vec::new());
    }
    let mut found = Vec::new();
    // If there are several, each reader chooses one.
    for member in tool
        .members()
        .filter(|member| member.is(tool, "inputSchema"))
    {
        found.extend(annotations(&tool.slice(member.value), limit)?);
    }
    if !found.is_empty() {
        tool.read_strictly()?;
    }
    Ok(found)
}

/// The mirrored parameters of a tool with this input schema, of which there may be at most `limit`.
pub fn annotations(input_schema: &Json, limit: usize) -> Result<Vec<ParamHeader>, AnnotationError> {
    if !input_schema.may_contain(word!(ANNOTATION)) {
        return Ok(Vec::new());
    }
    let mut found = Found {
        params: Vec::new(),
        names: HashSet::new(),
        limit,
    };
    schema(input_schema, Some(&mut Vec::new()), &mut found)?;
    Ok(found.params)
}

/// The annotations found so far.
struct Found {
    params: Vec<ParamHeader>,
    /// The names of `params` in lower case.
    names: HashSet<String>,
    limit: usize,
}

impl Found {
    fn add(&mut self, node: &Json, value: &Json, path: &[Arc<str>]) -> Result<(), AnnotationError> {
        let name = match value.as_str() {
            Some(name) if !name.is_empty() && name.bytes().all(is_token_byte) => name.into_owned(),
            _ => {
                return Err(AnnotationError::Name {
                    value: value.as_text().to_owned(),
                });
            }
        };
        if !node
            .get("type")
            .is_some_and(|declared| is_primitive(&declared))
        {
            return Err(AnnotationError::Type { name });
        }
        if self.params.len() >= self.limit {
            return Err(AnnotationError::TooMany { limit: self.limit });
        }
        if !self.names.insert(name.to_ascii_lowercase()) {
            return Err(AnnotationError::Duplicate { name });
        }
        self.params.push(ParamHeader {
            name,
            path: path.to_vec(),
        });
        Ok(())
    }
}

/// Removes the tools with invalid annotations from a `tools/list` result, because they must not be
/// offered over modern Streamable HTTP. `None` if there are none.
///
/// Calls `on_tool` for each tool with its definition and its name, which is empty if it has none.
/// The last argument is the mirrored parameters, or the reason why the annotations are invalid,
/// such as more than `limit` of them.
pub fn without_invalid_tools(
    result: &Json,
    limit: usize,
    mut on_tool: impl FnMut(&Json, &str, Result<Vec<ParamHeader>, AnnotationError>),
) -> Option<Json> {
    let at = result.place("tools")?;
    let tools = result.slice(at.clone());
    let may_have = tools.may_contain(word!(ANNOTATION));
    let mut valid = Vec::new();
    for element in tools.elements() {
        let tool = tools.slice(element);
        let name = tool.get("name");
        let found = if may_have {
            annotations_of_tool(&tool, limit)
        } else {
            Ok(Vec::new())
        };
        valid.push(found.is_ok());
        on_tool(
            &tool,
            &name.as_ref().and_then(Json::as_str).unwrap_or_default(),
            found,
        );
    }
    if valid.iter().all(|valid| *valid) {
        return None;
    }
    let kept = retain_elements(&tools, |index| valid.get(index) == Some(&true));
    let mut edits = Edits::new(result.bytes().clone());
    edits.replace(at, kept.into_bytes());
    Some(edits.finish_json())
}

/// Walks one schema. `path` is the chain of properties that leads to it, or `None` below any other
/// keyword than `properties`. The nesting limit of the text limits the depth.
fn schema(
    node: &Json,
    mut path: Option<&mut Vec<Arc<str>>>,
    found: &mut Found,
) -> Result<(), AnnotationError> {
    for member in node.members() {
        let value = node.slice(member.value.clone());
        match member.name(node).as_deref() {
            Some(ANNOTATION) => match path.as_deref() {
                Some(path) if !path.is_empty() => found.add(node, &value, path)?,
                _ => return Err(AnnotationError::Unreachable),
            },
            Some("properties") => properties(&value, path.as_deref_mut(), found)?,
            // Maps of schemas, whose keys are names and not keywords.
            Some("$defs" | "definitions" | "patternProperties" | "dependentSchemas") => {
                properties(&value, None, found)?;
            }
            // Plain data, where the annotation's name has no meaning.
            Some("default" | "const" | "enum" | "examples") => {}
            _ => nested(&value, found)?,
        }
    }
    Ok(())
}

fn properties(
    map: &Json,
    mut path: Option<&mut Vec<Arc<str>>>,
    found: &mut Found,
) -> Result<(), AnnotationError> {
    for member in map.members() {
        let value = map.slice(member.value.clone());
        match (path.as_deref_mut(), member.name(map)) {
            (Some(path), Some(name)) => {
                path.push(name.into());
                schema(&value, Some(path), found)?;
                path.pop();
            }
            _ => schema(&value, None, found)?,
        }
    }
    Ok(())
}

fn nested(value: &Json, found: &mut Found) -> Result<(), AnnotationError> {
    match value.kind() {
        Kind::Object => schema(value, None, found),
        Kind::Array => value
            .elements()
            .try_for_each(|element| nested(&value.slice(element), found)),
        _ => Ok(()),
    }
}

/// Whether the byte is a `tchar` (RFC 9110, 5.6.2).
fn is_token_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}

/// Whether the type is permitted. `null` may be added, because a null value is not mirrored.
fn is_primitive(declared: &Json) -> bool {
    let allowed = |name: &str| matches!(name, "string" | "integer" | "boolean");
    if let Some(name) = declared.as_str() {
        return allowed(&name);
    }
    let mut names = declared
        .items()
        .filter(|name| name.as_str().as_deref() != Some("null"));
    let first = names.next();
    first.and_then(|name| name.as_str().map(|name| allowed(&name))) == Some(true)
        && names.next().is_none()
}

impl ParamHeader {
    /// The header's value for a call with `arguments`, before encoding. `None` if the argument is
    /// missing, null or of a type that a header cannot have, because then there is no header.
    pub fn value(&self, arguments: &Json) -> Option<String> {
        let value = self
            .path
            .iter()
            .try_fold(arguments.clone(), |at, name| at.get(name))?;
        match value.kind() {
            Kind::String => value.as_str().map(std::borrow::Cow::into_owned),
            Kind::Bool => Some(value.as_text().to_owned()),
            Kind::Number => integer(value.as_text()).map(|number| number.to_string()),
            Kind::Null | Kind::Array | Kind::Object => None,
        }
    }

    /// Whether a received, decoded header value matches `value`. Integers are compared as numbers
    /// (streamable-http, Server Validation), and everything else as text.
    pub fn values_match(received: &str, value: &str) -> bool {
        received == value
            || matches!((integer(received), integer(value)), (Some(a), Some(b)) if a == b)
    }
}

/// The value of a number that is an integer within the safe range.
fn integer(lexeme: &str) -> Option<i64> {
    let number = lexeme
        .parse::<i64>()
        .ok()
        .or_else(|| integral_double(lexeme))?;
    (-SAFE_INTEGER..=SAFE_INTEGER)
        .contains(&number)
        .then_some(number)
}

/// `42.0` and `4.2e1` are integers too. Within the safe range, doubles represent them exactly.
fn integral_double(lexeme: &str) -> Option<i64> {
    if !lexeme
        .bytes()
        .all(|byte| byte.is_ascii_digit() || b"+-.eE".contains(&byte))
    {
        return None;
    }
    let double = lexeme.parse::<f64>().ok()?;
    let number = double as i64;
    let exact = double.fract() == 0.0 && double.abs() <= SAFE_INTEGER as f64;
    exact.then_some(number)
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;

    fn json(text: &str) -> Json {
        Json::parse(Bytes::copy_from_slice(text.as_bytes()), 64).unwrap()
    }

    fn read(properties: &str) -> Result<Vec<ParamHeader>, AnnotationError> {
        annotations(
            &json(&format!(r#"{{"type":"object","properties":{properties}}}"#)),
            64,
        )
    }

    #[test]
    fn annotations_are_found_through_properties() {
        let found = read(r#"{"a":{"type":"string","x-mcp-header":"Region"},"o":{"properties":{"n":{"type":["integer","null"],"x-mcp-header":"N"}}}}"#).unwrap();
        assert_eq!(
            found[0],
            ParamHeader {
                name: "Region".into(),
                path: vec!["a".into()]
            }
        );
        assert_eq!(found[1].path, ["o".into(), "n".into()]);
        let arguments = json(r#"{"a":"é","o":{"n":42.0}}"#);
        assert_eq!(found[0].value(&arguments).as_deref(), Some("é"));
        assert_eq!(found[1].value(&arguments).as_deref(), Some("42"));
        assert_eq!(found[1].value(&json(r#"{"o":{"n":null}}"#)), None);
        assert_eq!(found[1].value(&json(r#"{"o":7}"#)), None);
    }

    #[test]
    fn annotations_that_break_the_rules_are_refused() {
        let name = |value: &str| {
            read(&format!(
                r#"{{"a":{{"type":"string","x-mcp-header":{value}}}}}"#
            ))
        };
        for value in [r#""""#, r#""a b""#, r#""a\n""#, r#""é""#, "7"] {
            assert!(
                matches!(name(value), Err(AnnotationError::Name { .. })),
                "{value}"
            );
        }
        let annotated = r#"{"type":"string","x-mcp-header":"A"}"#;
        assert!(matches!(
            read(&format!(
                r#"{{"a":{annotated},"b":{{"type":"string","x-mcp-header":"a"}}}}"#
            )),
            Err(AnnotationError::Duplicate { .. })
        ));
        assert!(matches!(
            read(r#"{"a":{"type":"number","x-mcp-header":"A"}}"#),
            Err(AnnotationError::Type { .. })
        ));
        assert!(matches!(
            read(r#"{"a":{"x-mcp-header":"A"}}"#),
            Err(AnnotationError::Type { .. })
        ));
        for elsewhere in [
            format!(r#"{{"a":{{"type":"array","items":{annotated}}}}}"#),
            format!(r#"{{"a":{{"oneOf":[{annotated}]}}}}"#),
            format!(r#"{{"a":{{"items":{{"properties":{{"b":{annotated}}}}}}}}}"#),
        ] {
            assert_eq!(
                read(&elsewhere),
                Err(AnnotationError::Unreachable),
                "{elsewhere}"
            );
        }
        assert_eq!(
            annotations(&json(annotated), 64),
            Err(AnnotationError::Unreachable)
        );
        assert_eq!(
            annotations(&json(&format!(r#"{{"$defs":{{"d":{annotated}}}}}"#)), 64),
            Err(AnnotationError::Unreachable)
        );
    }

    #[test]
    fn definition_with_annotations_that_programs_read_differently_is_refused() {
        let schema = r#"{"properties":{"a":{"type":"string","x-mcp-header":"A"}}}"#;
        for tool in [
            format!(r#"{{"name":"t","inputSchema":{schema},"inputSchema":{{}}}}"#),
            format!(r#"{{"name":"t","inputSchema":{{}},"inputSchema":{schema}}}"#),
            format!(r#"{{"name":"t","name":"u","inputSchema":{schema}}}"#),
            r#"{"inputSchema":{"properties":{"a":{"type":"string","x-mcp-header":"A"},"a":{}}}}"#
                .to_owned(),
        ] {
            let found = annotations_of_tool(&json(&tool), 64);
            assert!(
                matches!(found, Err(AnnotationError::Unreadable(_))),
                "{tool}: {found:?}"
            );
        }
        let plain = json(r#"{"name":"t","name":"u","inputSchema":{"x":"\u0041","x":1}}"#);
        assert_eq!(annotations_of_tool(&plain, 64), Ok(Vec::new()));
    }

    #[test]
    fn too_many_annotations_are_refused_at_the_first_beyond_the_limit() {
        let annotated = |count: usize, invalid: &str| {
            let one = |n: usize| format!(r#""p{n}":{{"type":"string","x-mcp-header":"H{n}"}},"#);
            read(&format!(
                "{{{}{invalid}}}",
                (0..count)
                    .map(one)
                    .collect::<String>()
                    .trim_end_matches(',')
            ))
        };
        assert_eq!(annotated(64, "").unwrap().len(), 64);
        assert_eq!(
            annotated(65, ""),
            Err(AnnotationError::TooMany { limit: 64 })
        );
        // The rest is not even read.
        let invalid = r#","z":{"type":"number","x-mcp-header":"Z"}"#;
        assert_eq!(
            annotated(60_000, invalid),
            Err(AnnotationError::TooMany { limit: 64 })
        );
    }

    #[test]
    fn property_or_value_of_that_name_is_not_an_annotation() {
        assert_eq!(read(r#"{"x-mcp-header":{"type":"string"}}"#), Ok(vec![]));
        assert_eq!(
            read(r#"{"a":{"default":{"x-mcp-header":"q"}}}"#),
            Ok(vec![])
        );
    }

    #[test]
    fn values_match_compares_integers_as_numbers() {
        assert!(ParamHeader::values_match("42.0", "42"));
        assert!(!ParamHeader::values_match("42.5", "42"));
        assert!(!ParamHeader::values_match("a", "b"));
        assert_eq!(integer("9007199254740993"), None);
        assert_eq!(integer("1e2"), Some(100));
    }
}
