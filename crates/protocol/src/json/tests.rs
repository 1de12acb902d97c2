//! Unit and property tests of slicing and splicing, compared with serde_json.

use bytes::Bytes;
use proptest::prelude::*;

use super::*;

fn json(text: &str) -> Json {
    Json::parse(Bytes::copy_from_slice(text.as_bytes()), DEFAULT_NESTING).unwrap()
}

fn error(text: &str) -> SyntaxErrorKind {
    Json::parse(Bytes::copy_from_slice(text.as_bytes()), DEFAULT_NESTING)
        .unwrap_err()
        .kind
}

#[test]
fn parse_keeps_the_text_and_drops_outer_white_space() {
    let value = json(" {\"a\" : 1.0 , \"b\":[1E400, -0]}\r\n");
    assert_eq!(value.as_text(), "{\"a\" : 1.0 , \"b\":[1E400, -0]}");
    assert_eq!(value.get("a").unwrap().as_text(), "1.0");
}

#[test]
fn parse_refuses_text_that_is_not_json() {
    use SyntaxErrorKind::*;
    for (text, kind) in [
        ("", End),
        ("{", End),
        ("[1,", End),
        ("[1,]", Unexpected),
        ("{\"a\":1,}", Unexpected),
        ("{a:1}", Unexpected),
        ("01", Trailing),
        ("1.", Number),
        ("-", Number),
        ("1e", Number),
        ("+1", Unexpected),
        ("NaN", Unexpected),
        ("tru", End),
        ("trux", Unexpected),
        ("\"\\x\"", Escape),
        ("\"\\u12g4\"", Escape),
        ("\"\n\"", Control),
        ("\"", End),
        ("1 2", Trailing),
        ("[1}", Unexpected),
    ] {
        assert_eq!(error(text), kind, "{text}");
    }
    assert_eq!(
        Json::parse(Bytes::from_static(b"\"\xff\""), 8)
            .unwrap_err()
            .kind,
        Utf8
    );
}

#[test]
fn validate_structure_checks_strings_and_brackets_only() {
    use SyntaxErrorKind::*;
    let structure = |text: &str| {
        Json::validate_structure(Bytes::copy_from_slice(text.as_bytes()), 3)
            .map_err(|error| error.kind)
    };
    for (text, kind) in [
        ("", End),
        ("{", End),
        ("{\"a\":[1,2}", Unexpected),
        ("[1]]", Trailing),
        ("[\"\\x\"]", Escape),
        ("[\"\n\"]", Control),
        ("[\x01]", Control),
        ("[\"]", End),
        ("[[[[]]]]", Depth),
        ("tru", End),
        ("[] 1", Trailing),
    ] {
        assert_eq!(structure(text), Err(kind), "{text}");
    }
    assert_eq!(
        Json::validate_structure(Bytes::from_static(b"[\"\xff\"]"), 8)
            .unwrap_err()
            .kind,
        Utf8
    );
    for text in [
        "{\"a\" {\"b\":1}}",
        "{\"a\"[1]}",
        "{\"a\":1 [2]}",
        "{\"a\":[1] [2],\"b\":1}",
        "{[\"a\":1]}",
    ] {
        let kept = rewrite_object(&structure(text).unwrap(), |_| true, b"\"z\":1");
        assert!(structure(kept.as_text()).is_ok(), "{text} became {kept}");
    }
    assert_eq!(
        structure(" [ \"]\\\"]\" ,, nul ]\n").unwrap().as_text(),
        "[ \"]\\\"]\" ,, nul ]",
        "the rest is left"
    );
}

#[test]
fn nesting_limit_is_exact() {
    let deep = |levels: usize| format!("{}{}", "[".repeat(levels), "]".repeat(levels));
    assert!(Json::parse(deep(8).into(), 8).is_ok());
    assert_eq!(
        Json::parse(deep(9).into(), 8).unwrap_err().kind,
        SyntaxErrorKind::Depth
    );
    assert!(Json::parse(deep(MAX_NESTING).into(), MAX_NESTING).is_ok());
    assert_eq!(
        Json::parse(deep(100_000).into(), usize::MAX)
            .unwrap_err()
            .kind,
        SyntaxErrorKind::Depth
    );
}

#[test]
fn member_is_found_by_its_decoded_name() {
    let value = json(r#"{"_m\u0065ta":{"x":1},"\ud800":2,"":3}"#);
    assert_eq!(value.get("_meta").unwrap().as_text(), r#"{"x":1}"#);
    assert_eq!(value.get("").unwrap().as_text(), "3");
    assert!(value.get("x").is_none());
}

#[test]
fn find_refuses_duplicates_of_its_keys_only() {
    let value = json(r#"{"a":1,"b":2,"\u0061":3}"#);
    assert_eq!(value.find(["a"]).unwrap_err().key, "a");
    assert_eq!(value.find(["b", "c"]).unwrap(), [Some(11..12), None]);
}

#[test]
fn strings_decode() {
    assert_eq!(
        json(r#""a\n\u00e9\ud83d\ude00\/""#).as_str().unwrap(),
        "a\né😀/"
    );
    assert!(json(r#""\ud800""#).as_str().is_none());
    assert!(json("7").as_str().is_none());
    assert_eq!(
        Json::string("\"\u{1}\t\\").as_text(),
        "\"\\\"\\u0001\\t\\\\\""
    );
}

#[test]
fn is_str_compares_decoded_text() {
    for (text, said) in [
        (r#""plain""#, "plain"),
        (r#""pl\u0061in""#, "plain"),
        (r#""a\\u0062""#, r"a\u0062"),
        (r#""""#, ""),
    ] {
        assert!(json(text).is_str(said), "{text}");
    }
    for (text, not_said) in [
        (r#""plain""#, "plan"),
        (r#""\u0061""#, r"\u0061"),
        ("7", "7"),
        (r#""\ud800""#, ""),
        ("null", "null"),
    ] {
        assert!(!json(text).is_str(not_said), "{text}");
    }
}

#[test]
fn rewrite_object_keeps_the_bytes_of_kept_members() {
    let object = json("{ \"a\": 1.0,\n \"b\":2 , \"c\":3 }");
    let without = |name: &'static str| {
        rewrite_object(&object, |m| !m.is(&object, name), b"\"z\":9")
            .as_text()
            .to_owned()
    };
    assert_eq!(without("a"), "{\n \"b\":2, \"c\":3,\"z\":9}");
    assert_eq!(without("c"), "{ \"a\": 1.0,\n \"b\":2,\"z\":9}");
    assert_eq!(rewrite_object(&object, |_| false, b"").as_text(), "{}");
}

#[test]
fn retain_elements_keeps_the_bytes_of_kept_elements() {
    let only = |text: &str, kept: &[usize]| {
        retain_elements(&json(text), |index| kept.contains(&index))
            .as_text()
            .to_owned()
    };
    assert_eq!(only("[ 1,\n 2.0 , 3 ]", &[0, 2]), "[ 1 , 3 ]");
    assert_eq!(only("[ 1,\n 2.0 , 3 ]", &[1]), "[ 2.0 ]");
    assert_eq!(only("[ 1,\n 2.0 , 3 ]", &[]), "[  ]");
    assert_eq!(only("[1]", &[0]), "[1]");
    assert_eq!(only("[ ]", &[]), "[ ]");
}

#[test]
fn edits_are_spliced() {
    let object = json(r#"{"id":1,"r":{ }}"#);
    let mut edits = Edits::new(object.bytes().clone());
    edits.replace(6..7, "\"x\"");
    edits.insert_members(12, b"\"k\":true");
    assert_eq!(
        edits.finish_json().as_text(),
        r#"{"id":"x","r":{"k":true }}"#
    );
}

/// JSON text with hostile spellings. serde_json decides whether it is valid.
fn any_text() -> impl Strategy<Value = String> {
    let leaf = prop_oneof![
        Just("null".to_owned()),
        Just("true".to_owned()),
        "-?(0|[1-9][0-9]{0,30})(\\.[0-9]{1,5})?([eE][+-]?[0-9]{1,3})?",
        "\"([a-z \\u{e9}\\u{1f600}]|\\\\[nrt\\\\/\"bf]|\\\\u00[0-9a-f]{2}){0,8}\"",
    ];
    leaf.prop_recursive(5, 40, 5, |inner| {
        let space = "[ \\t\\r\\n]{0,2}";
        prop_oneof![
            proptest::collection::vec((space, inner.clone()), 0..5).prop_map(|items| format!(
                "[{}]",
                items
                    .iter()
                    .map(|(s, i)| format!("{s}{i}{s}"))
                    .collect::<Vec<_>>()
                    .join(",")
            )),
            proptest::collection::vec(
                (
                    "[a-z_]{0,4}|[a-z]{14,70}|[a-z]{0,2}\\\\u006[1-3]",
                    space,
                    inner
                ),
                0..5
            )
            .prop_map(|items| {
                format!(
                    "{{{}}}",
                    items
                        .iter()
                        .map(|(k, s, v)| format!("{s}\"{k}\"{s}:{s}{v}{s}"))
                        .collect::<Vec<_>>()
                        .join(",")
                )
            }),
        ]
    })
}

/// All ranges found by walking `value` and everything in it.
fn ranges(value: &Json, base: usize, found: &mut Vec<Range<usize>>) {
    let members = value
        .members()
        .flat_map(|member| [member.key, member.value]);
    for place in members.chain(value.elements()) {
        found.push(base + place.start..base + place.end);
        ranges(&value.slice(place.clone()), base + place.start, found);
    }
}

/// The results of looking up each member name that occurs in `value`, and one that does not.
fn lookups(value: &Json) -> Vec<Option<Range<usize>>> {
    let mut found = Vec::new();
    for member in value.members() {
        let Some(name) = member.name(value) else {
            continue;
        };
        found.push(value.peek(&name).map(|part| {
            let start = part.0.as_ptr() as usize - value.bytes().as_ptr() as usize;
            start..start + part.0.len()
        }));
        found.extend(value.find([&name, "?"]).unwrap_or_default());
        found.extend(lookups(&value.slice(member.value)));
    }
    found.extend(
        value
            .elements()
            .flat_map(|element| lookups(&value.slice(element))),
    );
    found
}

#[test]
fn long_text_has_equal_ranges_with_and_without_index() {
    let long = |number: usize| {
        format!(
            r#"{{"t":"{}","n":[{number}, [], {{}}]}}"#,
            "x\\\"".repeat(number)
        )
    };
    for count in [0, 1, 5, 100, 300] {
        let list = (0..count)
            .map(|number| long(7 * number))
            .collect::<Vec<_>>()
            .join(" , ");
        let text = format!(
            " {{\"a\" : [ {list} ], \"b\":[[[[[[[[[[{}]]]]]]]]]], \"c\":1}} ",
            long(count)
        );
        let indexed = json(&text);
        let (mut with, mut without) = (Vec::new(), Vec::new());
        ranges(&indexed, 0, &mut with);
        ranges(
            &Json::from_trusted(indexed.bytes().clone()),
            0,
            &mut without,
        );
        assert_eq!(with, without, "{count}");
        assert_eq!(indexed.detached().get("c").unwrap().as_text(), "1");
    }
}

#[test]
fn members_beyond_the_index_are_found() {
    for count in [0, 1, 19, 20, 21, 63, 64, 65, 200] {
        let members: Vec<_> = (0..count)
            .map(|number| format!(r#""k{number}":{{"x":{number}}}"#))
            .collect();
        let text = format!(
            r#"{{"a":{{{}}},"\u0062":{{"c":{{"d":{{"e":1}}}}}},"last":"l"}}"#,
            members.join(",")
        );
        let value = json(&text);
        assert_eq!(value.peek("last").unwrap().as_str().unwrap(), "l");
        assert_eq!(value.peek("b").map(Value::kind), Some(Kind::Object));
        let [a, b, missing] = value.find(["a", "b", "c"]).unwrap();
        assert_eq!(missing, None);
        let e = value
            .slice(b.unwrap())
            .get("c")
            .unwrap()
            .get("d")
            .unwrap()
            .get("e")
            .unwrap();
        assert_eq!(e.as_text(), "1");
        for number in 0..count {
            let key = format!("k{number}");
            let found = value.slice(a.clone().unwrap()).get(&key).unwrap();
            assert_eq!(found.get("x").unwrap().as_i64(), Some(number));
            assert_eq!(
                value.peek_in(a.clone().unwrap(), &key).map(Value::kind),
                Some(Kind::Object)
            );
        }
        assert_eq!(value.peek_in(a.unwrap(), "last").map(Value::kind), None);
    }
    assert_eq!(
        json(r#"{"a":1,"\u0061":2}"#).find(["a"]).unwrap_err().key,
        "a"
    );
    assert_eq!(
        json(r#"{"\u0061":1,"a":2}"#).find(["a"]).unwrap_err().key,
        "a"
    );
}

#[test]
fn string_end_is_found_at_any_offset() {
    for length in 0..200 {
        for (special, ok) in [
            ("", true),
            ("\\n", true),
            ("\\u00e9", true),
            ("\\\\\\\"", true),
            ("\t", false),
            ("\\x", false),
        ] {
            for rest in [0, 1, 15, 40] {
                let text = format!(
                    "\"{}{special}{}\"",
                    "é".repeat(length / 2),
                    "y".repeat(rest)
                );
                assert_eq!(
                    Json::parse(Bytes::from(text.clone()), 1).is_ok(),
                    ok,
                    "{text}"
                );
                let cut = text.len() - 1;
                assert!(
                    Json::parse(Bytes::copy_from_slice(&text.as_bytes()[..cut]), 1).is_err(),
                    "{text}"
                );
                assert!(
                    Json::parse(Bytes::from(format!("{text}x")), 1).is_err(),
                    "{text}"
                );
            }
        }
    }
}

proptest! {
    #[test]
    fn long_strings_are_accepted_like_by_serde_json(text in "[ -~\\x1f\\n]{0,150}(\\\\[\\\\\"nu/x]|0041|\"|[a-z]{1,30}){0,12}") {
        let text = format!("\"{text}\"");
        let theirs = serde_json::from_str::<&serde_json::value::RawValue>(&text).is_ok();
        prop_assert_eq!(Json::parse(Bytes::from(text), 1).is_ok(), theirs);
    }

    #[test]
    fn json_is_accepted_like_by_serde_json(text in any_text()) {
        let value = Json::parse(Bytes::from(text.clone()), DEFAULT_NESTING).unwrap();
        prop_assert_eq!(value.as_text(), text.trim_matches([' ', '\t', '\r', '\n']));
    }

    #[test]
    fn damaged_text_is_refused_like_by_serde_json(text in any_text(), at in any::<prop::sample::Index>(), byte in any::<u8>()) {
        let mut bytes = text.into_bytes();
        let index = at.index(bytes.len());
        bytes[index] = byte;
        let ours = Json::parse(Bytes::from(bytes.clone()), DEFAULT_NESTING).is_ok();
        let theirs = std::str::from_utf8(&bytes).is_ok() && serde_json::from_slice::<&serde_json::value::RawValue>(&bytes).is_ok();
        prop_assert_eq!(ours, theirs);
    }

    #[test]
    fn members_cover_the_object(text in any_text()) {
        let value = Json::parse(Bytes::from(text), DEFAULT_NESTING).unwrap();
        let kept = rewrite_object(&value, |_| true, b"");
        if value.is_object() {
            let count = value.members().count();
            prop_assert_eq!(kept.members().count(), count);
            for (before, after) in value.members().zip(kept.members()) {
                prop_assert_eq!(value.slice(before.value), kept.slice(after.value));
            }
        }
        for element in value.items() {
            prop_assert!(Json::parse(element.bytes().clone(), DEFAULT_NESTING).is_ok());
        }
    }

    #[test]
    fn valid_json_has_equal_ranges_after_structure_validation(text in any_text()) {
        let text = Bytes::from(format!("{{\"a\":[{text}],\"b\":{{\"c\":{text}}},\"long\":[{:600}]}}", 1));
        let (whole, structure) = (Json::parse(text.clone(), 16).unwrap(), Json::validate_structure(text, 16).unwrap());
        let (mut in_whole, mut in_structure) = (Vec::new(), Vec::new());
        ranges(&whole, 0, &mut in_whole);
        ranges(&structure, 0, &mut in_structure);
        prop_assert_eq!(in_whole, in_structure);
    }

    #[test]
    fn replaced_value_leaves_the_rest_of_the_index(
        (text, other) in (any_text(), any_text()), at in any::<prop::sample::Index>(), long in 0..1500_usize
    ) {
        let text = format!(" [{{\"a\":{text},\"b\":[{{\"c\":{text}}}],\"long\":\"{:long$}\",\"z\":{{}}}}]", 1);
        let value = json(&text).slice(1..text.len() - 2);
        let mut found = Vec::new();
        ranges(&value, 0, &mut found);
        let range = found[at.index(found.len())].clone();
        let replaced = value.with_indexed(range, &json(&other));
        let (mut with, mut without) = (Vec::new(), Vec::new());
        let unindexed = Json::from_trusted(replaced.bytes().clone());
        ranges(&replaced, 0, &mut with);
        ranges(&unindexed, 0, &mut without);
        prop_assert_eq!(with, without);
        prop_assert_eq!(lookups(&replaced), lookups(&unindexed));
    }

    #[test]
    fn lookups_do_not_depend_on_the_index(text in any_text(), lead in "[ \n]{0,2}") {
        let both = format!("[{text},{lead}{{\"c\":{text}}}]");
        let twice = format!("{lead}{{\"a\":{lead}{text},\"b\":{both},\"a\":{{\"b\":{{\"c\":1}}}}}}");
        let indexed = Json::parse(Bytes::from(twice), 32).unwrap();
        let structure = Json::validate_structure(indexed.bytes().clone(), 32).unwrap();
        let unindexed = lookups(&Json::from_trusted(indexed.bytes().clone()));
        prop_assert_eq!(&lookups(&indexed), &unindexed);
        prop_assert_eq!(lookups(&structure), unindexed);
    }

    #[test]
    fn damaged_text_with_valid_structure_can_be_read_and_edited(
        text in any_text(), at in any::<prop::sample::Index>(), byte in any::<u8>()
    ) {
        let mut bytes = format!("{{\"a\":{text}}}").into_bytes();
        let index = at.index(bytes.len());
        bytes[index] = byte;
        if let Ok(value) = Json::validate_structure(Bytes::from(bytes), DEFAULT_NESTING) {
            ranges(&value, 0, &mut Vec::new());
            prop_assert_eq!(lookups(&value), lookups(&Json::from_trusted(value.bytes().clone())));
            let kept = rewrite_object(&value, |_| true, b"\"b\":1");
            prop_assert!(Json::validate_structure(kept.into_bytes(), DEFAULT_NESTING).is_ok());
        }
    }

    #[test]
    fn parse_never_panics(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        if let Ok(value) = Json::parse(Bytes::from(bytes), 16) {
            let _ = value.members().count() + value.elements().count();
            let _ = value.as_str();
        }
    }

    #[test]
    fn quoted_string_decodes_to_itself(text in any::<String>()) {
        let quoted = Json::string(&text);
        let decoded = quoted.as_str().unwrap();
        prop_assert_eq!(decoded.as_ref(), text.as_str());
        prop_assert_eq!(serde_json::from_str::<String>(quoted.as_text()).unwrap(), text);
    }
}

#[test]
fn replaced_value_leaves_every_other_byte() {
    let object = Json::literal(r#"{ "a" : "x" , "b":1.0}"#);
    let [at] = object.find(["a"]).unwrap();
    assert_eq!(
        object.with(at.unwrap(), &Json::literal("[2]")).as_text(),
        r#"{ "a" : [2] , "b":1.0}"#
    );
    #[allow(clippy::reversed_empty_ranges)]
    let misplaced = [100..101, 3..2];
    for range in misplaced {
        assert_eq!(object.with(range.clone(), &Json::null()), object);
        assert_eq!(object.with_indexed(range, &Json::null()), object);
    }
}

#[test]
fn capabilities_unite() {
    let union = union(
        &Json::literal(r#"{"tools":{"listChanged":false},"x":{"n":1.0}}"#),
        &Json::literal(r#"{"tools":{"listChanged":true,"new":null},"prompts":{},"x":{"n":2}}"#),
    );
    assert_eq!(
        union.as_text(),
        r#"{"tools":{"listChanged":true,"new":null},"x":{"n":1.0},"prompts":{}}"#
    );
}
