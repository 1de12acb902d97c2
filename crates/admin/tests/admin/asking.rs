//! Tools that need their client, named by their requests: `legacy` and `modern` servers elicit,
//! `sampling` requests something that operators cannot do, `progress` reports progress, and
//! `endless` never answers.

use std::time::Duration;

use fanlight_canonical::{BackendError, Call, ServerMessage, ServerRequest};
use fanlight_protocol::{Json, Method, Notification, Response};
use tokio::sync::oneshot;
use tokio::time::Instant;

const FORM: &str = r#"{"mode":"form","message":"<b>who</b>?","requestedSchema":{"type":"object","properties":{"n":{"type":"number"}}}}"#;

pub(crate) async fn answer(call: Call) -> Result<Response, BackendError> {
    let params = call.params.clone().unwrap();
    let tool = params.get("name").unwrap().as_str().unwrap().into_owned();
    Ok(match tool.as_str() {
        "legacy" => echo(
            ask(&call, Method::Elicit, FORM)
                .await
                .map(|answer| answer.body()),
        ),
        "sampling" => echo(
            ask(&call, Method::CreateMessage, r#"{"messages":[]}"#)
                .await
                .map(|answer| answer.body()),
        ),
        "modern" => match params.get("inputResponses") {
            Some(_) => echo(Some(params)),
            None => {
                let text = format!(
                    r#"{{"resultType":"input_required","requestState":"s1","inputRequests":{{"who":{{"method":"elicitation/create","params":{FORM}}}}}}}"#
                );
                Response::from_result(&Json::parse(text.into(), 32).unwrap())
            }
        },
        "progress" => {
            for step in 1..=50 {
                let text = format!(r#"{{"progressToken":7,"progress":{step}.0,"total":50}}"#);
                let params = Json::parse(text.into(), 8).unwrap();
                let notification =
                    Notification::new(Method::from_name("notifications/progress"), Some(&params));
                call.messages
                    .send(ServerMessage::Notification(notification))
                    .await;
            }
            tokio::time::sleep(Duration::from_millis(250)).await;
            echo(None)
        }
        _ => std::future::pending().await,
    })
}

async fn ask(call: &Call, method: Method, params: &'static str) -> Option<Response> {
    let (sender, answer) = oneshot::channel();
    let deadline = Instant::now() + Duration::from_secs(30);
    let params = Some(Json::literal(params));
    let trace = call.context.trace.clone();
    let request = ServerRequest {
        method,
        params,
        trace,
        answer: sender,
        notices: None,
        deadline,
    };
    call.messages.send(ServerMessage::Request(request)).await;
    answer.await.ok()
}

/// A result that repeats the received text.
fn echo(what: Option<Json>) -> Response {
    let text = format!(
        r#"{{"content":[],"came":{}}}"#,
        what.as_ref().map_or("null", |what| what.as_text())
    );
    Response::from_result(&Json::parse(text.into(), 32).unwrap())
}
