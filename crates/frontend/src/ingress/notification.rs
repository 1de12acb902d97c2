//! Notifications from clients. Except for cancellation, only legacy clients send them.

use std::sync::Arc;

use fanlight_canonical::CallContext;
use fanlight_protocol::{Method, Notification};

use super::{Receiving, Refusal, Transport};
use crate::eras::params::Params;
use crate::eras::{self, modern};
use crate::session::{RunningRequests, ServerRequests, Session};

impl<T: Transport> Receiving<'_, T> {
    pub(super) async fn notification(
        &self,
        notification: &Notification,
    ) -> Result<(), Box<Refusal>> {
        let given = notification.params();
        let params = Params::read(given.as_ref())?;
        let untraced = self.untraced(given.as_ref());
        let untraced = untraced.map(|params| notification.with_params(&params));
        let notification = untraced.as_ref().unwrap_or(notification);
        let version = self.transport.version_header();
        if let Some(unknown) = version.filter(|version| eras::revision(version).is_none()) {
            return Err(Refusal::malformed(modern::unsupported_revision(unknown)));
        }
        let running = match self.transport.running_requests() {
            Some(running) => Some(Arc::clone(running)),
            // 2026-07-28 has no notification from client to server on HTTP. Modern ones,
            // cancellation included, are accepted and ignored (streamable-http, Sending Messages).
            None if modern::is_modern(&params.meta, version) => None,
            None => self
                .transport
                .session(self.origin)
                .await?
                .map(|session| Arc::clone(&session.session.running)),
        };
        match (&notification.method, running, params.request_id()) {
            (Method::Cancelled, Some(running), Some(id)) => {
                running.cancel(&id, notification.params());
            }
            (Method::Initialized, ..) => self.transport.initialized(),
            (Method::Other(_) | Method::Progress, Some(running), _) => {
                if let Some(session) = self.transport.session(self.origin).await?
                    && let Some(context) = for_servers(&session.session, &running, notification)
                {
                    let caller = context
                        .caller
                        .clone()
                        .with_identity(Arc::clone(&self.origin.identity));
                    let context = Arc::new(CallContext { caller, ..context });
                    let notice = self.core.resolve_notice(notification.clone(), context);
                    self.admit(&notice)?;
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
    let [id, token] = ["requestId", "progressToken"].map(|name| notification.param(name));
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
        running.find(id.as_ref(), token.as_ref())
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
