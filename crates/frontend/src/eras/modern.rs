//! The rules of 2026-07-28. Its requests need no session: each describes its client in `_meta`. So
//! this module decides which requests are modern.
//!
//! 2026-07-28 basic/versioning, Backward Compatibility: a request with modern per-request `_meta`
//! is served statelessly, and `initialize` selects legacy semantics. A dual-era server may serve
//! both on the same endpoint or process.

use fanlight_canonical::TaskDialect;
use fanlight_protocol::json::Value;
use fanlight_protocol::{
    ClientCapability, Era, Json, LogLevel, Method, MissingCapability, Revision, RpcError, code,
    has_tasks_extension, meta, missing_capability_error,
};

use super::params::Meta;
use super::{description, fault};

/// The `_meta` of a modern request.
#[derive(Clone, Debug)]
pub(crate) struct RequestMeta {
    pub(crate) revision: Revision,
    /// The client's `Implementation` object, if it sent one.
    pub(crate) client_info: Option<Json>,
    /// The `ClientCapabilities` object of this request.
    pub(crate) capabilities: Json,
    /// The least severe level of log messages that the client wants.
    pub(crate) log_level: Option<LogLevel>,
}

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
    name.is_some_and(|name| modern_revision(&name).is_some())
}

/// Checks the revision in `_meta`. It must be a string that names a served modern revision
/// (2026-07-28 basic/versioning, Protocol Version Negotiation).
pub(crate) fn revision(meta: &Meta) -> Result<Revision, RpcError> {
    let named = meta.protocol_version().and_then(Value::as_str);
    let name = named.ok_or_else(|| required(meta::PROTOCOL_VERSION, "a string"))?;
    modern_revision(&name).ok_or_else(|| unsupported_revision(&name))
}

/// Checks the rest of `_meta` (2026-07-28 basic/index, Per-request protocol fields).
pub(crate) fn request_meta(revision: Revision, meta: &Meta) -> Result<RequestMeta, RpcError> {
    let capabilities = meta.client_capabilities().filter(Json::is_object);
    let capabilities =
        capabilities.ok_or_else(|| required(meta::CLIENT_CAPABILITIES, "an object"))?;
    let info = meta.client_info();
    if info.as_ref().is_some_and(|info| !info.is_object()) {
        return Err(invalid(format!(
            "{:?} in \"_meta\" must be an object",
            meta::CLIENT_INFO
        )));
    }
    let log_level = meta.log_level().map(|level| {
        let known = level.as_str().and_then(|name| LogLevel::from_name(&name));
        known.ok_or_else(|| {
            invalid(format!(
                "{:?} in \"_meta\" is not a log level",
                meta::LOG_LEVEL
            ))
        })
    });
    Ok(RequestMeta {
        revision,
        client_info: info,
        capabilities,
        log_level: log_level.transpose()?,
    })
}

impl RequestMeta {
    /// The client's dialect of tasks; `None` if it has none.
    pub(crate) fn tasks(&self) -> Option<TaskDialect> {
        let declared = has_tasks_extension(&self.capabilities);
        self.revision.tasks.filter(|_| declared)
    }
}

/// Replaces the revision's own name of a method. Refuses a method that the revision does not have,
/// even if a server has it. Also refuses task methods if the client does not declare that extension
/// (the tasks extension, Error Handling).
pub(crate) fn check_method(method: &mut Method, sender: &RequestMeta) -> Result<(), RpcError> {
    let revision = sender.revision;
    if !revision.has_request(method) {
        return Err(fault::method_not_found(method.as_str()));
    }
    if let Some(renamed) = revision.renamed_method(method.as_str()) {
        *method = renamed;
    }
    let need = match method {
        Method::GetTask | Method::UpdateTask | Method::CancelTask => ClientCapability::Tasks,
        _ => return Ok(()),
    };
    let missing = MissingCapability::check(&sender.capabilities, need);
    missing
        .and_then(|missing| missing_capability_error(&[missing], &[]))
        .map_or(Ok(()), Err)
}

/// The modern revision with this name, if it is served.
pub(crate) fn modern_revision(name: &str) -> Option<Revision> {
    super::revision(name).filter(|revision| !revision.has_sessions)
}

/// The error for a revision that is not served, or only after `initialize`.
pub(crate) fn unsupported_revision(requested: &str) -> RpcError {
    unsupported_here(requested, &description::versions_served())
}

/// The error for a request on a transport that serves only the other era.
pub(crate) fn not_served(method: &Method, meta: &Meta) -> RpcError {
    match meta.protocol_version().and_then(Value::as_str) {
        Some(requested) => unsupported_here(&requested, &description::legacy_versions_served()),
        None => fault::method_not_found(method.as_str()),
    }
}

fn unsupported_here(requested: &str, supported: &Json) -> RpcError {
    RpcError::new(
        code::UNSUPPORTED_PROTOCOL_VERSION,
        "Unsupported protocol version",
    )
    .with("supported", supported)
    .with("requested", &Json::string(requested))
}

fn required(key: &str, kind: &str) -> RpcError {
    invalid(format!(
        "{key:?} is missing from \"_meta\" of the params, or not {kind}; a client of an earlier revision opens with \
         \"initialize\""
    ))
}

fn invalid(message: String) -> RpcError {
    RpcError::new(code::INVALID_PARAMS, message)
}

#[cfg(test)]
mod tests {
    use fanlight_protocol::json::ObjectBuilder;

    use super::*;
    use crate::eras::notifications::LogGate;

    fn meta(text: &'static str) -> Meta {
        let params = Json::empty_object().with_member("_meta", &Json::literal(text));
        crate::eras::params::Params::read(Some(&params))
            .unwrap()
            .meta
    }

    #[test]
    fn revision_is_required_and_must_be_modern() {
        let revision = |text| revision(&meta(text));
        assert_eq!(
            revision(r#"{"io.modelcontextprotocol/protocolVersion":"2026-07-28"}"#),
            Ok(Revision::V2026_07_28)
        );
        assert_eq!(revision("{}").unwrap_err().code, code::INVALID_PARAMS);
        assert_eq!(
            revision(r#"{"io.modelcontextprotocol/protocolVersion":7}"#)
                .unwrap_err()
                .code,
            code::INVALID_PARAMS
        );
        let error =
            revision(r#"{"io.modelcontextprotocol/protocolVersion":"1900-01-01"}"#).unwrap_err();
        assert_eq!(error.code, code::UNSUPPORTED_PROTOCOL_VERSION);
        assert_eq!(
            error.data.unwrap().as_text(),
            r#"{"supported":["2026-07-28","2025-11-25","2025-06-18","2025-03-26","2024-11-05"],"requested":"1900-01-01"}"#
        );
        let legacy = revision(r#"{"io.modelcontextprotocol/protocolVersion":"2025-11-25"}"#);
        assert_eq!(legacy.unwrap_err().code, code::UNSUPPORTED_PROTOCOL_VERSION);
    }

    #[test]
    fn capabilities_are_required_and_other_meta_is_not() {
        let client = |text| request_meta(Revision::V2026_07_28, &meta(text));
        assert_eq!(client("{}").unwrap_err().code, code::INVALID_PARAMS);
        for wrong in [
            r#"{"io.modelcontextprotocol/clientCapabilities":null}"#,
            r#"{"io.modelcontextprotocol/clientCapabilities":{},"io.modelcontextprotocol/clientInfo":"me"}"#,
            r#"{"io.modelcontextprotocol/clientCapabilities":{},"io.modelcontextprotocol/logLevel":"loud"}"#,
            r#"{"io.modelcontextprotocol/clientCapabilities":{},"io.modelcontextprotocol/logLevel":null}"#,
        ] {
            assert_eq!(
                client(wrong).unwrap_err().code,
                code::INVALID_PARAMS,
                "{wrong}"
            );
        }
        let plain = client(r#"{"io.modelcontextprotocol/clientCapabilities":{"a":1.0}}"#).unwrap();
        assert_eq!(
            (
                plain.capabilities.as_text(),
                LogGate::new(Revision::V2026_07_28, plain.log_level)
            ),
            (r#"{"a":1.0}"#, LogGate::Closed)
        );
        let logging = client(
            r#"{"io.modelcontextprotocol/clientCapabilities":{},"io.modelcontextprotocol/logLevel":"error"}"#,
        );
        assert_eq!(
            LogGate::new(Revision::V2026_07_28, logging.unwrap().log_level),
            LogGate::AtLeast(LogLevel::Error)
        );
    }

    #[test]
    fn removed_methods_are_unknown() {
        let meta = meta(r#"{"io.modelcontextprotocol/clientCapabilities":{}}"#);
        let client = request_meta(Revision::V2026_07_28, &meta).unwrap();
        let refused = |method| {
            check_method(&mut Method::from_name(method), &client)
                .err()
                .map(|error| error.code)
        };
        for removed in [
            "initialize",
            "ping",
            "logging/setLevel",
            "resources/subscribe",
            "tasks/result",
            "tasks/list",
        ] {
            assert_eq!(refused(removed), Some(code::METHOD_NOT_FOUND), "{removed}");
        }
        assert_eq!(refused("tools/call"), None);
    }

    #[test]
    fn task_methods_need_the_declared_extension() {
        let with = |capabilities: &str| {
            let text =
                format!(r#"{{"io.modelcontextprotocol/clientCapabilities":{capabilities}}}"#);
            request_meta(Revision::V2026_07_28, &meta(text.leak())).unwrap()
        };
        let (knows, ignorant) = (
            with(r#"{"extensions":{"io.modelcontextprotocol/tasks":{}}}"#),
            with(r#"{"extensions":{}}"#),
        );
        assert_eq!(
            (knows.tasks(), ignorant.tasks()),
            (Some(TaskDialect::Extension), None)
        );
        for mut method in [Method::GetTask, Method::UpdateTask, Method::CancelTask] {
            let mut check = |sender| check_method(&mut method, sender);
            assert_eq!(check(&knows), Ok(()));
            let error = check(&ignorant).unwrap_err();
            assert_eq!(error.code, code::MISSING_CLIENT_CAPABILITY);
            let required =
                r#"{"requiredCapabilities":{"extensions":{"io.modelcontextprotocol/tasks":{}}}}"#;
            assert_eq!(error.data.unwrap().as_text(), required);
        }
    }

    fn meta_with(version: Option<&'static str>) -> Meta {
        let Some(version) = version else {
            return Meta::default();
        };
        let whole = ObjectBuilder::new()
            .string(meta::PROTOCOL_VERSION, version)
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
            let decided = request_era(&Method::from_name(method), &meta_with(version), header);
            assert_eq!(decided, era, "{method} {version:?} {header:?}");
        }
    }
}
