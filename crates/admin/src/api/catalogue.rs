//! `/api/catalogue`: the merged lists, and the backend of each entry.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::SystemTime;

use axum::extract::State;
use fanlight_gateway::catalogue::{ListKind, ListView};
use fanlight_protocol::Json;
use fanlight_protocol::json::{ArrayBuilder, ObjectBuilder};
use futures_util::future::join_all;

use super::endpoints::endpoint_at;
use super::{Answer, Query};
use crate::Admin;
use crate::reply::{Refusal, json};
use crate::values::{moment, optional};

/// All lists, or the one that the query names.
pub(super) async fn answer(State(admin): State<Arc<Admin>>, query: Query) -> Answer {
    let gateway = &admin.subject.gateway;
    let wanted = query.get("kind");
    let kinds: Vec<ListKind> =
        ListKind::ALL.into_iter().filter(|kind| wanted.as_ref().is_none_or(|wanted| wanted == kind.member())).collect();
    if kinds.is_empty() {
        return Err(Refusal::bad_request("`kind` must be tools, resources, resourceTemplates, prompts or skills"));
    }
    let endpoint = &endpoint_at(gateway, query.get("endpoint").as_deref())?;
    let lists = kinds.into_iter().map(|kind| async move {
        let list = gateway.listed(kind, endpoint).await;
        (kind, list, gateway.kept_lists(kind))
    });
    let lists = join_all(lists).await;
    let mut answer = ObjectBuilder::new();
    for (kind, snapshot, kept) in lists {
        answer.member(kind.member(), &list(&snapshot, &kept));
    }
    Ok(json(answer.finish()))
}

fn list(snapshot: &ListView, kept: &HashMap<String, SystemTime>) -> Json {
    let (mut entries, mut collisions, mut backends) =
        (ArrayBuilder::default(), ArrayBuilder::default(), ArrayBuilder::default());
    for entry in snapshot.entries() {
        let mut object = ObjectBuilder::new();
        object.string("backend", snapshot.backend_of(entry));
        object.member("key", &entry.key.clone().unwrap_or_else(Json::null));
        object.member("original", &entry.original.clone().unwrap_or_else(Json::null));
        // As clients get it: the bytes of the backend, with the visible name.
        object.member("entry", &entry.visible);
        entries.push(&object.finish());
    }
    for collision in snapshot.collisions() {
        let mut object = ObjectBuilder::new();
        object.string("key", &collision.key).string("kept", &collision.kept).string("other", &collision.other);
        optional(&mut object, "alias", collision.alias.as_deref());
        collisions.push(&object.finish());
    }
    for contribution in snapshot.contributions() {
        let mut object = ObjectBuilder::new();
        object.string("backend", &contribution.backend).string("outcome", contribution.outcome.as_str());
        optional(&mut object, "reason", contribution.reason.as_deref());
        if contribution.is_stale {
            object.member("stale", &Json::literal("true"));
        }
        // From an earlier run of Fanlight, when the server was asked last.
        if let Some(read) = kept.get(&contribution.backend) {
            object.member("asOfMs", &moment(*read));
        }
        backends.push(&object.finish());
    }
    let mut object = ObjectBuilder::new();
    object.member("entries", &entries.finish());
    object.member("collisions", &collisions.finish());
    object.member("backends", &backends.finish());
    object.finish()
}
