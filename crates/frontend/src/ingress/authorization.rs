//! Admits messages: checks what the sender may do, and how many of its requests may run.

use std::sync::Arc;
use std::time::Duration;

use fanlight_canonical::identity::Scopes;
use fanlight_canonical::{Decidable, Detail};
use fanlight_fair::TooMany;
use fanlight_protocol::{Method, RpcError, code};
use tokio::sync::OwnedSemaphorePermit;

use super::{Ingress, Origin, Reason, Refusal, Transport};
use crate::decision::{self, Client, Refused};
use crate::protection::Turn;

/// An admitted message.
pub(super) struct Admitted {
    /// Counts the message among its client's concurrent requests.
    pub(super) permit: Option<OwnedSemaphorePermit>,
    /// The message's turn under the rate limits, if it has to wait.
    pub(super) turn: Option<Turn>,
}

impl Ingress {
    /// How far a request must be resolved for [`Self::admit`].
    pub(super) fn detail(&self, origin: &Origin<'_>, method: &Method) -> Detail {
        let depends = || decision::depends_on_tools(&self.settings, origin.holder.endpoint());
        match method {
            Method::CallTool if origin.identity.scopes != Scopes::All && depends() => Detail::Tool,
            Method::CallTool if self.settings.hooks.load().is_some() => Detail::Tool,
            // The definition says which arguments are secret, and gives the name for the
            // announcement.
            Method::CallTool
                if self
                    .settings
                    .record
                    .keeps_requests()
                    .is_some_and(|kept| kept.definitions || kept.announced) =>
            {
                Detail::Tool
            }
            Method::CallTool if decision::rates_depend_on_tools(&self.settings) => Detail::Tool,
            _ => Detail::Known,
        }
    }

    /// Admits one message. This, [`Self::admit_request`] or [`Self::admit_in_turn`] is called once
    /// per valid message, with exactly what runs. `asked` is `None` for answers, and for
    /// notifications that no server gets: they need only an identity.
    pub(super) fn admit(
        &self,
        origin: &Origin<'_>,
        asked: Option<&dyn Decidable>,
    ) -> Result<(), Box<Refusal>> {
        asked
            .map_or(Ok(()), |subject| {
                decision::decide(&self.settings, client_of(origin), subject)
            })
            .map_err(refusal)
    }

    /// Admits a request that reaches the core. It counts against the rate limits, and its permit
    /// against the client's concurrent requests.
    pub(super) async fn admit_request<T: Transport>(
        &self,
        transport: &T,
        origin: &Origin<'_>,
        subject: &dyn Decidable,
    ) -> Result<Admitted, Box<Refusal>> {
        let turn = self.admit_in_turn(origin, subject).await?;
        let permit = self.permit(transport).inspect_err(|error| {
            decision::record_busy(&self.settings, client_of(origin), subject, error);
        })?;
        Ok(Admitted { permit, turn })
    }

    /// Admits a long-lasting request, which does not count as a concurrent request. It counts
    /// against the rate limits; returns its turn if it has to wait.
    pub(super) async fn admit_in_turn(
        &self,
        origin: &Origin<'_>,
        subject: &dyn Decidable,
    ) -> Result<Option<Turn>, Box<Refusal>> {
        let client = client_of(origin);
        let decided =
            decision::decide_request(&self.settings, client, || origin.peer(), subject).await;
        decided.map_err(refusal)
    }

    /// A permit for one more request to the core.
    pub(super) fn permit<T: Transport>(
        &self,
        transport: &T,
    ) -> Result<Option<OwnedSemaphorePermit>, RpcError> {
        let Some(permits) = transport.permits() else {
            return Ok(None);
        };
        Arc::clone(permits)
            .try_acquire_owned()
            .map(Some)
            .map_err(|_| {
                let limit = self.settings.max_concurrent;
                RpcError::new(
                    code::INTERNAL,
                    format!("busy: {limit} requests are running; wait for one to finish"),
                )
            })
    }
}

/// The sender of a message, as decisions see it.
fn client_of<'a>(origin: &'a Origin<'_>) -> Client<'a> {
    Client {
        endpoint: origin.holder.endpoint(),
        identity: &origin.identity,
    }
}

/// The refusal of a message that its client may not send.
fn refusal(refused: Refused) -> Box<Refusal> {
    let error = refused.to_error();
    match refused {
        Refused::Scopes(required) => {
            let mut refusal = Refusal::new(Reason::Scopes, error);
            refusal.required_scopes = Some(required);
            refusal
        }
        Refused::NotRecorded => Refusal::new(Reason::Busy, error),
        Refused::TooMany(TooMany { retry_after }) => too_many(error, retry_after),
        Refused::NotCounted => too_many(error, decision::COUNTED_AGAIN),
    }
}

fn too_many(error: RpcError, retry_after: Duration) -> Box<Refusal> {
    let mut refusal = Refusal::new(Reason::TooMany, error);
    refusal.retry_after = Some(retry_after);
    refusal
}
