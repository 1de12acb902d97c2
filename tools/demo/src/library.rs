//! The content of the "library": five books, their authors, one prompt.

use std::ops::RangeInclusive;
use std::sync::LazyLock;
use std::time::Duration;

use serde::Deserialize;
use serde_json::{Value, json};

use crate::rpc::{self, Call, RpcError};
use crate::server::{Answer, Cancel, Outlet};

pub(crate) const INSTRUCTIONS: &str = "Five classic books. Search them with `search_books`, read one as a resource \
    (`library://books/…`), or ask for a recommendation with the prompt `recommend_book`.";

pub(crate) const MAX_COUNT: u64 = 1000;
pub(crate) const MAX_DELAY_MS: u64 = 10_000;

#[derive(Deserialize)]
struct Book {
    id: String,
    title: String,
    author: String,
    year: u16,
    genre: String,
    opening: String,
}

static BOOKS: LazyLock<Vec<Book>> = LazyLock::new(|| {
    serde_json::from_value(rpc::definitions(DEFINITIONS, "books")).unwrap_or_default()
});

/// The lists by the members of their results, and `serverInfo`.
pub(crate) const DEFINITIONS: &str = include_str!("library.json");

pub(crate) fn call_tool(call: &Call) -> Answer {
    match call.text("name") {
        Ok("search_books") => search_books(call).into(),
        Ok("slow_count") => slow_count(call).unwrap_or_else(|error| Err(error).into()),
        Ok(name) => Err(RpcError::invalid_params(format!("Unknown tool: {name}"))).into(),
        Err(error) => Err(error).into(),
    }
}

fn search_books(call: &Call) -> Result<Value, RpcError> {
    let query = call.text_argument("query")?.to_lowercase();
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
    [&book.title, &book.author, &book.genre]
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
    range: RangeInclusive<u64>,
) -> Result<u64, RpcError> {
    let number = call.whole_number("arguments.", name, default, range);
    number.map_err(RpcError::invalid_params)
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
    entries.into()
}

pub(crate) fn read_resource(call: &Call) -> Result<Value, RpcError> {
    let uri = call.text("uri")?;
    let text = BOOKS
        .iter()
        .find(|book| book_uri(book) == uri)
        .map(|book| book.opening.clone())
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

pub(crate) fn get_prompt(call: &Call) -> Result<Value, RpcError> {
    let name = call.text("name")?;
    if name != "recommend_book" {
        return Err(RpcError::invalid_params(format!("Unknown prompt: {name}")));
    }
    let genre = call.text_argument("genre")?;
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
    let prefix = call.value_to_complete()?.to_lowercase();
    let candidates: Vec<&str> = match (reference["type"].as_str(), argument["name"].as_str()) {
        (Some("ref/prompt"), Some("genre")) if reference["name"] == "recommend_book" => {
            BOOKS.iter().map(|book| &*book.genre).collect()
        }
        (Some("ref/prompt"), Some("mood")) if reference["name"] == "recommend_book" => Vec::new(),
        (Some("ref/resource"), Some("author"))
            if reference["uri"] == "library://authors/{author}" =>
        {
            BOOKS.iter().map(|book| &*book.author).collect()
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
