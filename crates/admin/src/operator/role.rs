//! What operators may do.

use std::fmt;

use fanlight_canonical::identity::{Identity, Scopes, Source};

/// What an operator may do. Each role includes those before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Role {
    /// Look at everything, and change nothing.
    Viewer,
    /// Also answer the calls that wait for approval.
    Approver,
    /// Everything: call tools, switch and restart servers, reload, end sessions.
    Operator,
}

impl Role {
    /// Its name in the configuration and the API.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Viewer => "viewer",
            Self::Approver => "approver",
            Self::Operator => "operator",
        }
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Which identities have which role.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Roles {
    /// Those of operators.
    pub operator: RoleRule,
    /// Those of approvers.
    pub approver: RoleRule,
    /// Those of viewers.
    pub viewer: RoleRule,
}

/// Who has a role: one of these groups or scopes is enough.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RoleRule {
    /// Groups of which a member has it.
    pub groups: Vec<String>,
    /// Scopes with which an identity has it.
    pub scopes: Vec<String>,
}

impl Roles {
    /// Whether no identity has a role.
    pub(crate) fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// The role of an identity, if it has one. A client that is not authenticated has none.
    pub(crate) fn of(&self, identity: &Identity) -> Option<Role> {
        if identity.source == Source::Anonymous {
            return None;
        }
        let rules = [
            (Role::Operator, &self.operator),
            (Role::Approver, &self.approver),
            (Role::Viewer, &self.viewer),
        ];
        rules
            .into_iter()
            .find(|(_, rule)| rule.holds_for(identity))
            .map(|(role, _)| role)
    }
}

impl RoleRule {
    /// An identity that nothing restricts, such as a key without scopes, was made for clients: it has no scope here.
    fn holds_for(&self, identity: &Identity) -> bool {
        let has_scope = |scope: &String| match &identity.scopes {
            Scopes::All => false,
            Scopes::Only(scopes) => scopes.contains(scope.as_str()),
        };
        self.groups
            .iter()
            .any(|group| identity.groups.iter().any(|one| **one == **group))
            || self.scopes.iter().any(has_scope)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    fn identity(groups: &[&str], scopes: Scopes) -> Identity {
        let groups = groups.iter().map(|group| Arc::from(*group)).collect();
        Identity {
            groups,
            scopes,
            source: Source::Key,
            ..Identity::anonymous()
        }
    }

    fn roles() -> Roles {
        let rule = |group: &str, scope: &str| RoleRule {
            groups: vec![group.into()],
            scopes: vec![scope.into()],
        };
        Roles {
            operator: rule("ops", "admin:change"),
            approver: rule("seniors", "admin:approve"),
            viewer: rule("staff", "admin:read"),
        }
    }

    #[test]
    fn role_is_the_highest_that_a_group_or_scope_gives() {
        let roles = roles();
        let of = |groups: &[&str], scopes: &str| roles.of(&identity(groups, Scopes::parse(scopes)));
        assert_eq!(of(&["staff", "ops"], ""), Some(Role::Operator));
        assert_eq!(of(&["staff"], "admin:change"), Some(Role::Operator));
        assert_eq!(of(&["staff", "seniors"], ""), Some(Role::Approver));
        assert_eq!(of(&["ops"], "admin:approve"), Some(Role::Operator));
        assert_eq!(of(&["staff"], ""), Some(Role::Viewer));
        assert_eq!(of(&[], "admin:read mcp:call"), Some(Role::Viewer));
        for (groups, scopes) in [
            (&["Ops", "op", "ops "][..], "admin admin:changes"),
            (&[], ""),
            (&["admin:change"], "ops"),
        ] {
            assert_eq!(of(groups, scopes), None, "{groups:?} {scopes}");
        }
        assert!(Role::Viewer < Role::Approver && Role::Approver < Role::Operator);
    }

    #[test]
    fn unrestricted_and_unauthenticated_identities_have_no_role_by_scope() {
        assert_eq!(roles().of(&identity(&[], Scopes::All)), None);
        let anonymous = Identity {
            groups: Arc::from([Arc::from("ops")]),
            ..Identity::anonymous()
        };
        assert_eq!(roles().of(&anonymous), None);
        assert_eq!(Roles::default().of(&identity(&["ops"], Scopes::All)), None);
    }
}
