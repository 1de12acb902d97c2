//! Floods of invalid access tokens.

use std::time::Duration;

use fanlight_testkit::issuer::{CLIENT, Issuer, Place};
use futures_util::future::join_all;

use crate::raw_client::{Connection, JSON_HEADERS, modern_headers, modern_request};
use crate::target::{Bounds, Target};

const AUDIENCE: &str = "https://mcp.example.com/mcp";
const ATTACKERS: usize = 8;
const EACH: usize = 1250;

/// The needs of a debug build for ten thousand requests that it refuses at the head.
const BOUNDS: Bounds = Bounds {
    processor: Duration::from_secs(20),
    time: Duration::from_secs(60),
    ..Bounds::SMALL
};

/// Sends requests with these tokens on one connection, and counts the answers with each status.
async fn flood(target: &Target, tokens: impl Iterator<Item = String>) -> Vec<u16> {
    let body = modern_request("1", "tools/call", r#""name":"t""#, "");
    let own = modern_headers(&body);
    let mut connection = Connection::open(target.gateway.mcp).await;
    let mut statuses = Vec::new();
    for token in tokens {
        let field = format!("Bearer {token}");
        let own = own
            .iter()
            .map(|(name, value)| (name.as_str(), value.as_str()));
        let headers: Vec<_> = JSON_HEADERS
            .into_iter()
            .chain(own)
            .chain([("Authorization", field.as_str())])
            .collect();
        connection
            .request("POST", "/mcp", &headers, body.as_bytes())
            .await;
        let response = connection.response().await;
        statuses.push(response.status);
        connection = response.finish().await.1;
    }
    statuses
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn wrong_tokens_harm_nobody_else() {
    let (signing, asked) = (Issuer::start().await, Issuer::start().await);
    let options = format!(
        r#""publicUrl":"https://mcp.example.com","auth":{{"oauth":[{{"issuer":"{}"}},{{"issuer":"{}","introspection":{{"clientId":"{}","clientSecret":"{}"}}}}]}}"#,
        signing.url(),
        asked.url(),
        CLIENT.0,
        CLIENT.1
    );
    let token = signing.token("ann", AUDIENCE, "mcp:read mcp:call");
    let target = Target::authenticated(&options, &token).await;
    let (message, signature) = token.rsplit_once('.').unwrap();
    /// Makes an invalid token from a good token's message and signature, the request's number, and
    /// the sender's number.
    type WrongToken = fn(&str, &str, usize, usize) -> String;
    let kinds: [WrongToken; 4] = [
        // Wrong signatures, each in another token.
        |message, signature, at, attacker| {
            format!(
                "{message}.{:08}{}",
                at * ATTACKERS + attacker,
                &signature[8..]
            )
        },
        |_, _, at, attacker| format!("opaque-{attacker}-{at}"),
        |message, _, at, _| format!("{}.{at}.x", message.split('.').next().unwrap_or_default()),
        |_, _, at, _| format!("{at}{}", "x".repeat(15 << 10)),
    ];
    let floods = (0..ATTACKERS).map(|attacker| {
        let make = kinds[attacker % kinds.len()];
        flood(
            &target,
            (0..EACH).map(move |at| make(message, signature, at, attacker)),
        )
    });
    let statuses = join_all(floods).await.concat();
    let refused = statuses.iter().filter(|status| **status == 401).count();
    let throttled = statuses.iter().filter(|status| **status == 429).count();
    println!(
        "{refused} refused, {throttled} throttled, {} asked",
        asked.asked(Place::Introspection)
    );
    assert_eq!(refused + throttled, ATTACKERS * EACH, "{statuses:?}");
    assert!(throttled > refused, "{refused} were verified");
    assert!(asked.asked(Place::Introspection) <= refused && signing.asked(Place::Keys) == 1);
    target.withstood(BOUNDS).await;
}
