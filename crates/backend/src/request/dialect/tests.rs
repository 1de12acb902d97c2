//! The exact bytes of each era's requests and answers.

use std::sync::Arc;

use fanlight_protocol::Message;
use fanlight_protocol::meta::LogLevel;
use fanlight_protocol::param_header::annotations;
use fanlight_protocol::revision::Rules;

use super::*;
use fanlight_canonical::{Caller, Principal, SessionKey};

fn json(text: &str) -> Json {
    Json::parse(Bytes::copy_from_slice(text.as_bytes()), 64).unwrap()
}

fn dialect(revision: Revision) -> Dialect {
    Dialect::new(revision, json(r#"{"name":"F","version":"1"}"#))
}

fn context(progress: bool, level: Option<LogLevel>) -> Arc<CallContext> {
    let mut context = (*CallContext::internal()).clone();
    context.wants_progress = progress;
    context.log_level = level;
    Arc::new(context)
}

fn legacy(params: &str, progress: bool) -> String {
    let text = dialect(Revision::V2025_11_25).request_text(
        7,
        &Method::CallTool,
        Some(&json(params)),
        &context(progress, None),
    );
    params_of(&text)
}

fn modern(params: &str) -> String {
    let text = dialect(Revision::V2026_07_28).request_text(
        7,
        &Method::CallTool,
        Some(&json(params)),
        &context(false, None),
    );
    params_of(&text)
}

fn params_of(text: &Bytes) -> String {
    let text = Json::parse(text.clone(), 64).unwrap();
    text.get("params").unwrap().as_text().to_owned()
}

const OWN: &str = r#""io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":{"name":"F","version":"1"},"io.modelcontextprotocol/clientCapabilities":{}"#;

#[test]
fn without_per_hop_keys_legacy_params_are_untouched() {
    for params in [
        "{}",
        r#"{ "name" : "a",  "arguments":{"n":1.0, "x":1E400} }"#,
        r#"{"_meta":{}}"#,
        r#"{"_meta": { "traceparent":"00-a-b-01","a/b":[ ] }, "_met\u0061x":1}"#,
        r#"{"_meta":7}"#,
    ] {
        assert_eq!(legacy(params, false), params);
    }
}

#[test]
fn per_hop_keys_of_the_client_never_reach_a_backend() {
    let hop = r#""progressToken":"mine","io.modelcontextprotocol/logLevel":"debug","io.modelcontextprotocol/clientInfo":{"name":"c"}"#;
    assert_eq!(legacy(&format!(r#"{{"_meta":{{{hop}}}}}"#), false), "{}");
    assert_eq!(
        legacy(
            &format!(r#"{{"a":1.0, "_meta":{{{hop}}} , "b" :2}}"#),
            false
        ),
        r#"{"a":1.0, "b" :2}"#
    );
    assert_eq!(
        legacy(
            &format!(r#"{{"_meta":{{ "k":1e2,{hop}, "l":null}}}}"#),
            false
        ),
        r#"{"_meta":{ "k":1e2, "l":null}}"#
    );
    assert_eq!(legacy(r#"{"_meta":{"progress\u0054oken":1}}"#, false), "{}");
    assert_eq!(
        legacy(r#"{"_meta":{"k":1},"_meta":{"progressToken":9}}"#, false),
        r#"{"_meta":{"k":1}}"#
    );
}

#[test]
fn the_progress_token_is_the_request_id() {
    assert_eq!(legacy("{}", true), r#"{"_meta":{"progressToken":7}}"#);
    assert_eq!(legacy("{ }", true), r#"{"_meta":{"progressToken":7} }"#);
    assert_eq!(
        legacy(r#"{"_meta":{"progressToken":"x"},"n":1}"#, true),
        r#"{"_meta":{"progressToken":7},"n":1}"#
    );
    assert_eq!(
        legacy(r#"{"n":1.0}"#, true),
        r#"{"_meta":{"progressToken":7},"n":1.0}"#
    );
}

#[test]
fn modern_backends_get_what_their_revision_requires() {
    assert_eq!(modern("{}"), format!(r#"{{"_meta":{{{OWN}}}}}"#));
    assert_eq!(
        modern(r#"{"_meta":null}"#),
        format!(r#"{{"_meta":{{{OWN}}}}}"#)
    );
    assert_eq!(
        modern(r#"{"name":"t","_meta":{"k":1.0, "progressToken":3},"z":0e0}"#),
        format!(r#"{{"name":"t","_meta":{{"k":1.0,{OWN}}},"z":0e0}}"#)
    );
    let bare = dialect(Revision::V2026_07_28).request_text(
        1,
        &Method::Discover,
        None,
        &CallContext::internal(),
    );
    assert_eq!(
        bare,
        format!(
            r#"{{"jsonrpc":"2.0","id":1,"method":"server/discover","params":{{"_meta":{{{OWN}}}}}}}"#
        )
    );
}

#[test]
fn a_modern_backend_learns_what_the_client_said_of_itself() {
    let mut client = (*context(true, Some(LogLevel::Warning))).clone();
    client.client_info = Some(json(r#"{ "name":"c" , "version":"9","future":1.0}"#));
    client.capabilities = json(r#"{"elicitation":{ }}"#);
    let text = dialect(Revision::V2026_07_28).request_text(5, &Method::ListTools, None, &client);
    assert_eq!(
        params_of(&text),
        concat!(
            r#"{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","#,
            r#""io.modelcontextprotocol/clientInfo":{ "name":"c" , "version":"9","future":1.0},"#,
            r#""io.modelcontextprotocol/clientCapabilities":{"elicitation":{ }},"#,
            r#""io.modelcontextprotocol/logLevel":"warning","progressToken":5}}"#
        )
    );
}

#[test]
fn a_legacy_request_without_params_stays_without() {
    let text = dialect(Revision::V2025_06_18).request_text(
        3,
        &Method::ListTools,
        None,
        &CallContext::internal(),
    );
    assert_eq!(text, r#"{"jsonrpc":"2.0","id":3,"method":"tools/list"}"#);
    let odd = Method::from_name("x/\"y");
    let text = dialect(Revision::V2025_06_18).request_text(3, &odd, None, &CallContext::internal());
    assert_eq!(text, r#"{"jsonrpc":"2.0","id":3,"method":"x/\"y"}"#);
}

#[test]
fn modern_headers_repeat_the_body() {
    let (legacy_dialect, dialect) = (
        dialect(Revision::V2025_11_25),
        dialect(Revision::V2026_07_28),
    );
    let schema = json(
        r#"{"properties":{"r":{"type":"string","x-mcp-header":"Region"},"n":{"type":"integer","x-mcp-header":"N"}}}"#,
    );
    let params = json(r#"{"name":"wört","arguments":{"r":" padded","n":null}}"#);
    let mirrored: Vec<_> = annotations(&schema, 64)
        .unwrap()
        .into_iter()
        .filter_map(MirroredParam::new)
        .collect();
    let mirror = |method: &str, params: &Json, mirrored: &[MirroredParam]| {
        let method = Method::from_name(method);
        let name = request_subject(&method, Some(params));
        dialect
            .mirror(&method, name.as_ref(), Some(params), mirrored)
            .unwrap()
    };
    let call = mirror("tools/call", &params, &mirrored);
    assert_eq!(
        (call.revision, call.method),
        ("2026-07-28", HeaderValue::from_static("tools/call"))
    );
    assert_eq!(call.headers.len(), 2);
    assert_eq!(call.headers[0].0, "mcp-name");
    assert_eq!(call.headers[0].1, "=?base64?d8O2cnQ=?=");
    assert_eq!(
        (call.headers[1].0.as_str(), call.headers[1].1.as_bytes()),
        ("mcp-param-region", &b"=?base64?IHBhZGRlZA==?="[..])
    );
    let read = mirror("resources/read", &json(r#"{"uri":"file:///a"}"#), &[]);
    assert_eq!(read.headers[0].1, "file:///a");
    let task = mirror("tasks/get", &json(r#"{"taskId":"t 1"}"#), &[]);
    assert_eq!(
        (task.method, task.headers[0].1.clone()),
        (
            HeaderValue::from_static("tasks/get"),
            HeaderValue::from_static("t 1")
        )
    );
    assert_eq!(
        mirror("tools/list", &json(r#"{"name":"x"}"#), &[]).headers[..],
        []
    );
    assert_eq!(
        mirror("x/\u{e9}", &json("{}"), &[]).method,
        "=?base64?eC/DqQ==?="
    );
    assert_eq!(
        legacy_dialect.mirror(&Method::CallTool, None, Some(&params), &[]),
        None
    );
}

#[test]
fn made_up_revision_is_a_row() {
    static RULES: Rules = Rules {
        name: "2099-01-01",
        renamed: &[("tools/call", "tools/run")],
        mirrored: Some(&[MirroredMember {
            header: "mcp-purpose",
            shown: "Mcp-Purpose",
            members: &[("tools/run", "purpose")],
        }]),
        ..*Revision::NEWEST_MODERN.0
    };
    let dialect = dialect(Revision(&RULES));
    let params = json(r#"{"name":"t","purpose":"p"}"#);
    let context = CallContext::internal();
    let text = dialect.request_text(7, &Method::CallTool, Some(&params), &context);
    let start = br#"{"jsonrpc":"2.0","id":7,"method":"tools/run","params":{"#;
    assert!(text.starts_with(start), "{text:?}");
    let own = OWN.replace("2026-07-28", "2099-01-01");
    assert!(params_of(&text).contains(&own), "{text:?}");
    let name = request_subject(&Method::CallTool, Some(&params));
    let mirror = dialect.mirror(&Method::CallTool, name.as_ref(), Some(&params), &[]);
    let mirror = mirror.unwrap();
    assert_eq!(
        (mirror.revision, mirror.method),
        ("2099-01-01", HeaderValue::from_static("tools/run"))
    );
    let purpose = HeaderName::from_static("mcp-purpose");
    assert_eq!(
        mirror.headers[..],
        [(purpose, HeaderValue::from_static("p"))]
    );
}

#[test]
fn only_the_code_of_a_missing_resource_changes() {
    let canonical = |revision, method: &Method, body: &str| {
        let text = format!(r#"{{"jsonrpc":"2.0","id":7,{body}}}"#);
        let Ok(Message::Response(response)) = Message::parse(text.into(), 64) else {
            panic!("not a response")
        };
        dialect(revision)
            .canonical(method, response)
            .body()
            .as_text()
            .to_owned()
    };
    let (old, new) = (Revision::V2025_11_25, Revision::V2026_07_28);
    let error = r#""error":{ "message":"no \u0041", "code" : -32602,"data":{"uri":"x"}}"#;
    assert_eq!(
        canonical(new, &Method::ReadResource, error),
        r#"{ "message":"no \u0041", "code" : -32002,"data":{"uri":"x"}}"#
    );
    let kept = r#"{ "message":"no \u0041", "code" : -32602,"data":{"uri":"x"}}"#;
    assert_eq!(canonical(new, &Method::CallTool, error), kept);
    assert_eq!(canonical(old, &Method::ReadResource, error), kept);
    assert_eq!(
        canonical(new, &Method::ReadResource, r#""error":{"code":-32602.0}"#),
        r#"{"code":-32602.0}"#
    );
    assert_eq!(
        canonical(new, &Method::ReadResource, r#""result":{"code":-32602}"#),
        r#"{"code":-32602}"#
    );
}

#[test]
fn only_modern_backends_are_spared_what_they_do_not_have() {
    for method in [Method::Ping, Method::SetLogLevel] {
        assert!(
            dialect(Revision::V2026_07_28)
                .local_answer(&method)
                .is_some()
        );
        assert!(
            dialect(Revision::V2025_11_25)
                .local_answer(&method)
                .is_none()
        );
    }
    assert!(
        dialect(Revision::V2026_07_28)
            .local_answer(&Method::ListTools)
            .is_none()
    );
}

#[test]
fn notifications_reach_who_asked_for_them() {
    let notification =
        |text: &str| match Message::parse(Bytes::copy_from_slice(text.as_bytes()), 64) {
            Ok(Message::Notification(notification)) => notification,
            other => panic!("{other:?}"),
        };
    let progress = notification(
        r#"{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":7}}"#,
    );
    assert!(concerns(&progress, 7, &context(true, None)));
    assert!(!concerns(&progress, 8, &context(true, None)));
    assert!(!concerns(&progress, 7, &context(false, None)));
    let log = notification(
        r#"{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info"}}"#,
    );
    assert!(concerns(&log, 7, &context(false, None)));
    assert!(concerns(&log, 7, &context(false, Some(LogLevel::Info))));
    assert!(!concerns(&log, 7, &context(false, Some(LogLevel::Notice))));
}

#[test]
fn a_retry_of_a_call_that_is_gone_is_not_run_anew() {
    let refused = |revision, method: &Method, params: &'static str, session: Option<u64>| {
        let context = CallContext {
            caller: caller(session),
            ..(*CallContext::internal()).clone()
        };
        let call = Call::new(
            method.clone(),
            Some(Json::literal(params)),
            Arc::new(context),
        );
        dialect(revision)
            .lost_conversation(&call)
            .and_then(|answer| answer.error_code())
    };
    let retry = r#"{"name":"t","requestState":"s"}"#;
    let (legacy, modern) = (Revision::V2025_11_25, Revision::V2026_07_28);
    assert_eq!(
        refused(legacy, &Method::CallTool, retry, None),
        Some(-32602)
    );
    assert_eq!(refused(modern, &Method::CallTool, retry, None), None);
    assert_eq!(refused(legacy, &Method::CallTool, retry, Some(1)), None);
    assert_eq!(
        refused(legacy, &Method::CallTool, r#"{"name":"t"}"#, None),
        None
    );
    assert_eq!(refused(legacy, &Method::ListTools, retry, None), None);
}

fn caller(session: Option<u64>) -> Caller {
    let principal = Principal::anonymous();
    match session {
        Some(session) => Caller::session_of(principal, SessionKey(session)),
        None => Caller::request_of(principal),
    }
}
