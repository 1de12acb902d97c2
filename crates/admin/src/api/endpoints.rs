//! `/api/endpoints`: the endpoints of clients, and how much each shows.

use std::sync::Arc;

use axum::extract::State;
use fanlight_canonical::{Core as _, Endpoint};
use fanlight_gateway::Gateway;
use fanlight_gateway::catalogue::ListKind;
use fanlight_protocol::Json;
use fanlight_protocol::json::ObjectBuilder;
use futures_util::future::join_all;

use super::Answer;
use crate::Admin;
use crate::reply::{Refusal, json};
use crate::values::{array, count};

/// The endpoint at this path; without one, what shows everything.
pub(super) fn endpoint_at(gateway: &Gateway, path: Option<&str>) -> Result<Endpoint, Refusal> {
    let Some(path) = path else { return Ok(Endpoint::Everything) };
    gateway.endpoint(path).ok_or_else(|| Refusal::bad_request("`endpoint` is the path of no endpoint"))
}

/// All endpoints in configuration order. Lists are read once for all of them.
pub(super) async fn answer(State(admin): State<Arc<Admin>>) -> Answer {
    let gateway = &admin.subject.gateway;
    let mut endpoints = Vec::new();
    for (path, endpoint) in gateway.endpoints() {
        let lists = ListKind::ALL.map(|kind| gateway.listed(kind, &endpoint));
        let lists = join_all(lists).await;
        let mut entries = ObjectBuilder::new();
        for (kind, list) in ListKind::ALL.into_iter().zip(&lists) {
            entries.integer(kind.member(), count(list.len()));
        }
        let mut object = ObjectBuilder::new();
        object.string("path", &path);
        object.member("servers", &array(gateway.shown_backends(&endpoint).iter().map(|name| Json::string(name))));
        object.member("entries", &entries.finish());
        endpoints.push(object.finish());
    }
    let mut answer = ObjectBuilder::new();
    answer.member("endpoints", &array(endpoints));
    Ok(json(answer.finish()))
}
