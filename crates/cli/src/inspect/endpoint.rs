//! `fanlight list --url` and `fanlight call --url`: use a gateway's endpoint as a client, which
//! signs in if necessary.

use std::time::Duration;

use crate::cli::CallArgs;
use crate::failure::Failure;
use crate::interruption::interruptible;
use fanlight_config::Timeouts;
use fanlight_gateway::catalogue::ListKind;
use fanlight_protocol::Json;
use fanlight_protocol::json::ObjectBuilder;
use fanlight_protocol::visible::plain;

use super::check::sign_in::{SignIn, wanted_at};
use super::client::Client;
use super::list::{List, Shown, Wanted, print_all};
use super::{arguments, call, trace_test};
use crate::login::{Browser, ServerByUrl};

/// The time for one list.
const LIST: Duration = Duration::from_secs(10);

/// The limit of pages read of a list.
const PAGES: usize = 100;

/// Prints the lists that clients of this endpoint get.
pub async fn list_at(
    url: &str,
    wanted: &Wanted<'_>,
    browser: Option<Browser>,
) -> Result<(), Failure> {
    let lists = as_client(url, LIST, browser, async |client| {
        let mut lists = Vec::new();
        for kind in wanted.kinds() {
            lists.push((*kind, read(client, *kind).await?));
        }
        Ok(lists)
    });
    print_all(&lists.await?, wanted.json)
}

/// Calls a tool and prints the result.
pub async fn call_at(url: &str, args: &CallArgs, browser: Option<Browser>) -> Result<(), Failure> {
    let arguments = arguments(&args.arguments)?;
    let response = as_client(url, Timeouts::default().call, browser, async |client| {
        let (tool, mirrored) = trace_test::find(client, Some(&args.tool)).await?;
        client.call_modern(&tool, &mirrored, &arguments, None).await
    })
    .await?;
    call::print_response(&response, args.json)
}

/// The user's token for a server, after a sign-in if necessary. Without one, returns what the
/// server requires for a token, if it requires one.
pub(crate) async fn sign_in_at(
    url: &str,
    timeout: Duration,
    browser: Option<Browser>,
) -> Result<(Option<String>, Option<SignIn>), Failure> {
    let server = ServerByUrl::at(url, browser)?;
    let entry = server.server().clone();
    let client = Client::new(url, timeout)?.or_signed_in(server);
    let (challenge, token) = (client.challenge().await, client.token().await);
    client.stop().await;
    match challenge? {
        Some(challenge) => Ok((None, wanted_at(&entry, challenge).await)),
        None => Ok((token?, None)),
    }
}

async fn as_client<T>(
    url: &str,
    timeout: Duration,
    browser: Option<Browser>,
    command: impl AsyncFnOnce(&Client) -> Result<T, Failure>,
) -> Result<T, Failure> {
    let server = ServerByUrl::at(url, browser)?;
    let client = Client::new(url, timeout)?
        .with_token_of_environment()
        .or_signed_in(server);
    // Once the user has signed in, the process no longer ends on SIGINT by itself, so this waits
    // for the signal.
    let outcome = interruptible(command(&client)).await;
    client.stop().await;
    outcome
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
        let page = client
            .modern(method.as_str(), params, Vec::new(), None)
            .await?;
        let Some(result) = page.result() else {
            // A server without items of this kind need not have the method.
            if page.error_code() == Some(fanlight_protocol::code::METHOD_NOT_FOUND) {
                break;
            }
            let what = plain(page.body().as_text(), 300);
            return Err(Failure::other(format!(
                "the gateway does not answer {}: {what}",
                method.as_str()
            )));
        };
        let entries = result.get(kind.member()).unwrap_or_else(Json::null);
        list.entries.extend(
            entries
                .elements()
                .map(|place| Shown::of(kind, entries.slice(place))),
        );
        cursor = result
            .get("nextCursor")
            .filter(|cursor| cursor.as_str().is_some());
        if cursor.is_none() {
            break;
        }
    }
    Ok(list)
}
