//! The trace context of a received message: in its `_meta`, and in the headers of its HTTP request.
//!
//! The context in `_meta` belongs to the message and becomes the parent. A different context in the
//! headers belongs to the HTTP request and becomes a link (OpenTelemetry semantic conventions for
//! MCP, Context propagation; SEP-414).

use std::ops::Range;
use std::sync::Arc;

use fanlight_protocol::Json;
use fanlight_protocol::json::{Member, Value, rewrite_object};

use crate::context::{self, TraceContext};
use crate::names::{BAGGAGE, TRACEPARENT, TRACESTATE};

/// Whether Fanlight trusts trace context from clients. Each listener sets it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TrustInbound {
    /// The received context becomes the parent.
    #[default]
    Trust,
    /// A new trace begins, with a link to the received context. `tracestate` and `baggage` are
    /// dropped.
    Link,
    /// A new trace begins. All received context is dropped.
    Ignore,
}

/// The three headers of an HTTP request, as received. Several lines of `tracestate` or `baggage`
/// are joined by commas. Several lines of `traceparent` count as none.
#[derive(Clone, Copy, Debug, Default)]
pub struct Headers<'a> {
    /// `traceparent`
    pub traceparent: Option<&'a str>,
    /// `tracestate`
    pub tracestate: Option<&'a str>,
    /// `baggage`
    pub baggage: Option<&'a str>,
}

/// The places in which a message may have trace context.
#[derive(Clone, Copy, Debug, Default)]
pub struct Carriers<'a> {
    /// `params._meta`
    pub meta: Option<&'a Json>,
    /// The headers of the HTTP request that brought the message.
    pub headers: Headers<'a>,
    /// Whether Fanlight trusts this context.
    pub trust: TrustInbound,
}

/// The trace context of a received message.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Inbound {
    pub(crate) parent: Option<TraceContext>,
    pub(crate) links: Vec<TraceContext>,
    /// The baggage for outgoing headers. In `_meta` it stays unchanged.
    pub(crate) baggage: Option<Arc<str>>,
}

/// The context in the headers of a request. Fanlight forwards it if it records nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct HeaderContext {
    pub(crate) context: TraceContext,
    pub(crate) baggage: Option<Arc<str>>,
}

impl Inbound {
    pub(crate) fn read(carriers: &Carriers<'_>) -> Self {
        if carriers.trust == TrustInbound::Ignore {
            return Self::default();
        }
        let meta = carriers
            .meta
            .and_then(MetaContext::read)
            .unwrap_or_default();
        let header = carriers.headers.context();
        let baggage = carriers.headers.baggage().or(meta.baggage);
        if carriers.trust == TrustInbound::Link {
            let mut links: Vec<TraceContext> = meta.context.into_iter().collect();
            links.extend(
                header.filter(|header| !links.iter().any(|link| link.is_same_span(header))),
            );
            return Self {
                parent: None,
                links,
                baggage: None,
            };
        }
        match (meta.context, header) {
            (Some(parent), header) => {
                let links = header
                    .filter(|header| !header.is_same_span(&parent))
                    .into_iter()
                    .collect();
                Self {
                    parent: Some(parent),
                    links,
                    baggage,
                }
            }
            (None, parent) => Self {
                parent,
                links: Vec::new(),
                baggage,
            },
        }
    }
}

/// `params` without the trace context in their `_meta`; `None` if they have none. It is used for
/// clients that are not trusted, whose claims must not reach servers.
pub fn without_trace_context(params: &Json) -> Option<Json> {
    let member = params.members().find(|member| member.is(params, "_meta"))?;
    let meta = params.slice(member.value.clone());
    let is_context = |member: &Member| {
        [TRACEPARENT, TRACESTATE, BAGGAGE]
            .iter()
            .any(|name| member.is(&meta, name))
    };
    meta.members().any(|member| is_context(&member)).then(|| {
        params.with_indexed(
            member.value,
            &rewrite_object(&meta, |member| !is_context(member), b""),
        )
    })
}

impl HeaderContext {
    /// Reads the headers. Returns `None` unless they have a trusted context.
    pub(crate) fn read(carriers: &Carriers<'_>) -> Option<Self> {
        if carriers.trust != TrustInbound::Trust {
            return None;
        }
        Some(Self {
            context: carriers.headers.context()?,
            baggage: carriers.headers.baggage(),
        })
    }
}

impl Headers<'_> {
    fn context(&self) -> Option<TraceContext> {
        TraceContext::parse(self.traceparent?.trim_matches([' ', '\t']), self.tracestate)
    }

    fn baggage(&self) -> Option<Arc<str>> {
        self.baggage
            .filter(|text| context::is_baggage(text))
            .map(Arc::from)
    }
}

#[derive(Default)]
struct MetaContext {
    context: Option<TraceContext>,
    baggage: Option<Arc<str>>,
}

impl MetaContext {
    /// Reads the members of `meta`. Returns `None` if one of them occurs twice, because two readers
    /// could read different values.
    fn read(meta: &Json) -> Option<Self> {
        let [parent, state, baggage] = meta.find([TRACEPARENT, TRACESTATE, BAGGAGE]).ok()?;
        let text = |place: Option<Range<usize>>| meta.value_at(place?).and_then(Value::as_str);
        let (parent, state) = (text(parent), text(state));
        let baggage = text(baggage).filter(|text| context::is_baggage(text));
        let context = parent.and_then(|parent| TraceContext::parse(&parent, state.as_deref()));
        Some(Self {
            context,
            baggage: baggage.map(Arc::from),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    const B: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00";

    fn read(
        meta: &str,
        header: Option<&str>,
        trust: TrustInbound,
    ) -> (Option<String>, Vec<String>) {
        let meta = Json::parse(meta.to_owned().into(), 8).unwrap();
        let headers = Headers {
            traceparent: header,
            ..Headers::default()
        };
        let inbound = Inbound::read(&Carriers {
            meta: Some(&meta),
            headers,
            trust,
        });
        let text = |context: &TraceContext| context.traceparent().to_string();
        (
            inbound.parent.as_ref().map(text),
            inbound.links.iter().map(text).collect(),
        )
    }

    fn with(traceparent: &str) -> String {
        format!(r#"{{"x":1,"traceparent":"{traceparent}"}}"#)
    }

    #[test]
    fn meta_is_the_parent_and_a_different_header_a_link() {
        let trust = TrustInbound::Trust;
        assert_eq!(read(&with(A), None, trust), (Some(A.into()), vec![]));
        assert_eq!(read("{}", Some(A), trust), (Some(A.into()), vec![]));
        assert_eq!(read(&with(A), Some(A), trust), (Some(A.into()), vec![]));
        assert_eq!(
            read(&with(A), Some(B), trust),
            (Some(A.into()), vec![B.into()])
        );
        assert_eq!(read("{}", None, trust), (None, vec![]));
    }

    #[test]
    fn malformed_values_are_ignored() {
        let trust = TrustInbound::Trust;
        assert_eq!(read(&with("00-bad"), None, trust), (None, vec![]));
        assert_eq!(
            read(&with("00-bad"), Some(B), trust),
            (Some(B.into()), vec![])
        );
        assert_eq!(
            read(&with(A), Some("00-bad"), trust),
            (Some(A.into()), vec![])
        );
        assert_eq!(read(r#"{"traceparent":7}"#, None, trust), (None, vec![]));
        assert_eq!(read("[]", None, trust), (None, vec![]));
        let escaped = format!(r#"{{"trace\u0070arent":"{A}"}}"#);
        assert_eq!(read(&escaped, None, trust), (Some(A.into()), vec![]));
        let twice = format!(r#"{{"traceparent":"{A}","traceparent":"{B}"}}"#);
        assert_eq!(read(&twice, None, trust), (None, vec![]));
    }

    #[test]
    fn untrusted_contexts_are_linked_or_ignored() {
        assert_eq!(
            read(&with(A), Some(B), TrustInbound::Link),
            (None, vec![A.into(), B.into()])
        );
        assert_eq!(
            read(&with(A), Some(A), TrustInbound::Link),
            (None, vec![A.into()])
        );
        assert_eq!(
            read(&with(A), Some(B), TrustInbound::Ignore),
            (None, vec![])
        );
    }

    #[test]
    fn untrusted_baggage_is_dropped() {
        let meta = Json::parse(
            format!(r#"{{"traceparent":"{A}","baggage":"user=alice"}}"#).into(),
            8,
        )
        .unwrap();
        let headers = Headers {
            traceparent: Some(A),
            baggage: Some("user=bob"),
            ..Headers::default()
        };
        for trust in [TrustInbound::Link, TrustInbound::Ignore] {
            let carriers = Carriers {
                meta: Some(&meta),
                headers,
                trust,
            };
            assert_eq!(Inbound::read(&carriers).baggage, None);
            assert_eq!(HeaderContext::read(&carriers), None);
        }
        let stripped = trust_stripped(
            r#"{"_meta":{"traceparent":"a","tracestate":"b","k":1,"bagg\u0061ge":"c"},"x":1}"#,
        );
        assert_eq!(stripped.unwrap().as_text(), r#"{"_meta":{"k":1},"x":1}"#);
        assert!(trust_stripped(r#"{"_meta":{"k":1}}"#).is_none() && trust_stripped("{}").is_none());
    }

    fn trust_stripped(params: &str) -> Option<Json> {
        without_trace_context(&Json::parse(params.to_owned().into(), 8).unwrap())
    }

    #[test]
    fn tracestate_and_baggage_are_read_with_the_parent() {
        let meta =
            format!(r#"{{"traceparent":"{A}","tracestate":"a=1","baggage":"user=a\u006cice"}}"#);
        let meta = Json::parse(meta.into(), 8).unwrap();
        let inbound = Inbound::read(&Carriers {
            meta: Some(&meta),
            ..Carriers::default()
        });
        assert_eq!(
            inbound.parent.unwrap().tracestate().unwrap().as_ref(),
            "a=1"
        );
        assert_eq!(inbound.baggage.unwrap().as_ref(), "user=alice");
    }
}
