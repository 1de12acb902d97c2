//! Clients' files as configurations.

use std::path::Path;

use fanlight_config::{Environment, Loaded, Problem, Transport, load_all_in, parse};

use crate::{brief, env};

/// A client's file, which must be good.
fn client(path: &str, text: &str) -> Loaded {
    parse(text, Path::new(path), &env).unwrap_or_else(|errors| panic!("{errors}"))
}

fn stdio(loaded: &Loaded) -> (&str, &[String], Vec<(&str, &str)>) {
    let Transport::Stdio {
        command, args, env, ..
    } = &loaded.config.servers[0].transport
    else {
        panic!("no command")
    };
    let env = env
        .iter()
        .map(|(name, value)| (name.as_str(), value.expose()))
        .collect();
    (command, args, env)
}

#[test]
fn settings_of_a_client_are_passed_over_silently() {
    let codex = client(
        "config.toml",
        "model = \"gpt-5\"\nlisten = 7\n[mcp_servers.a]\ncommand = \"x\"\nrequired = true\n",
    );
    assert_eq!(stdio(&codex).0, "x");
    let gemini =
        r#"{"theme": {"a": 1}, "auth": "x", "mcpServers": {"a": {"command": "x", "trust": true}}}"#;
    for loaded in [codex, client("/h/.gemini/settings.json", gemini)] {
        assert!(loaded.warnings.is_empty(), "{:?}", loaded.warnings);
    }
}

#[test]
fn unknown_keys_are_warnings_in_files_of_clients_and_errors_in_fanlights_own() {
    let text = r#"{"mcpServers": {"a": {"command": "x", "new": 1, "_comment": "x"}}, "//": "y"}"#;
    for name in ["mcp.json", "any.json", ".cursor/mcp.json", "crush.json"] {
        let found: Vec<_> = client(name, text).warnings.iter().map(brief).collect();
        assert_eq!(found, ["1:39 `new` has no effect here"], "{name}");
    }
    let with_options = text.replacen('{', r#"{"listen": "127.0.0.1:1", "#, 1);
    for (name, text) in [("fanlight.json", text), ("mcp.json", with_options.as_str())] {
        let errors = parse(text, Path::new(name), &env).unwrap_err();
        let found: Vec<_> = errors.problems().iter().map(Problem::message).collect();
        assert_eq!(found, ["unknown field `new`"], "{name}");
    }
    // Fanlight's own sections are exact everywhere: a mistyped rule would let more through.
    let mistyped = r#"{"mcpServers": {"a": {"command": "x", "tools": {"denny": ["t"]}}}}"#;
    assert!(parse(mistyped, Path::new(".cursor/mcp.json"), &env).is_err());
}

#[test]
fn number_is_in_the_unit_of_its_program() {
    let timeout = |path: &str, number: &str| {
        let text = format!(r#"{{"mcpServers": {{"a": {{"command": "x", "timeout": {number}}}}}}}"#);
        let loaded = client(path, &text);
        (
            loaded.config.servers[0].timeout.as_millis(),
            loaded.warnings.len(),
        )
    };
    assert_eq!(timeout(".claude.json", "60000"), (60_000, 0));
    assert_eq!(timeout("cline_mcp_settings.json", "1200"), (1_200_000, 0));
    assert_eq!(timeout("mcp.json", "60"), (60_000, 0));
    assert_eq!(timeout("mcp.json", "60000"), (60_000, 1));
}

#[test]
fn options_of_fanlight_may_be_added_to_a_client_file_of_servers() {
    let text = r#"{"ssePath": "/x", "other": 1, "mcpServers": {"a": {"command": "x", "prefix": "p_", "disabled": true}}}"#;
    let loaded = client("/h/.cursor/mcp.json", text);
    assert_eq!(
        (
            loaded.config.sse_path.as_deref(),
            loaded.config.servers[0].prefix.as_deref()
        ),
        (Some("/x"), Some("p_"))
    );
    assert!(!loaded.config.servers[0].enabled);
}

#[test]
fn problem_is_where_the_client_wrote_it() {
    let text = "model = \"gpt-5\"\n[mcp_servers.a]\nurl = \"ftp://h/\"\n[mcp_servers.b]\nx = 1\n";
    let errors = parse(text, Path::new("config.toml"), &env).unwrap_err();
    let found: Vec<_> = errors.problems().iter().map(brief).collect();
    assert_eq!(
        found,
        [
            "3:7 `url` is neither an http nor an https URL",
            "4:14 the server `b` has neither `command` nor `url`"
        ]
    );
}

#[test]
fn folders_are_filled_in_where_the_file_is_of_a_project() {
    let text = r#"{"mcpServers": {"a": {"command": "${workspaceFolder}/${workspaceFolderBasename}", "args": ["${env:N}"]}}}"#;
    let loaded = client("/projects/app/.cursor/mcp.json", text);
    assert_eq!(
        stdio(&loaded),
        ("/projects/app/app", ["7".to_owned()].as_slice(), vec![])
    );
    let own = parse(text, Path::new("/projects/mcp.json"), &env).unwrap_err();
    assert_eq!(own.problems().len(), 2, "{own}");
}

#[test]
fn inputs_are_taken_from_variables_then_from_the_user_then_by_default() {
    let text = r#"{"inputs": [{"id": "the-key", "description": "Key", "password": true}, {"id": "b", "default": "d"}],
        "servers": {"a": {"command": "x", "args": ["${input:the-key}", "${input:b}"]}}}"#;
    let folder = std::env::temp_dir().join(format!("fanlight-inputs-{}", std::process::id()));
    std::fs::create_dir_all(folder.join(".vscode")).unwrap();
    let path = folder.join(".vscode/mcp.json");
    std::fs::write(&path, text).unwrap();
    let load = |variable: &dyn Fn(&str) -> Option<String>, answer: Option<&str>| {
        let ask = |input: &fanlight_config::Input| {
            assert!(input.id != "the-key" || (input.is_secret && input.description == "Key"));
            answer.filter(|_| input.id == "the-key").map(str::to_owned)
        };
        load_all_in(
            std::slice::from_ref(&path),
            Environment {
                ask: &ask,
                ..Environment::from_variables(variable)
            },
        )
    };
    let set = load(
        &|name| (name == "INPUT_THE_KEY").then(|| "1".to_owned()),
        Some("2"),
    )
    .unwrap();
    assert_eq!(stdio(&set).1, ["1", "d"]);
    let asked = load(&|_| None, Some("2")).unwrap();
    assert_eq!(stdio(&asked).1, ["2", "d"]);
    let missing = load(&|_| None, None).unwrap_err();
    let found: Vec<_> = missing.problems().iter().map(brief).collect();
    assert_eq!(
        found,
        ["2:53 the environment variable `INPUT_THE_KEY` is not set"]
    );
    assert!(missing.without_missing_variables().is_none());
    std::fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn env_files_are_read_and_overridden() {
    let folder = std::env::temp_dir().join(format!("fanlight-envfile-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(folder.join("own.env"), "HOST=from-file\nONLY='it is'\n").unwrap();
    std::fs::write(folder.join("server.env"), "A=1\nB=2\n").unwrap();
    let path = folder.join("fanlight.yaml");
    let text = "envFile: own.env\nmcpServers:\n  a: {command: '${ONLY}', args: ['${HOST}'], envFile: server.env, env: {A: '3'}}\n";
    std::fs::write(&path, text).unwrap();
    let load = || fanlight_config::load_all(std::slice::from_ref(&path), &env);
    let loaded = load().unwrap();
    assert_eq!(
        stdio(&loaded),
        (
            "it is",
            ["example.com".to_owned()].as_slice(),
            vec![("A", "3"), ("B", "2")]
        )
    );
    let files: Vec<_> = loaded
        .files
        .iter()
        .map(|file| file.path.file_name().unwrap().to_str().unwrap())
        .collect();
    assert_eq!(
        files,
        ["fanlight.yaml", "own.env", "server.env"],
        "changes are noticed"
    );
    std::fs::write(folder.join("server.env"), "A=1\ns3cret\n").unwrap();
    let errors = load().unwrap_err().render(false);
    assert!(
        errors.contains("line 2 is no variable") && !errors.contains("s3cret"),
        "{errors}"
    );
    std::fs::remove_dir_all(&folder).unwrap();
}

#[cfg(unix)]
#[test]
fn files_that_are_pipes_or_have_no_end_are_refused() {
    let folder = std::env::temp_dir().join(format!("fanlight-pipes-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let pipe = folder.join("pipe");
    assert!(
        std::process::Command::new("mkfifo")
            .arg(&pipe)
            .status()
            .unwrap()
            .success()
    );
    let path = folder.join("fanlight.yaml");
    let server = |more: &str| format!("mcpServers:\n  a: {{command: x{more}}}\n");
    for file in [pipe.to_str().unwrap(), "/dev/zero", "/dev/null", "."] {
        for text in [
            format!("envFile: {file}\n{}", server("")),
            server(&format!(", envFile: {file}")),
            format!("auth: {{keys: {{file: {file}}}}}\n{}", server("")),
            format!("include: [{file}]\n{}", server("")),
        ] {
            if file == "." && text.starts_with("include") {
                continue;
            }
            std::fs::write(&path, &text).unwrap();
            let errors = fanlight_config::load_all(std::slice::from_ref(&path), &env)
                .unwrap_err()
                .render(false);
            // `include` only finds regular files.
            let expected = if text.starts_with("include") {
                "there is no such file"
            } else {
                "not a regular file"
            };
            assert!(errors.contains(expected), "{text}: {errors}");
        }
        assert!(file == "." || fanlight_config::fingerprint(&folder.join(file)).is_none());
    }
    std::fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn variables_of_fanlight_itself_are_not_inherited_by_servers() {
    let read = |inherit: &str, more: &str| {
        let text = format!("{more}mcpServers:\n  a: {{command: x, inheritEnv: {inherit}}}\n");
        parse(&text, Path::new("f.yaml"), &env)
    };
    for own in ["FANLIGHT_KEY", "FANLIGHT_*", "OTEL_EXPORTER_OTLP_HEADERS"] {
        let errors = read(&format!("[{own}]"), "").unwrap_err().render(false);
        assert!(
            errors.contains("is for Fanlight itself") && errors.contains(own),
            "{errors}"
        );
    }
    assert_eq!(
        read("true", "").unwrap().config.servers[0].inherit_env,
        ["*"]
    );
    assert!(
        read("false", "").unwrap().config.servers[0]
            .inherit_env
            .is_empty()
    );
    assert!(read("yes please", "").is_err());
    let config = read("[HOST]", "publicUrl: 'https://${HOST}'\n")
        .unwrap()
        .config;
    assert_eq!(config.own_variables, ["HOST"]);
}

#[test]
fn excerpts_show_settings_and_hide_secrets() {
    let shown = |path: &str, text: &str| {
        parse(text, Path::new(path), &env)
            .unwrap_err()
            .render(false)
    };
    let broken = shown(
        "config.toml",
        "model = \"gpt-5\n[mcp_servers.a]\ncommand = \"x\"\n",
    );
    assert!(broken.contains("model = \"gpt-5"), "{broken}");
    let unknown = shown("f.yaml", "modle: gpt-5\nmcpServers: {a: {command: x}}\n");
    assert!(unknown.contains("modle: gpt-5"), "{unknown}");
    let line = r#"{"model": "gpt-5", "apiKey": "swordfish", "profile": {"env": {"pet": "rex"}}, "theme": "sk-abcDEF123456", "mcpServers": {"a": {}}}"#;
    let gemini = shown("/h/.gemini/settings.json", line);
    for hidden in ["swordfish", "rex", "sk-abc"] {
        assert!(!gemini.contains(hidden), "{gemini}");
    }
    let start = shown(
        "/h/.gemini/settings.json",
        r#"{"model": "gpt-5", "apiKey": "swordfish", "mcpServers": {"a": {}}}"#,
    );
    assert!(
        start.contains(r#""model": "gpt-5""#) && !start.contains("swordfish"),
        "{start}"
    );
    let toml = shown("config.toml", "[mcp_servers.a.env]\npet = \"rex\n");
    assert!(!toml.contains("rex"), "{toml}");
}

/// Claude Desktop replaces nothing; `mcp-remote` and shells replace their own variables.
#[test]
fn arguments_may_name_the_variables_of_their_process() {
    let text = r#"{"mcpServers": {"a": {"command": "npx", "env": {"AUTH": "Bearer k"},
        "args": ["mcp-remote", "--header", "Authorization:${AUTH}"]}}}"#;
    let loaded = client("/h/claude_desktop_config.json", text);
    assert!(loaded.warnings.is_empty(), "{:?}", loaded.warnings);
    let (_, args, env) = stdio(&loaded);
    assert_eq!(args[2], "Authorization:${AUTH}");
    assert_eq!(env, [("AUTH", "Bearer k")]);
}
