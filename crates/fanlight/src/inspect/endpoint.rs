//! `fanlight list --url` and `fanlight call --url`: through the endpoint of a gateway, as a client of it.

use std::time::Duration;

use fanlight_config::{Limits, Timeouts};
use fanlight_gateway::catalogue::ListKind;
use fanlight_protocol::Json;
use fanlight_protocol::json::ObjectBuilder;
use fanlight_protocol::result::CallToolResult;

use super::client::Client;
use super::list::{List, Shown, Wanted, print_all};
use super::{arguments, call, trace_test};
use crate::cli::CallArgs;
use crate::failure::Failure;
use crate::show::plain;

/// Pages of a list that are read.
const PAGES: usize = 100;

/// Prints the lists that clients of this endpoint get.
pub(crate) async fn list_at(url: &str, wanted: &Wanted<'_>) -> Result<(), Failure> {
    let client = client(url, Timeouts::default().list)?;
    let mut lists = Vec::new();
    for kind in wanted.kinds() {
        lists.push((*kind, read(&client, *kind).await?));
    }
    print_all(&lists, wanted.json)
}

/// Calls a tool, and prints the result.
pub(crate) async fn call_at(url: &str, args: &CallArgs) -> Result<(), Failure> {
    let arguments = arguments(&args.arguments)?;
    let client = client(url, Timeouts::default().call)?;
    let most = Limits::default().mirrored_params;
    let (tool, mirrored) = trace_test::find(&client, Some(&args.tool), most).await?;
    let response = client.call_modern(&tool, &mirrored, &arguments, None).await?;
    call::print(&response.body(), args.json);
    let failed = response.view::<CallToolResult>().and_then(|result| result.is_error());
    call::outcome(response.is_error(), failed.is_some_and(|flag| flag.is_true()))
}

fn client(url: &str, timeout: Duration) -> Result<Client, Failure> {
    Ok(Client::new(url.to_owned(), timeout)?.with_token(std::env::var("FANLIGHT_TOKEN").ok()))
}

async fn read(client: &Client, kind: ListKind) -> Result<List, Failure> {
    let mut list = List::default();
    let mut cursor: Option<Json> = None;
    for _ in 0..PAGES {
        let mut params = ObjectBuilder::new();
        if let Some(cursor) = &cursor {
            params.member("cursor", cursor);
        }
        let method = kind.method();
        let page = client.modern(method.as_str(), params, Vec::new(), None).await?;
        let Some(result) = page.result() else {
            // A server without anything of this kind need not have the method.
            if page.error_code() == Some(fanlight_protocol::code::METHOD_NOT_FOUND) {
                break;
            }
            let what = plain(page.body().as_text(), 300);
            return Err(Failure::other(format!("the gateway does not answer {}: {what}", method.as_str())));
        };
        let entries = result.get(kind.member()).unwrap_or_else(Json::null);
        list.entries.extend(entries.elements().map(|place| Shown::of(kind, entries.slice(place))));
        cursor = result.get("nextCursor").filter(|cursor| cursor.as_str().is_some());
        if cursor.is_none() {
            break;
        }
    }
    Ok(list)
}
