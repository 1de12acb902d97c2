//! The changes that an answer needs for its client's revision: required members of results, error
//! codes that it forbids, and server descriptions.

use std::collections::BTreeSet;

use bytes::Bytes;
use fanlight_protocol::json::{Chunks, Edits, ObjectBuilder, replace_elements, retain_elements};
use fanlight_protocol::revision::ResultMember;
use fanlight_protocol::{Json, Method, Response, Revision, meta, param_header, word};
use parking_lot::Mutex;
use smallvec::SmallVec;

use super::description;

const RESULT_TYPE: &str = "resultType";

/// How to write the answer to one request.
#[derive(Clone, Debug)]
pub(crate) struct Rendering {
    /// The request's id, as written.
    pub(crate) id: Json,
    /// The request's method.
    pub(crate) method: Method,
    pub(crate) revision: Revision,
    /// The maximum number of tool parameters that the client mirrors into headers; `None` if it
    /// mirrors none. Such a client must not see tools whose annotations break the rules (2026-07-28
    /// server/tools, x-mcp-header).
    pub(crate) mirrors_params: Option<usize>,
}

impl Rendering {
    /// The message with the response.
    pub(crate) fn message(&self, response: &Response) -> Chunks {
        match response.result() {
            Some(result) => self.result_message(response, result),
            None => self
                .with_own_code(response)
                .as_ref()
                .unwrap_or(response)
                .to_message(&self.id, Bytes::new()),
        }
    }

    fn result_message(&self, response: &Response, result: Json) -> Chunks {
        let changed = match self.method {
            Method::Initialize => {
                Some(response.with_body(&description::initialize_result(&result, self.revision)))
            }
            Method::Discover => Some(response.with_body(&description::discover_result(&result))),
            Method::ListTools if !self.revision.structures_any_value => {
                tools_for_legacy(&result).map(|result| response.with_body(&result))
            }
            Method::ListTools => self
                .mirrors_params
                .and_then(|limit| mirrorable(response, &result, limit)),
            Method::CallTool | Method::TaskResult if !self.revision.structures_any_value => {
                let links =
                    !self.revision.links_resources && response.original_response().is_some();
                let unlinked = links.then(|| without_links(&result)).flatten();
                let legacy = result_for_legacy(unlinked.as_ref().unwrap_or(&result));
                legacy
                    .or(unlinked)
                    .map(|result| response.with_body(&result))
            }
            _ => None,
        };
        let added = match &changed {
            Some(changed) => self.missing_members(&changed.body()),
            None => self.missing_members(&result),
        };
        let server = response.server_info();
        let response = changed.as_ref().unwrap_or(response);
        match server.filter(|_| self.revision.results_name_server) {
            Some(server) => with_server_info(response, server, added, &self.id),
            None => response.to_message(&self.id, added),
        }
    }

    /// The members that a result must have and this one lacks.
    fn missing_members(&self, result: &Json) -> Bytes {
        let is_cacheable = is_cacheable(&self.method);
        let required = self.revision.result_members.iter();
        let mut missing: SmallVec<[_; 4]> = required
            .filter(|required| is_cacheable || !required.of_cacheable)
            .collect();
        let mut is_complete = true;
        let mut members = result.members();
        while !missing.is_empty()
            && let Some(member) = members.next()
        {
            let is_it = |required: &&ResultMember| member.is(result, required.name);
            if let Some(place) = missing.iter().position(is_it)
                && missing.remove(place).name == RESULT_TYPE
            {
                let kind = result.value_at(member.value);
                is_complete = kind.is_some_and(|kind| kind.is_str("complete"));
            }
        }
        missing.retain(|required| is_complete || !required.of_cacheable);
        match &missing[..] {
            [] => Bytes::new(),
            [one] => Bytes::from_static(one.default.as_bytes()),
            all => {
                let defaults: Vec<_> = all.iter().map(|required| required.default).collect();
                Bytes::from(defaults.join(","))
            }
        }
    }

    /// The same error with the code that the revision has for it; `None` if that is the same.
    fn with_own_code(&self, response: &Response) -> Option<Response> {
        let given = response.error_code()?;
        let code = Some(self.revision.code(given)).filter(|code| *code != given)?;
        let error = response.error()?;
        let [place] = error.find(["code"]).ok()?;
        let mut edits = Edits::new(error.bytes().clone());
        edits.replace(place?, code.to_string());
        Some(response.with_body(&edits.finish_json()))
    }
}

/// A shortened result without links, which its text names, too.
fn without_links(result: &Json) -> Option<Json> {
    let content = result.get("content")?;
    let blocks: Vec<_> = content.items().collect();
    let is_other = |at: usize| {
        blocks
            .get(at)
            .is_some_and(|it| !it.says("type", "resource_link"))
    };
    Some(result.with(
        result.place("content")?,
        &retain_elements(&content, is_other),
    ))
}

/// The message, with the name of the server that answered unless the result has it (2026-07-28
/// basic/index, Per-response protocol fields: every result should).
fn with_server_info(response: &Response, server: &Json, added: Bytes, id: &Json) -> Chunks {
    let body = response.body();
    let named = ObjectBuilder::new()
        .member(meta::SERVER_INFO, server)
        .finish();
    match body.find(["_meta"]) {
        Ok([None]) => {
            let members = ObjectBuilder::new().member("_meta", &named).finish();
            let separator: &[u8] = if added.is_empty() { b"" } else { b"," };
            response.to_message(
                id,
                [&added[..], separator, members.inner_text()]
                    .concat()
                    .into(),
            )
        }
        Ok([Some(place)]) => {
            let own = body.slice(place.clone());
            if !own.is_object() || own.get(meta::SERVER_INFO).is_some() {
                return response.to_message(id, added);
            }
            let mut edits = Edits::new(body.bytes().clone());
            edits.insert_members(place.start, named.inner_text());
            response
                .with_body(&edits.finish_json())
                .to_message(id, added)
        }
        // The member occurs twice. Fanlight must not choose one.
        Err(_) => response.to_message(id, added),
    }
}

/// The list of tools for a client that mirrors parameters: without the tools that it must not see.
/// `None` if there are no such tools, as almost always. A cached list is checked only once.
fn mirrorable(response: &Response, result: &Json, limit: usize) -> Option<Response> {
    let look = || without_invalid_tools(result, limit).map(|valid| response.with_body(&valid));
    match response.derived_values() {
        Some(derived) => derived
            .get_or_insert_with(|| Mirrorable(look().map(Response::cached)))
            .0
            .clone(),
        None => look(),
    }
}

/// The result of [`mirrorable`], derived from a cached list.
struct Mirrorable(Option<Response>);

fn without_invalid_tools(result: &Json, limit: usize) -> Option<Json> {
    if !result.may_contain(word!("x-mcp-header")) {
        return None;
    }
    param_header::without_invalid_tools(result, limit, |_, name, found| {
        if let Err(reason) = found {
            let name: String = name.chars().filter(|c| !c.is_control()).take(80).collect();
            if is_news(&name) {
                tracing::warn!(tool = name, %reason, "tool left out of lists for modern HTTP clients");
            }
        }
    })
}

/// Whether this is the first warning about a tool. Clients may read lists often.
fn is_news(tool: &str) -> bool {
    /// The maximum number of tools to warn about.
    const WARNINGS: usize = 100;
    static WARNED: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());
    let mut warned = WARNED.lock();
    warned.len() < WARNINGS && warned.insert(tool.to_owned())
}

fn is_cacheable(method: &Method) -> bool {
    matches!(
        method,
        Method::Discover
            | Method::ListTools
            | Method::ListPrompts
            | Method::ListResources
            | Method::ListResourceTemplates
            | Method::ReadResource
    )
}

const OUTPUT_SCHEMA: &str = "outputSchema";
const STRUCTURED_CONTENT: &str = "structuredContent";
/// The list of tools without output schemas that do not describe objects; `None` if nothing
/// changes.
fn tools_for_legacy(list: &Json) -> Option<Json> {
    if !list.may_contain(word!(OUTPUT_SCHEMA)) {
        return None;
    }
    replace_elements(list, "tools", |tool| {
        let schema = tool.get(OUTPUT_SCHEMA)?;
        (!is_of_objects(&schema)).then(|| tool.without_members(&[OUTPUT_SCHEMA]))
    })
}

/// The result of a modern server's tool without structured content that is not an object; `None` if
/// nothing changes. A modern server is recognized by `resultType`, which 2026-07-28 requires in
/// every result.
fn result_for_legacy(result: &Json) -> Option<Json> {
    let is_foreign = result.may_contain(word!(STRUCTURED_CONTENT))
        // Leave a legacy server's violation of its own revision alone.
        && result.get(RESULT_TYPE).is_some()
        && result.get(STRUCTURED_CONTENT).is_some_and(|content| !content.is_object());
    is_foreign.then(|| result.without_members(&[STRUCTURED_CONTENT]))
}

fn is_of_objects(schema: &Json) -> bool {
    schema
        .get("type")
        .is_some_and(|kind| kind.as_str().as_deref() == Some("object"))
}

#[cfg(test)]
mod tests {
    use fanlight_protocol::Message;

    use super::*;

    fn render(revision: Revision, method: &str, text: &'static str) -> String {
        let Ok(Message::Response(response)) =
            Message::parse(Bytes::from_static(text.as_bytes()), 64)
        else {
            panic!("not a response")
        };
        let mirrors_params = revision.mirrored.map(|_| 64);
        let rendering = Rendering {
            id: Json::literal("1.0"),
            method: Method::from_name(method),
            revision,
            mirrors_params,
        };
        String::from_utf8(rendering.message(&response).into_bytes().to_vec()).unwrap()
    }

    #[test]
    fn modern_results_get_what_they_lack() {
        let modern = |method, text| render(Revision::V2026_07_28, method, text);
        assert_eq!(
            modern(
                "tools/call",
                r#"{"jsonrpc":"2.0","id":7,"result":{"content":[1E400]}}"#
            ),
            r#"{"jsonrpc":"2.0","id":1.0,"result":{"resultType":"complete","content":[1E400]}}"#
        );
        assert_eq!(
            modern(
                "tools/list",
                r#"{"result":{"ttlMs":9}, "jsonrpc":"2.0","id":7}"#
            ),
            r#"{"result":{"resultType":"complete","cacheScope":"private","ttlMs":9}, "jsonrpc":"2.0","id":1.0}"#
        );
        assert_eq!(
            modern(
                "resources/read",
                r#"{"jsonrpc":"2.0","id":7,"result":{"resultType":"complete"}}"#
            ),
            r#"{"jsonrpc":"2.0","id":1.0,"result":{"ttlMs":0,"cacheScope":"private","resultType":"complete"}}"#
        );
        let interim = r#"{"jsonrpc":"2.0","id":1.0,"result":{"resultType":"input_required"}}"#;
        assert_eq!(modern("resources/read", interim), interim);
    }

    #[test]
    fn tasks_pass_and_what_is_said_of_them_is_complete() {
        let created = r#"{"jsonrpc":"2.0","id":1.0,"result":{"resultType":"task","taskId":"t","ttlMs":null}}"#;
        assert_eq!(
            render(Revision::V2026_07_28, "tools/call", created),
            created
        );
        let task =
            r#"{"jsonrpc":"2.0","id":1.0,"result":{"taskId":"t","status":"input_required"}}"#;
        let complete = task.replace(r#"{"taskId""#, r#"{"resultType":"complete","taskId""#);
        for method in ["tasks/get", "tasks/cancel", "tasks/update"] {
            assert_eq!(
                render(Revision::V2026_07_28, method, task),
                complete,
                "{method}"
            );
            assert_eq!(
                render(Revision::V2025_11_25, method, task),
                task,
                "{method}"
            );
        }
    }

    #[test]
    fn tools_that_break_the_rules_of_mirroring_are_kept_from_those_who_mirror() {
        let text = r#"{"jsonrpc":"2.0","id":1.0,"result":{"resultType":"complete","ttlMs":1,"cacheScope":"public","tools":[{"name":"good"},{"name":"bad","inputSchema":{"properties":{"a":{"type":"number","x-mcp-header":"A"}}}}]}}"#;
        assert_eq!(render(Revision::V2025_11_25, "tools/list", text), text);
        let modern = render(Revision::V2026_07_28, "tools/list", text);
        assert!(
            modern.ends_with(r#""tools":[{"name":"good"}]}}"#),
            "{modern}"
        );
    }

    #[test]
    fn a_list_that_is_kept_is_looked_through_once_and_says_the_same() {
        let list = Json::literal(
            r#"{"ttlMs":1,"cacheScope":"public","tools":[{"name":"good"},{"name":"bad","inputSchema":{"properties":{"a":{"type":"number","x-mcp-header":"A"}}}}]}"#,
        );
        let kept = Response::from_result(&list).cached();
        let message = |response: &Response, revision: Revision| {
            let mirrors_params = revision.mirrored.map(|_| 64);
            let rendering = Rendering {
                id: Json::literal("1"),
                method: Method::ListTools,
                revision,
                mirrors_params,
            };
            rendering.message(response).into_bytes()
        };
        let once = message(&Response::from_result(&list), Revision::V2026_07_28);
        assert!(
            kept.derived_values()
                .is_some_and(|derived| derived.get::<Mirrorable>().is_none())
        );
        for _ in 0..2 {
            assert_eq!(message(&kept.clone(), Revision::V2026_07_28), once);
            assert!(
                kept.derived_values()
                    .and_then(|derived| derived.get::<Mirrorable>())
                    .is_some_and(|valid| valid.0.is_some())
            );
        }
        assert!(
            message(&kept, Revision::V2025_11_25).ends_with(&[list.bytes(), &b"}"[..]].concat())
        );
        // A changed body has no derived list.
        assert!(kept.with_body(&list).derived_values().is_none());
    }

    #[test]
    fn modern_results_name_the_legacy_server_that_sent_them() {
        let render = |revision: Revision, result: &'static str| {
            let server = std::sync::Arc::new(Json::literal(r#"{ "name":"s"}"#));
            let response = Response::from_result(&Json::literal(result)).from_server(server);
            let (id, method) = (Json::literal("1"), Method::CallTool);
            let message = Rendering {
                id,
                method,
                revision,
                mirrors_params: None,
            }
            .message(&response)
            .into_bytes();
            let text = String::from_utf8(message.to_vec()).unwrap();
            text.strip_prefix(r#"{"jsonrpc":"2.0","id":1,"result":"#)
                .unwrap()
                .strip_suffix('}')
                .unwrap()
                .to_owned()
        };
        let modern = |result| render(Revision::V2026_07_28, result);
        const INFO: &str = r#""io.modelcontextprotocol/serverInfo":{ "name":"s"}"#;
        assert_eq!(
            modern("{}"),
            format!(r#"{{"resultType":"complete","_meta":{{{INFO}}}}}"#)
        );
        let said = r#"{"resultType":"x","a":1.0}"#;
        assert_eq!(
            modern(said),
            format!(r#"{{"_meta":{{{INFO}}},{}"#, &said[1..])
        );
        let with_meta = r#"{"resultType":"x","_meta":{ "k":1E400}}"#;
        assert_eq!(
            modern(with_meta),
            format!(r#"{{"resultType":"x","_meta":{{{INFO}, "k":1E400}}}}"#)
        );
        let own =
            r#"{"resultType":"x","_meta":{"io.modelcontextprotocol/serverInfo":{"name":"own"}}}"#;
        assert_eq!(modern(own), own);
        for odd in [
            r#"{"resultType":"x","_meta":7}"#,
            r#"{"resultType":"x","_meta":{},"_meta":{}}"#,
        ] {
            assert_eq!(modern(odd), odd);
        }
        assert_eq!(render(Revision::V2025_11_25, with_meta), with_meta);
    }

    #[test]
    fn legacy_results_get_nothing() {
        let text = r#"{"jsonrpc":"2.0","id":1.0,"result":{"tools":[]}}"#;
        assert_eq!(render(Revision::V2025_11_25, "tools/list", text), text);
    }

    #[test]
    fn only_forbidden_codes_change_and_only_for_modern_clients() {
        let text = r#"{"jsonrpc":"2.0","id":1.0,"error":{"data":-32002, "code" : -32002,"message":"gone -32002"}}"#;
        assert_eq!(render(Revision::V2025_11_25, "resources/read", text), text);
        assert_eq!(
            render(Revision::V2026_07_28, "resources/read", text),
            text.replace(r#""code" : -32002"#, r#""code" : -32602"#)
        );
        let urls = r#"{"jsonrpc":"2.0","id":1.0,"error":{"code":-32042,"message":"m","data":{"elicitations":[ ]}}}"#;
        assert_eq!(render(Revision::V2025_11_25, "tools/call", urls), urls);
        assert_eq!(
            render(Revision::V2026_07_28, "tools/call", urls),
            urls.replace("-32042", "-31003")
        );
        let other = r#"{"jsonrpc":"2.0","id":1.0,"error":{"code":-32041,"message":"m"}}"#;
        assert_eq!(render(Revision::V2026_07_28, "tools/call", other), other);
    }

    #[test]
    fn descriptions_are_rendered_for_their_method() {
        let text = r#"{"jsonrpc":"2.0","id":7,"result":{"protocolVersion":"2025-11-25","capabilities":{},"serverInfo":{"name":"s","version":"1"}}}"#;
        let legacy = render(Revision::V2024_11_05, "initialize", text);
        assert_eq!(
            legacy,
            text.replace("2025-11-25", "2024-11-05")
                .replace("\"id\":7", "\"id\":1.0")
        );
        let modern = render(Revision::V2026_07_28, "server/discover", text);
        assert!(
            modern
                .contains(r#""result":{"resultType":"complete","ttlMs":0,"cacheScope":"private","supportedVersions""#),
            "{modern}"
        );
    }

    #[test]
    fn output_schemas_that_are_not_of_objects_are_left_out() {
        let of = |text: &'static str| {
            tools_for_legacy(&Json::literal(text)).map(|list| list.as_text().to_owned())
        };
        let list = r#"{ "tools":[{"name":"a","outputSchema":{"type":"object"}}, {"outputSchema" : {"type":"array"},"name":"b","x":1.0},{"name":"c"}],"n":1E2}"#;
        let expected = r#"{ "tools":[{"name":"a","outputSchema":{"type":"object"}}, {"name":"b","x":1.0},{"name":"c"}],"n":1E2}"#;
        assert_eq!(of(list).as_deref(), Some(expected));
        for foreign in [
            r#"{"oneOf":[{"type":"object"}]}"#,
            r#"{"type":["object","null"]}"#,
            r#"{"$ref":"a"}"#,
            "true",
            "null",
        ] {
            let list = Json::parse(
                format!(r#"{{"tools":[{{"name":"a","output\u0053chema":{foreign}}}]}}"#).into(),
                16,
            )
            .unwrap();
            assert_eq!(
                tools_for_legacy(&list).unwrap().as_text(),
                r#"{"tools":[{"name":"a"}]}"#,
                "{foreign}"
            );
        }
        assert_eq!(
            of(r#"{"tools":[{"name":"a","outputSchema":{"type":"obj\u0065ct"}}]}"#),
            None
        );
        assert_eq!(of(r#"{"tools":{"outputSchema":{}}}"#), None);
        assert_eq!(of(r#"{"x":"outputSchema"}"#), None);
    }

    #[test]
    fn structured_content_that_is_no_object_is_left_out() {
        let of = |text: &'static str| {
            result_for_legacy(&Json::literal(text)).map(|result| result.as_text().to_owned())
        };
        let result =
            r#"{"resultType":"complete","content":[1.0],"structuredContent":[1],"_meta":{ "a":1}}"#;
        let without = r#"{"resultType":"complete","content":[1.0],"_meta":{ "a":1}}"#;
        assert_eq!(of(result).as_deref(), Some(without));
        let escaped = r#"{"structured\u0043ontent":null,"resultType":"complete"}"#;
        assert_eq!(of(escaped).as_deref(), Some(r#"{"resultType":"complete"}"#));
        assert_eq!(
            of(r#"{"resultType":"complete","content":["structuredContent"]}"#),
            None
        );
        assert_eq!(
            of(r#"{"resultType":"complete","structuredContent":{ }}"#),
            None
        );
    }

    #[test]
    fn structured_content_of_a_legacy_server_passes() {
        assert!(
            result_for_legacy(&Json::literal(r#"{"content":[],"structuredContent":[1]}"#))
                .is_none()
        );
    }
}
