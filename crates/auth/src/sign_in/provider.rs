//! The metadata of an issuer: its endpoints.

use std::sync::Arc;
use std::time::{Duration, Instant};

use arc_swap::ArcSwapOption;
use fanlight_protocol::Json;
use reqwest::Url;

use crate::issuer::{FetchError, IssuerClient, discovery};
use crate::json;

/// For how long the metadata of an issuer are used. No option: a sign-in is rare, and waits for them when they are older.
const FRESH: Duration = Duration::from_secs(600);

/// The endpoints of an issuer.
#[derive(Debug)]
pub(super) struct Provider {
    /// Where browsers sign in.
    pub(super) authorization: Url,
    /// Where codes are exchanged.
    pub(super) token: String,
    /// Whether each of its answers names it (RFC 9207, 3).
    pub(super) names_itself: bool,
    /// Whether a client's secret is sent in the form, as the header is not accepted.
    pub(super) takes_secret_in_form: bool,
}

/// The endpoints of one issuer as they were read last.
#[derive(Debug, Default)]
pub(super) struct Providers(ArcSwapOption<(Instant, Arc<Provider>)>);

impl Providers {
    /// The endpoints of `issuer`, read again if they are old.
    pub(super) async fn get(&self, client: &IssuerClient, issuer: &str) -> Result<Arc<Provider>, FetchError> {
        if let Some((_, provider)) = self.0.load().as_deref().filter(|(read, _)| read.elapsed() < FRESH) {
            return Ok(Arc::clone(provider));
        }
        let metadata = discovery::metadata(client, issuer).await?;
        let provider = Arc::new(Provider::read(client, &metadata)?);
        self.0.store(Some(Arc::new((Instant::now(), Arc::clone(&provider)))));
        Ok(provider)
    }
}

impl Provider {
    fn read(client: &IssuerClient, metadata: &Json) -> Result<Self, FetchError> {
        let authorization = discovery::url(metadata, "authorization_endpoint")?;
        // The page navigates there: another scheme could be a script.
        let authorization = client.permitted(&authorization)?;
        let texts = |name| metadata.get(name).and_then(|value| json::texts(&value));
        // Absent, it means the header (RFC 8414, 2).
        let methods = texts("token_endpoint_auth_methods_supported");
        let accepts = |name: &str| methods.as_ref().is_some_and(|methods| methods.iter().any(|one| one == name));
        let names_itself = metadata.peek("authorization_response_iss_parameter_supported");
        Ok(Self {
            authorization,
            token: discovery::url(metadata, "token_endpoint")?,
            names_itself: names_itself.is_some_and(|value| value.is_true()),
            takes_secret_in_form: accepts("client_secret_post") && !accepts("client_secret_basic"),
        })
    }
}
