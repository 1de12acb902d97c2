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
    /// All of it.
    pub(crate) whole: Option<Json>,
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
                // Read elsewhere, but no member may be there twice.
                "cursor",
                "ref",
            ])
            .map_err(|duplicate| refuse(&duplicate, "params"))?;
        let mut found = found.into_iter().map(|range| range.map(|range| params.slice(range)));
        // The fields are filled in the order of the names.
        let mut next = || found.next().flatten();
        Ok(Self {
            name: next(),
            uri: next(),
            task_id: next(),
            arguments: next(),
            level: next(),
            request_id: next(),
            protocol_version: next(),
            capabilities: next(),
            client_info: next(),
            request_state: next(),
            input_responses: next(),
            meta: next().as_ref().map_or_else(|| Ok(Meta::default()), Meta::read)?,
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
        let whole = Some(object.clone());
        Ok(Self { whole, protocol_version, client_info, client_capabilities, log_level, progress_token })
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
    fn each_member_is_read_as_itself() {
        let names = [
            ("name", "taskId"),
            ("uri", "level"),
            ("arguments", "requestId"),
            ("protocolVersion", "capabilities"),
            ("clientInfo", "requestState"),
            ("inputResponses", "cursor"),
        ];
        let members = names.iter().flat_map(|(a, b)| [a, b]).map(|name| format!(r#""{name}":"{name}""#));
        let text = format!("{{{}}}", members.collect::<Vec<_>>().join(","));
        let read = Params::read(Some(&Json::parse(text.into(), 8).unwrap())).unwrap();
        for (value, name) in [
            (read.name, "name"),
            (read.uri, "uri"),
            (read.task_id, "taskId"),
            (read.arguments, "arguments"),
            (read.level, "level"),
            (read.request_id, "requestId"),
            (read.protocol_version, "protocolVersion"),
            (read.capabilities, "capabilities"),
            (read.client_info, "clientInfo"),
            (read.request_state, "requestState"),
            (read.input_responses, "inputResponses"),
        ] {
            assert_eq!(value.unwrap().as_str().unwrap(), name);
        }
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
