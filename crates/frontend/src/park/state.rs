//! `requestState`: what a client carries from the answer that asks for input to the request that
//! brings it. Sealed, so that it can be neither read nor changed, and bound to its request.
//!
//! Source: 2026-07-28 basic/patterns/mrtr, Server Requirements 4 and 5. Must not know: what is
//! parked. The principal belongs into the subject once there are principals.

use aws_lc_rs::digest::{Context, SHA256, SHA256_OUTPUT_LEN};
use bytes::Bytes;
use fanlight_protocol::json::{Kind, MAX_NESTING};
use fanlight_protocol::seal::{KeyError, Keys, Seal};
use fanlight_protocol::{Json, Method};

use crate::input::{INPUT_RESPONSES, REQUEST_STATE};

/// Longer texts are none of ours.
const LONGEST: usize = 32 << 10;
const PURPOSE: &[u8] = b"requestState 2";
/// The first byte says which kind of state it is.
const PARKED: u8 = 0;
const AGAIN: u8 = 1;
/// The largest error that a client is given to carry, in bytes.
pub(super) const LARGEST_ERROR: usize = 16 << 10;

/// A digest of the request that a state belongs to.
pub(super) type Subject = [u8; SHA256_OUTPUT_LEN];
/// What tells parked calls apart, and cannot be guessed.
pub(super) type ParkedId = [u8; 16];

/// What a state says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct State {
    pub(super) id: ParkedId,
    /// How often the call had been parked when this was made.
    pub(super) round: u32,
    /// Until when it holds: milliseconds after the Unix epoch.
    pub(super) expires: u64,
    pub(super) subject: Subject,
}

/// What a state says that belongs to no held call: the call is to be made again once its client has
/// done what it was asked to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Again {
    /// As for [`State`].
    pub(super) expires: u64,
    pub(super) subject: Subject,
    /// The error object that the server answered with, as written.
    pub(super) error: Json,
}

/// What a text turns out to be.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Opened {
    /// No state of these keys: perhaps one of a backend that speaks this revision itself.
    Foreign,
    /// It says that it is ours, and is not.
    Forged,
    /// One of ours, of a parked call.
    State(State),
    /// One of ours, of a call that is to be made again.
    Again(Again),
}

/// Begins every state, and is followed by the name of its key: so a forged state can be told from
/// somebody else's. Another Fanlight may stand behind this one.
const PREFIX: &str = "fanlight.";

/// Seals and opens states.
#[derive(Debug)]
pub(super) struct StateSeal(Seal);

impl StateSeal {
    pub(super) fn new(keys: &Keys) -> Result<Self, KeyError> {
        Seal::new(keys, PURPOSE).map(Self)
    }

    pub(super) fn seal(&self, state: &State) -> Option<String> {
        let (round, expires) = (state.round.to_be_bytes(), state.expires.to_be_bytes());
        self.seal_bytes(&[&[PARKED], &state.id[..], &round[..], &expires[..], &state.subject[..]].concat())
    }

    /// `None` also if the error is too large to be carried.
    pub(super) fn seal_again(&self, again: &Again) -> Option<String> {
        let (expires, error) = (again.expires.to_be_bytes(), again.error.bytes());
        let fits = error.len() <= LARGEST_ERROR;
        fits.then(|| self.seal_bytes(&[&[AGAIN], &expires[..], &again.subject[..], error].concat()))?
    }

    fn seal_bytes(&self, plain: &[u8]) -> Option<String> {
        Some(format!("{PREFIX}{}.{}", self.0.name(), self.0.seal(plain)?))
    }

    pub(super) fn open(&self, text: &str) -> Opened {
        let Some((name, sealed)) = text.strip_prefix(PREFIX).and_then(|rest| rest.split_once('.')) else {
            return Opened::Foreign;
        };
        if !self.0.names().any(|known| known == name) {
            return Opened::Foreign;
        }
        let plain = Some(sealed).filter(|sealed| sealed.len() <= LONGEST).and_then(|sealed| self.0.open(sealed));
        let opened = match plain.as_deref().and_then(<[u8]>::split_first) {
            Some((&PARKED, rest)) => State::read(rest).map(Opened::State),
            Some((&AGAIN, rest)) => Again::read(rest).map(Opened::Again),
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
        let subject = rest.try_into().ok()?;
        Some(Self { id: *id, round: u32::from_be_bytes(*round), expires: u64::from_be_bytes(*expires), subject })
    }
}

impl Again {
    fn read(bytes: &[u8]) -> Option<Self> {
        let (expires, rest) = bytes.split_first_chunk()?;
        let (subject, error) = rest.split_first_chunk()?;
        let error = Json::parse(Bytes::copy_from_slice(error), MAX_NESTING).ok()?;
        Some(Self { expires: u64::from_be_bytes(*expires), subject: *subject, error })
    }
}

/// The digest of a request: its method, and its params without what may differ from round to
/// round. White space and the order of members make no difference, since a client may write its
/// params anew for each round.
pub(super) fn subject(method: &Method, params: Option<&Json>) -> Subject {
    let mut digest = Context::new(&SHA256);
    text(&mut digest, method.as_str());
    if let Some(params) = params {
        object(&mut digest, params, &["_meta", INPUT_RESPONSES, REQUEST_STATE]);
    }
    let mut subject = [0; SHA256_OUTPUT_LEN];
    subject.iter_mut().zip(digest.finish().as_ref()).for_each(|(slot, byte)| *slot = *byte);
    subject
}

fn value(digest: &mut Context, json: &Json) {
    match json.kind() {
        Kind::Object => object(digest, json, &[]),
        Kind::Array => {
            digest.update(b"[");
            json.elements().for_each(|element| value(digest, &json.slice(element)));
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
            let name = member.name(json).unwrap_or_else(|| json.slice(member.key.clone()).as_text().to_owned());
            (name, json.slice(member.value))
        })
        .filter(|(name, _)| !without.contains(&name.as_str()))
        .collect();
    // Stable: members of one name keep their order.
    members.sort_by(|(a, _), (b, _)| a.cmp(b));
    digest.update(b"{");
    for (name, member) in &members {
        text(digest, name);
        value(digest, member);
    }
    digest.update(b"}");
}

/// With its length before it, so that no two sequences of texts look the same.
fn text(digest: &mut Context, text: &str) {
    digest.update(&(text.len() as u64).to_be_bytes());
    digest.update(text.as_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    const STATE: State = State { id: [7; 16], round: 3, expires: u64::MAX - 1, subject: [9; 32] };

    #[test]
    fn tells_its_own_from_forged_and_foreign() {
        let new = |keys: &[u8]| StateSeal::new(&Keys::new(keys.iter().map(|key| [*key; 32]))).unwrap();
        let (ours, theirs) = (new(&[]), new(&[]));
        let text = ours.seal(&STATE).unwrap();
        assert_eq!(ours.open(&text), Opened::State(STATE));
        assert_eq!(theirs.open(&text), Opened::Foreign);
        assert_eq!(ours.open("opaque"), Opened::Foreign);
        assert_eq!(new(&[2, 1]).open(&new(&[1]).seal(&STATE).unwrap()), Opened::State(STATE));
        assert_eq!(new(&[1]).open(&new(&[2, 1]).seal(&STATE).unwrap()), Opened::Foreign);
        let prefix = text.rfind('.').unwrap() + 1;
        assert_eq!(ours.open(&text[..prefix]), Opened::Forged);
        assert_eq!(ours.open(&format!("{text}{}", "A".repeat(LONGEST))), Opened::Forged);
        for at in prefix..text.len() - 1 {
            let mut forged = text.clone().into_bytes();
            forged[at] = if forged[at] == b'A' { b'B' } else { b'A' };
            assert_eq!(ours.open(std::str::from_utf8(&forged).unwrap()), Opened::Forged, "{at}");
        }
    }

    #[test]
    fn a_state_can_carry_an_error_of_some_size() {
        let seal = StateSeal::new(&Keys::default()).unwrap();
        let again = |error: Json| Again { expires: 7, subject: [9; 32], error };
        let small = again(Json::literal(r#"{"code":-32042,"x":1.0}"#));
        assert_eq!(seal.open(&seal.seal_again(&small).unwrap()), Opened::Again(small));
        let largest = again(Json::string(&"x".repeat(LARGEST_ERROR - 2)));
        assert_eq!(seal.open(&seal.seal_again(&largest).unwrap()), Opened::Again(largest));
        assert_eq!(seal.seal_again(&again(Json::string(&"x".repeat(LARGEST_ERROR)))), None);
    }

    #[test]
    fn the_subject_is_what_the_request_asks_for() {
        let of = |method: Method, params: &'static str| subject(&method, Some(&Json::literal(params)));
        let first = of(Method::CallTool, r#"{"name":"n","arguments":{"a":1.0,"b":[1,{"c":"d"}]},"_meta":{"x":1}}"#);
        let again = r#"{ "requestState":"s", "arguments": {"b":[1, {"\u0063":"d"}],"a":1.0}, "inputResponses":{}, "name":"\u006e"}"#;
        assert_eq!(first, of(Method::CallTool, again));
        for (method, other) in [
            (Method::GetPrompt, again),
            (Method::CallTool, r#"{"name":"n","arguments":{"a":1,"b":[1,{"c":"d"}]}}"#),
            (Method::CallTool, r#"{"name":"m","arguments":{"a":1.0,"b":[1,{"c":"d"}]}}"#),
            (Method::CallTool, r#"{"name":"n","arguments":{"a":1.0,"b":[{"c":"d"},1]}}"#),
            (Method::CallTool, r#"{"name":"n","arguments":{"a":1.0,"b":[1,{"c":"d"}],"_meta":{}}}"#),
            (Method::CallTool, r#"{"name":"n","arguments":{"a":1.0,"b":[1,{"c":"d"}]},"x":null}"#),
        ] {
            assert_ne!(first, of(method, other), "{other}");
        }
    }
}
