//! The union of two JSON values, which merges the capabilities of several servers.

use std::collections::HashMap;

use super::{Json, Kind, ObjectBuilder};

/// Joins the members of two objects recursively. Of two booleans, `true` wins; of other values that
/// differ, the first one. Names and values keep their bytes.
pub fn union(first: &Json, second: &Json) -> Json {
    if first == second {
        return first.clone();
    }
    match (first.kind(), second.kind()) {
        (Kind::Object, Kind::Object) => union_objects(first, second),
        (Kind::Bool, Kind::Bool) if second.is_true() => second.clone(),
        _ => first.clone(),
    }
}

fn union_objects(first: &Json, second: &Json) -> Json {
    let mut all: Vec<(Json, Json)> = Vec::new();
    let mut indexes = HashMap::new();
    for object in [first, second] {
        for member in object.members() {
            let key = object.slice(member.key.clone());
            let name = member
                .name(object)
                .unwrap_or_else(|| key.as_text().to_owned());
            let value = object.slice(member.value);
            match indexes
                .get(&name)
                .and_then(|index: &usize| all.get_mut(*index))
            {
                Some((_, known)) => *known = union(known, &value),
                None => {
                    indexes.insert(name, all.len());
                    all.push((key, value));
                }
            }
        }
    }
    let mut object = ObjectBuilder::new();
    for (key, value) in &all {
        object.raw_member(key, value);
    }
    object.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn capabilities_unite() {
        let union = union(
            &Json::literal(r#"{"tools":{"listChanged":false},"x":{"n":1.0}}"#),
            &Json::literal(r#"{"tools":{"listChanged":true,"new":null},"prompts":{},"x":{"n":2}}"#),
        );
        assert_eq!(
            union.as_text(),
            r#"{"tools":{"listChanged":true,"new":null},"x":{"n":1.0},"prompts":{}}"#
        );
    }
}
