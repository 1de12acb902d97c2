//! Each kind of problem, with its line and column, and several at once.

use std::path::Path;

use fanlight_config::{MAX_FILE_SIZE, load, parse};

use crate::{env, errors, parse_yaml, server, warnings, with_server};

fn help_of(text: &str) -> String {
    let errors = parse_yaml(text).unwrap_err();
    errors.problems()[0].help().unwrap().to_owned()
}

#[test]
fn all_problems_of_a_file_are_reported_at_once_in_its_order() {
    let text = "\
lissten: 127.0.0.1:8080
ssePath: mcp
limits:
  traces: 400000
  requestBody: 1 lot
timeouts: {call: 5 minutes}
mcpServers:
  one:
    command: run
    url: http://example.com
  two: {}
  three:
    url: ftp://example.com
    era: moderm
  '': {command: run}
  four:
    command: run
    env: {KEY: '${MISSING}'}
  four: {command: run}
admin: {listen: 8081}
";
    assert_eq!(
        errors(text),
        [
            "1:1 unknown field `lissten`",
            "2:10 `mcp` is not the path of an endpoint",
            "4:11 `traces` is out of range: at least 0, at most 100000",
            "5:16 `1 lot` is not a size",
            "6:18 `5 minutes` is not a duration",
            "10:5 both `command` and `url` are given (first on line 9)",
            "11:3 the server `two` has neither `command` nor `url`",
            "13:10 `url` is neither an http nor an https URL",
            "14:10 `moderm` is not a value of `era`",
            "15:3 the name of a server is empty",
            "18:17 the environment variable `MISSING` is not set",
            "19:3 duplicate key `four` (first on line 16)",
            "20:17 `listen` must be a string, not a number",
        ]
    );
}

#[test]
fn rendered_error_has_source_line_caret_and_help() {
    let text = "mcpServers:\n  gh:\n    comand: run\n    url: http://example.com/mcp\n";
    let rendered = parse_yaml(text).unwrap_err().render(false);
    let expected = "\
error: unknown field `comand`
 --> folder/f.yaml:3:5
  |
3 |     comand: run
  |     ^^^^^^
  = help: did you mean `command`?

folder/f.yaml: 1 error
";
    assert_eq!(rendered, expected);
    let coloured = parse_yaml(text).unwrap_err().render(true);
    assert!(coloured.contains("\x1b[1m\x1b[31merror\x1b[0m: unknown field"));
}

#[test]
fn unknown_field_has_a_hint_at_what_was_meant() {
    for (text, help) in [
        (
            with_server("allowed_origins: []"),
            "did you mean `allowedOrigins`?",
        ),
        (
            with_server("requestBody: 1MiB"),
            "`requestBody` belongs in `limits`",
        ),
        (with_server("prefix: x"), "`prefix` belongs in a server"),
        (
            with_server("gh: {command: run}"),
            "a server belongs under `mcpServers`",
        ),
        (
            server("command: run\ntools: {alow: []}"),
            "did you mean `allow`?",
        ),
        (
            server("command: run\nautoAprove: []"),
            "did you mean `autoApprove`?",
        ),
        (
            with_server("admin: {xyzzy: 1}"),
            "the fields known in `admin`: listen, tls, token, publicUrl, roles",
        ),
    ] {
        assert_eq!(help_of(&text), help, "{text}");
    }
}

#[test]
fn values_of_a_wrong_type_are_reported() {
    for (text, message) in [
        (
            with_server("listen: [1]"),
            "1:9 `listen` must be a string, not a list",
        ),
        (
            with_server("allowedHosts: x"),
            "1:15 `allowedHosts` must be a list of strings, not a string",
        ),
        (
            with_server("allowedHosts: [5]"),
            "1:16 an entry of `allowedHosts` must be a string, not a number",
        ),
        (
            with_server("limits: 5"),
            "1:9 `limits` must be a mapping, not a number",
        ),
        (
            with_server("limits: {sessions: [1]}"),
            "1:20 `sessions` must be a whole number, not a list",
        ),
        (
            with_server("timeouts: {call: true}"),
            "1:18 `call` must be a duration, not a boolean",
        ),
        (
            server("5"),
            "3:5 the server `a` must be a mapping, not a number",
        ),
        (
            server("command: 5"),
            "3:14 `command` must be a string, not a number",
        ),
        (
            server("command: run\nargs: x"),
            "4:11 `args` must be a list of strings, not a string",
        ),
        (
            server("command: run\nargs: [{}]"),
            "4:12 an entry of `args` must be a string, not a mapping",
        ),
        (
            server("command: run\nenv: [A=b]"),
            "4:10 `env` must be a mapping of names to strings, not a list",
        ),
        (
            server("command: run\nenv: {A: null}"),
            "4:14 `A` must be a string, not null",
        ),
        (
            server("command: run\nenabled: 'true'"),
            "4:14 `enabled` must be a boolean, not `true`",
        ),
        (
            server("command: run\nenabled: yes"),
            "4:14 `enabled` must be a boolean, not `yes`",
        ),
        (
            "mcpServers: []".to_owned(),
            "1:13 `mcpServers` must be a mapping of names to servers, not a list",
        ),
        (
            "- a".to_owned(),
            "1:1 the file must be a mapping, not a list",
        ),
    ] {
        assert_eq!(errors(&text), [message], "{text}");
    }
}

#[test]
fn values_out_of_range_are_reported() {
    for (text, message) in [
        (
            with_server("limits: {sessions: 0}"),
            "1:20 `sessions` is out of range: at least 1, at most 10000000",
        ),
        (
            with_server("limits: {requestBody: 2GiB}"),
            "1:23 `requestBody` is out of range: at least 1KiB, at most 1GiB",
        ),
        (
            with_server("limits: {sessions: -1}"),
            "1:20 `-1` is not a whole number",
        ),
        (
            with_server("limits: {sessions: 1.5}"),
            "1:20 `1.5` is not a whole number",
        ),
        (
            with_server("timeouts: {call: 0}"),
            "1:18 `call` is out of range: at least 1ms, at most 1d",
        ),
        (
            with_server("timeouts: {sessionIdle: 31d}"),
            "1:25 `sessionIdle` is out of range: at least 1ms, at most 30d",
        ),
        (
            server("command: run\ntimeout: 600000"),
            "4:14 `timeout` is out of range: at least 1ms, at most 1d",
        ),
        (
            server("command: run\nsession: shard"),
            "4:14 `shard` is not a value of `session`",
        ),
        (
            server("command: run\nconcurrency: 1000000"),
            "4:18 `concurrency` is out of range: at least 1, at most 100000",
        ),
    ] {
        assert_eq!(errors(&text), [message], "{text}");
    }
}

#[test]
fn malformed_addresses_origins_hosts_and_keys_are_reported() {
    for (text, message) in [
        (
            with_server("listen: ':80800'"),
            "1:9 `:80800` is not an address with a port",
        ),
        (
            with_server("listen: example.com:80"),
            "1:9 `example.com:80` is not an address with a port",
        ),
        (
            with_server("listen: localhost:99999"),
            "1:9 `localhost:99999` is not an address with a port",
        ),
        (
            with_server("listen: ''"),
            "1:9 `` is not an address with a port",
        ),
        (
            with_server("admin: {listen: 0.0.0.0:1}"),
            "1:8 the admin listener can be reached from other machines, and has no token",
        ),
        (
            with_server("admin: {listen: '[::]:1', token: null}"),
            "1:8 the admin listener can be reached from other machines, and has no token",
        ),
        (
            with_server("admin: {token: short}"),
            "1:16 this token is too easy to guess",
        ),
        (
            with_server("admin: {listen: 0.0.0.0:1, token: '${EMPTY}'}"),
            "1:35 this token is too easy to guess",
        ),
        (
            with_server("admin: {token: 'has spaces in it, so no'}"),
            "1:16 this token is too easy to guess",
        ),
        (
            with_server("admin: {listen: 127.0.0.1:8080}"),
            "1:8 `listen` and `admin.listen` are the same address",
        ),
        (
            with_server("ssePath: /a b"),
            "1:10 `/a b` is not the path of an endpoint",
        ),
        (
            with_server("ssePath: sse"),
            "1:10 `sse` is not the path of an endpoint",
        ),
        (
            with_server("ssePath: /mcp/"),
            "1:10 `ssePath` and the path of an endpoint overlap",
        ),
        (
            with_server("ssePath: /a\nendpoints: {/mcp: {}, /a/message: {}}"),
            "1:10 `ssePath` and the path of an endpoint overlap",
        ),
        (
            with_server("allowedOrigins: [example.com]"),
            "1:18 `example.com` is not an origin",
        ),
        (
            with_server("allowedOrigins: ['https://e.com/x']"),
            "1:18 `https://e.com/x` is not an origin",
        ),
        (
            with_server("allowedHosts: ['https://e.com']"),
            "1:16 `https://e.com` is not a host",
        ),
        (
            with_server("allowedHosts: ['e.com:']"),
            "1:16 `e.com:` is not a host",
        ),
        (
            with_server("listen: 'unix:'"),
            "1:9 `unix:` is not an address with a port",
        ),
        (
            with_server("tls: {cert: a}"),
            "1:6 `key` is missing in `tls`",
        ),
        (
            with_server("tls: {cert: a, key: ''}"),
            "1:21 this is not a path",
        ),
        (
            with_server("tls: {cert: a, key: b, clientAuth: optional}"),
            "1:6 `clientAuth` asks for certificates, and `clientCa` is missing in `tls`",
        ),
        (
            with_server("admin: {tls: {key: a}}"),
            "1:14 `cert` is missing in `tls`",
        ),
        (
            with_server("trustedProxies: [10.0.0.0/33]"),
            "1:18 `10.0.0.0/33` is not a network",
        ),
        (
            with_server("publicUrl: mcp.example.com"),
            "1:12 this is not the URL of a listener",
        ),
        (
            with_server("publicUrl: 'https://e.com/mcp?a=b'"),
            "1:12 this is not the URL of a listener",
        ),
        (
            with_server("publicUrl: 'https://ann:secret@e.com'"),
            "1:12 this is not the URL of a listener",
        ),
        (
            with_server("publicUrl: 'ws://e.com'"),
            "1:12 this is not the URL of a listener",
        ),
        (
            with_server("publicUrl: 'https://e.com/?a'"),
            "1:12 this is not the URL of a listener",
        ),
        (
            with_server("publicUrl: 'http://localhost:*'"),
            "1:12 this is not the URL of a listener",
        ),
        (
            with_server("keys: [short]"),
            "1:8 this is not a key of 32 bytes",
        ),
    ] {
        assert_eq!(errors(&text), [message], "{text}");
    }
}

#[test]
fn contradictory_transports_are_reported() {
    for (lines, message) in [
        ("type: stdio", "2:3 the server `a` has no `command`"),
        ("type: http", "2:3 the server `a` has no `url`"),
        (
            "type: stdio\nurl: http://e.com",
            "3:11 the type `stdio` does not fit `url`",
        ),
        (
            "type: sse\ncommand: run",
            "3:11 the type `sse` does not fit `command`",
        ),
        (
            "type: htpp\nurl: http://e.com",
            "3:11 `htpp` is not a value of `type`",
        ),
        (
            "url: http://e.com\nhttpUrl: http://e.com",
            "4:5 both `url` and `httpUrl` are given (first on line 3)",
        ),
        (
            "url: e.com",
            "3:10 `url` is not a URL: relative URL without a base",
        ),
        ("url: 'http://'", "3:10 `url` is not a URL: empty host"),
        (
            "command: ' '",
            "3:14 `command` is not the name of a program",
        ),
        ("command: run\ncwd: ''", "4:10 this is not a path"),
        (
            "command: run\nargs: [\"a\\0b\"]",
            "4:12 an argument cannot hold a null character",
        ),
        (
            "command: run\nenv: {'A=B': c}",
            "4:11 `A=B` is not the name of a variable",
        ),
        (
            "url: http://e.com\nheaders: {'a b': c}",
            "4:15 `a b` is not the name of a header",
        ),
        (
            "url: http://e.com\nheaders: {a: \"x\\ny\"}",
            "4:18 the value of `a` cannot be sent in a header",
        ),
        (
            "url: http://e.com\nheaders: {a: x, A: y}",
            "4:21 the header `A` is given twice",
        ),
        (
            "command: run\nenabled: true\ndisabled: false",
            "5:5 both `enabled` and `disabled` are given (first on line 4)",
        ),
        (
            "command: run\nprefix: 'a b'",
            "4:13 `a b` cannot start the name of a tool",
        ),
        (
            "command: run\ntools: {deny: ['']}",
            "4:20 this name of a tool is empty",
        ),
        (
            "command: run\nincludeTools: []\ntools: {allow: []}",
            "4:5 both `allow` and `includeTools` are given (first on line 5)",
        ),
    ] {
        assert_eq!(errors(&server(lines)), [message], "{lines}");
    }
}

#[test]
fn file_without_servers_is_reported() {
    assert_eq!(
        errors("ssePath: /x"),
        ["1:1 the file names no servers: `mcpServers` is missing"]
    );
    assert_eq!(
        errors("servers: {a: {command: run}}\nmcpServers: {b: {command: run}}"),
        ["1:1 both `mcpServers` and `servers` are given (first on line 2)"]
    );
    assert_eq!(warnings("mcpServers:\n"), ["1:1 no server is enabled"]);
    assert_eq!(
        warnings("mcpServers: {a: {command: run, enabled: false}}"),
        ["1:1 no server is enabled"]
    );
}

#[test]
fn settings_without_the_expected_effect_are_warned_of() {
    for (text, message) in [
        (
            server("command: run\nautoApprove: [x]"),
            "4:5 `autoApprove` has no effect here",
        ),
        (with_server("inputs: []"), "1:1 `inputs` has no effect here"),
        (
            server("command: npx -y thing"),
            "3:14 `command` is the name of one program, spaces included",
        ),
        (
            server("command: ~/run"),
            "3:14 `~` does not mean the home folder here",
        ),
        (
            server("command: run\nheaders: {a: b}"),
            "4:5 `headers` has no effect without `url`",
        ),
        (
            server("url: http://e.com\nargs: [x]"),
            "4:5 `args` has no effect without `command`",
        ),
        (
            server("url: http://e.com\nheaders: {Accept: x}"),
            "4:15 the header `Accept` has no effect here",
        ),
        (
            server("command: run\ntimeout: 30000"),
            "4:14 a plain number is seconds: this is a timeout of hours",
        ),
        (
            with_server("listen: 0.0.0.0:8080"),
            "1:9 this listens on every interface, but only requests to loopback names are answered",
        ),
        (
            "mcpServers: {My Server: {command: a}, b: {command: b}}".to_owned(),
            "1:14 tool names of this server start with characters that some clients refuse",
        ),
    ] {
        assert_eq!(warnings(&text), [message], "{text}");
    }
}

#[test]
fn errors_beyond_the_first_hundred_are_counted() {
    let text = (0..150).map(|n| format!("bad{n}: x\n")).collect::<String>();
    let errors = parse_yaml(&text).unwrap_err();
    assert_eq!(errors.problems().len(), 100);
    assert!(
        errors
            .render(false)
            .ends_with("folder/f.yaml: 151 errors, the first 100 shown\n")
    );
}

#[test]
fn text_behind_an_alias_is_reported_once() {
    let text = "\
mcpServers:
  a: {command: run, tools: &t {alow: []}}
  b: {command: run, tools: *t}
";
    assert_eq!(errors(text), ["2:32 unknown field `alow`"]);
}

#[test]
fn unreadable_files_are_reported() {
    let folder = tempfile();
    let missing = load(&folder.join("none.yaml"), &env).unwrap_err();
    assert!(
        missing.problems()[0]
            .message()
            .starts_with("cannot read the file: ")
    );
    assert_eq!(missing.problems()[0].position(), None);
    assert!(missing.render(false).contains("none.yaml: 1 error\n"));

    let path = folder.join("latin1.yaml");
    std::fs::write(&path, b"a: b\nc: \xe9\n").unwrap();
    let not_utf8 = load(&path, &env).unwrap_err();
    assert_eq!(
        not_utf8.problems()[0].message(),
        "the file is not UTF-8 text: see line 2"
    );

    let path = folder.join("large.yaml");
    std::fs::write(&path, vec![b'\n'; MAX_FILE_SIZE + 1]).unwrap();
    let large = load(&path, &env).unwrap_err();
    assert_eq!(
        large.problems()[0].message(),
        "the file is larger than 1MiB"
    );
    std::fs::remove_dir_all(folder).unwrap();
}

#[test]
fn file_of_the_largest_size_is_read() {
    let mut text = with_server("");
    text.push_str(&"#\n".repeat((MAX_FILE_SIZE - text.len()) / 2));
    assert!(parse(&text, Path::new("f.yaml"), &env).is_ok());
}

fn tempfile() -> std::path::PathBuf {
    let folder = std::env::temp_dir().join(format!("fanlight-config-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    folder
}
