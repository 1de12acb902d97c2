//! Signs operators in at identity providers, in the same way as users. It stores nothing, and keeps
//! no tokens.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use fanlight_canonical::identity::Identity;
use fanlight_credentials::{Authenticate, Begun, SignIn, SignInError as NotSignedIn, Signing};
use tokio::sync::Mutex;
use tracing::{info, warn};
use url::Url;

use crate::access::Wanted;
use crate::error::{SignInError, unsealed, unusable};
use crate::oauth::{
    AuthorizationRequest, CallbackParameters, ClientRegistration, Discovered, OAuthError,
};
use crate::server::{Server, ServerSettings};
use crate::sign_in::Offer;

/// How long the metadata of an identity provider are used. There is no option: sign-ins are rare,
/// and a sign-in waits for new metadata if the known ones are older.
const FRESH: Duration = Duration::from_secs(600);
/// The pause after an identity provider did not answer. It is needed because anybody can begin a
/// sign-in.
const FAILED: Duration = Duration::from_secs(2);

/// Signs operators in at the identity providers of `auth`.
pub struct OperatorSignIn {
    authenticate: Arc<dyn Authenticate>,
    providers: ArcSwap<HashMap<String, Arc<IdentityProvider>>>,
    /// The clients that were registered at identity providers, by issuer and redirect URI. They
    /// need not outlast the process, because a sign-in ends in the process that began it.
    registered: Mutex<HashMap<(String, Url), ClientRegistration>>,
}

struct IdentityProvider {
    server: Arc<Server>,
    /// The last answer of the identity provider, or its error. The holder of the lock sends a
    /// request; all others wait for its answer.
    discovered: Mutex<Option<(Instant, Result<Discovered, OAuthError>)>>,
}

impl fmt::Debug for OperatorSignIn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("OperatorSignIn")
    }
}

impl OperatorSignIn {
    /// Signs nobody in until [`Self::replace`] sets identity providers. `authenticate` identifies
    /// the user whom an ID token names.
    #[must_use]
    pub fn new(authenticate: Arc<dyn Authenticate>) -> Self {
        Self {
            authenticate,
            providers: ArcSwap::default(),
            registered: Mutex::default(),
        }
    }

    /// Signs operators in at these identity providers from now on, and at no others.
    ///
    /// # Errors
    ///
    /// If requests cannot be sent to one of them. In that case nothing changes.
    pub fn replace(&self, providers: Vec<ServerSettings>) -> Result<(), OAuthError> {
        let provider = |settings: ServerSettings| {
            let (name, server) = (settings.name.clone(), Arc::new(Server::new(settings)?));
            let discovered = Mutex::default();
            Ok((name, Arc::new(IdentityProvider { server, discovered })))
        };
        let providers = providers.into_iter().map(provider);
        self.providers
            .store(Arc::new(providers.collect::<Result<_, OAuthError>>()?));
        Ok(())
    }

    async fn offer(&self, issuer: &str) -> Result<Offer, SignInError> {
        let provider = self.providers.load().get(issuer).cloned();
        let provider = provider.ok_or(SignInError::NoServer)?;
        let discovered = provider.discover().await;
        let discovered = discovered.map_err(|error| SignInError::Failed {
            reason: error.to_string(),
        })?;
        Offer::of_identity(Arc::clone(&provider.server), discovered, false)
    }

    async fn client(
        &self,
        offer: &Offer,
        redirect_uri: &Url,
    ) -> Result<ClientRegistration, SignInError> {
        if let Some(client) = offer.configured_client()? {
            return Ok(client);
        }
        let place = (offer.issuer().to_owned(), redirect_uri.clone());
        let mut registered = self.registered.lock().await;
        let known = registered.get(&place);
        if let Some(known) = known.filter(|known| known.is_valid_at(offer.provider())) {
            return Ok(known.clone());
        }
        let client = offer.register(redirect_uri).await?;
        registered.insert(place, client.clone());
        Ok(client)
    }

    async fn start(&self, issuer: &str, redirect_uri: &str) -> Result<Begun, SignInError> {
        let redirect_uri = Url::parse(redirect_uri).map_err(|_| unusable())?;
        let offer = self.offer(issuer).await?;
        let client = self.client(&offer, &redirect_uri).await?;
        let mut request = offer.identity_request(&client, &redirect_uri)?;
        let location = request.url.to_string();
        // Otherwise the cookie would contain the query twice.
        request.url.set_query(None);
        let attempt = serde_json::to_string(&request).map_err(|_| unsealed())?;
        Ok(Begun { location, attempt })
    }

    async fn end(&self, attempt: &str, query: &str) -> Result<Arc<Identity>, SignInError> {
        let request: AuthorizationRequest =
            serde_json::from_str(attempt).map_err(|_| unsealed())?;
        let brought = CallbackParameters::from_query(query).ok_or(SignInError::NotUsed(
            "the answer of the identity provider is ambiguous",
        ))?;
        let offer = self.offer(&request.issuer).await?;
        let client = self.client(&offer, &request.redirect_uri).await?;
        let identified = offer
            .identify(&client, &request, &brought, &*self.authenticate)
            .await;
        identified.map(|(identity, _)| identity)
    }
}

impl IdentityProvider {
    /// The metadata of the identity provider. There is only one request for them at a time, and
    /// requests are rare.
    async fn discover(&self) -> Result<Discovered, OAuthError> {
        let mut last = self.discovered.lock().await;
        if let Some((at, discovered)) = &*last {
            let time = if discovered.is_ok() { FRESH } else { FAILED };
            if at.elapsed() < time {
                return discovered.clone();
            }
        }
        let discovered = self.server.discover(&Wanted::default().challenge()).await;
        let had_failed = matches!(&*last, Some((_, Err(_))));
        let issuer = self.server.name();
        match &discovered {
            Err(error) if !had_failed => {
                warn!(issuer, %error, "cannot ask the issuer at which operators sign in");
            }
            Ok(_) if had_failed => info!(
                issuer,
                "the issuer at which operators sign in answers again"
            ),
            _ => {}
        }
        *last = Some((Instant::now(), discovered.clone()));
        discovered
    }
}

impl SignIn for OperatorSignIn {
    fn begin<'a>(&'a self, issuer: &'a str, redirect_uri: &'a str) -> Signing<'a, Begun> {
        Box::pin(async move {
            let begun = self.start(issuer, redirect_uri).await;
            begun.map_err(for_operator)
        })
    }

    fn finish<'a>(&'a self, attempt: &'a str, query: &'a str) -> Signing<'a, Arc<Identity>> {
        Box::pin(async move { self.end(attempt, query).await.map_err(for_operator) })
    }
}

/// The error that an operator gets to see.
fn for_operator(error: SignInError) -> NotSignedIn {
    match error {
        SignInError::NotUsed(reason) => NotSignedIn::Refused(
            format!("the issuer's answer is not accepted: {reason}; start again").into(),
        ),
        SignInError::Refused(reason) => {
            // Only the code is shown. The rest is text of the issuer, or of somebody who pretends
            // to be the issuer.
            let code = reason.split(' ').next().unwrap_or_default();
            let is_code = code
                .bytes()
                .all(|byte| byte.is_ascii_lowercase() || byte == b'_');
            let code = if is_code { code } else { "an unknown error" };
            NotSignedIn::Refused(format!("the issuer refused to sign you in ({code})").into())
        }
        SignInError::NotIdentified(reason) => NotSignedIn::Refused(reason),
        SignInError::NoServer | SignInError::NotPermitted => {
            NotSignedIn::Refused("operators do not sign in at this issuer".into())
        }
        error @ SignInError::NoClient { .. } => NotSignedIn::Unavailable(error.to_string().into()),
        SignInError::NotRecorded | SignInError::Failed { .. } => NotSignedIn::Unavailable(
            "the issuer cannot be reached at the moment; Fanlight's log says why".into(),
        ),
    }
}
