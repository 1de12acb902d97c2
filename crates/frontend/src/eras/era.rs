//! Decides the era of each message.
//!
//! 2026-07-28 basic/versioning, Backward Compatibility: a request with modern per-request `_meta`
//! is served statelessly, and `initialize` selects legacy semantics. A dual-era server may serve
//! both on the same endpoint or process.

use fanlight_protocol::json::Value;
use fanlight_protocol::{Era, Method};

use super::modern;
use super::params::Meta;

/// The era of an HTTP request. `header` is the value of `MCP-Protocol-Version`, if present.
pub(crate) fn request_era(method: &Method, meta: &Meta, header: Option<&str>) -> Era {
    match method {
        // A body that names a modern revision is a modern request, whatever its method. Modern
        // revisions removed `initialize`.
        Method::Initialize if !names_modern_revision(meta) => Era::Legacy,
        // No legacy revision has it.
        Method::Discover => Era::Modern,
        _ if is_modern(meta, header) => Era::Modern,
        _ => Era::Legacy,
    }
}

/// Whether a message on HTTP without a decisive method is modern.
pub(crate) fn is_modern(meta: &Meta, header: Option<&str>) -> bool {
    let header_is_legacy =
        |name: &str| super::revision(name).is_some_and(|known| known.has_sessions);
    meta.protocol_version().is_some() || header.is_some_and(|name| !header_is_legacy(name))
}

fn names_modern_revision(meta: &Meta) -> bool {
    let name = meta.protocol_version().and_then(Value::as_str);
    name.is_some_and(|name| modern::modern_revision(&name).is_some())
}

#[cfg(test)]
mod tests {
    use fanlight_protocol::json::ObjectBuilder;

    use super::*;

    fn meta(version: Option<&'static str>) -> Meta {
        let Some(version) = version else {
            return Meta::default();
        };
        let whole = ObjectBuilder::new()
            .string(fanlight_protocol::meta::PROTOCOL_VERSION, version)
            .finish();
        Meta::read(whole).unwrap()
    }

    #[test]
    fn era_follows_the_decision_table() {
        use Era::{Legacy, Modern};
        for (method, version, header, era) in [
            ("tools/list", None, None, Legacy),
            ("tools/list", None, Some("2025-11-25"), Legacy),
            ("tools/list", None, Some("2026-07-28"), Modern),
            ("tools/list", None, Some("1900-01-01"), Modern),
            ("tools/list", Some("2026-07-28"), None, Modern),
            ("tools/list", Some("2025-11-25"), Some("2025-11-25"), Modern),
            ("initialize", None, None, Legacy),
            ("initialize", None, Some("2026-07-28"), Legacy),
            ("initialize", Some("2027-01-01"), None, Legacy),
            ("initialize", Some("2026-07-28"), Some("2026-07-28"), Modern),
            ("server/discover", None, None, Modern),
            ("server/discover", None, Some("2025-11-25"), Modern),
        ] {
            let decided = request_era(&Method::from_name(method), &meta(version), header);
            assert_eq!(decided, era, "{method} {version:?} {header:?}");
        }
    }
}
