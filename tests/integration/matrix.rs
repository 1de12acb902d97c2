//! Independent peers: rmcp clients through the gateway to rmcp servers, for every {client era} ×
//! {client transport} × {server era} × {server transport} × {one, several servers}.

use fanlight_tests::rmcp_server::{Era, RmcpServer};
use rmcp::model::{
    CallToolRequestParams, GetPromptRequestParams, ProtocolVersion, ReadResourceRequestParams,
};
use serde_json::{Value, json};

use crate::harness::{Gateway, within};
use crate::rmcp_peers::{Client, Server, answers_to, call, http_client, stdio_client};
use crate::scripted::{Transport, config};

macro_rules! matrix {
    ($($(#[$nightly:meta])? $name:ident: $client:ident over $front:ident to $era:ident over $back:ident;)*) => {
        $(mod $name {
            use super::*;

            #[tokio::test]
            $(#[$nightly])?
            async fn one_backend() {
                let only = Server::start("alpha", Era::$era, Transport::$back).await;
                exercise(&[("alpha", "")], &config(&[only.entry.as_str()]), Era::$client == Era::Modern, Transport::$front).await;
            }

            /// The second server is of the other era and uses the other transport.
            #[tokio::test]
            $(#[$nightly])?
            async fn several_backends() {
                let first = Server::start("alpha", Era::$era, Transport::$back).await;
                let second = Server::start("beta", other_era(Era::$era), other_transport(Transport::$back)).await;
                let third = Server::start("gamma", Era::Both, Transport::$back).await;
                let config = config(&[first.entry.as_str(), second.entry.as_str(), third.entry.as_str()]);
                let names = [("alpha", "alpha__"), ("beta", "beta__"), ("gamma", "gamma__")];
                exercise(&names, &config, Era::$client == Era::Modern, Transport::$front).await;
            }
        })*
    };
}

for_all_combinations!(matrix);

fn other_era(era: Era) -> Era {
    if era == Era::Legacy {
        Era::Modern
    } else {
        Era::Legacy
    }
}

fn other_transport(transport: Transport) -> Transport {
    if transport == Transport::Http {
        Transport::Stdio
    } else {
        Transport::Http
    }
}

/// Exercises every feature of a client with every server, given as (label, prefix of its names).
async fn exercise(backends: &[(&str, &str)], config_text: &str, modern: bool, front: Transport) {
    match front {
        Transport::Http => {
            let gateway = Gateway::start(config_text).await;
            let client = http_client(&gateway.url(), modern).await;
            exercise_client(backends, &client, modern).await;
            within("the client to end", client.cancel()).await.unwrap();
        }
        Transport::Stdio => {
            let peer = stdio_client(config_text, modern).await;
            exercise_client(backends, &peer.client, modern).await;
            within("the client to end", peer.client.cancel())
                .await
                .unwrap();
        }
    }
}

async fn exercise_client(backends: &[(&str, &str)], client: &Client, modern: bool) {
    introduces_itself(backends, client, modern);
    lists_everything(backends, client).await;
    for (label, prefix) in backends {
        calls_tools(client, label, prefix).await;
        answers_server_requests(client, label, prefix).await;
        reads_resources(client, label).await;
        gets_prompts(client, label, prefix).await;
    }
    let unknown = CallToolRequestParams::new("no-such-tool");
    within("an error", client.call_tool(unknown))
        .await
        .expect_err("an unknown tool is an error");
}

fn introduces_itself(backends: &[(&str, &str)], client: &Client, modern: bool) {
    let info = client.peer_info().expect("the server info");
    assert_eq!(
        info.protocol_version == ProtocolVersion::V_2026_07_28,
        modern
    );
    assert!(info.capabilities.tools.is_some() && info.capabilities.completions.is_some());
    let instructions = info.instructions.as_deref().expect("instructions");
    for (label, _) in backends {
        assert!(
            instructions.contains(&format!("Instructions of {label}")),
            "{instructions}"
        );
    }
    if let [(label, _)] = backends {
        assert_eq!(instructions, format!("Instructions of {label}"));
        let name = info.server_info.as_ref().map(|server| server.name.as_str());
        assert_eq!(name, Some(format!("rmcp-{label}").as_str()));
    }
}

async fn lists_everything(backends: &[(&str, &str)], client: &Client) {
    let expected = |names: &[&str]| -> Vec<String> {
        backends
            .iter()
            .flat_map(|(_, prefix)| names.iter().map(move |name| format!("{prefix}{name}")))
            .collect()
    };
    let tools = within("tools", client.list_all_tools()).await.unwrap();
    let names: Vec<String> = tools.iter().map(|tool| tool.name.to_string()).collect();
    assert_eq!(names, expected(&["echo", "refuse", "count", "ask"]));
    for (tool, (label, _)) in tools.iter().step_by(4).zip(backends) {
        let tool = serde_json::to_value(tool).unwrap();
        assert_eq!(tool["title"], "Echo");
        assert_eq!(tool["annotations"], json!({ "readOnlyHint": true }));
        assert_eq!(
            tool["outputSchema"]["required"],
            json!(["label", "arguments"])
        );
        assert_eq!(tool["_meta"]["example.test/label"], *label);
    }
    let prompts = within("prompts", client.list_all_prompts()).await.unwrap();
    let names: Vec<String> = prompts.into_iter().map(|prompt| prompt.name).collect();
    assert_eq!(names, expected(&["greet"]));
    let resources = within("resources", client.list_all_resources())
        .await
        .unwrap();
    let uris: Vec<String> = resources.into_iter().map(|resource| resource.uri).collect();
    assert_eq!(
        uris,
        backends
            .iter()
            .map(|(label, _)| RmcpServer::resource_uri(label))
            .collect::<Vec<_>>()
    );
    let templates = within("templates", client.list_all_resource_templates())
        .await
        .unwrap();
    assert_eq!(templates.len(), backends.len());
}

async fn calls_tools(client: &Client, label: &str, prefix: &str) {
    let arguments = json!({ "value": { "deep": [1, "two", null] } });
    let echoed = call(client, &format!("{prefix}echo"), &arguments).await;
    assert_eq!(
        echoed.structured_content,
        Some(json!({ "label": label, "arguments": arguments }))
    );
    assert_eq!(echoed.is_error, Some(false));
    let meta = serde_json::to_value(&echoed.meta).unwrap();
    assert_eq!(meta["example.test/label"], label);

    let refused = call(client, &format!("{prefix}refuse"), &json!({})).await;
    assert_eq!(refused.is_error, Some(true));
    assert_eq!(refused.structured_content, None);

    // The SDK requests progress for every request.
    let mut progress = client.service().progress.subscribe();
    let before = progress.borrow().len();
    call(client, &format!("{prefix}count"), &json!({})).await;
    let all = within("progress", progress.wait_for(|all| all.len() >= before + 3))
        .await
        .unwrap();
    assert_eq!(all[before..], [1.0, 2.0, 3.0]);
}

/// Elicitation, sampling and roots during a call, in the forms of the client's and the server's
/// era.
async fn answers_server_requests(client: &Client, label: &str, prefix: &str) {
    let answered = call(client, &format!("{prefix}ask"), &json!({})).await;
    assert_eq!(
        answered.structured_content,
        Some(json!({ "label": label, "answers": answers_to(label) }))
    );
}

async fn reads_resources(client: &Client, label: &str) {
    let uri = RmcpServer::resource_uri(label);
    let read = within(
        "a resource",
        client.read_resource(ReadResourceRequestParams::new(uri.clone())),
    )
    .await
    .unwrap();
    let read = serde_json::to_value(read).unwrap();
    assert_eq!(
        read["contents"][0]["text"],
        format!("The read-me of {label}")
    );
    assert_eq!(read["contents"][0]["uri"], uri);
    let missing = ReadResourceRequestParams::new(format!("test://{label}/missing"));
    within("an error", client.read_resource(missing))
        .await
        .expect_err("an unknown resource is an error");
}

async fn gets_prompts(client: &Client, label: &str, prefix: &str) {
    let mut request = GetPromptRequestParams::new(format!("{prefix}greet"));
    request.arguments = json!({ "who": "Ada" }).as_object().cloned();
    let got: Value = serde_json::to_value(
        within("a prompt", client.get_prompt(request))
            .await
            .unwrap(),
    )
    .unwrap();
    assert_eq!(
        got["messages"][0]["content"]["text"],
        format!("{label} greets \"Ada\"")
    );
    let prompt = format!("{prefix}greet");
    let completion = client.complete_prompt_argument(prompt, "who", "x-", None);
    let completion = within("a completion", completion).await.unwrap();
    assert_eq!(completion.values, [format!("x-{label}")]);
}
