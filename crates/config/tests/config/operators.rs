//! Access to the admin listener: its token, and the roles of identities of `auth`.

use fanlight_config::AllowedClients;

use crate::{errors, good, with_server};

const AUTH: &str = "auth: {oauth: [{issuer: 'https://id.example.com', signIn: {}}], proxy: {header: X-User, from: [10.0.0.0/8]}, \
                    certificates: true}";
const ROLES: &str = "roles: {operator: ['group:ops', 'user:proxy#root'], viewer: 'user:https://id.example.com#ann'}";

fn admin(members: &str) -> String {
    with_server(&format!("admin: {{{members}}}"))
}

fn with_auth(members: &str) -> String {
    with_server(&format!("{AUTH}\nadmin: {{{members}}}"))
}

#[test]
fn roles_are_lists_of_groups_and_users() {
    let config = good(&with_auth(&format!(
        "publicUrl: 'https://Fanlight.example.com:443/', {ROLES}"
    )));
    assert_eq!(
        config.admin.public_url.as_deref(),
        Some("https://fanlight.example.com")
    );
    let (group, user) = (
        |name: &str| AllowedClients::Group(name.into()),
        |name: &str| AllowedClients::User(name.into()),
    );
    assert_eq!(
        config.admin.roles.operator,
        [group("ops"), user("proxy#root")]
    );
    assert_eq!(
        config.admin.roles.viewer,
        [user("https://id.example.com#ann")]
    );
    assert!(!config.admin.is_open() && config.admin.may_listen(&"0.0.0.0:1".parse().unwrap()));
    assert!(good(&admin("")).admin.is_open());
    // Members without effect do not open the listener to other machines.
    assert!(good(&admin("roles: {operator: []}")).admin.is_open());
    for role in ["operator", "approver", "viewer"] {
        let text = with_auth(&format!(
            "listen: '0.0.0.0:8081', roles: {{{role}: 'group:ops'}}"
        ));
        assert!(!good(&text).admin.is_open(), "{role}");
    }
}

#[test]
fn roles_that_nobody_can_have_are_refused() {
    for (members, expected) in [
        (
            "viewerToken: 0123456789abcdef",
            "unknown field `viewerToken`",
        ),
        ("signIn: {}", "unknown field `signIn`"),
        ("roles: {admin: 'group:a'}", "unknown field `admin`"),
        ("roles: {operators: 'group:a'}", "unknown field `operators`"),
        ("roles: {operator: 'group:'}", "cannot have a role"),
        ("roles: {operator: ['']}", "cannot have a role"),
        ("roles: {operator: ops}", "cannot have a role"),
        ("roles: {operator: 'user:ann'}", "cannot have a role"),
        ("roles: {operator: 'key#ci'}", "cannot have a role"),
        ("roles: {operator: '*'}", "cannot have a role"),
        ("roles: {operator: 'scope:admin'}", "cannot have a role"),
        ("roles: {operator: {groups: [ops]}}", "must be a string"),
        (
            "roles: {viewer: 'user:key#ci'}",
            "`key` is no issuer of `auth`",
        ),
        (
            "roles: {viewer: 'user:socket#uid:0'}",
            "`socket` is no issuer of `auth`",
        ),
        (
            "roles: {viewer: 'user:https://id.example.com/#ann'}",
            "`https://id.example.com/` is no issuer of `auth`",
        ),
        (
            "roles: {viewer: 'user:https://ID.example.com#ann'}",
            "is no issuer of `auth`",
        ),
        (
            "publicUrl: 'http://fanlight.example.com'",
            "not a URL under which operators can be served",
        ),
        (
            "publicUrl: 'https://fanlight.example.com/ui'",
            "not a URL under which",
        ),
        (
            "publicUrl: 'https://user@fanlight.example.com'",
            "not a URL under which",
        ),
    ] {
        let found = errors(&with_auth(members));
        assert!(
            found.iter().any(|error| error.contains(expected)),
            "{members}: {found:?}"
        );
    }
    for auth in [
        "",
        "auth: none\n",
        "auth: {socket: true}\n",
        "auth: {certificates: true}\n",
    ] {
        let text = with_server(&format!(
            "{auth}admin: {{roles: {{approver: ['group:ops']}}}}"
        ));
        let found = errors(&text);
        let expected = "`group:ops` never has the role: ";
        assert!(
            found.iter().any(|error| error.contains(expected)),
            "{auth}: {found:?}"
        );
    }
    assert!(
        good(&with_server(
            "auth: {proxy: {header: X-User, groups: X-Groups, from: [10.0.0.0/8]}}\nadmin: {roles: {approver: ['group:ops']}}"
        ))
        .auth
        .methods()
        .is_some()
    );
}
