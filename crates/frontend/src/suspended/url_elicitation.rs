//! Turns a legacy server's error that sends the user to URLs into an `input_required` result.
//!
//! The client gets the elicitations, and a state that tells it to repeat the call. No call is kept:
//! the state contains the server's error, which becomes the answer if the user declines.
//!
//! Source: 2025-11-25 client/elicitation, URL Elicitation Required Error; 2026-07-28
//! basic/patterns/mrtr.

use fanlight_canonical::Holder;
use fanlight_protocol::json::Kind;
use fanlight_protocol::{
    ClientCapability, Json, Method, MissingCapability, Response, RpcError, code, input,
};

use super::SuspendableCall;
use super::request_state::UrlElicitation;
use super::table::{Resumption, SuspendedCalls};

/// The response that asks the client of `call` for the elicitations in a server's error; `None` if
/// it has none, or the client cannot be asked.
pub(super) fn ask(call: &mut SuspendableCall, error: Json) -> Option<Response> {
    elicitations(&error)?;
    if let Some(missing) =
        MissingCapability::check(call.capabilities(), ClientCapability::ElicitationByUrl)
    {
        call.note_missing(missing);
        return None;
    }
    let state = UrlElicitation {
        expires: call.suspended_calls.expiry(),
        digest: call.digest(),
        error,
    };
    state.input_required(&call.suspended_calls, call.holder())
}

impl UrlElicitation {
    /// The response that asks for every elicitation; `None` if the error is too large for a state.
    fn input_required(
        &self,
        suspended_calls: &SuspendedCalls,
        holder: &Holder,
    ) -> Option<Response> {
        let elicitations = elicitations(&self.error)?;
        let state = suspended_calls.seal().seal_url_elicitation(self, holder)?;
        let requests = elicitations
            .iter()
            .map(|(key, params)| (key.as_str(), &Method::Elicit, Some(params)));
        Some(input::input_required(requests, &state))
    }

    /// Decides how a retry with these answers continues. If the user accepted every elicitation,
    /// the call is repeated. If one was declined, the answer is the server's error. Unanswered
    /// elicitations are asked again.
    pub(super) fn resume(
        mut self,
        answers: &[(String, Json)],
        suspended_calls: &SuspendedCalls,
        holder: &Holder,
    ) -> Result<Resumption, RpcError> {
        let mut waits = false;
        for (key, _) in elicitations(&self.error).unwrap_or_default() {
            let answer = answers.iter().find(|(answered, _)| *answered == key);
            let Some((_, result)) = answer else {
                waits = true;
                continue;
            };
            match result
                .get("action")
                .and_then(|action| action.as_str().map(|action| action.into_owned()))
                .as_deref()
            {
                Some("accept") => {}
                Some("decline" | "cancel") => {
                    let placeholder =
                        Response::from_error(&RpcError::new(code::URL_ELICITATION_REQUIRED, ""));
                    return Ok(Resumption::Answered(placeholder.with_body(&self.error)));
                }
                _ => {
                    let message = format!(
                        "\"action\" of the response {key:?} must be accept, decline or cancel"
                    );
                    return Err(RpcError::new(code::INVALID_PARAMS, message));
                }
            }
        }
        if !waits {
            return Ok(Resumption::Repeat);
        }
        self.expires = suspended_calls.expiry();
        // The error fitted into a state before, so there is a response.
        Ok(self
            .input_required(suspended_calls, holder)
            .map_or(Resumption::Repeat, Resumption::Answered))
    }
}

/// The elicitations in an error, as params of `elicitation/create`, each with a key. `None` unless
/// all of them have URL mode.
fn elicitations(error: &Json) -> Option<Vec<(String, Json)>> {
    if error.get("code")?.as_i64()? != code::URL_ELICITATION_REQUIRED {
        return None;
    }
    let list = error
        .get("data")?
        .get("elicitations")
        .filter(|list| list.kind() == Kind::Array)?;
    let all: Vec<Json> = list.items().collect();
    let by_url = |params: &Json| {
        params.is_object()
            && ClientCapability::for_request(&Method::Elicit, Some(params))
                == Some(ClientCapability::ElicitationByUrl)
    };
    let usable = !all.is_empty() && all.iter().all(by_url);
    usable.then(|| {
        (1..)
            .map(|number| format!("input-{number}"))
            .zip(all)
            .collect()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_errors_with_url_elicitations_ask_for_input() {
        let of = |text: &'static str| elicitations(&Json::literal(text)).map(|all| all.len());
        let two = r#"{"code":-32042,"message":"m","data":{"elicitations":[{"mode":"url","url":"a"},{"mode":"\u0075rl"}]}}"#;
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
