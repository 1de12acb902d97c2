//! The commands that look at a gateway and its servers: `check`, `list`, `find`, `call`, `diff`,
//! `trace-test`. Whoever runs them starts the gateway.

mod call;
mod check;
mod client;
mod diff;
mod find;
mod hops;
mod list;
mod trace_test;
mod validate;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use fanlight_canonical::{
    BackendError, Call, CallContext, Caller, Endpoint, FailureDetails, Holder, Principal,
};
use fanlight_config::Timeouts;
use fanlight_gateway::{Gateway, ListKind, ListView};
use fanlight_protocol::visible::{escaped_lines, plain};
use fanlight_protocol::{DEFAULT_NESTING, Json, Method, ObjectBuilder};

use self::check::sign_in::wanted_at;
use crate::cli::CallArgs;
use crate::login::{Browser, ServerByUrl};
use crate::suggestions::did_you_mean;
use crate::{Failure, Result, interruptible, out};
pub use call::{call, call_running};
pub(crate) use check::sign_in::SignIn;
pub use check::{Checked, introduce};
pub use client::Client;
pub use diff::DirectCall;
pub use find::find;
pub(crate) use list::{List, fetch_list};
pub use list::{Wanted, list, list_of_running};
pub use trace_test::{trace_test, trace_test_at};
pub use validate::validate;

/// The failure for a tool that is not among the known ones.
fn no_such_tool<'a>(name: &str, known: impl Iterator<Item = &'a str>) -> Failure {
    let meant = match did_you_mean(name, known) {
        meant if meant.is_empty() => "; `fanlight list tools` lists the tools".to_owned(),
        meant => meant,
    };
    usage!("no tool is called {name:?}{meant}")
}

/// A tool's arguments from the command line: a JSON object, or `key=value` pairs. The tool's
/// `schema` says whether the text of a value is JSON.
fn arguments(given: &[String], schema: Option<&Json>) -> Result<Json> {
    if !has_pairs(given) {
        return given
            .first()
            .map_or_else(|| Ok(Json::empty_object()), |text| object(text));
    }
    let properties = schema.and_then(|schema| schema.get("properties"));
    let mut all = ObjectBuilder::new();
    let mut names: Vec<&str> = Vec::new();
    for pair in given {
        let (name, text) = pair
            .split_once('=')
            .ok_or_else(|| usage!("write each argument as key=value, not {pair:?}"))?;
        if names.contains(&name) {
            return Err(usage!("the argument {name:?} is given twice"));
        }
        names.push(name);
        let property = properties.as_ref().and_then(|all| all.get(name));
        all.member(name, &typed(name, text, property.as_ref())?);
    }
    Ok(all.finish())
}

/// Whether arguments are `key=value` pairs, which the tool's schema is needed for.
fn has_pairs(given: &[String]) -> bool {
    given.len() > 1
        || given
            .first()
            .is_some_and(|text| text.contains('=') && !text.trim_start().starts_with('{'))
}

/// The value of an argument: text if its schema allows a string, else JSON.
fn typed(name: &str, text: &str, schema: Option<&Json>) -> Result<Json> {
    let kind = schema.and_then(|schema| schema.get("type"));
    let kinds: Vec<String> = match &kind {
        Some(kind) => kind
            .elements()
            .map(|place| kind.slice(place))
            .chain(std::iter::once(kind.clone()))
            .filter_map(|kind| kind.to_str())
            .collect(),
        None => Vec::new(),
    };
    if kinds.iter().any(|kind| kind == "string") {
        return Ok(Json::string(text));
    }
    match Json::parse(Bytes::copy_from_slice(text.as_bytes()), DEFAULT_NESTING) {
        Ok(json) => Ok(json),
        Err(_) if kinds.is_empty() => Ok(Json::string(text)),
        Err(_) => Err(usage!(
            "the argument {name:?} must be JSON of the type {}, not {text}",
            kinds.join(" or ")
        )),
    }
}

fn object(text: &str) -> Result<Json> {
    let json = Json::parse(Bytes::copy_from_slice(text.as_bytes()), DEFAULT_NESTING)
        .map_err(|error| usage!("the tool's arguments are not JSON: {error}: {text}"))?;
    if json.is_object() {
        Ok(json)
    } else {
        Err(usage!(
            "the tool's arguments must be a JSON object, not {text}"
        ))
    }
}

/// The canonical `tools/call` of `tool`, with the name that its receiver uses.
fn tool_call(tool: &Json, arguments: &Json, endpoint: Endpoint) -> Call {
    let mut params = ObjectBuilder::new();
    params.member("name", tool).member("arguments", arguments);
    let caller = match endpoint {
        Endpoint::Everything => Caller::gateway(),
        endpoint => Caller::request_of(Holder::new(Principal::operator(), endpoint)),
    };
    Call::new(
        Method::CallTool,
        Some(params.finish()),
        Arc::new(CallContext {
            caller,
            ..(*CallContext::internal()).clone()
        }),
    )
}

/// The names of the tools in a list.
fn names(tools: &ListView) -> Vec<String> {
    tools.entries().filter_map(|entry| entry.name()).collect()
}

/// Reads the merged list of tools.
async fn tools(gateway: &Gateway, endpoint: &Endpoint) -> ListView {
    gateway.catalogue(ListKind::Tools, endpoint).await
}

/// The time for one list.
const LIST: Duration = Duration::from_secs(10);

/// Prints the lists that clients of this endpoint get.
pub async fn list_at(url: &str, wanted: &Wanted<'_>, browser: Option<Browser>) -> Result {
    as_client(url, LIST, browser, async |client| {
        wanted
            .print(async |kind| Ok(List::from_entries(kind, client.entries(kind).await?)))
            .await
    })
    .await
}

/// Calls a tool and prints the result.
pub async fn call_at(url: &str, args: &CallArgs, browser: Option<Browser>) -> Result {
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
) -> Result<(Option<String>, Option<SignIn>)> {
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
    command: impl AsyncFnOnce(&Client) -> Result<T>,
) -> Result<T> {
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

/// A failure in lines: what happened, the last lines of the process, and a remedy.
fn failure_text(backend: &str, error: &BackendError) -> String {
    let mut lines = vec![format!("server {backend:?} {}", error.summary())];
    if let Some(FailureDetails {
        stderr,
        stdout,
        remedy,
        ..
    }) = error.details()
    {
        lines.extend(stderr.iter().map(|line| format!("  stderr: {line}")));
        lines.extend(
            stdout
                .iter()
                .map(|line| format!("  stdout: {line}    (not a message)")),
        );
        lines.extend(
            remedy
                .iter()
                .map(|remedy| format!("  help: {}", remedy.text)),
        );
    }
    if error.sign_in().is_some() {
        lines.push(format!(
            "  help: `fanlight login {}` signs you in, for a gateway without `auth`",
            plain(backend, 100)
        ));
    }
    lines.join("\n")
}

/// Prints the failures of all servers that are down on standard error.
pub fn complain(gateway: &Gateway) {
    for (name, status) in gateway.status() {
        if let Some(error) = &status.failure {
            out::complain(&format!("{}\n", escaped_lines(&failure_text(&name, error))));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pairs_get_the_types_of_the_tool() {
        let schema = Json::literal(
            r#"{"properties": {"id": {"type": "string"}, "n": {"type": "integer"}, "tags": {"type": ["array", "null"]}}}"#,
        );
        let of = |given: &[&str]| {
            let given: Vec<String> = given.iter().map(|text| (*text).to_owned()).collect();
            arguments(&given, Some(&schema)).map(|json| json.as_text().to_owned())
        };
        let pairs = of(&["id=12", "n=12", "tags=[\"a\"]", "other=1.0", "more=a=b"]).unwrap();
        assert_eq!(
            pairs,
            r#"{"id":"12","n":12,"tags":["a"],"other":1.0,"more":"a=b"}"#
        );
        assert_eq!(of(&[]).unwrap(), "{}");
        assert_eq!(of(&[r#"{"x":1.0}"#]).unwrap(), r#"{"x":1.0}"#);
        for wrong in [
            &["n=many"][..],
            &["id=1", "n"],
            &["id=1", "id=2"],
            &["[1]"],
            &["{x"],
        ] {
            assert!(of(wrong).is_err(), "{wrong:?}");
        }
    }
}
