//! `Authorization: Bearer` (RFC 6750, 2.1): a key by its prefix, else an access token.

use std::sync::Arc;

use fanlight_identity::{Authentication, Credentials, Denial};
use http::HeaderMap;
use http::header::AUTHORIZATION;

use crate::keys::{KEY_PREFIX, Keys};
use crate::settings::Settings;

/// The two kinds of bearer tokens.
#[derive(Debug)]
pub(crate) struct Bearer {
    keys: Option<Arc<Keys>>,
}

impl Bearer {
    /// What follows `current` with other settings; `None` if neither kind is accepted.
    pub(crate) fn after(current: Option<&Arc<Self>>, settings: &Settings) -> Option<Arc<Self>> {
        let current = current.and_then(|current| current.keys.as_ref());
        let keys = settings.keys.as_ref().map(|keys| Arc::new(Keys::after(current.map(|keys| &**keys), keys)));
        keys.is_some().then(|| Arc::new(Self { keys }))
    }

    /// Revokes the identities that `new` does not accept.
    pub(crate) fn revoke_except(&self, new: Option<&Self>) {
        if let Some(keys) = &self.keys {
            keys.revoke_except(new.and_then(|new| new.keys.as_deref()));
        }
    }

    /// The identity that the request's token shows; `None` if it has no `Authorization`.
    pub(crate) fn authenticate<'a>(self: Arc<Self>, credentials: &Credentials<'a>) -> Option<Authentication<'a>> {
        let outcome = match token(credentials.headers)? {
            Err(denial) => Err(denial),
            Ok(key) if key.starts_with(KEY_PREFIX) => match &self.keys {
                Some(keys) => keys.identity(key),
                None => Err(Denial::Invalid("keys are not accepted here".into())),
            },
            Ok(_) => Err(Denial::Invalid("this token is not accepted here".into())),
        };
        Some(Authentication::Ready(outcome))
    }
}

/// The token in `Authorization`; `None` if there is no such header.
fn token(headers: &HeaderMap) -> Option<Result<&str, Denial>> {
    let mut fields = headers.get_all(AUTHORIZATION).iter();
    let field = fields.next()?;
    if fields.next().is_some() {
        return Some(Err(Denial::Malformed("there are several Authorization headers".into())));
    }
    let Ok(text) = field.to_str() else {
        return Some(Err(Denial::Malformed("the Authorization header is not visible ASCII".into())));
    };
    let (scheme, token) = text.split_once(' ').unwrap_or((text, ""));
    // Another scheme is not supported: "the resource server SHOULD NOT include an error code" (RFC 6750, 3.1).
    if !scheme.eq_ignore_ascii_case("bearer") {
        return Some(Err(Denial::Missing));
    }
    let token = token.trim_matches(' ');
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~+/=".contains(&byte);
    if token.is_empty() || !token.bytes().all(fits) {
        return Some(Err(Denial::Malformed("the Authorization header holds no bearer token".into())));
    }
    Some(Ok(token))
}
