//! Writes changes of users' grants to the audit log.

use std::sync::Arc;

use fanlight_canonical::Principal;
use fanlight_grants::{GrantChange, GrantChangeEnd, GrantChangeKind, GrantRecord, NotOnRecord};
use fanlight_record::{AuditEvent, AuditLog, ConnectionChange, Record as _};
use futures_util::future::BoxFuture;

/// The audit log, as the destination of these events.
#[derive(Debug)]
pub(crate) struct RecordOfGrants(pub(crate) Arc<AuditLog>);

impl GrantRecord for RecordOfGrants {
    fn begins(&self, change: GrantChange<'_>) -> BoxFuture<'static, Result<(), NotOnRecord>> {
        let begun = with_event(change, "decided", None, |event| self.0.connects(&event));
        Box::pin(async move {
            match begun {
                Ok(Some(acknowledged)) => acknowledged.await.map_err(|_| NotOnRecord),
                Ok(None) => Ok(()),
                Err(_) => Err(NotOnRecord),
            }
        })
    }

    fn record_end(&self, change: GrantChange<'_>, end: &GrantChangeEnd<'_>) {
        // The change has already happened: a failed write is only counted.
        let _ = with_event(change, end.outcome, end.reason.as_deref(), |event| {
            self.0.record(&AuditEvent::Connection(event))
        });
    }
}

fn with_event<T>(
    change: GrantChange<'_>,
    outcome: &'static str,
    reason: Option<&str>,
    put: impl FnOnce(ConnectionChange<'_>) -> T,
) -> T {
    let action = match change.kind {
        GrantChangeKind::SignIn => "signIn",
        GrantChangeKind::KeyDeposit => "keyDeposit",
        GrantChangeKind::SignOut => "signOut",
        GrantChangeKind::End => "grantEnd",
    };
    let principal = Principal::from_bytes(change.owner.principal());
    put(ConnectionChange {
        principal: principal.as_ref(),
        server: change.owner.server(),
        action,
        outcome,
        reason,
    })
}
