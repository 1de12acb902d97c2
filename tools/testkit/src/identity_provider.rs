//! An identity provider on loopback: an authorization server that signs access tokens and ID tokens
//! for a user whom the test chooses.

use std::collections::HashSet;
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};

use crate::authorization_server::{Asked, AuthorizationServer, payload, with};
use crate::issuer::{SigningKey, base64url, seconds_from_now};

/// The audience of its access tokens.
pub const AUDIENCE: &str = "fanlight-clients";

/// A running identity provider.
pub struct IdentityProvider {
    /// The authorization server, with its requests and its conduct.
    pub server: Arc<AuthorizationServer>,
    signing: Arc<Signing>,
}

struct Signing {
    issuer: String,
    key: SigningKey,
    state: Mutex<State>,
}

struct State {
    /// The user at the browser.
    user: String,
    /// Members that are added to ID tokens or replace their members.
    claims: Value,
    signature: Signature,
    /// The lifetime in seconds of access tokens for a code.
    lifetime: u64,
    /// Users who have left; their tokens are refused.
    gone: HashSet<String>,
}

/// The signature of ID tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signature {
    /// By the published key.
    Good,
    /// By an unpublished key with the same name.
    OfAnotherKey,
    /// No signature, as `alg` says.
    None,
}

impl IdentityProvider {
    /// Starts a provider that signs in `ann`.
    pub async fn start() -> Self {
        let server = Arc::new(AuthorizationServer::start().await);
        let key = SigningKey::es256("key-0");
        server.publish("/keys", json!({ "keys": [key.jwk()] }));
        server.describe(json!({
            "jwks_uri": format!("{}/keys", server.url()), "scopes_supported": ["openid", "offline_access"],
        }));
        let state = Mutex::new(State {
            user: "ann".to_owned(),
            claims: json!({}),
            signature: Signature::Good,
            lifetime: 3600,
            gone: HashSet::new(),
        });
        let signing = Arc::new(Signing {
            issuer: server.url().to_owned(),
            key,
            state,
        });
        let (answers, asked) = (Arc::clone(&signing), Arc::downgrade(&server));
        server.on_token(move |token| {
            // The nonce belongs to the sign-in that began last.
            let begun = asked
                .upgrade()
                .map(|server| server.asked("/authorize"))
                .unwrap_or_default();
            answers.tokens(
                token,
                begun.last().and_then(|asked| asked.parameter("nonce")),
            )
        });
        Self { server, signing }
    }

    /// The issuer.
    pub fn url(&self) -> &str {
        self.server.url()
    }

    /// Puts another user at the browser from now on.
    pub fn signs_in(&self, user: &str) {
        self.signing.state.lock().unwrap().user = user.to_owned();
    }

    /// Adds or replaces members of ID tokens from now on; null removes one.
    pub fn changes_id_tokens(&self, claims: Value) {
        self.signing.state.lock().unwrap().claims = claims;
    }

    /// Sets the signature of ID tokens from now on.
    pub fn signs(&self, signature: Signature) {
        self.signing.state.lock().unwrap().signature = signature;
    }

    /// Sets the lifetime in seconds of access tokens for a code from now on.
    pub fn lifetime(&self, seconds: u64) {
        self.signing.state.lock().unwrap().lifetime = seconds;
    }

    /// Removes a user: all of the user's tokens are refused.
    pub fn removes(&self, user: &str) {
        self.signing
            .state
            .lock()
            .unwrap()
            .gone
            .insert(user.to_owned());
    }

    /// The requests for tokens with this kind of grant.
    pub fn asked_for_tokens(&self, grant: &str) -> Vec<Asked> {
        let asked = self.server.asked("/token").into_iter();
        asked
            .filter(|asked| {
                asked
                    .parameter("grant_type")
                    .is_some_and(|given| given.ends_with(grant))
            })
            .collect()
    }

    /// An access token of this user's client.
    pub fn access_token(&self, user: &str) -> String {
        self.access_token_with(user, &json!({}))
    }

    /// An access token of this user's client, with further claims.
    pub fn access_token_with(&self, user: &str, claims: &Value) -> String {
        let now = seconds_from_now(0);
        let own = json!({
            "iss": self.url(), "sub": user, "aud": AUDIENCE, "scope": "", "iat": now, "exp": now + 3600,
            "jti": format!("{:016x}", fastrand::u64(..)),
        });
        self.signing
            .sign(&with(own, claims), "at+jwt", Signature::Good)
    }

    /// The lines of a configuration that accepts the provider's tokens and signs users in there
    /// with these settings.
    pub fn lines(&self, sign_in: &str) -> String {
        let entry = format!(
            "{{issuer: \"{}\", audience: [{AUDIENCE}]{sign_in}}}",
            self.url()
        );
        format!("auth: {{oauth: [{entry}]}}\n")
    }
}

/// The type of identity assertions.
const ID_JAG: &str = "urn:ietf:params:oauth:token-type:id-jag";

/// The user of a token.
fn user_of(token: &str) -> String {
    let claims = payload(token);
    let named = token
        .split("-of-")
        .nth(1)
        .and_then(|rest| rest.split('-').next());
    claims["sub"]
        .as_str()
        .or(named)
        .unwrap_or_default()
        .to_owned()
}

impl Signing {
    fn sign(&self, claims: &Value, kind: &str, signature: Signature) -> String {
        let header = json!({ "alg": self.key.algorithm(), "typ": kind, "kid": self.key.id() });
        match signature {
            Signature::Good => self.key.sign(&header, claims),
            Signature::OfAnotherKey => SigningKey::es256(self.key.id()).sign(&header, claims),
            Signature::None => {
                let part = |value: &Value| base64url(value.to_string().as_bytes());
                format!(
                    "{}.{}.",
                    part(&json!({ "alg": "none", "typ": kind })),
                    part(claims)
                )
            }
        }
    }

    fn tokens(&self, asked: &Asked, nonce: Option<&str>) -> (u16, Value) {
        let (now, number) = (seconds_from_now(0), fastrand::u64(..));
        let (at_browser, changed, signature, lifetime, gone) = {
            let state = self.state.lock().unwrap();
            let State {
                user,
                claims,
                signature,
                lifetime,
                gone,
            } = &*state;
            (
                user.clone(),
                claims.clone(),
                *signature,
                *lifetime,
                gone.clone(),
            )
        };
        let shown = asked
            .parameter("subject_token")
            .or(asked.parameter("refresh_token"));
        let (user, lifetime) = shown.map_or((at_browser, lifetime), |token| (user_of(token), 3600));
        if gone.contains(&user) {
            return (400, json!({ "error": "invalid_grant" }));
        }
        if asked.parameter("requested_token_type") == Some(ID_JAG) {
            return (
                200,
                json!({ "access_token": format!("jag-of-{user}"), "issued_token_type": ID_JAG, "token_type": "N_A" }),
            );
        }
        if asked.parameter("subject_token").is_some() {
            let token = format!("exchanged-of-{user}-{number:016x}");
            return (
                200,
                json!({ "access_token": token, "token_type": "Bearer", "expires_in": 3600 }),
            );
        }
        let client = asked.parameter("client_id").unwrap_or("fanlight");
        let claims = json!({
            "iss": self.issuer, "sub": user, "aud": client, "nonce": nonce, "iat": now, "exp": now + 3600,
        });
        let id_token = self.sign(&with(claims, &changed), "JWT", signature);
        let tokens = json!({
            "access_token": format!("at-of-{user}-{number:016x}"), "refresh_token": format!("rt-of-{user}-{number:016x}"),
            "token_type": "Bearer", "expires_in": lifetime, "id_token": id_token,
        });
        (200, tokens)
    }
}
