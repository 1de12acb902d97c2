//! The members of `params` and `_meta` that this side reads, found in one pass each.
//!
//! A member that occurs twice is refused: this side and a backend could read different ones.

use fanlight_protocol::json::{DuplicateMember, Kind};
use fanlight_protocol::{Json, RpcError, code, meta};

use crate::input::{INPUT_RESPONSES, REQUEST_STATE};

/// What is read of a request's or notification's `params`.
#[derive(Clone, Debug, Default)]
pub(crate) struct Params {
    pub(crate) name: Option<Json>,
    pub(crate) uri: Option<Json>,
    pub(crate) task_id: Option<Json>,
    pub(crate) arguments: Option<Json>,
    pub(crate) level: Option<Json>,
    pub(crate) request_id: Option<Json>,
    pub(crate) protocol_version: Option<Json>,
    pub(crate) capabilities: Option<Json>,
    pub(crate) client_info: Option<Json>,
    pub(crate) request_state: Option<Json>,
    pub(crate) input_responses: Option<Json>,
    pub(crate) meta: Meta,
}

/// What is read of `params._meta`.
#[derive(Clone, Debug, Default)]
pub(crate) struct Meta {
    pub(crate) protocol_version: Option<Json>,
    pub(crate) client_info: Option<Json>,
    pub(crate) client_capabilities: Option<Json>,
    pub(crate) log_level: Option<Json>,
    /// A string or number; anything else names nothing.
    pub(crate) progress_token: Option<Json>,
}

impl Params {
    /// Reads `params`. `cursor` and `ref` are read by the core; their doubles are refused here too.
    pub(crate) fn read(params: Option<&Json>) -> Result<Self, RpcError> {
        let Some(params) = params else { return Ok(Self::default()) };
        let found = params
            .find([
                "name",
                "uri",
                "taskId",
                "arguments",
                "level",
                "requestId",
                "protocolVersion",
                "capabilities",
                "clientInfo",
                REQUEST_STATE,
                INPUT_RESPONSES,
                "_meta",
                "cursor",
                "ref",
            ])
            .map_err(|duplicate| refuse(&duplicate, "params"))?;
        let [
            name,
            uri,
            task_id,
            arguments,
            level,
            request_id,
            protocol_version,
            capabilities,
            client_info,
            request_state,
            input_responses,
            meta,
            _,
            _,
        ] = found.map(|range| range.map(|range| params.slice(range)));
        let meta = meta.as_ref().map_or_else(|| Ok(Meta::default()), Meta::read)?;
        Ok(Self {
            name,
            uri,
            task_id,
            arguments,
            level,
            request_id,
            protocol_version,
            capabilities,
            client_info,
            request_state,
            input_responses,
            meta,
        })
    }
}

impl Meta {
    fn read(object: &Json) -> Result<Self, RpcError> {
        let [protocol_version, client_info, client_capabilities, log_level, progress_token] = object
            .find([
                meta::PROTOCOL_VERSION,
                meta::CLIENT_INFO,
                meta::CLIENT_CAPABILITIES,
                meta::LOG_LEVEL,
                meta::PROGRESS_TOKEN,
            ])
            .map_err(|duplicate| refuse(&duplicate, "_meta"))?
            .map(|range| range.map(|range| object.slice(range)));
        let progress_token = progress_token.filter(|token| matches!(token.kind(), Kind::String | Kind::Number));
        Ok(Self { protocol_version, client_info, client_capabilities, log_level, progress_token })
    }
}

fn refuse(duplicate: &DuplicateMember, place: &str) -> RpcError {
    RpcError::new(code::INVALID_REQUEST, format!("{duplicate} in \"{place}\""))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_what_is_there() {
        let params =
            Json::literal(r#"{"name":"n","_meta":{"progressToken":7,"io.modelcontextprotocol/protocolVersion":"v"}}"#);
        let read = Params::read(Some(&params)).unwrap();
        assert_eq!(read.name.unwrap().as_text(), "\"n\"");
        assert_eq!(read.meta.progress_token.unwrap().as_text(), "7");
        assert_eq!(read.meta.protocol_version.unwrap().as_text(), "\"v\"");
        let odd = Json::literal(r#"{"_meta":{"progressToken":{}}}"#);
        assert!(Params::read(Some(&odd)).unwrap().meta.progress_token.is_none());
        let no_object = Json::literal(r#"{"_meta":null}"#);
        assert!(Params::read(Some(&no_object)).unwrap().meta.protocol_version.is_none());
    }

    #[test]
    fn refuses_doubles_of_what_it_reads_and_of_nothing_else() {
        for text in [
            r#"{"name":"a","na\u006de":"b"}"#,
            r#"{"_meta":{},"_meta":{}}"#,
            r#"{"_meta":{"progressToken":1,"progressToken":2}}"#,
            r#"{"cursor":"a","cursor":"b"}"#,
            r#"{"requestState":"a","requestState":"b"}"#,
        ] {
            let error = Params::read(Some(&Json::literal(text))).unwrap_err();
            assert_eq!(error.code, code::INVALID_REQUEST, "{text}");
        }
        assert!(Params::read(Some(&Json::literal(r#"{"other":1,"other":2}"#))).is_ok());
    }
}
