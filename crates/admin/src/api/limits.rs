//! `/api/limits`: how often clients may ask, and who is nearest to that; and the same in metrics.

use std::sync::Arc;

use axum::extract::State;
use fanlight_telemetry::metrics::{Family, FamilyInfo, Point, Shape, Values};
use serde::Serialize;
#[cfg(test)]
use utoipa::ToSchema;

use super::{Answer, Query};
use crate::Admin;
use crate::operations::RateLimit;
use crate::reply::answer;

/// Those who have used most of a limit.
const DEFAULT: usize = 10;
const MOST: usize = 100;

const REQUESTS: FamilyInfo = FamilyInfo {
    name: "fanlight.limits.requests",
    unit: "{request}",
    help: "Requests that a limit of `limits.rates` was about: those that passed at once, had to wait, or were refused.",
    shape: Shape::Counter,
    labels: &["rule", "outcome"],
};

/// How often clients may ask.
#[derive(Serialize)]
#[cfg_attr(test, derive(ToSchema))]
pub(crate) struct LimitStates {
    /// In the order of the configuration.
    limits: Vec<RateLimit>,
}

/// All limits.
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
