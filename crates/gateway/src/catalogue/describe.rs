//! Merges the descriptions of several servers.

use fanlight_canonical::{BackendError, CallContext, Outcome};
use fanlight_protocol::{
    Json, ObjectBuilder, ResultView as _, ServerDescription, json, meta, rewrite_object,
};
use futures_util::future::join_all;
use tokio::time::timeout;
use tracing::{info, warn};

use super::Change;
use super::starting::{Wait, late_error};
use crate::extensions;
use crate::merge::{self, Contribution, Except};
use crate::shape::DESCRIPTION;
use crate::topology::{Filtered, Member, View};

/// Members that this module merges by rules of their own, or that concern one hop only.
const OWN_RULES: [&str; 5] = [
    "capabilities",
    "instructions",
    "protocolVersion",
    "supportedVersions",
    "resultType",
];

/// Members that the gateway's own identity replaces. Each server's identity is kept under its name.
const REPLACED: [&str; 2] = ["serverInfo", meta::SERVER_INFO];

/// Describes all servers together for a client. `capabilities` is the union of the capabilities
/// that Fanlight serves, `serverInfo` is `identity`, and `instructions` are joined. All other
/// members follow the merge policy.
pub(crate) async fn describe_all(view: &View, identity: &Json, client: &CallContext) -> Json {
    let descriptions = join_all(view.backends().map(async |backend| {
        let limit = Wait::Description.time(&*backend.client, view.limits().timeout);
        let description = timeout(limit, backend.serving(&client.caller).describe(client)).await;
        let description = description.unwrap_or_else(|_| Err(late_error(&*backend.client, limit)));
        (
            backend.name(),
            description.map(|description| fitted(view, admitted(backend, description))),
        )
    }))
    .await;
    client.trace.partial_failures(
        descriptions
            .iter()
            .filter(|(_, description)| description.is_err())
            .count(),
    );
    as_shown(view, merged(&descriptions, identity))
}

/// A server's description without what makes strict clients refuse the merged one.
fn fitted(view: &View, description: ServerDescription) -> ServerDescription {
    if !view.topology().leaves_out_invalid() {
        return description;
    }
    let fitted = DESCRIPTION.fit(&description.json().without_lone_surrogates());
    fitted.map_or(description, Into::into)
}

/// A server's description without its instructions if clients may not see them.
fn admitted(backend: &Member, description: ServerDescription) -> ServerDescription {
    // Of two members with one name, a client may read another one than is checked here.
    let whole = description.json();
    let is_it = |member: &json::Member| member.is(whole, "instructions");
    let may_be_seen = match whole.find(["instructions"]) {
        Ok([place]) => place.is_none_or(|place| backend.admits_instructions(&whole.slice(place))),
        Err(_) => backend.admits_instructions(whole),
    };
    if may_be_seen {
        return description;
    }
    rewrite_object(whole, |member| !is_it(member), b"").into()
}

fn merged(
    descriptions: &[(&str, Result<ServerDescription, BackendError>)],
    identity: &Json,
) -> Json {
    let present = || {
        descriptions
            .iter()
            .filter_map(|(name, description)| Some((*name, description.as_ref().ok()?)))
    };
    let each: Vec<_> = present()
        .filter_map(|(_, description)| description.capabilities())
        .collect();
    let union = |all, one| json::union(&all, one);
    let capabilities = extensions::promised(each.iter().fold(Json::empty_object(), union), &each);
    let is_any_late = descriptions.iter().any(|(_, description)| {
        let outcome = description.as_ref().err().map(BackendError::outcome);
        matches!(outcome, Some(Outcome::Starting | Outcome::Timeout))
    });
    // Clients ask only for lists that are promised here, and a late server may have any of them.
    let capabilities = if is_any_late {
        with_all_lists(&capabilities)
    } else {
        capabilities
    };
    let capabilities = with_list_changes(&capabilities);
    let instructions: Vec<_> = present()
        .filter_map(|(name, description)| Some((name, description.instructions()?)))
        .collect();

    let contributions: Vec<_> = descriptions
        .iter()
        .map(|(name, result)| contribution(name, result))
        .collect();
    let rest = merge::merge(
        &contributions,
        Except {
            members: &OWN_RULES,
            replaced: &REPLACED,
        },
        &[],
    );

    let mut result = ObjectBuilder::new();
    result
        .member("capabilities", &capabilities)
        .member("serverInfo", identity);
    if let Some(instructions) = merge::join_instructions(&instructions) {
        result.member("instructions", &instructions);
    }
    for (key, value) in &rest.members {
        result.raw_member(key, value);
    }
    if let Some(meta) = &rest.meta {
        result.member("_meta", meta);
    }
    result.finish()
}

/// Adapts a description to an endpoint: the endpoint's instructions, and only the capabilities that
/// it serves.
pub(crate) fn as_shown(view: &View, description: Json) -> Json {
    let instructions = view.instructions();
    if instructions.is_none() && !view.has_filters() {
        return description;
    }
    let mut own = ObjectBuilder::new();
    let replaced: &[&str] = if instructions.is_some() {
        &["capabilities", "instructions"]
    } else {
        &["capabilities"]
    };
    if let Some(capabilities) = description.get("capabilities") {
        own.member("capabilities", &served(view, &capabilities));
    }
    if let Some(instructions) = &instructions {
        own.member("instructions", instructions);
    }
    rewrite_object(
        &description,
        |member| !replaced.iter().any(|key| member.is(&description, key)),
        own.finish().inner_text(),
    )
}

/// Removes from `capabilities` the kinds of which an endpoint shows nothing. If the endpoint has
/// filters, extensions that Fanlight does not know are removed as well.
fn served(view: &View, capabilities: &Json) -> Json {
    let is_empty = |member: &json::Member| {
        Filtered::ALL
            .into_iter()
            .any(|kind| view.shows_none(kind) && member.is(capabilities, kind.capability()))
    };
    let mut extensions = ObjectBuilder::new();
    if view.has_filters()
        && let Some(known) = capabilities.get("extensions").filter(Json::is_object)
    {
        let known = extensions::retain_known(&known, !view.shows_none(Filtered::Resources));
        extensions.member("extensions", &known);
    }
    let extensions = extensions.finish();
    let is_replaced =
        |member: &json::Member| extensions.has_members() && member.is(capabilities, "extensions");
    rewrite_object(
        capabilities,
        |member| !is_empty(member) && !is_replaced(member),
        extensions.inner_text(),
    )
}

/// The description of a topology's only server, if it is not transparent.
pub(crate) fn describe_only(server: &Member, description: ServerDescription) -> Json {
    with_changes_promised(&admitted(server, description))
}

fn with_changes_promised(description: &ServerDescription) -> Json {
    let json = description.json();
    let Some(place) = json.place("capabilities") else {
        return json.clone();
    };
    let capabilities = json.slice(place.clone());
    json.with(place, &with_list_changes(&capabilities))
}

/// Sets `listChanged` for every list: the gateway announces changes itself, whatever the servers
/// do.
fn with_list_changes(capabilities: &Json) -> Json {
    Change::ALL
        .into_iter()
        .fold(capabilities.clone(), |all, change| {
            let name = change.capability();
            let Some(one) = all.get(name).filter(Json::is_object) else {
                return all;
            };
            if one.flag("listChanged") {
                return all;
            }
            let announced = ObjectBuilder::new()
                .member(name, &Json::literal(r#"{"listChanged":true}"#))
                .finish();
            json::union(&all, &announced)
        })
}

fn with_all_lists(capabilities: &Json) -> Json {
    Change::ALL
        .into_iter()
        .fold(capabilities.clone(), |all, change| {
            match all.get(change.capability()) {
                Some(_) => all,
                None => all.with_member(change.capability(), &Json::empty_object()),
            }
        })
}

fn contribution(name: &str, description: &Result<ServerDescription, BackendError>) -> Contribution {
    let (outcome, reason, results) = match description {
        Ok(description) => (Outcome::Ok, None, vec![description.json().clone()]),
        Err(error) => {
            match error {
                BackendError::Starting { .. } => {
                    info!(backend = name, %error, "described without this server");
                }
                _ => {
                    warn!(backend = name, %error, "the merged description is without this server");
                }
            }
            (
                error.outcome(),
                Some(error.for_clients().to_string()),
                Vec::new(),
            )
        }
    };
    Contribution {
        backend: name.to_owned(),
        outcome,
        reason,
        results,
        is_stale: false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn description_promises_changes_of_every_list() {
        let text =
            r#"{ "capabilities":{ "tools" : {"listChanged":true}, "x":1.0 },"serverInfo":{} }"#;
        assert_eq!(
            with_changes_promised(&Json::literal(text).into()).as_text(),
            text
        );
        let text = r#"{"capabilities":{"resources":{"listChanged":false,"subscribe":true},"prompts":null}, "y":0}"#;
        let promised = r#"{"capabilities":{"resources":{"listChanged":true,"subscribe":true},"prompts":null}, "y":0}"#;
        assert_eq!(
            with_changes_promised(&Json::literal(text).into()).as_text(),
            promised
        );
    }

    #[test]
    fn description_promises_all_lists_while_a_server_is_starting() {
        let modern = Json::literal(r#"{"capabilities":{"tools":{"x":1}}}"#);
        let starting = BackendError::Starting {
            elapsed: std::time::Duration::from_secs(2),
            last_line: None,
        };
        let identity = Json::literal("{}");
        let all = merged(
            &[("a", Ok(modern.clone().into())), ("b", Err(starting))],
            &identity,
        );
        let expected = r#"{"tools":{"x":1,"listChanged":true},"prompts":{"listChanged":true},"resources":{"listChanged":true}}"#;
        assert_eq!(all.get("capabilities").unwrap().as_text(), expected);
        let down = BackendError::Unreachable { reason: "r".into() };
        let all = merged(&[("a", Ok(modern.into())), ("b", Err(down))], &identity);
        assert_eq!(
            all.get("capabilities").unwrap().as_text(),
            r#"{"tools":{"x":1,"listChanged":true}}"#
        );
    }

    #[test]
    fn descriptions_of_several_servers_are_merged() {
        let legacy = Json::literal(
            r#"{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"A"},"instructions":"Do.","x":1}"#,
        );
        let modern = Json::literal(
            r#"{"resultType":"complete","supportedVersions":["2026-07-28"],"capabilities":{"prompts":{}},"_meta":{"io.modelcontextprotocol/serverInfo":{"name":"B"}},"ttlMs":9,"cacheScope":"public"}"#,
        );
        let gone = BackendError::Unreachable {
            reason: "no such command".into(),
        };
        let all = merged(
            &[
                ("a", Ok(legacy.into())),
                ("b", Ok(modern.into())),
                ("c", Err(gone)),
            ],
            &Json::literal(r#"{"name":"fanlight"}"#),
        );
        let expected = r##"{"capabilities":{"tools":{"listChanged":true},"prompts":{"listChanged":true}},"serverInfo":{"name":"fanlight"},"instructions":"# a\n\nDo.","x":1,"ttlMs":0,"cacheScope":"private","_meta":{"dev.fanlight/backends":{"a":{"outcome":"ok","serverInfo":{"name":"A"}},"b":{"outcome":"ok","_meta":{"io.modelcontextprotocol/serverInfo":{"name":"B"}}},"c":{"outcome":"unreachable","reason":"cannot be reached"}}}}"##;
        assert_eq!(all.as_text(), expected);
    }
}
