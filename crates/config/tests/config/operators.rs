//! Access to the admin listener: tokens, roles, and the issuer at which operators sign in.

use crate::{errors, good, with_server};

const SIGN_IN: &str = "signIn: {issuer: 'https://id.example.com', clientId: fanlight, clientSecret: s3cret-of-client}";
const ROLES: &str =
    "roles: {operator: {groups: [ops]}, viewer: {groups: [staff], scopes: ['admin:read']}}";

fn admin(members: &str) -> String {
    with_server(&format!("admin: {{{members}}}"))
}

#[test]
fn roles_and_issuer_are_read_and_their_secrets_hidden() {
    let text = admin(&format!(
        "publicUrl: 'https://Fanlight.example.com:443/', {ROLES}, {SIGN_IN}"
    ));
    let config = good(&text);
    assert_eq!(
        config.admin.public_url.as_deref(),
        Some("https://fanlight.example.com")
    );
    assert_eq!(config.admin.roles.viewer.scopes, ["admin:read"]);
    let sign_in = config.admin.sign_in.as_ref().unwrap();
    assert_eq!(
        sign_in.client_secret.as_ref().unwrap().expose(),
        "s3cret-of-client"
    );
    assert!(!config.shown().contains("s3cret") && !format!("{config:?}").contains("s3cret"));
    assert!(!config.admin.is_open() && config.admin.may_listen(&"0.0.0.0:1".parse().unwrap()));
    assert!(good(&admin("")).admin.is_open());
    // Options without effect do not open the listener to other machines.
    assert!(good(&admin("roles: {operator: {}}")).admin.is_open());
}

#[test]
fn access_that_cannot_work_is_refused() {
    let public = "publicUrl: 'https://fanlight.example.com'";
    let token = "token: 0123456789abcdef, viewerToken: 0123456789abcdef";
    for (members, expected) in [
        (token.to_owned(), "`token` and `viewerToken` are the same"),
        ("viewerToken: short".to_owned(), "too easy to guess"),
        (
            format!("{ROLES}, {SIGN_IN}"),
            "`signIn` needs `admin.publicUrl`",
        ),
        (
            format!("{public}, {SIGN_IN}"),
            "`signIn` needs `admin.roles`",
        ),
        (
            format!("{public}, roles: {{viewer: {{}}}}, {SIGN_IN}"),
            "`signIn` needs `admin.roles`",
        ),
        (
            format!("{public}, {ROLES}, signIn: {{issuer: 'https://id.example.com'}}"),
            "`signIn` has no `clientId`",
        ),
        (
            format!("{public}, {ROLES}, signIn: {{clientId: fanlight}}"),
            "`signIn` has no `issuer`",
        ),
        (
            format!("{ROLES}, publicUrl: 'http://fanlight.example.com'"),
            "not a URL under which operators can be served",
        ),
        (
            format!("{ROLES}, publicUrl: 'https://fanlight.example.com/ui'"),
            "not a URL under which",
        ),
        (
            format!("{ROLES}, publicUrl: 'https://user@fanlight.example.com'"),
            "not a URL under which",
        ),
        (
            "roles: {operator: {scopes: ['a b']}}".to_owned(),
            "is not a scope",
        ),
        (
            "roles: {operator: {groups: ['']}}".to_owned(),
            "is not the name of a group",
        ),
        (
            "roles: {admin: {groups: [a]}}".to_owned(),
            "unknown field `admin`",
        ),
    ] {
        let found = errors(&admin(&members));
        assert!(
            found.iter().any(|error| error.contains(expected)),
            "{members}: {found:?}"
        );
    }
    for issuer in [
        "http://id.example.com",
        "https://id.example.com?x=1",
        "javascript:alert(1)",
        "id.example.com",
        "",
    ] {
        let sign_in = format!("signIn: {{issuer: '{issuer}', clientId: fanlight}}");
        let found = errors(&admin(&format!("{public}, {ROLES}, {sign_in}")));
        assert!(
            found
                .iter()
                .any(|error| error.contains("is not the URL of an issuer")),
            "{issuer}: {found:?}"
        );
    }
}
