//! Canaries: another version of a server that serves some of its clients.

use aws_lc_rs::digest::{Context, SHA256};

use crate::caller::Caller;

/// Selects the clients of a server that its canary serves.
///
/// A principal stays at one version, and so does a session of a client without authentication. The
/// decision depends on names alone, so it is the same in every process and after every restart. A
/// greater share includes all clients of a smaller one.
#[derive(Clone, Debug, PartialEq)]
pub struct CanaryRule {
    /// The server whose clients are selected.
    pub server: Box<str>,
    /// The share of clients that the canary serves, from 0 to 1.
    pub share: f64,
}

impl CanaryRule {
    /// Whether the canary serves this caller. It never serves Fanlight itself or operators.
    #[must_use]
    pub fn takes(&self, caller: &Caller) -> bool {
        let principal = caller.principal();
        let is_client = principal.is_named() || principal.is_anonymous();
        if !is_client || self.share <= 0.0 {
            return false;
        }
        let session = caller
            .session_opened_as()
            .filter(|_| principal.is_anonymous());
        let place = match session {
            // The number is the same in every replica that continues the session.
            Some(opened_as) => self.place(&opened_as.to_be_bytes()),
            None => self.place(&principal.to_bytes()),
        };
        place < self.share
    }

    /// A number from 0 up to 1, spread evenly over all keys.
    fn place(&self, key: &[u8]) -> f64 {
        let mut digest = Context::new(&SHA256);
        digest.update(self.server.as_bytes());
        // No server name contains this byte.
        digest.update(&[0xff]);
        digest.update(key);
        let first: Option<[u8; 4]> = digest.finish().as_ref().first_chunk().copied();
        first.map_or(1.0, |first| {
            f64::from(u32::from_be_bytes(first)) / (f64::from(u32::MAX) + 1.0)
        })
    }
}

#[cfg(test)]
mod tests {
    use crate::identity::Principal;

    use super::*;
    use crate::caller::SessionKey;

    fn rule(share: f64) -> CanaryRule {
        CanaryRule {
            server: "billing".into(),
            share,
        }
    }

    fn caller(number: u32) -> Caller {
        Caller::request_of(Principal::new("issuer", &format!("user-{number}")))
    }

    fn taken(rule: &CanaryRule) -> Vec<u32> {
        (0..2000)
            .filter(|number| rule.takes(&caller(*number)))
            .collect()
    }

    #[test]
    fn share_of_principals_is_taken_and_grows_without_losing_any() {
        let of = |share| taken(&rule(share));
        assert!(of(0.0).is_empty());
        assert_eq!(of(1.0).len(), 2000);
        let (some, half) = (of(0.1), of(0.5));
        assert!((150..250).contains(&some.len()), "{}", some.len());
        assert!((900..1100).contains(&half.len()), "{}", half.len());
        assert!(some.iter().all(|number| half.contains(number)));
    }

    /// Other replicas and later releases must decide alike.
    #[test]
    fn decision_is_the_same_in_every_process() {
        assert_eq!(
            taken(&rule(0.005)),
            [
                138, 347, 420, 561, 661, 784, 953, 1334, 1412, 1492, 1859, 1907
            ]
        );
        let other = CanaryRule {
            server: "search".into(),
            ..rule(0.5)
        };
        assert_ne!(
            taken(&other),
            taken(&rule(0.5)),
            "not the same users everywhere"
        );
    }

    #[test]
    fn sessions_without_authentication_are_spread() {
        let sessions = |principal: Principal| {
            let of = |key| Caller::session_of(principal.clone(), SessionKey(key));
            (0..1000).filter(|key| rule(0.5).takes(&of(*key))).count()
        };
        assert!((400..600).contains(&sessions(Principal::anonymous())));
        assert!([0, 1000].contains(&sessions(Principal::new("issuer", "ann"))));
    }

    #[test]
    fn session_that_another_process_continues_stays_at_its_version() {
        let rule = rule(0.5);
        let opened = |number| Caller::session_of(Principal::anonymous(), SessionKey(number));
        let continued = |number| {
            Caller::continued_session_of(
                Principal::anonymous(),
                SessionKey(1_000_000 - number),
                number,
            )
        };
        assert!(
            (0..1000).all(|number| rule.takes(&opened(number)) == rule.takes(&continued(number)))
        );
    }

    #[test]
    fn fanlight_itself_and_operators_stay_at_the_server() {
        let all = rule(1.0);
        assert!(
            !all.takes(&Caller::gateway())
                && !all.takes(&Caller::request_of(Principal::operator()))
        );
        assert!(all.takes(&Caller::request_of(Principal::anonymous())));
    }
}
