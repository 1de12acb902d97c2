//! The texts of a tool's definition, as a search compares them.

use std::borrow::Cow;

use fanlight_protocol::Json;
use fanlight_protocol::json::Kind;

use super::ToolText;

/// Limits of the indexed part of one tool's schema: bytes, levels, and elements of an array.
const INDEXED: (usize, usize, usize) = (16 << 10, 12, 20);

impl ToolText<'static> {
    /// The texts of the tool with this name and definition, of the server with this name.
    pub(crate) fn new(server: &str, name: &str, tool: &Json) -> Self {
        let text = |member: &str| {
            let text = tool.peek(member).and_then(|text| text.as_str());
            text.unwrap_or_default().into_owned()
        };
        let description = text("description");
        let description = description.trim();
        let (first, rest) = description.split_at(first_sentence(description));
        let (mut names, mut texts) = (String::new(), String::new());
        if let Some(schema) = tool.get("inputSchema") {
            collect_texts(&schema, 0, &mut names, &mut texts);
        }
        let fields = [
            name.into(),
            text("title"),
            first.into(),
            rest.into(),
            names,
            texts,
            server.into(),
        ];
        Self(fields.map(Cow::Owned))
    }
}

/// The end of the first sentence.
fn first_sentence(text: &str) -> usize {
    let ends = |(at, c): &(usize, char)| match c {
        '\n' | '。' => true,
        '.' => text[at + 1..]
            .chars()
            .next()
            .is_none_or(char::is_whitespace),
        _ => false,
    };
    let end = text.char_indices().find(ends);
    end.map_or(text.len(), |(at, c)| at + c.len_utf8())
}

/// Collects the names and the descriptions of a schema's parameters.
fn collect_texts(schema: &Json, level: usize, names: &mut String, texts: &mut String) {
    let (bytes, levels, elements) = INDEXED;
    if level > levels || names.len() + texts.len() > bytes {
        return;
    }
    for member in schema.members() {
        let value = schema.slice(member.value.clone());
        if member.is(schema, "properties") {
            for property in value.members() {
                names.extend([&*property.name(&value).unwrap_or_default(), " "]);
                collect_texts(&value.slice(property.value), level + 1, names, texts);
            }
        } else if member.is(schema, "description") {
            texts.extend([&*value.as_str().unwrap_or_default(), " "]);
        } else if value.kind() == Kind::Array {
            for place in value.elements().take(elements) {
                let one = value.slice(place);
                if member.is(schema, "enum") {
                    texts.extend([&*one.as_str().unwrap_or_default(), " "]);
                }
                collect_texts(&one, level + 1, names, texts);
            }
        } else if !member.is(schema, "default") {
            collect_texts(&value, level + 1, names, texts);
        }
    }
}
