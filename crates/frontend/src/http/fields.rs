//! The header fields that the endpoint reads, found in one pass. Each lookup by name would hash the
//! name, and a request needs a dozen.

use fanlight_protocol::header;
use http::{HeaderMap, HeaderValue};

/// The name of the field with a client's credentials, as messages write it.
pub(crate) const AUTHORIZATION: &str = "Authorization";

/// The header fields of a request that the endpoint reads.
#[derive(Clone, Debug)]
pub(crate) struct Fields<'a> {
    pub(crate) all: &'a HeaderMap,
    pub(crate) accept: Field<'a>,
    pub(crate) content_type: Field<'a>,
    pub(crate) content_encoding: Field<'a>,
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
