//! Signs operators in at identity providers, in the same way as users. It keeps no tokens.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use async_trait::async_trait;
use fanlight_canonical::identity::Identity;
use fanlight_config::settings::Secret;
use fanlight_credentials::{
    Authenticate, Begun, CommonSessions, IdToken, KeptSession, SignIn, SignInError as NotSignedIn,
};
use serde::{Deserialize, Serialize};
use tracing::{info, warn};
use url::Url;

use crate::error::{SignInError, unsealed, unusable};
use crate::oauth::{
    AuthorizationRequest, CallbackParameters, ClientRegistration, Discovered, OAuthError,
};
use crate::pages::identify::proof_of;
use crate::peers::Peers;
use crate::record::{OperatorSession, Proof};
use crate::server::{Server, ServerSettings};
use crate::{Callback, LeaseOutcome, Leased, Offer, Owner, Store, StoreError, Wanted};

/// How long one replica may take to replace the record of a session.
const REPLACING: Duration = Duration::from_secs(5);

/// Signs operators in at the identity providers of `auth`.
pub struct OperatorSignIn {
    authenticate: Arc<dyn Authenticate>,
    providers: ArcSwap<HashMap<String, Arc<Server>>>,
    peers: Peers,
    /// Returns the store of registered clients, if there is one.
    store: Box<dyn Fn() -> Option<Store> + Send + Sync>,
}

/// A pending sign-in.
#[derive(Serialize, Deserialize)]
struct Attempt {
    request: AuthorizationRequest,
    /// The client, unless the configuration has it. Another replica does not know a registered one.
    client: Option<ClientRegistration>,
}

fanlight_protocol::opaque!(OperatorSignIn);

impl OperatorSignIn {
    /// Signs nobody in until [`Self::replace`] sets identity providers. `authenticate` identifies
    /// the user whom an ID token names. Registered clients are kept in the `store`, if there is one.
    pub fn new(
        authenticate: Arc<dyn Authenticate>,
        store: impl Fn() -> Option<Store> + Send + Sync + 'static,
    ) -> Self {
        Self {
            authenticate,
            providers: ArcSwap::default(),
            peers: Peers::default(),
            store: Box::new(store),
        }
    }

    /// Signs operators in at these identity providers from now on, and at no others.
    ///
    /// # Errors
    ///
    /// If requests cannot be sent to one of them. In that case nothing changes.
    pub fn replace(&self, providers: Vec<ServerSettings>) -> Result<(), OAuthError> {
        let provider = |settings: ServerSettings| {
            Ok((settings.name.clone(), Arc::new(Server::new(settings)?)))
        };
        let providers = providers.into_iter().map(provider);
        self.providers
            .store(Arc::new(providers.collect::<Result<_, OAuthError>>()?));
        self.peers.retain(|_| false);
        Ok(())
    }

    async fn offer(&self, issuer: &str) -> Result<Offer, SignInError> {
        let provider = self.providers.load().get(issuer).cloned();
        let provider = provider.ok_or(SignInError::NoServer)?;
        let named = issuer.to_owned();
        let told = move |failures, discovered: &_| tell(&named, failures, discovered);
        let wanted = Wanted::default();
        let discovered = self.peers.discover(&provider, &wanted, told).await;
        let discovered = discovered.map_err(|error| SignInError::Failed {
            reason: error.to_string(),
        })?;
        Offer::from_discovered(provider, discovered, false)
    }

    async fn start(&self, issuer: &str, redirect_uri: &str) -> Result<Begun, SignInError> {
        let callback = Callback {
            shared: Url::parse(redirect_uri).map_err(|_| unusable())?,
            documents: None,
            is_for_once: false,
        };
        let offer = self.offer(issuer).await?;
        let store = (self.store)();
        let client = offer.client(&self.peers, store.as_ref(), &callback).await?;
        let mut request = offer.identity_request(&client, &offer.redirect_uri(&callback)?)?;
        let location = request.url.to_string();
        // Otherwise the cookie would contain the query twice.
        request.url.set_query(None);
        let client = (!offer.has_configured_client()).then_some(client);
        let attempt = serde_json::to_string(&Attempt { request, client });
        let attempt = attempt.map_err(|_| unsealed())?;
        Ok(Begun { location, attempt })
    }

    async fn end(
        &self,
        attempt: &str,
        path: Option<&str>,
        query: &str,
    ) -> Result<(Arc<Identity>, String), SignInError> {
        let Attempt { request, client } = serde_json::from_str(attempt).map_err(|_| unsealed())?;
        let brought = CallbackParameters::from_query(query).ok_or(SignInError::NotUsed(
            "the answer of the identity provider is ambiguous",
        ))?;
        if path.is_some_and(|path| !request.returns_to(path)) {
            return Err(SignInError::NotUsed(
                "the browser came back to another place than the one for this issuer",
            ));
        }
        let offer = self.offer(&request.issuer).await?;
        let client = match client {
            Some(client) => client,
            None => offer.configured_client()?.ok_or(SignInError::NoServer)?,
        };
        let (identity, tokens) = offer
            .identify(&client, &request, &brought, &*self.authenticate)
            .await?;
        let proof = serde_json::to_string(&proof_of(&request, &tokens, &client));
        Ok((identity, proof.map_err(|_| unsealed())?))
    }

    fn common(&self) -> Result<Store, String> {
        (self.store)().ok_or_else(|| "there is no common store".to_owned())
    }
}

/// Logs when an issuer begins to fail, and when that ends.
fn tell(issuer: &str, failures: u32, discovered: &Result<Discovered, OAuthError>) {
    match discovered {
        Err(error) if failures == 0 => {
            warn!(issuer, %error, "cannot ask the issuer at which operators sign in");
        }
        Ok(_) if failures > 0 => info!(
            issuer,
            "the issuer at which operators sign in answers again"
        ),
        _ => {}
    }
}

#[async_trait]
impl SignIn for OperatorSignIn {
    async fn begin(&self, issuer: &str, redirect_uri: &str) -> Result<Begun, NotSignedIn> {
        let begun = self.start(issuer, redirect_uri).await;
        begun.map_err(for_operator)
    }

    async fn finish(
        &self,
        attempt: &str,
        path: Option<&str>,
        query: &str,
    ) -> Result<(Arc<Identity>, String), NotSignedIn> {
        let ended = self.end(attempt, path, query).await;
        ended.map_err(for_operator)
    }

    async fn identify(&self, proof: &str) -> Result<Arc<Identity>, NotSignedIn> {
        let Ok(Proof::IdToken {
            token,
            issuer,
            client_id,
            nonce,
        }) = serde_json::from_str(proof)
        else {
            return Err(NotSignedIn::Refused("this is no proof of a sign-in".into()));
        };
        let shown = IdToken {
            token: token.expose(),
            issuer: &issuer,
            client_id: &client_id,
            nonce: &nonce,
        };
        self.authenticate.identify(shown).await
    }
}

#[async_trait]
impl CommonSessions for OperatorSignIn {
    async fn get(&self, name: &str) -> Result<Option<KeptSession>, String> {
        let session = self.common()?.get::<OperatorSession>(&place(name)).await;
        Ok(session.map_err(in_words)?.map(|session| KeptSession {
            text: session.text.expose().to_owned(),
            expires: session.expires,
        }))
    }

    async fn put(&self, name: &str, session: KeptSession) -> Result<(), String> {
        let put = self.common()?.put(&place(name), &to_record(&session)).await;
        put.map_err(in_words)
    }

    async fn replace(&self, name: &str, session: KeptSession) -> Result<(), String> {
        let (store, place) = (self.common()?, place(name));
        let leased = store.lease::<OperatorSession>(&place, REPLACING).await;
        if let Leased::Ours(_, lease) = leased.map_err(in_words)? {
            let outcome = LeaseOutcome::Replace(&to_record(&session));
            let ended = store.end_lease(&place, lease, outcome).await;
            ended.map_err(in_words)?;
        }
        Ok(())
    }

    async fn remove(&self, name: &str) -> Result<(), String> {
        let taken = self.common()?.take::<OperatorSession>(&place(name)).await;
        taken.map(drop).map_err(in_words)
    }
}

/// The place of a session's record. Each is an owner of its own, so that sessions do not take each
/// other's share.
fn place(name: &str) -> Owner {
    Owner::new(name.as_bytes(), "operator")
}

fn to_record(session: &KeptSession) -> OperatorSession {
    OperatorSession {
        text: Secret::new(session.text.as_str()),
        expires: session.expires,
    }
}

#[expect(clippy::needless_pass_by_value, reason = "as `map_err` gives it")]
fn in_words(error: StoreError) -> String {
    error.to_string()
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
        error @ (SignInError::NoClient { .. }
        | SignInError::Impossible(_)
        | SignInError::OfOtherServer { .. }) => NotSignedIn::Unavailable(error.to_string().into()),
        SignInError::NotRecorded | SignInError::Failed { .. } => NotSignedIn::Unavailable(
            "the issuer cannot be reached at the moment; Fanlight's log says why".into(),
        ),
    }
}
