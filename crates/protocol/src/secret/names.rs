//! Recognizes names that say that a value is secret.

/// Parts of secret names, in lower case and without separators.
pub const PARTS: &[&str] = &[
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
    "connectionstring",
    "mnemonic",
    "seedphrase",
    "webhookurl",
    "pwd",
    "jwt",
];

/// The length of the parts that count only within one word.
const SHORT: usize = 3;

/// Whole words of secret names. They are too short to be searched for within other words.
const WORDS: &[&str] = &[
    "auth", "cred", "cvc", "cvv", "dsn", "key", "mfa", "otp", "pass", "pat", "pin", "pw", "sid",
    "sig", "totp",
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
    "surpass",
    "trespass",
    "turkey",
    "whiskey",
];

/// Words before `key` that say that the key identifies something and opens nothing.
const PLAIN_KEYS: &[&str] = &[
    "cache",
    "foreign",
    "group",
    "idempotency",
    "issue",
    "partition",
    "primary",
    "project",
    "public",
    "row",
    "sort",
];

/// Words after the name of a secret whose value is not the secret itself.
const ABOUT: &[&str] = &[
    "algorithm",
    "ary",
    "budget",
    "count",
    "counts",
    "enabled",
    "endpoint",
    "endpoints",
    "expiration",
    "expires",
    "expiry",
    "format",
    "in",
    "ization",
    "ize",
    "ized",
    "izer",
    "length",
    "less",
    "lifetime",
    "limit",
    "limits",
    "method",
    "methods",
    "name",
    "names",
    "out",
    "path",
    "per",
    "policy",
    "prefix",
    "rate",
    "required",
    "stdin",
    "through",
    "ttl",
    "type",
    "types",
    "usage",
    "used",
];

/// Words before `tokens` whose value is their number.
const COUNTED: &[&str] = &[
    "budget",
    "cached",
    "completion",
    "context",
    "input",
    "n",
    "output",
    "prompt",
    "reasoning",
    "remaining",
    "thinking",
    "total",
    "used",
];

/// The beginning of a name whose value is a number of tokens: `max_new_tokens`.
const BOUNDS: &[&str] = &["max", "min", "num"];

/// Whether a value with this name is secret. Words are separated by `-`, `_`, `.`, spaces and
/// changes of case. Digits and the plural `s` at their ends do not count.
pub fn is_secret(name: &str) -> bool {
    let mut name = Words::split(name);
    name.has_secret_part() || (0..name.ends.len()).any(|index| name.is_secret_word(index))
}

/// Whether a value with this name can also be a number of tokens.
pub(super) fn may_be_count(name: &str) -> bool {
    let name = Words::split(name);
    name.plain.ends_with("tokens")
}

/// The words of a name in lower case. `apiKey`, `api_key`, `API-Key` and `api key` have the same two.
struct Words {
    plain: String,
    /// The ends of the words in `plain`.
    ends: Vec<usize>,
}

impl Words {
    fn split(name: &str) -> Self {
        let (mut plain, mut ends) = (String::new(), Vec::new());
        let mut before = ' ';
        let mut chars = name.chars();
        while let Some(c) = chars.next() {
            let mut next = chars.as_str().chars();
            // `APIKey` has two words, and `PINs` has one.
            let begins_word = c.is_uppercase()
                && (before.is_lowercase()
                    || (next.next().is_some_and(char::is_lowercase)
                        && next.next().is_some_and(char::is_lowercase)));
            if !c.is_alphanumeric() || begins_word {
                ends.push(plain.len());
            }
            plain.extend(c.to_lowercase().filter(|_| c.is_alphanumeric()));
            before = c;
        }
        ends.push(plain.len());
        ends.dedup();
        Self { plain, ends }
    }

    /// The text between two places, or nothing.
    fn text(&self, start: usize, end: usize) -> &str {
        self.plain.get(start..end).unwrap_or_default()
    }

    fn start(&self, index: usize) -> usize {
        index
            .checked_sub(1)
            .and_then(|before| self.ends.get(before))
            .map_or(0, |end| *end)
    }

    /// The word with this number without digits at its end, or nothing.
    fn word(&self, index: usize) -> &str {
        let end = self.ends.get(index).copied().unwrap_or_default();
        self.text(self.start(index), end)
            .trim_end_matches(|c: char| c.is_ascii_digit())
    }

    fn has_secret_part(&mut self) -> bool {
        PARTS.iter().any(|part| {
            let mut places = self.plain.match_indices(part);
            places.any(|(start, _)| self.is_secret_part(part, start, start + part.len()))
        })
    }

    fn is_secret_part(&self, part: &str, start: usize, end: usize) -> bool {
        let first = self.ends.partition_point(|place| *place <= start);
        let last = self.ends.partition_point(|place| *place < end);
        if part.len() == SHORT && first != last {
            return false;
        }
        let (head, tail) = (
            self.text(self.start(first), start),
            self.text(end, self.ends.get(last).copied().unwrap_or(end)),
        );
        let before = match (head, first.checked_sub(1)) {
            ("", Some(before)) => self.word(before),
            _ => head,
        };
        let after = match tail.trim_end_matches(|c: char| c.is_ascii_digit()) {
            "" | "s" => self.word(last + 1),
            tail => tail
                .strip_prefix('s')
                .filter(|tail| is_in(ABOUT, tail))
                .unwrap_or(tail),
        };
        let is_harmless = is_in(ABOUT, after)
            || match part {
                "token" => {
                    let is_plural = self.text(end, end + 1) == "s";
                    is_link(after)
                        || (is_plural && is_in(COUNTED, before))
                        || is_in(BOUNDS, before)
                        || is_in(BOUNDS, self.word(0))
                }
                "authorization" => is_link(after),
                "signature" => is_in(&["function", "method", "type"], before),
                _ => false,
            };
        !is_harmless
    }

    fn is_secret_word(&self, index: usize) -> bool {
        let word = self.word(index);
        let is_one = |word: &str| {
            let is_end = ENDS.iter().any(|end| word.ends_with(end)) && !is_in(HARMLESS, word);
            is_end || is_in(WORDS, word)
        };
        let singular = word.strip_suffix('s').filter(|word| is_one(word));
        let Some(word) = Some(word).filter(|word| is_one(word)).or(singular) else {
            return false;
        };
        let before = match (word.strip_suffix("key"), index.checked_sub(1)) {
            (Some(""), Some(before)) => self.word(before),
            (before, _) => before.unwrap_or_default(),
        };
        let after = self.word(index + 1);
        let is_harmless = is_in(ABOUT, after)
            || is_in(PLAIN_KEYS, before)
            || (word.ends_with("auth") && is_link(after));
        !is_harmless
    }
}

fn is_in(list: &[&str], word: &str) -> bool {
    list.contains(&word)
}

fn is_link(word: &str) -> bool {
    is_in(&["url", "urls", "uri", "uris"], word)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secret_names_are_known_in_any_notation() {
        for name in [
            "pwd",
            "userPwd",
            "dbpwd",
            "DB_PASS",
            "pass",
            "smtppass",
            "auth",
            "oauth",
            "x-auth",
            "basicAuth",
            "jwt",
            "JWTs",
            "otp",
            "OTPCode",
            "pin",
            "userPin",
            "PIN",
            "PINs",
            "PINCode",
            "key",
            "keys",
            "apiKey",
            "APIKey",
            "apikey",
            "sshkey",
            "key2",
            "bearer",
            "AWS_SECRET_ACCESS_KEY",
            "X-Api-Key",
            "Set-Cookie",
            "accessToken",
            "accesstokens",
            "access token",
            "token",
            "tokens",
            "token2",
            "tokenPersonal",
            "tokenHash",
            "passWord",
            "user.password",
            "userpassword",
            "password_1",
            "passwordHash",
            "--password",
            "client.secret",
            "clientSecrets",
            "Proxy-Authorization",
            "maxTokenSecret",
            "sessionId",
            "PHPSESSIONID",
            "X-Amz-Signature",
            "creds",
            "sentryDsn",
        ] {
            assert!(is_secret(name), "{name}");
        }
    }

    #[test]
    fn harmless_names_are_not_secret() {
        for name in [
            "",
            "author",
            "authored",
            "authority",
            "authUrl",
            "authType",
            "authorizationEndpoint",
            "keyboard",
            "keyword",
            "keywords",
            "keyName",
            "primary_key",
            "primarykey",
            "publicKey",
            "issueKey",
            "monkey",
            "compass",
            "passenger",
            "passage",
            "passThrough",
            "passRate",
            "password_required",
            "passwordless",
            "--password-stdin",
            "spin",
            "opinion",
            "pinned",
            "path",
            "side",
            "maxTokens",
            "max_tokens",
            "MAX_TOKENS",
            "maxtokens",
            "max-new-tokens",
            "maxOutputTokens",
            "inputTokens",
            "total_tokens",
            "tokensUsed",
            "tokens_per_minute",
            "token_count",
            "tokencount",
            "tokenLimit",
            "tokenEndpoint",
            "token_endpoint",
            "tokenUrl",
            "tokenType",
            "tokenExpiresIn",
            "tokenizer",
            "tokenize",
            "secretary",
            "secretName",
            "functionSignature",
        ] {
            assert!(!is_secret(name), "{name}");
        }
    }

    #[test]
    fn long_names_are_judged_in_linear_time() {
        let begun = std::time::Instant::now();
        assert!(!is_secret(&"max_tokens_".repeat(50_000)));
        assert!(!is_secret(&"aB".repeat(200_000)));
        assert!(begun.elapsed().as_secs() < 5);
    }
}
