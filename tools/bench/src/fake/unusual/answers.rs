//! The unusual results, errors and notifications. `peers::fidelity::cases` has the expected texts
//! after a gateway.

use super::Answer;
use crate::era::Era;

/// The cursor of the second page of tools; a cursor may be any text.
const SECOND_PAGE: &str = "page 2/+é=";

/// The names of tools with ordinary definitions; `definition` and `last` have unusual ones.
const TOOLS: [&str; 12] = [
    "meta",
    "member",
    "item",
    "structured",
    "lexemes",
    "order",
    "characters",
    "link",
    "embedded",
    "failed",
    "log",
    "progress",
];

/// A result with the members that its revision requires, and `rest`.
fn result(era: Era, rest: &str) -> Answer {
    let before = if era == Era::Modern {
        r#""resultType":"complete","#
    } else {
        ""
    };
    Answer::Result(format!("{{{before}{rest}}}"))
}

pub(super) fn call(era: Era, tool: &str, params: &str) -> Answer {
    let content = r#""content":[{"type":"text","text":"done"}]"#;
    let with = |rest: &str| result(era, &format!("{content},{rest}"));
    match tool {
        "meta" => with(r#""_meta":{"example.com/trace":{"a":[1,{"b":null}]}}"#),
        "member" => with(r#""example":{"kept":[true]}"#),
        "item" => result(
            era,
            r#""content":[{"type":"text","text":"done","example":{"a":1},"_meta":{"example.com/item":7},"annotations":{"audience":["user"],"priority":0.5,"lastModified":"2025-01-12T15:00:58Z"}}]"#,
        ),
        "structured" => with(r#""structuredContent":{"rows":[{"a":1,"b":[null,true,"x"]}],"note":""}"#),
        "lexemes" => with(
            r#""structuredContent":{"price":1.0,"id":12345678901234567890,"rate":0.10,"big":1E2,"zero":-0.0,"long":3.14159265358979323846}"#,
        ),
        "order" => with(r#""structuredContent":{"zebra":1,"apple":2,"mango":{"y":1,"x":2}}"#),
        "characters" => result(era, r#""content":[{"type":"text","text":"\u0000\u001b[0m\u2028\ud83d\ude00\ufeff\u0301"}]"#),
        "link" => result(
            era,
            r#""content":[{"type":"resource_link","uri":"example://docs/1","name":"one","title":"One","size":12,"icons":[{"src":"https://example.com/i.png","sizes":["48x48"]}],"_meta":{"example.com/link":1}}]"#,
        ),
        "embedded" => result(
            era,
            r#""content":[{"type":"resource","resource":{"uri":"example://docs/1","mimeType":"text/plain","text":"one","_meta":{"example.com/part":1}}}]"#,
        ),
        "failed" => with(r#""structuredContent":{"reason":"full","retry":3},"isError":true"#),
        "error" => Answer::Error(
            r#"{"code":-31042,"message":"Try later","data":{"retryAfter":15,"example":{"a":[1]}}}"#.to_owned(),
        ),
        "task" if params.contains(r#""task""#) => Answer::Result(
            r#"{"task":{"taskId":"t-1","status":"working","statusMessage":"begun","createdAt":"2026-01-01T00:00:00Z","lastUpdatedAt":"2026-01-01T00:00:00Z","ttl":60000,"pollInterval":50}}"#.to_owned(),
        ),
        "related" => with(r#""_meta":{"io.modelcontextprotocol/related-task":{"taskId":"t-1"}}"#),
        "arrived" => {
            let text = serde_json::to_string(params).unwrap_or_default();
            result(era, &format!(r#""content":[{{"type":"text","text":{text}}}]"#))
        }
        _ => with(r#""isError":false"#),
    }
}

pub(super) fn answer(era: Era, method: &str, cursor: Option<&str>) -> Answer {
    let hints = if era == Era::Modern {
        r#""ttlMs":61000,"cacheScope":"public","#
    } else {
        ""
    };
    let list = |rest: &str| result(era, &format!("{hints}{rest}"));
    match (method, era) {
        ("initialize", Era::Legacy) => Answer::Result(INITIALIZED.to_owned()),
        ("server/discover", Era::Modern) => Answer::Result(DISCOVERED.to_owned()),
        ("ping" | "logging/setLevel", Era::Legacy) => Answer::Result("{}".to_owned()),
        ("tools/list", _) if cursor == Some(SECOND_PAGE) => list(&format!(r#""tools":[{LAST}]"#)),
        ("tools/list", _) => list(&format!(
            r#""tools":[{},{DEFINITION}],"nextCursor":"{SECOND_PAGE}","_meta":{{"example.com/list":{{"a":1}}}}"#,
            plain_tools().join(",")
        )),
        ("resources/list", _) => list(
            r#""resources":[{"uri":"example://docs/1","name":"one","mimeType":"text/plain","example":[1],"_meta":{"example.com/resource":1}}]"#,
        ),
        ("resources/templates/list", _) => list(r#""resourceTemplates":[]"#),
        ("resources/read", _) => list(
            r#""contents":[{"uri":"example://docs/1","mimeType":"text/plain","text":"one","_meta":{"example.com/content":{"a":1}}}]"#,
        ),
        ("prompts/list", _) => {
            list(r#""prompts":[{"name":"greet","description":"Greets.","example":[1]}]"#)
        }
        ("prompts/get", _) => result(
            era,
            r#""description":"Greets.","messages":[{"role":"user","content":{"type":"text","text":"Hello","_meta":{"example.com/message":1}}}]"#,
        ),
        ("completion/complete", _) => result(
            era,
            r#""completion":{"values":["one","two"],"total":2,"hasMore":false,"example":1}"#,
        ),
        ("example.com/method", _) => result(era, r#""example":{"a":1}"#),
        _ => Answer::Error(r#"{"code":-32601,"message":"Method not found"}"#.to_owned()),
    }
}

fn plain_tools() -> Vec<String> {
    let simple = |name: &str| {
        format!(
            r#"{{"name":"{name}","description":"Answers in an unusual manner.","inputSchema":{{"type":"object"}}}}"#
        )
    };
    let mut tools: Vec<_> = TOOLS
        .iter()
        .chain(&["error", "arrived", "related"])
        .map(|name| simple(name))
        .collect();
    tools.push(
        r#"{"name":"task","description":"Takes its time.","inputSchema":{"type":"object"},"execution":{"taskSupport":"optional"}}"#.to_owned(),
    );
    tools
}

/// A tool with every member of a definition.
const DEFINITION: &str = r##"{"name":"definition","title":"Definition","description":"Has everything.","inputSchema":{"$schema":"https://json-schema.org/draft/2020-12/schema","type":"object","properties":{"zip":{"$ref":"#/$defs/zip"},"amount":{"type":"number","minimum":0.10,"multipleOf":1.0}},"required":["zip"],"additionalProperties":false,"$defs":{"zip":{"type":"string","pattern":"^[0-9]{5}$","x-example":"10115"}}},"outputSchema":{"type":"object","properties":{"a":{"type":["integer","null"]}},"additionalProperties":{"type":"string"}},"annotations":{"title":"Definition","readOnlyHint":true,"exampleHint":3},"icons":[{"src":"https://example.com/i.svg","mimeType":"image/svg+xml","sizes":["any"]}],"example":{"owner":"a"},"_meta":{"example.com/version":3}}"##;
const LAST: &str =
    r#"{"name":"last","description":"On the second page.","inputSchema":{"type":"object"}}"#;

const INITIALIZED: &str = r#"{"protocolVersion":"2025-11-25","capabilities":{"tools":{"listChanged":true},"resources":{"listChanged":true},"prompts":{"listChanged":true},"completions":{},"logging":{},"tasks":{"list":{},"cancel":{},"requests":{"tools":{"call":{}}}},"experimental":{"example.com/feature":{"level":2}}},"serverInfo":{"name":"unusual","version":"1"},"instructions":"Ask twice.","_meta":{"example.com/opening":{"a":1}}}"#;
const DISCOVERED: &str = r#"{"resultType":"complete","supportedVersions":["2026-07-28"],"capabilities":{"tools":{},"resources":{},"prompts":{},"completions":{},"logging":{},"experimental":{"example.com/feature":{"level":2}}},"instructions":"Ask twice.","ttlMs":61000,"cacheScope":"public","_meta":{"io.modelcontextprotocol/serverInfo":{"name":"unusual","version":"1"},"example.com/opening":{"a":1}}}"#;

/// Three notifications for this progress token.
pub(super) fn progress(token: &str) -> Vec<String> {
    let one = |number: u32| {
        format!(
            r#"{{"jsonrpc":"2.0","method":"notifications/progress","params":{{"progressToken":{token},"progress":{number},"total":3,"message":"step {number}"}}}}"#
        )
    };
    (1..=3).map(one).collect()
}

/// A log message, and a notification that no specification names.
pub(super) fn log() -> Vec<String> {
    let log = r#"{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"warning","logger":"unusual","data":{"disk":[1,2]},"_meta":{"example.com/log":1}}}"#;
    let other =
        r#"{"jsonrpc":"2.0","method":"notifications/example.com/changed","params":{"a":1}}"#;
    [log, other].map(str::to_owned).to_vec()
}
