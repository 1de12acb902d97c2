//! The slicer and the splicer against serde_json: both accept the same texts, and everything sliced
//! out is itself JSON.
#![no_main]

use bytes::Bytes;
use fanlight_protocol::Json;
use fanlight_protocol::json::{DEFAULT_NESTING, Edits, Kind, rewrite_object};
use libfuzzer_sys::fuzz_target;
use serde_json::value::RawValue;

fuzz_target!(|data: &[u8]| {
    let outline = Json::validate_structure(Bytes::copy_from_slice(data), DEFAULT_NESTING);
    if let Ok(outline) = &outline {
        walk(outline, 0);
    }
    let parsed = Json::parse(Bytes::copy_from_slice(data), DEFAULT_NESTING);
    let reference = std::str::from_utf8(data).ok().and_then(|text| serde_json::from_str::<&RawValue>(text).ok());
    let Ok(value) = parsed else {
        // serde_json's own limit is one level less generous than ours and never more.
        assert!(reference.is_none(), "refused what serde_json accepts");
        return;
    };
    assert_eq!(outline.as_ref(), Ok(&value), "what is JSON has an outline");
    if let Ok(outline) = &outline {
        same_walk(&value, outline, 0);
    }
    if let Some(reference) = reference {
        assert_eq!(value.as_text(), reference.get());
    }
    for place in value.elements().chain(value.members().map(|member| member.value)) {
        let replaced = value.with_indexed(place, &Json::literal(r#"{"added":[1]}"#));
        same_walk(
            &replaced,
            &Json::validate_structure(replaced.bytes().clone(), DEFAULT_NESTING + 1).expect("is JSON again"),
            0,
        );
    }
    for element in value.elements() {
        check(&value.slice(element));
    }
    for member in value.members() {
        check(&value.slice(member.key.clone()));
        check(&value.slice(member.value));
    }
    if value.is_object() {
        check(&rewrite_object(&value, |member| member.key.start % 2 == 0, b"\"added\":1"));
        let mut edits = Edits::new(value.bytes().clone());
        edits.insert_members(0, b"\"added\":1");
        check(&edits.finish_json());
    }
    if value.kind() == Kind::String {
        assert_eq!(value.as_str().map(|text| text.into_owned()), serde_json::from_str::<String>(value.as_text()).ok());
    }
});

/// What was noted while a text was validated is what is read where nothing was noted.
fn same_walk(noted: &Json, read: &Json, depth: usize) {
    assert!(noted.members().eq(read.members()));
    for member in read.members() {
        let Some(name) = member.name(read) else { continue };
        assert_eq!(noted.get(&name), read.get(&name));
        assert_eq!(noted.find([&name]), read.find([&name]));
    }
    assert!(noted.elements().eq(read.elements()));
    for place in noted.members().map(|member| member.value).chain(noted.elements()) {
        if depth < 5 {
            same_walk(&noted.slice(place.clone()), &read.slice(place), depth + 1);
        }
    }
}

/// What has an outline and may be no JSON can be walked all the same.
fn walk(value: &Json, depth: usize) {
    for place in value.members().map(|member| member.value).chain(value.elements()) {
        if depth < 8 {
            walk(&value.slice(place), depth + 1);
        }
    }
    if value.is_object() {
        let _ = rewrite_object(value, |member| member.key.start % 2 == 0, b"\"added\":1");
    }
}

fn check(part: &Json) {
    let again = Json::parse(part.bytes().clone(), DEFAULT_NESTING + 1).expect("a part of JSON is JSON");
    assert_eq!(&again, part);
}
