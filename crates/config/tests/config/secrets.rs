//! No message shows a secret: neither a variable's value nor a literal secret in the file.

use crate::{parse_json, parse_yaml, server};

/// All shown text about the problems of a bad file.
fn problems(text: &str) -> String {
    let errors = match text.starts_with('{') {
        true => parse_json(text).unwrap_err(),
        false => parse_yaml(text).unwrap_err(),
    };
    format!("{}{errors}{errors:?}", errors.render(true))
}

#[test]
fn substituted_values_are_never_shown() {
    for lines in [
        "command: run\nprefix: 'a ${BAD}'",
        "command: run\ntimeout: '${BAD}'",
        "command: run\nenabled: '${BAD}'",
        "command: run\nconcurrency: '${BAD}'",
        "command: run\nera: '${BAD}'",
        "url: '${BAD}'",
        "url: 'ftp://${BAD}'",
        "url: http://e.com\nheaders: {A: \"${BAD}\\n\"}",
        "type: '${BAD}'\nurl: http://e.com",
    ] {
        let shown = problems(&server(lines));
        assert!(shown.contains("${BAD}"), "{shown}");
        assert!(!shown.contains("s3cret"), "{shown}");
    }
    for line in ["listen: '${BAD}'", "path: '${BAD}'", "keys: ['${BAD}']"] {
        let shown = problems(&format!("{line}\nmcpServers: {{a: {{command: run}}}}"));
        assert!(
            shown.contains("${BAD}") && !shown.contains("s3cret"),
            "{shown}"
        );
    }
}

#[test]
fn literal_secrets_beside_a_problem_are_hidden() {
    for server in [
        r#""command": "run", "env": {"KEY": "s3cret", "OTHER": "${MISSING}"}"#,
        r#""command": "run --key=s3cret", "bad": 1"#,
        r#""command": "run", "args": ["--key", "s3cret"], "bad": 1"#,
        r#""url": "https://u:s3cret@e.com/", "bad": 1"#,
        r#""url": "https://e.com/s3cret?s3cret", "bad": 1"#,
        r#""urls": ["https://u:s3cret@e.com/s3cret", {"url": "https://e.com/s3cret?s3cret"}], "bad": 1"#,
        r#""url": "http://e.com/", "headers": {"A": "s3cret ${X:-s3cret} ${MISSING}"}"#,
        r#""command": "run", "env": {"A": "$${s3cret} ${MISSING}"}"#,
        r#""command": "run", "enviroment": {"KEY": "s3cret"}"#,
        r#""command": "run", "bad": ["s3cret", {"x": "s3cret"}]"#,
        r#""command": "run", "oauth": {"secret": "s3cret"}, "bad": 1"#,
    ] {
        let text = format!("{{\"mcpServers\": {{\"a\": {{{server}}}}}}}");
        let shown = problems(&text);
        assert!(!shown.contains("s3cret"), "{shown}");
    }
    let top = problems(
        "{\"keys\": [\"s3cret\"], \"mcpServers\": {}, \"servres\": {\"a\": {\"env\": {\"K\": \"s3cret\"}}}}",
    );
    assert!(!top.contains("s3cret"), "{top}");
}

#[test]
fn report_says_that_something_is_hidden() {
    let rendered = |text: &str| parse_yaml(text).unwrap_err().render(false);
    let hidden = rendered("mcpServers: {a: {command: run, args: [1], nope: 2}}");
    assert!(
        hidden.contains("args: [*]")
            && hidden.ends_with("; in the lines above, * hides what may be a secret\n"),
        "{hidden}"
    );
    assert!(rendered("mcpServers: {a: {command: run, nope: 2}}").ends_with("f.yaml: 1 error\n"));
}

#[test]
fn long_line_is_cut_around_the_problem_and_shows_no_secret() {
    let servers: Vec<String> = (0..50)
        .map(|n| format!(r#""é{n}": {{"url": "http://e.com/x/s3cret", "bad{n}": 1}}"#))
        .collect();
    let text = format!(r#"{{"mcpServers": {{{}}}}}"#, servers.join(", "));
    let errors = parse_json(&text).unwrap_err();
    assert_eq!(errors.problems().len(), 50);
    for (n, problem) in errors.problems().iter().enumerate() {
        let line = problem.source_line().unwrap();
        assert!(
            line.chars().count() <= 122 && line.contains('…') && !line.contains("s3cret"),
            "{line}"
        );
        let rendered = problem.render(std::path::Path::new("f"), false);
        let mut lines = rendered.lines().skip(3);
        let (shown, carets) = (lines.next().unwrap(), lines.next().unwrap());
        let under: String = shown
            .chars()
            .zip(carets.chars())
            .filter(|(_, c)| *c == '^')
            .map(|(c, _)| c)
            .collect();
        assert_eq!(under, format!("\"bad{n}\""), "{rendered}");
    }
}

#[test]
fn hidden_text_keeps_the_caret_in_place_and_names_of_variables() {
    let text = "mcpServers:\n  a:\n    url: http://e.com/x\n    headers: {A: 'Bearer ${TOKEN} ${X:-abc}${MISSING}'}\n";
    let rendered = parse_yaml(text).unwrap_err().render(false);
    let expected = "
4 |     headers: {A: '****** ${TOKEN} ${X:-***}${MISSING}'}
  |                                            ^^^^^^^^^^
";
    assert!(rendered.contains(expected), "{rendered}");
}

#[test]
fn broken_file_shows_no_value() {
    for text in [
        "{\"mcpServers\": {\"a\": {\"env\": {\"KEY\": \"s3cret\" \"B\": 1}}}}",
        "{\"mcpServers\": {\"a\": {\"env\": {\"KEY: \"s3cret\", \"B\": 1}}}}",
        "{\"env\": {\"KEY\": \"s3cret}}",
        "{\"env\": {\"KEY\": s3cret}}",
        "mcpServers:\n  a:\n    env:\n      KEY: s3cret: x\n",
        "mcpServers:\n  a:\n    args:\n      - 's3cret",
        "mcpServers: {a: {env: {KEY: s3cret}}\n",
        "KEY: !x s3cret\n",
    ] {
        let shown = problems(text);
        assert!(!shown.contains("s3cret"), "{shown}");
        assert!(shown.contains('*'), "{shown}");
    }
}

#[test]
fn debug_form_of_a_config_shows_no_secret() {
    let text = "
keys: ['6161616161616161616161616161616161616161616161616161616161616161']
mcpServers:
  a: {command: run, args: [s3cret], env: {K: s3cret}}
  b: {url: 'https://s3cret@e.com/s3cret', headers: {K: '${TOKEN}'}}
";
    let shown = format!("{:?}", parse_yaml(text).unwrap());
    assert!(
        !shown.contains("s3cret") && !shown.contains("97, 97"),
        "{shown}"
    );
}

#[test]
fn shown_form_of_a_config_has_every_name_and_no_secret() {
    let text = "
admin: {listen: '0.0.0.0:8081', token: s3cret-s3cret-s3cret}
keys: ['6161616161616161616161616161616161616161616161616161616161616161']
mcpServers:
  a: {command: run, args: [s3cret], env: {K: s3cret}, tools: {deny: ['x*']}}
  b: {url: 'https://s3cret@e.com/s3cret?s3cret', headers: {K: '${TOKEN}'}, enabled: false}
  c: {urls: ['https://s3cret@e.com/s3cret?s3cret']}
";
    let shown = parse_yaml(text).unwrap().config.masked_json();
    assert!(
        !shown.contains("s3cret") && !shown.contains("6161"),
        "{shown}"
    );
    let shown: serde_json::Value = serde_json::from_str(&shown).unwrap();
    assert_eq!(shown["admin"]["token"], "***");
    assert_eq!(shown["keys"][0], "***");
    let (a, b) = (&shown["mcpServers"]["a"], &shown["mcpServers"]["b"]);
    assert_eq!(
        (&a["args"][0], &a["env"]["K"], &a["tools"]["deny"][0]),
        (&"***".into(), &"***".into(), &"x*".into())
    );
    assert_eq!(
        (&b["url"], &b["headers"]["k"]),
        (&"https://e.com/***".into(), &"***".into())
    );
    // Every option is shown by its name in the file.
    let schema: serde_json::Value = serde_json::from_str(&fanlight_config::schema()).unwrap();
    for (section, shown) in [
        ("limits", &shown["limits"]),
        ("timeouts", &shown["timeouts"]),
        ("admin", &shown["admin"]),
    ] {
        for name in schema["$defs"][section]["properties"]
            .as_object()
            .unwrap()
            .keys()
        {
            assert!(shown.get(name).is_some(), "{section}.{name}");
        }
    }
    let others = ["$schema", "servers"];
    for name in schema["properties"]
        .as_object()
        .unwrap()
        .keys()
        .filter(|name| !others.contains(&name.as_str()))
    {
        let is_of_clients = schema["properties"][name]["description"]
            .as_str()
            .unwrap()
            .contains("without effect");
        assert!(is_of_clients || shown.get(name).is_some(), "{name}");
    }
}

#[test]
fn token_in_a_bad_file_is_not_shown() {
    let shown =
        problems("admin: {listen: 127.0.0.1:1, token: s3cret, lissten: s3cret}\nmcpServers: {}\n");
    assert!(
        !shown.contains("s3cret") && shown.contains("127.0.0.1:1"),
        "{shown}"
    );
}

/// Files with a secret in every option that may hold one.
const WITH_SECRETS: &[&str] = &[
    r#"{"mcpServers": {"a": {"command": "run", "args": ["--key", "s3cret"], "env": {"K": "s3cret"}, "bad": 1}, "b": {"url": "http://e.com/x/s3cret", "headers": {"A": "B s3cret"}}}}"#,
    "mcpServers:\n  a:\n    command: run\n    args: [--key, s3cret]\n    env:\n      K: s3cret\n    bad: 1\n  b:\n    url: http://e.com/x/s3cret\n    headers:\n      A: B s3cret\n",
];

#[test]
fn file_with_any_one_character_missing_shows_no_secret() {
    for text in WITH_SECRETS {
        for (at, c) in text.char_indices() {
            let damaged = format!("{}{}", &text[..at], &text[at + c.len_utf8()..]);
            for parsed in [parse_json(&damaged), parse_yaml(&damaged)] {
                let shown = parsed.map_or_else(|errors| format!("{errors:?}"), |_| String::new());
                assert!(!shown.contains("s3cret"), "{damaged}\n{shown}");
            }
        }
    }
}
