//! The members of `params` and `_meta` that Fanlight reads, found in one pass each. Only their
//! ranges are stored: most are only compared, and few requests have more than two.
//!
//! A duplicate member is refused, and so is a name that a server could take for one of these.
//! Otherwise Fanlight and a server could read different values
//! ([`fanlight_protocol::member_name`]). Members of `arguments` are the server's business.

use std::ops::Range;

use fanlight_protocol::json::{Kind, Value};
use fanlight_protocol::{INPUT_RESPONSES, Json, REQUEST_STATE, RpcError, code, meta};

use super::fault;

/// The `params` of a request or notification.
#[derive(Clone, Debug, Default)]
pub(crate) struct Params {
    found: Found<{ Member::COUNT }>,
    pub(crate) meta: Meta,
}

/// The `_meta` of `params`.
#[derive(Clone, Debug, Default)]
pub(crate) struct Meta(Found<{ MetaMember::COUNT }>);

/// The members of `params`.
#[derive(Clone, Copy)]
enum Member {
    Name,
    Uri,
    Arguments,
    Level,
    RequestId,
    ProtocolVersion,
    Capabilities,
    ClientInfo,
    RequestState,
    InputResponses,
    Meta,
    Reference,
    Task,
}

impl Member {
    const COUNT: usize = Self::Task as usize + 1;

    /// The names in the order of the variants.
    const NAMES: [&str; 18] = [
        "name",
        "uri",
        "arguments",
        "level",
        "requestId",
        "protocolVersion",
        "capabilities",
        "clientInfo",
        REQUEST_STATE,
        INPUT_RESPONSES,
        "_meta",
        "ref",
        "task",
        // Other code reads these, or servers read them together with one of the others.
        "taskId",
        "notifications",
        "cursor",
        "argument",
        "progressToken",
    ];
}

#[derive(Clone, Copy)]
enum MetaMember {
    ProtocolVersion,
    ClientInfo,
    ClientCapabilities,
    LogLevel,
    ProgressToken,
}

impl MetaMember {
    const COUNT: usize = Self::ProgressToken as usize + 1;

    /// The names in the order of the variants.
    const NAMES: [&str; 8] = [
        meta::PROTOCOL_VERSION,
        meta::CLIENT_INFO,
        meta::CLIENT_CAPABILITIES,
        meta::LOG_LEVEL,
        meta::PROGRESS_TOKEN,
        // Telemetry reads these and replaces them for the server.
        "traceparent",
        "tracestate",
        "baggage",
    ];
}

impl Params {
    pub(crate) fn read(params: Option<&Json>) -> Result<Self, RpcError> {
        let Some(params) = params else {
            return Ok(Self::default());
        };
        let found = Found::find(params.clone(), &Member::NAMES, "\"params\"")?;
        found.check(Member::Reference, &["type", "name", "uri"])?;
        found.check(Member::Task, &["ttl"])?;
        let meta = found
            .get(Member::Meta as usize)
            .map_or_else(|| Ok(Meta::default()), Meta::read)?;
        Ok(Self { found, meta })
    }

    pub(crate) fn name(&self) -> Option<Value<'_>> {
        self.peek(Member::Name)
    }

    pub(crate) fn uri(&self) -> Option<Value<'_>> {
        self.peek(Member::Uri)
    }

    /// The member called `name`.
    pub(crate) fn member(&self, name: &str) -> Option<Value<'_>> {
        let known = Member::NAMES.iter().position(|known| *known == name);
        match known.filter(|index| *index < Member::COUNT) {
            Some(index) => self.found.peek(index),
            None => self.found.object.as_ref()?.peek(name),
        }
    }

    pub(crate) fn arguments(&self) -> Option<Json> {
        self.get(Member::Arguments)
    }

    pub(crate) fn level(&self) -> Option<Value<'_>> {
        self.peek(Member::Level)
    }

    pub(crate) fn request_id(&self) -> Option<Json> {
        self.get(Member::RequestId)
    }

    pub(crate) fn protocol_version(&self) -> Option<Value<'_>> {
        self.peek(Member::ProtocolVersion)
    }

    pub(crate) fn capabilities(&self) -> Option<Json> {
        self.get(Member::Capabilities)
    }

    pub(crate) fn client_info(&self) -> Option<Json> {
        self.get(Member::ClientInfo)
    }

    pub(crate) fn request_state(&self) -> Option<Json> {
        self.get(Member::RequestState)
    }

    /// The range of `requestState` in the text of the params.
    pub(crate) fn request_state_range(&self) -> Option<Range<usize>> {
        self.found.range(Member::RequestState as usize)
    }

    pub(crate) fn has_request_state(&self) -> bool {
        self.peek(Member::RequestState).is_some()
    }

    pub(crate) fn input_responses(&self) -> Option<Json> {
        self.get(Member::InputResponses)
    }

    fn peek(&self, member: Member) -> Option<Value<'_>> {
        self.found.peek(member as usize)
    }

    fn get(&self, member: Member) -> Option<Json> {
        self.found.get(member as usize)
    }
}

impl Meta {
    /// Reads the value of `_meta`.
    pub(crate) fn read(whole: Json) -> Result<Self, RpcError> {
        Found::find(whole, &MetaMember::NAMES, "\"_meta\"").map(Self)
    }

    /// The whole object.
    pub(crate) fn object(&self) -> Option<&Json> {
        self.0.object.as_ref()
    }

    pub(crate) fn protocol_version(&self) -> Option<Value<'_>> {
        self.peek(MetaMember::ProtocolVersion)
    }

    pub(crate) fn client_info(&self) -> Option<Json> {
        self.get(MetaMember::ClientInfo)
    }

    pub(crate) fn client_capabilities(&self) -> Option<Json> {
        self.get(MetaMember::ClientCapabilities)
    }

    pub(crate) fn log_level(&self) -> Option<Value<'_>> {
        self.peek(MetaMember::LogLevel)
    }

    /// The progress token; `None` unless it is a string or number.
    pub(crate) fn progress_token(&self) -> Option<Json> {
        self.get(MetaMember::ProgressToken)
            .filter(|token| matches!(token.kind(), Kind::String | Kind::Number))
    }

    fn peek(&self, member: MetaMember) -> Option<Value<'_>> {
        self.0.peek(member as usize)
    }

    fn get(&self, member: MetaMember) -> Option<Json> {
        self.0.get(member as usize)
    }
}

/// An object and the ranges of some of its members.
#[derive(Clone, Debug)]
struct Found<const N: usize> {
    object: Option<Json>,
    ranges: [TextRange; N],
}

/// The range of a value; an end of 0 means that there is none.
#[derive(Clone, Copy, Debug, Default)]
struct TextRange {
    start: u32,
    end: u32,
}

impl<const N: usize> Default for Found<N> {
    fn default() -> Self {
        Self {
            object: None,
            ranges: [TextRange::default(); N],
        }
    }
}

impl<const N: usize> Found<N> {
    /// Finds `names` in `object` and keeps the first ones. `whole` names the object in errors.
    fn find<const M: usize>(
        object: Json,
        names: &[&str; M],
        whole: &str,
    ) -> Result<Self, RpcError> {
        // The ranges have 32 bits. No message may be that long.
        if u32::try_from(object.bytes().len()).is_err() {
            return Err(RpcError::new(
                code::INVALID_REQUEST,
                format!("{whole} is longer than 4 GiB"),
            ));
        }
        let found = object
            .find_distinct(names)
            .map_err(|ambiguous| fault::ambiguous_error(&ambiguous, whole))?;
        let mut ranges = [TextRange::default(); N];
        for (range, found) in ranges.iter_mut().zip(found) {
            *range = found.map_or_else(TextRange::default, TextRange::new);
        }
        Ok(Self {
            object: Some(object),
            ranges,
        })
    }

    /// Checks the members `names` of a member that other code reads.
    fn check<const M: usize>(&self, member: Member, names: &[&str; M]) -> Result<(), RpcError> {
        let Some(object) = self.get(member as usize) else {
            return Ok(());
        };
        object.find_distinct(names).map(drop).map_err(|ambiguous| {
            let name = Member::NAMES
                .get(member as usize)
                .copied()
                .unwrap_or_default();
            fault::ambiguous_error(&ambiguous, &format!("{name:?}"))
        })
    }

    fn range(&self, index: usize) -> Option<Range<usize>> {
        let range = self.ranges.get(index).filter(|range| range.end > 0)?;
        Some(range.start as usize..range.end as usize)
    }

    /// The value of a member, without a reference count on the text.
    fn peek(&self, index: usize) -> Option<Value<'_>> {
        self.object.as_ref()?.value_at(self.range(index)?)
    }

    fn get(&self, index: usize) -> Option<Json> {
        Some(self.object.as_ref()?.slice(self.range(index)?))
    }
}

impl TextRange {
    /// Cannot overflow: the object's length fits in 32 bits.
    fn new(range: Range<usize>) -> Self {
        let narrow = |at: usize| u32::try_from(at).unwrap_or_default();
        Self {
            start: narrow(range.start),
            end: narrow(range.end),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn params_and_meta_are_read() {
        let params = Json::literal(
            r#"{"name":"n","_meta":{"progressToken":7,"io.modelcontextprotocol/protocolVersion":"v"}}"#,
        );
        let read = Params::read(Some(&params)).unwrap();
        assert!(read.name().unwrap().is_str("n"));
        assert_eq!(read.meta.progress_token().unwrap().as_text(), "7");
        assert!(read.meta.protocol_version().unwrap().is_str("v"));
        assert_eq!(read.meta.object().unwrap().members().count(), 2);
        assert!(read.uri().is_none() && read.meta.client_info().is_none());
        let odd = Json::literal(r#"{"_meta":{"progressToken":{}}}"#);
        assert!(
            Params::read(Some(&odd))
                .unwrap()
                .meta
                .progress_token()
                .is_none()
        );
        let no_object = Json::literal(r#"{"_meta":null}"#);
        assert!(
            Params::read(Some(&no_object))
                .unwrap()
                .meta
                .protocol_version()
                .is_none()
        );
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
        let members = names
            .iter()
            .flat_map(|(a, b)| [a, b])
            .map(|name| format!(r#""{name}":"{name}""#));
        let text = format!("{{{}}}", members.collect::<Vec<_>>().join(","));
        let read = Params::read(Some(&Json::parse(text.into(), 8).unwrap())).unwrap();
        for (value, name) in [
            (read.name(), "name"),
            (read.uri(), "uri"),
            (read.member("taskId"), "taskId"),
            (read.level(), "level"),
            (read.protocol_version(), "protocolVersion"),
        ] {
            assert_eq!(value.unwrap().as_str().unwrap(), name);
        }
        for (value, name) in [
            (read.arguments(), "arguments"),
            (read.request_id(), "requestId"),
            (read.capabilities(), "capabilities"),
            (read.client_info(), "clientInfo"),
            (read.request_state(), "requestState"),
            (read.input_responses(), "inputResponses"),
        ] {
            assert_eq!(value.unwrap().as_str().unwrap(), name);
        }
    }

    #[test]
    fn each_member_of_meta_is_read_as_itself() {
        let members = MetaMember::NAMES.map(|name| format!(r#""{name}":"{name}""#));
        let read = Meta::read(Json::parse(format!("{{{}}}", members.join(",")).into(), 8).unwrap())
            .unwrap();
        for (value, name) in [
            (read.protocol_version(), meta::PROTOCOL_VERSION),
            (read.log_level(), meta::LOG_LEVEL),
        ] {
            assert_eq!(value.unwrap().as_str().unwrap(), name);
        }
        for (value, name) in [
            (read.client_info(), meta::CLIENT_INFO),
            (read.client_capabilities(), meta::CLIENT_CAPABILITIES),
            (read.progress_token(), meta::PROGRESS_TOKEN),
        ] {
            assert_eq!(value.unwrap().as_str().unwrap(), name);
        }
    }

    #[test]
    fn duplicates_are_refused_of_members_that_are_read() {
        for text in [
            r#"{"name":"a","na\u006de":"b"}"#,
            r#"{"_meta":{},"_meta":{}}"#,
            r#"{"_meta":{"progressToken":1,"progressToken":2}}"#,
            r#"{"cursor":"a","cursor":"b"}"#,
            r#"{"requestState":"a","requestState":"b"}"#,
            r#"{"ref":{"name":"a","name":"b"}}"#,
            r#"{"_meta":{"traceparent":"a","traceparent":"b"}}"#,
        ] {
            let error = Params::read(Some(&Json::literal(text))).unwrap_err();
            assert_eq!(error.code, code::INVALID_PARAMS, "{text}");
        }
        assert!(Params::read(Some(&Json::literal(r#"{"other":1,"other":2}"#))).is_ok());
    }

    #[test]
    fn members_that_a_server_could_take_for_one_that_is_read_are_refused() {
        for text in [
            r#"{"name":"a","Name":"b"}"#,
            r#"{"NAME":"b"}"#,
            r#"{"name":"a","name\u0000":"b"}"#,
            r#"{"uri":"a","ｕｒｉ":"b"}"#,
            r#"{"taskId":"a","task_id":"b"}"#,
            r#"{"tas\u212aId":"b"}"#,
            r#"{"Cursor":"b"}"#,
            r#"{"_meta":{},"_META":{"progressToken":1}}"#,
            r#"{"meta":{}}"#,
            r#"{"_meta":{"ProgressToken":1}}"#,
            r#"{"_meta":{"io.modelcontextprotocol/ClientCapabilities":{}}}"#,
            r#"{"_meta":{"TraceParent":""}}"#,
            r#"{"ref":{"type":"ref/prompt","name":"a","Name":"b"}}"#,
            r#"{"Arguments":{}}"#,
        ] {
            let error = Params::read(Some(&Json::literal(text))).unwrap_err();
            assert_eq!(error.code, code::INVALID_PARAMS, "{text}");
        }
        for text in [
            r#"{"arguments":{"Name":1,"name":2,"name":3}}"#,
            r#"{"name":"a","names":"b","com.example/Name":1}"#,
            r#"{"_meta":{"com.example/traceparent":"b","name":"","Name":""}}"#,
        ] {
            assert!(Params::read(Some(&Json::literal(text))).is_ok(), "{text}");
        }
    }
}
