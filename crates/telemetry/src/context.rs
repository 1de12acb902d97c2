//! W3C trace context as text: `traceparent` and `tracestate` read strictly and written.
//!
//! What does not follow the grammar is no context at all: the reader of a malformed value starts a
//! trace of its own (W3C Trace Context, 4.3), and no request ever fails for it.
//!
//! Must not know: which of several contexts counts, and where they stand in a message.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use opentelemetry::trace::{SpanContext, SpanId, TraceFlags, TraceId, TraceState};

/// Most members a `tracestate` may have (W3C Trace Context, 3.3.1.1).
const MAX_TRACESTATE_MEMBERS: usize = 32;
/// Longest `tracestate` that is taken, in bytes. The recommendation asks for at least 512.
const MAX_TRACESTATE_BYTES: usize = 4096;
/// Longest `baggage` that is carried, in bytes (W3C Baggage, 3.3.2).
const MAX_BAGGAGE_BYTES: usize = 8192;
/// The flags this version of the recommendation defines: sampled and random trace id.
const KNOWN_FLAGS: u8 = 0b11;

/// A place in a trace: whose child what follows is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TraceContext {
    trace_id: TraceId,
    span_id: SpanId,
    flags: u8,
    tracestate: Option<Arc<str>>,
}

impl TraceContext {
    /// Reads a `traceparent` and the `tracestate` that stands beside it. A malformed `tracestate`
    /// is left out; a malformed `traceparent` gives nothing (W3C Trace Context, 4.3).
    #[must_use]
    pub fn parse(traceparent: &str, tracestate: Option<&str>) -> Option<Self> {
        let (trace_id, span_id, flags) = parse_traceparent(traceparent.as_bytes())?;
        let tracestate = tracestate.filter(|text| !text.is_empty() && is_tracestate(text)).map(Arc::from);
        Some(Self { trace_id, span_id, flags, tracestate })
    }

    /// The place that a span of this process stands at, below the one `above` it.
    pub(crate) fn within(above: Option<&Self>, trace_id: TraceId, span_id: SpanId, sampled: bool) -> Self {
        let (flags, tracestate) = above.map_or((0, None), |above| (above.flags, above.tracestate.clone()));
        Self { trace_id, span_id, flags: flags & !1 | u8::from(sampled), tracestate }
    }

    /// The trace.
    #[must_use]
    pub fn trace_id(&self) -> TraceId {
        self.trace_id
    }

    /// The span in it.
    #[must_use]
    pub fn span_id(&self) -> SpanId {
        self.span_id
    }

    /// Whether whoever wrote this records the trace.
    #[must_use]
    pub fn is_sampled(&self) -> bool {
        self.flags & 1 == 1
    }

    /// The `tracestate`, as received.
    #[must_use]
    pub fn tracestate(&self) -> Option<&Arc<str>> {
        self.tracestate.as_ref()
    }

    /// The `traceparent` that says this.
    #[must_use]
    pub fn traceparent(&self) -> Traceparent {
        Traceparent::new(self.trace_id, self.span_id, self.flags)
    }

    /// Whether both name the same span, whatever their flags and state.
    #[must_use]
    pub fn is_same_span(&self, other: &Self) -> bool {
        self.trace_id == other.trace_id && self.span_id == other.span_id
    }

    /// The same for the OpenTelemetry SDK.
    pub(crate) fn to_span_context(&self, is_remote: bool) -> SpanContext {
        let state = self.tracestate.as_deref().and_then(|text| TraceState::from_str(text).ok()).unwrap_or_default();
        SpanContext::new(self.trace_id, self.span_id, TraceFlags::new(self.flags), is_remote, state)
    }
}

/// The text of a `traceparent` of version 00, without an allocation.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Traceparent([u8; 55]);

impl Traceparent {
    fn new(trace_id: TraceId, span_id: SpanId, flags: u8) -> Self {
        let mut text = *b"00-00000000000000000000000000000000-0000000000000000-00";
        write_hex(text.get_mut(3..35), &trace_id.to_bytes());
        write_hex(text.get_mut(36..52), &span_id.to_bytes());
        write_hex(text.get_mut(53..55), &[flags & KNOWN_FLAGS]);
        Self(text)
    }

    /// The text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        // Only ASCII is ever written; the empty string stands for a broken invariant.
        std::str::from_utf8(&self.0).unwrap_or_default()
    }
}

impl fmt::Display for Traceparent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl fmt::Debug for Traceparent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Whether `text` may be carried on as `baggage`: printable ASCII within the size all must take.
/// What stands in it is nobody's business here.
pub(crate) fn is_baggage(text: &str) -> bool {
    !text.is_empty() && text.len() <= MAX_BAGGAGE_BYTES && text.bytes().all(|byte| matches!(byte, 0x20..=0x7e | b'\t'))
}

fn write_hex(place: Option<&mut [u8]>, bytes: &[u8]) {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let digit = |half: u8| DIGITS.get(usize::from(half)).copied().unwrap_or(b'0');
    for (pair, byte) in place.into_iter().flat_map(|place| place.chunks_exact_mut(2)).zip(bytes) {
        pair.copy_from_slice(&[digit(byte >> 4), digit(byte & 15)]);
    }
}

/// W3C Trace Context, 3.2. A version above 00 may have more at its end, and its unknown flags are
/// not understood (3.2.4, 4.3).
fn parse_traceparent(text: &[u8]) -> Option<(TraceId, SpanId, u8)> {
    let (fixed, rest) = text.split_at_checked(55)?;
    let [version] = hex::<1>(fixed.get(0..2)?)?;
    let ends_well = if version == 0 { rest.is_empty() } else { rest.first().is_none_or(|byte| *byte == b'-') };
    let dashes = [2, 35, 52].iter().all(|at| fixed.get(*at) == Some(&b'-'));
    if version == 0xff || !ends_well || !dashes {
        return None;
    }
    let trace_id = TraceId::from_bytes(hex(fixed.get(3..35)?)?);
    let span_id = SpanId::from_bytes(hex(fixed.get(36..52)?)?);
    let [flags] = hex::<1>(fixed.get(53..55)?)?;
    let known = if version == 0 { KNOWN_FLAGS } else { 1 };
    (trace_id != TraceId::INVALID && span_id != SpanId::INVALID).then_some((trace_id, span_id, flags & known))
}

fn hex<const N: usize>(digits: &[u8]) -> Option<[u8; N]> {
    let mut bytes = [0; N];
    for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
        let &[high, low] = pair else { return None };
        *byte = (hex_digit(high)? << 4) | hex_digit(low)?;
    }
    (digits.len() == 2 * N).then_some(bytes)
}

/// Lower case only (W3C Trace Context, 3.2.2: HEXDIGLC).
fn hex_digit(byte: u8) -> Option<u8> {
    match byte {
        b'0'..=b'9' => Some(byte - b'0'),
        b'a'..=b'f' => Some(byte - b'a' + 10),
        _ => None,
    }
}

/// W3C Trace Context, 3.3.1: a list of `key=value`, empty members allowed, no key twice.
fn is_tracestate(text: &str) -> bool {
    if text.len() > MAX_TRACESTATE_BYTES {
        return false;
    }
    let mut keys: Vec<&str> = Vec::new();
    for member in text.split(',') {
        let member = member.trim_matches([' ', '\t']);
        if member.is_empty() {
            continue;
        }
        let Some((key, value)) = member.split_once('=') else { return false };
        if keys.len() == MAX_TRACESTATE_MEMBERS
            || !is_tracestate_key(key)
            || !is_tracestate_value(value)
            || keys.contains(&key)
        {
            return false;
        }
        keys.push(key);
    }
    !keys.is_empty()
}

fn is_tracestate_key(key: &str) -> bool {
    let part = |text: &str, longest: usize| {
        (1..=longest).contains(&text.len())
            && text.bytes().all(|byte| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'_' | b'-' | b'*' | b'/'))
            && text.bytes().next().is_some_and(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit())
    };
    match key.split_once('@') {
        None => part(key, 256),
        Some((tenant, system)) => part(tenant, 241) && part(system, 14),
    }
}

fn is_tracestate_value(value: &str) -> bool {
    (1..=256).contains(&value.len())
        && value.bytes().all(|byte| matches!(byte, 0x20..=0x7e) && byte != b',' && byte != b'=')
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const VALID: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

    #[test]
    fn a_valid_one_is_read_and_written_back() {
        let context = TraceContext::parse(VALID, Some("rojo=00f067aa0ba902b7,congo=t61rcWkgMzE")).unwrap();
        assert_eq!(context.trace_id().to_string(), "4bf92f3577b34da6a3ce929d0e0e4736");
        assert_eq!(context.span_id().to_string(), "00f067aa0ba902b7");
        assert!(context.is_sampled());
        assert_eq!(context.traceparent().as_str(), VALID);
        assert_eq!(context.tracestate().unwrap().as_ref(), "rojo=00f067aa0ba902b7,congo=t61rcWkgMzE");
        assert_eq!(context.to_span_context(true).trace_state().get("rojo"), Some("00f067aa0ba902b7"));
    }

    #[test]
    fn malformed_ones_are_none() {
        for text in [
            "",
            "00",
            "00-4BF92F3577B34DA6A3CE929D0E0E4736-00f067aa0ba902b7-01",
            "00-00000000000000000000000000000000-00f067aa0ba902b7-01",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-01",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-0",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-more",
            "00-4bf92f3577b34da6a3ce929d0e0e4736_00f067aa0ba902b7-01",
            "ff-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
            " 00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
            "00-4bf92f3577b34da6a3ce929d0e0e473é-00f067aa0ba902b7-01",
        ] {
            assert_eq!(TraceContext::parse(text, None), None, "{text}");
        }
    }

    #[test]
    fn a_later_version_is_read_as_far_as_it_is_known() {
        let later = "cc-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-ff-what-else";
        assert_eq!(TraceContext::parse(later, None).unwrap().traceparent().as_str(), VALID);
        let glued = "cc-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01.what";
        assert_eq!(TraceContext::parse(glued, None), None);
    }

    #[test]
    fn flags_stay_apart() {
        for (given, kept) in [("00", "00"), ("02", "02"), ("03", "03"), ("fc", "00")] {
            let context = TraceContext::parse(&format!("{}{given}", &VALID[..53]), None).unwrap();
            assert_eq!(&context.traceparent().as_str()[53..], kept);
            assert_eq!(context.is_sampled(), kept.ends_with(['1', '3']));
        }
    }

    #[test]
    fn a_malformed_tracestate_is_left_out_alone() {
        let many = (0..33).map(|n| format!("k{n}=v")).collect::<Vec<_>>().join(",");
        for state in ["", ",", "a", "A=1", "a=1,a=2", "a=1=2", "a=\u{e9}", "@a=1", "a@=1", "a@b@c=1", &many] {
            let context = TraceContext::parse(VALID, Some(state)).unwrap();
            assert_eq!(context.tracestate(), None, "{state}");
        }
        for state in ["a=1", "a=1, ,b=2\t,", "1tenant@system=x y", "a_-*/=\u{20}!"] {
            assert!(TraceContext::parse(VALID, Some(state)).unwrap().tracestate().is_some(), "{state}");
        }
    }

    proptest! {
        #[test]
        fn whatever_comes_is_none_or_written_back_the_same(text in "\\PC{0,70}") {
            if let Some(context) = TraceContext::parse(&text, None) {
                let again = TraceContext::parse(context.traceparent().as_str(), None);
                prop_assert_eq!(again, Some(context));
            }
        }

        #[test]
        fn whatever_looks_like_one_is_read_by_the_rules(
            version in "[0-9a-f]{2}", trace in "[0-9a-f]{32}", span in "[0-9a-f]{16}", flags in "[0-9a-f]{2}",
            tail in prop::option::of("[-a-z0-9]{0,4}"),
        ) {
            let tail = tail.unwrap_or_default();
            let text = format!("{version}-{trace}-{span}-{flags}{tail}");
            let ids = trace.bytes().any(|byte| byte != b'0') && span.bytes().any(|byte| byte != b'0');
            let end = if version == "00" { tail.is_empty() } else { tail.is_empty() || tail.starts_with('-') };
            let context = TraceContext::parse(&text, None);
            prop_assert_eq!(context.is_some(), ids && end && version != "ff");
            if let Some(context) = context {
                prop_assert_eq!(context.trace_id().to_string(), trace);
                prop_assert_eq!(context.span_id().to_string(), span);
                prop_assert_eq!(context.is_sampled(), u8::from_str_radix(&flags, 16).unwrap() & 1 == 1);
            }
        }

        #[test]
        fn one_changed_byte_never_breaks_the_reader(at in 0usize..55, with in any::<u8>()) {
            let mut bytes = VALID.as_bytes().to_vec();
            bytes[at] = with;
            if let Ok(text) = std::str::from_utf8(&bytes) {
                let strict = !text.bytes().any(|byte| !matches!(byte, b'0'..=b'9' | b'a'..=b'f' | b'-'));
                prop_assert!(strict || TraceContext::parse(text, None).is_none());
            }
        }

        #[test]
        fn any_tracestate_is_taken_whole_or_not(state in "[a-z0-9=, @]{0,40}") {
            let context = TraceContext::parse(VALID, Some(&state)).unwrap();
            prop_assert!(context.tracestate().is_none_or(|kept| **kept == *state));
        }
    }
}
