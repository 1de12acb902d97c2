//! Whether a message may show the value of an unknown key: only if neither the key nor the value
//! looks like a secret.
//!
//! An unnecessarily hidden value costs a look into the file; a wrongly shown one is a leaked token.
//! In doubt the value is hidden.

use fanlight_protocol::secret::{PARTS, is_secret};

/// Keys of mappings whose values may all be secrets.
const HOLDERS: [&str; 12] = [
    "env",
    "envs",
    "environment",
    "headers",
    "httpheaders",
    "envhttpheaders",
    "requestoptions",
    "args",
    "arguments",
    "variables",
    "oauth",
    "settings",
];
/// The number of letters beyond which a word without digits may be a key.
const MAX_LETTERS: usize = 20;

/// Whether the value of this key cannot be a secret.
pub(super) fn is_harmless(key: &str, value: &str) -> bool {
    !key.is_empty() && !holds_secrets(key) && looks_harmless(value)
}

/// Whether a literal value of this key, such as a variable in a server's environment, may be a
/// secret.
pub fn may_be_secret(key: &str, value: &str) -> bool {
    let is_switch = matches!(value, "" | "true" | "false");
    let is_path =
        value.starts_with(['/', '~']) || value.starts_with("./") || value.get(1..3) == Some(":\\");
    let is_plain_url = value.contains("://") && !value.contains(['@', '?']);
    !is_switch && (is_named_like_one(key) || !(is_path || is_plain_url || looks_harmless(value)))
}

/// Whether all values below this key may be secrets.
pub(super) fn holds_secrets(key: &str) -> bool {
    !key.is_empty() && (HOLDERS.contains(&normalize_key(key).as_str()) || is_of_secret(key))
}

/// Whether the key is named like a secret, a variable or a header.
fn is_of_secret(key: &str) -> bool {
    let is_variable = !key.chars().any(char::is_lowercase);
    let is_header = key.contains('-') && key.starts_with(char::is_uppercase);
    is_variable || is_header || is_named_like_one(key)
}

fn is_named_like_one(key: &str) -> bool {
    let word = normalize_key(key);
    // A mistyped key is hidden, too.
    let is_near = |known: &&str| strsim::damerau_levenshtein(&word, known) <= known.len() / 4;
    is_secret(key) || PARTS.iter().chain(&HOLDERS).any(is_near)
}

fn normalize_key(key: &str) -> String {
    key.chars()
        .filter(|c| c.is_alphanumeric())
        .flat_map(char::to_lowercase)
        .collect()
}

/// Whether a value consists of words and small numbers, such as `gpt-5`, `workspace-write` or
/// `127.0.0.1:8080`.
fn looks_harmless(value: &str) -> bool {
    if value.chars().count() > 80
        || value.contains("://")
        || value.contains(['@', '=', '$', '{', '['])
    {
        return false;
    }
    let mut mixed = 0;
    let words = value
        .split(|c: char| !c.is_alphanumeric())
        .filter(|word| !word.is_empty());
    words.clone().count() <= 12
        && words.into_iter().all(|word| {
            let letters = word.chars().filter(|c| c.is_alphabetic()).count();
            let digits = word.chars().filter(char::is_ascii_digit).count();
            match (letters, digits) {
                (letters, 0) => letters <= MAX_LETTERS && changes_of_case(word) <= 2,
                // Names of models contain a year with month and day.
                (0, digits) => digits <= 5 || (digits == 8 && word.starts_with("20")),
                _ => {
                    mixed += 1;
                    mixed == 1 && letters + digits <= 4
                }
            }
        })
}

/// The number of changes from lower to upper case.
fn changes_of_case(word: &str) -> usize {
    let pairs = word.chars().zip(word.chars().skip(1));
    pairs
        .filter(|(first, second)| first.is_lowercase() && second.is_uppercase())
        .count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_are_shown() {
        for (key, value) in [
            ("model", "gpt-5"),
            ("model", "claude-sonnet-4-20250514"),
            ("model", "gpt-4o-mini"),
            ("theme", "Solarized Dark"),
            ("sandbox_mode", "workspace-write"),
            ("lissten", "127.0.0.1:8080"),
            ("approvalPolicy", "on-request"),
            ("fontSize", "14"),
            ("path", "/usr/local/bin"),
        ] {
            assert!(is_harmless(key, value), "{key}: {value}");
        }
    }

    #[test]
    fn variables_of_servers_are_told_apart_by_name_and_look() {
        let token = "ghp_16C7e42F292c6912E7710c838347Ae178B4a";
        for (key, value) in [
            ("API_KEY", "swordfish"),
            ("X", token),
            ("URL", "https://u:p@h/"),
            ("PASSWORD", "1234"),
        ] {
            assert!(may_be_secret(key, value), "{key}={value}");
        }
        let root = ("ROOT", "/srv/data-4f2a9c");
        for (key, value) in [
            ("LEVEL", "debug"),
            root,
            ("API_URL", "https://h:8443/v1"),
            ("USE_TOKEN", "true"),
            ("PORT", "80"),
        ] {
            assert!(!may_be_secret(key, value), "{key}={value}");
        }
    }

    #[test]
    fn what_may_be_a_secret_is_hidden() {
        for (key, value) in [
            ("apiKey", "swordfish"),
            ("tokn", "swordfish"),
            ("GITHUB_PAT", "swordfish"),
            ("passwrd", "swordfish"),
            ("hedaers", "swordfish"),
            ("X-Custom", "swordfish"),
            ("env", "swordfish"),
            ("model", "s3cret"),
            ("model", "hunter2"),
            ("note", "sk-proj-abcDEF123456"),
            ("note", "ghp_16C7e42F292c6912E7710c838347Ae178B4a"),
            ("note", "550e8400-e29b-41d4-a716-446655440000"),
            ("note", "AKIAIOSFODNNEXAMPLEXYZ"),
            ("note", "wJalrXUtnFEMIKMDENG"),
            ("note", "482915"),
            ("note", "4111 1111 1111 1111 482915"),
            ("endpoint", "https://me:pw@host/x"),
            ("note", "user@host"),
            ("note", "a1b2-c3d4"),
        ] {
            assert!(!is_harmless(key, value), "{key}: {value}");
        }
    }
}
