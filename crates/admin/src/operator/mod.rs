//! Operators: their roles, their proofs of identity, and their sessions. [`access`](crate::access)
//! decides which requests they may make.

mod denied;
mod sessions;
mod token;

use std::collections::{HashMap, VecDeque};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use fanlight_canonical::identity::{Identity, Principal, Source, Validity};
use fanlight_config::{AdminRoles, AllowedClients};
use fanlight_credentials::{CommonSessions, KeptSession, cookies};
use fanlight_fair::{Quota, Rate};
use fanlight_protocol::seal::{Keys, Seal};
use fanlight_record::Actor;
use http::HeaderMap;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

pub(crate) use denied::Denied;
pub use sessions::SignInIssuer;
pub(crate) use sessions::{Proof, SessionInForce, SessionLimits, Sessions};
pub(crate) use token::{Authorization, Digest};

/// The operator who makes a request, with a role.
#[derive(Clone, Debug)]
pub(crate) struct Operator {
    pub(crate) role: Role,
    /// The name for people, which is not unique.
    pub(crate) name: Arc<str>,
    /// The operator's principal as a client. `None` if the operator is not identified.
    pub(crate) principal: Option<Principal>,
    /// The kind of the proof that identifies the operator.
    pub(crate) source: &'static str,
    /// How long the proof is valid.
    pub(crate) validity: Validity,
    /// The session of the page, if it identifies the operator.
    pub(crate) session: Option<SessionInForce>,
}

/// The reason why a proof is useless.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Worthless {
    /// The proof has expired, was revoked, or was never valid.
    Unaccepted,
    /// The proof identifies somebody who has no role.
    NoRole(Known),
}

/// Somebody who is identified but is no operator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Known {
    /// The name for people, which is not unique.
    pub(crate) name: Arc<str>,
    pub(crate) principal: Principal,
}

impl Known {
    pub(crate) fn from_identity(identity: &Identity) -> Self {
        Self {
            name: Arc::clone(&identity.name),
            principal: identity.principal.clone(),
        }
    }
}

impl Operator {
    /// The operator of a listener that requires no proof.
    pub(crate) fn unknown() -> Self {
        Self {
            role: Role::Operator,
            name: Arc::from("not signed in"),
            principal: None,
            source: "none",
            validity: Validity::default(),
            session: None,
        }
    }

    /// The operator of a request from `peer`, for the audit log.
    pub(crate) fn audit_actor(&self, peer: Option<SocketAddr>) -> Actor<'_> {
        Actor {
            name: &self.name,
            principal: self.principal.as_ref(),
            source: self.source,
            role: self.role.as_str(),
            peer,
        }
    }

    /// Waits until the operator's identity is revoked or the session has ended.
    pub(crate) async fn ended(&self) {
        let signed_out = async {
            match &self.session {
                Some(session) => session.ended.cancelled().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = self.validity.revoked.cancelled() => {}
            () = signed_out => {}
        }
    }
}

/// How much of the idle time may pass before the record says that the session was used.
const RENEWED_AFTER: Duration = Duration::from_secs(60);

/// The proof in a record.
#[derive(Serialize, Deserialize)]
pub(crate) enum CommonProof {
    /// The token with which the operator signed in.
    Token(String),
    /// A proof of a sign-in at an issuer.
    SignedIn { at: SignInIssuer, proof: String },
}

/// The session in a record.
#[derive(Serialize, Deserialize)]
pub(crate) struct CommonSession {
    pub(crate) began: SystemTime,
    pub(crate) proof: CommonProof,
}

/// The state of a session by the records.
pub(crate) enum Recorded {
    /// Nothing: there is no other replica, or the records cannot be read now.
    Unknown,
    /// The session has ended, or never was.
    Ended,
    /// The session is in force.
    InForce(CommonSession),
}

/// The records of all replicas' sessions; none if this process is alone.
pub(crate) struct Common(Option<(Arc<dyn CommonSessions>, Seal)>);

impl Common {
    pub(crate) fn new(records: Option<Arc<dyn CommonSessions>>, keys: &Keys) -> Self {
        let seal = || Seal::new(keys, b"session of an operator\0").ok();
        Self(records.and_then(|records| Some((records, seal()?))))
    }

    /// The session id for the cookie. A replica looks only for ids that a replica has sealed, so
    /// that made-up ones cost no request to Valkey.
    pub(crate) fn seal(&self, id: String) -> Option<String> {
        match &self.0 {
            Some((_, seal)) => seal.seal(id.as_bytes()),
            None => Some(id),
        }
    }

    /// Whether another replica may know a session with this id.
    pub(crate) fn may_know(&self, id: &str) -> bool {
        self.0
            .as_ref()
            .is_some_and(|(_, seal)| seal.open(id).is_some())
    }

    /// Looks a session up, and notes from time to time that it was used.
    pub(crate) async fn find(&self, key: Digest, limits: &SessionLimits) -> Recorded {
        let Some((records, _)) = &self.0 else {
            return Recorded::Unknown;
        };
        let (name, now) = (key.name(), SystemTime::now());
        let Ok(kept) = records.get(&name).await else {
            return Recorded::Unknown;
        };
        let read = |kept: &KeptSession| serde_json::from_str::<CommonSession>(&kept.text).ok();
        let session = kept
            .as_ref()
            .filter(|kept| now < kept.expires)
            .and_then(read);
        let Some(session) = session.filter(|one| now < one.began + limits.lifetime) else {
            return Recorded::Ended;
        };
        let expires = now + limits.idle;
        if let Some(kept) = kept.filter(|kept| kept.expires + RENEWED_AFTER < expires) {
            let _ = records
                .replace(&name, KeptSession { expires, ..kept })
                .await;
        }
        Recorded::InForce(session)
    }

    /// Tells the other replicas about a session. If that fails, only this replica knows the session
    /// until the records can be read again.
    pub(crate) async fn tell(&self, key: Digest, proof: CommonProof, limits: &SessionLimits) {
        let began = SystemTime::now();
        let text = serde_json::to_string(&CommonSession { began, proof });
        if let (Some((records, _)), Ok(text)) = (&self.0, text) {
            let expires = began + limits.idle;
            let _ = records
                .put(&key.name(), KeptSession { text, expires })
                .await;
        }
    }

    /// Ends a session at all replicas.
    pub(crate) async fn end(&self, key: Digest) -> Result<(), String> {
        match &self.0 {
            Some((records, _)) => records.remove(&key.name()).await,
            None => Ok(()),
        }
    }
}

fanlight_protocol::named! {
    /// A role, which decides what an operator may do. Each role includes the roles before it.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
    pub enum Role {
        /// May see everything, and change nothing.
        Viewer = "viewer",
        /// May also answer calls that wait for approval.
        Approver = "approver",
        /// May do everything: call tools, switch and restart servers, reload, end sessions.
        Operator = "operator",
    }
}

/// The role of an identity, if it has one. A client that is not authenticated has none. Names for
/// people do not count, because users who can choose their name could choose an operator's.
pub(crate) fn role_of(identity: &Identity, roles: &AdminRoles) -> Option<Role> {
    if identity.source == Source::Anonymous {
        return None;
    }
    let id = identity.principal.id()?;
    let is_member = |member: &AllowedClients| match member {
        AllowedClients::Group(name) => identity.groups.iter().any(|group| **group == *name),
        AllowedClients::User(user) => *user == id,
        // A valid configuration has none of these here.
        AllowedClients::Scope(_) | AllowedClients::Anybody => false,
    };
    let roles = [
        (Role::Operator, &roles.operator),
        (Role::Approver, &roles.approver),
        (Role::Viewer, &roles.viewer),
    ];
    roles
        .into_iter()
        .find(|(_, members)| members.iter().any(is_member))
        .map(|(role, _)| role)
}

/// The purpose of a cookie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// The session of an operator.
    Session,
    /// A sign-in at an issuer that began in this browser.
    SignIn,
}

/// The cookies of a listener.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Cookies {
    /// Whether browsers reach the listener over https.
    pub(crate) is_secure: bool,
    /// The path of the listener's public URL, without a slash at the end.
    pub(crate) path: String,
    /// The port in the names of the cookies.
    pub(crate) port: u16,
}

/// The session cookie of a request.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Shown<'a> {
    /// The request has no cookie with this name.
    Nothing,
    /// The value of the cookie.
    Value(&'a str),
    /// The request has several cookies with this name. Another page of this host may have set one
    /// of them.
    Several,
}

impl Cookies {
    /// The name of a cookie.
    pub(crate) fn name(&self, purpose: Purpose) -> String {
        let name = match purpose {
            Purpose::Session => "fanlight",
            Purpose::SignIn => "fanlight-sign-in",
        };
        match self.is_secure {
            true if self.path.is_empty() => format!("__Host-{name}"),
            true => format!("__Secure-{name}"),
            false => format!("{name}-{}", self.port),
        }
    }

    /// The cookie in a request.
    pub(crate) fn read<'a>(&self, purpose: Purpose, headers: &'a HeaderMap) -> Shown<'a> {
        let name = self.name(purpose);
        let mut values = cookies(headers, &name);
        match (values.next(), values.next()) {
            (None, _) => Shown::Nothing,
            (Some(value), None) => Shown::Value(value),
            (Some(_), Some(_)) => Shown::Several,
        }
    }

    /// The value of `Set-Cookie` that sets a cookie. The cookie lasts for `age`, or until the
    /// browser ends.
    pub(crate) fn set(&self, purpose: Purpose, value: &str, age: Option<Duration>) -> String {
        let age = age
            .map(|age| format!("; Max-Age={}", age.as_secs()))
            .unwrap_or_default();
        let secure = if self.is_secure { "; Secure" } else { "" };
        format!(
            "{}={value}; Path={}; HttpOnly; SameSite=Strict{secure}{age}",
            self.name(purpose),
            if self.path.is_empty() {
                "/"
            } else {
                &self.path
            }
        )
    }

    /// The value of `Set-Cookie` that removes a cookie.
    pub(crate) fn remove(&self, purpose: Purpose) -> String {
        self.set(purpose, "", Some(Duration::ZERO))
    }
}

/// The limit of the peers whose failures are counted separately. It is also the limit of the peers
/// with remembered credentials. There is no option: it limits memory.
const PEERS: usize = 4096;
/// The limit of remembered credentials of one peer, which may be a proxy for many people.
const OF_ONE: usize = 32;

/// Counts the refused credentials of each peer.
#[derive(Debug)]
pub(crate) struct Throttle {
    failures: Rate<Option<IpAddr>>,
    /// The accepted credentials of each peer, the latest last. They are checked even if another
    /// program behind the same address tries wrong ones.
    accepted: Mutex<HashMap<Option<IpAddr>, VecDeque<Digest>>>,
}

impl Throttle {
    /// Whether credentials of this peer may be checked. `most` is how many wrong ones the peer may
    /// send in a minute.
    ///
    /// # Errors
    ///
    /// Returns the time until they may be checked.
    pub(crate) fn check(
        &self,
        peer: Option<IpAddr>,
        shown: Digest,
        most: usize,
    ) -> Result<(), Duration> {
        match self.failures.check(&peer, Quota::per_minute(most)) {
            Err(_) if self.is_accepted(peer, shown) => Ok(()),
            outcome => outcome.map_err(|too_many| too_many.retry_after),
        }
    }

    /// Counts refused credentials.
    pub(crate) fn count_failure(&self, peer: Option<IpAddr>, most: usize) {
        // This exceeds the quota only if several credentials were checked at the same time.
        let _ = self.failures.charge(&peer, Quota::per_minute(most));
    }

    /// Remembers accepted credentials.
    pub(crate) fn remember_accepted(&self, peer: Option<IpAddr>, shown: Digest) {
        let mut accepted = self.accepted.lock();
        if accepted.len() < PEERS || accepted.contains_key(&peer) {
            let of_peer = accepted.entry(peer).or_default();
            of_peer.retain(|one| *one != shown);
            if of_peer.len() >= OF_ONE {
                of_peer.pop_front();
            }
            of_peer.push_back(shown);
        }
    }

    fn is_accepted(&self, peer: Option<IpAddr>, shown: Digest) -> bool {
        let accepted = self.accepted.lock();
        accepted
            .get(&peer)
            .is_some_and(|of_peer| of_peer.contains(&shown))
    }
}

impl Default for Throttle {
    fn default() -> Self {
        Self {
            failures: Rate::new(PEERS),
            accepted: Mutex::default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use fanlight_canonical::identity::{Principal, Scopes};
    use http::HeaderValue;
    use http::header::COOKIE;

    use super::*;

    fn identity(issuer: &str, subject: &str, groups: &[&str]) -> Identity {
        let groups = groups.iter().map(|group| Arc::from(*group)).collect();
        Identity {
            principal: Principal::new(issuer, subject),
            groups,
            source: Source::Token,
            ..Identity::anonymous()
        }
    }

    fn roles() -> AdminRoles {
        let members = |group: &str, user: &str| {
            vec![
                AllowedClients::Group(group.into()),
                AllowedClients::User(user.into()),
            ]
        };
        AdminRoles {
            operator: members("ops", "https://id.example#root"),
            approver: members("seniors", "https://id.example#sue"),
            viewer: members("staff", "key#dashboard"),
        }
    }

    #[test]
    fn role_is_the_highest_that_a_group_or_the_identity_has() {
        let roles = roles();
        let of = |subject, groups: &[&str]| {
            role_of(&identity("https://id.example", subject, groups), &roles)
        };
        assert_eq!(of("x", &["staff", "ops"]), Some(Role::Operator));
        assert_eq!(of("root", &["staff"]), Some(Role::Operator));
        assert_eq!(of("x", &["staff", "seniors"]), Some(Role::Approver));
        assert_eq!(of("sue", &["ops"]), Some(Role::Operator));
        assert_eq!(of("x", &["staff"]), Some(Role::Viewer));
        let key = identity("fanlight:key", "dashboard", &[]);
        assert_eq!(role_of(&key, &roles), Some(Role::Viewer));
        assert!(Role::Viewer < Role::Approver && Role::Approver < Role::Operator);
    }

    #[test]
    fn similar_names_groups_and_scopes_give_no_role() {
        let roles = roles();
        for (issuer, subject, groups) in [
            (
                "https://id.example",
                "x",
                &["Ops", "op", "ops ", "key#dashboard"][..],
            ),
            ("https://id.example/", "root", &[]),
            ("https://other.example", "root", &[]),
            ("https://id.example", "Root", &[]),
            ("https://id.example", "dashboard", &[]),
            ("fanlight:key", "root", &[]),
            ("fanlight:proxy", "dashboard", &[]),
            ("https://id.example", "https://id.example#root", &[]),
        ] {
            let named = Identity {
                name: Arc::from("https://id.example#root"),
                scopes: Scopes::parse("ops operator group:ops"),
                ..identity(issuer, subject, groups)
            };
            assert_eq!(
                role_of(&named, &roles),
                None,
                "{issuer} {subject} {groups:?}"
            );
            assert_eq!(
                role_of(
                    &Identity {
                        scopes: Scopes::All,
                        ..named
                    },
                    &roles
                ),
                None
            );
        }
        let anonymous = Identity {
            groups: Arc::from([Arc::from("ops")]),
            ..Identity::anonymous()
        };
        assert_eq!(role_of(&anonymous, &roles), None);
        assert_eq!(
            role_of(
                &identity("https://id.example", "root", &["ops"]),
                &AdminRoles::default()
            ),
            None
        );
    }

    const PLAIN: Cookies = Cookies {
        is_secure: false,
        path: String::new(),
        port: 8081,
    };
    const SECURE: Cookies = Cookies {
        is_secure: true,
        path: String::new(),
        port: 8081,
    };

    #[test]
    fn cookie_is_for_this_host_and_its_own_pages_alone() {
        let set = PLAIN.set(Purpose::Session, "abc", None);
        assert_eq!(set, "fanlight-8081=abc; Path=/; HttpOnly; SameSite=Strict");
        let set = SECURE.set(Purpose::SignIn, "abc", Some(Duration::from_secs(600)));
        assert_eq!(
            set,
            "__Host-fanlight-sign-in=abc; Path=/; HttpOnly; SameSite=Strict; Secure; Max-Age=600"
        );
        let below = Cookies {
            path: "/gate".to_owned(),
            ..SECURE
        };
        assert_eq!(
            below.set(Purpose::Session, "abc", None),
            "__Secure-fanlight=abc; Path=/gate; HttpOnly; SameSite=Strict; Secure"
        );
        assert!(
            SECURE
                .remove(Purpose::Session)
                .ends_with("; Secure; Max-Age=0")
        );
    }

    #[test]
    fn cookie_is_read_by_its_exact_name_and_once() {
        let read = |cookies: &Cookies, values: &[&'static str]| {
            let mut headers = HeaderMap::new();
            values
                .iter()
                .for_each(|value| _ = headers.append(COOKIE, HeaderValue::from_static(value)));
            match cookies.read(Purpose::Session, &headers) {
                Shown::Value(value) => value.to_owned(),
                other => format!("{other:?}"),
            }
        };
        assert_eq!(
            read(&PLAIN, &["a=b; fanlight-8081=x; fanlight-8082=y"]),
            "x"
        );
        assert_eq!(
            read(&PLAIN, &["fanlight-8082=y; Fanlight-8081=z; fanlight=x"]),
            "Nothing"
        );
        assert_eq!(
            read(&PLAIN, &["fanlight-8081=x; fanlight-8081=y"]),
            "Several"
        );
        assert_eq!(
            read(&PLAIN, &["fanlight-8081=x", "fanlight-8081=x"]),
            "Several"
        );
        // Without the prefix, a page without TLS may have set the cookie.
        assert_eq!(read(&SECURE, &["fanlight=x; fanlight-8081=x"]), "Nothing");
        assert_eq!(read(&SECURE, &["__Host-fanlight=x"]), "x");
    }

    const MOST: usize = 3;

    fn peer(last: u16) -> Option<IpAddr> {
        let [high, low] = last.to_be_bytes();
        Some(IpAddr::from([10, 0, high, low]))
    }

    /// The time after which one more of [`MOST`] is allowed.
    const PART: Duration = Duration::from_secs(20);

    #[tokio::test(start_paused = true)]
    async fn peer_waits_after_some_failures_and_others_do_not() {
        let (throttle, guess) = (Throttle::default(), Digest::compute(b"guess"));
        for _ in 0..MOST {
            assert_eq!(throttle.check(peer(1), guess, MOST), Ok(()));
            throttle.count_failure(peer(1), MOST);
        }
        assert_eq!(throttle.check(peer(1), guess, MOST), Err(PART));
        assert_eq!(throttle.check(peer(2), guess, MOST), Ok(()));
        tokio::time::advance(PART / 2).await;
        // Refused attempts do not prolong the wait.
        assert_eq!(throttle.check(peer(1), guess, MOST), Err(PART / 2));
        tokio::time::advance(PART / 2).await;
        assert_eq!(throttle.check(peer(1), guess, MOST), Ok(()));
        throttle.count_failure(peer(1), MOST);
        assert_eq!(
            throttle.check(peer(1), guess, MOST),
            Err(PART),
            "it may fail as often in each minute"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn credentials_that_were_accepted_from_a_peer_are_looked_at_all_the_same() {
        let (throttle, good) = (Throttle::default(), Digest::compute(b"good"));
        throttle.remember_accepted(peer(1), good);
        // Another person behind the same proxy signs in, too.
        throttle.remember_accepted(peer(1), Digest::compute(b"of another"));
        (0..MOST).for_each(|_| throttle.count_failure(peer(1), MOST));
        (0..MOST).for_each(|_| throttle.count_failure(peer(2), MOST));
        assert_eq!(throttle.check(peer(1), good, MOST), Ok(()));
        assert!(
            throttle
                .check(peer(1), Digest::compute(b"guess"), MOST)
                .is_err()
        );
        assert!(throttle.check(peer(2), good, MOST).is_err());
    }

    #[tokio::test(start_paused = true)]
    async fn table_is_bounded_and_peers_beyond_it_are_throttled_together() {
        let (throttle, guess) = (Throttle::default(), Digest::compute(b"guess"));
        for last in 0..u16::try_from(PEERS).unwrap() + 500 {
            throttle.count_failure(peer(last), MOST);
            throttle.remember_accepted(peer(last), guess);
        }
        assert_eq!(
            (throttle.failures.len(), throttle.accepted.lock().len()),
            (PEERS, PEERS)
        );
        assert!(throttle.check(peer(60_000), guess, MOST).is_err());
        assert_eq!(throttle.check(peer(0), guess, MOST), Ok(()));
        tokio::time::advance(PART).await;
        throttle.count_failure(peer(60_000), MOST);
        assert_eq!(throttle.failures.len(), 1);
    }
}
