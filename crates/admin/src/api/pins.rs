//! `/api/pins`: lists definitions that differ from the approved ones, and approves them.

use axum::extract::{Path, State};

use super::Answer;
use crate::{About, AdminState, Verbatim, answer};

answers! {
    /// Definitions that differ from the approved ones.
    pub(crate) struct Pins {
        /// The definitions, and whether they are withheld; null if `pins` is off.
        #[cfg_attr(test, schema(value_type = Option<serde_json::Value>))]
        pins: Verbatim,
        /// Definitions with hidden characters, or names that look like another server's.
        #[cfg_attr(test, schema(value_type = Vec<serde_json::Value>))]
        flags: Verbatim,
    }

    /// A definition that was approved.
    pub(crate) struct PinApproved {
        /// The id under which it was listed.
        id: String,
        /// The definition's server, kind and name.
        about: String,
        /// `approve`.
        done: &'static str,
    }
}

/// Lists all definitions that differ from the approved ones.
pub(super) async fn list(State(admin): AdminState) -> Answer {
    let operations = &admin.subject.operations;
    Ok(answer(&Pins {
        pins: Verbatim(operations.pins()),
        flags: Verbatim(operations.flagged_definitions()),
    }))
}

/// Approves the definition that was listed under this id.
pub(super) async fn approve(State(admin): AdminState, Path(id): Path<String>) -> Answer {
    let about = admin.subject.operations.approve_pin(id.clone()).await?;
    let answer = answer(&PinApproved {
        id,
        about: about.clone(),
        done: "approve",
    });
    Ok(About(about).attach_to(answer))
}
