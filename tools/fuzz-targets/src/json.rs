//! Slicing and splicing compared with serde_json: both accept the same texts, and every slice is
//! JSON.

use bytes::Bytes;
use fanlight_protocol::Json;
use fanlight_protocol::json::{DEFAULT_NESTING, Edits, Kind, rewrite_object};
use serde_json::value::RawValue;

use crate::cost::{Cost, bounded};

pub(crate) fn check(data: &[u8]) {
    let structure = bounded(data.len(), Cost::TEXT, || {
        Json::validate_structure(Bytes::copy_from_slice(data), DEFAULT_NESTING)
    });
    if let Ok(structure) = &structure {
        walk(structure, 0);
    }
    let parsed = bounded(data.len(), Cost::TEXT, || {
        Json::parse(Bytes::copy_from_slice(data), DEFAULT_NESTING)
    });
    let reference = std::str::from_utf8(data)
        .ok()
        .and_then(|text| serde_json::from_str::<&RawValue>(text).ok());
    let Ok(value) = parsed else {
        // serde_json's own limit is one level stricter than ours, and never more lenient.
        assert!(reference.is_none(), "refused what serde_json accepts");
        return;
    };
    assert_eq!(
        structure.as_ref(),
        Ok(&value),
        "valid JSON has a valid structure"
    );
    if let Ok(structure) = &structure {
        same_walk(&value, structure, 0);
    }
    if let Some(reference) = reference {
        assert_eq!(value.as_text(), reference.get());
    }
    for place in value
        .elements()
        .chain(value.members().map(|member| member.value))
    {
        let replaced = value.with_indexed(place, &Json::literal(r#"{"added":[1]}"#));
        same_walk(
            &replaced,
            &Json::validate_structure(replaced.bytes().clone(), DEFAULT_NESTING + 1)
                .expect("is JSON again"),
            0,
        );
    }
    for element in value.elements() {
        reparse(&value.slice(element));
    }
    for member in value.members() {
        reparse(&value.slice(member.key.clone()));
        reparse(&value.slice(member.value));
    }
    if value.is_object() {
        reparse(&rewrite_object(
            &value,
            |member| member.key.start % 2 == 0,
            b"\"added\":1",
        ));
        let mut edits = Edits::new(value.bytes().clone());
        edits.insert_members(0, b"\"added\":1");
        reparse(&edits.finish_json());
    }
    if value.kind() == Kind::String {
        assert_eq!(
            value.as_str().map(|text| text.into_owned()),
            serde_json::from_str::<String>(value.as_text()).ok()
        );
    }
}

/// Checks that a text with an index has the same members as without one.
fn same_walk(indexed: &Json, read: &Json, depth: usize) {
    assert!(indexed.members().eq(read.members()));
    for member in read.members() {
        let Some(name) = member.name(read) else {
            continue;
        };
        assert_eq!(indexed.get(&name), read.get(&name));
        assert_eq!(indexed.find([&name]), read.find([&name]));
    }
    assert!(indexed.elements().eq(read.elements()));
    for place in indexed
        .members()
        .map(|member| member.value)
        .chain(indexed.elements())
    {
        if depth < 5 {
            same_walk(&indexed.slice(place.clone()), &read.slice(place), depth + 1);
        }
    }
}

/// Walks text with a valid structure, which need not be JSON.
fn walk(value: &Json, depth: usize) {
    for place in value
        .members()
        .map(|member| member.value)
        .chain(value.elements())
    {
        if depth < 8 {
            walk(&value.slice(place), depth + 1);
        }
    }
    if value.is_object() {
        let _ = rewrite_object(value, |member| member.key.start % 2 == 0, b"\"added\":1");
    }
}

fn reparse(part: &Json) {
    let again =
        Json::parse(part.bytes().clone(), DEFAULT_NESTING + 1).expect("a part of JSON is JSON");
    assert_eq!(&again, part);
}
