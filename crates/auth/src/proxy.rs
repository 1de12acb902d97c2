//! The header in which a reverse proxy names its authenticated user.
//!
//! It counts only on connections from the proxy's addresses. That is the connection's own address,
//! never one in a header. On other connections the header is ignored. The proxy must remove the
//! header from its clients' requests: if it adds its own to theirs, there are two, which are
//! refused. A similar name, such as `X_Forwarded_User`, is another header and is not read.

use std::sync::Arc;

use fanlight_canonical::identity::{Identity, Source, Validity};
use fanlight_credentials::{Credentials, Denial};
use http::{HeaderMap, HeaderName};
use tokio_util::sync::CancellationToken;

use crate::settings::{ProxySettings, user};

/// The issuer of these principals.
const ISSUER: &str = "fanlight:proxy";
/// The length limit of a user's or group's name, in bytes.
const MAX_NAME: usize = 1024;
/// The limit of a user's groups.
const MAX_GROUPS: usize = 256;

/// Users named by a proxy.
#[derive(Debug)]
pub(crate) struct Proxy {
    settings: ProxySettings,
    /// Revokes all identities from the proxy.
    pub(crate) revoked: CancellationToken,
}

impl Proxy {
    /// The method with these settings. If they are unchanged, `current` is kept with its state.
    pub(crate) fn renew(
        current: Option<&Arc<Self>>,
        settings: Option<&ProxySettings>,
    ) -> Option<Arc<Self>> {
        let settings = settings?;
        if let Some(current) = current.filter(|current| current.settings == *settings) {
            return Some(Arc::clone(current));
        }
        Some(Arc::new(Self {
            settings: settings.clone(),
            revoked: CancellationToken::new(),
        }))
    }

    /// The identity named by the proxy; `None` if the connection is not the proxy's, or names none.
    pub(crate) fn identity(
        &self,
        credentials: &Credentials<'_>,
    ) -> Option<Result<Arc<Identity>, Denial>> {
        let address = credentials.connection.peer?.ip();
        let plain = address.to_canonical();
        if !self
            .settings
            .from
            .iter()
            .any(|network| network.contains(&address) || network.contains(&plain))
        {
            return None;
        }
        let name = match single_value(credentials.headers, &self.settings.header) {
            Ok(name) => name?,
            Err(denial) => return Some(Err(denial)),
        };
        Some(self.user(name, credentials.headers))
    }

    fn user(&self, name: &str, headers: &HeaderMap) -> Result<Arc<Identity>, Denial> {
        // With an empty name, a proxy means a client that it has not authenticated.
        if name.is_empty() {
            return Err(Denial::Missing);
        }
        if name.len() > MAX_NAME {
            return Err(Denial::Malformed("the name of the user is too long".into()));
        }
        let groups = match &self.settings.groups {
            Some(header) => groups(single_value(headers, header)?.unwrap_or_default())?,
            None => Arc::default(),
        };
        let validity = Validity {
            expires: None,
            revoked: self.revoked.clone(),
        };
        Ok(Arc::new(Identity {
            groups,
            ..user(ISSUER, name, Source::Proxy, validity)
        }))
    }
}

/// The value of the only field with this name: UTF-8 without control characters, since people's
/// names are not all ASCII.
fn single_value<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Result<Option<&'a str>, Denial> {
    let mut fields = headers.get_all(name).iter();
    let Some(field) = fields.next() else {
        return Ok(None);
    };
    if fields.next().is_some() {
        return Err(Denial::Malformed(
            "the header with the user or the groups occurs twice".into(),
        ));
    }
    let text = std::str::from_utf8(field.as_bytes())
        .ok()
        .filter(|text| !text.chars().any(char::is_control));
    let malformed =
        || Denial::Malformed("the header with the user or the groups is not text".into());
    text.map(|text| Some(trimmed(text))).ok_or_else(malformed)
}

/// Removes the white space that HTTP allows around a value (RFC 9110, 5.6.3). Other white space is
/// part of the name: with a Unicode space it is another user's name.
fn trimmed(text: &str) -> &str {
    text.trim_matches([' ', '\t'])
}

/// The groups in a comma-separated list.
fn groups(list: &str) -> Result<Arc<[Arc<str>]>, Denial> {
    let groups: Arc<[Arc<str>]> = list
        .split(',')
        .map(trimmed)
        .filter(|group| !group.is_empty())
        .take(MAX_GROUPS + 1)
        .map(Arc::from)
        .collect();
    if groups.len() > MAX_GROUPS || groups.iter().any(|group| group.len() > MAX_NAME) {
        return Err(Denial::Malformed(
            "the user has too many groups, or a group with too long a name".into(),
        ));
    }
    Ok(groups)
}

#[cfg(test)]
mod tests {
    use std::net::{IpAddr, SocketAddr};

    use fanlight_canonical::identity::Principal;
    use fanlight_credentials::{ConnectionFacts, SocketPeer};
    use http::HeaderValue;

    use super::*;
    use crate::testing::at_mcp;

    fn proxy(from: &[&str]) -> Arc<Proxy> {
        let settings = ProxySettings {
            header: HeaderName::from_static("x-forwarded-user"),
            groups: Some(HeaderName::from_static("x-forwarded-groups")),
            from: from
                .iter()
                .map(|network| network.parse().unwrap())
                .collect(),
        };
        Proxy::renew(None, Some(&settings)).unwrap()
    }

    /// The outcome for a request with these header fields on a connection from `peer`.
    fn outcome(
        proxy: &Proxy,
        peer: &str,
        fields: &[(&'static str, &[u8])],
    ) -> Option<Result<Arc<Identity>, Denial>> {
        let mut headers = HeaderMap::new();
        for (name, value) in fields {
            headers.append(*name, HeaderValue::from_bytes(value).unwrap());
        }
        let peer: Option<IpAddr> = peer.parse().ok();
        let socket = peer.is_none().then_some(SocketPeer { user: 1, group: 1 });
        let peer = peer.map(|peer| SocketAddr::from((peer, 1)));
        let connection = ConnectionFacts {
            peer,
            socket,
            ..ConnectionFacts::default()
        };
        proxy.identity(&at_mcp(&headers, &connection))
    }

    #[test]
    fn header_names_the_user_on_connections_of_the_proxy() {
        let proxy = proxy(&["10.0.0.0/8", "fd00::/8"]);
        let ann: (&str, &[u8]) = ("x-forwarded-user", b"ann");
        for peer in ["10.9.9.9", "::ffff:10.9.9.9", "fd00::1"] {
            let identity = outcome(&proxy, peer, &[ann, ("x-forwarded-groups", b"dev, ops,,")])
                .unwrap()
                .unwrap();
            assert_eq!(identity.principal, Principal::new("fanlight:proxy", "ann"));
            assert_eq!(
                identity
                    .groups
                    .iter()
                    .map(|group| &**group)
                    .collect::<Vec<_>>(),
                ["dev", "ops"]
            );
        }
        for peer in [
            "11.0.0.1",
            "::ffff:11.0.0.1",
            "::1",
            "127.0.0.1",
            "::10.0.0.1",
            "a Unix socket",
        ] {
            assert!(outcome(&proxy, peer, &[ann]).is_none(), "{peer}");
            // An address in a header does not count.
            let claimed: (&str, &[u8]) = ("x-forwarded-for", b"10.0.0.1");
            assert!(
                outcome(
                    &proxy,
                    peer,
                    &[ann, claimed, ("forwarded", b"for=10.0.0.1")]
                )
                .is_none(),
                "{peer}"
            );
        }
    }

    #[test]
    fn header_that_is_there_twice_is_refused() {
        let proxy = proxy(&["10.0.0.0/8"]);
        let denied = |fields: &[(&'static str, &[u8])]| match outcome(&proxy, "10.0.0.1", fields) {
            Some(Err(denial)) => denial,
            other => panic!("{other:?}"),
        };
        let ann: (&str, &[u8]) = ("x-forwarded-user", b"ann");
        assert!(matches!(
            denied(&[("x-forwarded-user", b"root"), ann]),
            Denial::Malformed(_)
        ));
        assert!(matches!(denied(&[ann, ann]), Denial::Malformed(_)));
        let (one, other): ((&str, &[u8]), _) = (
            ("x-forwarded-groups", b"dev"),
            ("x-forwarded-groups", &b"ops"[..]),
        );
        assert!(matches!(denied(&[ann, one, other]), Denial::Malformed(_)));
        assert!(matches!(
            denied(&[("x-forwarded-user", b"\xff")]),
            Denial::Malformed(_)
        ));
        assert!(matches!(
            denied(&[("x-forwarded-user", b"a\tb")]),
            Denial::Malformed(_)
        ));
        assert!(matches!(
            denied(&[("x-forwarded-user", "a\u{85}b".as_bytes())]),
            Denial::Malformed(_)
        ));
        assert!(matches!(
            denied(&[("x-forwarded-user", "x".repeat(1025).as_bytes())]),
            Denial::Malformed(_)
        ));
        assert!(matches!(
            denied(&[ann, ("x-forwarded-groups", "g,".repeat(257).as_bytes())]),
            Denial::Malformed(_)
        ));
        assert_eq!(denied(&[("x-forwarded-user", b"")]), Denial::Missing);
    }

    #[test]
    fn white_space_of_unicode_is_part_of_a_name() {
        let proxy = proxy(&["10.0.0.0/8"]);
        let ann = Principal::new("fanlight:proxy", "ann");
        let user = |name: &str, groups: &str| {
            let fields = [
                ("x-forwarded-user", name.as_bytes()),
                ("x-forwarded-groups", groups.as_bytes()),
            ];
            outcome(&proxy, "10.0.0.1", &fields).unwrap().unwrap()
        };
        assert_eq!(user("  ann ", " ops , dev").principal, ann);
        for space in ['\u{a0}', '\u{2003}', '\u{3000}', '\u{2028}'] {
            for name in [format!("{space}ann"), format!("ann{space}")] {
                let identity = user(&name, &format!("{space}ops"));
                assert_eq!(
                    (&identity.principal, &*identity.name),
                    (&Principal::new("fanlight:proxy", &name), &*name)
                );
                assert_eq!(*identity.groups, [Arc::from(format!("{space}ops"))]);
            }
        }
    }

    #[test]
    fn headers_of_similar_names_are_not_read() {
        let proxy = proxy(&["10.0.0.0/8"]);
        for name in [
            "x_forwarded_user",
            "x-forwarded_user",
            "x-forwarded-user-",
            "xforwardeduser",
        ] {
            assert!(
                outcome(&proxy, "10.0.0.1", &[(name, b"root")]).is_none(),
                "{name}"
            );
            let both: [(&str, &[u8]); 2] = [
                (name, b"root"),
                ("x-forwarded-user", "J\u{fc}rgen".as_bytes()),
            ];
            let identity = outcome(&proxy, "10.0.0.1", &both).unwrap().unwrap();
            assert_eq!(&*identity.name, "J\u{fc}rgen");
        }
    }

    #[test]
    fn user_without_groups_has_none() {
        let proxy = proxy(&["10.0.0.0/8"]);
        let identity = outcome(
            &proxy,
            "10.0.0.1",
            &[("x-forwarded-user", b"ann, O=Example")],
        )
        .unwrap()
        .unwrap();
        assert!(identity.groups.is_empty());
        assert_eq!(&*identity.name, "ann, O=Example");
    }
}
