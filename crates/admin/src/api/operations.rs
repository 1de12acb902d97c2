//! Changes by operators: `POST /api/reload` and `/api/servers/{name}/{action}`.

use axum::extract::{Path, State};
use axum::response::IntoResponse as _;
use http::StatusCode;

use super::Answer;
use crate::{AdminState, OperationError, Refusal, answer, json};

answers! {
    /// A server that was switched or started.
    pub(crate) struct ServerChanged {
        server: String,
        /// The action that was carried out.
        done: String,
    }

    /// A session that was ended.
    pub(crate) struct SessionEnded {
        /// The digest of the session's id.
        session: String,
        /// `end`.
        done: &'static str,
    }
}

/// Reloads the configuration. The status is 200 if it is now in force, 422 with the problems if it
/// cannot be used.
pub(super) async fn reload(State(admin): AdminState) -> Answer {
    let reloaded = admin.subject.operations.reload().await?;
    let status = if reloaded.is_usable {
        StatusCode::OK
    } else {
        StatusCode::UNPROCESSABLE_ENTITY
    };
    Ok((status, json(reloaded.report)).into_response())
}

/// Switches a server on or off, or restarts it.
pub(super) async fn server(
    State(admin): AdminState,
    Path((name, action)): Path<(String, String)>,
) -> Answer {
    let operations = &admin.subject.operations;
    match action.as_str() {
        "enable" => operations.switch(name.clone(), true).await?,
        "disable" => operations.switch(name.clone(), false).await?,
        "restart" => operations.restart(name.clone()).await?,
        _ => {
            return Err(Refusal::not_found(
                "the action must be enable, disable or restart",
            ));
        }
    }
    Ok(answer(&ServerChanged {
        server: name,
        done: action,
    }))
}

/// Ends the client session with this digest.
pub(super) async fn end_session(State(admin): AdminState, Path(digest): Path<String>) -> Answer {
    if !admin.subject.clients.end_session(&digest) {
        return Err(Refusal::not_found(
            "no HTTP session has this digest; `/api/sessions` lists them",
        ));
    }
    Ok(answer(&SessionEnded {
        session: digest,
        done: "end",
    }))
}

impl From<OperationError> for Refusal {
    fn from(error: OperationError) -> Self {
        match error {
            OperationError::NoSuchDefinition => Self::not_found(
                "no definition with this id waits for approval: it was approved, or the server has \
                 changed it again; `/api/pins` lists the current ones",
            ),
            OperationError::NotWritten => Self::unavailable(
                "nothing was approved, because the file of pins cannot be written; Fanlight's log says why",
            ),
            OperationError::NoSuchServer => Self::not_found(
                "no server with this name is configured, or the server to restart is not enabled; \
                 `fanlight status` lists the servers",
            ),
            OperationError::Ending => Self::unavailable("Fanlight is ending"),
        }
    }
}
