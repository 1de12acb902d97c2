//! The content of the "library": five books, their authors, one prompt.

use std::time::Duration;

use serde_json::{Value, json};

use crate::rpc::{self, Call, RpcError};
use crate::server::{Answer, Cancel, Outlet};

pub(crate) const INSTRUCTIONS: &str = "Five classic books. Search them with `search_books`, read one as a resource \
    (`library://books/…`), or ask for a recommendation with the prompt `recommend_book`.";

const MAX_COUNT: u64 = 1000;
const MAX_DELAY_MS: u64 = 10_000;

struct Book {
    id: &'static str,
    title: &'static str,
    author: &'static str,
    year: u16,
    genre: &'static str,
    opening: &'static str,
}

const BOOKS: [Book; 5] = [
    Book {
        id: "moby-dick",
        title: "Moby-Dick; or, The Whale",
        author: "Herman Melville",
        year: 1851,
        genre: "adventure",
        opening: "Call me Ishmael.",
    },
    Book {
        id: "pride-and-prejudice",
        title: "Pride and Prejudice",
        author: "Jane Austen",
        year: 1813,
        genre: "romance",
        opening: "It is a truth universally acknowledged, that a single man in possession of a good fortune, \
            must be in want of a wife.",
    },
    Book {
        id: "emma",
        title: "Emma",
        author: "Jane Austen",
        year: 1815,
        genre: "romance",
        opening: "Emma Woodhouse, handsome, clever, and rich, with a comfortable home and happy disposition, \
            seemed to unite some of the best blessings of existence.",
    },
    Book {
        id: "frankenstein",
        title: "Frankenstein; or, The Modern Prometheus",
        author: "Mary Shelley",
        year: 1818,
        genre: "horror",
        opening: "You will rejoice to hear that no disaster has accompanied the commencement of an enterprise \
            which you have regarded with such evil forebodings.",
    },
    Book {
        id: "time-machine",
        title: "The Time Machine",
        author: "H. G. Wells",
        year: 1895,
        genre: "science fiction",
        opening: "The Time Traveller (for so it will be convenient to speak of him) was expounding a recondite \
            matter to us.",
    },
];

pub(crate) fn server_info() -> Value {
    json!({ "name": "fanlight-demo-library", "title": "Demo library", "version": env!("CARGO_PKG_VERSION") })
}

pub(crate) fn tools() -> Value {
    json!({ "tools": [search_books_tool(), slow_count_tool()] })
}

fn search_books_tool() -> Value {
    let book = json!({
        "type": "object",
        "properties": {
            "id": { "type": "string" },
            "title": { "type": "string" },
            "author": { "type": "string" },
            "year": { "type": "integer" },
            "uri": { "type": "string", "format": "uri" },
        },
        "required": ["id", "title", "author", "year", "uri"],
    });
    json!({
        "name": "search_books",
        "title": "Search books",
        "description": "Finds books by a part of their title, author or genre.",
        "inputSchema": {
            "type": "object",
            "properties": {
                "query": { "type": "string", "description": "Part of a title, author or genre; empty for all" },
                "limit": { "type": "integer", "minimum": 1, "maximum": 5, "default": 5 },
            },
            "required": ["query"],
        },
        "outputSchema": {
            "type": "object",
            "properties": { "books": { "type": "array", "items": book }, "total": { "type": "integer" } },
            "required": ["books", "total"],
        },
        "annotations": { "readOnlyHint": true, "openWorldHint": false },
        "_meta": { "example.library/shelf": "classics" },
    })
}

fn slow_count_tool() -> Value {
    json!({
        "name": "slow_count",
        "title": "Count slowly",
        "description": "Counts from 1 to `to`, with a pause before each number. Reports progress; can be cancelled.",
        "inputSchema": {
            "type": "object",
            "properties": {
                "to": { "type": "integer", "minimum": 1, "maximum": MAX_COUNT, "default": 5 },
                "delay_ms": { "type": "integer", "minimum": 0, "maximum": MAX_DELAY_MS, "default": 200 },
            },
        },
        "annotations": { "readOnlyHint": true, "idempotentHint": true, "openWorldHint": false },
    })
}

pub(crate) fn call_tool(call: &Call) -> Answer {
    match call.text("name") {
        Ok("search_books") => search_books(call).into(),
        Ok("slow_count") => slow_count(call).unwrap_or_else(|error| Err(error).into()),
        Ok(name) => Err(RpcError::invalid_params(format!("Unknown tool: {name}"))).into(),
        Err(error) => Err(error).into(),
    }
}

fn search_books(call: &Call) -> Result<Value, RpcError> {
    let query = call
        .argument("query")
        .as_str()
        .ok_or_else(|| RpcError::invalid_params("`arguments.query` must be a string"))?
        .to_lowercase();
    let limit = whole_number(call, "limit", 5, 1..=5)?;
    let found: Vec<&Book> = BOOKS.iter().filter(|book| matches(book, &query)).collect();
    let books: Vec<Value> = found
        .iter()
        .take(usize::try_from(limit).unwrap_or(usize::MAX))
        .map(|book| {
            json!({
                "id": book.id,
                "title": book.title,
                "author": book.author,
                "year": book.year,
                "uri": book_uri(book),
            })
        })
        .collect();
    let structured = json!({ "books": books, "total": found.len() });
    Ok(json!({
        "content": [{ "type": "text", "text": structured.to_string() }],
        "structuredContent": structured,
        "isError": false,
        "_meta": { "example.library/shelf": "classics" },
    }))
}

fn matches(book: &Book, query: &str) -> bool {
    [book.title, book.author, book.genre]
        .iter()
        .any(|text| text.to_lowercase().contains(query))
}

fn slow_count(call: &Call) -> Result<Answer, RpcError> {
    let to = whole_number(call, "to", 5, 1..=MAX_COUNT)?;
    let delay = Duration::from_millis(whole_number(call, "delay_ms", 200, 0..=MAX_DELAY_MS)?);
    let token = call.progress_token().cloned();
    Ok(Answer::Slow(Box::new(move |cancel, outlet| {
        count(to, delay, token.as_ref(), cancel, outlet).then(|| {
            Ok(json!({
                "content": [{ "type": "text", "text": format!("Counted to {to}.") }],
                "isError": false,
            }))
        })
    })))
}

/// Counts and reports progress; false if cancelled.
fn count(
    to: u64,
    delay: Duration,
    token: Option<&Value>,
    cancel: &Cancel,
    outlet: &Outlet<'_>,
) -> bool {
    for number in 1..=to {
        if cancel.wait(delay) {
            return false;
        }
        if let Some(token) = token {
            let params = json!({ "progressToken": token, "progress": number, "total": to, "message": number.to_string() });
            // A write error also shows when the answer is written, and is handled there.
            let _ = outlet.send(&rpc::notification("notifications/progress", params));
        }
    }
    true
}

fn whole_number(
    call: &Call,
    name: &str,
    default: u64,
    range: std::ops::RangeInclusive<u64>,
) -> Result<u64, RpcError> {
    match call.argument(name) {
        Value::Null => Some(default),
        value => value.as_u64(),
    }
    .filter(|number| range.contains(number))
    .ok_or_else(|| {
        let (least, most) = (range.start(), range.end());
        RpcError::invalid_params(format!(
            "`arguments.{name}` must be an integer from {least} to {most}"
        ))
    })
}

pub(crate) fn resources() -> Value {
    let entries: Vec<Value> = BOOKS
        .iter()
        .map(|book| {
            json!({
                "uri": book_uri(book),
                "name": book.id,
                "title": book.title,
                "description": format!("The first sentence of the book by {}, {}", book.author, book.year),
                "mimeType": "text/plain",
                "size": book.opening.len(),
                "annotations": { "audience": ["user", "assistant"], "priority": 0.5 },
            })
        })
        .collect();
    json!({ "resources": entries })
}

pub(crate) fn resource_templates() -> Value {
    json!({ "resourceTemplates": [{
        "uriTemplate": "library://authors/{author}",
        "name": "author",
        "title": "Books of an author",
        "description": "Titles and years, one book a line.",
        "mimeType": "text/plain",
    }] })
}

pub(crate) fn read_resource(call: &Call) -> Result<Value, RpcError> {
    let uri = call.text("uri")?;
    let text = BOOKS
        .iter()
        .find(|book| book_uri(book) == uri)
        .map(|book| book.opening.to_owned())
        .or_else(|| uri.strip_prefix("library://authors/").and_then(books_of))
        .ok_or_else(|| {
            RpcError::new(rpc::RESOURCE_NOT_FOUND, "Resource not found")
                .with_data(json!({ "uri": uri }))
        })?;
    Ok(json!({ "contents": [{ "uri": uri, "mimeType": "text/plain", "text": text }] }))
}

/// The books of an author, one per line; `None` if the library has none. A URI writes a blank as
/// `%20`.
fn books_of(author: &str) -> Option<String> {
    let author = author.replace("%20", " ");
    let lines: Vec<String> = BOOKS
        .iter()
        .filter(|book| book.author == author)
        .map(|book| format!("{} ({})", book.title, book.year))
        .collect();
    (!lines.is_empty()).then(|| lines.join("\n"))
}

fn book_uri(book: &Book) -> String {
    format!("library://books/{}", book.id)
}

pub(crate) fn prompts() -> Value {
    json!({ "prompts": [{
        "name": "recommend_book",
        "title": "Recommend a book",
        "description": "Asks for a recommendation from the library.",
        "arguments": [
            { "name": "genre", "title": "Genre", "description": "What kind of book", "required": true },
            { "name": "mood", "description": "How the reader feels today", "required": false },
        ],
    }] })
}

pub(crate) fn get_prompt(call: &Call) -> Result<Value, RpcError> {
    let name = call.text("name")?;
    if name != "recommend_book" {
        return Err(RpcError::invalid_params(format!("Unknown prompt: {name}")));
    }
    let genre = call
        .argument("genre")
        .as_str()
        .ok_or_else(|| RpcError::invalid_params("`arguments.genre` must be a string"))?;
    let mood = call
        .argument("mood")
        .as_str()
        .map_or_else(String::new, |mood| format!(" I feel {mood} today."));
    let text =
        format!("Recommend one {genre} book from the library and say why in two sentences.{mood}");
    Ok(json!({
        "description": format!("A recommendation: {genre}"),
        "messages": [{ "role": "user", "content": { "type": "text", "text": text } }],
    }))
}

pub(crate) fn complete(call: &Call) -> Result<Value, RpcError> {
    let reference = &call.params["ref"];
    let argument = &call.params["argument"];
    let prefix = argument["value"]
        .as_str()
        .ok_or_else(|| RpcError::invalid_params("`params.argument.value` must be a string"))?
        .to_lowercase();
    let candidates: Vec<&str> = match (reference["type"].as_str(), argument["name"].as_str()) {
        (Some("ref/prompt"), Some("genre")) if reference["name"] == "recommend_book" => {
            BOOKS.iter().map(|book| book.genre).collect()
        }
        (Some("ref/prompt"), Some("mood")) if reference["name"] == "recommend_book" => Vec::new(),
        (Some("ref/resource"), Some("author"))
            if reference["uri"] == "library://authors/{author}" =>
        {
            BOOKS.iter().map(|book| book.author).collect()
        }
        _ => {
            return Err(RpcError::invalid_params(
                "nothing here completes this `ref` and `argument`",
            ));
        }
    };
    let mut values: Vec<&str> = candidates
        .into_iter()
        .filter(|candidate| candidate.to_lowercase().starts_with(&prefix))
        .collect();
    values.sort_unstable();
    values.dedup();
    Ok(json!({ "completion": { "values": values, "total": values.len(), "hasMore": false } }))
}
