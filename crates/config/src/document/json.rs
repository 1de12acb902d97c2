//! JSON in the form of editors: comments and trailing commas are allowed, nothing else beyond RFC
//! 8259.

use jsonc_parser::ast::{ObjectPropName, Value as Ast};
use jsonc_parser::common::Ranged;
use jsonc_parser::errors::{ParseError, ParseErrorKind};
use jsonc_parser::{CollectOptions, ParseOptions, parse_to_ast};

use crate::document::{Entry, MAX_DEPTH, Node, Span, SyntaxError, Value};

/// The form of JSON that is read.
pub(crate) const JSON: ParseOptions = ParseOptions {
    allow_comments: true,
    allow_trailing_commas: true,
    allow_loose_object_property_names: false,
    allow_missing_commas: false,
    allow_single_quoted_strings: false,
    allow_hexadecimal_numbers: false,
    allow_unary_plus_numbers: false,
    allow_bare_decimal_point_numbers: false,
    allow_non_finite_numbers: false,
    allow_extended_string_escapes: false,
};

/// The tree of a JSON text; `None` without a value.
pub(crate) fn parse(text: &str) -> Result<Option<Node>, SyntaxError> {
    let parsed = parse_to_ast(text, &CollectOptions::default(), &JSON)
        .map_err(|error| syntax_error(&error))?;
    parsed.value.map(|value| convert(value, 1)).transpose()
}

fn convert(ast: Ast<'_>, depth: usize) -> Result<Node, SyntaxError> {
    let range = ast.range();
    let span = Span::new(range.start, range.end);
    if depth > MAX_DEPTH {
        return Err(crate::document::too_deep(span));
    }
    let value = match ast {
        Ast::NullKeyword(_) => Value::Null,
        Ast::BooleanLit(literal) => Value::Bool(literal.value),
        Ast::NumberLit(literal) => Value::Number(literal.value.to_owned()),
        Ast::StringLit(literal) => Value::String(literal.value.into_owned()),
        Ast::Array(array) => Value::List(
            array
                .elements
                .into_iter()
                .map(|element| convert(element, depth + 1))
                .collect::<Result<_, _>>()?,
        ),
        Ast::Object(object) => Value::Map(
            object
                .properties
                .into_iter()
                .map(|property| {
                    let range = property.name.range();
                    Ok(Entry {
                        key: match property.name {
                            ObjectPropName::String(name) => name.value.into_owned(),
                            ObjectPropName::Word(name) => name.value.to_owned(),
                        },
                        key_span: Span::new(range.start, range.end),
                        value: convert(property.value, depth + 1)?,
                    })
                })
                .collect::<Result<_, SyntaxError>>()?,
        ),
    };
    Ok(Node { span, value })
}

fn syntax_error(error: &ParseError) -> SyntaxError {
    let range = error.range();
    let span = Span::new(range.start, range.end);
    let help = match error.kind() {
        ParseErrorKind::NestingDepthExceeded => return crate::document::too_deep(span),
        ParseErrorKind::ExpectedComma => "separate the entries with a comma",
        ParseErrorKind::ExpectedStringObjectProperty
        | ParseErrorKind::SingleQuotedStringsNotAllowed => "write it in double quotes",
        ParseErrorKind::UnterminatedObject => "close it with `}`",
        ParseErrorKind::UnterminatedArray => "close it with `]`",
        ParseErrorKind::String(_) => {
            "in a JSON string write `\\\\` for a backslash and `\\\"` for a quote"
        }
        _ => "check quotes, commas and brackets here and on the line before",
    };
    // The parser's sentences start with a capital letter; ours do not.
    let sentence = error.kind().to_string();
    let mut chars = sentence.chars();
    let lowered: String = chars
        .next()
        .into_iter()
        .flat_map(char::to_lowercase)
        .chain(chars)
        .collect();
    SyntaxError::new(span, format!("malformed JSON: {lowered}")).help(help)
}
