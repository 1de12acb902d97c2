//! A principal's rights at one server do not depend on other servers or their state.

use std::collections::BTreeMap;
use std::sync::Arc;

use fanlight_canonical::rights::{ItemFilter, ItemKind, NameForm, ServerNames, Servers};
use fanlight_canonical::{CallContext, Caller, Endpoint, Holder, Principal};
use proptest::prelude::*;

use super::fake::*;
use crate::topology::{Filtered, Topology, View};
use crate::{BackendEntry, BackendId, EndpointEntry, NamedServer, NamingPolicy};

const PATH: &str = "/mcp/readers";
/// Names and URIs that are easily confused with others.
const NAMES: [&str; 8] = [
    "a",
    "x",
    "a__x",
    "b__a__x",
    "a/x",
    "delete_all",
    "new",
    "memory__delete_all",
];
const URIS: [&str; 4] = ["file:///a/x", "a/file:///x", "x:a", "memory/x:a"];

/// A server as the configuration file has it.
#[derive(Clone, Debug)]
struct Written {
    names: ServerNames,
    allow: Option<Vec<String>>,
    deny: Vec<String>,
}

/// The state of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    Runs,
    /// It runs but is not reachable.
    Down,
    /// The file has it, but it is disabled there or at run time.
    Disabled,
    Removed,
}

/// The allowed and denied patterns of an endpoint's filter.
type Patterns = (Option<Vec<String>>, Vec<String>);

fn filter(servers: &Arc<Servers>, kind: ItemKind, (allow, deny): &Patterns) -> ItemFilter {
    ItemFilter::new(servers, kind, allow.as_deref(), deny)
}

/// The items that an endpoint with these patterns lets a client reach, by server and original name.
/// The topology of these servers, in this order, decides.
fn decisions(servers: &[(Written, Fate)], endpoint: &Patterns) -> BTreeMap<(String, String), bool> {
    let written: Vec<_> = servers
        .iter()
        .filter(|(_, fate)| *fate != Fate::Removed)
        .collect();
    let names: Vec<_> = written
        .iter()
        .map(|(server, _)| server.names.clone())
        .collect();
    let all = Arc::new(Servers::new(&names, "__", NameForm::Any));
    let named = |names: &ServerNames| NamedServer {
        name: names.name.clone(),
        prefix: names.prefix.clone(),
    };
    let policy = NamingPolicy {
        servers: names.iter().map(named).collect(),
        ..NamingPolicy::default()
    };
    let running = written
        .into_iter()
        .filter(|(_, fate)| *fate != Fate::Disabled)
        .map(|(server, fate)| {
            let backend = fake(server.names.name.clone().leak(), &[]);
            backend.set_down(*fate == Fate::Down);
            let patterns = (server.allow.clone(), server.deny.clone());
            let tools =
                filter(&all, ItemKind::Names, &patterns).limit_to_server(&server.names.name);
            BackendEntry {
                tools: Some(tools),
                ..entry(
                    BackendId::generate(),
                    &Arc::new(backend),
                    server.names.prefix.as_deref(),
                )
            }
        });
    let entry = EndpointEntry {
        path: PATH.into(),
        servers: None,
        tools: Some(filter(&all, ItemKind::Names, endpoint)),
        prompts: Some(filter(&all, ItemKind::Names, endpoint)),
        resources: Some(filter(&all, ItemKind::Uris, endpoint)),
        instructions: None,
        lean: None,
        results: None,
    };
    let topology = Topology::new(running.collect(), &policy, limits(100), vec![entry], None);
    let topology = Arc::new(topology);
    let client = Caller::request_of(Holder::new(
        Principal::new("issuer", "ann"),
        Endpoint::from_path(PATH),
    ));
    let context = CallContext {
        caller: client,
        ..(*CallContext::internal()).clone()
    };
    let view = View::for_client(topology, &context);
    let mut decided = BTreeMap::new();
    for member in view.backends() {
        let mut decide = |kind: &str, name: &str, is_permitted: bool| {
            decided.insert(
                (member.client.name().to_owned(), format!("{kind} {name}")),
                is_permitted,
            );
        };
        for name in NAMES {
            decide(
                "tool",
                name,
                member.permits_tool(name)
                    && view.permits_name(Filtered::Tools, member.id, name, None),
            );
            decide(
                "prompt",
                name,
                view.permits_name(Filtered::Prompts, member.id, name, None),
            );
        }
        for uri in URIS {
            decide(
                "resource",
                uri,
                view.permits_uri(member.id, uri) && view.permits_unlisted_uri(member.id, uri),
            );
            decide("listed resource", uri, view.permits_uri(member.id, uri));
        }
    }
    decided
}

fn pattern() -> impl Strategy<Value = String> {
    let part = prop::sample::select(vec![
        "a", "b", "x", "*", "__", "/", "new", "delete_", "memory", "file:///", "p-",
    ]);
    prop::collection::vec(part, 1..5).prop_map(|parts| parts.concat())
}

fn patterns() -> impl Strategy<Value = Patterns> {
    (
        prop::option::of(prop::collection::vec(pattern(), 0..4)),
        prop::collection::vec(pattern(), 0..4),
    )
}

fn servers() -> impl Strategy<Value = Vec<(Written, Fate, Fate)>> {
    let fate = || {
        prop::sample::select(vec![
            Fate::Runs,
            Fate::Runs,
            Fate::Down,
            Fate::Disabled,
            Fate::Removed,
        ])
    };
    let prefix = || {
        prop::option::of(prop::sample::select(vec!["", "p__", "a__b__"]).prop_map(str::to_owned))
    };
    let name = || prop::sample::select(NAMES.to_vec()).prop_map(str::to_owned);
    let renames = move || prop::collection::vec((name(), name()), 0..2);
    let one = move |name: &'static str| {
        (prefix(), renames(), patterns(), fate(), fate()).prop_map(
            move |(prefix, renames, (allow, deny), one, other)| {
                let names = ServerNames {
                    name: name.to_owned(),
                    prefix,
                    renames,
                };
                (Written { names, allow, deny }, one, other)
            },
        )
    };
    prop::sample::subsequence(vec!["a", "b", "memory", "x-y"], 1..=4)
        .prop_shuffle()
        .prop_flat_map(move |names| names.into_iter().map(&one).collect::<Vec<_>>())
}

proptest! {
    #[test]
    fn decision_on_an_item_does_not_depend_on_what_becomes_of_servers(servers in servers(), endpoint in patterns()) {
        let with = |fate: fn(&(Written, Fate, Fate)) -> Fate| -> Vec<_> {
            servers.iter().map(|server| (server.0.clone(), fate(server))).collect()
        };
        let before = decisions(&with(|server| server.1), &endpoint);
        let after = decisions(&with(|server| server.2), &endpoint);
        let whole = decisions(&with(|_| Fate::Runs), &endpoint);
        for (item, is_permitted) in before.iter().chain(&after) {
            prop_assert_eq!(whole.get(item), Some(is_permitted), "{:?}", item);
        }
    }
}
