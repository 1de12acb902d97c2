//! Several servers with the same extension: apps (`io.modelcontextprotocol/ui`) with equal URIs,
//! tools that apps call, and resources that only results name.

use fanlight_testkit::slicer;

use crate::clients::{Client, Exchange};
use crate::harness::Gateway;
use crate::raw_client::{modern_request, modern_request_with, post_modern};
use crate::scripted::{Backend, Era, Reply, Transport, config};

const APP: &str = "ui://board/main";
const UI: &str = "io.modelcontextprotocol/ui";

/// A server with one app, a tool that shows the app, and a tool only for the app. All of them name
/// the server.
async fn server(name: &'static str, era: Era, transport: Transport) -> Backend {
    let backend = Backend::start(era, transport).await;
    let meta = format!(r#""_meta":{{"ui":{{"resourceUri":"{APP}"}},"ui/resourceUri":"{APP}"}}"#);
    let tools = format!(
        r#"{{"name":"show","inputSchema":{{"type":"object"}},{meta}}},{{"name":"refresh","inputSchema":{{"type":"object"}}}}"#
    );
    backend.on("tools/list", backend.list("tools", &tools));
    let app = format!(r#"{{"uri":"{APP}","name":"board","mimeType":"text/html;profile=mcp-app"}}"#);
    backend.on("resources/list", backend.list("resources", &app));
    backend.on(
        "resources/templates/list",
        backend.list("resourceTemplates", ""),
    );
    let contents = format!(
        r#""contents":[{{"uri":"{APP}","mimeType":"text/html;profile=mcp-app","text":"app of {name}"}}]"#
    );
    backend.on("resources/read", Reply::result(era.cacheable(&contents)));
    let content = format!(
        r#""content":[{{"type":"text","text":"{name}"}},{{"type":"resource_link","uri":"made://1","name":"made"}},{{"type":"resource_link","uri":"{APP}","name":"app"}}]"#
    );
    backend.on("tools/call", Reply::result(era.complete(&content)));
    backend
}

/// The URIs under `path` of a tool's `_meta`.
fn app_of(list: &Exchange, tool: &str) -> [String; 2] {
    let tools = list.member("result.tools").to_owned();
    let tools = slicer::elements(&tools)
        .unwrap()
        .into_iter()
        .map(str::to_owned)
        .collect::<Vec<_>>();
    let definition = tools
        .iter()
        .find(|one| one.contains(&format!("\"{tool}\"")))
        .unwrap();
    let uri = |path: &[&str]| {
        slicer::member_at(definition, path)
            .unwrap()
            .trim_matches('"')
            .to_owned()
    };
    [
        uri(&["_meta", "ui", "resourceUri"]),
        uri(&["_meta", "ui/resourceUri"]),
    ]
}

#[tokio::test]
async fn each_tool_shows_its_own_app_and_each_app_calls_its_own_server() {
    for (one, other, client, front) in [
        (Era::Legacy, Era::Modern, Era::Legacy, Transport::Http),
        (Era::Modern, Era::Legacy, Era::Modern, Transport::Http),
        (Era::Modern, Era::Modern, Era::Legacy, Transport::Stdio),
    ] {
        let (a, b) = (
            server("a", one, Transport::Http).await,
            server("b", other, Transport::Http).await,
        );
        let text = config(&[a.entry("a"), b.entry("b")]);
        for name in ["a", "b"] {
            // One client for each app, since the origin of a call is the app that the client has
            // open.
            let mut client = Client::start(&text, client, front).await;
            let list = client.request("1", "tools/list", "", "").await;
            let [app, deprecated] = app_of(&list, &format!("{name}__show"));
            assert!(
                app == deprecated && app.starts_with("ui://"),
                "{app} {deprecated}"
            );
            assert_eq!(app == APP, name == "a", "{app}");
            let shown = client
                .request(
                    "2",
                    "tools/call",
                    &format!(r#""name":"{name}__show","arguments":{{}}"#),
                    "",
                )
                .await;
            assert!(
                shown.answer.contains(&format!(r#""uri":"{app}""#)),
                "{}",
                shown.answer
            );
            let read = client
                .request("3", "resources/read", &format!(r#""uri":"{app}""#), "")
                .await;
            assert!(
                read.answer.contains(&format!("app of {name}")),
                "{}",
                read.answer
            );
            assert!(
                read.answer.contains(&format!(r#""uri":"{app}""#)),
                "{}",
                read.answer
            );
            let refreshed = client
                .request("4", "tools/call", r#""name":"refresh","arguments":{}"#, "")
                .await;
            assert!(
                refreshed.answer.contains(&format!(r#""text":"{name}""#)),
                "{}",
                refreshed.answer
            );
            let made = client
                .request("5", "resources/read", r#""uri":"made://1""#, "")
                .await;
            assert!(
                made.answer.contains(&format!("app of {name}")),
                "{}",
                made.answer
            );
        }
    }
}

#[tokio::test]
async fn call_of_an_app_that_two_servers_could_have_lists_the_candidates() {
    let (a, b) = (
        server("a", Era::Modern, Transport::Http).await,
        server("b", Era::Modern, Transport::Http).await,
    );
    let mut client = Client::start(
        &config(&[a.entry("a"), b.entry("b")]),
        Era::Modern,
        Transport::Http,
    )
    .await;
    let refused = client
        .request("1", "tools/call", r#""name":"refresh","arguments":{}"#, "")
        .await;
    assert_eq!(refused.member("error.code"), "-32602");
    assert_eq!(
        refused.member("error.data.candidates"),
        r#"["a__refresh","b__refresh"]"#
    );
    assert!(a.received("tools/call").is_empty() && b.received("tools/call").is_empty());
}

#[tokio::test]
async fn aliases_are_equal_in_every_process_and_order() {
    let (a, b) = (
        server("a", Era::Modern, Transport::Http).await,
        server("b", Era::Modern, Transport::Http).await,
    );
    let mut apps = Vec::new();
    for servers in [
        [a.entry("a"), b.entry("My B")],
        [a.entry("a"), b.entry("My B")],
    ] {
        let gateway = Gateway::start(&config(&servers)).await;
        let mut list =
            post_modern(gateway.mcp, &modern_request("1", "resources/list", "", "")).await;
        let (_, list) = list.messages().await;
        let uris = slicer::elements(slicer::member(&list, "result.resources").unwrap()).unwrap();
        apps.push(
            slicer::member(uris[1], "uri")
                .unwrap()
                .trim_matches('"')
                .to_owned(),
        );
    }
    assert_eq!(apps[0], apps[1]);
    // A fresh gateway that has listed nothing resolves the alias, whatever the order of its
    // servers.
    let gateway = Gateway::start(&config(&[b.entry("My B"), a.entry("a")])).await;
    let read = modern_request(
        "1",
        "resources/read",
        &format!(r#""uri":"{}""#, apps[0]),
        "",
    );
    let (_, read) = post_modern(gateway.mcp, &read).await.messages().await;
    assert!(read.contains("app of b"), "{read}");
}

#[tokio::test]
async fn tools_that_servers_hide_from_clients_without_an_extension_are_listed() {
    const EXTENSION: &str = "com.example/hidden";
    let modern = Backend::start(Era::Modern, Transport::Http).await;
    let list = |names: &str| Era::Modern.cacheable(&format!(r#""tools":[{names}]"#));
    let tool = |name: &str| format!(r#"{{"name":"{name}","inputSchema":{{"type":"object"}}}}"#);
    let hidden = [(UI, tool("app")), (EXTENSION, tool("more"))];
    modern.on(
        "tools/list",
        Reply::compute(move |request| {
            let shown: Vec<_> = hidden
                .iter()
                .filter(|(extension, _)| request.text.contains(extension))
                .map(|(_, tool)| &**tool)
                .collect();
            list(&shown.join(","))
        }),
    );
    let legacy = Backend::start(Era::Legacy, Transport::Http).await;
    let gateway = Gateway::start(&config(&[modern.entry("modern"), legacy.entry("legacy")])).await;
    let names = async |capabilities: &str| {
        let request = modern_request_with(capabilities, "1", "tools/list", "", "");
        let (_, list) = post_modern(gateway.mcp, &request).await.messages().await;
        ["modern__app", "modern__more"].map(|name| list.contains(&format!("\"{name}\"")))
    };
    assert_eq!(names("{}").await, [true, false]);
    assert!(legacy.received("initialize")[0].text.contains(UI));
    let declaring = format!(r#"{{"extensions":{{"{EXTENSION}":{{"secret":"s3cret"}}}}}}"#);
    assert_eq!(
        names(&declaring).await,
        [true, true],
        "what one client declares is declared for all lists"
    );
    assert!(
        !modern
            .received("tools/list")
            .last()
            .unwrap()
            .text
            .contains("s3cret")
    );
}
