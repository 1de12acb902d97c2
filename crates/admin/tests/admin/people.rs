//! Clients of the gateway with fake credentials.

use std::sync::Arc;

use fanlight_admin::AdminSettings;
use fanlight_canonical::identity::{Identity, Principal, Scopes, Source};
use fanlight_config::{AdminRoles, AllowedClients};
use fanlight_credentials::{Authenticate, Authentication, Credentials, Denial};
use http::header::AUTHORIZATION;

pub(crate) const TOKEN: &str = "token-of-operators";
pub(crate) const VIEWER: &str = "key-of-vic";

/// Accepts keys by name, and the user in a proxy's header `x-user`.
#[derive(Debug)]
pub(crate) struct People;

impl Authenticate for People {
    fn authenticate<'a>(&'a self, credentials: &Credentials<'a>) -> Authentication<'a> {
        let text = |name: &str| {
            credentials
                .headers
                .get(name)
                .and_then(|value| value.to_str().ok())
        };
        let Some(shown) = text(AUTHORIZATION.as_str()) else {
            let named = text("x-user").map(|name| identity(name, Source::Proxy, &["ops"]));
            return Authentication::Ready(named.map(Arc::new).ok_or(Denial::Missing));
        };
        let outcome = match shown.strip_prefix("Bearer ").unwrap_or_default() {
            "key-of-ann" => Ok(identity("ann", Source::Key, &["ops"])),
            VIEWER => Ok(identity("vic", Source::Key, &["staff"])),
            "key-of-bob" => Ok(identity("bob", Source::Key, &["staff"])),
            "key-of-sue" => Ok(identity("sue", Source::Key, &["seniors"])),
            "key-of-eve" => Ok(identity("eve", Source::Key, &["others"])),
            "key-without-scopes" => Ok(Identity {
                scopes: Scopes::All,
                ..identity("bot", Source::Key, &[])
            }),
            "key-with-role" => Ok(identity("cat", Source::Key, &[])),
            // This user looks to people like an operator, but is not one.
            "token-like-ann" => Ok(Identity {
                name: "ann".into(),
                principal: Principal::new("https://id.example", "root"),
                scopes: Scopes::parse("ops group:ops user:key#cat operator"),
                ..identity("ann", Source::Token, &["Ops", "key#cat", "user:key#cat"])
            }),
            "token-of-another-cat" => Ok(Identity {
                principal: Principal::new("https://id.example", "cat"),
                ..identity("cat", Source::Token, &[])
            }),
            "key-for-an-endpoint" => {
                let endpoints = ["/mcp", "/api", "/admin"].map(Arc::from);
                Ok(Identity {
                    endpoints: Some(Arc::from(endpoints)),
                    ..identity("dan", Source::Key, &["ops"])
                })
            }
            _ => Err(Denial::Invalid("the key is not known".into())),
        };
        // The outcome is pending, as with an issuer that must be asked.
        Authentication::Pending(Box::pin(async { outcome.map(Arc::new) }))
    }
}

pub(crate) fn identity(name: &str, source: Source, groups: &[&str]) -> Identity {
    let groups = groups.iter().map(|group| Arc::from(*group)).collect();
    let principal = Principal::new(source.as_str(), name);
    Identity {
        principal,
        name: name.into(),
        source,
        groups,
        scopes: Scopes::parse(""),
        ..Identity::anonymous()
    }
}

/// The group `ops` operates; the group `seniors` approves; the group `staff`, and the key `cat`, view.
pub(crate) fn roles() -> AdminRoles {
    let group = |name: &str| AllowedClients::Group(name.into());
    AdminRoles {
        operator: vec![group("ops")],
        approver: vec![group("seniors")],
        viewer: vec![group("staff"), AllowedClients::User("key#cat".into())],
    }
}

/// A token, and roles.
pub(crate) fn settings() -> AdminSettings {
    AdminSettings {
        token: Some(TOKEN.into()),
        roles: roles(),
        comparable: vec![vec!["key".into()]],
        ..AdminSettings::default()
    }
}
