//! Tools of a server with the tasks extension, which lacks `execution.taskSupport`, in the lists of
//! clients of each revision.

use fanlight_tests::slicer::{elements, member, plain_string};

use super::{ask, modern_server};
use crate::harness::Gateway;
use crate::raw_client::{LegacySession, modern_request, post_modern};
use crate::scripted::{Backend, Era, Reply, Transport, config};

const TOOLS: &str = r#"{ "name":"t","inputSchema":{"type":"object"},"x":1E400},{"name":"never","inputSchema":{"type":"object"},"execution":{"taskSupport":"forbidden"}}"#;

/// The support that each tool states, by name.
fn supports(list: &str) -> Vec<(String, Option<String>)> {
    let tools = elements(member(list, "tools").unwrap()).unwrap();
    let support = |tool: &&str| {
        let name = member(tool, "name")
            .and_then(plain_string)
            .unwrap()
            .to_owned();
        (
            name,
            member(tool, "execution.taskSupport").map(str::to_owned),
        )
    };
    tools.iter().map(support).collect()
}

fn expected(rows: &[(&str, Option<&str>)]) -> Vec<(String, Option<String>)> {
    rows.iter()
        .map(|(name, support)| ((*name).to_owned(), support.map(str::to_owned)))
        .collect()
}

async fn list_modern(gateway: &Gateway) -> String {
    let (_, answer) = post_modern(gateway.mcp, &modern_request("1", "tools/list", "", ""))
        .await
        .messages()
        .await;
    member(&answer, "result").unwrap().to_owned()
}

#[tokio::test]
async fn tools_of_an_extension_server_take_tasks_of_2025_11_25_clients_only() {
    const OPTIONAL: Option<&str> = Some(r#""optional""#);
    const FORBIDDEN: Option<&str> = Some(r#""forbidden""#);
    let server = modern_server("task", Transport::Http).await;
    server.on("tools/list", server.list("tools", TOOLS));
    let gateway = Gateway::start(&config(&[server.entry("a")])).await;
    let session = LegacySession::open(gateway.mcp).await;
    let call = "capabilities.tasks.requests.tools.call";
    assert_eq!(
        member(&session.initialize_result, call),
        Some("{}"),
        "else clients must not ask for tasks"
    );
    let list = ask(&session, "tools/list", "").await;
    assert_eq!(
        supports(&list),
        expected(&[("t", OPTIONAL), ("never", FORBIDDEN)]),
        "{list}"
    );
    assert!(list.contains(r#""x":1E400"#), "{list}");
    // The offered support works.
    let made = ask(&session, "tools/call", r#""name":"t","task":{}"#).await;
    assert_eq!(member(&made, "task.taskId"), Some(r#""task""#), "{made}");

    let earlier = LegacySession::open_as(gateway.mcp, "2025-06-18").await;
    let plain = expected(&[("t", None), ("never", FORBIDDEN)]);
    assert_eq!(supports(&ask(&earlier, "tools/list", "").await), plain);
    assert_eq!(supports(&list_modern(&gateway).await), plain);
}

#[tokio::test]
async fn merged_list_offers_tasks_for_the_tools_of_extension_servers_alone() {
    let (server, plain) = (
        modern_server("task", Transport::Http).await,
        Backend::start(Era::Modern, Transport::Http).await,
    );
    plain.offers_tools(&["u"]);
    let gateway = Gateway::start(&config(&[server.entry("a"), plain.entry("b")])).await;
    let session = LegacySession::open(gateway.mcp).await;
    let none = expected(&[("a__t", None), ("b__u", None)]);
    for _ in 0..2 {
        // The pages of a snapshot are cached per kind of client.
        assert_eq!(supports(&list_modern(&gateway).await), none);
        let list = ask(&session, "tools/list", "").await;
        assert_eq!(
            supports(&list),
            expected(&[("a__t", Some(r#""optional""#)), ("b__u", None)]),
            "{list}"
        );
    }
}

/// A legacy session offers only what the server declares in that era; the extension belongs to
/// modern requests.
#[tokio::test]
async fn server_with_tasks_in_one_era_offers_none_in_the_other() {
    let server = modern_server("task", Transport::Http).await;
    let without_tasks = r#"{"protocolVersion":"2025-11-25","capabilities":{"tools":{},"extensions":{"io.modelcontextprotocol/tasks":{}}},"serverInfo":{"name":"s","version":"1"}}"#;
    server.on("initialize", Reply::result(without_tasks));
    let gateway = Gateway::start(&config(&[server.entry("a")])).await;
    let session = LegacySession::open(gateway.mcp).await;
    assert_eq!(
        member(&session.initialize_result, "capabilities.tasks"),
        None
    );
    assert_eq!(
        supports(&ask(&session, "tools/list", "").await),
        expected(&[("t", None)])
    );
}
