//! Access to the listener. The checks are about the host in a request, the origin of the page that
//! sends it, the operator, and the operator's role. Each route declares its requirements
//! ([`Needs`]).

mod identify;

use std::sync::Arc;
use std::time::SystemTime;

use axum::extract::{FromRequestParts, Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use fanlight_canonical::identity::{Identity, Validity};
use fanlight_credentials::ConnectionFacts;
use fanlight_record::AuditEvent;
use http::header::{CONTENT_TYPE, ORIGIN};
use http::request::Parts;
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, Uri};

use crate::operator::{
    Denied, Digest, Known, Operator, Proof, Purpose, Recorded, Role, SessionInForce, Worthless,
    role_of,
};
use crate::{Admin, AdminState, InForce, Refusal};
pub(crate) use identify::peer;

const SEC_FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

/// The access that a route requires.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Needs {
    /// Nothing: the route has no data and changes nothing.
    Nothing,
    /// The request must not come from a page of another origin. Anybody may make it.
    OwnPage,
    /// An operator with this role, and no page of another origin. A route that needs more than
    /// [`Role::Viewer`] makes a change, which goes to the audit log.
    Role(Role),
}

/// The facts about a request's connection.
#[derive(Clone, Debug, Default)]
pub(crate) struct OperatorConnection(pub(crate) Arc<ConnectionFacts>);

impl<S: Sync> FromRequestParts<S> for OperatorConnection {
    type Rejection = std::convert::Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Self::Rejection> {
        Ok(parts.extensions.get::<Self>().cloned().unwrap_or_default())
    }
}

/// Requires a host that this listener serves.
pub(crate) async fn require_host(
    State(admin): AdminState,
    request: Request,
    next: Next,
) -> Result<Response, Refusal> {
    admin
        .now()
        .guard
        .check_host(request.uri(), request.headers(), None)?;
    Ok(next.run(request).await)
}

/// Requires what the route declares.
pub(crate) async fn require(
    State((admin, needs)): State<(Arc<Admin>, Needs)>,
    connection: OperatorConnection,
    mut request: Request,
    next: Next,
) -> Result<Response, Refusal> {
    let needed = match needs {
        Needs::Nothing => return Ok(next.run(request).await),
        Needs::OwnPage => None,
        Needs::Role(role) => Some(role),
    };
    let now = admin.now();
    check_origin(&now, request.uri(), request.headers())?;
    let Some(needed) = needed else {
        return Ok(next.run(request).await);
    };
    let peer = connection.0.peer;
    let operator = match admin.identify(&now, request.headers(), &connection.0).await {
        Ok(operator) => operator,
        Err(denied) => {
            admin.note(&AuditEvent::OperatorDenied(denied.audit_entry(peer)));
            return Ok(now.refusal(&denied, &connection.0));
        }
    };
    if operator.session.is_some() && is_change(request.method()) {
        require_origin_of_page(request.headers())?;
    }
    if operator.role < needed {
        admin.note(&AuditEvent::RoleDenied {
            operator: operator.audit_actor(peer),
            path: request.uri().path(),
        });
        return Err(Refusal::role(needed, operator.role));
    }
    request.extensions_mut().insert(operator.clone());
    if needed == Role::Viewer || !is_change(request.method()) {
        return Ok(next.run(request).await);
    }
    let (actor, path) = (operator.audit_actor(peer), request.uri().path().to_owned());
    // The entry is written before the change. Without the entry nothing is changed.
    admin.subject.record.record(&AuditEvent::ChangeAsked {
        operator: actor,
        path: &path,
    })?;
    let response = next.run(request).await;
    let about = response
        .extensions()
        .get::<About>()
        .map(|about| about.0.as_str());
    admin.note(&AuditEvent::Changed {
        operator: actor,
        path: &path,
        about,
        status: response.status().as_u16(),
    });
    Ok(response)
}

/// The subject of a change whose path does not name it. Handlers put it into the extensions of the
/// response.
#[derive(Clone, Debug)]
pub(crate) struct About(pub(crate) String);

impl About {
    /// The response to the change.
    pub(crate) fn attach_to(self, mut response: Response) -> Response {
        response.extensions_mut().insert(self);
        response
    }
}

fn is_change(method: &Method) -> bool {
    !matches!(*method, Method::GET | Method::HEAD | Method::OPTIONS)
}

/// Requires that no page of another origin sends the request. A page of `admin.publicUrl` has the
/// right origin, even if a proxy forwards another `Host`.
fn check_origin(now: &InForce, target: &Uri, headers: &HeaderMap) -> Result<(), Refusal> {
    let Err(rejection) = now.guard.check_origin(target, headers) else {
        return Ok(());
    };
    let only = |name: HeaderName| {
        let mut values = headers.get_all(name).iter().map(HeaderValue::as_bytes);
        values.next().filter(|_| values.next().is_none())
    };
    let is_public = now
        .settings
        .public_url
        .as_ref()
        .is_some_and(|url| only(ORIGIN) == Some(url.parts().0.as_bytes()));
    let is_own_site =
        !headers.contains_key(SEC_FETCH_SITE) || only(SEC_FETCH_SITE) == Some(b"same-origin");
    if is_public && is_own_site {
        Ok(())
    } else {
        Err(rejection.into())
    }
}

/// Requires that the browser names the page that sends a change. The cookie is not enough, because
/// the browser would also send it for other pages.
fn require_origin_of_page(headers: &HeaderMap) -> Result<(), Refusal> {
    if headers.contains_key(ORIGIN) || headers.contains_key(SEC_FETCH_SITE) {
        return Ok(());
    }
    let message = "a change with a session cookie needs the `Origin` of its page; programs should send `Authorization`";
    Err(Refusal::new(StatusCode::FORBIDDEN, message))
}

impl InForce {
    /// The response to a denied request.
    pub(crate) fn refusal(&self, denied: &Denied, connection: &ConnectionFacts) -> Response {
        let mut response = Refusal::denied(denied).into_response();
        if *denied == Denied::SessionOver {
            self.forget(Purpose::Session, connection, &mut response);
        }
        response
    }
}

/// Requires the JSON content type, which a form of another site cannot send.
pub(crate) fn require_json(headers: &HeaderMap) -> Result<(), Refusal> {
    let mut values = headers.get_all(CONTENT_TYPE).iter();
    let kind = match (values.next(), values.next()) {
        (Some(value), None) => value
            .to_str()
            .unwrap_or_default()
            .split(';')
            .next()
            .unwrap_or_default()
            .trim(),
        _ => "",
    };
    if kind.eq_ignore_ascii_case("application/json") {
        return Ok(());
    }
    let message = "the body must be JSON: `Content-Type: application/json`";
    Err(Refusal::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, message))
}

impl Admin {
    /// Whether an operator is still accepted. This counts the operator's session as used.
    pub(crate) async fn is_in_force(&self, operator: &Operator) -> bool {
        if let Some(SessionInForce { key, .. }) = operator.session {
            let limits = self.now().session_limits();
            if matches!(self.common.find(key, &limits).await, Recorded::Ended) {
                self.sessions.end(key);
            }
            if self.sessions.touch(key, &limits).is_none() {
                return false;
            }
        }
        operator.validity.holds_at(SystemTime::now())
    }
}

impl InForce {
    /// The operator whom `proof` identifies at `now`.
    pub(crate) fn judge(&self, proof: &Proof, now: SystemTime) -> Result<Operator, Worthless> {
        let (source, identity) = match proof {
            Proof::Token(token) => return self.judge_token(*token),
            Proof::Identity(identity) => (source_of(identity), identity),
            Proof::SignedIn { at, identity } => {
                if !self.settings.sign_in.contains(at) {
                    return Err(Worthless::Unaccepted);
                }
                ("sign-in", identity)
            }
        };
        if !identity.validity.holds_at(now) {
            return Err(Worthless::Unaccepted);
        }
        let role = role_of(identity, &self.settings.roles)
            .ok_or_else(|| Worthless::NoRole(Known::from_identity(identity)))?;
        let (name, validity) = (Arc::clone(&identity.name), identity.validity.clone());
        let principal = Some(identity.principal.clone());
        Ok(Operator {
            role,
            name,
            principal,
            source,
            validity,
            session: None,
        })
    }

    fn judge_token(&self, token: Digest) -> Result<Operator, Worthless> {
        if self.token.is_none_or(|expected| expected != token) {
            return Err(Worthless::Unaccepted);
        }
        Ok(Operator {
            role: Role::Operator,
            name: Arc::from("admin.token"),
            principal: None,
            source: "token",
            validity: Validity::default(),
            session: None,
        })
    }
}

fn source_of(identity: &Identity) -> &'static str {
    use fanlight_canonical::identity::Source;
    match identity.source {
        Source::Anonymous => "none",
        Source::Token => "access token",
        Source::Key => "key",
        Source::Certificate => "certificate",
        Source::Proxy => "proxy",
        Source::Socket => "socket",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn body_content_type_must_be_json() {
        let is_json = |kind| {
            require_json(&HeaderMap::from_iter([(
                CONTENT_TYPE,
                HeaderValue::from_static(kind),
            )]))
            .is_ok()
        };
        assert!(is_json("application/json") && is_json("Application/JSON; charset=utf-8"));
        for other in [
            "text/plain",
            "application/x-www-form-urlencoded",
            "application/jsonp",
            "",
        ] {
            assert!(!is_json(other), "{other}");
        }
        assert!(require_json(&HeaderMap::new()).is_err());
    }
}
