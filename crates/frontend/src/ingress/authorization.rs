//! Whether a message may proceed: what its sender may do, and how many of its requests may run.

use std::sync::Arc;
use std::time::Duration;

use fanlight_canonical::{Core, Decidable, Detail};
use fanlight_fair::TooMany;
use fanlight_identity::Scopes;
use fanlight_protocol::{Method, RpcError, code};
use tokio::sync::OwnedSemaphorePermit;

use super::{Ingress, Origin, Reason, Refusal, Transport};
use crate::decision::{self, Client, Refused};
use crate::protection::Turn;

/// A message that may proceed.
pub(super) struct Admitted {
    /// Counts it among the requests of its client that run at once.
    pub(super) permit: Option<OwnedSemaphorePermit>,
    /// Its turn, if it has to wait for that.
    pub(super) turn: Option<Turn>,
}

impl<C: Core> Ingress<C> {
    /// How much of a request has to be resolved for [`Self::admit`].
    pub(super) fn detail(&self, origin: &Origin<'_>, method: &Method) -> Detail {
        let depends = || decision::depends_on_tools(&self.settings, origin.holder.endpoint());
        match method {
            Method::CallTool if origin.identity.scopes != Scopes::All && depends() => Detail::Tool,
            Method::CallTool if self.settings.hooks.load().is_some() => Detail::Tool,
            // The definition says which arguments are secret, and what is announced has a name.
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

    /// Admits one message: this, [`Self::admit_request`] or [`Self::admit_in_turn`] is called once for each, after it has been found
    /// valid, and with exactly what runs. Answers, and notifications that no server gets, of which nothing is `asked`, need an
    /// identity alone.
    pub(super) fn admit(
        &self,
        origin: &Origin<'_>,
        asked: Option<&dyn Decidable>,
    ) -> Result<(), Box<Refusal>> {
        let client = Client {
            endpoint: origin.holder.endpoint(),
            identity: &origin.identity,
        };
        asked
            .map_or(Ok(()), |subject| {
                decision::decide(&self.settings, client, subject)
            })
            .map_err(refusal)
    }

    /// Admits a request that reaches the core: it takes from the limits, and the permit counts it among those of its client
    /// that run at once.
    pub(super) async fn admit_request<T: Transport>(
        &self,
        transport: &T,
        origin: &Origin<'_>,
        subject: &dyn Decidable,
    ) -> Result<Admitted, Box<Refusal>> {
        let turn = self.admit_in_turn(origin, subject).await?;
        Ok(Admitted {
            permit: self.permit(transport)?,
            turn,
        })
    }

    /// Admits a request that lasts, so that it is not among those that run at once: it takes from the limits. Returns its
    /// turn, if it has to wait for that.
    pub(super) async fn admit_in_turn(
        &self,
        origin: &Origin<'_>,
        subject: &dyn Decidable,
    ) -> Result<Option<Turn>, Box<Refusal>> {
        let client = Client {
            endpoint: origin.holder.endpoint(),
            identity: &origin.identity,
        };
        let decided =
            decision::decide_request(&self.settings, client, || origin.peer(), subject).await;
        decided.map_err(refusal)
    }

    /// A permit for one more request that reaches the core.
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
