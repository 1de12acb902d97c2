//! `/api/call/answer` and `/api/call/cancel`: an operator's input during an attended call.

use axum::body::Body;
use axum::extract::{Extension, State};
use fanlight_protocol::Json;
use http::HeaderMap;

use super::running::Owner;
use crate::api::Answer;
use crate::api::body::read_json;
use crate::{AdminState, Operator, Refusal, answer};

answers! {
    /// A change of an attended call.
    pub(crate) struct CallChanged {
        /// `answer` or `cancel`.
        done: &'static str,
    }
}

/// Answers a question of the server.
pub(crate) async fn give(
    State(admin): AdminState,
    Extension(operator): Extension<Operator>,
    headers: HeaderMap,
    body: Body,
) -> Answer {
    let body = read_json(&admin, &headers, body).await?;
    let id = call_of(&body)?;
    let bad = Refusal::bad_request;
    let question = body
        .get("question")
        .and_then(|number| number.as_text().parse::<u64>().ok());
    let question = question.ok_or_else(|| bad("`question` must be the number of a question"))?;
    let result = body.get("result").filter(is_elicit_result).ok_or_else(|| {
        bad(
            "`result` must be an `ElicitResult`: `action` is \"accept\", \"decline\" or \
             \"cancel\", and only with \"accept\" there is an object `content`",
        )
    })?;
    if !admin
        .calls
        .answer(&id, &Owner::from_operator(&operator), question, result)
    {
        return Err(Refusal::not_found(
            "this question is not open: it is answered, or its call has ended",
        ));
    }
    Ok(answer(&CallChanged { done: "answer" }))
}

/// Cancels a call.
pub(crate) async fn cancel(
    State(admin): AdminState,
    Extension(operator): Extension<Operator>,
    headers: HeaderMap,
    body: Body,
) -> Answer {
    let body = read_json(&admin, &headers, body).await?;
    if !admin
        .calls
        .cancel(&call_of(&body)?, &Owner::from_operator(&operator))
    {
        return Err(Refusal::not_found(
            "you have no such running call; it may have ended",
        ));
    }
    Ok(answer(&CallChanged { done: "cancel" }))
}

fn call_of(body: &Json) -> Result<String, Refusal> {
    let id = body.text_at("call");
    id.ok_or_else(|| Refusal::bad_request("`call` must be the id of a call"))
}

/// Whether a result is an `ElicitResult` (2025-11-25 and 2026-07-28 client/elicitation, Response
/// Actions).
fn is_elicit_result(result: &Json) -> bool {
    let action = result.get("action");
    let content_fits = match action.as_ref().and_then(Json::as_str).as_deref() {
        Some("accept") => result
            .get("content")
            .is_none_or(|content| content.is_object()),
        Some("decline" | "cancel") => result.get("content").is_none(),
        _ => false,
    };
    let mut members = result.members().map(|member| result.slice(member.key));
    content_fits && members.all(|key| matches!(key.as_text(), "\"action\"" | "\"content\""))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_elicit_results_alone() {
        let fits = |text: &'static str| is_elicit_result(&Json::literal(text));
        for good in [
            r#"{"action":"accept"}"#,
            r#"{"content":{"n":1.0,"x":["a"]},"action":"accept"}"#,
            r#"{"action":"decline"}"#,
            r#"{"action":"cancel"}"#,
        ] {
            assert!(fits(good), "{good}");
        }
        for bad in [
            "[]",
            "7",
            "{}",
            r#"{"action":"ok"}"#,
            r#"{"action":7}"#,
            r#"{"action":"accept","content":[]}"#,
            r#"{"action":"decline","content":{}}"#,
            r#"{"action":"accept","_meta":{}}"#,
        ] {
            assert!(!fits(bad), "{bad}");
        }
    }
}
