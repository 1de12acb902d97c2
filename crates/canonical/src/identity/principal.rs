//! Principals, which own everything that is made for a client.

use std::sync::Arc;

/// The prefix of Fanlight's own issuers.
const OWN: &str = "fanlight:";

/// The owner of state: sessions, connections to servers, tasks, subscriptions, suspended calls and
/// kept results. Nothing that belongs to one principal may reach another.
///
/// All clients without authentication are [`Principal::anonymous`].
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Principal(Kind);

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Kind {
    /// Fanlight itself, for requests that no client has made.
    Gateway,
    /// Any operator, for calls from the operators' page.
    Operator,
    /// Every client without authentication.
    Anonymous,
    /// An authenticated client.
    Named(Arc<Name>),
}

/// The pair is unique: the same subject of two issuers is two principals.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Name {
    issuer: Box<str>,
    subject: Box<str>,
}

impl Principal {
    /// Fanlight itself, for requests that no client has made.
    pub const fn gateway() -> Self {
        Self(Kind::Gateway)
    }

    /// Every client without authentication.
    pub const fn anonymous() -> Self {
        Self(Kind::Anonymous)
    }

    /// The client that `issuer` knows as `subject`.
    pub fn new(issuer: &str, subject: &str) -> Self {
        Self(Kind::Named(Arc::new(Name {
            issuer: issuer.into(),
            subject: subject.into(),
        })))
    }

    /// Any operator, for calls from the operators' page.
    pub const fn operator() -> Self {
        Self(Kind::Operator)
    }

    /// Whether this principal represents all clients without authentication. Then only sessions
    /// distinguish clients.
    pub fn is_anonymous(&self) -> bool {
        matches!(self.0, Kind::Anonymous)
    }

    /// Whether this is an authenticated client. Private data are for such a client alone.
    pub fn is_named(&self) -> bool {
        matches!(self.0, Kind::Named(_))
    }

    /// The issuer and the subject of an authenticated client; otherwise `None`. Fanlight's own
    /// issuers are `key`, `certificate`, `proxy` and `socket`.
    pub fn issuer_and_subject(&self) -> Option<(&str, &str)> {
        match &self.0 {
            Kind::Named(name) => Some((
                name.issuer.strip_prefix(OWN).unwrap_or(&name.issuer),
                &name.subject,
            )),
            _ => None,
        }
    }

    /// The name in policies and in the audit log: the issuer, `#`, and the subject. `None` unless
    /// it is an authenticated client.
    pub fn id(&self) -> Option<String> {
        self.issuer_and_subject()
            .map(|(issuer, subject)| format!("{issuer}#{subject}"))
    }

    /// The principal with these [bytes](Self::to_bytes).
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let (kind, rest) = bytes.split_first()?;
        match (kind, rest) {
            (0, []) => Some(Self::gateway()),
            (1, []) => Some(Self::operator()),
            (2, []) => Some(Self::anonymous()),
            (3, _) => {
                let (length, rest) = rest.split_first_chunk::<8>()?;
                let length = usize::try_from(u64::from_be_bytes(*length)).ok()?;
                let (issuer, subject) = rest.split_at_checked(length)?;
                Some(Self::new(
                    std::str::from_utf8(issuer).ok()?,
                    std::str::from_utf8(subject).ok()?,
                ))
            }
            _ => None,
        }
    }

    /// A description for operators.
    pub fn describe(&self) -> String {
        match &self.0 {
            Kind::Gateway => "Fanlight itself".to_owned(),
            Kind::Operator => "operators".to_owned(),
            Kind::Anonymous => "everyone, since clients are not authenticated".to_owned(),
            Kind::Named(name) => format!("{} ({})", name.subject, name.issuer),
        }
    }

    /// The principal's bytes, which differ for each principal and are equal in every process. Seals
    /// for a client are bound to them.
    pub fn to_bytes(&self) -> Vec<u8> {
        match &self.0 {
            Kind::Gateway => vec![0],
            Kind::Operator => vec![1],
            Kind::Anonymous => vec![2],
            Kind::Named(name) => {
                let length = name.issuer.len() as u64;
                [
                    &[3][..],
                    &length.to_be_bytes(),
                    name.issuer.as_bytes(),
                    name.subject.as_bytes(),
                ]
                .concat()
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn principals_differ_by_issuer_and_subject() {
        let ann = Principal::new("https://a.example", "ann");
        assert_eq!(ann, Principal::new("https://a.example", "ann"));
        assert_ne!(ann, Principal::new("https://b.example", "ann"));
        assert_ne!(ann, Principal::new("https://a.example", "bob"));
        assert_ne!(ann, Principal::anonymous());
        assert_ne!(Principal::operator(), Principal::anonymous());
        assert!(ann.is_named());
        assert_eq!(ann.id().as_deref(), Some("https://a.example#ann"));
        assert_eq!(
            Principal::new("fanlight:key", "ci").id().as_deref(),
            Some("key#ci")
        );
        assert_eq!(Principal::anonymous().id(), None);
        assert!(
            ![
                Principal::operator(),
                Principal::anonymous(),
                Principal::gateway()
            ]
            .iter()
            .any(Principal::is_named)
        );
        let bytes = |issuer, subject| Principal::new(issuer, subject).to_bytes();
        assert_eq!(bytes("a", "bc"), bytes("a", "bc"));
        assert!(
            bytes("a", "bc") != bytes("ab", "c")
                && bytes("", "") != Principal::anonymous().to_bytes()
        );
    }

    #[test]
    fn principal_bytes_differ_as_principals_do() {
        let principals = [
            Principal::anonymous(),
            Principal::operator(),
            Principal::new("a", "bc"),
            Principal::new("ab", "c"),
            Principal::new("", "abc"),
        ];
        for (one, other) in principals
            .iter()
            .flat_map(|one| principals.iter().map(move |other| (one, other)))
        {
            assert_eq!(
                one.to_bytes() == other.to_bytes(),
                one == other,
                "{one:?} {other:?}"
            );
        }
        for principal in &principals {
            assert_eq!(
                Principal::from_bytes(&principal.to_bytes()).as_ref(),
                Some(principal)
            );
        }
        for bytes in [
            &b""[..],
            &[4],
            &[2, 0],
            &[3, 0, 0],
            &[3, 0, 0, 0, 0, 0, 0, 0, 9, 1],
        ] {
            assert_eq!(Principal::from_bytes(bytes), None, "{bytes:?}");
        }
    }
}
