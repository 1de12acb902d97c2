//! `/api/limits`: the rate limits and their heaviest users; and the same as metrics.

use std::sync::Arc;

use axum::extract::State;
use fanlight_telemetry::metrics::{Family, FamilyInfo, Point, Shape, Values};

use super::{Answer, Query};
use crate::Admin;
use crate::operations::RateLimit;
use crate::reply::answer;

/// The default number of heaviest users listed for each limit.
const DEFAULT: usize = 10;
const MOST: usize = 100;

const REQUESTS: FamilyInfo = FamilyInfo {
    name: "fanlight.limits.requests",
    unit: "{request}",
    help: "Requests subject to a limit of `limits.rates`: passed at once, delayed, or refused.",
    shape: Shape::Counter,
    labels: &["rule", "outcome"],
};

answers! {
    /// The state of the rate limits.
    pub(crate) struct LimitStates {
        /// The limits, in configuration order.
        limits: Vec<RateLimit>,
    }
}

/// Lists all limits.
pub(super) async fn list(State(admin): State<Arc<Admin>>, query: Query) -> Answer {
    let nearest = query.number("nearest", DEFAULT, MOST)?;
    Ok(answer(&LimitStates {
        limits: admin.subject.operations.limits(nearest),
    }))
}

/// The counts of all limits.
pub(crate) fn metrics(admin: &Admin) -> Family {
    let points = admin
        .subject
        .operations
        .limits(0)
        .into_iter()
        .flat_map(|limit| {
            let outcomes = [
                ("passed", limit.passed),
                ("waited", limit.waited),
                ("refused", limit.refused),
            ];
            outcomes.map(|(outcome, count)| -> Point {
                let labels = REQUESTS
                    .labels
                    .iter()
                    .copied()
                    .zip([limit.rule.clone(), outcome.to_owned()])
                    .collect();
                (
                    labels,
                    Values::Integer(i64::try_from(count).unwrap_or(i64::MAX)),
                )
            })
        });
    Family {
        info: &REQUESTS,
        points: points.collect(),
    }
}
