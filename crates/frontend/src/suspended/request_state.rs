//! `requestState`: an answer that asks for input gives this state to the client, which returns it
//! with the input. It is sealed, so that clients can neither read nor change it. It is bound to its
//! request, its principal and its endpoint.
//!
//! Source: 2026-07-28 basic/patterns/mrtr, Server Requirements 4 and 5.

use aws_lc_rs::digest::{Context, SHA256};
use bytes::Bytes;
use fanlight_canonical::{HandleKind, HandleSeal, Holder, ProcessRun};
use fanlight_protocol::digest::{Sha256, finished};
use fanlight_protocol::json::{Kind, MAX_NESTING};
use fanlight_protocol::seal::{KeyError, Keys};
use fanlight_protocol::{INPUT_RESPONSES, Json, Method, REQUEST_STATE};

/// The maximum length of a state in bytes. A constant, since no call of Fanlight needs a longer
/// one.
const LONGEST: usize = 32 << 10;
/// The maximum size of an error in a state, in bytes. A constant: the client has to send the state
/// back, and a larger error is sent without a state.
const LARGEST_ERROR: usize = 16 << 10;

/// The digest of the request that a state belongs to.
pub(super) type RequestDigest = Sha256;
/// The random id of a suspended call.
pub(super) type SuspendedId = [u8; 16];

/// The state of a suspended call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct State {
    pub(super) id: SuspendedId,
    /// The number of times that the call had been suspended when this state was made.
    pub(super) round: u32,
    /// The expiry time, in milliseconds since the Unix epoch.
    pub(super) expires: u64,
    pub(super) digest: RequestDigest,
}

/// The state of a call that ended with URL elicitations. The call is repeated once the user has
/// followed the URLs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct UrlElicitation {
    /// The expiry, as in [`State`].
    pub(super) expires: u64,
    pub(super) digest: RequestDigest,
    /// The server's error object, as written.
    pub(super) error: Json,
}

/// The meaning of an opened text.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Opened {
    /// A text that these keys did not seal: perhaps a state of a modern server.
    Foreign,
    /// The text names one of Fanlight's keys, but that key did not seal it for this principal.
    Forged,
    /// A state of a call that this other process, or an earlier run of this one, keeps.
    Elsewhere(ProcessRun),
    Suspended(State),
    UrlElicitation(UrlElicitation),
    /// A server's state, byte for byte.
    Server(Json),
}

/// Every state begins with this prefix and the name of its key. So a forged state differs from a
/// server's state, even if that server is another Fanlight.
const PREFIX: &str = "fanlight.";

/// Seals and opens states.
#[derive(Debug)]
pub(super) struct StateSeal(HandleSeal);

impl StateSeal {
    pub(super) fn new(keys: &Keys) -> Result<Self, KeyError> {
        HandleSeal::new(keys).map(Self)
    }

    pub(super) fn seal(&self, state: &State, owner: &Holder) -> Option<String> {
        let (round, expires) = (state.round.to_be_bytes(), state.expires.to_be_bytes());
        let content = [&state.id[..], &round[..], &expires[..], &state.digest[..]].concat();
        self.seal_content(HandleKind::SuspendedCall, &content, owner)
    }

    /// Seals the state of a URL elicitation; `None` also if the error is too large.
    pub(super) fn seal_url_elicitation(
        &self,
        state: &UrlElicitation,
        owner: &Holder,
    ) -> Option<String> {
        let (expires, error) = (state.expires.to_be_bytes(), state.error.bytes());
        let fits = error.len() <= LARGEST_ERROR;
        let content = || [&expires[..], &state.digest[..], error].concat();
        fits.then(|| self.seal_content(HandleKind::UrlElicitation, &content(), owner))?
    }

    /// Seals a server's state for the client that gets it. The server may see all clients of
    /// Fanlight as one.
    pub(super) fn seal_server_state(&self, state: &Json, owner: &Holder) -> Option<String> {
        self.seal_content(HandleKind::ServerState, state.bytes(), owner)
    }

    fn seal_content(&self, kind: HandleKind, content: &[u8], owner: &Holder) -> Option<String> {
        Some(format!(
            "{PREFIX}{}.{}",
            self.0.key_name(),
            self.0.seal(kind, content, owner)?
        ))
    }

    pub(super) fn open(&self, text: &str, owner: &Holder) -> Opened {
        let Some((name, sealed)) = text
            .strip_prefix(PREFIX)
            .and_then(|rest| rest.split_once('.'))
        else {
            return Opened::Foreign;
        };
        if !self.0.has_key(name) {
            return Opened::Foreign;
        }
        // Server states may have any length; they are sealed only for authenticated clients.
        let sealed = Some(sealed)
            .filter(|sealed| sealed.len() <= LONGEST || !owner.principal().is_anonymous());
        let Some(handle) = sealed.and_then(|sealed| self.0.open(sealed, owner)) else {
            return Opened::Forged;
        };
        let opened = match handle.kind {
            HandleKind::SuspendedCall => match handle.other_run {
                Some(run) => Some(Opened::Elsewhere(run)),
                None => State::read(&handle.content).map(Opened::Suspended),
            },
            HandleKind::UrlElicitation => {
                UrlElicitation::read(&handle.content).map(Opened::UrlElicitation)
            }
            HandleKind::ServerState => Json::parse(Bytes::from(handle.content), MAX_NESTING)
                .ok()
                .map(Opened::Server),
            _ => None,
        };
        opened.unwrap_or(Opened::Forged)
    }
}

impl State {
    fn read(bytes: &[u8]) -> Option<Self> {
        let (id, rest) = bytes.split_first_chunk()?;
        let (round, rest) = rest.split_first_chunk()?;
        let (expires, rest) = rest.split_first_chunk()?;
        let digest = rest.try_into().ok()?;
        Some(Self {
            id: *id,
            round: u32::from_be_bytes(*round),
            expires: u64::from_be_bytes(*expires),
            digest,
        })
    }
}

impl UrlElicitation {
    fn read(bytes: &[u8]) -> Option<Self> {
        let (expires, rest) = bytes.split_first_chunk()?;
        let (digest, error) = rest.split_first_chunk()?;
        let error = Json::parse(Bytes::copy_from_slice(error), MAX_NESTING).ok()?;
        Some(Self {
            expires: u64::from_be_bytes(*expires),
            digest: *digest,
            error,
        })
    }
}

/// The digest of a request: its method, and its params without the members that differ between
/// rounds. White space and member order do not matter, since a client may write its params again
/// for each round.
pub(super) fn request_digest(method: &Method, params: Option<&Json>) -> RequestDigest {
    let mut digest = Context::new(&SHA256);
    text(&mut digest, method.as_str());
    if let Some(params) = params {
        object(
            &mut digest,
            params,
            &["_meta", INPUT_RESPONSES, REQUEST_STATE],
        );
    }
    finished(digest)
}

fn value(digest: &mut Context, json: &Json) {
    match json.kind() {
        Kind::Object => object(digest, json, &[]),
        Kind::Array => {
            digest.update(b"[");
            json.elements()
                .for_each(|element| value(digest, &json.slice(element)));
            digest.update(b"]");
        }
        Kind::String => {
            digest.update(b"s");
            match json.as_str() {
                Some(decoded) => text(digest, &decoded),
                None => text(digest, json.as_text()),
            }
        }
        _ => {
            digest.update(b"v");
            text(digest, json.as_text());
        }
    }
}

fn object(digest: &mut Context, json: &Json, without: &[&str]) {
    let mut members: Vec<(String, Json)> = json
        .members()
        .map(|member| {
            let name = member
                .name(json)
                .unwrap_or_else(|| json.slice(member.key.clone()).as_text().to_owned());
            (name, json.slice(member.value))
        })
        .filter(|(name, _)| !without.contains(&name.as_str()))
        .collect();
    // The sort is stable: members with the same name keep their order.
    members.sort_by(|(a, _), (b, _)| a.cmp(b));
    digest.update(b"{");
    for (name, member) in &members {
        text(digest, name);
        value(digest, member);
    }
    digest.update(b"}");
}

/// Adds the text after its length, so that different sequences of texts have different digests.
fn text(digest: &mut Context, text: &str) {
    digest.update(&(text.len() as u64).to_be_bytes());
    digest.update(text.as_bytes());
}

#[cfg(test)]
mod tests {
    use fanlight_canonical::{Endpoint, Principal};

    use super::*;

    const ANN: Holder = Holder::new(Principal::anonymous(), Endpoint::Default);
    const STATE: State = State {
        id: [7; 16],
        round: 3,
        expires: u64::MAX - 1,
        digest: [9; 32],
    };

    #[test]
    fn state_is_own_forged_or_foreign() {
        let new =
            |keys: &[u8]| StateSeal::new(&Keys::new(keys.iter().map(|key| [*key; 32]))).unwrap();
        let (ours, theirs) = (new(&[]), new(&[]));
        let text = ours.seal(&STATE, &ANN).unwrap();
        assert_eq!(ours.open(&text, &ANN), Opened::Suspended(STATE));
        assert_eq!(theirs.open(&text, &ANN), Opened::Foreign);
        assert_eq!(
            ours.open(&text, &Principal::operator().into()),
            Opened::Forged
        );
        let elsewhere = Holder::new(Principal::anonymous(), Endpoint::from_path("/mcp/readers"));
        assert_eq!(ours.open(&text, &elsewhere), Opened::Forged);
        assert_eq!(ours.open("opaque", &ANN), Opened::Foreign);
        assert_eq!(
            new(&[2, 1]).open(&new(&[1]).seal(&STATE, &ANN).unwrap(), &ANN),
            Opened::Suspended(STATE)
        );
        assert_eq!(
            new(&[1]).open(&new(&[2, 1]).seal(&STATE, &ANN).unwrap(), &ANN),
            Opened::Foreign
        );
        let prefix = text.rfind('.').unwrap() + 1;
        assert_eq!(ours.open(&text[..prefix], &ANN), Opened::Forged);
        assert_eq!(
            ours.open(&format!("{text}{}", "A".repeat(LONGEST)), &ANN),
            Opened::Forged
        );
        for at in prefix..text.len() - 1 {
            let mut forged = text.clone().into_bytes();
            forged[at] = if forged[at] == b'A' { b'B' } else { b'A' };
            assert_eq!(
                ours.open(std::str::from_utf8(&forged).unwrap(), &ANN),
                Opened::Forged,
                "{at}"
            );
        }
    }

    #[test]
    fn url_elicitation_state_carries_an_error_up_to_a_size() {
        let seal = StateSeal::new(&Keys::default()).unwrap();
        let state = |error: Json| UrlElicitation {
            expires: 7,
            digest: [9; 32],
            error,
        };
        let small = state(Json::literal(r#"{"code":-32042,"x":1.0}"#));
        assert_eq!(
            seal.open(&seal.seal_url_elicitation(&small, &ANN).unwrap(), &ANN),
            Opened::UrlElicitation(small)
        );
        let largest = state(Json::string(&"x".repeat(LARGEST_ERROR - 2)));
        assert_eq!(
            seal.open(&seal.seal_url_elicitation(&largest, &ANN).unwrap(), &ANN),
            Opened::UrlElicitation(largest)
        );
        let too_large = state(Json::string(&"x".repeat(LARGEST_ERROR)));
        assert_eq!(seal.seal_url_elicitation(&too_large, &ANN), None);
    }

    #[test]
    fn digest_covers_method_and_params_but_not_their_spelling() {
        let of = |method: Method, params: &'static str| {
            request_digest(&method, Some(&Json::literal(params)))
        };
        let first = of(
            Method::CallTool,
            r#"{"name":"n","arguments":{"a":1.0,"b":[1,{"c":"d"}]},"_meta":{"x":1}}"#,
        );
        let again = r#"{ "requestState":"s", "arguments": {"b":[1, {"\u0063":"d"}],"a":1.0}, "inputResponses":{}, "name":"\u006e"}"#;
        assert_eq!(first, of(Method::CallTool, again));
        for (method, other) in [
            (Method::GetPrompt, again),
            (
                Method::CallTool,
                r#"{"name":"n","arguments":{"a":1,"b":[1,{"c":"d"}]}}"#,
            ),
            (
                Method::CallTool,
                r#"{"name":"m","arguments":{"a":1.0,"b":[1,{"c":"d"}]}}"#,
            ),
            (
                Method::CallTool,
                r#"{"name":"n","arguments":{"a":1.0,"b":[{"c":"d"},1]}}"#,
            ),
            (
                Method::CallTool,
                r#"{"name":"n","arguments":{"a":1.0,"b":[1,{"c":"d"}],"_meta":{}}}"#,
            ),
            (
                Method::CallTool,
                r#"{"name":"n","arguments":{"a":1.0,"b":[1,{"c":"d"}]},"x":null}"#,
            ),
        ] {
            assert_ne!(first, of(method, other), "{other}");
        }
    }
}
