//! Finds the URIs of resources, and the ids of tasks, in messages.

use std::ops::Range;

use fanlight_protocol::json::{Edits, Json, Kind};
use fanlight_protocol::meta::RELATED_TASK;
use fanlight_protocol::{Method, Response, word};

/// A step from a value to its parts.
#[derive(Clone, Copy)]
enum Step {
    /// The step to the members of this name. There may be several, and readers may take the first
    /// or the last.
    Key(&'static str),
    /// The step to each element of an array. An object instead of an array counts as its only
    /// element.
    Each,
}

type Path = &'static [Step];

use Step::{Each, Key};

/// The URI of a tool's app, and its deprecated form (MCP Apps 2026-01-26, Resource Discovery).
const APP: [Path; 2] = [
    &[Key("_meta"), Key("ui"), Key("resourceUri")],
    &[Key("_meta"), Key("ui/resourceUri")],
];
/// URIs in a content block: a link (server/tools, Resource Links), an embedded resource, an app.
const BLOCK: [Path; 4] = [
    &[Key("uri")],
    &[Key("resource"), Key("uri")],
    APP[0],
    APP[1],
];
const CONTENT: Path = &[Key("content"), Each];
/// URIs in the entry of a skill (SEP-2640, Skill Entries).
const SKILL: [Path; 2] = [&[Key("uri")], &[Key("resources"), Each, Key("uri")]];

/// The places of URIs in one kind of value: paths to its parts, each with the paths of URIs inside.
type Places = &'static [(Path, &'static [Path])];

const IN_CALL_RESULT: Places = &[(&[], &APP), (CONTENT, &BLOCK)];
/// The result of `tasks/get` has the result of the call in a member.
const IN_TASK: Places = &[
    (&[Key("result")], &APP),
    (&[Key("result"), Key("content"), Each], &BLOCK),
];
const IN_PROMPT: Places = &[(&[Key("messages"), Each, Key("content"), Each], &BLOCK)];
const IN_READ_RESULT: Places = &[(&[Key("contents"), Each], &[&[Key("uri")]])];
const IN_DIRECTORY: Places = &[(&[Key("resources"), Each], &[&[Key("uri")]])];
const IN_SKILL_RESULT: Places = &[(&[Key("skill")], &SKILL)];

const TASK_ID: Path = &[Key("taskId")];
const RELATED: Path = &[Key("_meta"), Key(RELATED_TASK), Key("taskId")];
/// The places of a task's id in params and results of both dialects.
const IN_ABOUT_TASK: Places = &[
    (&[Key("task")], &[TASK_ID]),
    (&[], &[TASK_ID, RELATED]),
    (&[Key("result")], &[RELATED]),
];

/// The id of the task that params or a result are about.
pub(crate) fn find_task(value: &Json) -> Option<String> {
    value
        .slice(find(value, IN_ABOUT_TASK).into_iter().next()?)
        .to_str()
}

/// Replaces a task's id in params or a result.
pub(crate) fn rename_task(value: &Json, from: &str, to: &str) -> Json {
    let mut edits = Edits::new(value.bytes().clone());
    for place in find(value, IN_ABOUT_TASK) {
        if value.slice(place.clone()).is_str(from) {
            edits.replace(place, Json::string(to).into_bytes());
        }
    }
    edits.finish_json()
}

/// The ranges of the URIs in the answer to a request of this method.
pub(crate) fn find_in_response(method: &Method, response: &Response) -> Vec<Range<usize>> {
    let places = match method {
        Method::CallTool | Method::TaskResult => IN_CALL_RESULT,
        Method::GetPrompt => IN_PROMPT,
        Method::ReadResource => IN_READ_RESULT,
        Method::GetTask => IN_TASK,
        Method::ReadDirectory => IN_DIRECTORY,
        Method::GetSkill => IN_SKILL_RESULT,
        _ => return Vec::new(),
    };
    match response.result() {
        Some(result) if may_have_uri(&result) => find(&result, places),
        _ => Vec::new(),
    }
}

/// The ranges of the URIs of a tool's app in its definition.
pub(crate) fn find_in_tool(tool: &Json) -> Vec<Range<usize>> {
    find(tool, &[(&[], &APP)])
}

/// The ranges of the URIs in the entry of a skill.
pub(crate) fn find_in_skill(entry: &Json) -> Vec<Range<usize>> {
    find(entry, &[(&[], &SKILL)])
}

/// Whether the text may contain a member named `uri` or `…Uri`. Short texts are searched, because
/// most have none. In long texts it is faster to find members, which skips their values.
fn may_have_uri(result: &Json) -> bool {
    const SHORT: usize = 4 << 10;
    result.bytes().len() > SHORT || result.may_contain(word!("ri\""))
}

/// Whether a list of tools may name an app.
pub(crate) fn may_name_app(list: &Json) -> bool {
    list.may_contain(word!("esourceUri\""))
}

fn find(value: &Json, places: Places) -> Vec<Range<usize>> {
    let mut found = Vec::new();
    for (part, paths) in places {
        walk(value, 0, part, &mut |part, start| {
            for path in *paths {
                walk(part, start, path, &mut |uri, start| {
                    if uri.kind() == Kind::String {
                        found.push(start..start + uri.bytes().len());
                    }
                });
            }
        });
    }
    found
}

/// Calls `at_end` with each value that `path` leads to and its position. `value` itself begins at
/// `start`.
fn walk(value: &Json, start: usize, path: &[Step], at_end: &mut dyn FnMut(&Json, usize)) {
    let Some((step, rest)) = path.split_first() else {
        return at_end(value, start);
    };
    let mut enter = |range: Range<usize>| {
        walk(
            &value.slice(range.clone()),
            start + range.start,
            rest,
            at_end,
        );
    };
    match (step, value.kind()) {
        (Key(name), Kind::Object) => {
            value
                .members()
                .filter(|member| member.is(value, name))
                .for_each(|member| enter(member.value));
        }
        (Each, Kind::Array) => value.elements().for_each(enter),
        (Each, Kind::Object) => walk(value, start, rest, at_end),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use fanlight_protocol::Message;

    use super::*;

    fn found(method: &str, result: &str) -> Vec<String> {
        let text = Bytes::from(format!(r#"{{"jsonrpc":"2.0","id":1,"result":{result}}}"#));
        let Ok(Message::Response(response)) = Message::parse_for_forwarding(text, 64) else {
            panic!("{result}")
        };
        let result = response.result().unwrap();
        let found = find_in_response(&Method::from_name(method), &response);
        found
            .into_iter()
            .map(|range| result.slice(range).as_str().unwrap().into_owned())
            .collect()
    }

    #[test]
    fn uris_are_found_wherever_results_have_them() {
        let call = r#"{"content":[{"type":"text","text":"\"uri\":\"x://no\""},{"type":"resource_link","uri":"x://1"},
            {"type":"resource","resource":{"u\u0072i":"x:\/\/2","text":""},"_meta":{"ui":{"resourceUri":"ui://4"}}}],
            "structuredContent":{"uri":"x://no"},"_meta":{"ui/resourceUri":"ui://3","ui":{"resourceUri":7},"uri":"x://no"}}"#;
        assert_eq!(
            found("tools/call", call),
            ["ui://3", "x://1", "x://2", "ui://4"]
        );
        assert_eq!(
            found("tasks/result", call),
            ["ui://3", "x://1", "x://2", "ui://4"]
        );
        assert_eq!(
            found("tasks/get", &format!(r#"{{"taskId":"t","result":{call}}}"#)),
            ["ui://3", "x://1", "x://2", "ui://4"]
        );
        let prompt = r#"{"messages":[{"role":"user","content":{"type":"resource_link","uri":"x://1"}},
            {"role":"user","content":[{"type":"resource","resource":{"uri":"x://2"}}]}]}"#;
        assert_eq!(found("prompts/get", prompt), ["x://1", "x://2"]);
        assert_eq!(
            found(
                "resources/read",
                r#"{"contents":[{"uri":"x://1"},{"uri":"x://2","uri":"x://3"}]}"#
            )
            .len(),
            3
        );
        let skill = r#"{"skill":{"uri":"skill://a/SKILL.md","resources":[{"uri":"skill://a/b"}]}}"#;
        assert_eq!(
            found("skills/get", skill),
            ["skill://a/SKILL.md", "skill://a/b"]
        );
        assert!(found("skills/get", r#"{"skill":{"uri":1,"resources":"dynamic"}}"#).is_empty());
        assert_eq!(
            found(
                "resources/directory/read",
                r#"{"resources":[{"uri":"skill://a"}]}"#
            ),
            ["skill://a"]
        );
        assert!(found("x/y", call).is_empty());
    }

    #[test]
    fn uris_are_found_in_long_results() {
        let text = "x".repeat(70 << 10);
        let call = format!(
            r#"{{"content":[{{"type":"text","text":"{text}"}},{{"type":"resource_link","uri":"x://1"}}]}}"#
        );
        assert_eq!(found("tools/call", &call), ["x://1"]);
    }
}
