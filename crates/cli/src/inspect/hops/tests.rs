use super::*;
use crate::observe::spans;

const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
const SENT: Sent<'_> = Sent {
    trace: TRACE,
    meta: "aaaaaaaaaaaaaaaa",
    header: "bbbbbbbbbbbbbbbb",
    method: "tools/call",
};

fn recorded(server: &str, client: &str) -> Vec<Span> {
    let text = format!(
        r#"{{"resourceSpans":[{{"scopeSpans":[{{"spans":[
        {{"traceId":"{TRACE}","spanId":"1111111111111111","kind":2,"startTimeUnixNano":"1","endTimeUnixNano":"9",{server}
         "attributes":[{{"key":"mcp.method.name","value":{{"stringValue":"tools/call"}}}}]}}
        {client}]}}]}}]}}"#
    );
    spans::read(text.as_bytes()).unwrap()
}

fn client(attributes: &[(&str, &str)]) -> String {
    let attributes: Vec<String> = [
        ("mcp.method.name", "tools/call"),
        ("fanlight.backend.name", "files"),
    ]
    .iter()
    .chain(attributes)
    .map(|(key, value)| format!(r#"{{"key":"{key}","value":{{"stringValue":"{value}"}}}}"#))
    .collect();
    let attributes = attributes.join(",");
    format!(
        r#",{{"traceId":"{TRACE}","spanId":"2222222222222222","parentSpanId":"1111111111111111","kind":3,
            "startTimeUnixNano":"2","endTimeUnixNano":"8","attributes":[{attributes}]}}"#
    )
}

const BOTH: &str = r#""parentSpanId":"aaaaaaaaaaaaaaaa","links":[{"traceId":"4bf92f3577b34da6a3ce929d0e0e4736","spanId":"bbbbbbbbbbbbbbbb"}],"#;

fn answer(span: &str) -> String {
    format!(r#"{{"text":"00-{TRACE}-{span}-01"}}"#)
}

#[test]
fn judge_names_the_carriers_of_both_hops() {
    let spans = recorded(BOTH, &client(&[("network.transport", "pipe")]));
    let hops = judge(&SENT, &spans, &answer("2222222222222222"));
    assert_eq!(hops.len(), 2);
    assert_eq!(hops[0].carried, Ok(vec!["_meta", "headers"]));
    assert_eq!(
        (hops[1].from.as_str(), hops[1].to.as_str(), hops[1].duration),
        ("fanlight", "files", 6)
    );
    assert_eq!(hops[1].carried, Ok(vec!["_meta"]));
    assert!(
        hops[1].notes[1].contains("the server received it"),
        "{hops:?}"
    );
    let over_http = recorded(BOTH, &client(&[("network.transport", "tcp")]));
    let hops = judge(&SENT, &over_http, "{}");
    assert_eq!(hops[1].carried, Ok(vec!["_meta", "headers"]));
    assert!(hops[1].notes[1].contains("not confirmed"), "{hops:?}");
}

#[test]
fn judge_names_a_missing_carrier() {
    let spans = recorded(r#""parentSpanId":"aaaaaaaaaaaaaaaa","#, &client(&[]));
    let first = &judge(&SENT, &spans, "")[0];
    assert_eq!(first.carried, Ok(vec!["_meta"]));
    assert!(first.notes[1].contains("did not arrive"));
    let spans = recorded(r#""parentSpanId":"bbbbbbbbbbbbbbbb","#, &client(&[]));
    assert!(judge(&SENT, &spans, "")[0].carried.is_err());
}

#[test]
fn judge_finds_a_trace_that_was_not_propagated() {
    let none = judge(&SENT, &[], "");
    assert!(
        none.len() == 1
            && none[0]
                .carried
                .as_ref()
                .unwrap_err()
                .contains("trustInbound")
    );
    let nobody_asked = judge(&SENT, &recorded(BOTH, ""), "");
    assert!(nobody_asked[1].carried.is_err());
    let spans = recorded(BOTH, &client(&[]));
    let other = judge(&SENT, &spans, &answer("3333333333333333"));
    assert!(
        other[1]
            .carried
            .as_ref()
            .unwrap_err()
            .contains("3333333333333333")
    );
    let unreachable = recorded(BOTH, &client(&[("error.type", "connect_failed")]));
    assert!(judge(&SENT, &unreachable, "")[1].carried.is_err());
    let failed = recorded(BOTH, &client(&[("error.type", "tool_error")]));
    assert!(judge(&SENT, &failed, "")[1].carried.is_ok());
}

#[test]
fn judge_accepts_a_gateway_that_forwards_the_client_context() {
    let spans = recorded(BOTH, &client(&[]));
    let hops = judge(&SENT, &spans, &answer("aaaaaaaaaaaaaaaa"));
    assert!(
        hops[1].carried.is_ok() && hops[1].notes[1].contains("forwards the client's context"),
        "{hops:?}"
    );
}
