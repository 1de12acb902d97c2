//! Requests of clients of each era, which can be sent repeatedly with other ids, and the expected
//! answers.

use bytes::Bytes;
use memchr::memmem;

use super::head::head;
use crate::era::Era;
use crate::error::{BenchError, Result};
use crate::fake::payload::Tool;

/// Ids have ten digits, so that a request keeps its length whatever its id.
const FIRST_ID: u64 = 1_000_000_000;

/// A request's number as text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Id([u8; 10]);

impl Id {
    /// The id of the request with this number, below nine billion.
    pub(crate) fn number(number: u64) -> Self {
        Self(
            (FIRST_ID + number)
                .to_string()
                .into_bytes()
                .try_into()
                .unwrap_or([b'0'; 10]),
        )
    }

    pub(crate) fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// The number with this id.
    pub(crate) fn parse(text: &[u8]) -> Option<u64> {
        std::str::from_utf8(text)
            .ok()?
            .parse::<u64>()
            .ok()?
            .checked_sub(FIRST_ID)
    }
}

/// One request and the expected answer.
#[derive(Clone, Debug)]
pub(crate) struct Exchange {
    text: Vec<u8>,
    id_at: usize,
    pub(crate) expected: Expected,
}

/// The expected answer.
#[derive(Clone, Debug)]
pub(crate) enum Expected {
    /// A response with exactly these bytes as its result.
    Result(Bytes),
    /// A response with a list of this many tools.
    Tools(usize),
    /// Any result.
    Anything,
    /// A response that contains this text, whatever the order and spacing of its members.
    Containing(Bytes),
}

const BEFORE_ID: &[u8] = br#"{"jsonrpc":"2.0","id":"#;
const BEFORE_RESULT: &[u8] = br#","result":"#;

impl Exchange {
    /// A request as a line of stdio.
    pub(crate) fn line(message: &Message) -> Self {
        let mut text = message.text.clone();
        text.push(b'\n');
        Self {
            id_at: BEFORE_ID.len(),
            text,
            expected: message.expected.clone(),
        }
    }

    /// A request as an HTTP/1.1 POST, within `session` if given.
    pub(crate) fn post(message: &Message, session: Option<&str>) -> Self {
        let session = session.map(|session| ("mcp-session-id", session));
        let headers = message
            .headers
            .iter()
            .map(|(name, value)| (*name, value.as_str()));
        let head = head(
            "POST",
            message.path,
            message.era,
            message.text.len(),
            headers.chain(session),
        );
        let id_at = head.len() + BEFORE_ID.len();
        let mut text = head.into_bytes();
        text.extend_from_slice(&message.text);
        Self {
            text,
            id_at,
            expected: message.expected.clone(),
        }
    }

    /// The request's bytes with `id`.
    pub(crate) fn with_id(&mut self, id: Id) -> &[u8] {
        if let Some(place) = self.text.get_mut(self.id_at..self.id_at + 10) {
            place.copy_from_slice(id.as_bytes());
        }
        &self.text
    }

    /// Checks that `answer` is the response to this request with `id`: byte for byte, unless the
    /// check is lenient.
    pub(crate) fn check(&self, id: Id, answer: &[u8]) -> Result<()> {
        if let Expected::Containing(text) = &self.expected {
            return check_leniently(id, text, answer);
        }
        let result = answer
            .strip_prefix(BEFORE_ID)
            .and_then(|rest| rest.strip_prefix(id.as_bytes()))
            .and_then(|rest| rest.strip_prefix(BEFORE_RESULT))
            .and_then(|rest| rest.strip_suffix(b"}"));
        let wrong = |what: &str| BenchError::Wrong(format!("{what}: {}", excerpt(answer)));
        let result = result.ok_or_else(|| match is_error(answer) {
            true => BenchError::Refused(excerpt(answer)),
            false => wrong("not a response with this id and a result"),
        })?;
        match &self.expected {
            Expected::Anything | Expected::Containing(_) => Ok(()),
            Expected::Result(expected) if expected == result => Ok(()),
            Expected::Result(_) => Err(wrong("the result is not what the server sent")),
            Expected::Tools(count) => match count_tools(result) {
                found if found == *count => Ok(()),
                found => Err(wrong(&format!("{found} tools instead of {count}"))),
            },
        }
    }
}

/// Checks that `answer` is a response with this id and `text`, and no error.
fn check_leniently(id: Id, text: &[u8], answer: &[u8]) -> Result<()> {
    if is_error(answer) {
        return Err(BenchError::Refused(excerpt(answer)));
    }
    let has = |part: &[u8]| memmem::find(answer, part).is_some();
    let is_right = has(id.as_bytes()) && has(br#""result""#) && has(text);
    if is_right {
        Ok(())
    } else {
        Err(BenchError::Wrong(format!(
            "not the answer: {}",
            excerpt(answer)
        )))
    }
}

/// Whether the answer is an error response to any request.
pub(crate) fn is_error(answer: &[u8]) -> bool {
    memmem::find(answer, br#""error":{"#).is_some()
}

/// The number of tools in a list.
pub(crate) fn count_tools(result: &[u8]) -> usize {
    memmem::find_iter(result, br#""inputSchema""#).count()
}

/// The id of a response to any request.
pub(crate) fn id_of(answer: &[u8]) -> Option<u64> {
    Id::parse(answer.strip_prefix(BEFORE_ID)?.get(..10)?)
}

/// The beginning of an unexpected answer, for an error message.
pub(crate) fn excerpt(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes.get(..300).unwrap_or(bytes)).into_owned()
}

/// A request, independent of the transport.
#[derive(Clone, Debug)]
pub(crate) struct Message {
    era: Era,
    /// The path over HTTP.
    path: &'static str,
    text: Vec<u8>,
    /// Headers besides the common ones.
    headers: Vec<(&'static str, String)>,
    expected: Expected,
}

impl Message {
    /// A call of the tool that clients know as `name`.
    pub(crate) fn call(era: Era, name: &str, tool: Tool) -> Self {
        let params = format!(r#""name":"{name}","arguments":{{"query":"benchmark","limit":10}}"#);
        Self::new(
            era,
            "tools/call",
            Some(name),
            &params,
            "",
            Expected::Result(tool.result(era)),
        )
    }

    /// A call of the tool `progress`.
    pub(crate) fn progress(era: Era, name: &str, events: u32, every_ms: u64) -> Self {
        let params =
            format!(r#""name":"{name}","arguments":{{"events":{events},"every_ms":{every_ms}}}"#);
        let expected = Expected::Result(Tool::Progress.result(era));
        Self::new(
            era,
            "tools/call",
            Some(name),
            &params,
            r#""progressToken":"token""#,
            expected,
        )
    }

    /// A list of tools, from `cursor` on.
    pub(crate) fn list(era: Era, cursor: Option<&str>, count: usize) -> Self {
        let params = cursor
            .map(|cursor| format!(r#""cursor":"{cursor}""#))
            .unwrap_or_default();
        Self::new(era, "tools/list", None, &params, "", Expected::Tools(count))
    }

    /// A subscription to changes of the list of tools.
    pub(crate) fn listen() -> Self {
        let params = r#""notifications":{"toolsListChanged":true}"#;
        Self::new(
            Era::Modern,
            "subscriptions/listen",
            None,
            params,
            "",
            Expected::Anything,
        )
    }

    /// The opening of a session.
    pub(crate) fn initialize() -> Self {
        let params = format!(
            r#""protocolVersion":"{}","capabilities":{{}},{CLIENT}"#,
            Era::Legacy.revision()
        );
        Self::new(
            Era::Legacy,
            "initialize",
            None,
            &params,
            "",
            Expected::Anything,
        )
    }

    /// The same message for another endpoint.
    pub(crate) fn to(self, path: &'static str) -> Self {
        Self { path, ..self }
    }

    /// The message, with a token if there is one.
    pub(crate) fn with_token(mut self, token: Option<&str>) -> Self {
        self.headers
            .extend(token.map(|token| ("authorization", format!("Bearer {token}"))));
        self
    }

    /// The same message with a lenient check, for servers' texts that may be rewritten: the first
    /// text of a result counts.
    pub(crate) fn leniently(mut self) -> Self {
        let text = match &self.expected {
            Expected::Result(result) => first_text(result),
            _ => Bytes::new(),
        };
        self.expected = Expected::Containing(text);
        self
    }

    /// The same message with any result, for large ones that may be shortened.
    pub(crate) fn unchecked(mut self) -> Self {
        self.expected = Expected::Anything;
        self
    }

    fn new(
        era: Era,
        method: &str,
        name: Option<&str>,
        params: &str,
        meta: &str,
        expected: Expected,
    ) -> Self {
        let mut headers = Vec::new();
        let mut keys: Vec<String> = Some(meta.to_owned())
            .filter(|meta| !meta.is_empty())
            .into_iter()
            .collect();
        if era == Era::Modern {
            headers.push(("mcp-method", method.to_owned()));
            headers.extend(name.map(|name| ("mcp-name", name.to_owned())));
            keys.push(format!(
                r#""io.modelcontextprotocol/protocolVersion":"{}","io.modelcontextprotocol/clientInfo":{{"name":"bench","version":"1"}},"io.modelcontextprotocol/clientCapabilities":{{}}"#,
                era.revision()
            ));
        }
        let meta = if keys.is_empty() {
            String::new()
        } else {
            format!(r#""_meta":{{{}}}"#, keys.join(","))
        };
        let comma = if params.is_empty() || meta.is_empty() {
            ""
        } else {
            ","
        };
        let id = Id::number(0);
        let id = String::from_utf8_lossy(id.as_bytes()).into_owned();
        let before = String::from_utf8_lossy(BEFORE_ID);
        let text =
            format!(r#"{before}{id},"method":"{method}","params":{{{params}{comma}{meta}}}}}"#);
        Self {
            era,
            path: "/mcp",
            text: text.into_bytes(),
            headers,
            expected,
        }
    }
}

const CLIENT: &str = r#""clientInfo":{"name":"bench","version":"1"}"#;

/// The characters between the quotes of the first text in a result.
fn first_text(result: &Bytes) -> Bytes {
    const BEFORE: &[u8] = br#""text":""#;
    let Some(start) = memmem::find(result, BEFORE).map(|at| at + BEFORE.len()) else {
        return Bytes::new();
    };
    let rest = result.slice(start..);
    let end = memmem::find(&rest, br#""}"#).unwrap_or(rest.len());
    rest.slice(..end)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn response(id: Id, result: &[u8]) -> Vec<u8> {
        [BEFORE_ID, id.as_bytes(), BEFORE_RESULT, result, b"}"].concat()
    }

    #[test]
    fn id_has_ten_digits_and_is_parsed_again() {
        assert_eq!(Id::number(0).as_bytes(), b"1000000000");
        assert_eq!(Id::number(1234).as_bytes(), b"1000001234");
        assert_eq!(id_of(&response(Id::number(42), b"{}")), Some(42));
        assert_eq!(id_of(b"{}"), None);
    }

    #[test]
    fn request_keeps_its_length_and_is_json() {
        for era in Era::ALL {
            let message = Message::call(era, "text_200", Tool::Text(200));
            let mut exchange = Exchange::post(&message, Some("s"));
            let sent = String::from_utf8(exchange.with_id(Id::number(7)).to_vec()).unwrap();
            let (head, body) = sent.split_once("\r\n\r\n").unwrap();
            assert!(
                head.contains(&format!("content-length: {}", body.len())),
                "{head}"
            );
            assert_eq!(head.contains("mcp-name: text_200"), era == Era::Modern);
            let body: serde_json::Value = serde_json::from_str(body).unwrap();
            assert_eq!(body["id"], 1_000_000_007_u64);
            assert_eq!(body["params"]["name"], "text_200");
        }
    }

    #[test]
    fn answer_with_a_changed_byte_is_wrong() {
        let message = Message::call(Era::Modern, "text_300", Tool::Text(300));
        let exchange = Exchange::line(&message);
        let id = Id::number(9);
        let result = Tool::Text(300).result(Era::Modern);
        let right = response(id, &result);
        assert!(exchange.check(id, &right).is_ok());
        assert!(exchange.check(Id::number(8), &right).is_err(), "another id");
        for at in 0..right.len() {
            let mut wrong = right.clone();
            wrong[at] ^= 1;
            assert!(exchange.check(id, &wrong).is_err(), "byte {at}");
        }
        assert!(
            exchange.check(id, &right[..right.len() - 1]).is_err(),
            "too short"
        );
    }

    #[test]
    fn lenient_check_wants_the_id_and_the_text() {
        let tool = Tool::Text(300);
        let exchange = Exchange::line(&Message::call(Era::Legacy, "text_300", tool).leniently());
        let id = Id::number(9);
        let Expected::Containing(text) = &exchange.expected else {
            panic!("{:?}", exchange.expected)
        };
        let text = String::from_utf8(text.to_vec()).unwrap();
        assert!(text.len() > 100, "{text}");
        let answer = format!(
            r#"{{"result":{{"content":[{{"text":"{text}","type":"text"}}]}},"id":1000000009}}"#
        );
        assert!(exchange.check(id, answer.as_bytes()).is_ok());
        assert!(
            exchange.check(Id::number(8), answer.as_bytes()).is_err(),
            "another id"
        );
        assert!(
            exchange
                .check(id, answer.replace("let answer", "let other").as_bytes())
                .is_err(),
            "another text"
        );
        assert!(
            exchange
                .check(id, br#"{"error":{"code":1},"id":1000000009}"#)
                .is_err(),
            "an error"
        );
    }

    #[test]
    fn list_with_another_number_of_tools_is_wrong() {
        let exchange = Exchange::line(&Message::list(Era::Legacy, None, 3));
        let id = Id::number(1);
        let list = |count| crate::fake::payload::tool_list(Era::Legacy, count);
        assert!(
            exchange
                .check(id, &response(id, list(3).as_bytes()))
                .is_ok()
        );
        assert!(
            exchange
                .check(id, &response(id, list(2).as_bytes()))
                .is_err()
        );
    }
}
