//! The server description in the form of the client's era: an `initialize` or `server/discover`
//! result. Its source is the core's description, or a merge of both forms.
//!
//! Only members that differ between the eras change. All others, unknown ones included, keep their
//! bytes and positions.

use fanlight_canonical::TaskDialect;
use fanlight_protocol::json::{Edits, Member, ObjectBuilder};
use fanlight_protocol::{
    Json, Revision, ServerDescription, has_tasks_extension, implementation, meta,
};

const PROTOCOL_VERSION: &str = "protocolVersion";
const SUPPORTED_VERSIONS: &str = "supportedVersions";
const CAPABILITIES: &str = "capabilities";
const SERVER_INFO: &str = "serverInfo";
const TASKS: &str = "tasks";

/// The 2025-11-25 capabilities of a server with the tasks extension. Such a server cannot list
/// tasks; Fanlight remembers each client's tasks itself.
const REQUESTED_TASKS: &str = r#"{"list":{},"cancel":{},"requests":{"tools":{"call":{}}}}"#;
const TASKS_EXTENSION_DECLARED: &str = r#"{"io.modelcontextprotocol/tasks":{}}"#;

/// The `initialize` result for a client that agreed on `revision`.
pub fn initialize_result(description: &Json, revision: Revision) -> Json {
    let version = Json::string(revision.name);
    let mut missing = missing_members(description);
    if description.get(SERVER_INFO).is_none() {
        let view = ServerDescription::from(description.clone());
        missing.member(
            SERVER_INFO,
            &view.server_info().unwrap_or_else(implementation),
        );
    }
    let described = set_version(
        description,
        PROTOCOL_VERSION,
        SUPPORTED_VERSIONS,
        &version,
        missing,
    );
    // Legacy capabilities do not include the extension.
    let is_legacy = description.get(PROTOCOL_VERSION).is_some();
    if is_legacy && revision.tasks == Some(TaskDialect::Requested) {
        described
    } else {
        with_tasks(described, revision.tasks)
    }
}

/// The `server/discover` result. The rendering of results adds the members of every modern result
/// (`resultType`, `ttlMs`, `cacheScope`).
pub fn discover_result(description: &Json) -> Json {
    let missing = missing_members(description);
    let with_versions = set_version(
        description,
        SUPPORTED_VERSIONS,
        PROTOCOL_VERSION,
        &versions_served(),
        missing,
    );
    with_tasks(
        move_server_info(with_versions),
        Some(TaskDialect::Extension),
    )
}

/// Every served revision, newest first. `server/discover` and `UnsupportedProtocolVersion` errors
/// use the same list: "the versions it does support" (2026-07-28 basic/versioning, whose example
/// lists both eras). A client reaches legacy ones through `initialize`.
pub(crate) fn versions_served() -> Json {
    names_of(|_| true)
}

/// The revisions served where no modern one is, newest first.
pub(crate) fn legacy_versions_served() -> Json {
    names_of(|revision| revision.has_sessions)
}

fn names_of(wanted: impl Fn(Revision) -> bool) -> Json {
    let revisions = Revision::ALL.into_iter().filter(|it| wanted(*it));
    Json::strings(revisions.map(|revision| revision.name))
}

/// Members that both eras require and the description lacks.
fn missing_members(description: &Json) -> ObjectBuilder {
    let mut missing = ObjectBuilder::new();
    if description.get(CAPABILITIES).is_none() {
        missing.member(CAPABILITIES, &Json::empty_object());
    }
    missing
}

/// Sets the member `wanted`: in its own place, else in the place of its counterpart `other` of the
/// other era, else at the front. The `missing` members also go to the front.
fn set_version(
    description: &Json,
    wanted: &str,
    other: &str,
    value: &Json,
    mut missing: ObjectBuilder,
) -> Json {
    let own = find(description, wanted);
    let counterpart = if own.is_none() {
        find(description, other)
    } else {
        None
    };
    if own.is_none() && counterpart.is_none() {
        missing.member(wanted, value);
    }
    let mut edits = Edits::new(description.bytes().clone());
    // Insert first: the first replaced member may have the same position.
    edits.insert_members(0, missing.finish().inner_text());
    if let Some(member) = counterpart {
        edits.replace(member.key, Json::string(wanted).into_bytes());
        edits.replace(member.value, value.bytes().clone());
    } else if let Some(member) = own {
        edits.replace(member.value, value.bytes().clone());
    }
    edits.finish_json()
}

/// Moves the server's identity to `_meta`, where modern servers have it (2026-07-28 basic/index,
/// Per-response protocol fields). A description that already has it there stays as it is.
fn move_server_info(description: Json) -> Json {
    let own_meta = description.get("_meta");
    let has_place =
        own_meta.is_none_or(|own| own.is_object() && own.get(meta::SERVER_INFO).is_none());
    match description.get(SERVER_INFO).filter(|_| has_place) {
        Some(server_info) => description.without_members(&[SERVER_INFO]).with_nested(
            "_meta",
            meta::SERVER_INFO,
            &server_info,
        ),
        None => description,
    }
}

/// Announces tasks in the client's dialect if the server announces them in the other; the backend
/// translates later messages. A legacy client without tasks must not see the extension: its calls
/// wait for the task's result.
fn with_tasks(description: Json, speaks: Option<TaskDialect>) -> Json {
    let Some(place) = description.place(CAPABILITIES) else {
        return description;
    };
    let capabilities = description.slice(place.clone());
    let changed = match speaks {
        Some(TaskDialect::Requested) if has_tasks_extension(&capabilities) => {
            Some(with_member(&capabilities, TASKS, REQUESTED_TASKS))
        }
        Some(TaskDialect::Extension) if takes_calls_as_tasks(&capabilities) => Some(with_member(
            &capabilities,
            "extensions",
            TASKS_EXTENSION_DECLARED,
        )),
        None if capabilities.get(TASKS).is_some() => Some(capabilities.without_members(&[TASKS])),
        _ => None,
    };
    let Some(changed) = changed else {
        return description;
    };
    let mut edits = Edits::new(description.bytes().clone());
    edits.replace(place, changed.into_bytes());
    edits.finish_json()
}

/// `capabilities` with the member `name` that includes everything in `wanted`. Existing members
/// keep their bytes.
fn with_member(capabilities: &Json, name: &str, wanted: &'static str) -> Json {
    let wanted = Json::literal(wanted);
    let mut edits = Edits::new(capabilities.bytes().clone());
    match capabilities.place(name) {
        Some(place) => {
            let own = capabilities.slice(place.clone());
            let both = if own.is_object() {
                fanlight_protocol::json::union(&own, &wanted)
            } else {
                wanted
            };
            edits.replace(place, both.into_bytes());
        }
        None => {
            let member = ObjectBuilder::new().member(name, &wanted).finish();
            edits.insert_members(0, member.inner_text());
        }
    }
    edits.finish_json()
}

/// Whether a legacy server runs `tools/call` as a task (2025-11-25 basic/utilities/tasks, Server
/// Capabilities).
fn takes_calls_as_tasks(capabilities: &Json) -> bool {
    let path = [TASKS, "requests", "tools", "call"];
    let call = path
        .into_iter()
        .try_fold(capabilities.clone(), |at, step| at.get(step));
    call.is_some_and(|call| call.is_object())
}

fn find(object: &Json, key: &str) -> Option<Member> {
    object.members().find(|member| member.is(object, key))
}

#[cfg(test)]
mod tests {
    use super::*;

    const VERSIONS: &str = r#"["2026-07-28","2025-11-25","2025-06-18","2025-03-26","2024-11-05"]"#;

    fn initialize(text: &'static str) -> String {
        initialize_result(&Json::literal(text), Revision::V2025_06_18)
            .as_text()
            .to_owned()
    }

    fn discover(text: &'static str) -> String {
        discover_result(&Json::literal(text)).as_text().to_owned()
    }

    #[test]
    fn legacy_to_legacy_changes_the_version_only() {
        assert_eq!(
            initialize(
                r#"{ "x":1.0, "protocolVersion" : "2024-11-05", "capabilities":{}, "serverInfo":{"name":"s","version":"1E400"} }"#
            ),
            r#"{ "x":1.0, "protocolVersion" : "2025-06-18", "capabilities":{}, "serverInfo":{"name":"s","version":"1E400"} }"#
        );
    }

    #[test]
    fn modern_to_modern_changes_the_versions_only() {
        let given = r#"{"resultType":"complete", "supportedVersions":["2026-07-28"],"capabilities":{"a":1.0},"ttlMs":5,"_meta":{"k":null}}"#;
        let expected = given.replace(r#"["2026-07-28"]"#, VERSIONS);
        assert_eq!(discover(given), expected);
    }

    #[test]
    fn modern_to_legacy_takes_the_identity_from_meta() {
        assert_eq!(
            initialize(
                r#"{"supportedVersions":["2026-07-28"],"capabilities":{},"_meta":{"io.modelcontextprotocol/serverInfo":{"name":"s","version":"1"}},"ttlMs":0}"#
            ),
            r#"{"serverInfo":{"name":"s","version":"1"},"protocolVersion":"2025-06-18","capabilities":{},"_meta":{"io.modelcontextprotocol/serverInfo":{"name":"s","version":"1"}},"ttlMs":0}"#
        );
    }

    #[test]
    fn legacy_to_modern_moves_the_identity_to_meta() {
        assert_eq!(
            discover(
                r#"{"serverInfo":{"name":"s"},"protocolVersion":"2025-11-25","capabilities":{}}"#
            ),
            format!(
                r#"{{"supportedVersions":{VERSIONS},"capabilities":{{}},"_meta":{{"io.modelcontextprotocol/serverInfo":{{"name":"s"}}}}}}"#
            )
        );
        assert_eq!(
            discover(
                r#"{"protocolVersion":"2025-11-25","capabilities":{},"_meta":{ "k":1.0},"serverInfo":{"name":"s"}}"#
            ),
            format!(
                r#"{{"supportedVersions":{VERSIONS},"capabilities":{{}},"_meta":{{"io.modelcontextprotocol/serverInfo":{{"name":"s"}}, "k":1.0}}}}"#
            )
        );
    }

    #[test]
    fn an_identity_in_both_places_stays_in_both() {
        let given = r#"{"supportedVersions":[],"capabilities":{},"serverInfo":{"name":"a"},"_meta":{"io.modelcontextprotocol/serverInfo":{"name":"b"}}}"#;
        assert_eq!(discover(given), given.replace("[]", VERSIONS));
        let odd =
            r#"{"supportedVersions":[],"capabilities":{},"serverInfo":{"name":"a"},"_meta":7}"#;
        assert_eq!(discover(odd), odd.replace("[]", VERSIONS));
    }

    fn initialize_newest(version: &str, capabilities: &str) -> String {
        let text = format!(r#"{{{version},"capabilities":{capabilities},"serverInfo":{{}}}}"#);
        let result =
            initialize_result(&Json::parse(text.into(), 8).unwrap(), Revision::V2025_11_25);
        result.get("capabilities").unwrap().as_text().to_owned()
    }

    #[test]
    fn tasks_are_told_of_in_the_words_of_the_client() {
        const LEGACY: &str = r#""tasks":{"list":{},"cancel":{},"requests":{"tools":{"call":{}}}}"#;
        const MODERN: &str = r#""extensions":{"io.modelcontextprotocol/tasks":{}}"#;
        let [modern, legacy] = [
            r#""supportedVersions":[]"#,
            r#""protocolVersion":"2025-11-25""#,
        ];
        assert_eq!(
            initialize_newest(modern, &format!("{{ {MODERN}}}")),
            format!("{{{LEGACY}, {MODERN}}}")
        );
        // A server's legacy capabilities describe the legacy era.
        assert_eq!(
            initialize_newest(legacy, &format!("{{ {MODERN}}}")),
            format!("{{ {MODERN}}}")
        );
        let as_it_is = r#"{"tasks":{"list":{ }},"x":1.0}"#;
        assert_eq!(initialize_newest(modern, as_it_is), as_it_is);
        let both = format!(r#"{{"tasks":{{"list":{{ }}}},{MODERN}}}"#);
        let merged = r#""tasks":{"list":{},"cancel":{},"requests":{"tools":{"call":{}}}}"#;
        assert_eq!(
            initialize_newest(modern, &both),
            format!("{{{merged},{MODERN}}}")
        );
        // An earlier revision has no tasks.
        let earlier = |capabilities: &str| {
            let text = format!(r#"{{"capabilities":{capabilities},"serverInfo":{{}}}}"#);
            let result =
                initialize_result(&Json::parse(text.into(), 8).unwrap(), Revision::V2025_06_18);
            result.get("capabilities").unwrap().as_text().to_owned()
        };
        assert_eq!(
            earlier(&format!(r#"{{"tools":{{}}, {LEGACY},"x":1.0}}"#)),
            r#"{"tools":{},"x":1.0}"#
        );
        assert_eq!(earlier(&format!("{{{MODERN}}}")), format!("{{{MODERN}}}"));

        let discovered = |capabilities: &str| {
            let text = format!(r#"{{"supportedVersions":[],"capabilities":{capabilities}}}"#);
            let result = discover_result(&Json::parse(text.into(), 8).unwrap());
            result.get("capabilities").unwrap().as_text().to_owned()
        };
        assert_eq!(
            discovered(&format!("{{{LEGACY}}}")),
            format!("{{{MODERN},{LEGACY}}}")
        );
        let others = format!(r#"{{{LEGACY},"extensions":{{ "a/b" : 1.0}}}}"#);
        let merged = r#""extensions":{"a/b":1.0,"io.modelcontextprotocol/tasks":{}}"#;
        assert_eq!(discovered(&others), format!("{{{LEGACY},{merged}}}"));
        for none in [r#"{"tasks":{"list":{}}}"#, "{}", &format!("{{{MODERN}}}")] {
            assert_eq!(discovered(none), none);
        }
    }

    #[test]
    fn required_members_are_always_there() {
        let merged = initialize("{}");
        assert!(
            merged.starts_with(r#"{"capabilities":{},"serverInfo":{"name":"fanlight""#),
            "{merged}"
        );
        assert!(
            merged.ends_with(r#""protocolVersion":"2025-06-18"}"#),
            "{merged}"
        );
        assert_eq!(
            discover("{}"),
            format!(r#"{{"capabilities":{{}},"supportedVersions":{VERSIONS}}}"#)
        );
    }
}
