//! The cases, for the server in `fake::unusual`.

use crate::era::Era;

/// One request, and the checked part of the messages.
pub(super) struct Case {
    pub(super) name: &'static str,
    pub(super) eras: &'static [Era],
    pub(super) method: &'static str,
    /// The called tool.
    pub(super) tool: Option<&'static str>,
    /// The members of the parameters; for a call, without its name.
    pub(super) params: &'static str,
    pub(super) meta: &'static str,
    pub(super) id: &'static str,
    pub(super) look: Look,
    /// A JSON pointer within the checked message.
    pub(super) at: &'static str,
    pub(super) expected: &'static str,
    /// Whether the text must be equal, with digits of numbers and the order of members. Otherwise
    /// only the value counts.
    pub(super) as_written: bool,
}

/// The checked message.
#[derive(Clone, Copy, Debug)]
pub(super) enum Look {
    /// The result of `initialize` or `server/discover`.
    Opening,
    /// The first page of a list, by method and by the member with its entries.
    Page(&'static str, &'static str),
    /// The entry of a list with this name or URI, on any page.
    Entry(&'static str, &'static str, &'static str),
    Result,
    /// The response.
    Whole,
    /// The parameters of all notifications with this method, as an array.
    Notifications(&'static str),
    /// The parameters at the server.
    Arrived,
}

const BOTH: &[Era] = &Era::ALL;
const LEGACY: &[Era] = &[Era::Legacy];
const MODERN: &[Era] = &[Era::Modern];

impl Case {
    /// A check without a request of its own.
    const fn of(name: &'static str, look: Look, at: &'static str, expected: &'static str) -> Self {
        let (method, tool, params, meta, id) = ("", None, "", "", "10");
        Self {
            name,
            eras: BOTH,
            method,
            tool,
            params,
            meta,
            id,
            look,
            at,
            expected,
            as_written: false,
        }
    }

    const fn opening(name: &'static str, at: &'static str, expected: &'static str) -> Self {
        Self::of(name, Look::Opening, at, expected)
    }

    const fn tools(name: &'static str, at: &'static str, expected: &'static str) -> Self {
        Self::of(name, Look::Page("tools/list", "tools"), at, expected)
    }

    const fn tool(
        name: &'static str,
        tool: &'static str,
        at: &'static str,
        expected: &'static str,
    ) -> Self {
        Self::of(name, Look::Entry("tools/list", "tools", tool), at, expected)
    }

    /// A check of a part of a call's result.
    const fn call(
        name: &'static str,
        tool: &'static str,
        at: &'static str,
        expected: &'static str,
    ) -> Self {
        let case = Self::of(name, Look::Result, at, expected);
        Self {
            method: "tools/call",
            tool: Some(tool),
            ..case
        }
    }

    /// A check of a part of another request's result.
    const fn request(
        name: &'static str,
        method: &'static str,
        params: &'static str,
        at: &'static str,
        expected: &'static str,
    ) -> Self {
        Self {
            method,
            params,
            ..Self::of(name, Look::Result, at, expected)
        }
    }

    /// A check of a part of a call's parameters at the server.
    const fn arrives(
        name: &'static str,
        params: &'static str,
        meta: &'static str,
        at: &'static str,
        expected: &'static str,
    ) -> Self {
        Self {
            params,
            meta,
            look: Look::Arrived,
            ..Self::call(name, "arrived", at, expected)
        }
    }

    const fn exactly(self) -> Self {
        Self {
            as_written: true,
            ..self
        }
    }

    const fn only(self, eras: &'static [Era]) -> Self {
        Self { eras, ..self }
    }

    const fn looking(self, look: Look) -> Self {
        Self { look, ..self }
    }

    const fn with(self, params: &'static str, meta: &'static str) -> Self {
        Self {
            params,
            meta,
            ..self
        }
    }

    const fn id(self, id: &'static str) -> Self {
        Self { id, ..self }
    }
}

const NUMBERS: &str = r#"{"price":1.0,"id":12345678901234567890,"rate":0.10,"big":1E2,"zero":-0.0,"long":3.14159265358979323846}"#;
const SCHEMA: &str = r##"{"$schema":"https://json-schema.org/draft/2020-12/schema","type":"object","properties":{"zip":{"$ref":"#/$defs/zip"},"amount":{"type":"number","minimum":0.10,"multipleOf":1.0}},"required":["zip"],"additionalProperties":false,"$defs":{"zip":{"type":"string","pattern":"^[0-9]{5}$","x-example":"10115"}}}"##;
const OUTPUT_SCHEMA: &str = r#"{"type":"object","properties":{"a":{"type":["integer","null"]}},"additionalProperties":{"type":"string"}}"#;
const TASK: &str = r#"{"taskId":"t-1","status":"working","statusMessage":"begun","createdAt":"2026-01-01T00:00:00Z","lastUpdatedAt":"2026-01-01T00:00:00Z","ttl":60000,"pollInterval":50}"#;
const LOG_LEVEL: &str = r#""io.modelcontextprotocol/logLevel":"debug""#;
const ARGUMENTS: &str = r#""arguments":{"zebra":1,"apple":{"y":1,"x":2},"mango":3}"#;
const NUMBERS_IN: &str = r#""arguments":{"price":1.0,"id":12345678901234567890,"rate":0.10,"big":1E2,"zero":-0.0,"long":3.14159265358979323846}"#;

#[rustfmt::skip]
pub(super) const CASES: &[Case] = &[
    Case::opening("instructions", "/instructions", r#""Ask twice.""#),
    Case::opening("experimental capability", "/capabilities/experimental", r#"{"example.com/feature":{"level":2}}"#),
    Case::opening("`_meta` of the opening", "/_meta/example.com~1opening", r#"{"a":1}"#),
    Case::tool("title of a tool", "definition", "/title", r#""Definition""#),
    Case::tool("input schema", "definition", "/inputSchema", SCHEMA),
    Case::tool("input schema as written", "definition", "/inputSchema", SCHEMA).exactly(),
    Case::tool("output schema", "definition", "/outputSchema", OUTPUT_SCHEMA),
    Case::tool("annotations of a tool, one unknown", "definition", "/annotations", r#"{"title":"Definition","readOnlyHint":true,"exampleHint":3}"#),
    Case::tool("icons of a tool", "definition", "/icons", r#"[{"src":"https://example.com/i.svg","mimeType":"image/svg+xml","sizes":["any"]}]"#),
    Case::tool("task support of a tool", "task", "/execution", r#"{"taskSupport":"optional"}"#).only(LEGACY),
    Case::tool("unknown member of a tool", "definition", "/example", r#"{"owner":"a"}"#),
    Case::tool("`_meta` of a tool", "definition", "/_meta/example.com~1version", "3"),
    Case::tool("tool on the second page", "last", "/description", r#""On the second page.""#),
    Case::tools("`_meta` of a list", "/_meta/example.com~1list", r#"{"a":1}"#),
    Case::tools("`ttlMs` of a list", "/ttlMs", "61000").only(MODERN),
    Case::tools("`cacheScope` of a list", "/cacheScope", r#""public""#).only(MODERN),
    Case::of("unknown member of a resource", Look::Entry("resources/list", "resources", "one"), "/example", "[1]"),
    Case::of("unknown member of a prompt", Look::Entry("prompts/list", "prompts", "greet"), "/example", "[1]"),
    Case::call("`_meta` of a result", "meta", "/_meta/example.com~1trace", r#"{"a":[1,{"b":null}]}"#),
    Case::call("unknown member of a result", "member", "/example", r#"{"kept":[true]}"#),
    Case::call("unknown member of a content item", "item", "/content/0/example", r#"{"a":1}"#),
    Case::call("`_meta` of a content item", "item", "/content/0/_meta/example.com~1item", "7"),
    Case::call("annotations of a content item", "item", "/content/0/annotations", r#"{"audience":["user"],"priority":0.5,"lastModified":"2025-01-12T15:00:58Z"}"#),
    Case::call("structured content", "structured", "/structuredContent", r#"{"rows":[{"a":1,"b":[null,true,"x"]}],"note":""}"#),
    Case::call("numbers in structured content", "lexemes", "/structuredContent", NUMBERS).exactly(),
    Case::call("order of members in structured content", "order", "/structuredContent", r#"{"zebra":1,"apple":2,"mango":{"y":1,"x":2}}"#).exactly(),
    Case::call("rare characters in a text", "characters", "/content/0/text", r#""\u0000\u001b[0m\u2028\ud83d\ude00\ufeff\u0301""#),
    Case::call("link to a resource", "link", "/content/0", r#"{"type":"resource_link","uri":"example://docs/1","name":"one","title":"One","size":12,"icons":[{"src":"https://example.com/i.png","sizes":["48x48"]}],"_meta":{"example.com/link":1}}"#),
    Case::call("`_meta` of an embedded resource", "embedded", "/content/0/resource/_meta/example.com~1part", "1"),
    Case::call("structured content of a failed call", "failed", "/structuredContent", r#"{"reason":"full","retry":3}"#),
    Case::call("code of an error", "error", "/error/code", "-31042").looking(Look::Whole),
    Case::call("message of an error", "error", "/error/message", r#""Try later""#).looking(Look::Whole),
    Case::call("data of an error", "error", "/error/data", r#"{"retryAfter":15,"example":{"a":[1]}}"#).looking(Look::Whole),
    Case::call("task that a call begins", "task", "/task", TASK).with(r#""arguments":{},"task":{"ttl":60000}"#, "").only(LEGACY),
    Case::call("task metadata of a result", "related", "/_meta/io.modelcontextprotocol~1related-task", r#"{"taskId":"t-1"}"#).only(LEGACY),
    Case::request("`_meta` of a resource's content", "resources/read", r#""uri":"example://docs/1""#, "/contents/0/_meta/example.com~1content", r#"{"a":1}"#),
    Case::request("`_meta` of a prompt's message", "prompts/get", "", "/messages/0/content/_meta/example.com~1message", "1"),
    Case::request("completion", "completion/complete", r#""ref":{"type":"ref/resource","uri":"example://docs/{id}"},"argument":{"name":"id","value":"o"}"#, "/completion/values", r#"["one","two"]"#),
    Case::request("unknown method", "example.com/method", r#""a":1"#, "/example", r#"{"a":1}"#),
    Case::call("progress notifications", "progress", "", r#"[{"progressToken":"p-1","progress":1,"total":3,"message":"step 1"},{"progressToken":"p-1","progress":2,"total":3,"message":"step 2"},{"progressToken":"p-1","progress":3,"total":3,"message":"step 3"}]"#)
        .with("", r#""progressToken":"p-1""#).looking(Look::Notifications("notifications/progress")),
    Case::call("log notification", "log", "/0/data", r#"{"disk":[1,2]}"#)
        .with("", LOG_LEVEL).looking(Look::Notifications("notifications/message")),
    Case::call("`_meta` of a notification", "log", "/0/_meta/example.com~1log", "1")
        .with("", LOG_LEVEL).looking(Look::Notifications("notifications/message")),
    Case::call("unknown notification", "log", "/0/a", "1")
        .with("", LOG_LEVEL).looking(Look::Notifications("notifications/example.com/changed")),
    Case::arrives("`_meta` of a request", r#""arguments":{}"#, r#""example.com/trace":{"a":1}"#, "/_meta/example.com~1trace", r#"{"a":1}"#),
    Case::arrives("unknown member of a request", r#""arguments":{},"example":{"a":1}"#, "", "/example", r#"{"a":1}"#),
    Case::arrives("argument that no schema names", r#""arguments":{"undeclared":{"a":[1]}}"#, "", "/arguments", r#"{"undeclared":{"a":[1]}}"#),
    Case::arrives("numbers in arguments", NUMBERS_IN, "", "/arguments", NUMBERS).exactly(),
    Case::arrives("order of arguments", ARGUMENTS, "", "/arguments", r#"{"zebra":1,"apple":{"y":1,"x":2},"mango":3}"#).exactly(),
    Case::call("id that is a text", "meta", "/id", r#""call 1""#).looking(Look::Whole).id(r#""call 1""#).exactly(),
    Case::call("id of more than 53 bits", "meta", "/id", "9007199254740993").looking(Look::Whole).id("9007199254740993").exactly(),
];
