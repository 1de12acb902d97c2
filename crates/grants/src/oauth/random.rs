//! Random text.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

use crate::oauth::error::OAuthError;

/// 256 random bits in the characters that RFC 7636, 4.1, allows.
pub(crate) fn text() -> Result<String, OAuthError> {
    let mut bytes = [0; 32];
    aws_lc_rs::rand::fill(&mut bytes).map_err(|_| OAuthError::NoRandomness)?;
    Ok(URL_SAFE_NO_PAD.encode(bytes))
}
