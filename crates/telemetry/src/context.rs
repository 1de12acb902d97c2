//! W3C trace context: parses `traceparent` and `tracestate` strictly, and writes them.
//!
//! A malformed value is ignored: a new trace begins (W3C Trace Context, 4.3), and no request fails.
//!
//! The SDK's propagator is not used, because it normalizes `tracestate` and allocates a map for
//! each message. The bytes of `tracestate` must be forwarded unchanged.

use std::fmt;
use std::io::Write as _;
use std::str::FromStr;
use std::sync::Arc;

use opentelemetry::trace::{SpanContext, SpanId, TraceFlags, TraceId, TraceState};

/// The limit of the members of a `tracestate` (W3C Trace Context, 3.3.1.1).
const MAX_TRACESTATE_MEMBERS: usize = 32;
/// The limit of an accepted `tracestate`, in bytes. The recommendation requires at least 512.
const MAX_TRACESTATE_BYTES: usize = 4096;
/// The limit of forwarded `baggage`, in bytes (W3C Baggage, 3.3.2).
const MAX_BAGGAGE_BYTES: usize = 8192;
/// The flags that this version of the recommendation defines: sampled and random trace id.
const KNOWN_FLAGS: u8 = 0b11;

/// A span as the parent of other spans: its ids, flags and `tracestate`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TraceContext {
    trace_id: TraceId,
    span_id: SpanId,
    flags: u8,
    tracestate: Option<Arc<str>>,
}

impl TraceContext {
    /// Parses a `traceparent` and its `tracestate`. A malformed `tracestate` is ignored; a
    /// malformed `traceparent` gives `None` (W3C Trace Context, 4.3).
    pub fn parse(traceparent: &str, tracestate: Option<&str>) -> Option<Self> {
        let (trace_id, span_id, flags) = parse_traceparent(traceparent)?;
        let tracestate = tracestate
            .filter(|text| !text.is_empty() && is_tracestate(text))
            .map(Arc::from);
        Some(Self {
            trace_id,
            span_id,
            flags,
            tracestate,
        })
    }

    /// The context of a span of this process, a child of `above`.
    pub(crate) fn new_child(
        above: Option<&Self>,
        trace_id: TraceId,
        span_id: SpanId,
        sampled: bool,
    ) -> Self {
        let (flags, tracestate) =
            above.map_or((0, None), |above| (above.flags, above.tracestate.clone()));
        Self {
            trace_id,
            span_id,
            flags: flags & !1 | u8::from(sampled),
            tracestate,
        }
    }

    /// The id of the trace.
    pub fn trace_id(&self) -> TraceId {
        self.trace_id
    }

    /// The id of the span.
    pub fn span_id(&self) -> SpanId {
        self.span_id
    }

    /// Whether the sender records the trace.
    pub fn is_sampled(&self) -> bool {
        self.flags & 1 == 1
    }

    /// The `tracestate`, as received.
    pub fn tracestate(&self) -> Option<&Arc<str>> {
        self.tracestate.as_ref()
    }

    /// The context as `traceparent`.
    pub fn traceparent(&self) -> Traceparent {
        Traceparent::new(self.trace_id, self.span_id, self.flags)
    }

    /// Whether both name the same span; flags and state may differ.
    pub fn is_same_span(&self, other: &Self) -> bool {
        self.trace_id == other.trace_id && self.span_id == other.span_id
    }

    /// The context for the OpenTelemetry SDK.
    pub(crate) fn to_span_context(&self, is_remote: bool) -> SpanContext {
        let state = self
            .tracestate
            .as_deref()
            .and_then(|text| TraceState::from_str(text).ok())
            .unwrap_or_default();
        SpanContext::new(
            self.trace_id,
            self.span_id,
            TraceFlags::new(self.flags),
            is_remote,
            state,
        )
    }
}

/// A `traceparent` of version 00 as text, without an allocation.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Traceparent([u8; 55]);

impl Traceparent {
    fn new(trace_id: TraceId, span_id: SpanId, flags: u8) -> Self {
        let mut text = [0; 55];
        // The text is exactly as long as the array.
        let _ = write!(
            text.as_mut_slice(),
            "00-{trace_id}-{span_id}-{:02x}",
            flags & KNOWN_FLAGS
        );
        Self(text)
    }

    /// The text.
    pub fn as_str(&self) -> &str {
        // The bytes are always ASCII, so the default is never used.
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

/// Whether `text` may be forwarded as `baggage`: printable ASCII within the size limit. Its members
/// are not parsed.
pub(crate) fn is_baggage(text: &str) -> bool {
    !text.is_empty()
        && text.len() <= MAX_BAGGAGE_BYTES
        && text.bytes().all(|byte| matches!(byte, 0x20..=0x7e | b'\t'))
}

/// Parses a `traceparent` (W3C Trace Context, 3.2). A version above 00 may have further fields, and
/// its unknown flags are ignored (3.2.4, 4.3).
fn parse_traceparent(text: &str) -> Option<(TraceId, SpanId, u8)> {
    let (fixed, rest) = text.split_at_checked(55)?;
    // Only lower-case digits are valid (HEXDIGLC, 3.2.2).
    if !fixed
        .bytes()
        .all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f' | b'-'))
    {
        return None;
    }
    let mut parts = fixed.splitn(4, '-');
    let mut part = |length: usize| parts.next().filter(|part| part.len() == length);
    let (version, trace_id, span_id, flags) = (part(2)?, part(32)?, part(16)?, part(2)?);
    let byte = |text: &str| u8::from_str_radix(text, 16).ok();
    let (version, flags) = (byte(version)?, byte(flags)?);
    let is_whole = if version == 0 {
        rest.is_empty()
    } else {
        rest.is_empty() || rest.starts_with('-')
    };
    let (trace_id, span_id) = (
        TraceId::from_hex(trace_id).ok()?,
        SpanId::from_hex(span_id).ok()?,
    );
    if version == 0xff || !is_whole || trace_id == TraceId::INVALID || span_id == SpanId::INVALID {
        return None;
    }
    Some((
        trace_id,
        span_id,
        flags & if version == 0 { KNOWN_FLAGS } else { 1 },
    ))
}

/// Whether `text` is a `tracestate` (W3C Trace Context, 3.3.1): a list of `key=value`. Empty
/// members are valid, and no key occurs twice.
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
        let Some((key, value)) = member.split_once('=') else {
            return false;
        };
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
            && text
                .bytes()
                .all(|byte| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'_' | b'-' | b'*' | b'/'))
            && text
                .bytes()
                .next()
                .is_some_and(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit())
    };
    match key.split_once('@') {
        None => part(key, 256),
        Some((tenant, system)) => part(tenant, 241) && part(system, 14),
    }
}

fn is_tracestate_value(value: &str) -> bool {
    (1..=256).contains(&value.len())
        && value
            .bytes()
            .all(|byte| matches!(byte, 0x20..=0x7e) && byte != b',' && byte != b'=')
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const VALID: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

    #[test]
    fn traceparent_is_parsed_and_written_back() {
        let context =
            TraceContext::parse(VALID, Some("rojo=00f067aa0ba902b7,congo=t61rcWkgMzE")).unwrap();
        assert_eq!(
            context.trace_id().to_string(),
            "4bf92f3577b34da6a3ce929d0e0e4736"
        );
        assert_eq!(context.span_id().to_string(), "00f067aa0ba902b7");
        assert!(context.is_sampled());
        assert_eq!(context.traceparent().as_str(), VALID);
        assert_eq!(
            context.tracestate().unwrap().as_ref(),
            "rojo=00f067aa0ba902b7,congo=t61rcWkgMzE"
        );
        assert_eq!(
            context.to_span_context(true).trace_state().get("rojo"),
            Some("00f067aa0ba902b7")
        );
    }

    #[test]
    fn malformed_traceparent_is_none() {
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
    fn later_version_is_parsed_as_far_as_known() {
        let later = "cc-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-ff-what-else";
        assert_eq!(
            TraceContext::parse(later, None)
                .unwrap()
                .traceparent()
                .as_str(),
            VALID
        );
        let glued = "cc-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01.what";
        assert_eq!(TraceContext::parse(glued, None), None);
    }

    #[test]
    fn unknown_flags_are_dropped() {
        for (given, kept) in [("00", "00"), ("02", "02"), ("03", "03"), ("fc", "00")] {
            let context = TraceContext::parse(&format!("{}{given}", &VALID[..53]), None).unwrap();
            assert_eq!(&context.traceparent().as_str()[53..], kept);
            assert_eq!(context.is_sampled(), kept.ends_with(['1', '3']));
        }
    }

    #[test]
    fn malformed_tracestate_is_ignored_alone() {
        let many = (0..33)
            .map(|n| format!("k{n}=v"))
            .collect::<Vec<_>>()
            .join(",");
        for state in [
            "", ",", "a", "A=1", "a=1,a=2", "a=1=2", "a=\u{e9}", "@a=1", "a@=1", "a@b@c=1", &many,
        ] {
            let context = TraceContext::parse(VALID, Some(state)).unwrap();
            assert_eq!(context.tracestate(), None, "{state}");
        }
        for state in ["a=1", "a=1, ,b=2\t,", "1tenant@system=x y", "a_-*/=\u{20}!"] {
            assert!(
                TraceContext::parse(VALID, Some(state))
                    .unwrap()
                    .tracestate()
                    .is_some(),
                "{state}"
            );
        }
    }

    proptest! {
        #[test]
        fn any_text_is_none_or_written_back(text in "\\PC{0,70}") {
            if let Some(context) = TraceContext::parse(&text, None) {
                let again = TraceContext::parse(context.traceparent().as_str(), None);
                prop_assert_eq!(again, Some(context));
            }
        }

        #[test]
        fn any_traceparent_is_parsed_by_the_rules(
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
        fn changed_byte_is_none_or_valid(at in 0usize..55, with in any::<u8>()) {
            let mut bytes = VALID.as_bytes().to_vec();
            bytes[at] = with;
            if let Ok(text) = std::str::from_utf8(&bytes) {
                let strict = !text.bytes().any(|byte| !matches!(byte, b'0'..=b'9' | b'a'..=b'f' | b'-'));
                prop_assert!(strict || TraceContext::parse(text, None).is_none());
            }
        }

        #[test]
        fn tracestate_is_kept_whole_or_not_at_all(state in "[a-z0-9=, @]{0,40}") {
            let context = TraceContext::parse(VALID, Some(&state)).unwrap();
            prop_assert!(context.tracestate().is_none_or(|kept| **kept == *state));
        }
    }
}
