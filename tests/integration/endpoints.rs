//! Endpoints of the real binary: lists, instructions, notifications, standard input and output,
//! command line, spans.

use fanlight_testkit::slicer::member;

use crate::harness::{self, Gateway};
use crate::raw_client::{
    Connection, INITIALIZED, JSON_HEADERS, NEWEST_LEGACY, Response, StdioClient, initialize,
    legacy_request, modern_headers, modern_request,
};
use crate::scripted::{Backend, Era, Reply, Transport};

const ENDPOINTS: &str = r#""endpoints":{"/mcp":{},"/mcp/readers":{"servers":["a"],"tools":{"allow":["a__read"]},"instructions":"Read only."},"/mcp/b":{"servers":["b"]}}"#;

async fn servers() -> [Backend; 2] {
    let servers = [
        Backend::start(Era::Legacy, Transport::Http).await,
        Backend::start(Era::Modern, Transport::Http).await,
    ];
    for server in &servers {
        server.offers_tools(&["read", "write"]);
    }
    servers
}

fn config([a, b]: &[Backend; 2], endpoints: &str) -> String {
    format!(
        r#"{{{endpoints},"mcpServers":{{{},{}}}}}"#,
        a.entry("a"),
        b.entry("b")
    )
}

async fn post(gateway: &Gateway, path: &str, headers: &[(&str, &str)], body: &str) -> Response {
    let mut connection = Connection::open(gateway.mcp).await;
    let all = [&JSON_HEADERS[..], headers].concat();
    connection
        .request("POST", path, &all, body.as_bytes())
        .await;
    connection.response().await
}

async fn modern(gateway: &Gateway, path: &str, method: &str, params: &str) -> String {
    let body = modern_request("1", method, params, "");
    let headers = modern_headers(&body);
    let headers: Vec<_> = headers
        .iter()
        .map(|(name, value)| (name.as_str(), value.as_str()))
        .collect();
    post(gateway, path, &headers, &body)
        .await
        .messages()
        .await
        .1
}

/// The names of the tools in a list.
fn names(list: &str) -> Vec<&str> {
    list.split(r#""name":""#)
        .skip(1)
        .filter_map(|rest| rest.split('"').next())
        .filter(|name| name.contains("__"))
        .collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_endpoint_has_its_own_lists_and_instructions_in_both_eras() {
    let servers = servers().await;
    let gateway = Gateway::start(&config(&servers, ENDPOINTS)).await;
    for (path, expected) in [
        ("/mcp", &["a__read", "a__write", "b__read", "b__write"][..]),
        ("/mcp/readers", &["a__read"]),
        ("/mcp/b", &["b__read", "b__write"]),
    ] {
        let list = modern(&gateway, path, "tools/list", "").await;
        assert_eq!(names(&list), expected, "{path}");
        let described = modern(&gateway, path, "server/discover", "").await;
        assert_eq!(
            described.contains("Read only."),
            path == "/mcp/readers",
            "{described}"
        );

        let mut opened = post(&gateway, path, &[], &initialize(NEWEST_LEGACY, "{}")).await;
        let session = opened.header("mcp-session-id").unwrap().to_owned();
        let result = opened.messages().await.1;
        assert_eq!(
            result.contains(r#""instructions":"Read only.""#),
            path == "/mcp/readers",
            "{result}"
        );
        let headers = [
            ("Mcp-Session-Id", session.as_str()),
            ("MCP-Protocol-Version", NEWEST_LEGACY),
        ];
        assert_eq!(
            post(&gateway, path, &headers, INITIALIZED).await.status,
            202
        );
        let list = post(
            &gateway,
            path,
            &headers,
            &legacy_request("1", "tools/list", ""),
        )
        .await
        .messages()
        .await
        .1;
        assert_eq!(names(&list), expected, "{path}");
    }
    // These servers announce no changes, so each list request asks them. Four of the six endpoints
    // show each server.
    for server in &servers {
        assert_eq!(server.received("tools/list").len(), 4);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stdio_client_gets_the_endpoint_that_is_named() {
    let servers = servers().await;
    for (endpoint, expected) in [(None, 4), (Some("/mcp/readers"), 1), (Some("/mcp/b"), 2)] {
        let more: Vec<_> = endpoint
            .into_iter()
            .flat_map(|path| ["--endpoint", path])
            .collect();
        let mut gateway = Gateway::stdio_with(&config(&servers, ENDPOINTS), &more);
        let mut client = StdioClient::new(&mut gateway);
        client
            .send(&modern_request("1", "tools/list", "", ""))
            .await;
        let list = client.receive().await.unwrap();
        assert_eq!(names(&list).len(), expected, "{endpoint:?}: {list}");
    }
    let file = harness::TempFile::new("json", &config(&servers, ENDPOINTS));
    let output = harness::fanlight()
        .args(["stdio", "--endpoint", "/mcp/unknown", "--config"])
        .arg(file.path())
        .output()
        .await
        .unwrap();
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(
        !output.status.success() && error.contains("/mcp/unknown; did you mean /mcp?"),
        "{error}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn commands_look_through_an_endpoint() {
    let servers = servers().await;
    let file = harness::TempFile::new("json", &config(&servers, ENDPOINTS));
    let run = async |args: &[&str]| {
        let output = harness::fanlight()
            .args(args)
            .arg("--config")
            .arg(file.path())
            .output()
            .await
            .unwrap();
        let text = format!(
            "{}{}",
            String::from_utf8_lossy(&output.stdout),
            String::from_utf8_lossy(&output.stderr)
        );
        (output.status.success(), text)
    };
    let (_, list) = run(&["list", "tools", "--json", "--endpoint", "/mcp/readers"]).await;
    assert_eq!(names(&list), ["a__read"], "{list}");
    let (_, list) = run(&["list", "tools", "--json"]).await;
    assert_eq!(names(&list).len(), 4, "{list}");
    let (is_ok, text) = run(&["call", "a__write", "--endpoint", "/mcp/readers"]).await;
    assert!(!is_ok && text.contains("Unknown tool"), "{text}");
    let (is_ok, text) = run(&["diff", "a__read", "--endpoint", "/mcp/readers"]).await;
    assert!(is_ok && text.contains("no difference"), "{text}");
    let (is_ok, text) = run(&["diff", "b__read", "--endpoint", "/mcp/readers"]).await;
    assert!(!is_ok && text.contains("no tool is called"), "{text}");
    let (is_ok, text) = run(&["diff", "b__write"]).await;
    assert!(is_ok && text.contains("no difference"), "{text}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_server_at_an_endpoint_that_shows_all_of_it_stays_unchanged() {
    let server = Backend::start(Era::Modern, Transport::Http).await;
    server.offers_tools(&["read", "write"]);
    let endpoints =
        r#""endpoints":{"/mcp":{},"/all":{"servers":["a"]},"/some":{"tools":{"deny":["write"]}}}"#;
    let gateway = Gateway::start(&format!(
        r#"{{{endpoints},"mcpServers":{{{}}}}}"#,
        server.entry("a")
    ))
    .await;
    let whole = modern(&gateway, "/mcp", "tools/list", "").await;
    assert_eq!(modern(&gateway, "/all", "tools/list", "").await, whole);
    assert!(whole.contains(r#""name":"write""#), "{whole}");
    let some = modern(&gateway, "/some", "tools/list", "").await;
    assert!(
        some.contains(r#""name":"read""#) && !some.contains("write"),
        "{some}"
    );
    let refused = modern(
        &gateway,
        "/some",
        "tools/call",
        r#""name":"write","arguments":{}"#,
    )
    .await;
    assert_eq!(member(&refused, "error.code"), Some("-32602"), "{refused}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn changed_endpoints_take_effect_at_once() {
    let servers = servers().await;
    let gateway = Gateway::start(&config(&servers, ENDPOINTS)).await;
    let mut opened = post(
        &gateway,
        "/mcp/readers",
        &[],
        &initialize(NEWEST_LEGACY, "{}"),
    )
    .await;
    let session = opened.header("mcp-session-id").unwrap().to_owned();
    opened.text().await;
    let headers = [
        ("Mcp-Session-Id", session.as_str()),
        ("MCP-Protocol-Version", NEWEST_LEGACY),
    ];
    assert_eq!(
        post(&gateway, "/mcp/readers", &headers, INITIALIZED)
            .await
            .status,
        202
    );
    let list = legacy_request("1", "tools/list", "");
    assert_eq!(
        names(
            &post(&gateway, "/mcp/readers", &headers, &list)
                .await
                .messages()
                .await
                .1
        ),
        ["a__read"]
    );

    let changed = r#""endpoints":{"/mcp":{},"/mcp/readers":{"tools":{"allow":["*__write"]}}}"#;
    gateway.configure(&config(&servers, changed));
    let (status, report) = gateway.reload().await;
    assert_eq!(status, 200, "{report}");
    let listed = post(&gateway, "/mcp/readers", &headers, &list)
        .await
        .messages()
        .await
        .1;
    assert_eq!(names(&listed), ["a__write", "b__write"]);
    let call = legacy_request("2", "tools/call", r#""name":"a__read","arguments":{}"#);
    let refused = post(&gateway, "/mcp/readers", &headers, &call)
        .await
        .messages()
        .await
        .1;
    assert_eq!(member(&refused, "error.code"), Some("-32602"), "{refused}");
    assert_eq!(post(&gateway, "/mcp/b", &headers, &list).await.status, 404);

    gateway.configure(&config(&servers, r#""endpoints":{"/mcp":{}}"#));
    assert_eq!(gateway.reload().await.0, 200);
    assert_eq!(
        post(&gateway, "/mcp/readers", &headers, &list).await.status,
        404
    );
    // The session does not come back at a path that shows more.
    assert_eq!(post(&gateway, "/mcp", &headers, &list).await.status, 404);
}

/// Ten endpoints over ten servers keep entries and answers once per endpoint that shows them, and
/// nothing else of that size.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn endpoints_cost_the_memory_of_what_they_show() {
    const SERVERS: usize = 10;
    const TOOLS: usize = 50;
    let mut servers = Vec::new();
    for _ in 0..SERVERS {
        servers.push(Backend::start(Era::Modern, Transport::Http).await);
    }
    let description = "d".repeat(4 << 10);
    let tool = |number| {
        format!(
            r#"{{"name":"tool_{number}","description":"{description}","inputSchema":{{"type":"object"}}}}"#
        )
    };
    let tools = format!(
        r#""tools":[{}]"#,
        (0..TOOLS).map(tool).collect::<Vec<_>>().join(",")
    );
    for server in &servers {
        server.on("tools/list", Reply::result(Era::Modern.cacheable(&tools)));
    }
    let entries: Vec<_> = servers
        .iter()
        .enumerate()
        .map(|(number, server)| server.entry(&format!("s{number}")))
        .collect();
    let shown = u64::try_from(SERVERS * tools.len()).unwrap();
    let views = |count: usize| {
        let views =
            (0..count).map(|number| format!(r#""/mcp/{number}":{{"servers":["s{number}"]}}"#));
        let all = std::iter::once(r#""/mcp":{}"#.to_owned()).chain(views);
        format!(r#""endpoints":{{{}}}"#, all.collect::<Vec<_>>().join(","))
    };
    let mut taken = Vec::new();
    for count in [0, SERVERS] {
        let gateway = Gateway::start(&format!(
            r#"{{{},"x-limits":"workers=1","mcpServers":{{{}}}}}"#,
            views(count),
            entries.join(",")
        ))
        .await;
        let path = |number: usize| {
            if number < count {
                format!("/mcp/{number}")
            } else {
                "/mcp".to_owned()
            }
        };
        // Each list is read twice and is the same both times.
        for number in (0..=count).chain(0..=count) {
            let list = modern(&gateway, &path(number), "tools/list", "").await;
            assert_eq!(
                names(&list).len(),
                if number < count {
                    TOOLS
                } else {
                    SERVERS * TOOLS
                },
                "{number}"
            );
        }
        // Both cases send the same number of requests, so that connections and spans weigh equally.
        for _ in count..2 * SERVERS {
            modern(&gateway, "/mcp", "server/discover", "").await;
        }
        taken.push(gateway.memory());
    }
    let [one, ten] = taken[..] else {
        panic!("{taken:?}")
    };
    let more = ten.saturating_sub(one);
    assert!(
        more < 2 * shown,
        "{one} bytes for one, {more} more for ten, which show {shown} once more"
    );
}
