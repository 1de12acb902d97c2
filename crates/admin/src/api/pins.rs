//! `/api/pins`: definitions of servers that are not as they were approved, and approving them.

use std::sync::Arc;

use axum::extract::{Path, State};
use serde::Serialize;
#[cfg(test)]
use utoipa::ToSchema;

use super::Answer;
use crate::Admin;
use crate::access::About;
use crate::reply::answer;
use crate::values::Verbatim;

/// Definitions that are not as they were approved.
#[derive(Serialize)]
#[cfg_attr(test, derive(ToSchema))]
pub(crate) struct Pins {
    /// Null if `pins` is off; else whether they are held, and the definitions.
    #[cfg_attr(test, schema(value_type = Option<serde_json::Value>))]
    pins: Verbatim,
    /// Definitions with hidden characters, or names that look like those of another server.
    #[cfg_attr(test, schema(value_type = Vec<serde_json::Value>))]
    flags: Verbatim,
}

/// A definition that is approved now.
#[derive(Serialize)]
#[cfg_attr(test, derive(ToSchema))]
pub(crate) struct PinApproved {
    /// Under which it was listed.
    id: String,
    /// What it is.
    about: String,
    /// `approve`.
    done: &'static str,
}

/// All definitions that are not as they were approved.
pub(super) async fn list(State(admin): State<Arc<Admin>>) -> Answer {
    let operations = &admin.subject.operations;
    Ok(answer(&Pins {
        pins: Verbatim(operations.pins()),
        flags: Verbatim(operations.flagged()),
    }))
}

/// Approves a definition as it was listed under this id.
pub(super) async fn approve(State(admin): State<Arc<Admin>>, Path(id): Path<String>) -> Answer {
    let about = admin.subject.operations.approve_pin(id.clone()).await?;
    let mut response = answer(&PinApproved {
        id,
        about: about.clone(),
        done: "approve",
    });
    response.extensions_mut().insert(About(about));
    Ok(response)
}
