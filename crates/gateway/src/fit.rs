//! Checks arguments against a tool's schema, for calls through `call_tool`.
//!
//! Only keywords that mean the same in every draft are checked. A rule that cannot be read is not
//! checked, so arguments that fit are never refused. Nor is the rest checked after [`STEPS`].

use fanlight_protocol::json::{Json, Kind, pointer_step};

/// The bytes that may be compared, since a schema can be read for each of many values.
const STEPS: usize = 1 << 25;

/// The first place where `value` does not fit `schema`, as a JSON Pointer, and the form that the
/// schema expects there.
pub(crate) fn find_misfit(schema: &Json, value: &Json) -> Option<(String, String)> {
    let is_readable = schema.read_strictly().is_ok() && value.read_strictly().is_ok();
    is_readable.then(|| misfit(schema, value, &mut { STEPS }))?
}

fn misfit(schema: &Json, value: &Json, steps: &mut usize) -> Option<(String, String)> {
    spend(steps, schema, 1)?;
    // In older drafts nothing beside a reference counts.
    if schema.get("$ref").is_some() {
        return None;
    }
    let here = |expected: String| Some((String::new(), expected));
    if let Some(types) = schema.get("type")
        && !has_type(schema, &types, value)
    {
        let types = types.as_text().replace('"', "");
        return here(format!("must be of type {types}"));
    }
    if let Some(allowed) = schema.get("enum").filter(|it| it.kind() == Kind::Array) {
        spend(steps, value, allowed.elements().count())?;
        if !allowed.items().any(|one| is_same(&one, value)) {
            return here(format!("must be one of {}", allowed.as_text()));
        }
    }
    if let Some(only) = schema.get("const")
        && !is_same(&only, value)
    {
        return here(format!("must be {}", only.as_text()));
    }
    match value.kind() {
        Kind::Object => in_object(schema, value, steps),
        Kind::Array => {
            let rule = schema.get("items").filter(Json::is_object)?;
            let is_plain = schema.get("prefixItems").is_none();
            let mut items = value.items().enumerate().filter(|_| is_plain);
            items.find_map(|(at, item)| {
                let (pointer, expected) = misfit(&rule, &item, steps)?;
                Some((format!("/{at}{pointer}"), expected))
            })
        }
        _ => None,
    }
}

fn in_object(schema: &Json, value: &Json, steps: &mut usize) -> Option<(String, String)> {
    if let Some(required) = schema.get("required").filter(|it| it.kind() == Kind::Array) {
        spend(steps, value, required.elements().count())?;
        let mut names = required.items().filter_map(|name| name.to_str());
        if let Some(name) = names.find(|name| value.peek(name).is_none()) {
            return Some((pointer_step(&name), "is required".to_owned()));
        }
    }
    let properties = schema.get("properties").filter(Json::is_object);
    let is_closed = schema.get("patternProperties").is_none()
        && schema
            .get("additionalProperties")
            .is_some_and(|more| more.as_text() == "false");
    value.members().find_map(|member| {
        spend(steps, schema, 1)?;
        let name = member.name(value)?;
        match properties.as_ref().and_then(|all| all.get(&name)) {
            Some(rule) => {
                let (pointer, expected) = misfit(&rule, &value.slice(member.value), steps)?;
                Some((pointer_step(&name) + &pointer, expected))
            }
            None => is_closed.then(|| (pointer_step(&name), "is not expected".to_owned())),
        }
    })
}

/// Counts the reading of `text` so many times; `None` if that is too much.
fn spend(steps: &mut usize, text: &Json, times: usize) -> Option<()> {
    *steps = steps.saturating_sub(text.bytes().len().saturating_mul(times));
    (*steps > 0).then_some(())
}

/// Whether a value has one of the types in a schema.
fn has_type(schema: &Json, types: &Json, value: &Json) -> bool {
    let is = |name: &Json| match (name.as_str().as_deref(), value.kind()) {
        (Some("object"), kind) => kind == Kind::Object,
        (Some("array"), kind) => kind == Kind::Array,
        (Some("string"), kind) => kind == Kind::String,
        (Some("boolean"), kind) => kind == Kind::Bool,
        (Some("null"), kind) => kind == Kind::Null,
        (Some("number"), kind) => kind == Kind::Number,
        (Some("integer"), kind) => {
            let number = value.as_text().parse::<f64>();
            kind == Kind::Number && number.is_ok_and(|number| number.fract() == 0.0)
        }
        // An unknown type is not checked.
        _ => true,
    };
    let is_nullable = || schema.get("nullable").is_some_and(|flag| flag.is_true());
    let fits = match types.kind() {
        Kind::Array => types.elements().any(|place| is(&types.slice(place))),
        _ => is(types),
    };
    fits || (value.is_null() && is_nullable())
}

/// Whether two values are equal, or may be: numbers can be written in several ways.
fn is_same(one: &Json, other: &Json) -> bool {
    let has_number = one.as_text().bytes().any(|byte| byte.is_ascii_digit());
    (has_number && one.kind() == other.kind() && one.kind() != Kind::String)
        || one.canonical().ok() == other.canonical().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(schema: &'static str, value: &'static str) -> Option<String> {
        let found = find_misfit(&Json::literal(schema), &Json::literal(value));
        found.map(|(pointer, expected)| format!("{pointer} {expected}"))
    }

    #[test]
    fn misfits_have_a_pointer_and_an_expectation() {
        const SCHEMA: &str = r#"{"type":"object","properties":{"owner":{"type":"string"},"n":{"type":["integer","null"]},
            "mode":{"enum":["a","b"]},"list":{"items":{"type":"object","required":["x/y"]}}},"required":["owner"],"additionalProperties":false}"#;
        for (value, expected) in [
            (r#"{"owner":"o","n":1.0,"mode":"\u0061"}"#, None),
            (r#"{"owner":"o","n":null,"list":[]}"#, None),
            ("{}", Some("/owner is required")),
            (r#"{"owner":1}"#, Some("/owner must be of type string")),
            (
                r#"{"owner":"","n":"1"}"#,
                Some("/n must be of type [integer,null]"),
            ),
            (
                r#"{"owner":"","n":1.5}"#,
                Some("/n must be of type [integer,null]"),
            ),
            (
                r#"{"owner":"","mode":"c"}"#,
                Some(r#"/mode must be one of ["a","b"]"#),
            ),
            (
                r#"{"owner":"","list":[{"x/y":1},{}]}"#,
                Some("/list/1/x~1y is required"),
            ),
            (r#"{"owner":"","z":1}"#, Some("/z is not expected")),
            ("[]", Some(" must be of type object")),
        ] {
            assert_eq!(check(SCHEMA, value).as_deref(), expected, "{value}");
        }
    }

    #[test]
    fn many_values_are_not_compared_with_a_long_rule_each() {
        let parsed = |text: String| Json::parse(text.into(), 64).unwrap();
        let rule = format!(r#"{{"items":{{"enum":[1],"x":"{}"}}}}"#, "x".repeat(10_000));
        let (values, mut steps) = (format!("[{}1]", "1,".repeat(1_000_000)), STEPS);
        assert_eq!(misfit(&parsed(rule), &parsed(values), &mut steps), None);
        assert_eq!(steps, 0);
    }

    #[test]
    fn unreadable_rules_are_not_checked() {
        for schema in [
            r#"{"$ref":"x","type":"string"}"#,
            r#"{"type":"object","type":"string"}"#,
            r#"{"type":"file"}"#,
            r#"{"enum":[1.0,{"a":2}]}"#,
            r#"{"required":5,"properties":[]}"#,
            "true",
        ] {
            assert_eq!(
                check(schema, r#"{"a":1}"#).filter(|_| !schema.contains("enum")),
                None
            );
        }
        assert_eq!(check(r#"{"const":1.0}"#, "1"), None);
    }
}
