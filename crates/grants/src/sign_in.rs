//! Signs a user in at a server's authorization server: the scopes, the client and the tokens. The
//! caller asks the user and receives the browser: [`SignInPages`](crate::SignInPages) or a command.

use std::sync::Arc;
use std::time::SystemTime;

use fanlight_canonical::identity::Identity;
use fanlight_credentials::{Authenticate, IdToken, SignInError as Unidentified};
use fanlight_protocol::digest::{sha256, sha256_hex};
use tracing::{info, warn};
use url::Url;

use crate::error::{SignInError, sign_in_error, unusable};
use crate::links::join_path;
use crate::oauth::{
    AuthorizationRequest, CallbackParameters, Challenge, Client, ClientRegistration, Discovered,
    ProofKey, Provider, Scopes, TokenSet, TokenTarget, authorization_request,
};
use crate::peers::{Peers, forget_client, registered};
use crate::record::{BegunSignIn, GivenFor, Grant, SIGN_IN_TIME};
use crate::server::{Server, SignInMethod, Wanted};
use crate::{GrantChangeKind, Grants, Owner, Store, uses};

/// The scope for a lasting sign-in (OpenID Connect Core 1.0, 11).
const LASTING: &str = "offline_access";

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

/// The redirect URIs of browsers, and Fanlight's client metadata.
///
/// Each issuer has a redirect URI of its own: otherwise it could send browsers on to another issuer,
/// and would get that one's code together with the verifier (RFC 9700, 4.4). Each has a metadata
/// document of its own as well, since a document lists the redirect URIs that its client may use.
#[derive(Clone, Debug)]
pub struct Callback {
    /// The URL to which browsers are sent back, with the issuer's name below it.
    pub shared: Url,
    /// The URL of Fanlight's client metadata, if authorization servers can read it, with the
    /// issuer's name below it.
    pub documents: Option<Url>,
    /// Whether the redirect URIs are for this sign-in only, so that a registration for them is
    /// useless afterwards.
    pub is_for_once: bool,
}

/// The characters of an issuer's name in URLs.
const ISSUER_NAME: usize = 32;

/// The name of an issuer in URLs.
pub fn issuer_name(issuer: &str) -> String {
    let mut name = sha256_hex(issuer);
    name.truncate(ISSUER_NAME);
    name
}

/// Whether a text could be the name of an issuer in URLs.
pub(crate) fn is_issuer_name(text: &str) -> bool {
    let is_digit = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
    text.len() == ISSUER_NAME && text.bytes().all(is_digit)
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
            None => Wanted::from_challenge(
                &Challenge::fetch(&server.requests, &server.settings.url)
                    .await
                    .ok()
                    .flatten()
                    .unwrap_or_default(),
            ),
        };
        let discovered = grants.discover(&server, wanted).await;
        let discovered = discovered.map_err(|error| SignInError::from(&error))?;
        let provider = &discovered.provider;
        let usable = provider.sign_in_endpoint();
        usable.map_err(|error| sign_in_error(server.name(), &error))?;
        uses::check(grants, &server, provider, &discovered.resource).await?;
        let scopes = scopes(method, wanted, &discovered);
        Ok(Self {
            provider: discovered.provider,
            target: method.target(discovered.resource, scopes),
            is_dpop: discovered.needs_proofs,
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
        let discovered = discovered.map_err(|error| SignInError::from(&error))?;
        Self::from_discovered(server, discovered, is_lasting)
    }

    /// The offer for a sign-in that identifies the user. `discovered` is the answer of the identity
    /// provider.
    pub(crate) fn from_discovered(
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
                .fold(scopes.clone(), |scopes, scope| scopes.union(scope));
            if is_lasting {
                lasting(told, &discovered.provider)
            } else {
                told
            }
        });
        Ok(Self {
            provider: discovered.provider,
            target: method.target(discovered.resource, scopes),
            is_dpop: false,
            server,
        })
    }

    /// The name of the server.
    pub fn server(&self) -> &str {
        self.server.name()
    }

    /// The URL of the server.
    pub fn url(&self) -> &Url {
        &self.server.settings.url
    }

    /// The authorization server.
    pub fn issuer(&self) -> &str {
        &self.provider.issuer
    }

    /// The requested scopes; `None` if the authorization server chooses them.
    pub fn scopes(&self) -> Option<&Scopes> {
        self.target.scopes.as_ref()
    }

    /// A digest of everything that a user sees of an offer.
    pub(crate) fn digest(&self) -> Vec<u8> {
        let scopes = self.scopes().map(ToString::to_string).unwrap_or_default();
        let parts = [self.server(), self.url().as_str(), self.issuer(), &scopes];
        sha256([parts.join("\n")]).to_vec()
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
        let store = Some(grants.store());
        let client = self.client(grants.peers(), store, callback).await?;
        let request = self.request(&client, &self.redirect_uri(callback)?)?;
        uses::note(grants.store(), &self.server, &self.provider).await?;
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
            .map_err(|error| sign_in_error(server.name(), &error))?;
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
            .map_err(|error| sign_in_error(self.server(), &error))
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
            .map_err(|error| sign_in_error(self.server(), &error))?;
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

    /// The URL to which this authorization server sends browsers back.
    pub(crate) fn redirect_uri(&self, callback: &Callback) -> Result<Url, SignInError> {
        let method = self.server.sign_in().ok_or(SignInError::NoServer)?;
        if method.returns_to_shared(&self.provider) {
            return Ok(callback.shared.clone());
        }
        join_path(
            &callback.shared,
            &format!("/{}", issuer_name(self.issuer())),
        )
        .ok_or_else(unusable)
    }

    /// The client with which users sign in: the configured one, one by a metadata document, or a
    /// registered one (2026-07-28 basic/authorization/client-registration).
    pub(crate) async fn client(
        &self,
        peers: &Peers,
        store: Option<&Store>,
        callback: &Callback,
    ) -> Result<ClientRegistration, SignInError> {
        let (server, provider) = (&self.server, &self.provider);
        if let Some(client) = self.configured_client()? {
            return Ok(client);
        }
        let reads_documents = provider.client_id_metadata_document_supported;
        if let Some(documents) = callback.documents.as_ref().filter(|_| reads_documents) {
            let document = join_path(documents, &format!("/{}.json", issuer_name(self.issuer())));
            let document = document.ok_or_else(unusable)?;
            return Ok(ClientRegistration::from_document(provider, &document, None));
        }
        let redirect_uri = self.redirect_uri(callback)?;
        if provider.registration_endpoint.is_none() {
            return Err(SignInError::NoClient {
                issuer: provider.issuer.clone(),
                redirect_uri,
            });
        }
        if callback.is_for_once {
            let registered = registered(server, provider, &redirect_uri).await;
            return registered.map_err(|error| sign_in_error(server.name(), &error));
        }
        peers.client(server, provider, &redirect_uri, store).await
    }

    /// The client that the operator has registered, if any.
    pub(crate) fn configured_client(&self) -> Result<Option<ClientRegistration>, SignInError> {
        let method = self.server.sign_in().ok_or(SignInError::NoServer)?;
        Ok(method.configured_client(&self.provider))
    }

    /// Whether the operator has registered the client.
    pub(crate) fn has_configured_client(&self) -> bool {
        self.server.has_configured_client()
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
        let asking = Client {
            requests: &self.server.requests,
            provider: &self.provider,
            registration: client,
            proof_key: None,
        };
        let tokens = asking
            .redeem(request, brought)
            .await
            .map_err(|error| sign_in_error(self.server(), &error))?;
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
        let now = SystemTime::now();
        let grant = Grant {
            provider,
            target,
            issued: now,
            since: now,
            tokens: tokens.ending_with_id_token(),
            proof_key: None,
            given_for: GivenFor {
                origin: server.origin(),
                client_id: registration.client_id.clone(),
            },
            client: (!server.has_configured_client()).then_some(registration),
        };
        let (in_use, of) = (grants.clone(), owner.clone());
        let kept = async move { in_use.keep_grant(&of, &grant).await };
        grants.on_record(GrantChangeKind::SignIn, owner, kept).await
    }
}

impl Begun {
    /// Whether an answer, which came to this path, belongs to exactly this sign-in.
    pub fn is_for(&self, path: &str, callback: &CallbackParameters) -> bool {
        let request = &self.record.request;
        request.returns_to(path) && callback.state() == Some(request.state.expose())
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
        let tokens = match asking.redeem(&request, callback).await {
            Ok(tokens) => tokens,
            Err(error) => {
                if let Some(client) = &client
                    && forget_client(grants.store(), client, &error).await?
                {
                    grants.peers().forget_clients_at(&client.issuer);
                }
                return Err(sign_in_error(server.name(), &error));
            }
        };
        let now = SystemTime::now();
        let grant = Grant {
            provider,
            client,
            target: request.target,
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
        (Some(configured), Some(wanted)) => configured.union(wanted),
        (Some(configured), None) => configured.clone(),
        (None, _) => discovered.scopes.clone()?,
    };
    Some(lasting(scopes, &discovered.provider))
}

/// Adds the scope for a lasting sign-in to these scopes, if the authorization server supports it.
fn lasting(scopes: Scopes, provider: &Provider) -> Scopes {
    let lasting = Scopes::read(LASTING);
    if knows(provider, &lasting) {
        scopes.union(&lasting)
    } else {
        scopes
    }
}

/// Whether an authorization server says that it has these scopes.
fn knows(provider: &Provider, scopes: &Scopes) -> bool {
    let supported = provider.scopes_supported.iter().flatten();
    supported.cloned().collect::<Scopes>().include(scopes)
}
