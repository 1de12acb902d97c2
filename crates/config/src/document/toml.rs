//! TOML, the notation of Codex.

use std::ops::Range;

use toml_edit::{Document, Item, Table, TableLike, TomlError, Value as TomlValue};

use crate::document::{Entry, MAX_DEPTH, Node, Span, SyntaxError, Value};

/// The tree of a TOML text. An empty text is an empty mapping.
pub(crate) fn parse(text: &str) -> Result<Node, SyntaxError> {
    let document = Document::parse(text).map_err(|error| syntax_error(&error, text))?;
    let whole = Span::new(0, text.len());
    Ok(Node {
        span: whole,
        value: table(document.as_table(), whole, 1)?,
    })
}

/// The entries of a table. An entry without its own position, such as `a` in `[a.b]`, has the
/// position of the text `around` it.
fn table(table: &dyn TableLike, around: Span, depth: usize) -> Result<Value, SyntaxError> {
    if depth > MAX_DEPTH {
        return Err(crate::document::too_deep(around));
    }
    let entry = |(name, item): (&str, &Item)| {
        let key_span = place(table.key(name).and_then(|key| key.span()), around);
        Ok(Entry {
            key: name.to_owned(),
            key_span,
            value: node(item, key_span, depth + 1)?,
        })
    };
    Ok(Value::Map(
        table
            .iter()
            .map(entry)
            .collect::<Result<_, SyntaxError>>()?,
    ))
}

fn node(item: &Item, around: Span, depth: usize) -> Result<Node, SyntaxError> {
    let span = place(item.span(), around);
    let value = match item {
        Item::None => Value::Null,
        Item::Value(value) => return value_node(value, around, depth),
        Item::Table(inner) => table(inner, span, depth)?,
        Item::ArrayOfTables(tables) => {
            let entry = |inner: &Table| {
                let span = place(inner.span(), span);
                Ok(Node {
                    span,
                    value: table(inner, span, depth + 1)?,
                })
            };
            Value::List(
                tables
                    .iter()
                    .map(entry)
                    .collect::<Result<_, SyntaxError>>()?,
            )
        }
    };
    Ok(Node { span, value })
}

fn value_node(value: &TomlValue, around: Span, depth: usize) -> Result<Node, SyntaxError> {
    let span = place(value.span(), around);
    if depth > MAX_DEPTH {
        return Err(crate::document::too_deep(span));
    }
    let value = match value {
        TomlValue::String(text) => Value::String(text.value().clone()),
        TomlValue::Integer(number) => Value::Number(number.value().to_string()),
        TomlValue::Float(number) => Value::Number(number.value().to_string()),
        TomlValue::Boolean(flag) => Value::Bool(*flag.value()),
        TomlValue::Datetime(moment) => Value::String(moment.value().to_string()),
        TomlValue::Array(items) => {
            let nodes = items.iter().map(|item| value_node(item, span, depth + 1));
            Value::List(nodes.collect::<Result<_, _>>()?)
        }
        TomlValue::InlineTable(inner) => table(inner, span, depth)?,
    };
    Ok(Node { span, value })
}

fn place(range: Option<Range<usize>>, around: Span) -> Span {
    range.map_or(around, |range| Span::new(range.start, range.end))
}

fn syntax_error(error: &TomlError, text: &str) -> SyntaxError {
    let range = error.span().unwrap_or(0..0);
    let boundary = |at: usize| text.floor_char_boundary(at.min(text.len()));
    let message = error.message().lines().collect::<Vec<_>>().join(", ");
    SyntaxError::new(
        Span::new(boundary(range.start), boundary(range.end)),
        format!("malformed TOML: {message}"),
    )
    .help("check quotes, brackets and the names of tables here and on the line before")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_have_their_positions() {
        let text =
            "model = \"gpt-5\"\n[mcp_servers.a]\nargs = [\"x\", 1, true]\nenv = { K = \"v\" }\n";
        let root = parse(text).unwrap();
        let shown = |node: &Node| &text[node.span.start..node.span.end];
        assert_eq!(shown(root.field("model").unwrap()), "\"gpt-5\"");
        let server = root.field("mcp_servers").unwrap().field("a").unwrap();
        assert_eq!(
            shown(server.field("env").unwrap().field("K").unwrap()),
            "\"v\""
        );
        let Value::List(args) = &server.field("args").unwrap().value else {
            panic!("no list")
        };
        assert_eq!(
            args.iter().map(shown).collect::<Vec<_>>(),
            ["\"x\"", "1", "true"]
        );
        assert!(matches!(&args[1].value, Value::Number(digits) if digits == "1"));
    }

    #[test]
    fn mistake_is_located() {
        let error = parse("a = 1\nb = \"é\n").unwrap_err();
        assert!(
            error.message.starts_with("malformed TOML: ") && error.span.start >= 6,
            "{error:?}"
        );
        assert!(parse("a = 1\na = 2\n").is_err());
        let deep = format!("a = {}1{}", "[".repeat(100), "]".repeat(100));
        assert!(parse(&deep).is_err());
    }
}
