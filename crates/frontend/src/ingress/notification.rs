//! Notifications from clients. Except for cancellation, only legacy clients send them.

use std::sync::Arc;

use fanlight_canonical::CallContext;
use fanlight_protocol::{Method, Notification};

use super::{Ingress, Origin, Refusal, Transport};
use crate::eras::params::Params;
use crate::eras::{self, era, modern};
use crate::session::{RunningRequests, ServerRequests, Session};

impl Ingress {
    pub(super) async fn notification<T: Transport>(
        &self,
        transport: &T,
        origin: &Origin<'_>,
        notification: &Notification,
    ) -> Result<(), Box<Refusal>> {
        let params = Params::read(notification.params().as_ref())?;
        let version = transport.version_header();
        if let Some(unknown) = version.filter(|version| eras::revision(version).is_none()) {
            return Err(Refusal::malformed(modern::unsupported(unknown)));
        }
        let running = match transport.running() {
            Some(running) => Some(Arc::clone(running)),
            // 2026-07-28 has no notification from client to server on HTTP. Modern ones,
            // cancellation included, are accepted and ignored (streamable-http, Sending Messages).
            None if era::is_modern(&params.meta, version) => None,
            None => transport
                .session(origin)
                .await?
                .map(|session| Arc::clone(&session.session.running)),
        };
        match (&notification.method, running, params.request_id()) {
            (Method::Cancelled, Some(running), Some(id)) => {
                let params = notification.params();
                running.cancel(&id, params.and_then(|params| params.get("reason")));
            }
            (Method::Initialized, ..) => transport.initialized(),
            (Method::Other(_) | Method::Progress, Some(running), _) => {
                if let Some(session) = transport.session(origin).await?
                    && let Some(context) = for_servers(&session.session, &running, notification)
                {
                    let caller = context
                        .caller
                        .clone()
                        .with_identity(Arc::clone(&origin.identity));
                    let context = Arc::new(CallContext { caller, ..context });
                    let notice = self.core.resolve_notice(notification.clone(), context);
                    self.admit(origin, &notice)?;
                    self.core.notify(notice, Arc::clone(&session.session) as _);
                }
            }
            _ => {}
        }
        Ok(())
    }
}

/// The context of a notification that the core should pass on to servers; `None` to pass on
/// nothing.
///
/// A notification that names a request or progress token goes only to that request's server. Such
/// names belong to one hop, and would mean something else at another server. A notification about
/// an open server request goes directly to its server.
fn for_servers(
    session: &Session,
    running: &RunningRequests,
    notification: &Notification,
) -> Option<CallContext> {
    let params = notification.params();
    let param = |name: &str| params.as_ref().and_then(|params| params.get(name));
    let (id, token) = (param("requestId"), param("progressToken"));
    let mut named = id.iter().chain(&token);
    if let Some(own) = named.clone().find(|name| ServerRequests::is_id(name)) {
        if named.all(|other| other == own) {
            session.server_requests.notify(own, notification);
        }
        return None;
    }
    if notification.method == Method::Progress {
        tracing::debug!("progress of a client dropped: it is on no open request of a server");
        return None;
    }
    let names_any = id.is_some() || token.is_some();
    let request = if names_any {
        running.named(id.as_ref(), token.as_ref())
    } else {
        None
    };
    if names_any && request.is_none() {
        tracing::debug!(
            "notification of a client dropped: the request that it names is not running"
        );
        return None;
    }
    Some(CallContext {
        request,
        ..session.context(false)
    })
}
