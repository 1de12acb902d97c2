//! Recognizes names that say that a value is secret.

/// Parts of secret names, in lower case and without separators.
const PARTS: &[&str] = &[
    "password",
    "passwd",
    "passphrase",
    "passcode",
    "secret",
    "token",
    "authorization",
    "authcode",
    "cookie",
    "apikey",
    "accesskey",
    "privatekey",
    "credential",
    "sessionid",
    "signature",
    "bearer",
    "pwd",
    "jwt",
];

/// Whole words of secret names. They are too short to be searched for within other words.
const WORDS: &[&str] = &[
    "auth", "cvc", "cvv", "key", "mfa", "otp", "pass", "pat", "pin", "pw", "sid", "sig", "totp",
];

/// The last letters of secret names that are written as one word.
const ENDS: &[&str] = &["auth", "key", "otp", "pass"];

/// Words with such an ending that are not names of secrets.
const HARMLESS: &[&str] = &[
    "bypass",
    "compass",
    "donkey",
    "encompass",
    "hockey",
    "hotkey",
    "jockey",
    "monkey",
    "trespass",
    "turkey",
];

/// Whether a value with this name is secret. Words are separated by `-`, `_`, `.`, spaces and
/// changes of case. Digits and the plural `s` at their ends do not count.
pub(super) fn is_secret(name: &str) -> bool {
    let plain: String = name
        .chars()
        .filter(|c| c.is_alphanumeric())
        .flat_map(char::to_lowercase)
        .collect();
    if PARTS.iter().any(|part| plain.contains(part)) {
        return true;
    }
    words(name).any(|word| {
        let word = word
            .trim_end_matches(|c: char| c.is_ascii_digit())
            .to_lowercase();
        let is_one = |word: &str| {
            let is_end = ENDS.iter().any(|end| word.ends_with(end)) && !HARMLESS.contains(&word);
            is_end || WORDS.contains(&word)
        };
        is_one(&word) || word.strip_suffix('s').is_some_and(is_one)
    })
}

/// The words of a name. `apiKey`, `api_key`, `API-Key` and `api key` have the same two words.
fn words(name: &str) -> impl Iterator<Item = &str> {
    let mut rest = name;
    std::iter::from_fn(move || {
        rest = rest.trim_start_matches(|c: char| !c.is_alphanumeric());
        let mut before = None;
        let end = rest.char_indices().find(|(_, c)| {
            let begins_word = c.is_uppercase() && before.is_some_and(char::is_lowercase);
            before = Some(*c);
            begins_word || !c.is_alphanumeric()
        });
        let (word, after) = rest.split_at(end.map_or(rest.len(), |(at, _)| at));
        rest = after;
        (!word.is_empty()).then_some(word)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secret_names_are_known_in_any_notation() {
        for name in [
            "pwd",
            "userPwd",
            "DB_PASS",
            "pass",
            "smtppass",
            "auth",
            "oauth",
            "x-auth",
            "basicAuth",
            "jwt",
            "otp",
            "pin",
            "userPin",
            "PIN",
            "key",
            "keys",
            "apiKey",
            "sshkey",
            "key2",
            "AWS_SECRET_ACCESS_KEY",
            "X-Api-Key",
            "Set-Cookie",
            "accessToken",
            "--password",
            "client.secret",
            "Proxy-Authorization",
        ] {
            assert!(is_secret(name), "{name}");
        }
    }

    #[test]
    fn harmless_names_are_not_secret() {
        for name in [
            "author",
            "authored",
            "keyboard",
            "monkey",
            "compass",
            "passenger",
            "spin",
            "opinion",
            "path",
            "side",
        ] {
            assert!(!is_secret(name), "{name}");
        }
    }
}
