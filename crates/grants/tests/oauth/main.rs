//! Tests of the client side of OAuth against a scripted authorization server, as one binary.

// A test fails by panicking, also in its helper functions.
#![allow(clippy::unwrap_used, clippy::panic)]

mod codes;
mod discovering;
mod grants;
mod machine;

use fanlight_grants::fetch::{Requests, Trust};
use fanlight_grants::oauth::{Client, ClientRegistration, ConfiguredClient, Provider};
use fanlight_testkit::authorization_server::AuthorizationServer;
use fanlight_testkit::scripted::{Backend, Era, Protection, Transport};
use url::Url;

fn url(text: &str) -> Url {
    text.parse().unwrap()
}

/// An HTTP client for a server on this machine.
fn requests() -> Requests {
    Requests::new(&Trust::in_server(url("http://127.0.0.1:9/mcp"))).unwrap()
}

/// A protected server and its authorization server.
struct World {
    server: Backend,
    authority: std::sync::Arc<AuthorizationServer>,
}

impl World {
    async fn start() -> Self {
        let server = Backend::start(Era::Modern, Transport::Http).await;
        let authority = std::sync::Arc::new(AuthorizationServer::start().await);
        let valid = std::sync::Arc::clone(&authority);
        server.protect(Protection::by_token(
            &server.url(),
            authority.url(),
            move |token| valid.is_valid(token),
        ));
        Self { server, authority }
    }

    fn url(&self) -> Url {
        url(&self.server.url())
    }

    async fn provider(&self) -> Provider {
        Provider::discover(&requests(), self.authority.url())
            .await
            .unwrap()
    }
}

/// A client without a secret.
fn registration(provider: &Provider) -> ClientRegistration {
    let client = ConfiguredClient {
        id: "fanlight".to_owned(),
        ..ConfiguredClient::default()
    };
    ClientRegistration::from_configured(provider, &client)
}

fn client<'a>(
    requests: &'a Requests,
    provider: &'a Provider,
    registration: &'a ClientRegistration,
) -> Client<'a> {
    Client {
        requests,
        provider,
        registration,
        proof_key: None,
    }
}
