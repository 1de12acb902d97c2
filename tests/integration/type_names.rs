//! Type names that once had several meanings have one each.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

/// Type names that the product's crates define at most once with visibility beyond their module.
const UNIQUE: [&str; 5] = ["Connection", "Limits", "Peer", "MemoryOwners", "Timeouts"];

/// The names of the types that a text defines with visibility beyond their module.
fn visible_types(text: &str) -> impl Iterator<Item = &str> {
    text.lines().filter_map(|line| {
        let line = line.trim_start();
        let rest = line.strip_prefix("pub ").or_else(|| {
            line.strip_prefix("pub(")
                .and_then(|rest| rest.split(") ").nth(1))
        })?;
        let (keyword, rest) = rest.split_once(' ')?;
        let is_type = ["struct", "enum", "trait", "type"].contains(&keyword);
        is_type.then(|| {
            rest.split(|c: char| !c.is_alphanumeric())
                .next()
                .unwrap_or_default()
        })
    })
}

fn collect(folder: &Path, found: &mut BTreeMap<String, Vec<String>>) {
    for entry in fs::read_dir(folder).unwrap().map(Result::unwrap) {
        let path = entry.path();
        if path.is_dir() {
            collect(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let text = fs::read_to_string(&path).unwrap();
            for name in visible_types(&text) {
                found
                    .entry(name.to_owned())
                    .or_default()
                    .push(path.display().to_string());
            }
        }
    }
}

#[test]
fn names_of_types_stand_for_one_thing() {
    let mut found = BTreeMap::new();
    collect(
        &Path::new(env!("CARGO_MANIFEST_DIR")).join("../crates"),
        &mut found,
    );
    for name in UNIQUE {
        let places = found.get(name).map(Vec::as_slice).unwrap_or_default();
        assert_eq!(places.len(), 1, "{name} is defined in {places:?}");
    }
}

#[test]
fn types_that_others_see_are_found() {
    let text = "pub struct A<T>;\n    pub(super) enum B {\nstruct C;\npub fn f() {}\npub(crate) trait D: E {}\n";
    assert_eq!(visible_types(text).collect::<Vec<_>>(), ["A", "B", "D"]);
}
