//! `/api/catalogue`: the merged lists, with the server of each entry.

use std::collections::HashMap;
use std::time::SystemTime;

use axum::extract::State;
use fanlight_gateway::catalogue::{ListKind, ListView};
use fanlight_protocol::json::estimated_tokens;

use super::endpoints::endpoint_at;
use super::{Answer, Query};
use crate::{AdminState, Refusal, Verbatim, moment, reply};

answers! {
    /// The requested merged lists.
    pub(crate) struct Catalogue {
    } + optional {
        tools: List,
        resources: List,
        resource_templates: List,
        prompts: List,
        skills: List,
    }

    /// A list.
    struct List {
        entries: Vec<Entry>,
        collisions: Vec<Collision>,
        backends: Vec<Contribution>,
    }

    /// An entry of a list.
    struct Entry {
        backend: String,
        /// The name or URI that clients see.
        #[cfg_attr(test, schema(value_type = Option<String>))]
        key: Option<Verbatim>,
        /// The server's own name or URI.
        #[cfg_attr(test, schema(value_type = Option<String>))]
        original: Option<Verbatim>,
        /// The size of the text that clients receive.
        bytes: usize,
        /// The estimated number of its tokens for a model: its bytes by 4.3.
        estimated_tokens: usize,
        /// The text that clients receive.
        #[cfg_attr(test, schema(value_type = serde_json::Value))]
        entry: Verbatim,
    }

    /// Two entries with the same name.
    struct Collision {
        key: String,
        /// The server whose entry is offered.
        kept: String,
        /// The server whose entry is left out, or has an alias.
        other: String,
        alias: Option<String>,
    }

    /// A server's contribution.
    struct Contribution {
        backend: String,
        /// `ok`, `timeout`, `unauthorized`, `unreachable` or `error`.
        outcome: &'static str,
        reason: Option<String>,
    } + optional {
        /// True if the entries were listed before the server failed.
        stale: bool,
        /// When the server was asked, if the entries are from `stateDir`.
        as_of_ms: f64,
    }
}

/// All lists, or the one that the query names.
pub(super) async fn answer(State(admin): AdminState, query: Query) -> Answer {
    let gateway = &admin.subject.gateway;
    let wanted = query.get("kind");
    if wanted
        .as_ref()
        .is_some_and(|wanted| ListKind::ALL.iter().all(|kind| wanted != kind.member()))
    {
        return Err(Refusal::bad_request(
            "`kind` must be tools, resources, resourceTemplates, prompts or skills",
        ));
    }
    let endpoint = &endpoint_at(gateway, query.get("endpoint").as_deref())?;
    let read = async |kind: ListKind| match &wanted {
        Some(wanted) if wanted != kind.member() => None,
        _ => Some(list(
            &gateway.current_list(kind, endpoint).await,
            &gateway.kept_lists(kind),
        )),
    };
    let (tools, resources, resource_templates, prompts, skills) = tokio::join!(
        read(ListKind::Tools),
        read(ListKind::Resources),
        read(ListKind::ResourceTemplates),
        read(ListKind::Prompts),
        read(ListKind::Skills),
    );
    Ok(reply::answer(&Catalogue {
        tools,
        resources,
        resource_templates,
        prompts,
        skills,
    }))
}

fn list(snapshot: &ListView, kept: &HashMap<String, SystemTime>) -> List {
    let entries = snapshot.entries().map(|entry| Entry {
        backend: snapshot.backend_of(entry).to_owned(),
        key: entry.key.clone().map(Verbatim),
        original: entry.original.clone().map(Verbatim),
        bytes: entry.visible.bytes().len(),
        estimated_tokens: estimated_tokens(entry.visible.bytes().len()),
        entry: Verbatim((*entry.visible).clone()),
    });
    let collisions = snapshot.collisions().iter().map(|collision| Collision {
        key: collision.key.clone(),
        kept: collision.kept.clone(),
        other: collision.other.clone(),
        alias: collision.alias.clone(),
    });
    let backends = snapshot.contributions().map(|contribution| Contribution {
        backend: contribution.backend.to_string(),
        outcome: contribution.outcome.as_str(),
        reason: contribution.reason.as_ref().map(ToString::to_string),
        stale: contribution.is_stale.then_some(true),
        as_of_ms: kept.get(&*contribution.backend).map(|read| moment(*read)),
    });
    List {
        entries: entries.collect(),
        collisions: collisions.collect(),
        backends: backends.collect(),
    }
}
