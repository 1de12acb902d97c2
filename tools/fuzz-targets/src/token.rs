//! Clients' access tokens and issuers' answers: a token that the issuer has not signed is never
//! accepted.

use std::sync::LazyLock;

use fanlight_auth::untrusted::{KnownIssuer, Reading, is_key_set};

use crate::cost::{Cost, bounded};

/// The public keys in the examples of RFC 7517 (A.1) and RFC 8037 (A.2): no input is signed by them
/// by chance.
const KEYS: &str = r#"{"keys":[
  {"kty":"EC","crv":"P-256","kid":"ec","x":"MKBCTNIcKUSDii11ySs3526iDZ8AiTo7Tu6KPAqv7D4","y":"4Etl6SRW2YiLUrN5vfvVHuhp7x8PxltmWWlbbM4IFyM"},
  {"kty":"OKP","crv":"Ed25519","kid":"ed","x":"11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"}
]}"#;

static ISSUER: LazyLock<KnownIssuer> = LazyLock::new(|| {
    KnownIssuer::new("https://id.example.com", "fanlight", KEYS).expect("keys that can be used")
});

pub(crate) fn check(data: &[u8]) {
    if let Ok(text) = std::str::from_utf8(data) {
        let reading = bounded(data.len(), Cost::ELEMENTS, || ISSUER.read_token(text));
        assert_ne!(reading, Reading::Accepted, "a token that nobody has signed");
        // The header and the claims are JSON, so that inputs reach their readers without guessing
        // base64.
        if let Some((header, claims)) = text.split_once('\n') {
            let token = format!(
                "{}.{}.AAAA",
                base64url(header.as_bytes()),
                base64url(claims.as_bytes())
            );
            let reading = bounded(token.len(), Cost::ELEMENTS, || ISSUER.read_token(&token));
            assert_ne!(reading, Reading::Accepted, "a token that nobody has signed");
        }
    }
    bounded(data.len(), Cost::ELEMENTS, || {
        (is_key_set(data), ISSUER.read_answer(data))
    });
}

fn base64url(bytes: &[u8]) -> String {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    let mut text = String::new();
    for chunk in bytes.chunks(3) {
        let bits = chunk.iter().enumerate().fold(0, |bits, (at, byte)| {
            bits | usize::from(*byte) << (16 - 8 * at)
        });
        text.extend((0..=chunk.len()).map(|at| char::from(ALPHABET[bits >> (18 - 6 * at) & 0x3f])));
    }
    text
}
