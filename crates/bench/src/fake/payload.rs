//! The results and tools of the fake server. The load generator knows them too, and checks every answer against them.
//!
//! Must not know: how they are sent.

use bytes::Bytes;

use crate::era::Era;

/// What a tool of the fake server answers, by its name: `text_<bytes>`, `rows_<bytes>` or `progress`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Tool {
    /// One text of many lines, as when a file is read.
    Text(usize),
    /// Structured content: many small objects.
    Rows(usize),
    /// A few bytes, after as many progress notifications as the arguments ask for.
    Progress,
}

/// The largest result, so that a mistyped name does not take all memory.
const LARGEST: usize = 64 << 20;

impl Tool {
    pub(crate) fn from_name(name: &str) -> Option<Self> {
        let size = |digits: &str| digits.parse().ok().filter(|size| *size <= LARGEST);
        match name.split_once('_') {
            Some(("text", digits)) => size(digits).map(Self::Text),
            Some(("rows", digits)) => size(digits).map(Self::Rows),
            None if name == "progress" => Some(Self::Progress),
            _ => None,
        }
    }

    pub(crate) fn name(self) -> String {
        match self {
            Self::Text(size) => format!("text_{size}"),
            Self::Rows(size) => format!("rows_{size}"),
            Self::Progress => "progress".to_owned(),
        }
    }

    /// The text of the result, of exactly the size asked for unless that is too little for any result.
    pub(crate) fn result(self, era: Era) -> Bytes {
        let kind = match era {
            Era::Modern => r#""resultType":"complete","#,
            Era::Legacy => "",
        };
        let end = r#""_meta":{"dev.example/trace":"0af7651916cd43dd8448eb211c80319c"}}"#;
        let (start, filling, middle) = match self {
            Self::Text(_) | Self::Progress => {
                (format!(r#"{{{kind}"content":[{{"type":"text","text":""#), line as Filling, r#""}],"#)
            }
            Self::Rows(_) => {
                (format!(r#"{{{kind}"content":[],"structuredContent":{{"rows":["#), row as Filling, r#"]},"#)
            }
        };
        let size = match self {
            Self::Text(size) | Self::Rows(size) => size,
            Self::Progress => 0,
        };
        let room = size.saturating_sub(start.len() + middle.len() + end.len());
        let mut text = start.into_bytes();
        fill(&mut text, room, filling);
        text.extend_from_slice(middle.as_bytes());
        text.extend_from_slice(end.as_bytes());
        text.into()
    }
}

/// One more piece of filling: its number, and how many bytes there are left for it. `None` if nothing suits.
type Filling = fn(usize, usize) -> Option<String>;

fn fill(text: &mut Vec<u8>, mut room: usize, filling: Filling) {
    let mut number = 0;
    while let Some(piece) = filling(number, room).filter(|piece| !piece.is_empty()) {
        text.extend_from_slice(piece.as_bytes());
        room -= piece.len();
        number += 1;
    }
}

/// A line of 80 bytes with its escaped line break, or whatever there is room for.
fn line(number: usize, room: usize) -> Option<String> {
    let line = format!("{number:06}  let answer = \\\"{:x<51}\\\";  // line\\n", "");
    (room > 0).then(|| if room >= line.len() { line } else { "x".repeat(room) })
}

/// A small object of the usual kinds of values; the last takes up what is left.
fn row(number: usize, room: usize) -> Option<String> {
    let comma = if number == 0 { "" } else { "," };
    let row = format!(
        r#"{comma}{{"id":{},"name":"row {number:06}","score":{}.125,"tags":["a","b"],"active":true,"parent":null}}"#,
        number + 100_000,
        number % 97
    );
    // What remains after this row must be nothing or enough for one that fills it.
    let shortest = r#",{"rest":""}"#.len();
    match room.checked_sub(row.len()) {
        Some(rest) if rest == 0 || rest >= shortest => Some(row),
        _ => room
            .checked_sub(comma.len() + r#"{"rest":""}"#.len())
            .map(|rest| format!(r#"{comma}{{"rest":"{}"}}"#, "x".repeat(rest))),
    }
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

/// The first tools are those that can be called with interest; the others are there to be listed.
fn tool(index: usize) -> String {
    let known = [Tool::Text(200), Tool::Text(10 << 10), Tool::Text(1 << 20), Tool::Rows(1 << 20), Tool::Progress];
    let name = known.get(index).map_or_else(|| format!("filler_{index:03}"), |tool| tool.name());
    format!(
        r#"{{"name":"{name}","title":"Tool {index}","description":"Looks up record {index} and returns what is known of it. Takes a query and a limit.","inputSchema":{{"type":"object","properties":{{"query":{{"type":"string","description":"What to look for"}},"limit":{{"type":"integer","minimum":1,"maximum":100}}}}}},"annotations":{{"readOnlyHint":true}}}}"#
    )
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    #[test]
    fn results_have_the_size_asked_for_and_are_json() {
        for era in Era::ALL {
            for size in [200, 201, 250, 311, 312, 999, 10 << 10, 1 << 20] {
                for tool in [Tool::Text(size), Tool::Rows(size)] {
                    let text = tool.result(era);
                    let value: Value =
                        serde_json::from_slice(&text).unwrap_or_else(|error| panic!("{tool:?}: {error}"));
                    assert!(value["content"].is_array());
                    assert_eq!(value.get("resultType").is_some(), era == Era::Modern);
                    assert!(text.len() == size || size < 260, "{tool:?} {era:?}: {}", text.len());
                }
                assert_eq!(Tool::Text(size).result(era).len(), size, "{era:?}");
            }
        }
    }

    #[test]
    fn names_tell_the_tool() {
        for tool in [Tool::Text(200), Tool::Rows(1 << 20), Tool::Progress] {
            assert_eq!(Tool::from_name(&tool.name()), Some(tool));
        }
        for unknown in ["", "text_", "text_x", "filler_7", "text_99999999999"] {
            assert_eq!(Tool::from_name(unknown), None, "{unknown}");
        }
    }

    #[test]
    fn lists_are_as_long_as_asked() {
        let list: Value = serde_json::from_str(&tool_list(Era::Modern, 50)).unwrap();
        assert_eq!(list["tools"].as_array().unwrap().len(), 50);
        assert_eq!(list["tools"][0]["name"], "text_200");
    }
}
