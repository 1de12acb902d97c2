//! Signs a user in at a server's authorization server: the scopes, the client and the tokens. The
//! caller asks the user and receives the browser: [`SignInPages`](crate::SignInPages) or a command.

use std::sync::Arc;
use std::time::SystemTime;

use fanlight_canonical::identity::Identity;
use fanlight_credentials::{Authenticate, IdToken, SignInError as Unidentified};
use tracing::{info, warn};
use url::Url;

use crate::access::Wanted;
use crate::audit::GrantChangeKind;
use crate::error::{SignInError, failed, unkept};
use crate::grants::Grants;
use crate::oauth::{
    AuthorizationRequest, CallbackParameters, Challenge, Client, ClientMetadata,
    ClientRegistration, Discovered, ProofKey, Provider, Scopes, TokenSet, TokenTarget,
    authorization_request, register,
};
use crate::record::{BegunSignIn, GivenFor, Grant, RegisteredClient, SIGN_IN_TIME};
use crate::server::{Server, SignInMethod};
use crate::store::Owner;

/// The client name that authorization servers show to users.
pub(crate) const CLIENT_NAME: &str = "Fanlight";

/// The scope for a lasting sign-in (OpenID Connect Core 1.0, 11).
pub(crate) const LASTING: &str = "offline_access";

/// A sign-in offered to the user.
pub struct Offer {
    server: Arc<Server>,
    provider: Provider,
    target: TokenTarget,
    /// Whether the tokens will be bound to a key.
    is_dpop: bool,
}

/// A sign-in that the user has agreed to.
pub struct Begun {
    /// The URL to open in the browser.
    pub location: Url,
    pub(crate) record: BegunSignIn,
}

/// The redirect URL of browsers, and Fanlight's client metadata.
#[derive(Clone, Debug)]
pub struct Callback {
    /// The URL to which browsers are sent back.
    pub redirect_uri: Url,
    /// The URL of Fanlight's client metadata, if authorization servers can read it.
    pub document: Option<Url>,
    /// Whether the redirect URL is for this sign-in only, so that a registration for it is useless
    /// afterwards.
    pub is_for_once: bool,
}

impl Offer {
    /// Finds out the requirements for signing in, from the server and its authorization server.
    /// `wanted` saves asking the server for its requirements.
    ///
    /// # Errors
    ///
    /// If the server's users do not sign in, or somebody does not answer.
    pub async fn ask(
        grants: &Grants,
        server: &str,
        wanted: Option<&Wanted>,
    ) -> Result<Self, SignInError> {
        let server = grants.server(server).ok_or(SignInError::NoServer)?;
        let method = server.sign_in().ok_or(SignInError::NoServer)?;
        let wanted = &match wanted {
            Some(wanted) => wanted.clone(),
            // If the server does not answer now, its metadata are expected at the default place.
            None => Wanted::of(
                &Challenge::of(&server.requests, &server.settings.url)
                    .await
                    .ok()
                    .flatten()
                    .unwrap_or_default(),
            ),
        };
        let discovered = grants.discover(&server, wanted).await;
        let discovered = discovered.map_err(|error| failed(server.name(), &error))?;
        let scopes = scopes(method, wanted, &discovered);
        let target = method.target(discovered.resource, scopes);
        let is_dpop = discovered.needs_proofs;
        Ok(Self {
            provider: discovered.provider,
            target,
            is_dpop,
            server,
        })
    }

    /// Asks an identity provider for its requirements.
    ///
    /// # Errors
    ///
    /// If there is no such identity provider, or it does not answer.
    pub(crate) async fn identity(
        grants: &Grants,
        issuer: &str,
        is_lasting: bool,
    ) -> Result<Self, SignInError> {
        let server = grants
            .identity_provider(issuer)
            .ok_or(SignInError::NoServer)?;
        let discovered = grants.discover(&server, &Wanted::default()).await;
        let discovered = discovered.map_err(|error| failed(server.name(), &error))?;
        Self::of_identity(server, discovered, is_lasting)
    }

    /// The offer for a sign-in that identifies the user. `discovered` is the answer of the identity
    /// provider.
    pub(crate) fn of_identity(
        server: Arc<Server>,
        discovered: Discovered,
        is_lasting: bool,
    ) -> Result<Self, SignInError> {
        let method = server.sign_in().ok_or(SignInError::NoServer)?;
        let scopes = method.scopes.as_ref().map(|scopes| {
            // Scopes for the user's name and groups, which policies and roles use.
            let told = ["profile", "email", "groups"].map(Scopes::read);
            let told = told
                .iter()
                .filter(|scope| knows(&discovered.provider, scope))
                .fold(scopes.clone(), |scopes, scope| scopes.with(scope));
            if is_lasting {
                lasting(told, &discovered.provider)
            } else {
                told
            }
        });
        let target = method.target(discovered.resource, scopes);
        Ok(Self {
            provider: discovered.provider,
            target,
            is_dpop: false,
            server,
        })
    }

    /// The authorization server.
    pub(crate) fn provider(&self) -> &Provider {
        &self.provider
    }

    /// The name of the server.
    #[must_use]
    pub fn server(&self) -> &str {
        self.server.name()
    }

    /// The URL of the server.
    #[must_use]
    pub fn url(&self) -> &Url {
        &self.server.settings.url
    }

    /// The authorization server.
    #[must_use]
    pub fn issuer(&self) -> &str {
        &self.provider.issuer
    }

    /// The requested scopes; `None` if the authorization server chooses them.
    #[must_use]
    pub fn scopes(&self) -> Option<&Scopes> {
        self.target.scopes.as_ref()
    }

    /// Bytes that differ for offers that a user could tell apart.
    pub(crate) fn digest(&self) -> Vec<u8> {
        let scopes = self.scopes().map(ToString::to_string).unwrap_or_default();
        let parts = [self.server(), self.url().as_str(), self.issuer(), &scopes];
        aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, parts.join("\n").as_bytes())
            .as_ref()
            .to_vec()
    }

    /// Begins the sign-in of a user who has agreed. `browser` identifies the browser in which the
    /// user agreed.
    ///
    /// # Errors
    ///
    /// If there is no OAuth client, or the authorization server cannot be used.
    pub async fn begin(
        self,
        grants: &Grants,
        principal: &[u8],
        callback: &Callback,
        browser: &[u8],
    ) -> Result<Begun, SignInError> {
        let client = self.client(grants, callback).await?;
        let request = self.request(&client, &callback.redirect_uri)?;
        let Self {
            server,
            provider,
            is_dpop,
            ..
        } = self;
        let is_configured = server.has_configured_client();
        let proof_key = is_dpop
            .then(ProofKey::generate)
            .transpose()
            .map_err(|error| failed(server.name(), &error))?;
        let given_for = GivenFor {
            origin: server.origin(),
            client_id: client.client_id.clone(),
        };
        let record = BegunSignIn {
            proof_key,
            principal: principal.to_vec(),
            server: server.name().to_owned(),
            provider,
            client: (!is_configured).then_some(client),
            browser: browser.to_vec(),
            rules: 0,
            expires: SystemTime::now() + SIGN_IN_TIME,
            request,
            given_for,
        };
        Ok(Begun {
            location: record.request.url.clone(),
            record,
        })
    }

    /// The request that the browser takes to the authorization server, for this client.
    fn request(
        &self,
        client: &ClientRegistration,
        redirect_uri: &Url,
    ) -> Result<AuthorizationRequest, SignInError> {
        authorization_request(&self.provider, client, redirect_uri, self.target.clone())
            .map_err(|error| failed(self.server(), &error))
    }

    /// The request that the browser takes to the identity provider, to identify its user.
    pub(crate) fn identity_request(
        &self,
        client: &ClientRegistration,
        redirect_uri: &Url,
    ) -> Result<AuthorizationRequest, SignInError> {
        let mut request = self
            .request(client, redirect_uri)?
            .with_nonce()
            .map_err(|error| failed(self.server(), &error))?;
        if self
            .scopes()
            .is_some_and(|scopes| scopes.include(&Scopes::read(LASTING)))
        {
            // Without this prompt the provider ignores the scope (OpenID Connect Core 1.0, 11).
            request
                .url
                .query_pairs_mut()
                .append_pair("prompt", "consent");
        }
        Ok(request)
    }

    /// The client with which users sign in.
    pub(crate) async fn client(
        &self,
        grants: &Grants,
        callback: &Callback,
    ) -> Result<ClientRegistration, SignInError> {
        match self.configured_client()? {
            Some(client) => Ok(client),
            None => client_at(grants, &self.server, &self.provider, callback).await,
        }
    }

    /// The client that the operator has registered, if any.
    pub(crate) fn configured_client(&self) -> Result<Option<ClientRegistration>, SignInError> {
        let method = self.server.sign_in().ok_or(SignInError::NoServer)?;
        Ok(method.configured(&self.provider))
    }

    /// Registers a client whose browsers return to `redirect_uri`.
    pub(crate) async fn register(
        &self,
        redirect_uri: &Url,
    ) -> Result<ClientRegistration, SignInError> {
        registered(&self.server, &self.provider, redirect_uri).await
    }

    /// Redeems the browser's answer to `request`. Returns the user whom the identity provider
    /// identified, and the tokens.
    pub(crate) async fn identify(
        &self,
        client: &ClientRegistration,
        request: &AuthorizationRequest,
        brought: &CallbackParameters,
        authenticate: &dyn Authenticate,
    ) -> Result<(Arc<Identity>, TokenSet), SignInError> {
        let (requests, provider) = (&self.server.requests, &self.provider);
        let asking = Client {
            requests,
            provider,
            registration: client,
            proof_key: None,
        };
        let tokens = asking
            .redeem(request, brought)
            .await
            .map_err(|error| failed(self.server(), &error))?;
        let none = || SignInError::NotIdentified("the identity provider sent no ID token".into());
        let (token, nonce) = tokens
            .id_token
            .as_ref()
            .zip(request.nonce.as_ref())
            .ok_or_else(none)?;
        let shown = IdToken {
            token: token.expose(),
            issuer: &request.issuer,
            client_id: &client.client_id,
            nonce: nonce.expose(),
        };
        let issuer = request.issuer.as_str();
        let identified = authenticate.identify(shown).await;
        let identity = identified.map_err(|error| match error {
            Unidentified::Refused(text) => {
                info!(
                    issuer,
                    reason = &*text,
                    "an identity provider did not identify a user"
                );
                SignInError::NotIdentified(text)
            }
            Unidentified::Unavailable(text) => {
                warn!(issuer, reason = &*text, "cannot identify a user");
                SignInError::Failed {
                    reason: text.into_owned(),
                }
            }
        })?;
        Ok((identity, tokens))
    }

    /// Stores a user's tokens from an identity provider, which are exchanged for servers' tokens.
    pub(crate) async fn keep_identity(
        self,
        grants: &Grants,
        principal: &[u8],
        tokens: TokenSet,
        registration: ClientRegistration,
    ) -> Result<(), SignInError> {
        let Self {
            server,
            provider,
            target,
            ..
        } = self;
        let owner = Owner::new(principal, server.name());
        let given_for = GivenFor {
            origin: server.origin(),
            client_id: registration.client_id.clone(),
        };
        let client = (!server.has_configured_client()).then_some(registration);
        let granted = Granted {
            provider,
            client,
            target,
            proof_key: None,
            given_for,
        };
        let (in_use, of) = (grants.clone(), owner.clone());
        let kept = async move {
            granted
                .keep(&in_use, &of, tokens.ending_with_id_token())
                .await
        };
        grants.on_record(GrantChangeKind::SignIn, owner, kept).await
    }
}

impl Begun {
    /// Whether this answer belongs to this sign-in and no other.
    #[must_use]
    pub fn is_for(&self, callback: &CallbackParameters) -> bool {
        callback.state() == Some(self.record.request.state.expose())
    }

    /// Ends the sign-in with the browser's answer, and stores the user's tokens.
    ///
    /// # Errors
    ///
    /// If this is no answer of the authorization server to this sign-in, or the server refuses it.
    pub async fn finish(
        self,
        grants: &Grants,
        callback: CallbackParameters,
    ) -> Result<String, SignInError> {
        let owner = Owner::new(&self.record.principal, &self.record.server);
        let (in_use, of) = (grants.clone(), owner.clone());
        // Boxed: otherwise the page's future would contain it several times.
        let redeemed = Box::pin(async move {
            self.redeem(&in_use, &of, &callback).await?;
            Ok(of.server().to_owned())
        });
        grants
            .on_record(GrantChangeKind::SignIn, owner, redeemed)
            .await
    }

    async fn redeem(
        self,
        grants: &Grants,
        owner: &Owner,
        callback: &CallbackParameters,
    ) -> Result<(), SignInError> {
        let BegunSignIn {
            provider,
            client,
            proof_key,
            request,
            given_for,
            ..
        } = self.record;
        let server = grants.server(owner.server()).ok_or(SignInError::NoServer)?;
        let changed = "the server, or the way of signing in to it, has changed since this sign-in began; start it again";
        let registration = server.registration_at(&provider, client.as_ref(), &given_for);
        let registration = registration.filter(|_| server.is_meant(&provider, &given_for));
        let registration = registration.ok_or(SignInError::NotUsed(changed))?;
        let (requests, proof_key_of) = (&server.requests, proof_key.as_ref());
        let asking = Client {
            requests,
            provider: &provider,
            registration: &registration,
            proof_key: proof_key_of,
        };
        let tokens = asking
            .redeem(&request, callback)
            .await
            .map_err(|error| failed(server.name(), &error))?;
        let AuthorizationRequest { target, .. } = request;
        Granted {
            provider,
            client,
            target,
            proof_key,
            given_for,
        }
        .keep(grants, owner, tokens)
        .await
    }
}

/// The parts of a user's grant that do not change with its tokens.
struct Granted {
    provider: Provider,
    /// `None` for the configured client.
    client: Option<ClientRegistration>,
    target: TokenTarget,
    proof_key: Option<ProofKey>,
    given_for: GivenFor,
}

impl Granted {
    async fn keep(
        self,
        grants: &Grants,
        owner: &Owner,
        tokens: TokenSet,
    ) -> Result<(), SignInError> {
        let Self {
            provider,
            client,
            target,
            proof_key,
            given_for,
        } = self;
        let now = SystemTime::now();
        let grant = Grant {
            provider,
            client,
            target,
            issued: now,
            tokens,
            proof_key,
            since: now,
            given_for,
        };
        grants.keep_grant(owner, &grant).await
    }
}

/// The scopes to request: the configured ones, the ones that the server requires now, or all that
/// it has. A scope for a lasting sign-in is added (2026-07-28 basic/authorization, Refresh Tokens).
fn scopes(method: &SignInMethod, wanted: &Wanted, discovered: &Discovered) -> Option<Scopes> {
    let scopes = match (&method.scopes, &wanted.scopes) {
        (Some(configured), Some(wanted)) => configured.with(wanted),
        (Some(configured), None) => configured.clone(),
        (None, _) => discovered.scopes.clone()?,
    };
    Some(lasting(scopes, &discovered.provider))
}

/// These scopes, with the one for a lasting sign-in if the authorization server supports it.
fn lasting(scopes: Scopes, provider: &Provider) -> Scopes {
    let lasting = Scopes::read(LASTING);
    if knows(provider, &lasting) {
        scopes.with(&lasting)
    } else {
        scopes
    }
}

/// Whether an authorization server says that it has these scopes.
fn knows(provider: &Provider, scopes: &Scopes) -> bool {
    let supported = provider.scopes_supported.iter().flatten();
    supported.cloned().collect::<Scopes>().include(scopes)
}

/// A client that is not configured: by a metadata document, an earlier registration, or a new one
/// (2026-07-28 basic/authorization/client-registration).
async fn client_at(
    grants: &Grants,
    server: &Server,
    provider: &Provider,
    callback: &Callback,
) -> Result<ClientRegistration, SignInError> {
    let document = callback
        .document
        .as_ref()
        .filter(|_| provider.client_id_metadata_document_supported);
    if let Some(document) = document {
        return Ok(ClientRegistration::of_document(provider, document, None));
    }
    let place = Owner::nobody(&format!("{} {}", provider.issuer, callback.redirect_uri));
    if !callback.is_for_once {
        let known = grants
            .store()
            .get::<RegisteredClient>(&place)
            .await
            .map_err(|error| unkept(&error))?;
        if let Some(RegisteredClient(client)) = known.filter(|known| known.0.is_valid_at(provider))
        {
            return Ok(client);
        }
    }
    let client = registered(server, provider, &callback.redirect_uri).await?;
    if !callback.is_for_once {
        let kept = grants
            .store()
            .put(&place, &RegisteredClient(client.clone()))
            .await;
        kept.map_err(|error| unkept(&error))?;
    }
    Ok(client)
}

/// A client that is registered now.
async fn registered(
    server: &Server,
    provider: &Provider,
    redirect_uri: &Url,
) -> Result<ClientRegistration, SignInError> {
    if provider.registration_endpoint.is_none() {
        return Err(SignInError::NoClient {
            issuer: provider.issuer.clone(),
            redirect_uri: redirect_uri.clone(),
        });
    }
    let metadata = ClientMetadata::of_code_client(CLIENT_NAME, redirect_uri);
    let registered = register(&server.requests, provider, &metadata).await;
    registered.map_err(|error| failed(server.name(), &error))
}
