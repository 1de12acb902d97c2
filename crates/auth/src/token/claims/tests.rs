use serde_json::{Value, json as value};

use super::*;

const ENDPOINT: &str = "https://mcp.example.com/mcp";
const NOW: u64 = 1_800_000_000;

fn issuer() -> IssuerSettings {
    IssuerSettings {
        issuer: "https://id.example.com".to_owned(),
        jwks_uri: None,
        audience: Vec::new(),
        claims: fanlight_config::Claims::default(),
        require: Vec::new(),
        authorities: None,
        introspection: None,
    }
}

/// Valid claims with these members replaced; `null` removes one.
fn claims(members: Value) -> Json {
    let mut claims = value!({ "sub": "ann", "aud": ENDPOINT, "exp": NOW + 60 });
    for (name, member) in members.as_object().unwrap() {
        match member {
            Value::Null => drop(claims.as_object_mut().unwrap().remove(name)),
            member => claims[name] = member.clone(),
        }
    }
    json::object(claims.to_string()).unwrap()
}

fn checked(issuer: &IssuerSettings, claims: &Json) -> Result<Option<SystemTime>, Denial> {
    let (leeway, now) = (
        Duration::from_secs(30),
        UNIX_EPOCH + Duration::from_secs(NOW),
    );
    check(
        claims,
        &Rules {
            issuer,
            endpoint: Some(ENDPOINT),
            leeway,
            now,
        },
    )
}

fn is_accepted(members: Value) -> bool {
    checked(&issuer(), &claims(members)).is_ok()
}

#[test]
fn tokens_of_other_kinds_are_refused_by_the_word_of_their_issuer() {
    for members in [
        value!({ "token_use": "id" }),
        value!({ "token_use": "refresh_token" }),
        value!({ "token_type": "refresh_token" }),
        value!({ "typ": "Refresh" }),
        value!({ "typ": "ID" }),
    ] {
        assert!(!is_accepted(members.clone()), "{members}");
    }
    let access = [
        value!({ "token_use": "access", "token_type": "Bearer", "typ": "Bearer" }),
        value!({ "token_type": "access_token", "typ": 1 }),
    ];
    for members in access {
        assert!(is_accepted(members.clone()), "{members}");
    }
}

#[test]
fn times_are_checked_with_leeway() {
    let expires = |seconds: u64| Ok(Some(UNIX_EPOCH + Duration::from_secs(seconds)));
    assert_eq!(checked(&issuer(), &claims(value!({}))), expires(NOW + 90));
    assert_eq!(
        checked(&issuer(), &claims(value!({ "exp": null }))),
        Ok(None)
    );
    let accepted = [
        value!({ "exp": NOW - 29 }),
        value!({ "exp": 1_800_000_000.5 }),
        value!({ "exp": 1.8e9 }),
        value!({ "exp": LAST_SECOND }),
        value!({ "nbf": NOW + 30, "iat": NOW + 30 }),
        value!({ "nbf": 0, "iat": 0.0 }),
    ];
    for members in accepted {
        assert!(is_accepted(members.clone()), "{members}");
    }
    let refused = [
        value!({ "exp": NOW - 30 }),
        value!({ "exp": 0 }),
        value!({ "exp": -1 }),
        value!({ "exp": 253_402_300_800_u64 }),
        value!({ "exp": u64::MAX }),
        value!({ "exp": 1e300 }),
        value!({ "exp": "1900000000" }),
        value!({ "exp": true }),
        value!({ "exp": [NOW + 60] }),
        value!({ "nbf": NOW + 31 }),
        value!({ "iat": NOW + 31 }),
        value!({ "nbf": "0" }),
        value!({ "iat": {} }),
    ];
    for members in refused {
        assert!(!is_accepted(members.clone()), "{members}");
    }
    for text in [
        r#"{"aud":"https://mcp.example.com/mcp","exp":1e999}"#,
        r#"{"exp":null}"#,
    ] {
        assert!(
            checked(&issuer(), &json::object(text).unwrap()).is_err(),
            "{text}"
        );
    }
}

#[test]
fn audience_is_that_of_the_endpoint() {
    for audience in [
        value!(ENDPOINT),
        value!("https://mcp.example.com/mcp/"),
        value!(["x", ENDPOINT]),
    ] {
        assert!(
            is_accepted(value!({ "aud": audience.clone() })),
            "{audience}"
        );
    }
    let refused = [
        value!(null),
        value!(""),
        value!([]),
        value!("https://mcp.example.com"),
        value!("https://mcp.example.com/mcp/readers"),
        value!("https://mcp.example.com/MCP"),
        value!("https://mcp.example.com/mcp//"),
        value!("https://mcp.example.com.evil.example/mcp"),
        value!("fanlight"),
        value!([[ENDPOINT]]),
        value!([ENDPOINT, 1]),
        value!({ ENDPOINT: ENDPOINT }),
    ];
    for audience in refused {
        assert!(
            !is_accepted(value!({ "aud": audience.clone() })),
            "{audience}"
        );
    }
}

#[test]
fn configured_audience_replaces_that_of_the_endpoint() {
    let issuer = IssuerSettings {
        audience: vec!["a".to_owned(), "b".to_owned()],
        ..issuer()
    };
    let is_accepted =
        |audience: Value| checked(&issuer, &claims(value!({ "aud": audience }))).is_ok();
    assert!(is_accepted(value!("a")) && is_accepted(value!(["c", "b"])));
    assert!(
        !is_accepted(value!(ENDPOINT)) && !is_accepted(value!("a/")) && !is_accepted(value!("ab"))
    );
}

#[test]
fn tokens_for_other_ends_are_refused() {
    for name in OF_OTHER_TOKENS {
        assert!(!is_accepted(value!({ name: "x" })), "{name}");
    }
}

#[test]
fn required_claims_have_one_of_their_values() {
    let require = vec![
        (
            "azp".to_owned(),
            vec!["agent-runner".to_owned(), "ci".to_owned()],
        ),
        ("/realm/roles".to_owned(), vec!["mcp".to_owned()]),
    ];
    let issuer = IssuerSettings {
        require,
        ..issuer()
    };
    let is_accepted = |members| checked(&issuer, &claims(members)).is_ok();
    assert!(is_accepted(
        value!({ "azp": "ci", "realm": { "roles": ["x", "mcp"] } })
    ));
    assert!(is_accepted(
        value!({ "azp": ["agent-runner"], "realm": { "roles": "mcp" } })
    ));
    let refused = [
        value!({ "azp": "ci" }),
        value!({ "realm": { "roles": ["mcp"] } }),
        value!({ "azp": "CI", "realm": { "roles": ["mcp"] } }),
        value!({ "azp": "ci agent-runner", "realm": { "roles": ["mcp"] } }),
        value!({ "azp": { "ci": "ci" }, "realm": { "roles": ["mcp"] } }),
        value!({ "azp": "ci", "/realm/roles": "mcp" }),
        value!({ "azp": "ci", "realm": { "roles": [["mcp"]] } }),
    ];
    for members in refused {
        assert!(!is_accepted(members.clone()), "{members}");
    }
}

#[test]
fn tokens_are_bound_to_one_thing_of_which_a_request_can_show_a_proof() {
    let binding = |confirmation: Value| binding(&claims(value!({ "cnf": confirmation })));
    assert_eq!(super::binding(&claims(value!({}))), Ok(Binding::None));
    let hash = "A".repeat(43);
    assert_eq!(
        binding(value!({ "x5t#S256": hash })),
        Ok(Binding::Certificate([0; 32]))
    );
    assert_eq!(binding(value!({ "jkt": hash })), Ok(Binding::Key([0; 32])));
    let refused = [
        value!({}),
        value!({ "jkt": "AAAA" }),
        value!({ "x5t#S256": hash, "jkt": hash }),
        value!({ "x5t#S256": "AAAA" }),
        value!({ "x5t#S256": 1 }),
        value!("x5t#S256"),
        value!([hash]),
    ];
    for confirmation in refused {
        assert!(binding(confirmation.clone()).is_err(), "{confirmation}");
    }
    assert!(super::binding(&json::object(r#"{"cnf":null}"#).unwrap()).is_err());
}

#[test]
fn identity_is_what_the_claims_say() {
    let of =
        |issuer: &IssuerSettings, members| identity(&claims(members), issuer, Validity::default());
    let ann = of(
        &issuer(),
        value!({ "groups": ["a", "b"], "scope": "mcp:read mcp:call", "scp": "other" }),
    )
    .unwrap();
    assert_eq!(
        ann.principal,
        Principal::new("https://id.example.com", "ann")
    );
    assert_eq!((&*ann.name, ann.source), ("ann", Source::Token));
    assert_eq!(
        ann.groups.iter().map(AsRef::as_ref).collect::<Vec<&str>>(),
        ["a", "b"]
    );
    assert_eq!(ann.scopes, Scopes::parse("mcp:call mcp:read"));
    assert_eq!(
        of(&issuer(), value!({ "scp": ["x", "y z"] }))
            .unwrap()
            .scopes,
        ["x", "y z"].into_iter().collect()
    );
    assert_eq!(
        of(&issuer(), value!({ "scp": "x y", "groups": "g" }))
            .unwrap()
            .scopes,
        Scopes::parse("x y")
    );
    assert_eq!(of(&issuer(), value!({})).unwrap().scopes, Scopes::parse(""));
    let claims = fanlight_config::Claims {
        principal: "oid".into(),
        groups: "/realm/roles".into(),
        scopes: "perms".into(),
    };
    let issuer = IssuerSettings { claims, ..issuer() };
    let members =
        value!({ "oid": "1", "realm": { "roles": ["r"] }, "perms": "p", "scope": "s", "scp": "s" });
    let other = of(&issuer, members).unwrap();
    assert_eq!(
        (&*other.name, &*other.groups[0], &other.scopes),
        ("1", "r", &Scopes::parse("p"))
    );
    assert_eq!(
        of(&issuer, value!({ "oid": "1", "scp": "s" }))
            .unwrap()
            .scopes,
        Scopes::parse("")
    );
}

#[test]
fn claims_that_describe_no_client_are_refused() {
    let refused = [
        value!({ "sub": null }),
        value!({ "sub": "" }),
        value!({ "sub": 1 }),
        value!({ "sub": ["ann"] }),
        value!({ "sub": "x".repeat(MAX_NAME + 1) }),
        value!({ "groups": [1] }),
        value!({ "groups": { "a": 1 } }),
        value!({ "scope": 1 }),
        value!({ "scope": ["a", 1] }),
    ];
    for members in refused {
        assert!(
            identity(&claims(members.clone()), &issuer(), Validity::default()).is_err(),
            "{members}"
        );
    }
}
