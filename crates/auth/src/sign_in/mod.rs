//! Operators' sign-in at an OpenID Connect issuer, with the authorization code flow and PKCE; and
//! ID tokens of users.
//!
//! Sources: OpenID Connect Core 1.0, 3.1; RFC 6749, 4.1; RFC 7636; RFC 9207; RFC 9700, 2.1.

pub(crate) mod id_token;
mod provider;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::SystemTime;

use aws_lc_rs::constant_time::verify_slices_are_equal;
use aws_lc_rs::digest::{SHA256, digest};
use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use fanlight_canonical::credentials::{
    Attempt, Begun, IssuerAnswer, SignIn, SignInError, SignInSettings, Signing,
};
use fanlight_canonical::identity::Identity;
use http::{HeaderValue, StatusCode};
use tokio_util::sync::CancellationToken;
use url::form_urlencoded::{Serializer, byte_serialize};

use self::id_token::Expected;
use self::provider::{Provider, Providers};
use crate::issuer::{FetchError, IssuerClient, KeyStore};
use crate::json;
use crate::oauth_settings::OAuthLimits;

/// The length limit of a forwarded authorization code.
const LONGEST_CODE: usize = 8 << 10;

/// Signs operators in at one issuer.
#[derive(Debug)]
pub struct OpenIdConnect {
    settings: SignInSettings,
    client: Arc<IssuerClient>,
    keys: Arc<KeyStore>,
    providers: Arc<Providers>,
    limits: OAuthLimits,
    /// Whether the last attempt to read metadata or to redeem a code failed.
    metadata_failed: AtomicBool,
    exchange_failed: AtomicBool,
}

impl OpenIdConnect {
    /// Signs operators in at the issuer of `settings`, within `limits`. The first sign-in causes
    /// the first request.
    #[must_use]
    pub fn new(settings: SignInSettings, limits: OAuthLimits) -> Self {
        let client = Arc::new(IssuerClient::new(&settings.issuer, limits.request));
        // Other rules end operators' sessions than their ID token, which is used once.
        let revoked = CancellationToken::new();
        let keys = Arc::new(KeyStore::new(
            settings.issuer.clone(),
            None,
            limits,
            Arc::clone(&client),
            revoked,
        ));
        Self {
            settings,
            client,
            keys,
            providers: Arc::default(),
            limits,
            metadata_failed: AtomicBool::new(false),
            exchange_failed: AtomicBool::new(false),
        }
    }

    async fn provider(&self) -> Result<Arc<Provider>, SignInError> {
        let provider = self
            .providers
            .get(&self.client, &self.settings.issuer)
            .await;
        self.asked(&self.metadata_failed, provider)
    }

    async fn begin(&self) -> Result<Begun, SignInError> {
        let provider = self.provider().await?;
        let [state, nonce, verifier] = [secret()?, secret()?, secret()?];
        let challenge = URL_SAFE_NO_PAD.encode(digest(&SHA256, verifier.as_bytes()));
        let mut location = provider.authorization.clone();
        location
            .query_pairs_mut()
            .append_pair("response_type", "code")
            .append_pair("client_id", &self.settings.client_id)
            .append_pair("redirect_uri", &self.settings.redirect_uri)
            .append_pair("scope", &self.scope())
            .append_pair("state", &state)
            .append_pair("nonce", &nonce)
            .append_pair("code_challenge", &challenge)
            .append_pair("code_challenge_method", "S256");
        Ok(Begun {
            location: location.into(),
            attempt: Attempt {
                state,
                nonce,
                verifier,
            },
        })
    }

    fn scope(&self) -> String {
        let further = self
            .settings
            .scopes
            .iter()
            .map(String::as_str)
            .filter(|scope| *scope != "openid");
        ["openid"]
            .into_iter()
            .chain(further)
            .collect::<Vec<_>>()
            .join(" ")
    }

    async fn finish(
        &self,
        attempt: &Attempt,
        answer: IssuerAnswer<'_>,
    ) -> Result<Arc<Identity>, SignInError> {
        let is_state = |state: &str| {
            verify_slices_are_equal(state.as_bytes(), attempt.state.as_bytes()).is_ok()
        };
        if !answer.state.is_some_and(is_state) {
            return Err(refused(
                "the issuer's answer does not belong to this sign-in: begin again",
            ));
        }
        let provider = self.provider().await?;
        // Otherwise another issuer's answer could make Fanlight redeem this issuer's code there
        // (RFC 9207, 2.4).
        let is_own = match answer.iss {
            Some(iss) => iss == self.settings.issuer,
            None => !provider.names_itself,
        };
        if !is_own {
            return Err(refused("the answer is of another issuer"));
        }
        if let Some(error) = answer.error {
            let is_code = error.len() <= 64
                && error
                    .bytes()
                    .all(|byte| byte.is_ascii_lowercase() || byte == b'_');
            let error = if is_code { error } else { "an unknown error" };
            return Err(SignInError::Refused(
                format!("the issuer has not signed you in ({error})").into(),
            ));
        }
        let code = answer
            .code
            .filter(|code| !code.is_empty() && code.len() <= LONGEST_CODE);
        let code = code.ok_or_else(|| refused("the issuer's answer has no code"))?;
        let token = self.exchange(&provider, code, &attempt.verifier).await?;
        let expected = Expected {
            issuer: &self.settings.issuer,
            client: &self.settings.client_id,
            nonce: &attempt.nonce,
            leeway: self.limits.leeway,
            now: SystemTime::now(),
        };
        id_token::operator(&token, &self.keys, &expected, &self.settings)
            .await
            .map(Arc::new)
    }

    /// Redeems a code for the ID token.
    async fn exchange(
        &self,
        provider: &Provider,
        code: &str,
        verifier: &str,
    ) -> Result<String, SignInError> {
        let (authorization, credentials) = self.credentials(provider)?;
        let redirect = self.settings.redirect_uri.as_str();
        let form = Serializer::new(String::new())
            .extend_pairs([
                ("grant_type", "authorization_code"),
                ("code", code),
                ("redirect_uri", redirect),
            ])
            .append_pair("code_verifier", verifier)
            .extend_pairs(credentials)
            .finish();
        let answer = self.client.post(&provider.token, authorization, form).await;
        if matches!(answer, Err(FetchError::Status(StatusCode::BAD_REQUEST))) {
            return Err(refused("the issuer does not accept the code: begin again"));
        }
        let answer = answer.and_then(|answer| json::object(answer).ok_or(FetchError::Malformed));
        let token = answer.and_then(|answer| {
            json::text(&answer, "id_token").ok_or(FetchError::Missing("the ID token"))
        });
        self.asked(&self.exchange_failed, token)
    }

    /// The client's authentication at the token endpoint (RFC 6749, 2.3.1): a header, or members of
    /// the form.
    fn credentials(&self, provider: &Provider) -> Result<ClientCredentials<'_>, SignInError> {
        let id = self.settings.client_id.as_str();
        let Some(secret) = &self.settings.client_secret else {
            return Ok((None, vec![("client_id", id)]));
        };
        if provider.takes_secret_in_form {
            return Ok((None, vec![("client_id", id), ("client_secret", secret)]));
        }
        let encoded = |text: &str| byte_serialize(text.as_bytes()).collect::<String>();
        let value = HeaderValue::try_from(format!(
            "Basic {}",
            STANDARD.encode(format!("{}:{}", encoded(id), encoded(secret)))
        ));
        let mut value = value.map_err(|_| refused("the client's secret cannot be sent"))?;
        value.set_sensitive(true);
        Ok((Some(value), Vec::new()))
    }

    /// The error for operators if the issuer has not answered. The log has the reason, once until
    /// it answers again, since anybody can cause such requests.
    fn asked<T>(
        &self,
        failed: &AtomicBool,
        outcome: Result<T, FetchError>,
    ) -> Result<T, SignInError> {
        let issuer = &self.settings.issuer;
        let had_failed = failed.swap(outcome.is_err(), Ordering::Relaxed);
        match &outcome {
            Err(error) if !had_failed => {
                tracing::warn!(issuer, %error, "the issuer of operators cannot be asked")
            }
            Ok(_) if had_failed => {
                tracing::info!(issuer, "the issuer of operators can be asked again")
            }
            _ => {}
        }
        outcome.map_err(|_| {
            SignInError::Unavailable(
                "the issuer cannot be asked at the moment: the log of Fanlight says why".into(),
            )
        })
    }
}

/// A header field, and members of the form.
type ClientCredentials<'a> = (Option<HeaderValue>, Vec<(&'static str, &'a str)>);

impl SignIn for OpenIdConnect {
    fn begin(&self) -> Signing<'_, Begun> {
        Box::pin(self.begin())
    }

    fn finish<'a>(
        &'a self,
        attempt: &'a Attempt,
        answer: IssuerAnswer<'a>,
    ) -> Signing<'a, Arc<Identity>> {
        Box::pin(self.finish(attempt, answer))
    }
}

/// 256 random bits in the characters that RFC 7636, 4.1, allows.
fn secret() -> Result<String, SignInError> {
    let mut bytes = [0; 32];
    let none = |_| SignInError::Unavailable("the system has no random numbers".into());
    aws_lc_rs::rand::fill(&mut bytes).map_err(none)?;
    Ok(URL_SAFE_NO_PAD.encode(bytes))
}

fn refused(text: &'static str) -> SignInError {
    SignInError::Refused(text.into())
}

#[cfg(test)]
mod tests;
