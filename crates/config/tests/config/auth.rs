//! `auth`: authentication of clients, and scopes.

use std::path::Path;

use fanlight_config::{Auth, AuthChoice, Config, ConfigErrors, parse};

fn read(auth: &str) -> Result<Config, ConfigErrors> {
    let text = format!("{auth}\nmcpServers:\n  git: {{ command: git }}\n");
    parse(&text, Path::new("/etc/fanlight/fanlight.yaml"), &|name| {
        (name == "SECRET").then(|| "s3cret-of-client".into())
    })
    .map(|loaded| loaded.config)
}

fn methods(auth: &str) -> Auth {
    read(auth)
        .unwrap_or_else(|errors| panic!("{errors}"))
        .auth
        .methods()
        .unwrap()
        .clone()
}

fn error(auth: &str) -> String {
    read(auth).unwrap_err().to_string()
}

#[test]
fn absent_authentication_differs_from_none() {
    assert_eq!(read("").unwrap().auth, AuthChoice::Unset);
    assert_eq!(read("auth: none").unwrap().auth, AuthChoice::Open);
    assert_eq!(read("auth:").unwrap().auth, AuthChoice::Unset);
    for wrong in [
        "auth: off",
        "auth: false",
        "auth: [none]",
        "auth: {}",
        "auth: { certificates: false }",
        "auth: { scopes: { read: a } }",
    ] {
        assert!(error(wrong).contains("auth"), "{wrong}");
    }
}

#[test]
fn sample_of_authentication_is_read() {
    let sample = fanlight_config::sample();
    let (_, rest) = sample.split_once("\n# auth:\n").unwrap();
    let lines = rest
        .lines()
        .map_while(|line| line.strip_prefix("#   ").map(|line| format!("  {line}\n")));
    let auth = methods(&format!(
        "auth:\n{}",
        lines
            .collect::<String>()
            .replace("INTROSPECTION_SECRET", "SECRET")
    ));
    let [first, second] = &auth.oauth[..] else {
        panic!("{:?}", auth.oauth)
    };
    assert_eq!(first.issuer, "https://id.example.com");
    assert_eq!(first.audience, ["https://mcp.example.com/mcp"]);
    assert_eq!(
        (
            first.claims.principal.as_str(),
            first.claims.groups.as_str()
        ),
        ("sub", "/realm_access/roles")
    );
    assert_eq!(
        first.require,
        [("azp".to_owned(), vec!["agent-runner".to_owned()])]
    );
    let introspection = second.introspection.as_ref().unwrap();
    assert_eq!(
        introspection.client_secret.as_ref().unwrap().expose(),
        "s3cret-of-client"
    );
    assert_eq!(auth.keys.unwrap().file, "/etc/fanlight/keys.yaml");
    assert!(auth.certificates && auth.socket);
    let proxy = auth.proxy.unwrap();
    assert_eq!(
        (proxy.header.as_str(), proxy.from[0].to_string().as_str()),
        ("x-forwarded-user", "10.0.0.0/8")
    );
    assert_eq!(auth.scopes.call.unwrap(), ["mcp:call"]);
    assert_eq!(auth.scopes.tools.unwrap()[0].1, ["files:delete"]);
}

#[test]
fn missing_parts_are_named() {
    for (auth, message) in [
        ("auth: { oauth: [{ audience: a }] }", "`issuer` is missing"),
        ("auth: { keys: {} }", "`file` is missing in `keys`"),
        (
            "auth: { proxy: { header: X-User } }",
            "`from` is missing in `proxy`",
        ),
        (
            "auth: { proxy: { from: [10.0.0.0/8] } }",
            "`header` is missing in `proxy`",
        ),
        (
            "auth: { oauth: [{ issuer: https://a.example, introspection: {} }] }",
            "`clientId` is missing",
        ),
        (
            "auth: { oauth: [{ issuer: https://a.example }, { issuer: https://a.example }] }",
            "is there twice",
        ),
    ] {
        let shown = error(auth);
        assert!(shown.contains(message), "{auth}: {shown}");
    }
}

#[test]
fn subjects_that_may_differ_for_one_person_are_compared_only_if_declared() {
    let sets = |more: &str| {
        let issuers = "[{ issuer: https://a.example }, { issuer: https://b.example, claims: { principal: oid } }, \
                       { issuer: https://c.example, claims: { principal: /sub } }]";
        methods(&format!(
            "auth: {{ oauth: {issuers}, certificates: true{more} }}"
        ))
        .comparable()
    };
    let alone = [vec!["https://b.example"], vec!["key"], vec!["proxy"]];
    assert_eq!(sets("")[..3], alone);
    assert!(sets("")[3].is_empty());
    let declared = ["https://a.example", "certificate"];
    assert_eq!(
        sets(", samePeople: [https://a.example, certificate]")[3],
        declared
    );
}

#[test]
fn values_that_would_weaken_authentication_are_refused() {
    for (auth, message) in [
        (
            "auth: { oauth: [{ issuer: http://id.example.com }] }",
            "is not the identifier of an issuer",
        ),
        (
            "auth: { oauth: [{ issuer: \"https://id.example.com?tenant=1\" }] }",
            "is not the identifier of an issuer",
        ),
        (
            "auth: { oauth: [{ issuer: \"https://me:pw@id.example.com\" }] }",
            "is not the identifier of an issuer",
        ),
        (
            "auth: { oauth: [{ issuer: https://a.example, jwksUri: http://a.example/keys }] }",
            "is not a URL",
        ),
        (
            "auth: { oauth: [{ issuer: https://a.example, jwksUri: \"http://127.0.0.1:9000/keys\" }] }",
            "`jwksUri` is an http URL of an https issuer",
        ),
        (
            "auth: { oauth: [{ issuer: https://a.example, introspection: { clientId: c, clientSecret: s, endpoint: \"HTTP://localhost/i\" } }] }",
            "`endpoint` is an http URL of an https issuer",
        ),
        (
            "auth: { proxy: { header: Authorization, from: [10.0.0.0/8] } }",
            "cannot be used as such a header",
        ),
        (
            "auth: { proxy: { header: X-User, from: [proxy.example] } }",
            "is not a network",
        ),
        (
            "auth: { socket: true, scopes: { read: \"a b\" } }",
            "is not a scope",
        ),
    ] {
        let shown = error(auth);
        assert!(shown.contains(message), "{auth}: {shown}");
    }
    let on_this_machine = "auth: { oauth: [{ issuer: \"http://127.0.0.1:9000\", jwksUri: \"http://localhost:9001/keys\" }] }";
    let issuer = &methods(on_this_machine).oauth[0];
    assert_eq!(
        (issuer.issuer.as_str(), issuer.jwks_uri.as_deref()),
        ("http://127.0.0.1:9000", Some("http://localhost:9001/keys"))
    );
    let secure = "auth: { oauth: [{ issuer: \"http://127.0.0.1:9000\", jwksUri: \"https://a.example/keys\" }] }";
    assert_eq!(
        methods(secure).oauth[0].jwks_uri.as_deref(),
        Some("https://a.example/keys")
    );
}

#[test]
fn client_secrets_are_never_shown() {
    let text = "auth: { oauth: [{ issuer: https://a.example, introspection: { clientId: c, clientSecret: s3cret-of-client } }] }";
    let config = read(text).unwrap();
    assert!(!config.masked_json().contains("s3cret") && !format!("{config:?}").contains("s3cret"));
    let broken = text.replace("clientId: c", "clientIdd: c");
    assert!(!error(&broken).contains("s3cret"), "{}", error(&broken));
}

#[test]
fn endpoints_have_scopes_of_their_own() {
    let config = read("endpoints: { /mcp: { scopes: { call: [a, b] } } }").unwrap();
    assert_eq!(
        config.endpoints[0].1.scopes.call.as_deref(),
        Some(&["a".to_owned(), "b".to_owned()][..])
    );
    assert_eq!(config.endpoints[0].1.scopes.read, None);
}
