//! YAML 1.2 with the core schema, and the merge keys (`<<`) of YAML 1.1, which people know. This
//! module resolves aliases within a budget, so that no small file becomes a large tree.
//!
//! It uses the parser's events instead of serde-saphyr: messages need the span of every key and
//! value, and files with duplicate keys are read to the end.

use std::collections::{HashMap, HashSet};

use granit_parser::{ErrorKind, Event, Parser, ScalarStyle, ScanError, Tag};

use crate::document::{Entry, MAX_DEPTH, Node, Span, SyntaxError, Value};

/// The key whose value is a mapping or a list of mappings. Their entries complete the mapping
/// around it (<https://yaml.org/type/merge.html>).
const MERGE: &str = "<<";

/// The limit on copies of anchored values, by [`Node::weight`]: far more than a config needs, far
/// less than does harm.
const MAX_COPIED_WEIGHT: usize = 250_000;

/// The tree of a YAML text; `None` without a value.
pub(crate) fn parse(text: &str) -> Result<Option<Node>, SyntaxError> {
    let mut options = granit_parser::Options::default();
    options.set_emit_comments(false);
    let mut builder = Builder::new(text);
    for event in Parser::new_from_str_with_options(text, options) {
        let (event, span) = event.map_err(|error| syntax_error(&error, text))?;
        builder.handle(event, span_of(&span, text.len()))?;
    }
    Ok(builder.root.filter(|root| !root.is_null()))
}

/// Builds the tree from events without recursion.
struct Builder<'t> {
    text: &'t str,
    root: Option<Node>,
    open: Vec<Collection>,
    anchors: HashMap<usize, Node>,
    copied_weight: usize,
}

/// An incomplete list or mapping.
struct Collection {
    anchor: usize,
    span: Span,
    content: Content,
}

enum Content {
    List(Vec<Node>),
    Map {
        entries: Vec<Entry>,
        key: Option<(String, Span)>,
    },
}

impl<'t> Builder<'t> {
    fn new(text: &'t str) -> Self {
        Self {
            text,
            root: None,
            open: Vec::new(),
            anchors: HashMap::new(),
            copied_weight: 0,
        }
    }

    fn handle(&mut self, event: Event<'_>, span: Span) -> Result<(), SyntaxError> {
        match event {
            Event::Scalar(text, style, anchor, tag) => {
                let value = scalar(&text, style, tag.as_deref(), span)?;
                self.finish(Node { span, value }, anchor)
            }
            Event::SequenceStart(_, anchor, tag) => {
                check_tag(tag.as_deref(), &["seq"], span)?;
                self.begin(anchor, span, Content::List(Vec::new()))
            }
            Event::MappingStart(_, anchor, tag) => {
                check_tag(tag.as_deref(), &["map"], span)?;
                let content = Content::Map {
                    entries: Vec::new(),
                    key: None,
                };
                self.begin(anchor, span, content)
            }
            Event::SequenceEnd | Event::MappingEnd => self.end(span),
            Event::Alias(id) => self.resolve(id, span),
            Event::DocumentStart(..) if self.root.is_some() => {
                Err(SyntaxError::new(span, "a second YAML document starts here")
                    .help("a config file is one document: remove the `---` or merge the two"))
            }
            // `Event` is non-exhaustive; other events carry no value.
            _ => Ok(()),
        }
    }

    fn begin(&mut self, anchor: usize, span: Span, content: Content) -> Result<(), SyntaxError> {
        if self.open.len() >= MAX_DEPTH {
            return Err(crate::document::too_deep(span));
        }
        self.open.push(Collection {
            anchor,
            span,
            content,
        });
        Ok(())
    }

    fn end(&mut self, end: Span) -> Result<(), SyntaxError> {
        let Some(collection) = self.open.pop() else {
            return Ok(());
        };
        let span = Span::new(collection.span.start, end.end);
        let value = match collection.content {
            Content::List(items) => Value::List(items),
            Content::Map { entries, .. } => Value::Map(self.merged(entries)?),
        };
        self.finish(Node { span, value }, collection.anchor)
    }

    /// The entries of a mapping, followed by the entries of the mappings under its merge key.
    fn merged(&self, entries: Vec<Entry>) -> Result<Vec<Entry>, SyntaxError> {
        // A quoted key is a key like any other.
        let is_merge =
            |entry: &Entry| self.text.get(entry.key_span.start..entry.key_span.end) == Some(MERGE);
        let (merges, mut own): (Vec<_>, Vec<_>) = entries.into_iter().partition(is_merge);
        if merges.is_empty() {
            return Ok(own);
        }
        if let Some(second) = merges.get(1) {
            return Err(SyntaxError::new(
                second.key_span,
                "a mapping has the merge key `<<` twice",
            )
            .help("write one, with a list: `<<: [*one, *other]`"));
        }
        let mut known: HashSet<String> = own.iter().map(|entry| entry.key.clone()).collect();
        for merge in merges {
            for mapping in mappings(merge.value)? {
                own.extend(
                    mapping
                        .into_iter()
                        .filter(|entry| known.insert(entry.key.clone())),
                );
            }
        }
        Ok(own)
    }

    /// Adds a complete node to the open collection.
    fn finish(&mut self, node: Node, anchor: usize) -> Result<(), SyntaxError> {
        if anchor != 0 {
            self.spend(node.weight(), node.span)?;
            self.anchors.insert(anchor, node.clone());
        }
        self.attach(node)
    }

    /// Adds a copy of an anchored node for its alias.
    fn resolve(&mut self, id: usize, span: Span) -> Result<(), SyntaxError> {
        let Some(node) = self.anchors.get(&id) else {
            return Err(SyntaxError::new(span, "this alias refers to itself")
                .help("write the value out instead of the alias"));
        };
        if self.open.len() + node.height() > MAX_DEPTH {
            return Err(crate::document::too_deep(span));
        }
        let weight = node.weight();
        let copy = node.clone();
        self.spend(weight, span)?;
        self.attach(copy)
    }

    /// Counts a copy. Without copies the tree is no larger than the file, whose size is limited.
    fn spend(&mut self, weight: usize, span: Span) -> Result<(), SyntaxError> {
        self.copied_weight += weight;
        if self.copied_weight > MAX_COPIED_WEIGHT {
            return Err(SyntaxError::new(
                span,
                "the anchors and aliases of this file expand to too much",
            )
            .help("use fewer of them, or split the file"));
        }
        Ok(())
    }

    fn attach(&mut self, node: Node) -> Result<(), SyntaxError> {
        match self.open.last_mut().map(|open| &mut open.content) {
            None => self.root = Some(node),
            Some(Content::List(items)) => items.push(node),
            Some(Content::Map { entries, key }) => match key.take() {
                Some((key, key_span)) => entries.push(Entry {
                    key,
                    key_span,
                    value: node,
                }),
                None => *key = Some((key_text(&node, self.text)?, node.span)),
            },
        }
        Ok(())
    }
}

/// The mappings under a merge key, by precedence.
fn mappings(node: Node) -> Result<Vec<Vec<Entry>>, SyntaxError> {
    let items = match node.value {
        Value::List(items) => items,
        value => vec![Node { value, ..node }],
    };
    let entries = |item: Node| match item.value {
        Value::Map(entries) => Ok(entries),
        _ => Err(SyntaxError::new(
            item.span,
            format!("{} cannot be merged into a mapping", item.kind()),
        )
        .help("name a mapping behind `<<`, such as `*defaults`, or a list of them")),
    };
    items.into_iter().map(entries).collect()
}

/// The text of a key. A key is always text: a server may be named `null` or `1`.
fn key_text(node: &Node, text: &str) -> Result<String, SyntaxError> {
    match &node.value {
        Value::String(text) | Value::Number(text) => Ok(text.clone()),
        Value::Bool(_) | Value::Null => {
            let written = text.get(node.span.start..node.span.end);
            Ok(written.unwrap_or_default().to_owned())
        }
        Value::List(_) | Value::Map(_) => Err(SyntaxError::new(
            node.span,
            format!("{} cannot be a key here", node.kind()),
        )
        .help("a value that starts with `{` or `[` must be quoted, `\"${VAR}\"` for one")),
    }
}

/// The value of a scalar by the YAML 1.2 core schema; scalars that are not plain are strings.
fn scalar(
    text: &str,
    style: ScalarStyle,
    tag: Option<&Tag>,
    span: Span,
) -> Result<Value, SyntaxError> {
    check_tag(tag, &["str", "int", "float", "bool", "null"], span)?;
    let forced_string = tag.is_some_and(|tag| tag.core_suffix() == Some("str"));
    if style != ScalarStyle::Plain || forced_string {
        return Ok(Value::String(text.to_owned()));
    }
    Ok(match text {
        "" | "~" | "null" | "Null" | "NULL" => Value::Null,
        "true" | "True" | "TRUE" => Value::Bool(true),
        "false" | "False" | "FALSE" => Value::Bool(false),
        _ if is_number(text) => Value::Number(text.to_owned()),
        _ => Value::String(text.to_owned()),
    })
}

/// Whether the core schema reads a plain scalar as an integer or a float (YAML 1.2.2, section
/// 10.3.2).
fn is_number(text: &str) -> bool {
    let in_radix = |prefix: &str, radix: u32| {
        text.strip_prefix(prefix)
            .is_some_and(|digits| !digits.is_empty() && digits.chars().all(|c| c.is_digit(radix)))
    };
    let decimal = text
        .bytes()
        .all(|byte| byte.is_ascii_digit() || b"+-.eE".contains(&byte))
        && text.parse::<f64>().is_ok();
    let infinite = || {
        matches!(
            text.strip_prefix(['-', '+']).unwrap_or(text),
            ".inf" | ".Inf" | ".INF"
        )
    };
    decimal
        || in_radix("0o", 8)
        || in_radix("0x", 16)
        || infinite()
        || matches!(text, ".nan" | ".NaN" | ".NAN")
}

fn check_tag(tag: Option<&Tag>, allowed: &[&str], span: Span) -> Result<(), SyntaxError> {
    match tag {
        None => Ok(()),
        Some(tag)
            if tag
                .core_suffix()
                .is_some_and(|kind| allowed.contains(&kind)) =>
        {
            Ok(())
        }
        Some(_) => Err(
            SyntaxError::new(span, "this YAML tag has no meaning in a config file")
                .help("remove the tag (the word that starts with `!`)"),
        ),
    }
}

fn syntax_error(error: &ScanError, text: &str) -> SyntaxError {
    let start = error.marker().byte_offset().unwrap_or(0).min(text.len());
    let start = text.floor_char_boundary(start);
    if matches!(error.kind(), ErrorKind::RecursionLimitExceeded) {
        return crate::document::too_deep(Span::new(start, start));
    }
    let line = text.get(..start).and_then(|t| t.rsplit('\n').next());
    let help = if line.is_some_and(|line| line.contains('\t')) {
        "YAML is indented with spaces, not tabs"
    } else {
        "check the indentation, and quote values that contain `: `, ` #` or start with a special character"
    };
    SyntaxError::new(
        Span::new(start, start),
        format!("malformed YAML: {}", error.info()),
    )
    .help(help)
}

fn span_of(span: &granit_parser::Span, end: usize) -> Span {
    let range = span.byte_range().unwrap_or(0..0);
    Span::new(range.start.min(end), range.end.min(end))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn number_is_recognised_by_the_core_schema() {
        for text in [
            "0", "-1", "+12", "1.5", ".5", "5.", "1e3", "1.5E-3", "0x1F", "0o17", ".inf", ".nan",
        ] {
            assert!(is_number(text), "{text}");
        }
        for text in [
            ".", "-", "+", "e5", "1e", "1_000", "0b1", "1.2.3", "10s", "0x", "1-2", "१",
        ] {
            assert!(!is_number(text), "{text}");
        }
    }
}
