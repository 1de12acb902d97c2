//! Remembered tokens by hash: verified ones, and some wrong ones.

use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use fanlight_canonical::identity::Identity;
use fanlight_credentials::Denial;
use quick_cache::sync::Cache;

use super::claims::Binding;
use crate::bearer::TokenHash;

/// The limit of remembered wrong tokens.
const REFUSED: usize = 1024;

/// How long a wrong token is remembered: its key may still be published later.
const REFUSED_FOR: Duration = Duration::from_secs(10);

/// A verified token.
#[derive(Clone, Debug)]
pub(crate) struct Verified {
    pub(crate) identity: Arc<Identity>,
    pub(crate) binding: Binding,
    /// The time until which it need not be verified again.
    pub(crate) until: SystemTime,
}

/// Verified tokens and some wrong ones. Both are limited; frequently used ones stay longest.
pub(crate) struct Memory {
    verified: Cache<TokenHash, Verified>,
    refused: Cache<TokenHash, Instant>,
}

impl Memory {
    /// A memory for this many verified tokens.
    pub(crate) fn new(tokens: usize) -> Self {
        Self {
            verified: Cache::new(tokens),
            refused: Cache::new(REFUSED),
        }
    }

    /// The remembered result for a token; `None` if it has to be verified.
    pub(crate) fn recall(
        &self,
        hash: &TokenHash,
        now: SystemTime,
    ) -> Option<Result<Verified, Denial>> {
        if let Some(verified) = self.verified.get(hash) {
            if now < verified.until && verified.identity.validity.holds_at(now) {
                return Some(Ok(verified));
            }
            self.verified.remove(hash);
        }
        let refused = self.refused.get(hash)?;
        (refused.elapsed() < REFUSED_FOR).then(|| Err(wrong_signature()))
    }

    /// Remembers a verified token.
    pub(crate) fn remember(&self, hash: TokenHash, verified: Verified) {
        self.verified.insert(hash, verified);
    }

    /// Remembers a token whose signature is wrong.
    pub(crate) fn refuse(&self, hash: TokenHash) {
        self.refused.insert(hash, Instant::now());
    }
}

fanlight_protocol::opaque!(Memory);

/// The denial of a token with a wrong signature.
pub(crate) fn wrong_signature() -> Denial {
    Denial::Invalid("the token's signature is wrong".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn verified(until: SystemTime, binding: Binding) -> Verified {
        Verified {
            identity: Arc::new(Identity::anonymous()),
            binding,
            until,
        }
    }

    #[test]
    fn verified_token_is_remembered_until_its_time_is_over() {
        let (memory, hash, now) = (
            Memory::new(10),
            TokenHash::of("t", "/mcp"),
            SystemTime::now(),
        );
        assert!(memory.recall(&hash, now).is_none());
        memory.remember(hash, verified(now + Duration::from_secs(1), Binding::None));
        assert!(memory.recall(&hash, now).unwrap().is_ok());
        assert!(memory.recall(&TokenHash::of("t", "/mcp2"), now).is_none());
        assert!(memory.recall(&TokenHash::of("t/mcp", ""), now).is_none());
        assert!(memory.recall(&hash, now + Duration::from_secs(1)).is_none());
    }

    #[test]
    fn revoked_identity_is_not_remembered() {
        let (memory, hash, now) = (
            Memory::new(10),
            TokenHash::of("t", "/mcp"),
            SystemTime::now(),
        );
        let verified = verified(now + Duration::from_secs(1), Binding::None);
        let revoked = verified.identity.validity.revoked.clone();
        memory.remember(hash, verified);
        revoked.cancel();
        assert!(memory.recall(&hash, now).is_none());
    }

    #[test]
    fn remembered_tokens_are_bounded() {
        let (memory, now) = (Memory::new(100), SystemTime::now());
        for number in 0..10_000 {
            let hash = TokenHash::of(&number.to_string(), "/mcp");
            memory.remember(hash, verified(now + Duration::from_secs(1), Binding::None));
            memory.refuse(hash);
        }
        assert!(memory.verified.len() <= 100 && memory.refused.len() <= REFUSED);
    }
}
