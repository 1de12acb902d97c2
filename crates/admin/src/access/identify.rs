//! Identifies the operator who makes a request.
//!
//! The first of these that the request has decides: `Authorization`, the cookie of a session, the
//! connection. If it is not accepted, the request is refused, and the next one is not tried.

use std::net::IpAddr;
use std::time::SystemTime;

use fanlight_canonical::identity::Source;
use fanlight_credentials::{ConnectionFacts, Credentials};
use fanlight_http::peer_of;
use http::header::AUTHORIZATION;
use http::{HeaderMap, HeaderValue, Method};

use crate::operator::{
    Authorization, CommonProof, CommonSession, Denied, Digest, Known, Operator, Proof, Purpose,
    Recorded, SessionInForce, Shown, Worthless,
};
use crate::{Admin, InForce};

/// The name of the endpoint that an identity needs if it is limited to certain endpoints. Paths of
/// endpoints begin with a slash, so a key for certain endpoints is never valid here.
const ENDPOINT: &str = "admin";

/// The address whose share of limits a connection uses.
pub(crate) fn peer(connection: &ConnectionFacts) -> Option<IpAddr> {
    connection.peer.map(|peer| peer_of(peer.ip()))
}

impl Admin {
    /// Identifies the operator who makes a request with these headers.
    pub(crate) async fn identify(
        &self,
        now: &InForce,
        headers: &HeaderMap,
        connection: &ConnectionFacts,
    ) -> Result<Operator, Denied> {
        match Authorization::read(headers) {
            Authorization::Bearer(token) => {
                let proof = self.prove_token(now, token, connection).await?;
                return Ok(now.judge(&proof, SystemTime::now())?);
            }
            Authorization::Other => {
                return Err(Denied::Malformed(
                    "write one `Authorization: Bearer <token>`".into(),
                ));
            }
            Authorization::Absent => {}
        }
        match now.cookies(connection).read(Purpose::Session, headers) {
            Shown::Value(id) => self.session(now, id, connection).await,
            Shown::Several => Err(Denied::Malformed(
                "there are several session cookies: another page of this host has set one".into(),
            )),
            Shown::Nothing => self.by_connection(now, headers, connection).await,
        }
    }

    /// Finds the operator who is signed in with this session id.
    pub(crate) async fn session(
        &self,
        now: &InForce,
        id: &str,
        connection: &ConnectionFacts,
    ) -> Result<Operator, Denied> {
        let session = self.find_session(now, id, connection).await;
        let session = session.ok_or(Denied::SessionOver)?;
        match now.judge(&session.proof, SystemTime::now()) {
            Ok(operator) => Ok(Operator {
                session: Some(session),
                ..operator
            }),
            Err(Worthless::Unaccepted) => {
                self.sessions.end(session.key);
                Err(Denied::SessionOver)
            }
            Err(no_role) => Err(no_role.into()),
        }
    }

    /// Finds a session of this replica or of another one, and counts it as used now.
    async fn find_session(
        &self,
        now: &InForce,
        id: &str,
        connection: &ConnectionFacts,
    ) -> Option<SessionInForce> {
        let (key, limits) = (Digest::compute(id.as_bytes()), now.session_limits());
        let own = self.sessions.touch(key, &limits);
        if own.is_none() && !self.common.may_know(id) {
            return None;
        }
        let CommonSession { began, proof } = match (self.common.find(key, &limits).await, own) {
            (Recorded::Ended, _) => {
                self.sessions.end(key);
                return None;
            }
            (Recorded::InForce(session), None) => session,
            (_, own) => return own,
        };
        let proof = match proof {
            CommonProof::Token(token) => {
                let digest = Digest::compute(token.as_bytes());
                self.check_token(now, &token, digest, connection).await.ok()
            }
            CommonProof::SignedIn { at, proof } => {
                let identified = self.subject.sign_in.identify(&proof).await.ok();
                identified.map(|identity| Proof::SignedIn { at, identity })
            }
        };
        let age = SystemTime::now().duration_since(began).unwrap_or_default();
        self.sessions
            .add(key, proof?, peer(connection), age, &limits);
        self.sessions.touch(key, &limits)
    }

    /// Ends a session at all replicas.
    pub(crate) async fn end_session(&self, id: &str) -> Result<(), String> {
        let key = Digest::compute(id.as_bytes());
        self.sessions.end(key);
        if self.common.may_know(id) {
            self.common.end(key).await?;
        }
        Ok(())
    }

    /// Checks a bearer token: one of this listener, or one that the methods of `auth` accept.
    pub(crate) async fn prove_token(
        &self,
        now: &InForce,
        token: &str,
        connection: &ConnectionFacts,
    ) -> Result<Proof, Denied> {
        let (peer, digest) = (peer(connection), Digest::compute(token.as_bytes()));
        let most = now.settings.max_sign_in_failures;
        self.throttle
            .check(peer, digest, most)
            .map_err(Denied::Throttled)?;
        let proof = self.check_token(now, token, digest, connection).await;
        match &proof {
            Ok(_) => self.throttle.remember_accepted(peer, digest),
            Err(Denied::Invalid(_) | Denied::Malformed(_)) => {
                self.throttle.count_failure(peer, most);
            }
            Err(_) => {}
        }
        proof
    }

    async fn check_token(
        &self,
        now: &InForce,
        token: &str,
        digest: Digest,
        connection: &ConnectionFacts,
    ) -> Result<Proof, Denied> {
        let own = Proof::Token(digest);
        if now.judge(&own, SystemTime::now()).is_ok() {
            return Ok(own);
        }
        let wrong = || Denied::Invalid("this token is not accepted".into());
        if now.settings.roles.is_empty() {
            return Err(wrong());
        }
        // Only the token counts, not a proxy's header or the connection.
        let value = HeaderValue::try_from(format!("Bearer {token}")).map_err(|_| wrong())?;
        let headers = HeaderMap::from_iter([(AUTHORIZATION, value)]);
        self.authenticate(&headers, connection)
            .await
            .map_err(|denied| match denied {
                Denied::Missing => wrong(),
                other => other,
            })
    }

    /// Identifies the operator by the connection, or by a trusted proxy's header.
    async fn by_connection(
        &self,
        now: &InForce,
        headers: &HeaderMap,
        connection: &ConnectionFacts,
    ) -> Result<Operator, Denied> {
        // The address of the connection is checked, too: a listener that other machines can reach
        // is never open.
        let is_local = connection.socket.is_some()
            || connection
                .local
                .is_some_and(|local| local.to_canonical().is_loopback());
        if now.is_open() && is_local {
            return Ok(Operator::unknown());
        }
        if now.settings.roles.is_empty() {
            return Err(Denied::Missing);
        }
        let proof = self.authenticate(headers, connection).await?;
        Ok(now.judge(&proof, SystemTime::now())?)
    }

    /// Identifies the operator by the methods of `auth`.
    async fn authenticate(
        &self,
        headers: &HeaderMap,
        connection: &ConnectionFacts,
    ) -> Result<Proof, Denied> {
        // A token that is bound to a key is for the endpoints of clients. No path here belongs to
        // them.
        let (client, method, path) = (peer(connection), &Method::GET, "");
        let credentials = Credentials {
            method,
            path,
            headers,
            connection,
            client,
            endpoint: ENDPOINT,
        };
        let identity = self
            .subject
            .authenticate
            .authenticate(&credentials)
            .outcome()
            .await?;
        if identity.source == Source::Anonymous {
            return Err(Denied::Missing);
        }
        if !identity.may_use(ENDPOINT) {
            return Err(Denied::NoRole(Known::from_identity(&identity)));
        }
        Ok(Proof::Identity(identity))
    }
}
