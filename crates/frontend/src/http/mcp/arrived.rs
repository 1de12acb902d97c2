//! An arrived request of an identified client, and the checks of its `Content-Type` and `Accept`.
//!
//! The header fields that the endpoint reads are found in one pass. Each lookup by name would hash
//! the name, and a request needs a dozen.

use std::net::SocketAddr;
use std::sync::Arc;

use bytes::Bytes;
use fanlight_canonical::{Endpoint as McpEndpoint, Peer};
use fanlight_credentials::ConnectionFacts;
use fanlight_protocol::accept::{Accepts, JSON, essence};
use fanlight_protocol::{header, sse};
use fanlight_telemetry::metrics::Direction;
use fanlight_telemetry::{Headers, Moment, Network};
use http::header::{ACCEPT, CONTENT_ENCODING};
use http::request::Parts;
use http::{HeaderMap, HeaderValue, StatusCode};
use hyper::body::Incoming;

use super::{Endpoint, NamedSession};
use crate::forwarding::{Opened, Replicas};
use crate::http::activity::ActiveRequest;
use crate::http::body::{self, BodyLimits};
use crate::http::events::listeners::{ListenOnlyStreams, StreamPermit};
use crate::http::recorded::RecordedRequest;
use crate::http::reply::Refusal;
use crate::ingress::Origin;
use crate::settings::FrontendSettings;
use crate::trace::{self, TransportFacts};

/// A request of an identified client, without its body.
pub(super) struct Arrived<'a> {
    pub(super) endpoint: &'a Endpoint,
    pub(super) head: &'a Parts,
    pub(super) fields: Fields<'a>,
    pub(super) connection: &'a ConnectionFacts,
    /// The request's guard on its connection.
    pub(super) active: &'a ActiveRequest,
    /// The places of its messages in a recording.
    pub(super) recorded: RecordedRequest,
    /// The forwarded request that this one was made from, if another replica forwarded it.
    pub(super) forwarded: Option<&'a Opened>,
    /// The sender.
    pub(super) origin: Origin<'a>,
    /// The media types that a POST accepts as its answer.
    pub(super) accepts: Accepts,
    /// The session that a POST names, once its body has been read.
    pub(super) session: NamedSession,
    /// How a POST may be forwarded, once its body has been read.
    pub(super) passing: Passing<'a>,
}

/// How a request may be forwarded between replicas before it begins.
#[derive(Clone, Copy, Debug)]
pub(super) enum Passing<'a> {
    /// The request may be forwarded to these replicas.
    On(&'a Arc<dyn Replicas>),
    /// Another replica forwarded the request to this one.
    Here,
    /// The request's session exists, here or elsewhere. If the request is about a task, these
    /// replicas may have the task; `None` if the replica that was asked no longer has it.
    Task(Option<&'a Arc<dyn Replicas>>),
    /// There are no other replicas, or the one that was asked no longer has the subject of the
    /// request.
    Nowhere,
}

impl RecordedRequest {
    /// A request to this endpoint.
    #[inline]
    pub(super) fn new(settings: &FrontendSettings, endpoint: &McpEndpoint) -> Self {
        let tap = settings.telemetry.tap().filter(|tap| tap.is_on());
        Self {
            exchange: tap.map_or(0, |tap| tap.exchange_at(endpoint.full_path())),
            ..Self::default()
        }
    }
}

impl Arrived<'_> {
    /// Reads the body with a message. For a forwarded request this is the body that the other
    /// replica sealed.
    pub(super) async fn read(&self, body: &mut Incoming) -> Result<Bytes, Box<Refusal>> {
        let (settings, peer) = (&self.endpoint.settings, self.origin.peer());
        let text = body::read(body, BodyLimits::new(settings, &peer, self.active)).await?;
        if let Some(opened) = self.forwarded {
            let refused = |error: crate::forwarding::Refused| {
                Refusal::invalid(StatusCode::MISDIRECTED_REQUEST, error.to_string())
            };
            opened.check_body(&text).map_err(refused)?;
        }
        trace::bytes(&settings.telemetry, Direction::Receive, text.len());
        Ok(text)
    }
}

impl<'a> Fields<'a> {
    /// Facts about the messages of a request with these fields, whose client has sent it itself.
    /// `client` is its address, which a trusted proxy may have named, and `user` its process's user
    /// id on a Unix socket.
    pub(super) fn facts(
        &self,
        head: &Parts,
        received: Moment,
        exchange: u64,
        client: Option<SocketAddr>,
        user: Option<u32>,
    ) -> TransportFacts<'a> {
        // A repeated `traceparent` is ignored. So are lists in several fields, which are rare and
        // unimportant.
        let one = |field: Field<'a>| field.single_value().ok().flatten().map(|(_, text)| text);
        TransportFacts {
            received,
            exchange,
            network: Network::Http {
                version: if head.version == http::Version::HTTP_2 {
                    "2"
                } else {
                    "1.1"
                },
                client,
            },
            user,
            is_forwarded: false,
            is_proxied: self.is_proxied,
            trace_context: Headers {
                traceparent: one(self.traceparent),
                tracestate: one(self.tracestate),
                baggage: one(self.baggage),
            },
        }
    }
}

/// A permit for a listen-only stream of `peer`.
pub(super) fn stream_permit(
    streams: &ListenOnlyStreams,
    peer: &Peer,
) -> Result<StreamPermit, Box<Refusal>> {
    streams
        .acquire(peer)
        .map_err(|refused| Refusal::busy(refused.to_string()))
}

/// The name of the field with a client's credentials, as messages write it.
pub(crate) const AUTHORIZATION: &str = "Authorization";

/// The header fields of a request that the endpoint reads.
#[derive(Clone, Debug)]
pub(crate) struct Fields<'a> {
    pub(crate) all: &'a HeaderMap,
    pub(crate) accept: Field<'a>,
    content_type: Field<'a>,
    content_encoding: Field<'a>,
    pub(crate) session_id: Field<'a>,
    pub(crate) last_event_id: Field<'a>,
    pub(crate) authorization: Field<'a>,
    pub(crate) protocol_version: Field<'a>,
    pub(crate) method: Field<'a>,
    pub(crate) name: Field<'a>,
    pub(crate) traceparent: Field<'a>,
    pub(crate) tracestate: Field<'a>,
    pub(crate) baggage: Field<'a>,
    /// Whether a proxy has named itself or its client, so that a connection can have requests of
    /// several clients.
    pub(crate) is_proxied: bool,
}

/// The values of one field.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Field<'a> {
    #[default]
    Absent,
    /// A single value.
    One(&'a HeaderValue),
    /// The first of several values.
    Several(&'a HeaderValue),
}

impl<'a> Fields<'a> {
    /// Finds the fields in `all`.
    pub(crate) fn find(all: &'a HeaderMap) -> Self {
        let mut fields = Self {
            all,
            accept: Field::Absent,
            content_type: Field::Absent,
            content_encoding: Field::Absent,
            session_id: Field::Absent,
            last_event_id: Field::Absent,
            authorization: Field::Absent,
            protocol_version: Field::Absent,
            method: Field::Absent,
            name: Field::Absent,
            traceparent: Field::Absent,
            tracestate: Field::Absent,
            baggage: Field::Absent,
            is_proxied: false,
        };
        for (name, value) in all {
            let field = match name.as_str() {
                "accept" => &mut fields.accept,
                "content-type" => &mut fields.content_type,
                "content-encoding" => &mut fields.content_encoding,
                header::SESSION_ID => &mut fields.session_id,
                "last-event-id" => &mut fields.last_event_id,
                "authorization" => &mut fields.authorization,
                header::PROTOCOL_VERSION => &mut fields.protocol_version,
                header::METHOD => &mut fields.method,
                header::NAME => &mut fields.name,
                "traceparent" => &mut fields.traceparent,
                "tracestate" => &mut fields.tracestate,
                "baggage" => &mut fields.baggage,
                "forwarded" | "via" | "x-forwarded-for" | "x-real-ip" => {
                    fields.is_proxied = true;
                    continue;
                }
                _ => continue,
            };
            *field = match *field {
                Field::Absent => Field::One(value),
                Field::One(first) | Field::Several(first) => Field::Several(first),
            };
        }
        fields
    }

    /// The field called `name`, in lower case.
    pub(crate) fn field(&self, name: &str) -> Field<'a> {
        match name {
            header::NAME => self.name,
            _ => Field::find(self.all, name),
        }
    }

    /// The name of a repeated field about the sender or subject of the request. Another program on
    /// the way could read another value of it. Fields that mirror the body are compared with the
    /// body elsewhere.
    pub(crate) fn ambiguous_field(&self) -> Option<&'static str> {
        let single = [
            ("Mcp-Session-Id", self.session_id),
            ("Last-Event-ID", self.last_event_id),
            (AUTHORIZATION, self.authorization),
        ];
        single
            .into_iter()
            .find(|(_, field)| matches!(field, Field::Several(_)))
            .map(|(name, _)| name)
    }
}

impl<'a> Field<'a> {
    /// The values of any field by name.
    pub(crate) fn find(all: &'a HeaderMap, name: &str) -> Self {
        let mut values = all.get_all(name).iter();
        match (values.next(), values.next()) {
            (None, _) => Self::Absent,
            (Some(value), None) => Self::One(value),
            (Some(first), Some(_)) => Self::Several(first),
        }
    }

    /// The single value as text; an error if there are several, or it is not text.
    pub(crate) fn single_value(self) -> Result<Option<(&'a HeaderValue, &'a str)>, ()> {
        match self {
            Self::Absent => Ok(None),
            Self::One(value) => value.to_str().map(|text| Some((value, text))).map_err(drop),
            Self::Several(_) => Err(()),
        }
    }

    pub(crate) fn first_value(self) -> Option<&'a HeaderValue> {
        match self {
            Self::Absent => None,
            Self::One(value) | Self::Several(value) => Some(value),
        }
    }
}

const BOTH: &str = "application/json, text/event-stream";

impl Fields<'_> {
    /// Checks the head of a POST: the body must be JSON, and the client must accept one of the two
    /// response types.
    pub(crate) fn check_post(&self) -> Result<Accepts, Box<Refusal>> {
        self.check_content_type()?;
        let accepts = self.accepts();
        if !accepts.json && !accepts.events {
            let message = format!(
                "\"Accept\" allows neither {JSON} nor {}; list both",
                sse::CONTENT_TYPE
            );
            return Err(Refusal::invalid(StatusCode::NOT_ACCEPTABLE, message));
        }
        Ok(accepts)
    }

    /// Checks the head of a GET for an event stream: the client "MUST include an `Accept` header,
    /// listing `text/event-stream`" (2025-11-25 basic/transports, Listening for Messages from the
    /// Server).
    pub(crate) fn check_get(&self) -> Result<(), Box<Refusal>> {
        match self.accept {
            Field::Absent => Err(not_acceptable("GET")),
            _ => self.check_sse_get(),
        }
    }

    /// Checks the head of a GET of the HTTP+SSE transport, which does not require `Accept`.
    pub(crate) fn check_sse_get(&self) -> Result<(), Box<Refusal>> {
        if self.accepts().events {
            Ok(())
        } else {
            Err(not_acceptable("GET"))
        }
    }

    /// Checks that the body of a POST is declared as JSON without a content coding.
    pub(crate) fn check_content_type(&self) -> Result<(), Box<Refusal>> {
        let refuse = |message: &str| {
            Err(Refusal::invalid(
                StatusCode::UNSUPPORTED_MEDIA_TYPE,
                message,
            ))
        };
        let Field::One(value) = self.content_type else {
            return refuse("\"Content-Type\" must be application/json");
        };
        // Nearly all clients use this spelling, which is cheap to compare.
        if value != JSON
            && !value
                .to_str()
                .is_ok_and(|value| essence(value).eq_ignore_ascii_case(JSON))
        {
            return refuse("\"Content-Type\" must be application/json");
        }
        let is_plain = |value: &HeaderValue| value.as_bytes().eq_ignore_ascii_case(b"identity");
        let encoded = self.content_encoding != Field::Absent;
        if encoded && !self.all.get_all(CONTENT_ENCODING).iter().all(is_plain) {
            return refuse("\"Content-Encoding\" is not supported: send the body as it is");
        }
        Ok(())
    }

    /// The media types that `Accept` allows. Values that are not ASCII are ignored.
    fn accepts(&self) -> Accepts {
        match self.accept {
            Field::Absent => Accepts::ANY,
            // The spelling of nearly all clients, which must accept both (2026-07-28 streamable-http).
            Field::One(only) if only == BOTH => Accepts::ANY,
            _ => Accepts::evaluate(|| {
                self.all
                    .get_all(ACCEPT)
                    .iter()
                    .filter_map(|value| value.to_str().ok())
            }),
        }
    }
}

/// The refusal of a request that only an event stream can answer.
pub(crate) fn not_acceptable(what: &str) -> Box<Refusal> {
    let message = format!(
        "{what} is answered by an event stream: list {} in \"Accept\"",
        sse::CONTENT_TYPE
    );
    Refusal::invalid(StatusCode::NOT_ACCEPTABLE, message)
}

#[cfg(test)]
mod negotiate_tests {
    use http::header::CONTENT_TYPE;
    use http::{HeaderMap, HeaderValue};

    use super::*;

    fn headers(pairs: &[(http::HeaderName, &str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in pairs {
            headers.append(name, HeaderValue::from_bytes(value.as_bytes()).unwrap());
        }
        headers
    }

    #[test]
    fn accept_of_several_lines_is_one_list() {
        assert_eq!(Fields::find(&HeaderMap::new()).accepts(), Accepts::ANY);
        let split = headers(&[(ACCEPT, "application/json"), (ACCEPT, "text/event-stream")]);
        assert_eq!(Fields::find(&split).accepts(), Accepts::ANY);
    }

    #[test]
    fn content_type_must_be_json_without_coding() {
        let ok = |pairs: &[(http::HeaderName, &str)]| {
            Fields::find(&headers(pairs)).check_content_type().is_ok()
        };
        assert!(ok(&[(CONTENT_TYPE, "application/json")]));
        assert!(ok(&[(CONTENT_TYPE, "Application/JSON ; charset=UTF-8")]));
        assert!(ok(&[
            (CONTENT_TYPE, "application/json"),
            (CONTENT_ENCODING, "identity")
        ]));
        assert!(!ok(&[]));
        assert!(!ok(&[(CONTENT_TYPE, "text/plain")]));
        assert!(!ok(&[(CONTENT_TYPE, "application/jsonx")]));
        assert!(!ok(&[
            (CONTENT_TYPE, "application/json"),
            (CONTENT_TYPE, "text/plain")
        ]));
        assert!(!ok(&[
            (CONTENT_TYPE, "application/json"),
            (CONTENT_ENCODING, "gzip")
        ]));
    }
}

#[cfg(test)]
mod tests {
    use http::HeaderName;
    use proptest::prelude::*;

    use super::*;

    const NAMES: [&str; 14] = [
        "accept",
        "content-type",
        "content-encoding",
        "mcp-session-id",
        "last-event-id",
        "authorization",
        "mcp-protocol-version",
        "mcp-method",
        "mcp-name",
        "traceparent",
        "tracestate",
        "baggage",
        "mcp-param-region",
        "content-length",
    ];

    proptest! {
        #[test]
        fn fields_are_those_that_a_lookup_by_name_finds(picked in prop::collection::vec((0..NAMES.len(), "[a-z]{0,3}"), 0..20)) {
            let mut all = HeaderMap::new();
            for (at, value) in picked {
                let name = HeaderName::from_bytes(NAMES[at].to_uppercase().as_bytes()).unwrap();
                all.append(name, HeaderValue::from_str(&value).unwrap());
            }
            let fields = Fields::find(&all);
            let found = [
                fields.accept,
                fields.content_type,
                fields.content_encoding,
                fields.session_id,
                fields.last_event_id,
                fields.authorization,
                fields.protocol_version,
                fields.method,
                fields.name,
                fields.traceparent,
                fields.tracestate,
                fields.baggage,
            ];
            for (name, found) in NAMES.into_iter().zip(found) {
                prop_assert_eq!(found, Field::find(&all, name), "{}", name);
            }
        }
    }
}
