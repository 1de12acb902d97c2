//! Learns which entries a server lists only for clients with a certain extension, at no extra cost.
//!
//! Lists are read for all clients, with the extensions of all of them. When a client brings a new
//! extension, Fanlight reads all lists again. A server that announces changes, and announced none
//! meanwhile, lists its new entries because of that extension. Only clients with the extension are
//! shown these entries. That ends when the server announces a change, because then nothing tells
//! what an entry depends on.

use std::collections::HashMap;
use std::sync::Arc;

use fanlight_canonical::Outcome;
use fanlight_protocol::Json;

use super::ListKind;
use crate::merge::Contribution;

/// The extension that a client needs to see an entry, by the key that the server gives the entry.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Needs(HashMap<Box<str>, Arc<str>>);

/// One reading of a server's list.
#[derive(Clone, Copy)]
pub(super) struct ListReading<'a> {
    /// The capabilities declared for this reading.
    pub(super) declared: &'a Json,
    pub(super) list: &'a Contribution,
}

impl Needs {
    /// Updates the needs after another reading. The server must have announced no change between
    /// the two.
    pub(super) fn update(
        &self,
        kind: ListKind,
        before: ListReading<'_>,
        now: ListReading<'_>,
    ) -> Self {
        let is_whole = |reading: ListReading<'_>| {
            reading.list.outcome == Outcome::Ok && !reading.list.is_stale
        };
        let is_same = before.declared == now.declared;
        if !is_whole(before) || !is_whole(now) || (is_same && self.0.is_empty()) {
            return self.clone();
        }
        let (old, new) = (entries(kind, before.list), entries(kind, now.list));
        let unchanged = self.0.iter().filter(|(key, _)| {
            old.get(&***key)
                .is_some_and(|entry| new.get(&***key) == Some(entry))
        });
        let mut needs: HashMap<_, _> = unchanged
            .map(|(key, need)| (key.clone(), Arc::clone(need)))
            .collect();
        if let Some(extension) = only_new_extension(before.declared, now.declared) {
            let added = new.keys().filter(|key| !old.contains_key(*key));
            needs.extend(added.map(|key| (key.clone(), Arc::clone(&extension))));
        }
        Self(needs)
    }

    /// The extension that a client needs to see the entry with this key.
    pub(super) fn extension(&self, key: &Json) -> Option<&Arc<str>> {
        if self.0.is_empty() {
            None
        } else {
            self.0.get(key.as_text())
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// The entries of a list by their keys, both as the server writes them.
fn entries(kind: ListKind, list: &Contribution) -> HashMap<Box<str>, Json> {
    let lists = list
        .results
        .iter()
        .filter_map(|result| result.get(kind.member()));
    let all = lists.flat_map(|list| list.items().collect::<Vec<_>>());
    all.filter_map(|entry| Some((entry.get(kind.key())?.as_text().into(), entry)))
        .collect()
}

/// The only extension in `now` that is not in `before`, if there is exactly one. Declared
/// extensions are never withdrawn.
fn only_new_extension(before: &Json, now: &Json) -> Option<Arc<str>> {
    let extensions = |declared: &Json| {
        declared
            .get("extensions")
            .unwrap_or_else(Json::empty_object)
    };
    let (before, now) = (extensions(before), extensions(now));
    let mut new = now
        .members()
        .filter_map(|member| member.name(&now))
        .filter(|id| before.peek(id).is_none());
    let only = new.next()?;
    new.next().is_none().then(|| only.as_str().into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn declared(extensions: &[&str]) -> Json {
        let members: Vec<_> = extensions
            .iter()
            .map(|id| format!(r#""{id}":{{}}"#))
            .collect();
        Json::parse(
            format!(r#"{{"roots":{{}},"extensions":{{{}}}}}"#, members.join(",")).into(),
            8,
        )
        .unwrap()
    }

    fn list(outcome: Outcome, names: &[&str]) -> Contribution {
        let tools: Vec<_> = names
            .iter()
            .map(|name| format!(r#"{{"name":"{name}"}}"#))
            .collect();
        let result =
            Json::parse(format!(r#"{{"tools":[{}]}}"#, tools.join(",")).into(), 8).unwrap();
        Contribution {
            backend: "a".into(),
            outcome,
            reason: None,
            results: vec![result],
            is_stale: false,
        }
    }

    fn need(needs: &Needs, name: &str) -> Option<String> {
        needs
            .extension(&Json::string(name))
            .map(ToString::to_string)
    }

    #[test]
    fn entry_that_appears_with_an_extension_needs_it() {
        let (without, with, more) = (
            declared(&["k/k"]),
            declared(&["k/k", "x/x"]),
            declared(&["k/k", "x/x", "y/y"]),
        );
        let (few, many) = (list(Outcome::Ok, &["a"]), list(Outcome::Ok, &["a", "b"]));
        let reading = |declared, list| ListReading { declared, list };
        let after = |needs: &Needs, before, now| needs.update(ListKind::Tools, before, now);
        let learnt = after(
            &Needs::default(),
            reading(&without, &few),
            reading(&with, &many),
        );
        assert_eq!(
            (need(&learnt, "a"), need(&learnt, "b")),
            (None, Some("x/x".into()))
        );
        // The list is read again, with another extension.
        let again = after(&learnt, reading(&with, &many), reading(&more, &many));
        assert_eq!(need(&again, "b").as_deref(), Some("x/x"));
        assert!(
            after(&again, reading(&more, &many), reading(&more, &few)).is_empty(),
            "it is gone"
        );
        let failed = list(Outcome::Error, &[]);
        assert_eq!(
            need(
                &after(&learnt, reading(&with, &many), reading(&with, &failed)),
                "b"
            )
            .as_deref(),
            Some("x/x")
        );
    }

    #[test]
    fn what_an_entry_needs_is_unknown_in_doubt() {
        let (without, one, two) = (declared(&[]), declared(&["x/x"]), declared(&["x/x", "y/y"]));
        let (few, many) = (list(Outcome::Ok, &["a"]), list(Outcome::Ok, &["a", "b"]));
        let part = list(Outcome::Error, &["a"]);
        let learnt = |before: (&Json, &Contribution), now: (&Json, &Contribution)| {
            let [before, now] =
                [before, now].map(|(declared, list)| ListReading { declared, list });
            Needs::default().update(ListKind::Tools, before, now)
        };
        assert!(
            learnt((&without, &few), (&two, &many)).is_empty(),
            "either of two extensions"
        );
        assert!(
            learnt((&one, &few), (&one, &many)).is_empty(),
            "no new extension"
        );
        assert!(
            learnt((&without, &part), (&one, &many)).is_empty(),
            "the list was not whole"
        );
    }
}
