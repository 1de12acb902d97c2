//! The rules of clients that open with `initialize`: 2024-11-05 to 2025-11-25.

use fanlight_protocol::json::Value;
use fanlight_protocol::{Json, LogLevel, Method, Response, Revision, RpcError, code};

use super::fault;
use super::params::Params;

#[derive(Clone, Debug)]
pub(crate) struct InitializeParams {
    /// The agreed revision.
    pub(crate) revision: Revision,
    /// The client's `Implementation` object, if it sent one.
    pub(crate) client_info: Option<Json>,
    /// The client's capabilities for server requests.
    pub(crate) capabilities: Json,
}

impl InitializeParams {
    /// The size of the client's own description.
    pub(crate) fn len(&self) -> usize {
        self.capabilities.bytes().len()
            + self
                .client_info
                .as_ref()
                .map_or(0, |info| info.bytes().len())
    }
}

/// Reads the params of `initialize` and settles the revision: the client's if it is served, else
/// the newest legacy one (2025-11-25 basic/lifecycle, Version Negotiation). A session keeps
/// `clientInfo` and `capabilities`, so each may have at most `longest` bytes.
pub(crate) fn initialize(params: &Params, longest: usize) -> Result<InitializeParams, RpcError> {
    let offered = params
        .protocol_version()
        .and_then(Value::as_str)
        .ok_or_else(|| {
            RpcError::new(
                code::INVALID_PARAMS,
                "\"protocolVersion\" is missing from the params, or not a string",
            )
        })?;
    let object = |member: Option<Json>, name: &str| match member {
        Some(value) if !value.is_object() && !value.is_null() => Err(RpcError::new(
            code::INVALID_PARAMS,
            format!("\"{name}\" must be an object"),
        )),
        Some(value) if value.bytes().len() > longest => {
            let message = format!("\"{name}\" is longer than {longest} bytes, the limit here");
            Err(RpcError::new(code::INVALID_PARAMS, message))
        }
        member => Ok(member.filter(Json::is_object).as_ref().map(Json::detached)),
    };
    let spoken = super::revision(&offered).filter(|revision| revision.has_sessions);
    Ok(InitializeParams {
        revision: spoken.unwrap_or(Revision::NEWEST_LEGACY),
        client_info: object(params.client_info(), "clientInfo")?,
        capabilities: object(params.capabilities(), "capabilities")?
            .unwrap_or_else(Json::empty_object),
    })
}

/// The level in `logging/setLevel`.
pub(crate) fn log_level(params: &Params) -> Result<LogLevel, RpcError> {
    let named = params
        .level()
        .and_then(|level| LogLevel::from_name(&level.as_str()?));
    named.ok_or_else(|| {
        RpcError::new(
            code::INVALID_PARAMS,
            "\"level\" is missing from the params, or not a log level",
        )
    })
}

/// The answer to a request that does not reach the core: it concerns only this hop, is malformed,
/// or has a method of another revision, even if a server has it.
pub(crate) fn own_answer(
    revision: Revision,
    method: &Method,
    params: &Params,
) -> Option<Result<Response, RpcError>> {
    match method {
        Method::Ping => Some(Ok(pong())),
        Method::SetLogLevel => log_level(params).err().map(Err),
        _ if !revision.has_request(method) => Some(Err(fault::method_not_found(method.as_str()))),
        _ => None,
    }
}

/// The answer to `ping`, which concerns only this hop.
fn pong() -> Response {
    Response::from_result(&Json::empty_object())
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONGEST: usize = 1000;

    fn open(text: &'static str) -> Result<InitializeParams, RpcError> {
        initialize(&Params::read(Some(&Json::literal(text))).unwrap(), LONGEST)
    }

    #[test]
    fn revision_is_the_clients_or_the_newest() {
        for (offered, settled) in [
            (r#"{"protocolVersion":"2024-11-05"}"#, Revision::V2024_11_05),
            (r#"{"protocolVersion":"2025-11-25"}"#, Revision::V2025_11_25),
            (r#"{"protocolVersion":"2026-07-28"}"#, Revision::V2025_11_25),
            (r#"{"protocolVersion":"1999-01-01"}"#, Revision::V2025_11_25),
        ] {
            assert_eq!(open(offered).unwrap().revision, settled, "{offered}");
        }
    }

    #[test]
    fn what_the_client_says_of_itself_is_kept_as_written() {
        let opening =
            open(r#"{"protocolVersion":"2025-11-25","capabilities":{"x":1.0},"clientInfo":{"name":"c"}}"#).unwrap();
        assert_eq!(opening.capabilities.as_text(), r#"{"x":1.0}"#);
        assert_eq!(opening.client_info.unwrap().as_text(), r#"{"name":"c"}"#);
        for text in [
            "{}",
            r#"{"protocolVersion":7}"#,
            r#"{"protocolVersion":"2025-11-25","capabilities":[]}"#,
            r#"{"protocolVersion":"2025-11-25","clientInfo":"me"}"#,
        ] {
            assert_eq!(open(text).unwrap_err().code, code::INVALID_PARAMS, "{text}");
        }
    }

    #[test]
    fn a_session_keeps_nothing_but_what_it_needs_and_not_much_of_that() {
        let with = |client_info: &str| {
            let text = format!(r#"{{"protocolVersion":"2025-11-25","clientInfo":{client_info}}}"#);
            let params = Json::parse(text.into(), 8).unwrap();
            (
                initialize(&Params::read(Some(&params)).unwrap(), LONGEST),
                params,
            )
        };
        let (opened, params) = with(r#"{"name":"c"}"#);
        let kept = opened.unwrap().client_info.unwrap();
        let message = params.bytes().as_ptr_range();
        assert!(
            !message.contains(&kept.bytes().as_ptr()),
            "a slice would keep the whole message"
        );
        let (refused, _) = with(&format!(r#"{{"name":"{}"}}"#, "x".repeat(LONGEST)));
        assert_eq!(refused.unwrap_err().code, code::INVALID_PARAMS);
    }

    #[test]
    fn levels_are_checked() {
        let level = |text| log_level(&Params::read(Some(&Json::literal(text))).unwrap());
        assert_eq!(level(r#"{"level":"alert"}"#), Ok(LogLevel::Alert));
        assert_eq!(
            level(r#"{"level":"loud"}"#).unwrap_err().code,
            code::INVALID_PARAMS
        );
        assert_eq!(level("{}").unwrap_err().code, code::INVALID_PARAMS);
    }
}
