//! Limits: how often clients may ask, and how many requests of a connection run. Without limits,
//! nothing is counted.

use std::sync::Arc;
use std::time::Duration;

use fanlight_canonical::{Decidable, Peer};
use fanlight_fair::TooMany;
use fanlight_protocol::{Json, RpcError, code};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::{Client, Refused};
use crate::protection::{Asked, NotTaken, Rates, Turn};
use crate::settings::FrontendSettings;

/// The name of the gate where a rate limit is used up.
pub(crate) const RATE: &str = "rate";
/// The name of the gate where too many requests run.
pub(crate) const BUSY: &str = "busy";

/// The retry time if rate limits could not be counted.
const COUNTED_AGAIN: Duration = Duration::from_secs(1);

/// Whether rate limits depend on the tool.
pub(super) fn needs_tool(settings: &FrontendSettings) -> bool {
    let protection = settings.protection.load();
    protection
        .rates
        .as_ref()
        .is_some_and(Rates::depend_on_tools)
}

/// Counts a request against all limits that apply. Waits only for limits that several processes
/// count together.
pub(super) async fn take(
    settings: &FrontendSettings,
    client: Client<'_>,
    peer: impl FnOnce() -> Peer,
    subject: &dyn Decidable,
) -> Result<Option<Turn>, Box<Refused>> {
    let taking = {
        let protection = settings.protection.load();
        let Some(rates) = &protection.rates else {
            return Ok(None);
        };
        let asked = Asked {
            peer: &peer(),
            endpoint: client.endpoint.full_path(),
            subject,
        };
        rates.take(asked).map_err(too_many)?
    };
    match settings.protection.common() {
        Some(common) if !taking.is_done() => {
            taking
                .charge_shared(common)
                .await
                .map_err(|not_taken| match not_taken {
                    NotTaken::TooMany(refused) => too_many(refused),
                    NotTaken::Away => not_counted(),
                })
        }
        _ => Ok(taking.turn()),
    }
}

/// A permit for one more request, if `permits` limit them.
pub(crate) fn permit(
    settings: &FrontendSettings,
    permits: Option<&Arc<Semaphore>>,
) -> Result<Option<OwnedSemaphorePermit>, Box<Refused>> {
    let permit = permits.map(|permits| Arc::clone(permits).try_acquire_owned());
    permit.transpose().map_err(|_| {
        let limit = settings.max_concurrent;
        let message = format!("busy: {limit} requests are running; wait for one to finish");
        Refused::new(BUSY, RpcError::new(code::INTERNAL, message))
    })
}

/// The refusal of a request that comes too soon.
fn too_many(TooMany { retry_after }: TooMany) -> Box<Refused> {
    // Round up, so that the client does not come back too early.
    let millis = retry_after.as_millis() + 1;
    let message = format!(
        "too many requests: a rate limit of this gateway allows the next one in {millis} ms"
    );
    rate_refusal(message, millis, retry_after)
}

/// The refusal of a request whose limits cannot be counted.
fn not_counted() -> Box<Refused> {
    let message =
        "a rate limit that this gateway's replicas share cannot be counted now; try again later";
    rate_refusal(message.to_owned(), COUNTED_AGAIN.as_millis(), COUNTED_AGAIN)
}

fn rate_refusal(message: String, millis: u128, retry_after: Duration) -> Box<Refused> {
    let millis = i64::try_from(millis).unwrap_or(i64::MAX);
    let error = RpcError::new(code::TOO_MANY_REQUESTS, message)
        .with("retryAfterMs", &Json::integer(millis))
        .may_have_run(false);
    let mut refused = Refused::new(RATE, error);
    refused.retry_after = Some(retry_after);
    refused
}
