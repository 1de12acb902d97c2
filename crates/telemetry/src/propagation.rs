//! The trace context that goes out with a message, in `_meta` and in HTTP headers (docs/tracing.md,
//! Propagation).
//!
//! `traceparent` is replaced in place or inserted at the front, and `tracestate` with it. `baggage`
//! and all other members keep their bytes.

use std::sync::Arc;

use bytes::Bytes;
use fanlight_protocol::Json;
use fanlight_protocol::json::{Edits, Member, ObjectBuilder, quote, rewrite_object};

use crate::context::{TraceContext, Traceparent};
use crate::inbound::HeaderContext;
use crate::names::{BAGGAGE, TRACEPARENT, TRACESTATE};

/// The trace context that goes out with a message.
#[derive(Clone, Debug, Default)]
pub struct Propagation {
    mode: Mode,
    traceparent: Option<Traceparent>,
    tracestate: Option<Arc<str>>,
    baggage: Option<Arc<str>>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Mode {
    /// The message stays unchanged.
    #[default]
    Untouched,
    /// The context of the message is replaced.
    Replace,
    /// This context is added if the message has none.
    IfAbsent,
}

/// A change of one of the three members.
enum Change<'a> {
    Keep,
    Set(&'a str),
    Remove,
}

impl Propagation {
    /// The context of a span.
    pub(crate) fn from_span(context: &TraceContext, baggage: Option<Arc<str>>) -> Self {
        let tracestate = context.tracestate().cloned();
        Self {
            mode: Mode::Replace,
            traceparent: Some(context.traceparent()),
            tracestate,
            baggage,
        }
    }

    /// Baggage without a trace context.
    pub(crate) fn from_baggage(baggage: Option<Arc<str>>) -> Self {
        let mode = if baggage.is_some() {
            Mode::IfAbsent
        } else {
            Mode::Untouched
        };
        Self {
            mode,
            baggage,
            ..Self::default()
        }
    }

    /// The context of received headers, forwarded unchanged.
    pub(crate) fn from_headers(header: &HeaderContext) -> Self {
        Self {
            mode: Mode::IfAbsent,
            traceparent: Some(header.context.traceparent()),
            tracestate: header.context.tracestate().cloned(),
            baggage: header.baggage.clone(),
        }
    }

    /// The headers of the HTTP request that carries the message.
    pub fn headers(&self) -> impl Iterator<Item = (&'static str, &str)> {
        let traceparent = self
            .traceparent
            .as_ref()
            .map(|text| (TRACEPARENT, text.as_str()));
        let tracestate = self.tracestate.as_deref().map(|text| (TRACESTATE, text));
        let baggage = self.baggage.as_deref().map(|text| (BAGGAGE, text));
        traceparent.into_iter().chain(tracestate).chain(baggage)
    }

    /// The context for the body of an HTTP request. A context that is only forwarded stays in the
    /// headers there.
    pub fn within_http(&self) -> Self {
        if self.mode == Mode::IfAbsent {
            Self::default()
        } else {
            self.clone()
        }
    }

    /// Whether the message stays unchanged.
    #[must_use]
    pub fn leaves_untouched(&self) -> bool {
        self.mode == Mode::Untouched
    }

    /// Adds this context to the `_meta` of `params`, and creates both if needed. A `params` or
    /// `_meta` that is no object stays unchanged.
    pub fn into_params(&self, params: Option<&Json>) -> Option<Json> {
        let Some(params) = params else {
            return self.new_params();
        };
        if self.leaves_untouched() || !params.is_object() {
            return Some(params.clone());
        }
        let Some(member) = params.members().find(|member| member.is(params, "_meta")) else {
            let Some(own) = self.new_params() else {
                return Some(params.clone());
            };
            let own = own
                .as_text()
                .strip_prefix('{')
                .and_then(|text| text.strip_suffix('}'))
                .unwrap_or_default();
            let mut edits = Edits::new(params.bytes().clone());
            edits.insert_members(0, own.as_bytes());
            return Some(edits.finish_json());
        };
        let mut edits = Edits::new(params.bytes().clone());
        let meta = params.slice(member.value.clone());
        edits.replace(member.value, self.add_to_meta(&meta).into_bytes());
        Some(edits.finish_json())
    }

    /// Adds this context to `meta`.
    fn add_to_meta(&self, meta: &Json) -> Json {
        if self.leaves_untouched() || !meta.is_object() {
            return meta.clone();
        }
        let changes = self.changes(meta);
        let removes = meta
            .members()
            .any(|member| matches!(find_change(&changes, meta, &member), Some(Change::Remove)));
        let twice = meta.find([TRACEPARENT, TRACESTATE, BAGGAGE]).is_err();
        if removes || twice {
            let keeps = |member: &Member| {
                matches!(
                    find_change(&changes, meta, member),
                    None | Some(Change::Keep)
                )
            };
            return rewrite_object(meta, keeps, &self.members(meta));
        }
        let mut edits = Edits::new(meta.bytes().clone());
        let set = changes
            .iter()
            .filter_map(|(key, change)| change.text().map(|text| (*key, text)));
        let mut added = Vec::new();
        for (key, text) in set {
            match meta.members().find(|member| member.is(meta, key)) {
                Some(member) => edits.replace(member.value, Bytes::from(quote(text))),
                None => push_member(&mut added, key, text),
            }
        }
        edits.insert_members(0, &added);
        edits.finish_json()
    }

    /// The members to add to `meta`, separated by commas.
    fn members(&self, meta: &Json) -> Vec<u8> {
        let mut added = Vec::new();
        for (key, change) in self.changes(meta) {
            if let Some(text) = change.text() {
                push_member(&mut added, key, text);
            }
        }
        added
    }

    fn new_params(&self) -> Option<Json> {
        let members = self.members(&Json::empty_object());
        if members.is_empty() {
            return None;
        }
        let meta = rewrite_object(&Json::empty_object(), |_| true, &members);
        let mut params = ObjectBuilder::new();
        params.member("_meta", &meta);
        Some(params.finish())
    }

    /// The change of each member. An existing `baggage` stays.
    fn changes(&self, meta: &Json) -> [(&'static str, Change<'_>); 3] {
        let has = |key: &str| meta.members().any(|member| member.is(meta, key));
        let (parent, state) = match self.mode {
            Mode::Untouched => (Change::Keep, Change::Keep),
            Mode::IfAbsent if has(TRACEPARENT) || self.traceparent.is_none() => {
                (Change::Keep, Change::Keep)
            }
            // A `tracestate` belongs to its `traceparent`, so both are removed together.
            Mode::Replace | Mode::IfAbsent => (
                self.traceparent
                    .as_ref()
                    .map_or(Change::Keep, |text| Change::Set(text.as_str())),
                self.tracestate
                    .as_deref()
                    .map_or(Change::Remove, |text| state_change(meta, text)),
            ),
        };
        let baggage = match (self.mode, self.baggage.as_deref()) {
            (Mode::Replace | Mode::IfAbsent, Some(text)) if !has(BAGGAGE) => Change::Set(text),
            _ => Change::Keep,
        };
        [
            (TRACEPARENT, parent),
            (TRACESTATE, state),
            (BAGGAGE, baggage),
        ]
    }
}

/// The change of `tracestate`. An equal value keeps its bytes, including escapes.
fn state_change<'a>(meta: &Json, text: &'a str) -> Change<'a> {
    let same = meta
        .get(TRACESTATE)
        .is_some_and(|state| state.as_str().is_some_and(|given| given == text));
    if same {
        Change::Keep
    } else {
        Change::Set(text)
    }
}

impl Change<'_> {
    fn text(&self) -> Option<&str> {
        match self {
            Self::Set(text) => Some(text),
            Self::Keep | Self::Remove => None,
        }
    }
}

fn find_change<'a, 'b>(
    changes: &'a [(&'static str, Change<'b>); 3],
    meta: &Json,
    member: &Member,
) -> Option<&'a Change<'b>> {
    changes
        .iter()
        .find(|(key, _)| member.is(meta, key))
        .map(|(_, change)| change)
}

fn push_member(out: &mut Vec<u8>, key: &str, text: &str) {
    if !out.is_empty() {
        out.push(b',');
    }
    out.extend_from_slice(&quote(key));
    out.push(b':');
    out.extend_from_slice(&quote(text));
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    const B: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00";

    fn json(text: &str) -> Json {
        Json::parse(text.to_owned().into(), 16).unwrap()
    }

    fn ours(state: Option<&str>, baggage: Option<&str>) -> Propagation {
        Propagation::from_span(
            &TraceContext::parse(A, state).unwrap(),
            baggage.map(Arc::from),
        )
    }

    fn spliced(propagation: &Propagation, params: &str) -> String {
        propagation
            .into_params(Some(&json(params)))
            .unwrap()
            .to_string()
    }

    #[test]
    fn traceparent_is_replaced_in_place() {
        let params = format!(
            "{{ \"name\" : \"x\",\n\"_meta\" : {{ \"a\\u0062\" : 1.0e0 ,\"traceparent\": \"{B}\" , \"baggage\":\"k=\\u0076\" }} , \"z\":[ ] }}"
        );
        assert_eq!(
            spliced(&ours(None, Some("other=1")), &params),
            params.replace(B, A)
        );
    }

    #[test]
    fn absent_context_is_added() {
        assert_eq!(
            spliced(&ours(Some("v=1"), None), r#"{"name":"x","_meta":{"k":1}}"#),
            format!(r#"{{"name":"x","_meta":{{"traceparent":"{A}","tracestate":"v=1","k":1}}}}"#)
        );
        assert_eq!(
            spliced(&ours(None, Some("b=2")), r#"{"name":"x"}"#),
            format!(r#"{{"_meta":{{"traceparent":"{A}","baggage":"b=2"}},"name":"x"}}"#)
        );
        assert_eq!(
            spliced(&ours(None, None), "{}"),
            format!(r#"{{"_meta":{{"traceparent":"{A}"}}}}"#)
        );
        let made = ours(None, None).into_params(None).unwrap().to_string();
        assert_eq!(made, format!(r#"{{"_meta":{{"traceparent":"{A}"}}}}"#));
    }

    #[test]
    fn tracestate_of_another_trace_is_removed() {
        let params = format!(r#"{{"_meta":{{"tracestate":"old=1", "k":1,"traceparent":"{B}"}}}}"#);
        assert_eq!(
            spliced(&ours(None, None), &params),
            format!(r#"{{"_meta":{{ "k":1,"traceparent":"{A}"}}}}"#)
        );
        let replaced = spliced(&ours(Some("new=1"), None), &params);
        assert_eq!(replaced, params.replace(B, A).replace("old", "new"));
    }

    #[test]
    fn equal_tracestate_keeps_its_escapes() {
        let params = format!(r#"{{"_meta":{{"traceparent":"{B}","tracestate":"a\u003d1"}}}}"#);
        assert_eq!(
            spliced(&ours(Some("a=1"), None), &params),
            params.replace(B, A)
        );
    }

    #[test]
    fn duplicate_member_is_sent_once() {
        let params = format!(r#"{{"_meta":{{"traceparent":"x","traceparent":"{B}","k":1}}}}"#);
        assert_eq!(
            spliced(&ours(None, None), &params),
            format!(r#"{{"_meta":{{"k":1,"traceparent":"{A}"}}}}"#)
        );
    }

    #[test]
    fn non_objects_stay_unchanged() {
        for params in ["[1]", r#"{"_meta":null}"#, r#"{"_meta":[]}"#] {
            assert_eq!(spliced(&ours(None, None), params), params);
        }
    }

    #[test]
    fn untouched_params_are_not_copied() {
        let params = json(&format!(r#"{{"_meta":{{"traceparent":"{B}"}}}}"#));
        let same = Propagation::default().into_params(Some(&params)).unwrap();
        assert_eq!(same.bytes().as_ptr(), params.bytes().as_ptr());
        assert!(Propagation::default().into_params(None).is_none());
        assert_eq!(Propagation::default().headers().count(), 0);
    }

    #[test]
    fn header_context_is_added_only_if_absent() {
        let header = HeaderContext {
            context: TraceContext::parse(A, Some("v=1")).unwrap(),
            baggage: None,
        };
        let propagation = Propagation::from_headers(&header);
        let with = format!(r#"{{"_meta":{{"traceparent":"{B}"}}}}"#);
        assert_eq!(spliced(&propagation, &with), with);
        assert_eq!(
            spliced(&propagation, r#"{"_meta":{}}"#),
            format!(r#"{{"_meta":{{"traceparent":"{A}","tracestate":"v=1"}}}}"#)
        );
        assert_eq!(
            propagation.headers().collect::<Vec<_>>(),
            [("traceparent", A), ("tracestate", "v=1")]
        );
    }

    #[test]
    fn baggage_goes_out_without_a_context() {
        let propagation = Propagation::from_baggage(Some(Arc::from("k=v")));
        let with = format!(r#"{{"_meta":{{"traceparent":"{B}","tracestate":"a=1"}}}}"#);
        let added =
            format!(r#"{{"_meta":{{"baggage":"k=v","traceparent":"{B}","tracestate":"a=1"}}}}"#);
        assert_eq!(spliced(&propagation, &with), added);
        assert_eq!(
            propagation.headers().collect::<Vec<_>>(),
            [("baggage", "k=v")]
        );
        assert!(Propagation::from_baggage(None).leaves_untouched());
    }
}
