//! `fanlight lean suggest`: the tools that clients call, from the audit log.

use fanlight_gateway::Gateway;
use fanlight_gateway::catalogue::{ListKind, is_of_app};
use fanlight_protocol::json::estimated_tokens;
use fanlight_protocol::visible::plain;
use fanlight_record::ledger::{Calls, calls};
use serde_json::{Value, json};

use crate::audit_command::records;
use crate::cli::{CommonArgs, LeanSuggestArgs};
use crate::endpoints::find;
use crate::inspect::{List, fetch_list};
use crate::observe::Admin;
use crate::{Result, configuration, out, say};

/// Prints the suggestion for the endpoint of a running gateway; false if none runs.
pub async fn suggest_for_running(args: &LeanSuggestArgs, common: &CommonArgs) -> Result<bool> {
    let Some(admin) = Admin::for_command(&args.admin, common).await? else {
        return Ok(false);
    };
    let tools = fetch_list(&admin, ListKind::Tools, Some(&args.endpoint)).await?;
    print(args, common, &tools).map(|()| true)
}

/// Prints the suggestion for an endpoint of this gateway.
pub async fn suggest(gateway: &Gateway, args: &LeanSuggestArgs, common: &CommonArgs) -> Result {
    let endpoint = find(gateway, &args.endpoint)?;
    let tools = List::from_view(&gateway.catalogue(ListKind::Tools, &endpoint).await);
    print(args, common, &tools)
}

fn print(args: &LeanSuggestArgs, common: &CommonArgs, tools: &List) -> Result {
    let records = records(&configuration::load(common, false)?.config)?;
    let calls = calls(&records)?;
    let found = suggestion(&args.endpoint, tools, &calls);
    if args.json {
        out::pretty(&found);
        return Ok(());
    }
    say!(
        "The audit log begins {}. These tools would have served all calls at {} since then:\n",
        calls.since.unwrap_or_default(),
        args.endpoint
    );
    say!("{:#}\n", found["configuration"]);
    say!(
        "Lists get {} of {} bytes smaller (about {} tokens), and have find_tools and call_tool instead.\n",
        found["savedBytes"],
        found["bytes"],
        found["savedTokens"]
    );
    say!("Nobody has called these tools since then, at any endpoint:");
    for name in found["uncalled"].as_array().into_iter().flatten() {
        say!("  {}", plain(name.as_str().unwrap_or_default(), 300));
    }
    Ok(())
}

/// The suggestion for an endpoint. Tools of apps are listed in any case.
fn suggestion(endpoint: &str, tools: &List, calls: &Calls) -> Value {
    let (mut always, mut uncalled, mut bytes, mut saved) = (Vec::new(), Vec::new(), 0, 0);
    for tool in &tools.entries {
        let (name, size) = (
            format!("{}/{}", tool.backend, tool.original),
            tool.visible.bytes().len(),
        );
        let of_tool = calls.tools.iter().filter(|(_, called)| *called == name);
        let endpoints: Vec<&String> = of_tool.map(|(endpoint, _)| endpoint).collect();
        if endpoints.is_empty() {
            uncalled.push(name.clone());
        }
        bytes += size;
        match endpoints.iter().any(|at| **at == endpoint) {
            _ if is_of_app(&tool.visible) => {}
            true => always.push(name),
            false => saved += size,
        }
    }
    json!({
        "since": calls.since, "configuration": { "endpoints": { endpoint: { "lean": { "always": always } } } },
        "bytes": bytes, "savedBytes": saved, "savedTokens": estimated_tokens(saved), "uncalled": uncalled,
    })
}
