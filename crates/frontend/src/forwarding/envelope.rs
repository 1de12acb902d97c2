//! Sealed envelopes of forwarded requests.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use fanlight_canonical::ProcessRun;
use fanlight_protocol::digest::{Sha256, sha256};
use fanlight_protocol::seal::{KeyError, Keys, Seal};
use http::{HeaderMap, HeaderName, HeaderValue, Method};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

use super::{ForwardedRequest, WrittenClient};

/// The purpose of the seal. A new format gets another purpose, which invalidates old envelopes.
const PURPOSE: &[u8] = b"forwarded request 1";
/// The largest difference between two replicas' clocks. A constant: it limits how long a request
/// can be held back, and a larger difference breaks other things first.
const LARGEST_SKEW: Duration = Duration::from_secs(90);
/// The maximum number of known senders; requests of further ones are refused. A constant, far above
/// the number of replicas at a time.
const MOST_SENDERS: usize = 4096;

/// The reason why an envelope is refused. Its sender learns no more than this.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// No replica with the same keys made it for this run of this replica, or it was changed.
    #[error("it is not sealed for this replica")]
    NotForThis,
    /// The clocks differ too much, or the envelope was held back.
    #[error(
        "it was sent at another time: the clocks of the replicas differ by more than 90 seconds, or it was held back"
    )]
    OtherTime,
    /// The envelope has been used already.
    #[error("it has been used already")]
    Used,
    /// The body is not the envelope's.
    #[error("its body is not the one that was sent")]
    OtherBody,
}

/// Makes and opens envelopes.
pub struct Envelopes {
    seal: Seal,
    run: ProcessRun,
    /// The number of the last envelope made here.
    last: AtomicU64,
    senders: Mutex<HashMap<ProcessRun, Sender>>,
}

/// The state of a sender.
#[derive(Debug)]
struct Sender {
    used: Window,
    /// The time when its last envelope was opened.
    seen: SystemTime,
}

/// The serialised form of an envelope.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Envelope<'a> {
    from: [u8; 8],
    /// The number of the envelope, counted by its sender.
    number: u64,
    sent: SystemTime,
    method: Cow<'a, str>,
    target: Cow<'a, str>,
    /// Header fields; each byte of a value is one character.
    headers: Vec<(Cow<'a, str>, String)>,
    body: Sha256,
    client: WrittenClient<'a>,
}

/// An opened envelope.
#[derive(Debug)]
pub struct Opened {
    /// The request.
    pub request: ForwardedRequest,
    body: Sha256,
}

impl Opened {
    /// Checks that `body` belongs to the request, which must not run before this check.
    ///
    /// # Errors
    ///
    /// If it is another body.
    pub fn check_body(&self, body: &[u8]) -> Result<(), Refused> {
        if sha256([body]) == self.body {
            Ok(())
        } else {
            Err(Refused::OtherBody)
        }
    }
}

impl Envelopes {
    /// Creates the envelopes of this process.
    ///
    /// # Errors
    ///
    /// If a key cannot be used, or the system has no random numbers.
    pub fn new(keys: &Keys) -> Result<Self, KeyError> {
        Ok(Self::for_run(
            Seal::new(keys, PURPOSE)?,
            ProcessRun::current()?,
        ))
    }

    fn for_run(seal: Seal, run: ProcessRun) -> Self {
        Self {
            seal,
            run,
            last: AtomicU64::default(),
            senders: Mutex::default(),
        }
    }

    /// Seals a request to `to`; `None` if the cipher fails, for which there is no reason.
    pub fn seal(
        &self,
        to: ProcessRun,
        request: &ForwardedRequest,
        body: &[u8],
    ) -> Option<HeaderValue> {
        let characters = |value: &HeaderValue| {
            value
                .as_bytes()
                .iter()
                .map(|byte| char::from(*byte))
                .collect()
        };
        let fields = request
            .headers
            .iter()
            .map(|(name, value)| (Cow::Borrowed(name.as_str()), characters(value)));
        let envelope = Envelope {
            from: self.run.to_bytes(),
            number: self.last.fetch_add(1, Ordering::Relaxed) + 1,
            sent: SystemTime::now(),
            method: Cow::Borrowed(request.method.as_str()),
            target: Cow::Owned(request.target.to_string()),
            headers: fields.collect(),
            body: sha256([body]),
            client: WrittenClient::new(&request.client),
        };
        let sealed = self
            .seal
            .seal_for(&serde_json::to_vec(&envelope).ok()?, &to.to_bytes())?;
        let mut value = HeaderValue::try_from(sealed).ok()?;
        value.set_sensitive(true);
        Some(value)
    }

    /// Opens an envelope, which is valid once. The caller limits its length.
    ///
    /// # Errors
    ///
    /// If no replica has just sent it to this one.
    pub fn open(&self, text: &str) -> Result<Opened, Refused> {
        let plain = self
            .seal
            .open_for(text, &self.run.to_bytes())
            .ok_or(Refused::NotForThis)?;
        let envelope: Envelope<'_> =
            serde_json::from_slice(&plain).map_err(|_| Refused::NotForThis)?;
        let now = SystemTime::now();
        let apart = now
            .duration_since(envelope.sent)
            .unwrap_or_else(|ahead| ahead.duration());
        if apart > LARGEST_SKEW {
            return Err(Refused::OtherTime);
        }
        let (from, number) = (ProcessRun::from_bytes(envelope.from), envelope.number);
        let opened = envelope.read().ok_or(Refused::NotForThis)?;
        if self.use_up(from, number, now) {
            Ok(opened)
        } else {
            Err(Refused::Used)
        }
    }

    /// Whether this is the first use of a sender's number.
    fn use_up(&self, from: ProcessRun, number: u64, now: SystemTime) -> bool {
        let mut senders = self.senders.lock();
        if !senders.contains_key(&from) && senders.len() >= MOST_SENDERS {
            // The last envelopes of these senders are out of date by now.
            let is_recent = |seen| {
                now.duration_since(seen)
                    .is_ok_and(|age| age <= 2 * LARGEST_SKEW)
            };
            senders.retain(|_, sender| is_recent(sender.seen));
            if senders.len() >= MOST_SENDERS {
                return false;
            }
        }
        let sender = senders.entry(from).or_insert_with(|| Sender {
            used: Window::default(),
            seen: now,
        });
        sender.seen = now;
        sender.used.take(number)
    }
}

impl Envelope<'_> {
    fn read(self) -> Option<Opened> {
        let mut headers = HeaderMap::with_capacity(self.headers.len());
        for (name, value) in self.headers {
            let bytes: Vec<u8> = value
                .chars()
                .map(u8::try_from)
                .collect::<Result<_, _>>()
                .ok()?;
            headers.append(
                HeaderName::try_from(&*name).ok()?,
                HeaderValue::try_from(bytes).ok()?,
            );
        }
        let request = ForwardedRequest {
            method: Method::try_from(&*self.method).ok()?,
            target: self.target.parse().ok()?,
            headers,
            client: self.client.read()?,
        };
        Some(Opened {
            request,
            body: self.body,
        })
    }
}

fanlight_protocol::opaque!(Envelopes);

/// How far a number may be behind the highest one. A constant: a sender has far fewer requests in
/// flight.
const SPAN: u64 = 1 << 14;
const WORD: u64 = u64::BITS as u64;

/// The used numbers of one sender.
#[derive(Debug, Default)]
struct Window {
    /// The highest number so far.
    highest: u64,
    /// One bit for each of the last [`SPAN`] numbers, by the number modulo [`SPAN`]; empty before
    /// the first.
    used: Vec<u64>,
}

impl Window {
    /// Uses `number`; false if it has been used, or is too old to tell. Numbers begin at 1.
    fn take(&mut self, number: u64) -> bool {
        self.used
            .resize(usize::try_from(SPAN / WORD).unwrap_or_default(), 0);
        if number > self.highest {
            self.forget_between(self.highest, number);
            self.highest = number;
        } else if self.highest - number >= SPAN || number == 0 {
            return false;
        }
        let (word, bit) = place(number);
        let Some(word) = self.used.get_mut(word) else {
            return false;
        };
        let is_new = *word & bit == 0;
        *word |= bit;
        is_new
    }

    /// Makes room for the numbers after `highest`, up to `number`.
    fn forget_between(&mut self, highest: u64, number: u64) {
        if number - highest >= SPAN {
            return self.used.fill(0);
        }
        for (word, bit) in (highest + 1..=number).map(place) {
            if let Some(word) = self.used.get_mut(word) {
                *word &= !bit;
            }
        }
    }
}

fn place(number: u64) -> (usize, u64) {
    let at = number % SPAN;
    (
        usize::try_from(at / WORD).unwrap_or(usize::MAX),
        1 << (at % WORD),
    )
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::sync::Arc;

    use fanlight_canonical::identity::Identity;
    use proptest::prelude::*;

    use super::*;
    use crate::forwarding::ForwardedClient;

    const A: ProcessRun = ProcessRun::from_bytes([1; 8]);
    const B: ProcessRun = ProcessRun::from_bytes([2; 8]);

    fn at(run: ProcessRun, key: u8) -> Envelopes {
        Envelopes::for_run(Seal::new(&Keys::new([[key; 32]]), PURPOSE).unwrap(), run)
    }

    fn request() -> ForwardedRequest {
        let identity = Arc::new(Identity::anonymous());
        let mut headers = HeaderMap::new();
        headers.append("mcp-session-id", HeaderValue::from_static("s"));
        headers.append(
            "mcp-param-x",
            HeaderValue::from_bytes(b"\xe9t\xe9").unwrap(),
        );
        headers.append("mcp-param-x", HeaderValue::from_static(""));
        let client = ForwardedClient {
            identity,
            address: None,
            user: None,
        };
        ForwardedRequest {
            method: Method::POST,
            target: "/mcp?a=b".parse().unwrap(),
            headers,
            client,
        }
    }

    fn sealed(by: &Envelopes, to: ProcessRun) -> String {
        by.seal(to, &request(), b"body")
            .unwrap()
            .to_str()
            .unwrap()
            .to_owned()
    }

    #[test]
    fn request_arrives_as_it_was_sent_with_its_body() {
        let opened = at(B, 9).open(&sealed(&at(A, 9), B)).unwrap();
        let (sent, arrived) = (request(), &opened.request);
        assert_eq!(
            (&arrived.method, &arrived.target, &arrived.headers),
            (&sent.method, &sent.target, &sent.headers)
        );
        assert_eq!(
            (opened.check_body(b"body"), opened.check_body(b"bodx")),
            (Ok(()), Err(Refused::OtherBody))
        );
    }

    #[test]
    fn envelope_is_good_once_at_one_run_with_its_keys() {
        let (from, to) = (at(A, 9), at(B, 9));
        let text = sealed(&from, B);
        assert_eq!(
            at(A, 9).open(&text).unwrap_err(),
            Refused::NotForThis,
            "for another run"
        );
        assert_eq!(
            at(B, 8).open(&text).unwrap_err(),
            Refused::NotForThis,
            "with other keys"
        );
        assert!(to.open(&text).is_ok());
        assert_eq!(to.open(&text).unwrap_err(), Refused::Used);
        // Another sender's equal number is a different one.
        assert!(
            to.open(&sealed(&from, B)).is_ok()
                && to
                    .open(&sealed(&at(ProcessRun::from_bytes([3; 8]), 9), B))
                    .is_ok()
        );
    }

    #[test]
    fn envelope_of_another_time_is_refused() {
        let (from, to) = (at(A, 9), at(B, 9));
        for (seconds, expected) in [
            (-100, Some(Refused::OtherTime)),
            (-30, None),
            (30, None),
            (100, Some(Refused::OtherTime)),
        ] {
            let plain = from
                .seal
                .open_for(&sealed(&from, B), &B.to_bytes())
                .unwrap();
            let mut envelope: Envelope<'_> = serde_json::from_slice(&plain).unwrap();
            let by = Duration::from_secs(u64::from(i32::unsigned_abs(seconds)));
            envelope.sent = if seconds < 0 {
                envelope.sent - by
            } else {
                envelope.sent + by
            };
            let text = from
                .seal
                .seal_for(&serde_json::to_vec(&envelope).unwrap(), &B.to_bytes())
                .unwrap();
            assert_eq!(to.open(&text).err(), expected, "{seconds}");
        }
    }

    #[test]
    fn other_sealed_text_is_no_envelope() {
        let seal = Seal::new(&Keys::new([[9; 32]]), b"another purpose").unwrap();
        let plain = at(A, 9)
            .seal
            .open_for(&sealed(&at(A, 9), B), &B.to_bytes())
            .unwrap();
        let text = seal.seal_for(&plain, &B.to_bytes()).unwrap();
        assert_eq!(at(B, 9).open(&text).unwrap_err(), Refused::NotForThis);
        let text = at(A, 9).seal.seal_for(b"{}", &B.to_bytes()).unwrap();
        assert_eq!(at(B, 9).open(&text).unwrap_err(), Refused::NotForThis);
    }

    #[test]
    fn senders_are_bounded() {
        let (to, now) = (at(B, 9), SystemTime::now());
        let run = |number: usize| ProcessRun::from_bytes((number as u64).to_be_bytes());
        assert!((0..MOST_SENDERS).all(|sender| to.use_up(run(sender), 1, now)));
        assert!(!to.use_up(run(MOST_SENDERS), 1, now) && to.use_up(run(0), 2, now));
        assert!(to.use_up(run(MOST_SENDERS), 1, now + 3 * LARGEST_SKEW));
    }

    proptest! {
        #[test]
        fn changed_envelope_is_refused(at_index in any::<prop::sample::Index>(), replacement in "[A-Za-z0-9_-]") {
            let text = sealed(&at(A, 9), B);
            let place = at_index.index(text.len() - 1);
            let mut forged = text.clone();
            forged.replace_range(place..=place, &replacement);
            prop_assert!(forged == text || at(B, 9).open(&forged).is_err());
        }
    }

    #[test]
    fn number_is_good_once_and_not_when_it_is_too_old() {
        let mut window = Window::default();
        assert!(!window.take(0) && window.take(1) && !window.take(1));
        assert!(
            window.take(SPAN + 5)
                && window.take(6)
                && !window.take(6)
                && !window.take(5)
                && !window.take(1)
        );
        assert!(window.take(u64::MAX) && !window.take(u64::MAX) && window.take(u64::MAX - 1));
    }

    proptest! {
        #[test]
        fn no_number_is_good_twice(numbers in prop::collection::vec(prop_oneof![1..200u64, 1..3 * SPAN], 0..400)) {
            let (mut window, mut used, mut highest) = (Window::default(), BTreeSet::new(), 0);
            for number in numbers {
                highest = highest.max(number);
                let expected = highest - number < SPAN && used.insert(number);
                prop_assert_eq!(window.take(number), expected, "{}", number);
            }
        }
    }
}
