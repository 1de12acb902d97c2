//! Good files: values, variables, defaults, order.

use std::path::Path;
use std::time::Duration;

use fanlight_config::{EraChoice, ListenAddress, SessionPolicy, Transport};

use crate::{errors, good, parse_json, parse_yaml, server, with_server};

#[test]
fn servers_keep_the_order_of_the_file() {
    let names: Vec<String> = (0..50).map(|n| format!("s{}", (n * 37) % 50)).collect();
    let servers: Vec<String> = names
        .iter()
        .map(|name| format!("\"{name}\": {{\"command\": \"run\"}}"))
        .collect();
    let text = format!("{{\"mcpServers\": {{{}}}}}", servers.join(","));
    for loaded in [parse_json(&text).unwrap(), parse_yaml(&text).unwrap()] {
        let read: Vec<&String> = loaded.config.servers.iter().map(|s| &s.name).collect();
        assert_eq!(read, names.iter().collect::<Vec<_>>());
    }
}

#[test]
fn variables_are_replaced_in_every_value_and_in_no_key() {
    let config = good(
        "
listen: ${LISTEN:-127.0.0.1:9999}
limits: {sessions: '${N}', requestBody: '${SIZE:-1MiB}'}
timeouts: {call: '${T}'}
mcpServers:
  ${HOST}:
    url: https://${HOST}/mcp?x=$${HOST}
    headers: {Authorization: 'Bearer ${TOKEN}'}
    enabled: '${YES}'
    timeout: '${OTHER:-${T}}'
    concurrency: '${N}'
    prefix: '${EMPTY}'
    era: ${ERA:-legacy}
    session: ${SESSION:-shared}
",
    );
    assert_eq!(config.listen.to_string(), "127.0.0.1:9999");
    assert_eq!(config.limits.sessions, 7);
    assert_eq!(config.limits.request_body, 1 << 20);
    assert_eq!(config.timeouts.call, Duration::from_secs(5));
    let server = &config.servers[0];
    assert_eq!(server.name, "${HOST}");
    assert!(server.enabled);
    assert_eq!(server.timeout, Duration::from_secs(5));
    assert_eq!(server.concurrency, 7);
    assert_eq!(server.prefix.as_deref(), Some(""));
    assert_eq!(server.era, EraChoice::Legacy);
    assert_eq!(server.session, SessionPolicy::Shared);
    let Transport::Http { url, headers } = &server.transport else {
        panic!("not HTTP");
    };
    assert_eq!(url, "https://example.com/mcp?x=${HOST}");
    assert_eq!(headers[0].1.expose(), "Bearer s3cret-token");
}

#[test]
fn server_has_the_endpoints_that_are_named_or_looked_up() {
    let config = good(
        "
mcpServers:
  several:
    urls: ['https://a.example.com/mcp', 'https://${HOST}/mcp']
  found: {url: 'http://svc.internal/mcp', resolve: 5s}
  one: {url: 'http://one.internal/mcp'}
",
    );
    let [several, found, one] = &config.servers[..] else {
        panic!("{:?}", config.servers)
    };
    let first = "https://a.example.com/mcp";
    assert_eq!(several.endpoints.urls, [first, "https://example.com/mcp"]);
    assert_eq!(several.endpoints.resolve, None);
    assert!(matches!(&several.transport, Transport::Http { url, .. } if url == first));
    assert_eq!(found.endpoints.urls, ["http://svc.internal/mcp"]);
    assert_eq!(found.endpoints.resolve, Some(Duration::from_secs(5)));
    assert!(one.endpoints.urls.is_empty());
}

#[test]
fn problems_of_endpoints_are_told() {
    for (lines, message) in [
        (
            "urls: []",
            "3:11 `urls` has 0 entries: at least 1, at most 64",
        ),
        (
            "urls: https://e.com/",
            "3:11 `urls` must be a list, not a string",
        ),
        (
            "urls: ['ftp://e.com/']",
            "3:12 an entry of `urls` is neither an http nor an https URL",
        ),
        (
            "urls: [{url: 'http://e.com/'}]",
            "3:12 an entry of `urls` must be a string, not a mapping",
        ),
        (
            "urls: ['http://e.com/', 'http://e.com/']",
            "3:29 this endpoint is given twice",
        ),
    ] {
        assert_eq!(errors(&server(lines)), [message], "{lines}");
    }
    let both = errors("mcpServers: {a: {url: 'http://e.com/', urls: ['http://e.com/']}}\n");
    assert!(
        both[0].contains("both `url` and `urls` are given"),
        "{both:?}"
    );
}

#[test]
fn bad_expressions_are_reported_at_their_position() {
    for (lines, message) in [
        (
            "command: x${MISSING}",
            "3:15 the environment variable `MISSING` is not set",
        ),
        ("command: 'x${OPEN'", "3:16 this `${` has no closing brace"),
        ("command: x${}", "3:15 there is no variable name here"),
        (
            "command: x${a-b}",
            "3:15 this is not the name of a variable",
        ),
        (
            "command: '${input:key}'",
            "3:15 the environment variable `INPUT_KEY` is not set",
        ),
        (
            "command: '${A:-${B}}'",
            "3:20 the environment variable `B` is not set",
        ),
    ] {
        assert_eq!(errors(&server(lines)), [message], "{lines}");
    }
    assert_eq!(
        errors(&server("command: ${B}${A}${B}")),
        [
            "3:14 the environment variable `B` is not set",
            "3:18 the environment variable `A` is not set",
            "3:22 the environment variable `B` is not set"
        ]
    );
    // A client's own settings are not read, nor are their expressions.
    assert!(parse_yaml(&server("command: run\ndescription: ${MISSING}")).is_ok());
}

#[test]
fn servers_take_defaults_from_the_file_also_where_they_are_set_later() {
    let config = good(
        "
mcpServers:
  a: {command: run}
  b: {command: run, timeout: 1s, concurrency: 1}
timeouts: {call: 7s}
",
    );
    assert_eq!(config.servers[0].timeout, Duration::from_secs(7));
    assert_eq!(config.servers[0].concurrency, 256);
    assert_eq!(config.servers[1].timeout, Duration::from_secs(1));
    assert_eq!(config.servers[1].concurrency, 1);
}

#[test]
fn numbers_and_booleans_are_text_in_arguments_variables_and_headers() {
    let config = good(&server(
        "command: run\nargs: [-p, 8080, 1.50, true]\nenv: {PORT: 080, ON: false}",
    ));
    let Transport::Stdio { args, env, .. } = &config.servers[0].transport else {
        panic!("not stdio");
    };
    assert_eq!(args, &["-p", "8080", "1.50", "true"]);
    let env: Vec<(&str, &str)> = env.iter().map(|(k, v)| (k.as_str(), v.expose())).collect();
    assert_eq!(env, [("PORT", "080"), ("ON", "false")]);
}

#[test]
fn working_directory_of_a_child_is_relative_to_the_file() {
    for (cwd, expected) in [("sub", "folder/sub"), ("/abs", "/abs")] {
        let config = good(&server(&format!("command: run\ncwd: {cwd}")));
        let Transport::Stdio { cwd, .. } = &config.servers[0].transport else {
            panic!("not stdio");
        };
        assert_eq!(cwd.as_deref(), Some(Path::new(expected)));
    }
}

#[test]
fn admin_listener_can_be_switched_off() {
    for off in ["null", "off", "'off'"] {
        let config = good(&with_server(&format!("admin: {{listen: {off}}}")));
        assert_eq!(config.admin.listen, None, "{off}");
    }
    let config = good(&with_server("admin: {listen: localhost:9}"));
    assert_eq!(config.admin.listen.unwrap().to_string(), "127.0.0.1:9");
    assert!(
        !config.admin.is_default
            && good(&with_server("admin: {token: 0123456789abcdef}"))
                .admin
                .is_default
    );
    assert!(good(&with_server("admin: null")).admin.listen.is_some());
}

#[test]
fn admin_listener_leaves_loopback_with_a_token_only() {
    let config = good(&with_server(
        "admin: {listen: 0.0.0.0:9, token: 0123456789abcdef}",
    ));
    assert_eq!(
        config.admin.token.as_ref().unwrap().expose(),
        "0123456789abcdef"
    );
    assert!(config.admin.may_listen(&"192.0.2.1:1".parse().unwrap()));
    let config = good(&with_server("admin: {listen: '[::1]:9'}"));
    for (address, may) in [
        ("127.9.9.9:1", true),
        ("[::ffff:127.0.0.1]:1", true),
        ("0.0.0.0:1", false),
        ("[::]:1", false),
    ] {
        assert_eq!(
            config.admin.may_listen(&address.parse().unwrap()),
            may,
            "{address}"
        );
    }
}

#[test]
fn sse_transport_is_recognised_and_switched_off() {
    assert_eq!(good(&with_server("")).sse_path.as_deref(), Some("/sse"));
    assert_eq!(
        good(&with_server("ssePath: /old")).sse_path.as_deref(),
        Some("/old")
    );
    for off in [
        "ssePath: off",
        "ssePath: null",
        "endpoints: {/mcp: {}, /sse/message: {}}",
    ] {
        assert_eq!(good(&with_server(off)).sse_path, None, "{off}");
    }
    let config = good(&server("type: sse\nurl: http://e.com/sse\nheaders: {A: b}"));
    let Transport::Sse { url, headers } = &config.servers[0].transport else {
        panic!("not sse")
    };
    assert_eq!(
        (url.as_str(), headers[0].0.as_str()),
        ("http://e.com/sse", "a")
    );
}

#[test]
fn origins_and_hosts_have_one_form() {
    let config = good(&with_server(
        "allowedOrigins: ['HTTPS://App.Example.com:443/', 'http://h:81', 'vscode-webview://abc', '*']
allowedHosts: [MCP.example.com, 'h:81', '[::1]:8080', '*']
publicUrl: HTTPS://MCP.example.com:443/",
    ));
    assert_eq!(
        config.public_url.as_deref(),
        Some("https://mcp.example.com")
    );
    assert_eq!(
        config.allowed_origins,
        [
            "https://app.example.com",
            "http://h:81",
            "vscode-webview://abc",
            "*"
        ]
    );
    assert_eq!(
        config.allowed_hosts,
        ["mcp.example.com", "h:81", "[::1]:8080", "*"]
    );
}

#[test]
fn listeners_have_unix_sockets_and_tls() {
    let config = good(&with_server(
        "listen: unix:run/clients.sock
tls: {cert: c.pem, key: /etc/k.pem, clientCa: ca.pem}
admin: {listen: 'unix:/run/a.sock', tls: {cert: c, key: k, clientCa: ca, clientAuth: none}}
trustedProxies: [10.1.2.3/8, '::1']",
    ));
    assert_eq!(
        config.listen,
        ListenAddress::Unix("folder/run/clients.sock".into())
    );
    assert_eq!(
        config.admin.listen,
        Some(ListenAddress::Unix("/run/a.sock".into()))
    );
    let tls = config.tls.unwrap();
    assert_eq!(
        tls.files().collect::<Vec<_>>(),
        ["folder/c.pem", "/etc/k.pem", "folder/ca.pem"]
    );
    assert_eq!(
        tls.client_ca(),
        Some(("folder/ca.pem", true)),
        "certificates are required where they can be verified"
    );
    assert_eq!(config.admin.tls.unwrap().client_ca(), None);
    let proxies: Vec<String> = config
        .trusted_proxies
        .iter()
        .map(ToString::to_string)
        .collect();
    assert_eq!(proxies, ["10.0.0.0/8", "::1/128"]);
}

#[test]
fn keys_are_base64_or_hexadecimal() {
    let bytes: [u8; 32] = std::array::from_fn(|n| 0xe0 | u8::try_from(n).unwrap());
    let hex: String = bytes.iter().map(|byte| format!("{byte:02X}")).collect();
    let standard = "4OHi4+Tl5ufo6err7O3u7/Dx8vP09fb3+Pn6+/z9/v8=";
    let url_safe = "4OHi4-Tl5ufo6err7O3u7_Dx8vP09fb3-Pn6-_z9_v8";
    let config = good(&with_server(&format!(
        "keys: [\"{hex}\", \"{standard}\", \"{url_safe}\"]"
    )));
    assert_eq!(config.keys.len(), 3);
    for key in config.keys {
        assert_eq!(key.expose(), &bytes);
    }
}

#[test]
fn settings_of_other_clients_keep_their_meaning() {
    let loaded = parse_json(
        r#"{
  // VS Code writes comments, and `servers`.
  "servers": {
    "a": { "type": "streamableHttp", "serverUrl": "http://e.com/mcp", "disabledTools": ["x"], "excludeTools": ["y*"], "cwd": null },
    "b": { "httpUrl": "http://e.com/mcp", "includeTools": ["z"], "disabled": true, },
  },
}"#,
    )
    .unwrap();
    assert_eq!(loaded.warnings, []);
    let [a, b] = loaded.config.servers.as_slice() else {
        panic!("two servers");
    };
    assert!(a.enabled && a.tools.allow.is_none() && a.tools.deny == ["x", "y*"]);
    assert!(
        !b.enabled
            && b.tools.allow.as_deref() == Some(&["z".to_owned()])
            && b.tools.deny.is_empty()
    );
}

#[test]
fn server_may_be_named_like_a_boolean_a_number_or_null() {
    let names = good("mcpServers: {True: {command: a}, 1: {command: b}, null: {command: c}}")
        .servers
        .into_iter()
        .map(|server| server.name)
        .collect::<Vec<_>>();
    assert_eq!(names, ["True", "1", "null"]);
}

#[test]
fn forwarded_headers_are_a_list_or_a_mapping_and_never_what_others_define() {
    let of = |more: &str| server(&format!("url: https://a/\n{more}"));
    let read = |more: &str| good(&of(more)).servers[0].forward_headers.clone();
    let named = |theirs: &str, ours: &str| vec![(theirs.to_owned(), ours.to_owned())];
    assert_eq!(
        read("forwardHeaders: [X-Tenant]"),
        named("x-tenant", "x-tenant")
    );
    assert_eq!(
        read("forwardHeaders: {X-Tenant: X-Org}"),
        named("x-tenant", "x-org")
    );
    let refused = |text: &str, why: &str| {
        let errors = errors(text);
        assert!(
            errors.len() == 1 && errors[0].contains(why),
            "{text}: {errors:?}"
        );
    };
    for wrong in [
        "[Authorization]",
        "[Cookie]",
        "[X-Api-Key]",
        "[Mcp-Param-Region]",
        "[Transfer-Encoding]",
        "[traceparent]",
        "{X-Tenant: Authorization}",
        "{Cookie: X-Tenant}",
        "[X-Tenant, x-tenant]",
        "['a b']",
        "['']",
    ] {
        refused(
            &of(&format!("forwardHeaders: {wrong}")),
            "this header cannot reach",
        );
    }
    let set = "forwardHeaders: [X-Tenant]\nheaders: {x-tenant: a}";
    refused(&of(set), "both in `headers`");
    let process = server("command: run\nforwardHeaders: [X-Tenant]");
    refused(&process, "needs `url`");
    let auth = "auth: {proxy: {header: X-User, from: [10.0.0.0/8]}}\n";
    let of_proxy = format!("{}{auth}", of("forwardHeaders: [X-User]"));
    refused(&of_proxy, "a header of `proxy`");
}

#[test]
fn public_url_may_have_the_prefix_of_a_proxy() {
    for (url, public) in [
        ("https://A.example:443/Gate/", "https://a.example/Gate"),
        ("https://a.example/", "https://a.example"),
    ] {
        let config = good(&with_server(&format!("publicUrl: {url}")));
        assert_eq!(config.public_url.as_deref(), Some(public));
    }
    for path in ["b?c", "b;c", "%2e", "../b", "/b"] {
        let errors = errors(&with_server(&format!("publicUrl: 'https://a/{path}'")));
        assert!(
            errors[0].contains("not the URL of a listener"),
            "{path}: {errors:?}"
        );
    }
}

#[test]
fn hooks_and_webhooks_take_paths_headers_and_events() {
    let config = good(&with_server(
        "
hooks: [{url: 'https://a/', headers: {X-Key: '${TOKEN}'}, caFile: ca.pem, mayReplace: true,
         match: {server: a, tool: 'a/write_*'}}]
notify: [{url: 'https://b/', secret: 0123456789abcdef, events: [pin]}, {url: 'https://c/', secret: 0123456789abcdef}]",
    ));
    let hook = &config.hooks[0];
    assert_eq!(hook.headers[0].0, "x-key");
    assert_eq!(hook.headers[0].1.expose(), "s3cret-token");
    assert_eq!(hook.ca_file.as_deref(), Some("folder/ca.pem"));
    assert!(hook.may_replace);
    assert_eq!(hook.only.servers, ["a"]);
    assert_eq!(config.notify[0].events, ["pin"]);
    assert_eq!(config.notify[1].events.len(), 3);
    let shown = format!("{config:?}");
    assert!(
        !shown.contains("s3cret") && !shown.contains("0123456789"),
        "{shown}"
    );
    let wrong = "notify: [{url: 'https://b/', secret: short, events: [pins]}]";
    assert_eq!(errors(&with_server(wrong)).len(), 2);
}
