//! The first run without a configuration: one endpoint in front of the two embedded servers, one of
//! each era.

use fanlight_tests::slicer::{elements, member};

use crate::harness::Gateway;
use crate::raw_client::{LegacySession, legacy_request, modern_request, post_modern};

/// The merged name of a demo tool; the gateway chooses the prefix.
fn merged_name<'a>(list: &'a str, tool: &str) -> &'a str {
    let tools = elements(member(list, "result.tools").expect("tools")).unwrap();
    let mut names = tools
        .iter()
        .map(|entry| member(entry, "name").unwrap().trim_matches('"'));
    names
        .find(|name| name.ends_with(tool))
        .unwrap_or_else(|| panic!("no {tool} in {list}"))
}

#[tokio::test]
async fn both_demo_servers_answer_clients_of_both_eras() {
    let gateway = Gateway::demo().await;
    let list = post_modern(gateway.mcp, &modern_request("1", "tools/list", "", ""))
        .await
        .text()
        .await;
    let session = LegacySession::open(gateway.mcp).await;
    for (tool, arguments, part) in [
        ("search_books", r#"{"query":"emma"}"#, r#""total":1"#),
        (
            "convert_units",
            r#"{"value":1,"from":"km","to":"m"}"#,
            r#""value":1000.0"#,
        ),
        ("roll_dice", r#"{"count":1,"seed":1}"#, r#""seed":1"#),
    ] {
        let params = format!(
            r#""name":"{}","arguments":{arguments}"#,
            merged_name(&list, tool)
        );
        let modern = post_modern(gateway.mcp, &modern_request("1", "tools/call", &params, ""))
            .await
            .text()
            .await;
        let legacy = session
            .post(&legacy_request("1", "tools/call", &params))
            .await
            .text()
            .await;
        for answer in [&modern, &legacy] {
            let structured =
                member(answer, "result.structuredContent").unwrap_or_else(|| panic!("{answer}"));
            assert!(structured.contains(part), "{tool}: {structured}");
        }
        assert_eq!(member(&modern, "result.resultType"), Some(r#""complete""#));
    }
}

#[tokio::test]
async fn slow_count_shows_progress() {
    let gateway = Gateway::demo().await;
    let list = post_modern(gateway.mcp, &modern_request("1", "tools/list", "", ""))
        .await
        .text()
        .await;
    let params = format!(
        r#""name":"{}","arguments":{{"to":3,"delay_ms":0}}"#,
        merged_name(&list, "slow_count")
    );
    let request = modern_request("1", "tools/call", &params, r#""progressToken":"p""#);
    let (before, answer) = post_modern(gateway.mcp, &request).await.messages().await;
    let steps: Vec<_> = before
        .iter()
        .map(|message| member(message, "params.progress").unwrap())
        .collect();
    assert_eq!(steps, ["1", "2", "3"]);
    assert!(answer.contains("Counted to 3"), "{answer}");
}

#[tokio::test]
async fn first_run_prints_the_next_steps() {
    let gateway = Gateway::demo().await;
    gateway.log.line_with("mcpServers").await;
    gateway.log.line_with(&gateway.url()).await;
}
