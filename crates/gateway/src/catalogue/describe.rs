//! The description of several backends as one server.

use fanlight_canonical::{BackendError, CallContext, Outcome};
use fanlight_protocol::json::{Edits, Json, ObjectBuilder};
use fanlight_protocol::meta;
use fanlight_protocol::result::{ResultView as _, ServerDescription};
use futures_util::future::join_all;
use tokio::time::timeout;
use tracing::warn;

use super::Change;
use crate::extensions;
use crate::merge::{self, Contribution, Except};
use crate::topology::Topology;

/// Members that have a rule of their own here, or belong to one hop.
const OWN_RULES: [&str; 5] = ["capabilities", "instructions", "protocolVersion", "supportedVersions", "resultType"];

/// The merged server is none of the backends, so the identity of each stands under its name.
const REPLACED: [&str; 2] = ["serverInfo", meta::SERVER_INFO];

/// The description of all backends together for a client: `capabilities` (the union, as far as it is served), `serverInfo`
/// (`identity`), `instructions` (joined), and everything else by the merge policy.
pub(crate) async fn all(topology: &Topology, identity: &Json, client: &CallContext) -> Json {
    let limit = topology.limits.timeout;
    let descriptions = join_all(topology.backends().iter().map(async |backend| {
        let description = timeout(limit, backend.client.describe_to(client)).await;
        (backend.name(), description.unwrap_or(Err(BackendError::Timeout { after: limit, sent: false })))
    }))
    .await;
    client.trace.partial_failures(descriptions.iter().filter(|(_, description)| description.is_err()).count());
    merged(&descriptions, identity)
}

fn merged(descriptions: &[(&str, Result<ServerDescription, BackendError>)], identity: &Json) -> Json {
    let present = || descriptions.iter().filter_map(|(name, description)| Some((*name, description.as_ref().ok()?)));
    let each: Vec<_> = present().filter_map(|(_, description)| description.capabilities()).collect();
    let union = |all, one| fanlight_protocol::json::union(&all, one);
    let capabilities = extensions::promised(each.iter().fold(Json::empty_object(), union), &each);
    let capabilities = with_list_changes(&capabilities);
    let instructions: Vec<_> =
        present().filter_map(|(name, description)| Some((name, description.instructions()?))).collect();

    let contributions: Vec<_> = descriptions.iter().map(|(name, result)| contribution(name, result)).collect();
    let rest = merge::merge(&contributions, Except { members: &OWN_RULES, replaced: &REPLACED }, &[]);

    let mut result = ObjectBuilder::new();
    result.member("capabilities", &capabilities).member("serverInfo", identity);
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

/// The description of the only backend of a topology that is not transparent.
pub(crate) fn only(description: &ServerDescription) -> Json {
    let json = description.json();
    let place = json.members().find(|member| member.is(json, "capabilities")).map(|member| member.value);
    let Some(place) = place else { return json.clone() };
    let capabilities = json.slice(place.clone());
    let mut edits = Edits::new(json.bytes().clone());
    edits.replace(place, with_list_changes(&capabilities).into_bytes());
    edits.finish_json()
}

/// Promises changes of lists: the gateway announces them itself, whatever the servers do.
fn with_list_changes(capabilities: &Json) -> Json {
    Change::ALL.into_iter().fold(capabilities.clone(), |all, change| {
        let name = change.capability();
        let Some(one) = all.get(name).filter(Json::is_object) else { return all };
        if one.get("listChanged").is_some_and(|flag| flag.is_true()) {
            return all;
        }
        let mut announced = ObjectBuilder::new();
        announced.member(name, &Json::literal(r#"{"listChanged":true}"#));
        fanlight_protocol::json::union(&all, &announced.finish())
    })
}

fn contribution(name: &str, description: &Result<ServerDescription, BackendError>) -> Contribution {
    let (outcome, reason, results) = match description {
        Ok(description) => (Outcome::Ok, None, vec![description.json().clone()]),
        Err(error) => {
            warn!(backend = name, %error, "the merged description is without this backend");
            (error.outcome(), Some(error.for_clients().to_string()), Vec::new())
        }
    };
    Contribution { backend: name.to_owned(), outcome, reason, results, is_stale: false }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn description_promises_changes_of_every_list() {
        let text = r#"{ "capabilities":{ "tools" : {"listChanged":true}, "x":1.0 },"serverInfo":{} }"#;
        assert_eq!(only(&Json::literal(text).into()).as_text(), text);
        let text = r#"{"capabilities":{"resources":{"listChanged":false,"subscribe":true},"prompts":null}, "y":0}"#;
        let promised = r#"{"capabilities":{"resources":{"listChanged":true,"subscribe":true},"prompts":null}, "y":0}"#;
        assert_eq!(only(&Json::literal(text).into()).as_text(), promised);
    }

    #[test]
    fn descriptions_of_several_servers_are_merged() {
        let legacy = Json::literal(
            r#"{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"A"},"instructions":"Do.","x":1}"#,
        );
        let modern = Json::literal(
            r#"{"resultType":"complete","supportedVersions":["2026-07-28"],"capabilities":{"prompts":{}},"_meta":{"io.modelcontextprotocol/serverInfo":{"name":"B"}},"ttlMs":9,"cacheScope":"public"}"#,
        );
        let gone = BackendError::Unreachable { reason: "no such command".into() };
        let all = merged(
            &[("a", Ok(legacy.into())), ("b", Ok(modern.into())), ("c", Err(gone))],
            &Json::literal(r#"{"name":"fanlight"}"#),
        );
        let expected = r##"{"capabilities":{"tools":{"listChanged":true},"prompts":{"listChanged":true}},"serverInfo":{"name":"fanlight"},"instructions":"# a\n\nDo.","x":1,"ttlMs":0,"cacheScope":"private","_meta":{"dev.fanlight/backends":{"a":{"outcome":"ok","serverInfo":{"name":"A"}},"b":{"outcome":"ok","_meta":{"io.modelcontextprotocol/serverInfo":{"name":"B"}}},"c":{"outcome":"unreachable","reason":"cannot be reached"}}}}"##;
        assert_eq!(all.as_text(), expected);
    }
}
