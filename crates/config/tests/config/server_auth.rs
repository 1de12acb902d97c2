//! `auth` of a server: the credentials that it gets.

use fanlight_config::{ResourceParameter, ServerAuth, ServerAuthKind, SubjectTokenType};

use crate::{errors, good, server};

fn auth(text: &str) -> ServerAuth {
    let config = good(&server(&format!(
        "url: https://mcp.example.com/mcp\nauth: {text}"
    )));
    config.servers[0].auth.clone().unwrap()
}

fn problems(text: &str) -> String {
    errors(&server(&format!(
        "url: https://mcp.example.com/mcp\nauth: {text}"
    )))
    .join("\n")
}

#[test]
fn each_kind_is_read() {
    assert_eq!(auth("{}").kind, ServerAuthKind::User);
    let basic = auth("{ type: basic, username: u, password: '${TOKEN}' }");
    assert_eq!(
        (basic.username.as_deref(), basic.password.unwrap().expose()),
        (Some("u"), "s3cret-token")
    );
    let client = auth("{ type: clientCredentials, clientId: c, key: '${TOKEN}', scopes: [a, b] }");
    assert_eq!(
        (client.client_id.as_deref(), client.scopes.unwrap().len()),
        (Some("c"), 2)
    );
    let workload = auth("{ type: workload, tokenFile: token, resourceParameter: omit }");
    assert_eq!(workload.token_file.as_deref(), Some("folder/token"));
    assert_eq!(workload.resource_parameter, ResourceParameter::Omit);
    let exchange = auth(
        "{ type: exchange, tokenEndpoint: 'https://id.example.com/token', audience: crm, subjectTokenType: jwt }",
    );
    assert_eq!(
        (exchange.subject_token_type, exchange.is_of_users()),
        (Some(SubjectTokenType::Jwt), true)
    );
    let enterprise = auth(
        "{ type: enterprise, idp: { issuer: 'https://idp.example.com', clientId: f }, tokenFile: /t }",
    );
    assert!(!enterprise.is_of_users());
    assert_eq!(enterprise.idp.unwrap().issuer, "https://idp.example.com");
    let user = auth("{ type: user, connectTool: true }");
    assert!(
        user.is_of_users()
            && user.connect_tool
            && user.resource_parameter == ResourceParameter::Send
    );
    let key = auth("{ type: userKey, prefix: 'Bearer ' }");
    assert_eq!(
        (key.header.as_str(), key.prefix.as_str(), key.is_of_users()),
        ("Authorization", "Bearer ", true)
    );
}

#[test]
fn missing_and_contradictory_parts_are_named() {
    for (auth, message) in [
        ("{ type: bearer }", "is not a value of `type`"),
        ("{ type: basic, username: a }", "`password` is missing"),
        (
            "{ type: basic, username: 'a:b', password: x }",
            "is not a user name",
        ),
        (
            "{ type: clientCredentials, clientId: c }",
            "neither `clientSecret` nor `key`",
        ),
        (
            "{ type: clientCredentials, clientId: c, clientSecret: x, key: x }",
            "both `clientSecret` and `key`",
        ),
        (
            "{ type: clientCredentials, clientSecret: x }",
            "`clientId` is missing",
        ),
        ("{ type: workload }", "`tokenFile` is missing"),
        (
            "{ type: enterprise, idp: { clientId: f } }",
            "`issuer` is missing in `idp`",
        ),
        (
            "{ type: user, clientSecret: x }",
            "`clientId` is missing beside",
        ),
        (
            "{ type: user, clientId: c, clientSecret: x }",
            "`issuer` is missing beside",
        ),
        (
            "{ type: user, clientId: c, key: x }",
            "`issuer` is missing beside",
        ),
        (
            "{ type: enterprise, clientId: c, clientSecret: x }",
            "`issuer` is missing beside",
        ),
        (
            "{ type: exchange, audience: crm }",
            "neither `issuer` nor `tokenEndpoint`",
        ),
        (
            "{ type: user, password: x }",
            "`password` has no effect with `type: user`",
        ),
        (
            "{ type: basic, username: a, password: x, scopes: a }",
            "`scopes` has no effect",
        ),
        (
            "{ type: exchange, connectTool: true }",
            "`connectTool` has no effect with `type: exchange`",
        ),
        (
            "{ type: userKey, header: Host }",
            "cannot be used as such a header",
        ),
        (
            "{ type: userKey, header: Mcp-Method }",
            "cannot be used as such a header",
        ),
        (
            "{ type: exchange, tokenEndpoint: 'http://id.example.com/token' }",
            "is not a URL that can be used here",
        ),
        (
            "{ type: user, issuer: 'http://id.example.com' }",
            "is not the identifier of an issuer",
        ),
    ] {
        assert!(
            problems(auth).contains(message),
            "{auth}: {}",
            problems(auth)
        );
    }
    let of_process = crate::parse_yaml(&server("command: run\nauth: { type: user }")).unwrap();
    assert_eq!(
        of_process.warnings[0].message(),
        "`auth` has no effect without `url`"
    );
}

#[test]
fn secret_without_an_issuer_is_warned_of() {
    let warned = |more: &str| {
        let auth =
            format!("auth: {{ type: clientCredentials, clientId: c, clientSecret: s3cret{more} }}");
        let loaded = crate::parse_yaml(&server(&format!(
            "url: https://mcp.example.com/mcp\n{auth}"
        )))
        .unwrap();
        loaded
            .warnings
            .iter()
            .any(|warning| warning.message().contains("this secret is shown to"))
    };
    assert!(warned("") && !warned(", issuer: 'https://id.example.com'"));
}

#[test]
fn no_secret_is_shown() {
    let auth = "{ type: exchange, clientId: shown, clientSecret: s3cret, issuer: 'https://id.example.com' }";
    let text = format!("url: https://mcp.example.com/mcp\nauth: {auth}");
    let config = good(&server(&text));
    assert!(
        config.masked_json().contains("\"clientId\": \"shown\"")
            && !config.masked_json().contains("password")
    );
    assert!(!format!("{}{config:?}", config.masked_json()).contains("s3cret"));
    let wrong =
        crate::parse_yaml(&server(&text.replace("clientId: shown", "clientId: ''"))).unwrap_err();
    assert!(!format!("{wrong}{wrong:?}{}", wrong.render(true)).contains("s3cret"));
}

#[test]
fn settings_of_clients_that_are_called_so_are_passed_over() {
    let text = r#"{"mcpServers": {"a": {"url": "https://e.com/mcp", "auth": {"CLIENT_ID": "x", "CLIENT_SECRET": "y"}}}}"#;
    let path = std::path::Path::new("/home/u/.cursor/mcp.json");
    let loaded = fanlight_config::parse(text, path, &|_| None).unwrap();
    assert_eq!(loaded.config.servers[0].auth, None);
}

#[test]
fn variables_of_users_are_whole_values() {
    let with = |env: &str| crate::parse_yaml(&server(&format!("command: run\nenv: {env}")));
    let own = |env: &str| with(env).unwrap().config.servers[0].clone();
    let good = own("{ TOKEN: '${user:notes}', PLAIN: text }");
    assert_eq!(good.user_env, [("TOKEN".to_owned(), "notes".to_owned())]);
    let fanlight_config::Transport::Stdio { env, .. } = &good.transport else {
        panic!("{:?}", good.transport)
    };
    assert_eq!(env.len(), 1);
    let part = with("{ TOKEN: 'Bearer ${user:notes}' }")
        .unwrap_err()
        .to_string();
    assert!(
        part.contains("this names no place where a secret is kept"),
        "{part}"
    );
    let key = crate::parse_yaml(
        "mcpServers: {own: {command: run, auth: {type: userKey}, env: {K: '${user:own}'}}}",
    );
    let key = key.unwrap();
    assert!(key.warnings.is_empty() && key.config.servers[0].user_env.len() == 1);
}
