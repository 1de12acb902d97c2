//! JSON and YAML: positions, malformed text, and files that expand or nest too much.

use fanlight_config::Transport;

use crate::{brief, errors, good, parse_json, parse_yaml, with_server};

fn json_errors(text: &str) -> Vec<String> {
    let errors = parse_json(text).unwrap_err();
    errors.problems().iter().map(brief).collect()
}

#[test]
fn positions_in_json_are_right_after_tabs_and_windows_line_ends() {
    let text =
        "{\r\n\t\"mcpServers\": {\r\n\t\t\"a\": {\"command\": \"run\", \"é\": 1}\r\n\t}\r\n}\r\n";
    assert_eq!(json_errors(text), ["3:27 unknown field `é`"]);
    assert_eq!(errors(text), json_errors(text), "JSON is YAML too");
    let rendered = parse_json(text).unwrap_err().render(false);
    let expected = "3 |         \"a\": {\"command\": \"run\", \"é\": 1}\n  |                                 ^^^\n";
    assert!(rendered.contains(expected), "{rendered}");
    assert!(!rendered.contains('\r'));
}

#[test]
fn positions_in_yaml_are_right_after_windows_line_ends_and_a_byte_order_mark() {
    let text = "\u{feff}ssePath: /x\r\nmcpServers:\r\n  a:\r\n    command: run\r\n    bad: 1\r\n";
    assert_eq!(errors(text), ["5:5 unknown field `bad`"]);
    assert_eq!(
        good(&text.replace("    bad: 1\r\n", ""))
            .sse_path
            .as_deref(),
        Some("/x")
    );
}

#[test]
fn json_escapes_reach_the_value() {
    let text = r#"{"mcpServers": {"a": {"command": "C:\\run\/\u00e9\ud83d\ude00\t"}}}"#;
    for loaded in [parse_json(text).unwrap(), parse_yaml(text).unwrap()] {
        let Transport::Stdio { command, .. } = &loaded.config.servers[0].transport else {
            panic!("not stdio");
        };
        assert_eq!(command, "C:\\run/é😀\t");
    }
}

#[test]
fn malformed_json_is_reported_at_its_position() {
    for (text, message) in [
        ("{\"a\": 1 \"b\": 2}", "1:8 malformed JSON: expected comma"),
        (
            "{\n  a: 1}",
            "2:3 malformed JSON: expected string for object property",
        ),
        (
            "{\"a\": [1, 2}",
            "1:12 malformed JSON: unexpected close brace",
        ),
        (
            "{\"a\": \"x\n}",
            "1:7 malformed JSON: unterminated string literal",
        ),
        (
            "{\"a\": 1} x",
            "1:10 malformed JSON: text cannot contain more than one JSON value",
        ),
        (
            "{\"a\": 'x'}",
            "1:7 malformed JSON: single-quoted strings are not allowed",
        ),
        ("{\"a\": 1", "1:1 malformed JSON: unterminated object"),
    ] {
        assert_eq!(json_errors(text), [message], "{text}");
    }
}

#[test]
fn malformed_yaml_is_reported_at_its_position() {
    for (text, start) in [
        ("a: b: c", "1:5 malformed YAML: "),
        ("a:\n\tb: c", "2:2 malformed YAML: "),
        ("a: [1, 2", "1:4 malformed YAML: "),
        ("a: 'x", "1:4 malformed YAML: "),
        ("a: *none", "1:4 malformed YAML: "),
        (
            "a: !thing x",
            "1:11 this YAML tag has no meaning in a config file",
        ),
        ("a: 1\n---\nb: 1", "2:1 a second YAML document starts here"),
        ("{a: 1}: b", "1:1 a mapping cannot be a key here"),
        ("a: &x [*x]", "1:8 this alias refers to itself"),
    ] {
        let errors = errors(text);
        assert_eq!(errors.len(), 1, "{text}: {errors:?}");
        assert!(errors[0].starts_with(start), "{text}: {errors:?}");
    }
}

#[test]
fn empty_file_is_reported() {
    for text in ["", "\n\n", "# nothing\n", "---\n", "null"] {
        assert_eq!(errors(text), ["1:1 the file is empty"], "{text:?}");
    }
    assert_eq!(json_errors("// nothing\n"), ["1:1 the file is empty"]);
}

#[test]
fn json_is_recognised_under_any_file_name() {
    let text = "{\"a\": 1 \"b\": 2}";
    let origin = std::path::Path::new("mcp.conf");
    let errors = fanlight_config::parse(text, origin, &crate::env).unwrap_err();
    assert_eq!(
        brief(&errors.problems()[0]),
        "1:8 malformed JSON: expected comma"
    );
}

#[test]
fn anchors_and_aliases_are_resolved() {
    let config = good(
        "
mcpServers:
  a: {command: run, tools: &some {allow: [x]}}
  b: {command: run, tools: *some}
",
    );
    assert_eq!(config.servers[0].tools, config.servers[1].tools);
}

#[test]
fn merge_keys_give_defaults() {
    let config = good(
        "
x-node: &node
  command: node
  env: {LOG: info, HOME: /srv}
x-slow: &slow {command: never, startTimeout: 3m, env: {LOG: no}}
mcpServers:
  a: {<<: *node, args: [a.js]}
  b:
    env: {<<: {LOG: debug, X: y}, LOG: warn}
    <<: [*node, *slow]
  c: {<<: *node, command: other}
",
    );
    let shown = |server: &fanlight_config::Server| match &server.transport {
        Transport::Stdio {
            command, args, env, ..
        } => format!("{command} {args:?} {:?}", env.len()),
        _ => panic!("not stdio"),
    };
    let servers: Vec<String> = config.servers.iter().map(shown).collect();
    assert_eq!(servers, [r#"node ["a.js"] 2"#, "node [] 2", "other [] 2"]);
    let timeouts: Vec<_> = config
        .servers
        .iter()
        .map(|server| server.start_timeout.map(|time| time.as_secs()))
        .collect();
    assert_eq!(timeouts, [None, Some(180), None]);
}

#[test]
fn invalid_merge_is_reported_at_its_position() {
    for (text, message) in [
        (
            "mcpServers: {a: {<<: 1}}",
            "1:22 a number cannot be merged into a mapping",
        ),
        (
            "mcpServers: {a: {<<: [{command: x}, y]}}",
            "1:37 a string cannot be merged into a mapping",
        ),
        (
            "mcpServers: {a: {<<: {}, <<: {}}}",
            "1:26 a mapping has the merge key `<<` twice",
        ),
        (
            "mcpServers: {a: &a {command: x, <<: *a}}",
            "1:37 this alias refers to itself",
        ),
        (
            "mcpServers: {a: {command: x, \"<<\": {cwd: /}}}",
            "1:30 unknown field `<<`",
        ),
        (
            "x-a: &a {bad: 1}\nmcpServers: {a: {<<: *a, command: x}}",
            "1:10 unknown field `bad`",
        ),
        (
            "mcpServers: {x-a: {command: x}, b: {x-c: 1, command: x}}",
            "1:37 unknown field `x-c`",
        ),
    ] {
        assert_eq!(errors(text), [message], "{text}");
    }
    // A merged key may repeat an own key; two own keys may not be equal.
    let found = errors("x-a: &a {cwd: /}\nmcpServers: {a: {<<: *a, command: x, cwd: /a, cwd: /b}}");
    assert_eq!(found, ["2:47 duplicate key `cwd` (first on line 2)"]);
}

#[test]
fn merge_keys_expand_within_a_bound() {
    let mut text = "x-0: &a0 {a: [x, x, x, x, x, x, x, x, x, x]}\n".to_owned();
    for level in 1..10 {
        let all: String = (0..10)
            .map(|n| format!("k{n}: {{<<: *a{}}}, ", level - 1))
            .collect();
        text.push_str(&format!("x-{level}: &a{level} {{{all}}}\n"));
    }
    let found = errors(&text);
    assert_eq!(found.len(), 1);
    assert!(
        found[0].ends_with("the anchors and aliases of this file expand to too much"),
        "{found:?}"
    );
    // One wide mapping is merged into many.
    let wide: String = (0..5000).map(|n| format!("k{n}: 1, ")).collect();
    let text = format!("x-a: &a {{{wide}}}\nx-b: [{}]\n", "{<<: *a}, ".repeat(5000));
    assert!(errors(&text)[0].ends_with("expand to too much"));
}

#[test]
fn aliases_expand_within_a_bound() {
    let mut values = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n".to_owned();
    for level in 1..10 {
        let items = vec![format!("*a{}", level - 1); 10].join(", ");
        values.push_str(&format!("a{level}: &a{level} [{items}]\n"));
    }
    let found = errors(&values);
    assert_eq!(found.len(), 1);
    assert!(
        found[0].ends_with("the anchors and aliases of this file expand to too much"),
        "{found:?}"
    );

    let mut text: String = (0..60)
        .map(|level| format!("{}a: &a{level}\n", " ".repeat(level)))
        .collect();
    text.push_str(&format!("{}[{}]\n", " ".repeat(61), "x, ".repeat(100_000)));
    let found = errors(&text);
    assert!(
        found[0].ends_with("the anchors and aliases of this file expand to too much"),
        "{found:?}"
    );

    let text = format!(
        "a: &a {}\nb: [{}]\n",
        "x".repeat(500_000),
        vec!["*a"; 50_000].join(", ")
    );
    let found = errors(&text);
    assert!(
        found[0].ends_with("the anchors and aliases of this file expand to too much"),
        "{found:?}"
    );
}

#[test]
fn nesting_is_bounded() {
    let deep = |open: &str, close: &str, levels: usize| {
        format!(
            "{{\"a\": {}1{}}}",
            open.repeat(levels),
            close.repeat(levels)
        )
    };
    for levels in [100, 1000, 100_000] {
        for text in [deep("[", "]", levels), deep("{\"a\": ", "}", levels)] {
            for result in [parse_json(&text), parse_yaml(&text)] {
                let errors = result.unwrap_err();
                let message = errors.problems()[0].message();
                assert!(
                    message.contains("deeper than 64 levels"),
                    "{levels}: {message}"
                );
            }
        }
    }
    let block: String = (0..100).map(|n| format!("{}a:\n", " ".repeat(n))).collect();
    assert!(errors(&block)[0].contains("deeper than 64 levels"));
    // A value that is deep but within the limit is an unknown field like any other.
    assert_eq!(
        errors(&with_server(&format!(
            "x: {}",
            "[".repeat(50) + &"]".repeat(50)
        )))
        .len(),
        1
    );
}
