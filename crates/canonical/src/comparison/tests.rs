use fanlight_protocol::{DEFAULT_NESTING, Json, Message, Response};
use proptest::prelude::*;

use super::*;

fn json(text: impl Into<String>) -> Json {
    Json::parse(text.into().into(), DEFAULT_NESTING).unwrap()
}

fn answer(body: &str) -> Response {
    let text = format!(r#"{{"jsonrpc":"2.0","id":1,{body}}}"#);
    match Message::parse(text.into(), DEFAULT_NESTING).unwrap() {
        Message::Response(response) => response,
        other => panic!("{other:?}"),
    }
}

fn lines(found: Vec<Difference>) -> Vec<String> {
    found.iter().map(ToString::to_string).collect()
}

/// The differences of two answers: `"result":…` or `"error":…`.
fn answers(was: &str, is: &str) -> Vec<String> {
    lines(compare_answers(
        &answer(was),
        &answer(is),
        &Tolerance::default(),
    ))
}

fn definitions(was: &str, is: &str) -> Vec<String> {
    let (was, is) = (json(was), json(is));
    lines(compare_definitions(
        Some(&was),
        Some(&is),
        &Tolerance::default(),
    ))
}

fn inputs(was: &str, is: &str) -> Vec<String> {
    let tool = |schema: &str| format!(r#"{{"name":"t","inputSchema":{schema}}}"#);
    definitions(&tool(was), &tool(is))
}

fn outputs(was: &str, is: &str) -> Vec<String> {
    let tool = |schema: &str| format!(r#"{{"name":"t","outputSchema":{schema}}}"#);
    definitions(&tool(was), &tool(is))
}

/// The differences of the schemas of one property `x`.
fn property(was: &str, is: &str) -> Vec<String> {
    let object = |schema: &str| format!(r#"{{"type":"object","properties":{{"x":{schema}}}}}"#);
    let found = inputs(&object(was), &object(is));
    found
        .iter()
        .map(|line| line.replace("/inputSchema/properties/x", "x"))
        .collect()
}

#[test]
fn each_kind_is_found_with_its_severity_and_pointer() {
    let none = Tolerance::default();
    let tool = json(r#"{"name":"t"}"#);
    let object = |properties: &str, required: &str| {
        format!(r#"{{"type":"object","properties":{{{properties}}},"required":[{required}]}}"#)
    };
    let a = r#""a":{"type":"string"}"#;
    let ab = r#""a":{"type":"string"},"b":{"enum":["x","y"]}"#;
    let table: Vec<(Vec<String>, &str)> = vec![
        (
            lines(compare_definitions(Some(&tool), None, &none)),
            "breaking item-gone ",
        ),
        (
            inputs(&object(ab, ""), &object(a, "")),
            "breaking argument-gone /inputSchema/properties/b",
        ),
        (
            inputs(&object(a, ""), &object(ab, r#""b""#)),
            "breaking argument-required /inputSchema/properties/b",
        ),
        (
            inputs(&object(ab, ""), &object(&ab.replace(r#","y""#, ""), "")),
            "breaking input-narrowed /inputSchema/properties/b/enum",
        ),
        (
            outputs(
                &object(ab, ""),
                &object(&ab.replace(r#""y""#, r#""y","z""#), ""),
            ),
            "breaking output-widened /outputSchema/properties/b/enum",
        ),
        (
            answers(
                r#""result":{"structuredContent":{"a":1,"b":2}}"#,
                r#""result":{"structuredContent":{"a":1}}"#,
            ),
            "breaking member-gone /result/structuredContent/b",
        ),
        (
            answers(
                r#""result":{"structuredContent":{"a":1}}"#,
                r#""result":{"structuredContent":{"a":"1"}}"#,
            ),
            "breaking type-changed /result/structuredContent/a",
        ),
        (
            answers(
                r#""result":{}"#,
                r#""error":{"code":-32603,"message":"no"}"#,
            ),
            "breaking outcome-changed /error",
        ),
        (
            answers(
                r#""result":{"content":[]}"#,
                r#""result":{"content":[{"type":"text","text":"no"}],"isError":true}"#,
            ),
            "breaking is-error-changed /result/isError",
        ),
        (
            answers(
                r#""error":{"code":-32602,"message":"no"}"#,
                r#""error":{"code":-32603,"message":"oh"}"#,
            ),
            "breaking error-code-changed /error/code",
        ),
        (
            lines(compare_definitions(None, Some(&tool), &none)),
            "look item-added ",
        ),
        (
            inputs(&object(a, ""), &object(ab, "")),
            "look argument-added /inputSchema/properties/b",
        ),
        (
            inputs(
                &object(ab, ""),
                &object(&ab.replace(r#""y""#, r#""y","z""#), ""),
            ),
            "look input-widened /inputSchema/properties/b/enum",
        ),
        (
            outputs(&object(ab, ""), &object(&ab.replace(r#","y""#, ""), "")),
            "look output-narrowed /outputSchema/properties/b/enum",
        ),
        (
            definitions(
                r#"{"name":"t","description":"one"}"#,
                r#"{"name":"t","description":"two"}"#,
            ),
            "look description-changed /description",
        ),
        (
            definitions(
                r#"{"name":"t","annotations":{"readOnlyHint":true}}"#,
                r#"{"name":"t","annotations":{"readOnlyHint":false}}"#,
            ),
            "look annotations-changed /annotations/readOnlyHint",
        ),
        (
            definitions(
                r#"{"uri":"a:b","mimeType":"text/plain"}"#,
                r#"{"uri":"a:b","mimeType":"text/html"}"#,
            ),
            "look definition-changed /mimeType",
        ),
        (
            answers(
                r#""result":{"structuredContent":{}}"#,
                r#""result":{"structuredContent":{"b":2}}"#,
            ),
            "look member-added /result/structuredContent/b",
        ),
        (
            answers(
                r#""result":{"structuredContent":{"a":1}}"#,
                r#""result":{"structuredContent":{"a":2}}"#,
            ),
            "value value-changed /result/structuredContent/a",
        ),
        (
            answers(
                r#""result":{"structuredContent":{"a":[1,2]}}"#,
                r#""result":{"structuredContent":{"a":[2,1]}}"#,
            ),
            "value order-changed /result/structuredContent/a",
        ),
    ];
    let mut kinds = Vec::new();
    for (found, expected) in table {
        assert_eq!(found, [expected]);
        kinds.push(expected.split(' ').nth(1).unwrap());
    }
    let all: Vec<&str> = Change::ALL.iter().map(|change| change.name()).collect();
    assert_eq!(kinds, all);
    assert_eq!(all.len(), 20);
}

#[test]
fn kinds_are_the_table_in_the_docs() {
    let page = include_str!("../../../../docs/recordings.md");
    let (_, table) = page.split_once("### Kinds of differences").unwrap();
    let rows: Vec<_> = table
        .lines()
        .filter(|line| line.starts_with("| `"))
        .collect();
    let row = |change: &Change| {
        let (name, severity) = (change.name(), change.severity().as_str());
        format!("| `{name}` | {severity} | {} |", change.meaning())
    };
    assert_eq!(rows, Change::ALL.iter().map(row).collect::<Vec<_>>());
}

#[test]
fn schemas_that_mean_the_same_have_no_difference() {
    for (was, is) in [
        (
            r#"{"type":["string","null"]}"#,
            r#"{"anyOf":[{"type":"string"},{"type":"null"}]}"#,
        ),
        (
            r#"{"type":["string","null"]}"#,
            r#"{"type":"string","nullable":true}"#,
        ),
        (r#"{"type":"number"}"#, r#"{"type":["integer","number"]}"#),
        (
            r#"{"enum":["a","b"]}"#,
            r#"{"oneOf":[{"const":"b"},{"const":"a"}]}"#,
        ),
        (r#"{"const":"a"}"#, r#"{"type":"string","enum":["\u0061"]}"#),
        (r#"{"allOf":[{"type":"string"}]}"#, r#"{"type":"string"}"#),
        (r#"{}"#, r#"true"#),
        (
            r#"{"type":"array"}"#,
            r#"{"type":"array","items":{},"minItems":0,"uniqueItems":false}"#,
        ),
        (
            r#"{"type":"object"}"#,
            r#"{"type":"object","additionalProperties":true}"#,
        ),
        (
            r#"{"type":"integer","minimum":1}"#,
            r#"{"minimum":1.0,"type":"integer"}"#,
        ),
        (
            r#"{"type":"array","items":[{"type":"string"}],"additionalItems":false}"#,
            r#"{"type":"array","prefixItems":[{"type":"string"}],"items":false}"#,
        ),
    ] {
        assert!(
            property(was, is).is_empty(),
            "{was} {is}: {:?}",
            property(was, is)
        );
        assert!(
            property(is, was).is_empty(),
            "{is} {was}: {:?}",
            property(is, was)
        );
    }
    let inline = r#"{"type":"object","properties":{"m":{"type":"object","properties":{"a":{"enum":["x"]}}}}}"#;
    let referred = r##"{"$defs":{"M":{"type":"object","properties":{"a":{"enum":["x"]}}}},"type":"object","properties":{"m":{"$ref":"#/$defs/M"}}}"##;
    let renamed = referred.replace("/M\"", "/N\"").replace("\"M\"", "\"N\"");
    assert!(
        inputs(inline, referred).is_empty(),
        "{:?}",
        inputs(inline, referred)
    );
    assert!(inputs(referred, &renamed).is_empty());
}

#[test]
fn changes_of_nested_schemas_are_found() {
    let breaking = "breaking input-narrowed x";
    let look = "look input-widened x";
    // Each is found, and the other way round too.
    for (was, is, place) in [
        (
            r#"{"type":["string","null"]}"#,
            r#"{"type":"string"}"#,
            "/type",
        ),
        (r#"{"type":"number"}"#, r#"{"type":"integer"}"#, "/type"),
        (
            r#"{"anyOf":[{"type":"string"},{"type":"null"}]}"#,
            r#"{"anyOf":[{"type":"string"}]}"#,
            "",
        ),
        ("{}", r#"{"type":"string"}"#, "/type"),
        (
            r#"{"type":"string"}"#,
            r#"{"type":"string","enum":["a"]}"#,
            "/enum",
        ),
        (
            r#"{"type":"string"}"#,
            r#"{"type":"string","const":"a"}"#,
            "/const",
        ),
        (
            r#"{"type":"string"}"#,
            r#"{"type":"string","format":"uri"}"#,
            "/format",
        ),
        (
            r#"{"type":"string"}"#,
            r#"{"type":"string","pattern":"^a"}"#,
            "/pattern",
        ),
        (
            r#"{"type":"string"}"#,
            r#"{"type":"string","minLength":1}"#,
            "/minLength",
        ),
        (
            r#"{"type":"string","maxLength":9}"#,
            r#"{"type":"string","maxLength":8}"#,
            "/maxLength",
        ),
        (
            r#"{"type":"integer","minimum":1}"#,
            r#"{"type":"integer","minimum":2}"#,
            "/minimum",
        ),
        (
            r#"{"type":"integer"}"#,
            r#"{"type":"integer","maximum":100}"#,
            "/maximum",
        ),
        (
            r#"{"type":"number"}"#,
            r#"{"type":"number","exclusiveMinimum":0}"#,
            "/exclusiveMinimum",
        ),
        (
            r#"{"type":"array"}"#,
            r#"{"type":"array","uniqueItems":true}"#,
            "/uniqueItems",
        ),
        (
            r#"{"type":"array"}"#,
            r#"{"type":"array","maxItems":3}"#,
            "/maxItems",
        ),
        (
            r#"{"type":"array"}"#,
            r#"{"type":"array","items":{"type":"string"}}"#,
            "/items/type",
        ),
        (
            r#"{"type":"array","items":{"enum":["a","b"]}}"#,
            r#"{"type":"array","items":{"enum":["a"]}}"#,
            "/items/enum",
        ),
        (
            r#"{"type":"array","prefixItems":[{"type":["string","null"]}]}"#,
            r#"{"type":"array","prefixItems":[{"type":"string"}]}"#,
            "/prefixItems/0/type",
        ),
        (
            r#"{"type":"object"}"#,
            r#"{"type":"object","additionalProperties":false}"#,
            "/additionalProperties",
        ),
        (
            r#"{"type":"object","additionalProperties":{"type":["string","number"]}}"#,
            r#"{"type":"object","additionalProperties":{"type":"string"}}"#,
            "/additionalProperties/type",
        ),
        (
            r#"{"oneOf":[{"const":"a"},{"const":"b"}]}"#,
            r#"{"oneOf":[{"const":"a"}]}"#,
            "/oneOf/1/const",
        ),
        (
            r#"{"anyOf":[{"type":"string"},{"enum":[1,2]}]}"#,
            r#"{"anyOf":[{"type":"string"},{"enum":[1]}]}"#,
            "/anyOf/1/enum",
        ),
        (
            r#"{"oneOf":[{"type":"object","properties":{"k":{"const":"a"}}},{"type":"object","properties":{"k":{"const":"b"}}}]}"#,
            r#"{"oneOf":[{"type":"object","properties":{"k":{"const":"b"}}}]}"#,
            "/oneOf/0",
        ),
    ] {
        assert_eq!(
            property(was, is),
            [format!("{breaking}{place}")],
            "{was} {is}"
        );
        let back = property(is, was);
        assert_eq!(back.len(), 1, "{was} {is}: {back:?}");
        assert!(back[0].starts_with(look), "{was} {is}: {back:?}");
    }
    // Changes without an order break callers of the old, and readers of the new.
    let patterns = (r#"{"pattern":"^a"}"#, r#"{"pattern":"^b"}"#);
    assert_eq!(
        property(patterns.0, patterns.1),
        ["breaking input-narrowed x/pattern"]
    );
    assert_eq!(
        outputs(patterns.0, patterns.1),
        ["breaking output-widened /outputSchema/pattern"]
    );
}

#[test]
fn references_and_alternatives_are_followed() {
    let schema = |values: &str| {
        format!(
            r##"{{"$defs":{{"Node":{{"type":"object","properties":{{"mode":{{"enum":[{values}]}},"next":{{"anyOf":[{{"$ref":"#/$defs/Node"}},{{"type":"null"}}]}}}}}}}},"$ref":"#/$defs/Node"}}"##
        )
    };
    assert_eq!(
        inputs(&schema(r#""a","b""#), &schema(r#""a""#)),
        ["breaking input-narrowed /inputSchema/$defs/Node/properties/mode/enum"]
    );
    let union = |b: &str| {
        format!(
            r#"{{"oneOf":[{{"type":"object","properties":{{"k":{{"const":"a"}},"v":{{"type":"string"}}}}}},{{"type":"object","properties":{{"k":{{"const":"b"}},"v":{{"type":"{b}"}}}}}}]}}"#
        )
    };
    assert_eq!(
        inputs(&union("number"), &union("integer")),
        ["breaking input-narrowed /inputSchema/oneOf/1/properties/v/type"]
    );
}

#[test]
fn members_of_objects_break_in_both_directions() {
    let object = |properties: &str, required: &str| {
        format!(r#"{{"type":"object","properties":{{{properties}}},"required":[{required}]}}"#)
    };
    let (a, ab) = (r#""a":{}"#, r#""a":{},"b":{}"#);
    let (free, needed) = (object(ab, r#""a""#), object(ab, r#""a","b""#));
    assert_eq!(
        inputs(&free, &needed),
        ["breaking argument-required /inputSchema/properties/b"]
    );
    assert_eq!(
        inputs(&needed, &free),
        ["look input-widened /inputSchema/properties/b"]
    );
    assert_eq!(
        outputs(&free, &needed),
        ["look output-narrowed /outputSchema/properties/b"]
    );
    assert_eq!(
        outputs(&needed, &free),
        ["breaking output-widened /outputSchema/properties/b"]
    );
    let (one, two) = (object(a, ""), object(ab, ""));
    assert_eq!(
        outputs(&two, &one),
        ["breaking output-widened /outputSchema/properties/b"]
    );
    assert_eq!(
        outputs(&one, &two),
        ["look output-narrowed /outputSchema/properties/b"]
    );
    assert_eq!(
        outputs(r#"{"additionalProperties":false}"#, "{}"),
        ["look definition-changed /outputSchema/additionalProperties"]
    );
    assert_eq!(
        definitions(r#"{"outputSchema":{}}"#, "{}"),
        ["breaking output-widened /outputSchema"]
    );
    assert_eq!(
        definitions("{}", r#"{"outputSchema":{}}"#),
        ["look output-narrowed /outputSchema"]
    );
    assert_eq!(
        property(
            r#"{"description":"a","default":1}"#,
            r#"{"description":"b","default":2}"#
        ),
        [
            "look definition-changed x/default",
            "look description-changed x/description"
        ]
    );
}

#[test]
fn arguments_of_prompts_are_compared_by_name() {
    let prompt = |arguments: &str| format!(r#"{{"name":"p","arguments":[{arguments}]}}"#);
    let (a, b) = (r#"{"name":"a"}"#, r#"{"name":"b","required":true}"#);
    let both = |first: &str, second: &str| prompt(&format!("{first},{second}"));
    assert!(definitions(&both(a, b), &both(b, a)).is_empty());
    assert_eq!(
        definitions(&both(a, b), &prompt(b)),
        ["breaking argument-gone /arguments/0"]
    );
    assert_eq!(
        definitions(&prompt(a), &both(a, b)),
        ["breaking argument-required /arguments/1"]
    );
    assert_eq!(
        definitions(&prompt(b), &both(a, b)),
        ["look argument-added /arguments/0"]
    );
    let needed = r#"{"name":"a","required":true}"#;
    assert_eq!(
        definitions(&prompt(a), &prompt(needed)),
        ["breaking argument-required /arguments/0/required"]
    );
    assert_eq!(
        definitions(&prompt(needed), &prompt(a)),
        ["look input-widened /arguments/0/required"]
    );
    assert_eq!(
        definitions(&prompt(a), &prompt(r#"{"name":"a","description":"x"}"#)),
        ["look description-changed /arguments/0/description"]
    );
}

#[test]
fn openings_are_compared() {
    let of = |was: &str, is: &str| {
        lines(compare_openings(
            &json(was),
            &json(is),
            &Tolerance::default(),
        ))
    };
    let opening = |capabilities: &str, version: &str| {
        format!(
            r#"{{"protocolVersion":"2025-11-25","capabilities":{{{capabilities}}},"serverInfo":{{"name":"s","version":"{version}"}}}}"#
        )
    };
    let both = opening(r#""tools":{"listChanged":true},"prompts":{}"#, "1");
    assert!(
        of(
            &both,
            &opening(r#""prompts":{},"tools":{"listChanged":true}"#, "2")
        )
        .is_empty()
    );
    assert_eq!(
        of(&both, &opening(r#""tools":{"listChanged":false}"#, "1")),
        [
            "breaking item-gone /capabilities/tools/listChanged",
            "breaking item-gone /capabilities/prompts"
        ]
    );
    assert_eq!(
        of(&opening(r#""tools":{"listChanged":false}"#, "1"), &both),
        [
            "look item-added /capabilities/tools/listChanged",
            "look item-added /capabilities/prompts"
        ]
    );
    let modern = r#"{"supportedVersions":[],"capabilities":{},"_meta":{"io.modelcontextprotocol/serverInfo":{"name":"s"}}}"#;
    let legacy = opening("", "1");
    assert!(of(&legacy, modern).is_empty() && of(modern, &legacy).is_empty());
    let unnamed = r#"{"supportedVersions":["2025-11-25"],"capabilities":{}}"#;
    assert!(of(modern, unnamed).is_empty() && of(unnamed, modern).len() == 1);
    let tasks = modern.replace(
        "{},",
        r#"{"extensions":{"io.modelcontextprotocol/tasks":{}}},"#,
    );
    assert!(of(&opening(r#""tasks":{}"#, "1"), &tasks).is_empty());
    assert_eq!(
        of(modern, &tasks),
        ["look item-added /capabilities/extensions/io.modelcontextprotocol~1tasks"]
    );
    let renamed = modern.replace(r#""s""#, r#""t""#);
    assert_eq!(
        of(&legacy, &renamed),
        ["look description-changed /serverInfo/name"]
    );
    assert_eq!(
        of(modern, &renamed),
        ["look description-changed /_meta/io.modelcontextprotocol~1serverInfo/name"]
    );
    assert_eq!(
        of(
            r#"{"instructions":"a","supportedVersions":["x","y"]}"#,
            r#"{"supportedVersions":["y"]}"#
        ),
        [
            "look description-changed /instructions",
            "breaking item-gone /supportedVersions"
        ]
    );
}

#[test]
fn what_differs_each_time_is_no_difference() {
    let uuids = [
        "6f1c2f0e-3c7d-4a54-9d2b-0f6f5a1c9e77",
        "11111111-3c7d-4a54-9d2b-0f6f5a1c9e77",
    ];
    let result = |time: &str, id: &str, epoch: &str| {
        format!(
            r#""result":{{"content":[{{"type":"text","text":"{{\"id\":\"{id}\",\"at\":\"{time}\"}}"}},{{"type":"text","text":"at {time} for {id}"}}],"structuredContent":{{"at":"{time}","epoch":{epoch},"id":"{id}"}}}}"#
        )
    };
    let was = result("2026-11-29T10:00:00Z", uuids[0], "1764452376");
    let is = result("2026-12-01T11:12:13.5+01:00", uuids[1], "1764452999");
    assert!(answers(&was, &is).is_empty(), "{:?}", answers(&was, &is));
    // The type is compared all the same.
    assert_eq!(
        answers(&was, &was.replace("1764452376", "\"1764452376\"")),
        ["breaking type-changed /result/structuredContent/epoch"]
    );
}

#[test]
fn text_that_is_json_is_compared_as_json() {
    let text = |text: &str| {
        let text = Json::string(text);
        format!(
            r#""result":{{"content":[{{"type":"text","text":{}}}]}}"#,
            text.as_text()
        )
    };
    let was = text(r#"{"a":1,"b":[1,2]}"#);
    assert!(answers(&was, &text(r#"{ "b": [1, 2], "a": 1.0 }"#)).is_empty());
    assert_eq!(
        answers(&was, &text(r#"{"a":1}"#)),
        ["breaking member-gone /result/content/0/text/b"]
    );
    assert_eq!(
        answers(&was, &text("nothing")),
        ["breaking type-changed /result/content/0/text"]
    );
    assert_eq!(
        answers(&text("one"), &text("two")),
        ["value value-changed /result/content/0/text"]
    );
    assert_eq!(
        answers(&text("1"), &text("2")),
        ["value value-changed /result/content/0/text"]
    );
}

#[test]
fn items_belong_together_by_content() {
    let list = |items: &str| format!(r#""result":{{"structuredContent":{{"l":[{items}]}}}}"#);
    let l = "/result/structuredContent/l";
    assert_eq!(
        answers(&list("1,2,3"), &list("0,1,2,3")),
        [format!("value value-changed {l}")]
    );
    assert_eq!(
        answers(&list(r#"{"a":1},{"a":2}"#), &list(r#"{"a":2},{"a":1}"#)),
        [format!("value order-changed {l}")]
    );
    assert_eq!(
        answers(
            &list(r#"{"a":1,"b":1},{"a":2,"b":1},{"c":1}"#),
            &list(r#"{"c":2},{"a":3},{"a":4}"#)
        ),
        [
            format!("value value-changed {l}/0/a (and 1 more)"),
            format!("breaking member-gone {l}/0/b (and 1 more)"),
            format!("value value-changed {l}/2/c"),
        ]
    );
    let blocks = |blocks: &str| format!(r#""result":{{"content":[{blocks}]}}"#);
    assert_eq!(
        answers(
            &blocks(r#"{"type":"text","text":"a"}"#),
            &blocks(r#"{"type":"image","data":"","mimeType":"image/png"}"#)
        ),
        ["breaking type-changed /result/content/0/type"]
    );
}

#[test]
fn eras_and_versions_are_no_difference() {
    let legacy = r#""result":{"contents":[],"nextCursor":"a"}"#;
    let modern = r#""result":{"contents":[],"nextCursor":"b","resultType":"complete","ttlMs":0,"cacheScope":"public","_meta":{"io.modelcontextprotocol/serverInfo":{"name":"s","version":"2"}}}"#;
    assert!(
        answers(legacy, modern).is_empty(),
        "{:?}",
        answers(legacy, modern)
    );
    assert!(answers(modern, legacy).is_empty());
    assert_eq!(
        answers(modern, &modern.replace("complete", "task")),
        ["value value-changed /result/resultType"]
    );
}

#[test]
fn what_varied_before_is_tolerated() {
    let (one, two) = (
        r#""result":{"structuredContent":{"n":1,"set":["a","b"],"o":1,"x":1}}"#,
        r#""result":{"structuredContent":{"n":2,"set":["b","a"],"x":1}}"#,
    );
    let mut tolerance = Tolerance::default();
    tolerance.learn(compare_answers(&answer(one), &answer(two), &tolerance));
    let third = r#""result":{"structuredContent":{"n":"3","set":["b","a"],"o":1,"x":2}}"#;
    let found = |tolerance: &Tolerance, was: &str| {
        lines(compare_answers(&answer(was), &answer(third), tolerance))
    };
    let expected = [
        "breaking type-changed /result/structuredContent/n",
        "value value-changed /result/structuredContent/x",
    ];
    assert_eq!(found(&tolerance, one), expected);
    assert_eq!(found(&tolerance, two), expected);
    tolerance.exempt([
        "/result/structuredContent/n".to_owned(),
        "/result/*/x".to_owned(),
    ]);
    assert_eq!(found(&tolerance, one), expected[1..]);
    let mut exempt = Tolerance::default();
    exempt.exempt(["/result/structuredContent".to_owned()]);
    assert!(found(&exempt, one).is_empty());
}

#[test]
fn items_can_be_exempt_by_a_star() {
    let list = |n: u8| format!(r#""result":{{"structuredContent":[{{"n":{n}}},{{"n":{n}}}]}}"#);
    let mut exempt = Tolerance::default();
    exempt.exempt(["/result/structuredContent/*/n".to_owned()]);
    assert!(compare_answers(&answer(&list(1)), &answer(&list(2)), &exempt).is_empty());
}

/// The differences of two values at `/params`.
fn exactly(was: &str, is: &str, masked: &[&str]) -> Vec<String> {
    let masked = masked.iter().map(|place| (*place).to_owned()).collect();
    let (was, is) = (json(was), json(is));
    lines(compare_exactly("/params", Some(&was), Some(&is), &masked))
}

#[test]
fn exact_comparison_is_about_values_and_not_texts() {
    for (one, other) in [
        (
            r#"{"a":1,"b":[1,2]}"#,
            r#"{ "b" : [1, 2], "\u0061" : 1.0 }"#,
        ),
        (r#"["\u0041\n"]"#, r#"["A\u000a"]"#),
        ("[100, 0.5, -0, 1e2]", "[1e2, 5E-1, 0.0, 100.00]"),
        (
            "[123456789012345678901234567890]",
            "[123456789012345678901234567890.0]",
        ),
        (r#"["\ud800"]"#, r#"["\ud800"]"#),
    ] {
        assert!(exactly(one, other, &[]).is_empty(), "{one} {other}");
    }
    for (one, other) in [
        ("[9007199254740993]", "[9007199254740992]"),
        ("[1,2]", "[2,1]"),
        ("[1]", r#"["1"]"#),
        ("[null]", "[]"),
        (r#"{"a":null}"#, "{}"),
        ("[1]", "[-1]"),
        ("[1e999999999999]", "[1e999999999998]"),
        (r#"["\ud800"]"#, r#"["\ud801"]"#),
        (r#"["2026-01-01"]"#, r#"["2026-01-02"]"#),
        (r#"{"text":"{}"}"#, r#"{"text":"{ }"}"#),
    ] {
        assert!(!exactly(one, other, &[]).is_empty(), "{one} {other}");
    }
    assert_eq!(
        exactly(
            r#"{"a/b":[1,{"~":true},2],"c":1}"#,
            r#"{"a/b":[1,{"~":false},3,4]}"#,
            &[]
        ),
        [
            "value value-changed /params/a~1b/1/~0",
            "value value-changed /params/a~1b/2",
            "look member-added /params/a~1b/3",
            "breaking member-gone /params/c",
        ]
    );
    let many = format!("[{}0]", "0,".repeat(1000));
    assert_eq!(exactly(&many, "[]", &[]).len(), MOST);
}

#[test]
fn masked_place_matches_anything() {
    let recorded = r#"{"token":"[masked]","n":1}"#;
    for asked in [r#"{"token":{"a":1},"n":1}"#, r#"{"n":1}"#] {
        assert!(exactly(recorded, asked, &["/params/token"]).is_empty());
    }
    assert!(!exactly(recorded, r#"{"n":2}"#, &["/params/token"]).is_empty());
}

#[test]
fn digits_of_large_numbers_count() {
    let number = |digits: &str| format!(r#""result":{{"structuredContent":{digits}}}"#);
    let (one, other) = (
        number("0.1234567890123456789"),
        number("0.1234567890123456788"),
    );
    assert_eq!(
        answers(&one, &other),
        ["value value-changed /result/structuredContent"]
    );
    assert!(answers(&number("1e2"), &number("100.0")).is_empty());
}

#[test]
fn references_that_cross_take_bounded_time() {
    let schema = |count: usize| {
        let nodes: Vec<_> = (0..count)
            .map(|at| {
                let to =
                    |step: usize| format!(r##"{{"$ref":"#/$defs/{}"}}"##, (at * 7 + step) % count);
                format!(r#""{at}":{{"properties":{{"a":{},"b":{}}}}}"#, to(1), to(3))
            })
            .collect();
        format!(
            r##"{{"$defs":{{{}}},"$ref":"#/$defs/0"}}"##,
            nodes.join(",")
        )
    };
    inputs(&schema(499), &schema(503));
}

#[test]
fn very_many_differences_are_found_in_proportion_to_their_number() {
    let object = |first: usize| {
        let members: Vec<_> = (first..first + 50_000)
            .map(|at| format!(r#""k{at}":{at}"#))
            .collect();
        format!(r#""result":{{{}}}"#, members.join(","))
    };
    let items = |from: usize| {
        let all: Vec<_> = (from..from + 50_000).map(|at| at.to_string()).collect();
        format!(r#""result":{{"l":[{}]}}"#, all.join(","))
    };
    assert_eq!(answers(&object(0), &object(50_000)).len(), MOST);
    assert_eq!(answers(&items(0), &items(25_000)).len(), 1);
}

fn any_json() -> impl Strategy<Value = serde_json::Value> {
    use serde_json::{Value, json};
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i32>().prop_map(Value::from),
        "[a-z\u{e9}\"\\\\/~ ]{0,6}".prop_map(Value::from),
        Just(json!("type")),
    ];
    leaf.prop_recursive(4, 32, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::vec(("[a-e]|text|type|properties|anyOf|items", inner), 0..4)
                .prop_map(|members| members.into_iter().collect::<Value>()),
        ]
    })
}

/// The text of a value with its members in reverse order.
fn reversed(value: &serde_json::Value) -> String {
    use serde_json::Value;
    match value {
        Value::Object(members) => {
            let members = members.iter().rev();
            let all: Vec<_> = members
                .map(|(name, member)| format!("{} : {}", serde_json::json!(name), reversed(member)))
                .collect();
            format!("{{{}}}", all.join(", "))
        }
        Value::Array(items) => {
            let all: Vec<_> = items.iter().map(reversed).collect();
            format!("[{}]", all.join(" ,"))
        }
        other => other.to_string(),
    }
}

proptest! {
    #[test]
    fn equal_values_have_no_difference(value in any_json()) {
        let (text, other) = (value.to_string(), reversed(&value));
        let result = |text: &str| format!(r#""result":{{"v":{text}}}"#);
        assert!(answers(&result(&text), &result(&other)).is_empty());
        assert!(inputs(&text, &other).is_empty());
        assert!(outputs(&text, &other).is_empty());
        let whole = |text: &str| format!(r#"{{"name":"t","annotations":{text},"x":{text},"arguments":{text}}}"#);
        assert!(definitions(&whole(&text), &whole(&other)).is_empty());
        assert!(compare_openings(&json(text), &json(other), &Tolerance::default()).is_empty());
    }

    #[test]
    fn any_two_values_can_be_compared(was in any_json(), is in any_json()) {
        let (was, is) = (was.to_string(), is.to_string());
        let result = |text: &str| format!(r#""result":{{"v":{text}}}"#);
        answers(&result(&was), &result(&is));
        inputs(&was, &is);
        definitions(&was, &is);
    }
}
