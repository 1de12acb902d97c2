//! Merges the servers' lists into a snapshot. Each entry gets a name or URI that no earlier entry
//! has.
//!
//! The official SDKs for TypeScript and Python reject a whole list for one invalid definition. With
//! several servers, it would take the tools of all servers from their clients, so it is left out.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use fanlight_canonical::Rewritten;
use fanlight_protocol::json::{Edits, Json, Kind};

use super::needs::Needs;
use super::shown::Collision;
use super::snapshot::{Entry, InvalidEntry, Part, Snapshot, UnreadableEntry};
use super::{ListKind, rewritten, view};
use crate::merge::Contribution;
use crate::shape::ENTRY;
use crate::topology::{BackendId, Member, Topology};
use crate::uri_places as places;

/// One server's part of a list, ready to be merged into a snapshot.
pub(super) struct ReadPart {
    pub(super) backend: BackendId,
    pub(super) contribution: Contribution,
    pub(super) needs: Needs,
    /// Whether the list is private: only the client that requested it may see it.
    pub(super) is_private: bool,
}

/// The inputs for merging the entries of one server.
#[derive(Clone, Copy)]
struct Merging<'a> {
    kind: ListKind,
    member: &'a Member,
    topology: &'a Topology,
    claiming: &'a [Arc<Snapshot>],
    /// The entries of this list that the configuration mentions, by name.
    mentioned: &'a HashMap<String, Json>,
}

/// The names and URIs of an entry that differ for clients.
#[derive(Default)]
struct Renamed {
    /// The key for clients, if it differs from the one that the naming gives.
    key: Option<Json>,
    /// The URIs for clients, by their places in the entry.
    uris: Vec<(Range<usize>, Json)>,
    shows_app: bool,
}

/// Another server has the key of this entry, and the entry can have no other key.
struct LeftOut;

impl Merging<'_> {
    /// Whether the configuration gives this name to another entry of the same list.
    fn is_given_away(&self, name: &str) -> bool {
        let renamed = self.member.naming.renamed_to(name);
        self.kind.is_named()
            && renamed.is_some_and(|original| self.mentioned.contains_key(original))
    }

    /// The server that `uri` belongs to, as an entry of another list or as an alias.
    fn owner(&self, uri: &str) -> Option<BackendId> {
        let alias_of = self.topology.unalias(uri).map(|(owner, _)| owner.id);
        alias_of.or_else(|| {
            self.claiming
                .iter()
                .find_map(|list| list.backend_naming(uri))
        })
    }

    /// The server whose alias `uri` is. Another server's own URI must not look like an alias, or it
    /// would take the alias's place.
    fn owner_of_alias(&self, uri: &Json) -> Option<BackendId> {
        let (owner, _) = self.topology.unalias(&uri.as_str()?)?;
        Some(owner.id)
    }
}

impl Snapshot {
    /// Merges the servers' lists in configuration order: of two entries with one key, the first
    /// wins. The lists `claiming` tell which server owns a URI that an entry names.
    pub(super) fn new(
        kind: ListKind,
        parts: Vec<ReadPart>,
        topology: &Topology,
        claiming: &[Arc<Self>],
    ) -> Self {
        static GENERATION: AtomicU64 = AtomicU64::new(1);
        let generation = GENERATION.fetch_add(1, Ordering::Relaxed);
        let mut snapshot = Self {
            generation,
            topology: topology.number,
            kind: Some(kind),
            ..Self::default()
        };
        for ReadPart {
            backend,
            contribution,
            needs,
            is_private,
        } in parts
        {
            snapshot.is_private |= is_private;
            let start = snapshot.entries.len();
            let member = topology.get(backend);
            let mentioned = member
                .map(|member| rewritten::mentioned(kind, member, &contribution))
                .unwrap_or_default();
            for result in &contribution.results {
                let list = result.get(kind.member()).unwrap_or_default();
                let merging = member.map(|member| Merging {
                    kind,
                    member,
                    topology,
                    claiming,
                    mentioned: &mentioned,
                });
                if let Some(merging) = merging {
                    list.items().for_each(|entry| snapshot.add(entry, &merging));
                }
            }
            if let Some(member) = member {
                snapshot.unknown.extend(rewritten::lacking_names(
                    kind,
                    member,
                    &contribution,
                    &mentioned,
                ));
            }
            snapshot.restrict(start, &needs);
            snapshot.parts.push(Part {
                backend,
                entries: start..snapshot.entries.len(),
                contribution,
                words: Arc::default(),
            });
        }
        let collisions = view::collisions_json(Some(kind), &snapshot.collisions);
        let invalid = view::invalid_json(snapshot.invalid.iter());
        let more = [collisions, invalid];
        snapshot.rest = view::merge_rest(kind.member(), snapshot.contributions(), more);
        snapshot.views = std::iter::repeat_with(OnceLock::new)
            .take(topology.endpoints.len() + 1)
            .collect();
        snapshot.endpoints = Some(Arc::clone(&topology.endpoints));
        snapshot
    }

    /// Records which extensions clients need to see the entries from `start` on.
    fn restrict(&mut self, start: usize, needs: &Needs) {
        if needs.is_empty() {
            return;
        }
        for entry in self.entries.iter_mut().skip(start) {
            entry.needs = entry
                .original
                .as_ref()
                .and_then(|key| needs.extension(key))
                .cloned();
            self.needed.extend(
                entry
                    .needs
                    .clone()
                    .filter(|need| !self.needed.contains(need)),
            );
        }
    }

    fn add(&mut self, element: Json, merging: &Merging<'_>) {
        let Merging { kind, member, .. } = *merging;
        let (backend, naming) = (member.id, &member.naming);
        let key_of = |entry: &Json| entry.place(kind.key());
        let range = key_of(&element);
        let original = range
            .clone()
            .map(|range| element.slice(range))
            .filter(|key| key.kind() == Kind::String);
        let name = original.as_ref().and_then(Json::to_str);
        if kind == ListKind::Tools && name.as_ref().is_some_and(|name| !member.permits_tool(name)) {
            return;
        }
        if let Some(name) = &name
            && !member.admits(kind.policy_kind(), name, &element)
        {
            return self.withheld.push((backend, name.as_str().into()));
        }
        if let Some(why) =
            merging
                .topology
                .unreadable_reason(member, kind, name.as_deref(), &element)
        {
            return self.unreadable.push(UnreadableEntry {
                backend: member.name().to_owned(),
                name: name.unwrap_or_default(),
                why,
            });
        }
        let is_checked = merging.topology.leaves_out_invalid();
        let reason = match is_checked {
            true => invalid_reason(kind, &element),
            false => None,
        };
        let unnamed = |element, original| Entry {
            visible: Arc::new(element),
            key: None,
            original,
            backend,
            shows_app: false,
            rewriting: None,
            rewritten: Rewritten::empty(),
            needs: None,
        };
        if let Some(reason) = reason {
            return self.invalid.push(InvalidEntry {
                backend: member.name().to_owned(),
                entry: unnamed(element, original),
                reason,
            });
        }
        let (Some(range), Some(original)) = (range, original) else {
            // No request can name this entry, but the server lists it.
            return self.entries.push(unnamed(element, None));
        };
        let (range, element) = match is_checked
            .then(|| ENTRY.fit(&element.without_lone_surrogates()))
            .flatten()
        {
            Some(element) => (key_of(&element).unwrap_or(range), element),
            None => (range, element),
        };
        let (key, mut rewritten) = match kind.is_named() {
            true => naming.visible_name(&original),
            false => (original.clone(), Rewritten::empty()),
        };
        if name
            .as_ref()
            .is_some_and(|name| merging.is_given_away(name))
        {
            self.collide(&key, backend, None, merging);
            return;
        }
        let rewriting = name
            .as_ref()
            .filter(|_| kind == ListKind::Tools)
            .and_then(|name| member.rewritings.find(name));
        let (element, range) = match rewriting {
            Some(rewriting) => {
                rewritten = rewritten.union(rewriting.changes());
                let element = rewriting.definition(&element);
                let range = key_of(&element).unwrap_or(range);
                (element, range)
            }
            None => (element, range),
        };
        let Ok(renamed) = self.rename(&element, &key, merging) else {
            return;
        };
        let mut edits = Edits::new(element.bytes().clone());
        let key = renamed.key.unwrap_or(key);
        if key != original {
            edits.replace(range.clone(), key.bytes().clone());
        }
        let is_edited = key != original || !renamed.uris.is_empty();
        for (place, uri) in renamed
            .uris
            .into_iter()
            .filter(|(place, _)| *place != range)
        {
            edits.replace(place, uri.into_bytes());
        }
        let visible = Arc::new(if is_edited {
            edits.finish_json()
        } else {
            element
        });
        if let (ListKind::Tools, Some(name)) = (kind, name)
            && let bare = naming.bare_name(&name)
            && !key.is_str(bare)
        {
            self.bare
                .entry(bare.to_owned())
                .or_default()
                .push(self.entries.len());
        }
        let (key, original, shows_app) = (Some(key), Some(original), renamed.shows_app);
        let rewriting = rewriting.map(Arc::clone);
        self.insert(Entry {
            visible,
            key,
            original,
            backend,
            shows_app,
            rewriting,
            rewritten,
            needs: None,
        });
    }

    /// Finds the names and URIs of an entry that have to differ for clients. Fails if the entry
    /// cannot be offered.
    fn rename(
        &mut self,
        element: &Json,
        key: &Json,
        merging: &Merging<'_>,
    ) -> Result<Renamed, LeftOut> {
        let name = key.as_str().unwrap_or_default();
        let claimants = self.claimants(&name).filter_map(|at| self.entries.get(at));
        let claimants: Vec<_> = claimants.map(|entry| entry.backend).collect();
        let taken = claimants.first().copied();
        match merging.kind {
            kind @ (ListKind::Tools | ListKind::Prompts) => {
                if let Some(kept) = taken {
                    self.collide(key, kept, None, merging);
                }
                if claimants.contains(&merging.member.id) {
                    return Err(LeftOut);
                }
                Ok(match kind {
                    ListKind::Tools => self.rename_apps(element, merging),
                    _ => Renamed::default(),
                })
            }
            ListKind::Skills => self.rename_skill(element, key, taken, merging),
            ListKind::Resources | ListKind::ResourceTemplates => {
                let owner = taken.or_else(|| merging.owner_of_alias(key));
                match owner {
                    None => Ok(Renamed::default()),
                    Some(kept) => {
                        let alias = self.alias(key, taken, merging);
                        self.collide(key, kept, alias.as_ref(), merging);
                        alias
                            .map(|alias| Renamed {
                                key: Some(alias),
                                ..Renamed::default()
                            })
                            .ok_or(LeftOut)
                    }
                }
            }
        }
    }

    /// The alias for a URI that is taken, if one is possible. A server that lists a URI twice gets
    /// none, because both lead to the same resource.
    fn alias(&self, key: &Json, taken: Option<BackendId>, merging: &Merging<'_>) -> Option<Json> {
        let key = key.as_str().filter(|_| taken != Some(merging.member.id));
        let alias = merging.member.naming.alias(&key?);
        (!self.index.contains_key(&alias)).then(|| Json::string(&alias))
    }

    /// Gives aliases to the URIs of a tool's app that belong to another server.
    fn rename_apps(&mut self, tool: &Json, merging: &Merging<'_>) -> Renamed {
        let mut renamed = Renamed::default();
        for place in places::find_in_tool(tool) {
            let text = tool.slice(place.clone());
            let Some(uri) = text.as_str() else { continue };
            renamed.shows_app = true;
            let backend = merging.member.id;
            let owner = merging
                .owner(&uri)
                .or_else(|| self.named.get(uri.as_ref()).copied());
            match owner {
                Some(owner) if owner != backend || merging.owner_of_alias(&text).is_some() => {
                    renamed
                        .uris
                        .push((place, Json::string(&merging.member.naming.alias(&uri))));
                }
                Some(_) => {}
                None => drop(self.named.insert(uri.into_owned(), backend)),
            }
        }
        renamed
    }

    /// Gives aliases to all URIs of a skill if one of them belongs to another server. Clients read
    /// a skill by references from one of its files to others (SEP-2640, Relative References).
    fn rename_skill(
        &mut self,
        skill: &Json,
        key: &Json,
        taken: Option<BackendId>,
        merging: &Merging<'_>,
    ) -> Result<Renamed, LeftOut> {
        let (backend, places) = (merging.member.id, places::find_in_skill(skill));
        let uris: Vec<_> = places
            .into_iter()
            .filter_map(|place| Some((place.clone(), skill.slice(place).to_str()?)))
            .collect();
        let kept = taken.or_else(|| {
            uris.iter().find_map(|(_, uri)| {
                let alias_of = merging.topology.unalias(uri).map(|(owner, _)| owner.id);
                let owner = merging.owner(uri).or_else(|| self.named.get(uri).copied());
                alias_of.or(owner.filter(|owner| *owner != backend))
            })
        });
        let Some(kept) = kept else {
            for (_, uri) in uris {
                self.named.entry(uri).or_insert(backend);
            }
            return Ok(Renamed::default());
        };
        let alias = self.alias(key, taken, merging);
        self.collide(key, kept, alias.as_ref(), merging);
        let alias = alias.ok_or(LeftOut)?;
        let naming = &merging.member.naming;
        let uris = uris
            .into_iter()
            .map(|(place, uri)| (place, Json::string(&naming.alias(&uri))))
            .collect();
        Ok(Renamed {
            key: Some(alias),
            uris,
            shows_app: false,
        })
    }

    fn insert(&mut self, entry: Entry) {
        if let Some(key) = entry.key.as_ref().and_then(|key| key.as_str()) {
            self.index
                .entry(key.into_owned())
                .or_default()
                .push(self.entries.len());
        }
        self.entries.push(entry);
    }

    /// Records that the key of an entry was taken.
    fn collide(
        &mut self,
        key: &Json,
        kept: BackendId,
        alias: Option<&Json>,
        merging: &Merging<'_>,
    ) {
        let Some(key) = key.as_str() else { return };
        self.collisions.push(Collision {
            key: key.into_owned(),
            kept: merging.topology.name(kept).to_owned(),
            other: merging.member.name().to_owned(),
            alias: alias
                .and_then(|alias| alias.as_str())
                .map(|alias| alias.into_owned()),
        });
    }
}

/// The reason why no client with a strict library takes the entry. Faults of optional members are
/// none, since [`ENTRY`] removes them.
fn invalid_reason(kind: ListKind, entry: &Json) -> Option<&'static str> {
    if !entry.is_object() {
        return Some("it is no object");
    }
    if !has_text(entry, kind.key()) {
        return Some("it has no name or URI");
    }
    if kind == ListKind::Skills {
        return None;
    }
    if !has_text(entry, "name") {
        return Some("it has no `name`");
    }
    (kind == ListKind::Tools)
        .then(|| schema_fault(entry))
        .flatten()
}

fn has_text(object: &Json, member: &str) -> bool {
    object
        .peek(member)
        .is_some_and(|value| value.as_str().is_some())
}

/// The fault of a tool's `inputSchema`, which has to describe an object.
fn schema_fault(tool: &Json) -> Option<&'static str> {
    let Some(schema) = tool.get("inputSchema").filter(Json::is_object) else {
        return Some("its `inputSchema` is missing or no object");
    };
    if !schema.says("type", "object") {
        return Some("its `inputSchema` has not the type `object`");
    }
    let properties = schema.get("properties");
    let are_schemas = properties.as_ref().is_none_or(|all| {
        all.is_object()
            && all
                .members()
                .all(|member| matches!(all.slice(member.value).kind(), Kind::Object | Kind::Bool))
    });
    let required = schema.get("required");
    let are_names = required.as_ref().is_none_or(|all| {
        all.kind() == Kind::Array && all.items().all(|name| name.kind() == Kind::String)
    });
    (!are_schemas || !are_names)
        .then_some("`properties` or `required` of its `inputSchema` is not valid")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn json(text: &str) -> Json {
        Json::parse(text.to_owned().into(), 16).unwrap()
    }

    #[test]
    fn definition_that_strict_clients_reject_has_a_reason() {
        let schema = r#""inputSchema":{"type":"object"}"#;
        for valid in [
            format!(r#"{{"name":"a",{schema},"description":null,"icons":[{{"src":"x"}}]}}"#),
            r#"{"name":"a","inputSchema":{"type":"object","properties":{"x":true},"required":["x"]}}"#.into(),
            format!(r#"{{"name":"a",{schema},"outputSchema":{{"type":"array"}},"vendor":null}}"#),
            format!(r#"{{"name":"a",{schema},"description":1,"icons":[{{}}]}}"#),
        ] {
            assert_eq!(invalid_reason(ListKind::Tools, &json(&valid)), None, "{valid}");
        }
        for invalid in [
            "7".into(),
            format!("{{{schema}}}"),
            format!(r#"{{"name":null,{schema}}}"#),
            r#"{"name":"a"}"#.into(),
            r#"{"name":"a","inputSchema":null}"#.into(),
            format!(r#"{{"name":"cut \ud83d",{schema}}}"#),
            r#"{"name":"a","inputSchema":{}}"#.into(),
            r#"{"name":"a","inputSchema":{"type":"string"}}"#.into(),
            r#"{"name":"a","inputSchema":{"type":["object"]}}"#.into(),
            r#"{"name":"a","inputSchema":{"type":"object","properties":null}}"#.into(),
            r#"{"name":"a","inputSchema":{"type":"object","properties":{"x":null}}}"#.into(),
            r#"{"name":"a","inputSchema":{"type":"object","required":[1]}}"#.into(),
        ] {
            assert!(
                invalid_reason(ListKind::Tools, &json(&invalid)).is_some(),
                "{invalid}"
            );
        }
        assert!(invalid_reason(ListKind::Resources, &json(r#"{"uri":"x:1"}"#)).is_some());
    }
}
