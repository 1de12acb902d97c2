//! `fanlight list --url` and `fanlight call --url`: use a gateway's endpoint as a client, which
//! signs in if necessary.

use std::time::Duration;

use fanlight_config::Timeouts;

use super::check::sign_in::{SignIn, wanted_at};
use super::client::Client;
use super::list::{List, Wanted, print_all};
use super::{arguments, call, trace_test};
use crate::cli::CallArgs;
use crate::failure::Failure;
use crate::interruption::interruptible;
use crate::login::{Browser, ServerByUrl};

/// The time for one list.
const LIST: Duration = Duration::from_secs(10);

/// Prints the lists that clients of this endpoint get.
pub async fn list_at(
    url: &str,
    wanted: &Wanted<'_>,
    browser: Option<Browser>,
) -> Result<(), Failure> {
    let lists = as_client(url, LIST, browser, async |client| {
        let mut lists = Vec::new();
        for kind in wanted.kinds() {
            lists.push((*kind, List::of_entries(*kind, client.entries(*kind).await?)));
        }
        Ok(lists)
    });
    print_all(&lists.await?, wanted.json)
}

/// Calls a tool and prints the result.
pub async fn call_at(url: &str, args: &CallArgs, browser: Option<Browser>) -> Result<(), Failure> {
    let response = as_client(url, Timeouts::default().call, browser, async |client| {
        let (tool, mirrored, schema) = trace_test::find(client, Some(&args.tool)).await?;
        let arguments = arguments(&args.arguments, Some(&schema))?;
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
    let server = ServerByUrl::new(url, browser)?;
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
    let server = ServerByUrl::new(url, browser)?;
    let client = Client::new(url, timeout)?
        .with_token_of_environment()
        .or_signed_in(server);
    // Once the user has signed in, the process no longer ends on SIGINT by itself, so this waits
    // for the signal.
    let outcome = interruptible(command(&client)).await;
    client.stop().await;
    outcome
}
