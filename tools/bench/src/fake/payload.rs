//! The fake server's results and tools, with which the load generator compares every answer.

use bytes::Bytes;

use crate::era::Era;

/// A tool of the fake server, by its name: `text_<bytes>`, `rows_<bytes>`, `structured_<bytes>` or
/// `progress`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Tool {
    /// A text of many lines, as of a file.
    Text(usize),
    /// Only `structuredContent`: many small objects.
    Rows(usize),
    /// A result of servers with structured output: `structuredContent`, and its serialised JSON as
    /// text with every quote escaped (2026-07-28 server/tools, Structured Content).
    Structured(usize),
    /// A few bytes, after the number of progress notifications in the arguments.
    Progress,
}

/// The largest result; a mistyped name must not take all memory.
const LARGEST: usize = 64 << 20;

impl Tool {
    pub(crate) fn from_name(name: &str) -> Option<Self> {
        let size = |digits: &str| digits.parse().ok().filter(|size| *size <= LARGEST);
        match name.split_once('_') {
            Some(("text", digits)) => size(digits).map(Self::Text),
            Some(("rows", digits)) => size(digits).map(Self::Rows),
            Some(("structured", digits)) => size(digits).map(Self::Structured),
            None if name == "progress" => Some(Self::Progress),
            _ => None,
        }
    }

    pub(crate) fn name(self) -> String {
        match self {
            Self::Text(size) => format!("text_{size}"),
            Self::Rows(size) => format!("rows_{size}"),
            Self::Structured(size) => format!("structured_{size}"),
            Self::Progress => "progress".to_owned(),
        }
    }

    /// The text of the result, with exactly the requested size, unless that is too small for any
    /// result.
    pub(crate) fn result(self, era: Era) -> Bytes {
        let result_type = match era {
            Era::Modern => r#""resultType":"complete","#,
            Era::Legacy => "",
        };
        let result = |content: &str, end: &str| {
            format!(
                r#"{{{result_type}{content},"_meta":{{"dev.example/trace":"0af7651916cd43dd8448eb211c80319c{end}"}}}}"#
            )
        };
        let text = |text: &str| format!(r#""content":[{{"type":"text","text":"{text}"}}]"#);
        let rows = |rows: &str, note: &str| format!(r#"{{"rows":[{rows}],"note":"{note}"}}"#);
        let alone = |value: &str| format!(r#""content":[],"structuredContent":{value}"#);
        let serialised = |value: &str| {
            format!(
                r#"{},"structuredContent":{value}"#,
                text(&value.replace('"', r#"\""#))
            )
        };
        match self {
            Self::Progress => result(&text(""), ""),
            Self::Text(size) => {
                let left = size.saturating_sub(result(&text(""), "").len());
                let (lines, left) = fill(left, line, str::len);
                result(&text(&(lines + &"x".repeat(left))), "")
            }
            Self::Rows(size) => {
                let (filling, left) = fill(
                    size.saturating_sub(result(&alone(&rows("", "")), "").len()),
                    row,
                    str::len,
                );
                result(&alone(&rows(&filling, &"x".repeat(left))), "")
            }
            Self::Structured(size) => {
                let twice = |row: &str| 2 * row.len() + row.matches('"').count();
                let (filling, left) = fill(
                    size.saturating_sub(result(&serialised(&rows("", "")), "").len()),
                    row,
                    twice,
                );
                result(
                    &serialised(&rows(&filling, &"x".repeat(left / 2))),
                    &"0".repeat(left % 2),
                )
            }
        }
        .into()
    }
}

/// Pieces with a total of at most `left` bytes by their `size`; also the unused bytes.
fn fill(
    mut left: usize,
    piece: fn(usize) -> String,
    size: impl Fn(&str) -> usize,
) -> (String, usize) {
    let mut pieces = String::new();
    for piece in (0..).map(piece) {
        let Some(rest) = left.checked_sub(size(&piece)) else {
            break;
        };
        pieces += &piece;
        left = rest;
    }
    (pieces, left)
}

/// A line with its escaped line break.
fn line(number: usize) -> String {
    format!("{number:06}  let answer = \\\"{:x<51}\\\";  // line\\n", "")
}

/// A small object with the usual kinds of values, and the comma before it.
fn row(number: usize) -> String {
    let comma = if number == 0 { "" } else { "," };
    format!(
        r#"{comma}{{"id":{},"name":"row {number:06}","score":{}.125,"tags":["a","b"],"active":true,"parent":null}}"#,
        number + 100_000,
        number % 97
    )
}

/// The text of a `tools/list` result with `count` tools on one page.
pub(crate) fn tool_list(era: Era, count: usize) -> String {
    let tools: Vec<String> = (0..count).map(tool).collect();
    let hints = match era {
        Era::Modern => r#""resultType":"complete","ttlMs":60000,"cacheScope":"public","#,
        Era::Legacy => "",
    };
    format!(r#"{{{hints}"tools":[{}]}}"#, tools.join(","))
}

/// The callable tools; the others only appear in lists.
const KNOWN: [Tool; 8] = [
    Tool::Text(200),
    Tool::Text(10 << 10),
    Tool::Text(1 << 20),
    Tool::Rows(1 << 20),
    Tool::Structured(200),
    Tool::Structured(10 << 10),
    Tool::Structured(1 << 20),
    Tool::Progress,
];

fn tool(index: usize) -> String {
    let name = KNOWN
        .get(index)
        .map_or_else(|| format!("filler_{index:03}"), |tool| tool.name());
    format!(
        r#"{{"name":"{name}","title":"Tool {index}","description":"Looks up record {index} and returns what is known of it. Takes a query and a limit.","inputSchema":{{"type":"object","properties":{{"query":{{"type":"string","description":"What to look for"}},"limit":{{"type":"integer","minimum":1,"maximum":100}}}}}},"annotations":{{"readOnlyHint":true}}}}"#
    )
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    #[test]
    fn result_is_json_of_the_requested_size() {
        for era in Era::ALL {
            for size in [200, 201, 250, 311, 312, 999, 10 << 10, 1 << 20] {
                for tool in [Tool::Text(size), Tool::Rows(size), Tool::Structured(size)] {
                    let text = tool.result(era);
                    let value: Value = serde_json::from_slice(&text)
                        .unwrap_or_else(|error| panic!("{tool:?}: {error}"));
                    assert!(value["content"].is_array());
                    assert_eq!(value.get("resultType").is_some(), era == Era::Modern);
                    assert_eq!(text.len(), size, "{tool:?} {era:?}");
                }
            }
        }
    }

    #[test]
    fn text_of_structured_output_is_its_serialised_content() {
        for size in [200, 999, 10 << 10] {
            let value: Value =
                serde_json::from_slice(&Tool::Structured(size).result(Era::Modern)).unwrap();
            let text: Value =
                serde_json::from_str(value["content"][0]["text"].as_str().unwrap()).unwrap();
            assert_eq!(text, value["structuredContent"]);
        }
    }

    #[test]
    fn tool_has_a_name_that_can_be_parsed() {
        for tool in KNOWN {
            assert_eq!(Tool::from_name(&tool.name()), Some(tool));
        }
        for unknown in ["", "text_", "text_x", "filler_7", "text_99999999999"] {
            assert_eq!(Tool::from_name(unknown), None, "{unknown}");
        }
    }

    #[test]
    fn list_has_the_requested_number_of_tools() {
        let list: Value = serde_json::from_str(&tool_list(Era::Modern, 50)).unwrap();
        assert_eq!(list["tools"].as_array().unwrap().len(), 50);
        assert_eq!(list["tools"][0]["name"], "text_200");
    }
}
