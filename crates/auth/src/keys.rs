//! Keys, for clients without an authorization server: long random texts, of which only digests are
//! stored.
//!
//! A key is looked up by its SHA-256 digest. The duration of a lookup reveals nothing about
//! existing keys, since nobody can choose a digest without having its key.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::SystemTime;

use aws_lc_rs::rand;
use fanlight_canonical::identity::{Claims, Identity, Principal, Scopes, Source, Validity};
use fanlight_config::Key;
use fanlight_credentials::Denial;
use fanlight_protocol::digest::sha256;
use tokio_util::sync::CancellationToken;

use crate::bearer::KEY_PREFIX;
use crate::settings::texts;

/// The issuer of keys' principals. Unlike issuers of tokens, it is not a URL.
const ISSUER: &str = "fanlight:key";
/// The number of random characters of a key: 62^43 is more than 2^256.
const RANDOM: usize = 43;
/// The number of characters of the checksum: 62^6 is more than 2^32.
const CHECKSUM: usize = 6;
const DIGITS: &[u8; 62] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";

/// The SHA-256 digest of a key.
pub fn digest(key: &str) -> [u8; 32] {
    sha256([key])
}

/// A new key: `fanlight_`, 43 random letters and digits, and a checksum of 6. The checksum tells a
/// key that was not copied completely from an unknown one.
pub struct NewKey(String);

fanlight_protocol::opaque!(NewKey);

impl NewKey {
    /// Makes a key; `None` if the system has no random numbers.
    pub fn make() -> Option<Self> {
        let mut key = String::from(KEY_PREFIX);
        let whole = KEY_PREFIX.len() + RANDOM;
        while key.len() < whole {
            let mut bytes = [0_u8; 64];
            rand::fill(&mut bytes).ok()?;
            // Numbers beyond the last multiple of 62 would make some digits more likely.
            let even = bytes.iter().filter(|byte| **byte < 248);
            let digits = even
                .filter_map(|byte| DIGITS.get(usize::from(byte % 62)).copied())
                .map(char::from);
            key.extend(digits.take(whole - key.len()));
        }
        let checksum = checksum(&key);
        key.push_str(&checksum);
        Some(Self(key))
    }

    /// The key itself.
    pub fn text(&self) -> &str {
        &self.0
    }
}

/// The checksum of a text: the first 32 bits of its SHA-256 digest, as digits of base 62.
fn checksum(text: &str) -> String {
    let [a, b, c, d, ..] = digest(text);
    let mut number = u32::from_be_bytes([a, b, c, d]) as usize;
    let mut digits = [b'0'; CHECKSUM];
    for digit in digits.iter_mut().rev() {
        *digit = DIGITS.get(number % 62).copied().unwrap_or(b'0');
        number /= 62;
    }
    digits.iter().map(|digit| char::from(*digit)).collect()
}

/// Whether a text has the form of a key by [`NewKey::make`].
fn is_whole(key: &str) -> bool {
    let at = KEY_PREFIX.len() + RANDOM;
    key.len() == at + CHECKSUM
        && key
            .bytes()
            .skip(KEY_PREFIX.len())
            .all(|byte| byte.is_ascii_alphanumeric())
        && key
            .split_at_checked(at)
            .is_some_and(|(body, end)| checksum(body) == end)
}

/// The keys in force.
#[derive(Debug)]
pub(crate) struct Keys(HashMap<[u8; 32], Arc<Identity>>);

impl Keys {
    /// The keys of these entries. Unchanged entries keep their identities from `current`.
    pub(crate) fn renew(current: Option<&Self>, entries: Option<&[Key]>) -> Option<Self> {
        let identity = |entry: &Key| {
            let earlier = current.and_then(|keys| keys.0.get(&entry.sha256));
            let new = identity(entry, CancellationToken::new());
            match earlier {
                Some(earlier) if is_equal(earlier, &new) => Arc::clone(earlier),
                // Running requests may finish with the old identity. A later revocation ends them,
                // too.
                Some(earlier) if allows_all_of(&new, earlier) => {
                    Arc::new(identity(entry, earlier.validity.revoked.clone()))
                }
                _ => Arc::new(new),
            }
        };
        Some(Self(
            entries?
                .iter()
                .map(|entry| (entry.sha256, identity(entry)))
                .collect(),
        ))
    }

    /// Revokes the identities of entries that `new` lacks, or gives fewer rights.
    pub(crate) fn revoke_except(&self, new: Option<&Self>) {
        for (digest, old) in &self.0 {
            let kept = new
                .and_then(|new| new.0.get(digest))
                .is_some_and(|new| allows_all_of(new, old));
            if !kept {
                old.validity.revoked.cancel();
            }
        }
    }

    /// Whether a key has the right form, but is not in force.
    pub(crate) fn is_unknown(&self, key: &str) -> bool {
        is_whole(key) && !self.0.contains_key(&digest(key))
    }

    /// The identity of a key.
    pub(crate) fn identity(&self, key: &str) -> Result<Arc<Identity>, Denial> {
        if !is_whole(key) {
            return Err(Denial::Invalid("this key is mistyped or incomplete".into()));
        }
        let unknown = || Denial::Invalid("this key is unknown, or has been revoked".into());
        let identity = self.0.get(&digest(key)).ok_or_else(unknown)?;
        if identity.validity.holds_at(SystemTime::now()) {
            Ok(Arc::clone(identity))
        } else {
            Err(Denial::Invalid("this key has expired".into()))
        }
    }
}

fn identity(entry: &Key, revoked: CancellationToken) -> Identity {
    Identity {
        principal: Principal::new(ISSUER, &entry.name),
        name: entry.name.as_str().into(),
        source: Source::Key,
        groups: texts(&entry.groups),
        scopes: entry.scopes.as_deref().map_or(Scopes::All, |scopes| {
            Scopes::Only(Arc::new(texts(scopes).iter().cloned().collect()))
        }),
        claims: Claims::default(),
        endpoints: entry.endpoints.as_deref().map(texts),
        validity: Validity {
            expires: entry.expires,
            revoked,
        },
    }
}

/// Whether two identities of a key have the same principal, rights and lifetime.
fn is_equal(one: &Identity, other: &Identity) -> bool {
    allows_all_of(one, other) && allows_all_of(other, one)
}

/// Whether `new` has the same principal as `old`, and at least its rights and lifetime.
fn allows_all_of(new: &Identity, old: &Identity) -> bool {
    let all = |old: &[Arc<str>], new: &[Arc<str>]| old.iter().all(|one| new.contains(one));
    let endpoints = match (&old.endpoints, &new.endpoints) {
        (_, None) => true,
        (None, Some(_)) => false,
        (Some(old), Some(new)) => all(old, new),
    };
    let scopes = match (&old.scopes, &new.scopes) {
        (_, Scopes::All) => true,
        (Scopes::All, Scopes::Only(_)) => false,
        (Scopes::Only(old), Scopes::Only(new)) => old.is_subset(new),
    };
    let lasts = match (old.validity.expires, new.validity.expires) {
        (_, None) => true,
        (None, Some(_)) => false,
        (Some(old), Some(new)) => old <= new,
    };
    old.principal == new.principal && all(&old.groups, &new.groups) && endpoints && scopes && lasts
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn entry(name: &str, key: &NewKey) -> Key {
        Key {
            name: name.to_owned(),
            sha256: digest(key.text()),
            groups: vec!["agents".to_owned()],
            scopes: Some(vec!["mcp:read".to_owned()]),
            expires: None,
            endpoints: None,
        }
    }

    fn keys_after(current: Option<&Keys>, entries: &[Key]) -> Keys {
        Keys::renew(current, Some(entries)).unwrap()
    }

    fn key() -> NewKey {
        NewKey::make().unwrap()
    }

    #[test]
    fn key_is_recognised_and_differs_from_others() {
        let (one, other) = (key(), key());
        assert!(is_whole(one.text()) && is_whole(other.text()));
        assert_ne!(one.text(), other.text());
        assert_eq!(one.text().len(), 58);
        assert_eq!(format!("{one:?}"), "NewKey(***)");
    }

    #[test]
    fn mistyped_key_is_told_from_an_unknown_one() {
        let (known, unknown) = (key(), key());
        let keys = keys_after(None, &[entry("ci", &known)]);
        assert_eq!(&*keys.identity(known.text()).unwrap().name, "ci");
        let denial = |text: &str| keys.identity(text).unwrap_err().to_string();
        assert!(denial(unknown.text()).contains("unknown"));
        for at in [9, 20, 51, 57] {
            let mut mistyped: Vec<u8> = known.text().into();
            mistyped[at] = if mistyped[at] == b'a' { b'b' } else { b'a' };
            assert!(
                denial(std::str::from_utf8(&mistyped).unwrap()).contains("mistyped"),
                "{at}"
            );
        }
        let long = format!("{}0", known.text());
        for text in [
            &known.text()[..57],
            &long,
            "fanlight_",
            &known.text().to_uppercase(),
            "fanlight_\u{e9}",
        ] {
            assert!(denial(text).contains("mistyped"), "{text}");
        }
    }

    #[test]
    fn digits_of_keys_are_equally_likely() {
        let mut counts = HashMap::new();
        let keys: Vec<_> = (0..600).map(|_| key()).collect();
        keys.iter().for_each(|key| {
            key.text()
                .bytes()
                .skip(9)
                .take(43)
                .for_each(|digit| *counts.entry(digit).or_insert(0) += 1);
        });
        // Each digit occurs about 416 times.
        assert_eq!(counts.len(), 62);
        assert!(
            counts.values().all(|count| (290..560).contains(count)),
            "{counts:?}"
        );
    }

    #[test]
    fn expired_key_is_invalid() {
        let key = key();
        let now = SystemTime::now();
        let expiring = |expires| {
            vec![Key {
                expires: Some(expires),
                ..entry("ci", &key)
            }]
        };
        assert!(
            keys_after(None, &expiring(now + Duration::from_secs(60)))
                .identity(key.text())
                .is_ok()
        );
        let denial = keys_after(None, &expiring(now))
            .identity(key.text())
            .unwrap_err();
        assert_eq!(denial, Denial::Invalid("this key has expired".into()));
    }

    #[test]
    fn keys_of_one_name_are_one_principal() {
        let (old, new) = (key(), key());
        let keys = keys_after(None, &[entry("ci", &old), entry("ci", &new)]);
        let principal = |key: &NewKey| keys.identity(key.text()).unwrap().principal.clone();
        assert_eq!(principal(&old), principal(&new));
        assert_eq!(principal(&old), Principal::new("fanlight:key", "ci"));
    }

    #[test]
    fn unchanged_entry_keeps_its_identity() {
        let (ci, dev) = (key(), key());
        let before = keys_after(None, &[entry("ci", &ci), entry("dev", &dev)]);
        let (kept, gone) = (
            before.identity(ci.text()).unwrap(),
            before.identity(dev.text()).unwrap(),
        );
        let after = keys_after(Some(&before), &[entry("ci", &ci)]);
        before.revoke_except(Some(&after));
        assert!(Arc::ptr_eq(&kept, &after.identity(ci.text()).unwrap()));
        assert!(!kept.validity.revoked.is_cancelled() && gone.validity.revoked.is_cancelled());
        assert!(after.identity(dev.text()).is_err());
    }

    #[test]
    fn entry_that_is_changed_to_less_is_revoked() {
        let ci = key();
        let now = SystemTime::now() + Duration::from_secs(1000);
        let base = Key {
            expires: Some(now),
            endpoints: Some(vec!["/mcp".to_owned()]),
            ..entry("ci", &ci)
        };
        let less = [
            Key {
                name: "other".to_owned(),
                ..base.clone()
            },
            Key {
                groups: vec![],
                ..base.clone()
            },
            Key {
                scopes: Some(vec![]),
                ..base.clone()
            },
            Key {
                expires: Some(now - Duration::from_secs(1)),
                ..base.clone()
            },
            Key {
                endpoints: Some(vec![]),
                ..base.clone()
            },
        ];
        for changed in less {
            let before = keys_after(None, std::slice::from_ref(&base));
            let old = before.identity(ci.text()).unwrap();
            let after = keys_after(Some(&before), std::slice::from_ref(&changed));
            before.revoke_except(Some(&after));
            assert!(old.validity.revoked.is_cancelled(), "{changed:?}");
            assert!(
                !after
                    .identity(ci.text())
                    .unwrap()
                    .validity
                    .revoked
                    .is_cancelled(),
                "{changed:?}"
            );
        }
    }

    #[test]
    fn entry_that_is_changed_to_more_is_revoked_with_the_last_of_it() {
        let ci = key();
        let before = keys_after(None, &[entry("ci", &ci)]);
        let old = before.identity(ci.text()).unwrap();
        let after = keys_after(
            Some(&before),
            &[Key {
                groups: vec!["agents".to_owned(), "admins".to_owned()],
                scopes: None,
                ..entry("ci", &ci)
            }],
        );
        before.revoke_except(Some(&after));
        let new = after.identity(ci.text()).unwrap();
        assert!(!Arc::ptr_eq(&old, &new) && !old.validity.revoked.is_cancelled());
        assert!(new.scopes == Scopes::All && new.groups.len() == 2);
        after.revoke_except(None);
        assert!(old.validity.revoked.is_cancelled() && new.validity.revoked.is_cancelled());
    }
}
