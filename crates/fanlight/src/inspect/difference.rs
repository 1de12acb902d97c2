//! The differences of two JSON texts, as values and as bytes.

use fanlight_protocol::Json;
use fanlight_protocol::json::Kind;

/// Differences that are listed; further ones are counted.
const MOST_LISTED: usize = 50;
/// Bytes shown around the first difference.
const CONTEXT: usize = 40;

/// The differences of the values, one line each. Members are compared by name in any order; numbers
/// by their text, since `1` and `1.0` differ on the wire.
pub(super) fn of_values(left: &Json, right: &Json) -> Vec<String> {
    let mut found = Vec::new();
    compare("$", left, right, &mut found);
    if found.len() > MOST_LISTED {
        let more = found.len() - MOST_LISTED;
        found.truncate(MOST_LISTED);
        found.push(format!("… and {more} more"));
    }
    found
}

fn compare(path: &str, left: &Json, right: &Json, found: &mut Vec<String>) {
    match (left.kind(), right.kind()) {
        (Kind::Object, Kind::Object) => compare_members(path, left, right, found),
        (Kind::Array, Kind::Array) => compare_elements(path, left, right, found),
        (Kind::String, Kind::String) if left.as_str().is_some() && left.as_str() == right.as_str() => {}
        _ if left == right => {}
        _ => found.push(format!("{path}: {} became {}", shown(left), shown(right))),
    }
}

fn compare_members(path: &str, left: &Json, right: &Json, found: &mut Vec<String>) {
    for member in left.members() {
        let (key, value) = (left.slice(member.key.clone()), left.slice(member.value.clone()));
        let path = format!("{path}[{key}]");
        match right.members().find(|other| same_name(right, other, left, &member)) {
            Some(other) => compare(&path, &value, &right.slice(other.value), found),
            None => found.push(format!("{path}: {} is missing", shown(&value))),
        }
    }
    for member in right.members() {
        if !left.members().any(|other| same_name(right, &member, left, &other)) {
            found.push(format!(
                "{path}[{}]: {} was added",
                right.slice(member.key.clone()),
                shown(&right.slice(member.value))
            ));
        }
    }
}

fn same_name(
    object: &Json,
    member: &fanlight_protocol::json::Member,
    other_object: &Json,
    other: &fanlight_protocol::json::Member,
) -> bool {
    match other.name(other_object) {
        Some(name) => member.is(object, &name),
        None => object.slice(member.key.clone()) == other_object.slice(other.key.clone()),
    }
}

fn compare_elements(path: &str, left: &Json, right: &Json, found: &mut Vec<String>) {
    let (lefts, rights) = (left.elements().collect::<Vec<_>>(), right.elements().collect::<Vec<_>>());
    if lefts.len() != rights.len() {
        found.push(format!("{path}: {} elements became {}", lefts.len(), rights.len()));
    }
    for (index, (l, r)) in lefts.into_iter().zip(rights).enumerate() {
        compare(&format!("{path}[{index}]"), &left.slice(l), &right.slice(r), found);
    }
}

fn shown(json: &Json) -> String {
    crate::show::plain(json.as_text(), 80)
}

/// The first differing byte and its context; `None` if the texts are equal.
pub(super) fn of_bytes(left: &Json, right: &Json) -> Option<String> {
    let (l, r) = (left.bytes(), right.bytes());
    if l == r {
        return None;
    }
    let at = l.iter().zip(r.iter()).take_while(|(a, b)| a == b).count();
    let around = |bytes: &[u8]| {
        let start = at.saturating_sub(CONTEXT / 2);
        let end = (at + CONTEXT).min(bytes.len());
        bytes.get(start..end).unwrap_or_default().escape_ascii().to_string()
    };
    Some(format!(
        "first difference at byte {at} ({} bytes directly, {} through the gateway)\n  direct:  …{}\n  gateway: …{}",
        l.len(),
        r.len(),
        around(l),
        around(r)
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn values(left: &'static str, right: &'static str) -> Vec<String> {
        of_values(&Json::literal(left), &Json::literal(right))
    }

    #[test]
    fn of_values_lists_every_difference() {
        let left = r#"{"a":1.0,"b":[1,{"c":null}],"gone":true,"s":"\u0041"}"#;
        let right = r#"{"s":"A","b":[1,{"c":0},2],"a":1,"new":{}}"#;
        let expected = [
            r#"$["a"]: 1.0 became 1"#,
            r#"$["b"]: 2 elements became 3"#,
            r#"$["b"][1]["c"]: null became 0"#,
            r#"$["gone"]: true is missing"#,
            r#"$["new"]: {} was added"#,
        ];
        assert_eq!(values(left, right), expected);
        assert!(values(left, left).is_empty());
    }

    #[test]
    fn of_bytes_finds_white_space_that_values_ignore() {
        let (left, right) = (Json::literal(r#"{"a":1}"#), Json::literal(r#"{"a": 1}"#));
        assert!(of_values(&left, &right).is_empty());
        assert!(of_bytes(&left, &right).unwrap().starts_with("first difference at byte 5 (7 bytes directly, 8"));
        assert_eq!(of_bytes(&left, &left), None);
    }
}
