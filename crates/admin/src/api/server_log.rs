//! `/api/servers/{name}/log`: what the processes of a server have written besides messages.

use std::sync::Arc;

use axum::extract::{Path, State};
use fanlight_canonical::ProcessLine;
use fanlight_protocol::Json;
use fanlight_protocol::json::ObjectBuilder;
use http::StatusCode;

use super::Answer;
use crate::reply::{Refusal, json};
use crate::router::Admin;
use crate::values::{array, count, moment};

/// The last lines of the server called `name`.
pub(super) async fn answer(State(admin): State<Arc<Admin>>, Path(name): Path<String>) -> Answer {
    let Some(output) = admin.subject.gateway.process_output(&name) else {
        return Err(Refusal::new(StatusCode::NOT_FOUND, "no server has this name; /api/overview lists them"));
    };
    let mut answer = ObjectBuilder::new();
    answer.string("name", &name).integer("droppedLines", count(output.dropped));
    answer.member("lines", &array(output.lines.iter().map(line)));
    Ok(json(answer.finish()))
}

fn line(line: &ProcessLine) -> Json {
    let mut object = ObjectBuilder::new();
    object.member("atMs", &moment(line.at)).integer("process", count(line.process));
    object.string("stream", line.stream.as_str()).string("text", &line.text);
    object.finish()
}
