//! A legacy server's error that sends the user to some URLs first, made into a wish for input.
//!
//! The client gets the elicitations, and a state that says to make the call again. Nothing is held:
//! the state carries the server's error, which is the client's answer should the user decline.
//!
//! Source: 2025-11-25 client/elicitation, URL Elicitation Required Error; 2026-07-28
//! basic/patterns/mrtr. Must not know: transports.

use fanlight_protocol::capability::{ClientCapability, MissingCapability};
use fanlight_protocol::json::Kind;
use fanlight_protocol::{Json, Method, Response, RpcError, code};

use super::held::Held;
use super::state::Again;
use super::table::{Parking, Resumed};
use crate::input;

/// What the client of `held` is answered, where the server has answered `response`. `parking` is
/// absent if the request may not be answered with a wish for input.
pub(super) fn concluded(held: &mut Held, response: Response, parking: Option<&Parking>) -> Response {
    if let Some((parking, error)) = parking.zip(response.error().filter(|error| elicitations(error).is_some())) {
        match MissingCapability::of(held.capabilities(), ClientCapability::ElicitationByUrl) {
            Some(missing) => held.note_missing(missing),
            None => {
                let (_, expires) = parking.seal();
                let again = Again { expires, subject: held.subject(), error };
                if let Some(asked) = again.asked(parking) {
                    return asked;
                }
            }
        }
    }
    held.explained(response)
}

impl Again {
    /// The answer that asks for every elicitation; `None` if the error is too large to be carried.
    fn asked(&self, parking: &Parking) -> Option<Response> {
        let elicitations = elicitations(&self.error)?;
        let state = parking.seal().0.seal_again(self)?;
        let requests = elicitations.iter().map(|(key, params)| (key.as_str(), &Method::Elicit, Some(params)));
        Some(input::input_required(requests, &state))
    }

    /// What a retry with these answers goes on with: the call anew if the user has accepted every
    /// elicitation, the server's own error if one was not; what is not answered is asked for again.
    pub(super) fn resumed(mut self, answers: &[(String, Json)], parking: &Parking) -> Result<Resumed, RpcError> {
        let mut waits = false;
        for (key, _) in elicitations(&self.error).unwrap_or_default() {
            let answer = answers.iter().find(|(answered, _)| *answered == key);
            let Some((_, result)) = answer else {
                waits = true;
                continue;
            };
            match result.get("action").and_then(|action| action.as_str().map(|action| action.into_owned())).as_deref() {
                Some("accept") => {}
                Some("decline" | "cancel") => {
                    let dummy = Response::from_error(&RpcError::new(code::URL_ELICITATION_REQUIRED, ""));
                    return Ok(Resumed::Answered(dummy.with_body(&self.error)));
                }
                _ => {
                    let message = format!("\"action\" of the response {key:?} is none of accept, decline and cancel");
                    return Err(RpcError::new(code::INVALID_PARAMS, message));
                }
            }
        }
        if !waits {
            return Ok(Resumed::Anew);
        }
        self.expires = parking.seal().1;
        // What was carried once can be carried again.
        Ok(self.asked(parking).map_or(Resumed::Anew, Resumed::Answered))
    }
}

/// The elicitations that an error asks for, as params of `elicitation/create`, each with a key;
/// `None` if it is no such error: all of them are to be of URL mode.
fn elicitations(error: &Json) -> Option<Vec<(String, Json)>> {
    if error.get("code")?.as_i64()? != code::URL_ELICITATION_REQUIRED {
        return None;
    }
    let list = error.get("data")?.get("elicitations").filter(|list| list.kind() == Kind::Array)?;
    let all: Vec<Json> = list.elements().map(|element| list.slice(element)).collect();
    let by_url = |params: &Json| {
        params.is_object()
            && ClientCapability::of(&Method::Elicit, Some(params)) == Some(ClientCapability::ElicitationByUrl)
    };
    let usable = !all.is_empty() && all.iter().all(by_url);
    usable.then(|| (1..).map(|number| format!("input-{number}")).zip(all).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_errors_that_ask_for_urls_do() {
        let of = |text: &'static str| elicitations(&Json::literal(text)).map(|all| all.len());
        let two =
            r#"{"code":-32042,"message":"m","data":{"elicitations":[{"mode":"url","url":"a"},{"mode":"\u0075rl"}]}}"#;
        assert_eq!(of(two), Some(2));
        for no in [
            r#"{"code":-32042,"message":"m"}"#,
            r#"{"code":-32042,"message":"m","data":{"elicitations":[]}}"#,
            r#"{"code":-32042,"message":"m","data":{"elicitations":[{"mode":"url"},{"mode":"form"}]}}"#,
            r#"{"code":-32042,"message":"m","data":{"elicitations":{"mode":"url"}}}"#,
            r#"{"code":-32041,"message":"m","data":{"elicitations":[{"mode":"url"}]}}"#,
        ] {
            assert_eq!(of(no), None, "{no}");
        }
    }
}
