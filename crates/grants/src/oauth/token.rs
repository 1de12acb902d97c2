//! The token endpoint: requests for each kind of grant, and their answers (RFC 6749, 5 and 6; RFC
//! 7523; RFC 8693).

use std::time::{Duration, SystemTime};

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use fanlight_config::settings::Secret;
use http::header::AUTHORIZATION;
use http::{HeaderMap, HeaderValue, Method};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use url::Url;
use url::form_urlencoded::{Serializer, byte_serialize};

use crate::fetch::{Answer, FORM, Requests, secret_value};
use crate::oauth::error::{OAuthError, Refusal, refusal};
use crate::oauth::{
    AuthorizationRequest, CallbackParameters, ClientAuthentication, ClientRegistration, Message,
    PROOF, PROOF_NONCE, ProofKey, Provider, Scopes, TokenTarget, sealed,
};

/// A client at its authorization server.
#[derive(Clone, Copy)]
pub struct Client<'a> {
    /// The HTTP client.
    pub requests: &'a Requests,
    /// The authorization server.
    pub provider: &'a Provider,
    /// The client's registration there.
    pub registration: &'a ClientRegistration,
    /// The key to bind tokens to, if the authorization server supports that.
    pub proof_key: Option<&'a ProofKey>,
}

/// An exchange of a token for another (RFC 8693, 2.1).
#[derive(Clone, Copy, Debug)]
pub struct TokenExchange<'a> {
    /// The token of the represented party.
    pub subject: TypedToken<'a>,
    /// The authorization server's name for the recipient of the new token.
    pub audience: Option<&'a str>,
    /// The type of the new token.
    pub requested_type: Option<&'a str>,
    /// The server and the scopes of the new token.
    pub target: &'a TokenTarget,
}

/// A token and the URI of its type (RFC 8693, 3).
#[derive(Clone, Copy, Debug)]
pub struct TypedToken<'a> {
    /// The token.
    pub token: &'a Secret,
    /// The type, such as [`ID_TOKEN`].
    pub kind: &'a str,
}

/// The type of an access token.
pub const ACCESS_TOKEN: &str = "urn:ietf:params:oauth:token-type:access_token";

/// The type of an ID token of OpenID Connect.
pub const ID_TOKEN: &str = "urn:ietf:params:oauth:token-type:id_token";

/// The type of a refresh token.
pub const REFRESH_TOKEN: &str = "urn:ietf:params:oauth:token-type:refresh_token";

/// The type of any other JWT.
pub const JWT: &str = "urn:ietf:params:oauth:token-type:jwt";

/// The type of an identity assertion for another authorization server (ext-auth, enterprise-managed
/// authorization, 4).
pub const ID_JAG: &str = "urn:ietf:params:oauth:token-type:id-jag";

/// Tokens. Store them sealed.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct TokenSet {
    /// The access token for the server.
    #[serde(with = "sealed")]
    pub access_token: Secret,
    /// The way of sending the access token.
    pub kind: TokenKind,
    /// The token for fetching new ones.
    #[serde(with = "sealed::optional")]
    pub refresh_token: Option<Secret>,
    /// When the access token expires; `None` if unknown.
    pub expires_at: Option<SystemTime>,
    /// The granted scopes; the requested ones if the answer names none.
    pub scopes: Option<Scopes>,
    /// The ID token with the user's identity, for OpenID Connect.
    #[serde(with = "sealed::optional")]
    pub id_token: Option<Secret>,
}

/// The way of sending an access token to a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum TokenKind {
    /// A bearer token, without a proof (RFC 6750).
    Bearer,
    /// A token with a DPoP proof (RFC 9449).
    Dpop,
}

/// The answer of a token endpoint.
#[derive(Deserialize)]
struct Granted {
    access_token: String,
    /// Some servers leave it out; then it is a bearer token.
    token_type: Option<String>,
    expires_in: Option<Seconds>,
    refresh_token: Option<String>,
    scope: Option<GrantedScopes>,
    id_token: Option<String>,
    issued_token_type: Option<String>,
}

/// Scopes separated by spaces, which some servers write as a list.
#[derive(Deserialize)]
#[serde(untagged)]
enum GrantedScopes {
    Text(String),
    List(Vec<String>),
}

/// A number, which some servers write as text.
#[derive(Deserialize)]
#[serde(untagged)]
enum Seconds {
    Number(f64),
    Text(String),
}

/// A longer lifetime counts as unknown, so that years have four digits in readable dates.
const LONGEST_LIFE: Duration = Duration::from_secs(1000 * 365 * 24 * 3600);

/// The claim about when an ID token expires.
#[derive(Deserialize)]
struct Ending {
    exp: Seconds,
}

/// The claims about the user of an ID token.
#[derive(PartialEq, Eq, Deserialize)]
struct Named {
    iss: String,
    sub: String,
}

impl Client<'_> {
    /// Redeems the code that a browser brought from the authorization server of `request`.
    ///
    /// # Errors
    ///
    /// If the code is from elsewhere, or the authorization server refuses or does not answer.
    pub async fn redeem(
        &self,
        request: &AuthorizationRequest,
        callback: &CallbackParameters,
    ) -> Result<TokenSet, OAuthError> {
        let code = request.code(callback)?;
        if self.provider.issuer != request.issuer {
            return Err(OAuthError::ForeignCallback(
                "the server now has another authorization server",
            ));
        }
        let parameters = [
            ("grant_type", "authorization_code"),
            ("code", code.expose()),
            ("redirect_uri", request.redirect_uri.as_str()),
            ("code_verifier", request.verifier.expose()),
        ];
        // The code determines the scopes.
        let resource = TokenTarget {
            scopes: None,
            ..request.target.clone()
        };
        let granted = self.ask(&parameters, &resource).await?;
        Ok(TokenSet {
            scopes: granted.scopes.or_else(|| request.target.scopes.clone()),
            ..granted
        })
    }

    /// Fetches new tokens. If the answer has no refresh token, the old one is kept. The scopes are
    /// absent unless they have changed.
    ///
    /// # Errors
    ///
    /// If the authorization server refuses or does not answer.
    pub async fn refresh(
        &self,
        refresh_token: &Secret,
        target: &TokenTarget,
    ) -> Result<TokenSet, OAuthError> {
        let parameters = [
            ("grant_type", "refresh_token"),
            ("refresh_token", refresh_token.expose()),
        ];
        // Without scopes, the request concerns the granted ones, which may be fewer than the
        // requested ones (RFC 6749, 6).
        let granted = self
            .ask(
                &parameters,
                &TokenTarget {
                    scopes: None,
                    ..target.clone()
                },
            )
            .await?;
        let refresh_token = granted
            .refresh_token
            .or_else(|| Some(refresh_token.clone()));
        Ok(TokenSet {
            refresh_token,
            ..granted
        })
    }

    /// A token for the client itself (RFC 6749, 4.4).
    ///
    /// # Errors
    ///
    /// If the authorization server refuses or does not answer.
    pub async fn client_credentials(&self, target: &TokenTarget) -> Result<TokenSet, OAuthError> {
        self.ask(&[("grant_type", "client_credentials")], target)
            .await
    }

    /// A token for an assertion signed by another issuer (RFC 7523, 2.1).
    ///
    /// # Errors
    ///
    /// If the authorization server refuses or does not answer.
    pub async fn redeem_assertion(
        &self,
        assertion: &Secret,
        target: &TokenTarget,
    ) -> Result<TokenSet, OAuthError> {
        let grant = "urn:ietf:params:oauth:grant-type:jwt-bearer";
        self.ask(
            &[("grant_type", grant), ("assertion", assertion.expose())],
            target,
        )
        .await
    }

    /// A token in exchange for another.
    ///
    /// # Errors
    ///
    /// If the authorization server refuses or does not answer.
    pub async fn exchange(&self, exchange: &TokenExchange<'_>) -> Result<TokenSet, OAuthError> {
        self.ask(&exchange.parameters(), exchange.target).await
    }

    /// An identity assertion for the authorization server `audience`, where
    /// [`Self::redeem_assertion`] redeems it (ext-auth, enterprise-managed authorization, 4). This
    /// client is the one at the identity provider.
    ///
    /// # Errors
    ///
    /// If the identity provider refuses, does not answer, or answers with something else.
    pub async fn identity_assertion(
        &self,
        subject: TypedToken<'_>,
        audience: &str,
        target: &TokenTarget,
    ) -> Result<Secret, OAuthError> {
        let (audience, requested_type) = (Some(audience), Some(ID_JAG));
        let exchange = TokenExchange {
            subject,
            audience,
            requested_type,
            target,
        };
        let endpoint = &self.provider.token_endpoint;
        let parameters = exchange.parameters();
        let answer = self.post(endpoint, &parameters, target).await?;
        let granted = granted(&answer, endpoint, &self.secrets(&parameters))
            .map_err(|error| error.about_resource(target.resource.as_deref()))?;
        match granted.issued_token_type.as_deref() {
            Some(ID_JAG) => Ok(Secret::new(granted.access_token)),
            _ => Err(OAuthError::malformed(
                endpoint,
                "it is not an identity assertion",
            )),
        }
    }

    /// Revokes a token (RFC 7009), if the authorization server has an endpoint for it.
    ///
    /// # Errors
    ///
    /// If it refuses or does not answer.
    pub async fn revoke(&self, token: &Secret, kind: &str) -> Result<(), OAuthError> {
        let Some(endpoint) = &self.provider.revocation_endpoint else {
            return Ok(());
        };
        let parameters = [("token", token.expose()), ("token_type_hint", kind)];
        let answer = self
            .post(endpoint, &parameters, &TokenTarget::default())
            .await?;
        if answer.status.is_success() {
            Ok(())
        } else {
            Err(refusal(&answer, endpoint, &self.secrets(&parameters)))
        }
    }

    async fn ask(
        &self,
        parameters: &[(&str, &str)],
        target: &TokenTarget,
    ) -> Result<TokenSet, OAuthError> {
        let endpoint = &self.provider.token_endpoint;
        let answer = self.post(endpoint, parameters, target).await?;
        let granted = granted(&answer, endpoint, &self.secrets(parameters))
            .map_err(|error| error.about_resource(target.resource.as_deref()))?;
        let scopes = granted
            .scope
            .map(GrantedScopes::scopes)
            .or_else(|| target.scopes.clone());
        let lifetime = granted.expires_in.as_ref().and_then(Seconds::duration);
        Ok(TokenSet {
            kind: TokenKind::from_name(granted.token_type.as_deref().unwrap_or("Bearer"))
                .ok_or_else(|| {
                    OAuthError::malformed(endpoint, "it is a token of an unknown type")
                })?,
            access_token: Secret::new(granted.access_token),
            refresh_token: granted
                .refresh_token
                .filter(|token| !token.is_empty())
                .map(Secret::new),
            expires_at: lifetime.and_then(|lifetime| SystemTime::now().checked_add(lifetime)),
            scopes,
            id_token: granted.id_token.map(Secret::new),
        })
    }

    /// The secrets in a form of this client, which an answer may repeat.
    fn secrets<'b>(&'b self, parameters: &[(&str, &'b str)]) -> Vec<&'b str> {
        let secret = match &self.registration.authentication {
            ClientAuthentication::Basic(secret) | ClientAuthentication::Post(secret) => {
                Some(secret.expose())
            }
            _ => None,
        };
        let sent = parameters
            .iter()
            .filter(|(name, _)| SECRETS.contains(name))
            .map(|(_, value)| *value);
        sent.chain(secret).collect()
    }

    /// Sends a form as this client. If the authorization server requires a nonce in the proof,
    /// sends it again, since the first request had no effect (RFC 9449, 8).
    async fn post(
        &self,
        url: &Url,
        parameters: &[(&str, &str)],
        target: &TokenTarget,
    ) -> Result<Answer, OAuthError> {
        let answer = self.post_with(url, parameters, target, None).await?;
        let nonce = answer
            .headers
            .get(PROOF_NONCE)
            .and_then(|nonce| nonce.to_str().ok());
        let wants_nonce = || {
            let refusal = answer.json::<Refusal>(url);
            refusal.is_ok_and(|refusal| refusal.error == "use_dpop_nonce")
        };
        match nonce.filter(|_| self.proof_key.is_some() && wants_nonce()) {
            Some(nonce) => self.post_with(url, parameters, target, Some(nonce)).await,
            None => Ok(answer),
        }
    }

    async fn post_with(
        &self,
        url: &Url,
        parameters: &[(&str, &str)],
        target: &TokenTarget,
        nonce: Option<&str>,
    ) -> Result<Answer, OAuthError> {
        let mut headers = HeaderMap::new();
        let form = self.form(&mut headers, parameters, target)?;
        if let Some(key) = self.proof_key {
            let method = &Method::POST;
            headers.insert(PROOF, key.prove(Message { method, url }, nonce, None)?);
        }
        Ok(self.requests.post(url, FORM, headers, form).await?)
    }

    fn form(
        &self,
        headers: &mut HeaderMap,
        parameters: &[(&str, &str)],
        target: &TokenTarget,
    ) -> Result<String, OAuthError> {
        let mut form = Serializer::new(String::new());
        form.extend_pairs(parameters)
            .extend_pairs(target.parameters());
        self.authenticate(headers, &mut form)?;
        Ok(form.finish())
    }

    /// Adds the client's authentication (RFC 6749, 2.3.1; RFC 7523, 2.2).
    fn authenticate(
        &self,
        headers: &mut HeaderMap,
        form: &mut Serializer<'_, String>,
    ) -> Result<(), OAuthError> {
        let id = &self.registration.client_id;
        // An assertion already names its issuer, so the client needs no id. Beside a header, some
        // authorization servers want it as well, such as the Python SDK's.
        if !id.is_empty() {
            form.append_pair("client_id", id);
        }
        match &self.registration.authentication {
            ClientAuthentication::None => {}
            ClientAuthentication::Basic(secret) => {
                headers.insert(AUTHORIZATION, basic(id, secret)?);
            }
            ClientAuthentication::Post(secret) => {
                form.append_pair("client_secret", secret.expose());
            }
            ClientAuthentication::PrivateKey(key) => {
                let kind = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer";
                let assertion = key.client_assertion(id, &self.provider.issuer)?;
                form.append_pair("client_assertion_type", kind)
                    .append_pair("client_assertion", assertion.expose());
            }
        }
        Ok(())
    }
}

/// The header with a client's id and secret, both form-encoded (RFC 6749, 2.3.1).
///
/// # Errors
///
/// If they cannot be sent.
pub fn basic(id: &str, secret: &Secret) -> Result<HeaderValue, OAuthError> {
    let encoded = |text: &str| byte_serialize(text.as_bytes()).collect::<String>();
    let credentials = STANDARD.encode(format!("{}:{}", encoded(id), encoded(secret.expose())));
    secret_value(&format!("Basic {credentials}"))
        .map_err(|_| OAuthError::Key("the client's secret cannot be sent".to_owned()))
}

impl TokenSet {
    /// The header fields with the token, including a proof for this request if necessary.
    ///
    /// # Errors
    ///
    /// If the token has characters that are not allowed in a header, or its key is missing.
    pub fn headers(
        &self,
        message: Message<'_>,
        nonce: Option<&str>,
        key: Option<&ProofKey>,
    ) -> Result<HeaderMap, OAuthError> {
        let value = self.shown_as(match self.kind {
            TokenKind::Bearer => "Bearer",
            TokenKind::Dpop => "DPoP",
        })?;
        let mut headers = HeaderMap::from_iter([(AUTHORIZATION, value)]);
        if self.kind == TokenKind::Dpop {
            let key = key.ok_or_else(|| {
                OAuthError::Key("the key that the token is bound to is missing".to_owned())
            })?;
            headers.insert(PROOF, key.prove(message, nonce, Some(&self.access_token))?);
        }
        Ok(headers)
    }

    /// The header field with the token, without a proof.
    pub(crate) fn bearer_header(&self) -> Result<HeaderValue, OAuthError> {
        match self.kind {
            TokenKind::Bearer => self.shown_as("Bearer"),
            TokenKind::Dpop => Err(OAuthError::Key(
                "the key that the token is bound to is missing".to_owned(),
            )),
        }
    }

    fn shown_as(&self, scheme: &str) -> Result<HeaderValue, OAuthError> {
        let value = secret_value(&format!("{scheme} {}", self.access_token.expose()));
        value.map_err(|_| {
            OAuthError::Key("the token has characters that a header cannot contain".to_owned())
        })
    }

    /// Makes these tokens expire with their ID token, if that is earlier.
    #[must_use]
    pub fn ending_with_id_token(self) -> Self {
        let end = self.id_token.as_ref().and_then(unverified::<Ending>);
        let end = end.and_then(|claims| SystemTime::UNIX_EPOCH.checked_add(claims.exp.duration()?));
        Self {
            expires_at: self.expires_at.into_iter().chain(end).min(),
            ..self
        }
    }

    /// Whether the ID tokens before and after a renewal are about the same user (OpenID Connect
    /// Core 1.0, 12.2).
    pub fn are_of_the_user_of(&self, before: &Self) -> bool {
        let subject = |tokens: &Self| tokens.id_token.as_ref().and_then(unverified::<Named>);
        self.id_token.is_none() || before.id_token.is_none() || subject(self) == subject(before)
    }

    /// Whether the access token expires within `margin`, so that it has to be renewed before a
    /// request.
    pub fn ends_within(&self, margin: Duration) -> bool {
        self.expires_at.is_some_and(|end| {
            SystemTime::now()
                .checked_add(margin)
                .is_none_or(|soon| end <= soon)
        })
    }
}

impl TokenExchange<'_> {
    fn parameters(&self) -> Vec<(&str, &str)> {
        let grant = "urn:ietf:params:oauth:grant-type:token-exchange";
        let subject = [
            ("subject_token", self.subject.token.expose()),
            ("subject_token_type", self.subject.kind),
        ];
        let audience = self.audience.map(|audience| ("audience", audience));
        let requested = self
            .requested_type
            .map(|kind| ("requested_token_type", kind));
        [("grant_type", grant)]
            .into_iter()
            .chain(subject)
            .chain(audience)
            .chain(requested)
            .collect()
    }
}

impl GrantedScopes {
    fn scopes(self) -> Scopes {
        match self {
            Self::Text(text) => Scopes::read(&text),
            Self::List(list) => list
                .iter()
                .map(String::as_str)
                .map(Scopes::read)
                .fold(Scopes::default(), |all, some| all.union(&some)),
        }
    }
}

impl TokenKind {
    fn from_name(name: &str) -> Option<Self> {
        if name.eq_ignore_ascii_case("Bearer") {
            return Some(Self::Bearer);
        }
        name.eq_ignore_ascii_case("DPoP").then_some(Self::Dpop)
    }
}

impl Seconds {
    fn duration(&self) -> Option<Duration> {
        let seconds = match self {
            Self::Number(number) => *number,
            Self::Text(text) => text.parse().ok()?,
        };
        Duration::try_from_secs_f64(seconds)
            .ok()
            .filter(|time| *time <= LONGEST_LIFE)
    }
}

/// The parameters with secrets.
const SECRETS: [&str; 6] = [
    "code",
    "code_verifier",
    "refresh_token",
    "assertion",
    "subject_token",
    "token",
];

/// The tokens that an answer grants. Some servers refuse with a status of success.
fn granted(answer: &Answer, url: &Url, sent: &[&str]) -> Result<Granted, OAuthError> {
    if !answer.status.is_success() || answer.json::<Refusal>(url).is_ok() {
        return Err(refusal(answer, url, sent));
    }
    let granted: Granted = answer.json(url)?;
    let token = &granted.access_token;
    if token.is_empty() || HeaderValue::from_str(token).is_err() {
        return Err(OAuthError::malformed(
            url,
            "no header can contain its token",
        ));
    }
    Ok(granted)
}

/// The claims of a token; `None` if it is not a JWT with these claims.
pub(crate) fn unverified<T: DeserializeOwned>(token: &Secret) -> Option<T> {
    let part = token.expose().split('.').nth(1)?;
    serde_json::from_slice(&URL_SAFE_NO_PAD.decode(part).ok()?).ok()
}

#[cfg(test)]
mod tests {
    use http::StatusCode;

    use super::*;

    #[test]
    fn token_that_no_header_can_contain_is_refused() {
        let is_granted = |token: &str| {
            let answer = Answer {
                status: StatusCode::OK,
                headers: HeaderMap::new(),
                body: format!(r#"{{"access_token":"{token}","token_type":"bearer"}}"#).into(),
            };
            granted(&answer, &"https://a.b/token".parse().unwrap(), &[]).is_ok()
        };
        let refused = Answer {
            status: StatusCode::BAD_REQUEST,
            headers: HeaderMap::new(),
            body: r#"{"error":"invalid_grant","error_description":"cannot use ref-1"}"#.into(),
        };
        let url = "https://a.b/token".parse().unwrap();
        let refused = granted(&refused, &url, &["", "ref-1"]).err().unwrap();
        assert!(
            refused
                .to_string()
                .ends_with("invalid_grant (cannot use [redacted])")
        );
        assert!(is_granted("a.b-c~d+e/f=") && !is_granted("") && !is_granted(r"a\r\nX-Other: b"));
    }
}
