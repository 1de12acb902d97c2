//! `/api/limits`: the rate limits and their heaviest users; and the same as metrics.

use axum::extract::State;
use fanlight_telemetry::metrics::{Family, FamilyInfo};

use super::{Answer, Query};
use crate::{Admin, AdminState, RateLimit, answer};

/// The default number of heaviest users listed for each limit.
const DEFAULT: usize = 10;
const MOST: usize = 100;

const REQUESTS: FamilyInfo = FamilyInfo::counter(
    "fanlight.limits.requests",
    "{request}",
    "Requests subject to a limit of `limits.rates`: passed at once, delayed, or refused.",
    &["rule", "outcome"],
);

answers! {
    /// The state of the rate limits.
    pub(crate) struct LimitStates {
        /// The limits, in configuration order.
        limits: Vec<RateLimit>,
    }
}

/// Lists all limits.
pub(super) async fn list(State(admin): AdminState, query: Query) -> Answer {
    let nearest = query.number("nearest", DEFAULT, MOST)?;
    Ok(answer(&LimitStates {
        limits: admin.subject.operations.limits(nearest),
    }))
}

/// The counts of all limits.
pub(crate) fn metrics(admin: &Admin) -> Family {
    let limits = admin.subject.operations.limits(0);
    REQUESTS.with(limits.into_iter().flat_map(|limit| {
        let outcomes = [
            ("passed", limit.passed),
            ("waited", limit.waited),
            ("refused", limit.refused),
        ];
        outcomes.map(|(outcome, count)| ([limit.rule.clone(), outcome.to_owned()], count))
    }))
}
