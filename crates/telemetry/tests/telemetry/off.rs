//! With tracing off, messages stay unchanged, and the context in the client's headers is forwarded.

use fanlight_protocol::{Json, Method};
use fanlight_telemetry::{
    Arrival, BackendInfo, Carriers, Departure, Endpoint, Headers, Moment, Outcome, Settings,
    Target, Telemetry,
};

const GIVEN: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

fn off() -> [Telemetry; 2] {
    let settings = Settings {
        tracing: false,
        ..Settings::default()
    };
    [Telemetry::off(), Telemetry::start(settings).unwrap().0]
}

fn sent(telemetry: &Telemetry, header: Option<&str>, params: &'static str) -> String {
    let backend = telemetry.backend(BackendInfo {
        name: "b".to_owned(),
        endpoint: Endpoint::Stdio,
    });
    let params = Json::literal(params);
    let meta = params.get("_meta");
    let headers = Headers {
        traceparent: header,
        tracestate: None,
        baggage: header.map(|_| "b=1"),
    };
    let arrival = Arrival {
        method: &Method::Ping,
        target: Target::None,
        id: None,
        received: Moment::now(),
        carriers: Carriers {
            meta: meta.as_ref(),
            headers,
            ..Carriers::default()
        },
    };
    let server = telemetry.server(&arrival);
    let departure = Departure {
        method: &Method::Ping,
        target: Target::None,
        id: None,
        attempt: 1,
    };
    let client = server.parent().client(&backend, &departure);
    let sent = client
        .propagation()
        .into_params(Some(&params))
        .unwrap()
        .to_string();
    client.finish(&Outcome::Finished);
    server.finish(&Outcome::Finished);
    assert!(telemetry.ring().is_none());
    sent
}

#[test]
fn messages_stay_unchanged() {
    for telemetry in off() {
        for params in [
            r#"{ "_meta" : {"traceparent":"bad"} }"#,
            r#"{"_meta":{}}"#,
            "{}",
        ] {
            assert_eq!(sent(&telemetry, None, params), params);
            assert_eq!(sent(&telemetry, Some("bad"), params), params);
        }
    }
}

#[test]
fn header_context_is_added_to_meta_without_one() {
    for telemetry in off() {
        let with = format!(r#"{{"_meta":{{"traceparent":"{GIVEN}","baggage":"b=1"}}}}"#);
        assert_eq!(sent(&telemetry, Some(GIVEN), r#"{"_meta":{}}"#), with);
        let has = r#"{"_meta":{"baggage":"c=2","traceparent":"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00"}}"#;
        assert_eq!(sent(&telemetry, Some(GIVEN), has), has);
    }
}

#[test]
fn durations_are_counted_without_tracing() {
    let [nothing, counting] = off();
    sent(&nothing, None, "{}");
    assert_eq!(nothing.prometheus(), "");
    sent(&counting, None, "{}");
    let text = counting.prometheus();
    let series = r#"mcp_server_operation_duration_seconds_count{mcp_method_name="ping"} 1"#;
    assert!(text.contains(series), "{text}");
    assert!(text.contains(r#"mcp_client_operation_duration_seconds_count{mcp_method_name="ping",network_transport="pipe",fanlight_backend_name="b"} 1"#), "{text}");
}
