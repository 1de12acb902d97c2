//! Reads and writes `inputRequests`, `inputResponses` and `requestState`, whose contents keep their
//! bytes.
//!
//! Source: 2026-07-28 basic/patterns/mrtr.

use crate::{Json, Method, ObjectBuilder, Response, rewrite_object, word};

/// The member of params that contains the answers.
pub const INPUT_RESPONSES: &str = "inputResponses";
/// The member with the server's state, in a result and in the params of the next round.
pub const REQUEST_STATE: &str = "requestState";

/// How often a server may ask for input in one call of a client that does not follow the rounds itself.
pub const MAX_INPUT_ROUNDS: usize = 8;

/// A result that asks for input.
#[derive(Debug)]
pub struct InputRequired {
    /// `requestState`, as written.
    pub state: Option<Json>,
    /// `inputRequests`, as written.
    pub requests: Option<Json>,
}

/// One of the `inputRequests`.
#[derive(Debug)]
pub struct InputRequest {
    /// The key with quotes, as written.
    pub key: Json,
    /// The method that the server requests.
    pub method: Method,
    /// The params, which must be an object.
    pub params: Option<Json>,
}

impl InputRequired {
    /// The input that `response` asks for, if any.
    pub fn from_response(response: &Response) -> Option<Self> {
        let result = response.result()?;
        // Most servers begin with the type, and the content behind it may be long.
        if result.bytes().starts_with(br#"{"resultType":"complete""#)
            || !result.may_contain(word!("input_required"))
        {
            return None;
        }
        (result.get("resultType")?.as_str()? == "input_required").then(|| Self {
            state: result.get(REQUEST_STATE),
            requests: result.get("inputRequests"),
        })
    }

    /// Whether it has neither a request nor a state, which violates the specification.
    pub fn is_empty(&self) -> bool {
        self.state.is_none()
            && self
                .requests
                .as_ref()
                .is_none_or(|requests| !requests.has_members())
    }

    /// The requests in order.
    ///
    /// # Errors
    /// The key of an entry that is not a valid request.
    pub fn requests(&self) -> Result<Vec<InputRequest>, Json> {
        let Some(all) = &self.requests else {
            return Ok(Vec::new());
        };
        let read = |member: crate::json::Member| {
            let (key, request) = (all.slice(member.key), all.slice(member.value));
            let method = request
                .get("method")
                .and_then(|method| Some(Method::from_name(&method.as_str()?)));
            let params = request.get("params");
            match method {
                Some(method) if params.as_ref().is_none_or(Json::is_object) => Ok(InputRequest {
                    key,
                    method,
                    params,
                }),
                _ => Err(key),
            }
        };
        all.members().map(read).collect()
    }
}

/// The params of the next round: the first params, with the answers by their keys as written, and
/// with the state, which replaces any earlier one.
pub fn next_params(first: Option<&Json>, answers: &[(Json, Json)], state: Option<&Json>) -> Json {
    let mut responses = ObjectBuilder::new();
    for (key, answer) in answers {
        responses.raw_member(key, answer);
    }
    let responses = (!answers.is_empty()).then(|| responses.finish());
    let added = ObjectBuilder::new()
        .optional(INPUT_RESPONSES, responses.as_ref())
        .optional(REQUEST_STATE, state)
        .finish();
    let first = first.cloned().unwrap_or_else(Json::empty_object);
    rewrite_object(
        &first,
        |member| !member.is(&first, INPUT_RESPONSES) && !member.is(&first, REQUEST_STATE),
        added.inner_text(),
    )
}

/// A result that asks for input. Each request is under its key, and the answers come back together
/// with `state`.
pub fn input_required<'a>(
    requests: impl Iterator<Item = (&'a str, &'a Method, Option<&'a Json>)>,
    state: &str,
) -> Response {
    let mut all = ObjectBuilder::new();
    for (key, method, params) in requests {
        let request = ObjectBuilder::new()
            .string("method", method.as_str())
            .optional("params", params)
            .finish();
        all.member(key, &request);
    }
    let result = ObjectBuilder::new()
        .string("resultType", "input_required")
        .member("inputRequests", &all.finish())
        .string(REQUEST_STATE, state)
        .finish();
    Response::from_result(&result)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse_result(result: &'static str) -> Option<InputRequired> {
        InputRequired::from_response(&Response::from_result(&Json::literal(result)))
    }

    #[test]
    fn input_requests_are_read_with_escapes() {
        assert!(parse_result(r#"{"content":["input_required"]}"#).is_none());
        assert!(parse_result(r#"{"resultType":"complete","x":"input_required"}"#).is_none());
        let hidden = parse_result(r#"{"resultType":"input\u005frequired"}"#).unwrap();
        assert!(hidden.is_empty());
        let both = parse_result(
            r#"{"inputRequests":{"\u0061":{"method":"roots/list"},"b":{"params":{"x":1.0},"method":"x/y"}},"resultType":"input_required","requestState":"\u0073"}"#,
        )
        .unwrap();
        let requests = both.requests().unwrap();
        let read: Vec<_> = requests
            .iter()
            .map(|one| (one.key.as_text(), one.method.as_str()))
            .collect();
        assert_eq!(read, [(r#""\u0061""#, "roots/list"), (r#""b""#, "x/y")]);
        assert_eq!(
            requests[1].params.as_ref().unwrap().as_text(),
            r#"{"x":1.0}"#
        );
        assert_eq!(
            (both.state.as_ref().unwrap().as_text(), both.is_empty()),
            (r#""\u0073""#, false)
        );
        for wrong in [
            r#"{"k":{}}"#,
            r#"{"k":7}"#,
            r#"{"k":{"method":"x","params":[]}}"#,
        ] {
            let required = InputRequired {
                state: None,
                requests: Some(Json::literal(wrong)),
            };
            assert_eq!(
                required.requests().unwrap_err().as_text(),
                "\"k\"",
                "{wrong}"
            );
        }
    }

    #[test]
    fn next_params_have_the_first_params_and_the_answers() {
        let first = Json::literal(
            r#"{ "name":"n", "requestState":"old","arguments":{"a":1E400},"inputResponses":{}}"#,
        );
        let answers = [(Json::literal(r#""\u0061""#), Json::literal("{ }"))];
        let next = next_params(Some(&first), &answers, Some(&Json::literal(r#""\u0073""#)));
        assert_eq!(
            next.as_text(),
            r#"{ "name":"n","arguments":{"a":1E400},"inputResponses":{"\u0061":{ }},"requestState":"\u0073"}"#
        );
        assert_eq!(
            next_params(Some(&first), &[], None).as_text(),
            r#"{ "name":"n","arguments":{"a":1E400}}"#
        );
        assert_eq!(
            next_params(None, &[], Some(&Json::literal("\"s\""))).as_text(),
            r#"{"requestState":"s"}"#
        );
    }

    #[test]
    fn input_required_result_fits_the_schema() {
        let params = Json::literal(r#"{"x":1.0}"#);
        let (elicit, roots) = (
            Method::from_name("elicitation/create"),
            Method::from_name("roots/list"),
        );
        let response = input_required(
            [("a", &elicit, Some(&params)), ("b", &roots, None)].into_iter(),
            "s",
        );
        assert_eq!(
            response.body().as_text(),
            r#"{"resultType":"input_required","inputRequests":{"a":{"method":"elicitation/create","params":{"x":1.0}},"b":{"method":"roots/list"}},"requestState":"s"}"#
        );
    }
}
