//! The roles of operators.

use fanlight_canonical::identity::{Identity, Source};
use fanlight_config::{AdminRoles, AllowedClients};

fanlight_protocol::named! {
    /// A role, which decides what an operator may do. Each role includes the roles before it.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
    pub enum Role {
        /// May see everything, and change nothing.
        Viewer = "viewer",
        /// May also answer calls that wait for approval.
        Approver = "approver",
        /// May do everything: call tools, switch and restart servers, reload, end sessions.
        Operator = "operator",
    }
}

/// The role of an identity, if it has one. A client that is not authenticated has none. Names for
/// people do not count, because users who can choose their name could choose an operator's.
pub(crate) fn role_of(identity: &Identity, roles: &AdminRoles) -> Option<Role> {
    if identity.source == Source::Anonymous {
        return None;
    }
    let id = identity.principal.id()?;
    let is_member = |member: &AllowedClients| match member {
        AllowedClients::Group(name) => identity.groups.iter().any(|group| **group == *name),
        AllowedClients::User(user) => *user == id,
        // A valid configuration has none of these here.
        AllowedClients::Scope(_) | AllowedClients::Anybody => false,
    };
    let roles = [
        (Role::Operator, &roles.operator),
        (Role::Approver, &roles.approver),
        (Role::Viewer, &roles.viewer),
    ];
    roles
        .into_iter()
        .find(|(_, members)| members.iter().any(is_member))
        .map(|(role, _)| role)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use fanlight_canonical::identity::{Principal, Scopes};

    use super::*;

    fn identity(issuer: &str, subject: &str, groups: &[&str]) -> Identity {
        let groups = groups.iter().map(|group| Arc::from(*group)).collect();
        Identity {
            principal: Principal::new(issuer, subject),
            groups,
            source: Source::Token,
            ..Identity::anonymous()
        }
    }

    fn roles() -> AdminRoles {
        let members = |group: &str, user: &str| {
            vec![
                AllowedClients::Group(group.into()),
                AllowedClients::User(user.into()),
            ]
        };
        AdminRoles {
            operator: members("ops", "https://id.example#root"),
            approver: members("seniors", "https://id.example#sue"),
            viewer: members("staff", "key#dashboard"),
        }
    }

    #[test]
    fn role_is_the_highest_that_a_group_or_the_identity_has() {
        let roles = roles();
        let of = |subject, groups: &[&str]| {
            role_of(&identity("https://id.example", subject, groups), &roles)
        };
        assert_eq!(of("x", &["staff", "ops"]), Some(Role::Operator));
        assert_eq!(of("root", &["staff"]), Some(Role::Operator));
        assert_eq!(of("x", &["staff", "seniors"]), Some(Role::Approver));
        assert_eq!(of("sue", &["ops"]), Some(Role::Operator));
        assert_eq!(of("x", &["staff"]), Some(Role::Viewer));
        let key = identity("fanlight:key", "dashboard", &[]);
        assert_eq!(role_of(&key, &roles), Some(Role::Viewer));
        assert!(Role::Viewer < Role::Approver && Role::Approver < Role::Operator);
    }

    #[test]
    fn similar_names_groups_and_scopes_give_no_role() {
        let roles = roles();
        for (issuer, subject, groups) in [
            (
                "https://id.example",
                "x",
                &["Ops", "op", "ops ", "key#dashboard"][..],
            ),
            ("https://id.example/", "root", &[]),
            ("https://other.example", "root", &[]),
            ("https://id.example", "Root", &[]),
            ("https://id.example", "dashboard", &[]),
            ("fanlight:key", "root", &[]),
            ("fanlight:proxy", "dashboard", &[]),
            ("https://id.example", "https://id.example#root", &[]),
        ] {
            let named = Identity {
                name: Arc::from("https://id.example#root"),
                scopes: Scopes::parse("ops operator group:ops"),
                ..identity(issuer, subject, groups)
            };
            assert_eq!(
                role_of(&named, &roles),
                None,
                "{issuer} {subject} {groups:?}"
            );
            assert_eq!(
                role_of(
                    &Identity {
                        scopes: Scopes::All,
                        ..named
                    },
                    &roles
                ),
                None
            );
        }
        let anonymous = Identity {
            groups: Arc::from([Arc::from("ops")]),
            ..Identity::anonymous()
        };
        assert_eq!(role_of(&anonymous, &roles), None);
        assert_eq!(
            role_of(
                &identity("https://id.example", "root", &["ops"]),
                &AdminRoles::default()
            ),
            None
        );
    }
}
