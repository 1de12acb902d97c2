//! A file of test cases for policies: questions with expected answers, for CI.

use std::collections::BTreeMap;
use std::path::Path;

use fanlight_canonical::PolicyKind;
use fanlight_config::document::{Node, Source, Syntax, Value};

use super::question::Question;
use itertools::Itertools as _;

/// The keys of a case.
const KEYS: [&str; 15] = [
    "name",
    "principal",
    "groups",
    "scopes",
    "claims",
    "endpoint",
    "tool",
    "prompt",
    "resource",
    "template",
    "skill",
    "server",
    "arguments",
    "annotations",
    "expect",
];

/// The possible expected answers.
const ANSWERS: [&str; 4] = ["allow", "ask", "deny", "hidden"];

/// A question and its expected answer.
#[derive(Debug)]
pub(super) struct Case {
    pub(super) name: String,
    pub(super) line: usize,
    pub(super) question: Question,
    pub(super) expect: String,
}

/// Reads the cases in the text of a file.
///
/// # Errors
///
/// The first problem, with its line.
pub(super) fn read(origin: &Path, text: &str) -> Result<Vec<Case>, String> {
    let source = Source::new(text);
    let wrong = |at: usize, what: &str| {
        let line = source.position(at).line;
        format!("{}:{line}: {what}", origin.display())
    };
    let syntax = Syntax::detect(origin, text);
    let root = fanlight_config::document::parse(&source, syntax)
        .map_err(|error| wrong(error.span.start, &error.message))?;
    let Some(root) = root else {
        return Ok(Vec::new());
    };
    let cases = root.field("cases").unwrap_or(&root);
    let Value::List(cases) = &cases.value else {
        return Err(wrong(cases.span.start, "write a list of cases"));
    };
    let read = |node: &Node| case(node, &source).map_err(|what| wrong(node.span.start, &what));
    cases.iter().map(read).collect()
}

fn case(node: &Node, source: &Source) -> Result<Case, String> {
    let Value::Map(entries) = &node.value else {
        return Err("a case is a mapping".to_owned());
    };
    if let Some(unknown) = entries
        .iter()
        .find(|entry| !KEYS.contains(&entry.key.as_str()))
    {
        return Err(format!(
            "a case has no `{}`; it has {}",
            unknown.key,
            KEYS.join(", ")
        ));
    }
    let text = |key: &str| {
        node.field(key)
            .map(|value| scalar(value).ok_or(format!("`{key}` must be a text")))
            .transpose()
    };
    let texts = |key: &str| {
        node.field(key)
            .map(|value| list(value).ok_or(format!("`{key}` must be a list of texts")))
            .transpose()
    };
    let mut items = Vec::new();
    for kind in [
        PolicyKind::Tool,
        PolicyKind::Prompt,
        PolicyKind::Resource,
        PolicyKind::Template,
        PolicyKind::Skill,
        PolicyKind::Server,
    ] {
        items.extend(text(&kind.as_str().to_ascii_lowercase())?.map(|name| (kind, name)));
    }
    let Ok([item]) = <[_; 1]>::try_from(items) else {
        return Err(
            "a case names one tool, prompt, resource, template, skill or server".to_owned(),
        );
    };
    let mut claims = BTreeMap::new();
    if let Some(Node {
        value: Value::Map(entries),
        ..
    }) = node.field("claims")
    {
        for entry in entries {
            let values = list(&entry.value).ok_or(format!(
                "the claim `{}` must be a text or a list of texts",
                entry.key
            ))?;
            claims.insert(entry.key.clone(), values);
        }
    }
    let expect =
        text("expect")?.ok_or("a case says what to `expect`: allow, ask, deny or hidden")?;
    if !ANSWERS.contains(&expect.as_str()) {
        return Err(format!(
            "`expect` is {expect:?}; write one of {}",
            ANSWERS.join(", ")
        ));
    }
    let name = text("name")?
        .unwrap_or_else(|| format!("{} {}", item.0.as_str().to_ascii_lowercase(), item.1));
    let question = Question {
        principal: text("principal")?.unwrap_or_default(),
        groups: texts("groups")?,
        scopes: texts("scopes")?,
        claims,
        endpoint: text("endpoint")?,
        arguments: node.field("arguments").map(json),
        annotations: node.field("annotations").map(json),
        item: Some(item),
        definition: None,
    };
    Ok(Case {
        name,
        line: source.position(node.span.start).line,
        question,
        expect,
    })
}

fn scalar(node: &Node) -> Option<String> {
    match &node.value {
        Value::String(text) | Value::Number(text) => Some(text.clone()),
        Value::Bool(value) => Some(value.to_string()),
        Value::Null | Value::List(_) | Value::Map(_) => None,
    }
}

fn list(node: &Node) -> Option<Vec<String>> {
    match &node.value {
        Value::List(items) => items.iter().map(scalar).collect(),
        _ => Some(vec![scalar(node)?]),
    }
}

/// A value as JSON text; numbers keep their digits.
fn json(node: &Node) -> String {
    let quoted = |text: &str| serde_json::Value::from(text).to_string();
    match &node.value {
        Value::Null => "null".to_owned(),
        Value::Bool(value) => value.to_string(),
        Value::Number(digits) => digits.clone(),
        Value::String(text) => quoted(text),
        Value::List(items) => format!("[{}]", items.iter().map(json).join(",")),
        Value::Map(entries) => {
            let mut members = entries
                .iter()
                .map(|entry| format!("{}:{}", quoted(&entry.key), json(&entry.value)));
            format!("{{{}}}", members.join(","))
        }
    }
}
