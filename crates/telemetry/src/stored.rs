//! Values of a message as a span stores them: shortened, without secrets, and in little memory.

use std::fmt;

use fanlight_protocol::uri::{KEPT_RESULT, kept_result};
use fanlight_protocol::{Method, short_digest};
use smol_str::SmolStr;

use crate::text::truncated;
use crate::{Id, Subject, Target};

/// The limit of an attribute's value that a peer chooses, in characters. Collectors cut long values
/// as well. Recorded content, which people want to see whole, has its own limit.
const LONGEST_VALUE: usize = 512;

/// The id of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum StoredId {
    Number(i64),
    Text(SmolStr),
}

/// The id of a session, which is a secret. Computing its digest takes longer than everything else
/// about a span, so only readers compute it.
pub(crate) struct SessionId(pub(crate) SmolStr);

impl SessionId {
    /// The first bytes of the SHA-256 digest of the id, in hexadecimal.
    pub(crate) fn digest(&self) -> String {
        short_digest(&self.0)
    }
}

pub(crate) fn method(method: &Method) -> Method {
    match method {
        Method::Other(name) => Method::Other(truncated(name, LONGEST_VALUE).into()),
        known => known.clone(),
    }
}

pub(crate) fn subject(target: Target<'_>) -> Subject {
    let text = |name| SmolStr::new(truncated(name, LONGEST_VALUE));
    match target {
        Target::None => Subject::None,
        Target::Tool(name) => Subject::Tool(text(name)),
        Target::Prompt(name) => Subject::Prompt(text(name)),
        Target::Resource(uri) => Subject::Resource(recorded_uri(uri)),
    }
}

pub(crate) fn id(id: Id<'_>) -> Option<StoredId> {
    let text = |text: &str| StoredId::Text(SmolStr::new(truncated(text, LONGEST_VALUE)));
    match id {
        Id::Number(number) => Some(StoredId::Number(number)),
        Id::Json(json) if json.is_null() => None,
        Id::Json(json) => Some(
            json.as_str()
                .map_or_else(|| text(json.as_text()), |value| text(&value)),
        ),
    }
}

/// The URI without user information, query and fragment, which could contain secrets.
pub fn recorded_uri(uri: &str) -> SmolStr {
    let uri = kept_result(uri).map_or(uri, |_| KEPT_RESULT);
    let end = uri.find(['?', '#']).unwrap_or(uri.len());
    let plain = uri.get(..end).unwrap_or_default();
    let Some((scheme, rest)) = plain.split_once("://") else {
        return SmolStr::new(truncated(plain, LONGEST_VALUE));
    };
    let authority_end = rest.find('/').unwrap_or(rest.len());
    let (authority, path) = rest.split_at_checked(authority_end).unwrap_or((rest, ""));
    let host = authority
        .rsplit_once('@')
        .map_or(authority, |(_, host)| host);
    SmolStr::new(truncated(
        &format!("{scheme}://{host}{path}"),
        LONGEST_VALUE,
    ))
}

impl fmt::Debug for SessionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SessionId")
    }
}

#[cfg(test)]
mod tests {
    use fanlight_protocol::Json;

    use super::*;

    #[test]
    fn uri_loses_query_fragment_and_user_info() {
        for (given, recorded) in [
            (
                "https://me:pw@host:8443/a/b?token=1#f",
                "https://host:8443/a/b",
            ),
            ("postgres://u:p@ss@db/customers", "postgres://db/customers"),
            ("file:///home/x@y", "file:///home/x@y"),
            ("https://u:p@host", "https://host"),
            ("urn:a:b?c", "urn:a:b"),
            ("memo", "memo"),
        ] {
            assert_eq!(recorded_uri(given), recorded);
        }
    }

    #[test]
    fn id_is_stored_unless_null() {
        let of = |text: &'static str| id(Id::Json(&Json::literal(text)));
        assert_eq!(of("7"), Some(StoredId::Text("7".into())));
        assert_eq!(of("\"a\\u0062\""), Some(StoredId::Text("ab".into())));
        assert_eq!(of("null"), None);
        assert_eq!(id(Id::Number(-3)), Some(StoredId::Number(-3)));
    }

    #[test]
    fn session_id_is_shown_as_digest() {
        let session = SessionId("s1".into());
        assert_eq!(
            (session.digest().as_str(), format!("{session:?}").as_str()),
            ("e8bc163c82eee187", "SessionId")
        );
    }

    #[test]
    fn values_are_truncated_between_characters() {
        let long = "é".repeat(5000);
        let Subject::Tool(name) = subject(Target::Tool(&long)) else {
            panic!("a tool")
        };
        assert_eq!(name.chars().count(), LONGEST_VALUE);
        assert_eq!(
            method(&Method::Other(long.into())).as_str().chars().count(),
            LONGEST_VALUE
        );
    }
}
