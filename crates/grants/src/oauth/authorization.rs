//! Sends a user's browser to an authorization server, and checks its answer (RFC 6749, 4.1; RFC
//! 7636; RFC 9207).

use aws_lc_rs::constant_time::verify_slices_are_equal;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use fanlight_config::settings::Secret;
use fanlight_protocol::digest::sha256;
use serde::{Deserialize, Serialize};
use url::{Url, form_urlencoded};

use crate::fetch::{display_url, visible};
use crate::oauth::{ClientRegistration, OAuthError, Provider, Scopes, random, sealed};

/// The length limit of a code that is forwarded.
const LONGEST_CODE: usize = 8 << 10;

/// The requested resource and scopes of a token.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TokenTarget {
    /// The server that the token is for (RFC 8707); `None` if the authorization server refuses the
    /// parameter.
    pub resource: Option<String>,
    /// The scopes; `None` to let the authorization server choose them.
    pub scopes: Option<Scopes>,
}

/// A pending sign-in: the data needed when the browser returns. Store it sealed.
#[derive(Clone, Serialize, Deserialize)]
pub struct AuthorizationRequest {
    /// The URL to open in the browser.
    pub url: Url,
    /// The `state` parameter, which the browser has to bring back once.
    #[serde(with = "sealed")]
    pub state: Secret,
    /// The PKCE verifier, which proves that the code was requested here.
    #[serde(with = "sealed")]
    pub verifier: Secret,
    /// The nonce that the ID token must contain, if the user identifies themselves (OpenID Connect
    /// Core 1.0, 3.1.2.1).
    #[serde(default, with = "sealed::optional")]
    pub nonce: Option<Secret>,
    /// The authorization server that the browser is sent to.
    pub issuer: String,
    /// Whether that authorization server names itself in each answer.
    pub names_itself: bool,
    /// The URL to which the browser returns.
    pub redirect_uri: Url,
    /// The requested resource and scopes.
    pub target: TokenTarget,
}

/// The parameters that the browser brought back.
#[derive(Clone, Default)]
pub struct CallbackParameters {
    code: Option<Secret>,
    state: Option<String>,
    iss: Option<String>,
    error: Option<String>,
    error_description: Option<String>,
}

/// Begins a sign-in at `provider`.
///
/// # Errors
///
/// If it has no authorization endpoint, or no PKCE with S256.
pub fn authorization_request(
    provider: &Provider,
    client: &ClientRegistration,
    redirect_uri: &Url,
    target: TokenTarget,
) -> Result<AuthorizationRequest, OAuthError> {
    let mut url = provider.sign_in_endpoint()?.clone();
    let (state, verifier) = (random::text()?, random::text()?);
    url.query_pairs_mut()
        .append_pair("response_type", "code")
        .append_pair("client_id", &client.client_id)
        .append_pair("redirect_uri", redirect_uri.as_str())
        .append_pair("state", &state)
        .append_pair(
            "code_challenge",
            &URL_SAFE_NO_PAD.encode(sha256([&verifier])),
        )
        .append_pair("code_challenge_method", "S256")
        .extend_pairs(target.parameters());
    let (state, verifier, nonce) = (Secret::new(state), Secret::new(verifier), None);
    let (names_itself, redirect_uri) = (
        provider.authorization_response_iss_parameter_supported,
        redirect_uri.clone(),
    );
    Ok(AuthorizationRequest {
        url,
        state,
        verifier,
        nonce,
        issuer: provider.issuer.clone(),
        names_itself,
        redirect_uri,
        target,
    })
}

impl TokenTarget {
    /// The target as request parameters.
    pub(crate) fn parameters(&self) -> Vec<(&'static str, String)> {
        let scopes = self.scopes.as_ref().filter(|scopes| !scopes.is_empty());
        let scope = scopes.map(|scopes| ("scope", scopes.to_string()));
        self.resource
            .iter()
            .map(|resource| ("resource", resource.clone()))
            .chain(scope)
            .collect()
    }
}

impl CallbackParameters {
    /// The parameters in a callback's query; `None` if a significant one occurs twice.
    pub fn from_query(query: &str) -> Option<Self> {
        let mut parameters = Self::default();
        let mut code = None;
        for (name, value) in form_urlencoded::parse(query.as_bytes()) {
            let place = match name.as_ref() {
                "code" => &mut code,
                "state" => &mut parameters.state,
                "iss" => &mut parameters.iss,
                "error" => &mut parameters.error,
                "error_description" => &mut parameters.error_description,
                _ => continue,
            };
            if place.replace(value.into_owned()).is_some() {
                return None;
            }
        }
        parameters.code = code.map(Secret::new);
        Some(parameters)
    }

    /// The `state` parameter, which identifies the pending sign-in.
    pub fn state(&self) -> Option<&str> {
        self.state.as_deref()
    }
}

fanlight_protocol::opaque!(AuthorizationRequest);

impl AuthorizationRequest {
    /// Adds a nonce, for a sign-in that identifies the user: the ID token has to contain it.
    ///
    /// # Errors
    ///
    /// If there are no random numbers.
    pub fn with_nonce(mut self) -> Result<Self, OAuthError> {
        let nonce = random::text()?;
        self.url.query_pairs_mut().append_pair("nonce", &nonce);
        self.nonce = Some(Secret::new(nonce));
        Ok(self)
    }

    /// Adds `text` to the state. With it, the returning browser names the place where the rest is
    /// stored. `text` must be safe in URLs.
    #[must_use]
    pub fn with_state_for(mut self, text: &str) -> Self {
        let state = format!("{}.{text}", self.state.expose());
        let query = self
            .url
            .query()
            .map(|query| query.replace(self.state.expose(), &state));
        self.url.set_query(query.as_deref());
        self.state = Secret::new(state);
        self
    }

    /// Whether the browser was to return to this path. It differs between issuers, so that none can
    /// pass off another's code as its own (RFC 9700, 4.4.2.2).
    #[must_use]
    pub fn returns_to(&self, path: &str) -> bool {
        self.redirect_uri.path() == path
    }

    /// The code that the browser brought, if it belongs to this request and comes from the right
    /// authorization server. Nothing from another server's answer is used or shown.
    pub(crate) fn code<'a>(
        &self,
        callback: &'a CallbackParameters,
    ) -> Result<&'a Secret, OAuthError> {
        let is_state = |state: &String| {
            verify_slices_are_equal(state.as_bytes(), self.state.expose().as_bytes()).is_ok()
        };
        if !callback.state.as_ref().is_some_and(is_state) {
            return Err(OAuthError::ForeignCallback(
                "it belongs to no sign-in that began here",
            ));
        }
        match &callback.iss {
            Some(iss) if *iss != self.issuer => {
                return Err(OAuthError::ForeignCallback(
                    "it comes from another authorization server",
                ));
            }
            None if self.names_itself => {
                return Err(OAuthError::ForeignCallback(
                    "it does not name its authorization server",
                ));
            }
            Some(_) | None => {}
        }
        if let Some(error) = &callback.error {
            let refused = OAuthError::Refused {
                url: display_url(&self.url),
                code: visible(error, 64),
                explanation: callback
                    .error_description
                    .as_ref()
                    .map(|text| visible(text, 200)),
            };
            return Err(refused.about_resource(self.target.resource.as_deref()));
        }
        let code = callback
            .code
            .as_ref()
            .filter(|code| (1..=LONGEST_CODE).contains(&code.expose().len()));
        code.ok_or(OAuthError::ForeignCallback("it has no code"))
    }
}
