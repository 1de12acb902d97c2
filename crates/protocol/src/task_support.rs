//! Adds `execution.taskSupport`, which tells clients of 2025-11-25 whether a tool can be called as
//! a task.
//!
//! A client of that revision must not call a tool as a task without this member (2025-11-25
//! basic/utilities/tasks, Tool-Level Negotiation). A server with the extension
//! `io.modelcontextprotocol/tasks` does not send it, because the server itself decides which calls
//! become tasks.

use crate::json::{Edits, Json, replace_elements};

const EXECUTION: &str = "execution";
const TASK_SUPPORT: &str = "taskSupport";
const OPTIONAL: &[u8] = br#""taskSupport":"optional""#;
const EXECUTION_OPTIONAL: &[u8] = br#""execution":{"taskSupport":"optional"}"#;

/// The tool with `taskSupport` set to `"optional"`. `None` if it has that member already, or cannot
/// have it.
pub fn optional_for_tool(tool: &Json) -> Option<Json> {
    if !tool.is_object() {
        return None;
    }
    let execution = tool.place(EXECUTION);
    let (place, members) = match execution {
        None => (0, EXECUTION_OPTIONAL),
        Some(place) => {
            let own = tool.slice(place.clone());
            if !own.is_object() || own.get(TASK_SUPPORT).is_some() {
                return None;
            }
            (place.start, OPTIONAL)
        }
    };
    let mut edits = Edits::new(tool.bytes().clone());
    edits.insert_members(place, members);
    Some(edits.finish_json())
}

/// The result of `tools/list` after applying [`optional_for_tool`] to every tool; `None` if that
/// changes nothing.
pub fn optional_for_list(list: &Json) -> Option<Json> {
    replace_elements(list, "tools", optional_for_tool)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tool(text: &'static str) -> Option<String> {
        optional_for_tool(&Json::literal(text)).map(|tool| tool.as_text().to_owned())
    }

    #[test]
    fn task_support_is_added_where_it_is_absent() {
        let with = |rest: &str| format!(r#"{{"execution":{{"taskSupport":"optional"}},{rest}}}"#);
        assert_eq!(
            tool(r#"{ "name":"t", "n":1.0}"#).unwrap(),
            with(r#" "name":"t", "n":1.0"#)
        );
        let other = r#"{"name":"t","execution":{ "x":1E400}}"#;
        assert_eq!(
            tool(other).unwrap(),
            other.replace(r#"{ "x""#, r#"{"taskSupport":"optional", "x""#)
        );
        assert_eq!(
            tool("{}").unwrap(),
            r#"{"execution":{"taskSupport":"optional"}}"#
        );
    }

    #[test]
    fn task_support_of_the_server_is_kept() {
        for own in [r#""forbidden""#, r#""required""#, "null", "7"] {
            let text = format!(r#"{{"name":"t","execution":{{"taskSupport":{own}}}}}"#);
            assert_eq!(
                optional_for_tool(&Json::parse(text.into(), 8).unwrap()),
                None,
                "{own}"
            );
        }
        assert_eq!((tool(r#"{"execution":null}"#), tool("7")), (None, None));
    }

    #[test]
    fn only_tools_of_a_list_change() {
        let list = Json::literal(
            r#"{ "ttlMs":1.0,"tools":[ {"name":"a"},7, {"name":"b","execution":{"taskSupport":"required"}} ] }"#,
        );
        let changed = optional_for_list(&list).unwrap();
        let expected = list.as_text().replace(
            r#"{"name":"a"}"#,
            r#"{"execution":{"taskSupport":"optional"},"name":"a"}"#,
        );
        assert_eq!(changed.as_text(), expected);
        assert!(
            optional_for_list(&changed).is_none()
                && optional_for_list(&Json::empty_object()).is_none()
        );
    }
}
