//! `/api/backends/{name}`: what is known of one backend besides its state: its description, history and processes.

use std::sync::Arc;

use axum::extract::{Path, State};
use fanlight_canonical::RunningProcess;
use fanlight_protocol::Json;
use fanlight_protocol::json::ObjectBuilder;
use http::StatusCode;

use super::Answer;
use crate::Admin;
use crate::reply::{Refusal, json};
use crate::values::{array, count, moment};

/// How the server called `name` describes itself, if it is connected, the changes of its state, and its processes.
pub(super) async fn answer(State(admin): State<Arc<Admin>>, Path(name): Path<String>) -> Answer {
    let gateway = &admin.subject.gateway;
    let Some(description) = gateway.description_of(&name).await else {
        return Err(Refusal::new(StatusCode::NOT_FOUND, "no server has this name; /api/overview lists them"));
    };
    let mut answer = ObjectBuilder::new();
    answer.string("name", &name);
    answer.member("description", &description.unwrap_or_else(Json::null));
    answer.member("history", &admin.history.of(&name));
    let running = gateway.process_output(&name).unwrap_or_default().running;
    answer.member("processes", &array(running.iter().map(process)));
    Ok(json(answer.finish()))
}

/// A process that runs.
fn process(process: &RunningProcess) -> Json {
    let mut object = ObjectBuilder::new();
    object.integer("process", count(process.process));
    match process.id {
        Some(id) => object.integer("id", id.into()),
        None => object.member("id", &Json::null()),
    };
    object.member("sinceMs", &moment(process.since));
    object.finish()
}
