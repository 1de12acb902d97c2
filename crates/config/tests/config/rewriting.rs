//! Names, definitions and arguments of tools that the configuration changes.

use fanlight_config::{Argument, Naming, NamingStyle, Secret};

use crate::{errors, good, parse_json, server};

#[test]
fn rewriting_is_read_as_json_text() {
    let text = server(
        r#"command: run
rename: {search: find, 1: one}
override:
  search: {title: Find, description: null, annotations: {z: 1.0, a: [true, 1e400x, "${HOST}"]}}
  other:
arguments:
  search:
    owner: {value: "${TOKEN}"}
    limit: {default: 10.0}
    page: {default: null}
    empty: {value: }
    debug: {hidden: true}
    deep: {value: {b: [1, {"a": "\"\u00e9"}], a: ~}}"#,
    );
    let server = good(&text).servers.remove(0);
    let pair = |a: &str, b: &str| (a.to_owned(), b.to_owned());
    assert_eq!(server.renames, [pair("search", "find"), pair("1", "one")]);
    let [(tool, over)] = server.overrides.as_slice() else {
        panic!("{:?}", server.overrides)
    };
    assert_eq!(
        (tool.as_str(), over.title.as_deref()),
        ("search", Some("\"Find\""))
    );
    assert_eq!(over.description.as_deref(), Some("null"));
    assert_eq!(
        over.annotations.as_deref(),
        Some(r#"{"z":1.0,"a":[true,"1e400x","example.com"]}"#)
    );
    let [(_, arguments)] = server.arguments.as_slice() else {
        panic!("{:?}", server.arguments)
    };
    let value = |text: &str| Argument::Value(Secret::new(text.to_owned()));
    let rules = [
        ("owner", value("\"s3cret-token\"")),
        ("limit", Argument::Default("10.0".to_owned())),
        ("page", Argument::Default("null".to_owned())),
        ("empty", value("null")),
        ("debug", Argument::Hidden),
        ("deep", value("{\"b\":[1,{\"a\":\"\\\"é\"}],\"a\":null}")),
    ];
    assert_eq!(
        *arguments,
        rules.map(|(name, rule)| (name.to_owned(), rule))
    );
}

#[test]
fn fixed_values_are_not_shown() {
    let shown = good(&server(
        "command: run\narguments: {t: {a: {value: abcdef}, b: {default: seen}}}",
    ))
    .masked_json();
    assert!(
        shown.contains("seen") && shown.contains("***") && !shown.contains("abcdef"),
        "{shown}"
    );
    assert!(
        !format!(
            "{:?}",
            good(&server(
                "command: run\narguments: {t: {a: {value: abcdef}}}"
            ))
        )
        .contains("abcdef")
    );
    let broken = server("command: run\narguments: {t: {a: {value: abcdef, default: seen}}}");
    let rendered = crate::parse_yaml(&broken).unwrap_err().render(false);
    assert!(!rendered.contains("abcdef"), "{rendered}");
}

#[test]
fn rewriting_that_cannot_be_meant_is_refused() {
    let text = server(
        r#"command: run
rename: {a: x, b: x, c: "", d: "p q", e: [1]}
override:
  a: {name: b, title: 7, annotations: []}
arguments:
  t:
    a: {}
    b: {value: 1, default: 2}
    c: {hidden: false}
    d: {value: 0x1F}
    e: {value: "${MISSING}"}
    "": {hidden: true}
  u: 7"#,
    );
    assert_eq!(
        errors(&text),
        [
            "4:20 `a` and `b` get the same name",
            "4:29 `` cannot be the name of a tool or prompt",
            "4:36 `p q` cannot be the name of a tool or prompt",
            "4:46 `e` must be a string, not a list",
            "6:11 unknown field `name`",
            "6:27 `title` must be string or null, not a number",
            "6:43 `annotations` must be object or null, not a list",
            "9:9 nothing is said of the argument `a`",
            "10:23 both `value` and `default` are given (first on line 10)",
            "11:9 nothing is said of the argument `c`",
            "12:20 `0x1F` is not a number in JSON",
            "13:21 the environment variable `MISSING` is not set",
            "14:9 this name is empty, or holds a control character",
            "15:10 `u` must be a mapping of names, not a number",
        ]
    );
}

#[test]
fn naming_is_off_unless_written() {
    let naming = |lines: &str| good(&crate::with_server(lines)).naming;
    let default = Naming {
        style: NamingStyle::Auto,
        separator: "__".to_owned(),
        max_length: None,
        safe: false,
        reserve: 15,
    };
    assert_eq!(naming(""), default);
    assert_eq!(default.safe_length(), None);
    let safe = naming("naming: {safe: true, reserve: 14}");
    assert_eq!(safe.safe_length(), Some(50));
    let written = naming("naming: {style: always, separator: \"-\", maxLength: 64}");
    assert_eq!(
        written,
        Naming {
            style: NamingStyle::Always,
            separator: "-".to_owned(),
            max_length: Some(64),
            ..default
        }
    );
    for (lines, error) in [
        (
            "naming: {style: never}",
            "1:17 `never` is not a value of `style`",
        ),
        (
            "naming: {safe: true, maxLength: 64}",
            "1:33 `maxLength` does not go with `safe`, which has its own length",
        ),
        (
            "naming: {separator: \"\"}",
            "1:21 `` cannot stand between the parts of a name",
        ),
        (
            "naming: {separator: \"a b\"}",
            "1:21 `a b` cannot stand between the parts of a name",
        ),
        (
            "naming: {maxLength: 8}",
            "1:21 `maxLength` is out of range: at least 16, at most 1024",
        ),
    ] {
        assert_eq!(errors(&crate::with_server(lines)), [error]);
    }
}

#[test]
fn json_files_keep_the_digits_of_numbers() {
    let text = r#"{"mcpServers":{"a":{"command":"x","arguments":{"t":{"n":{"value":1.50e2}}}}}}"#;
    let server = parse_json(text).unwrap().config.servers.remove(0);
    assert_eq!(
        server.arguments[0].1[0].1,
        Argument::Value(Secret::new("1.50e2".to_owned()))
    );
}
