//! `/api/connections`: lists users' connections to servers, and ends them.

use axum::extract::{Path, State};

use super::Answer;
use crate::{About, AdminState, GrantedConnection, Refusal, answer};

answers! {
    /// Users' connections to servers.
    pub(crate) struct Connections {
        /// The connections, by server and user.
        connections: Vec<GrantedConnection>,
    }

    /// An ended connection.
    pub(crate) struct ConnectionEnded {
        /// Its id.
        connection: String,
        server: String,
        /// `end`.
        done: &'static str,
    }
}

/// All connections.
pub(super) async fn list(State(admin): AdminState) -> Answer {
    let connections = admin
        .subject
        .connections
        .list()
        .await
        .map_err(Refusal::unavailable)?;
    Ok(answer(&Connections { connections }))
}

/// Ends the connection with this id.
pub(super) async fn end(State(admin): AdminState, Path(id): Path<String>) -> Answer {
    let Some(ended) = admin
        .subject
        .connections
        .end(id.clone())
        .await
        .map_err(Refusal::unavailable)?
    else {
        return Err(Refusal::not_found(
            "no connection has this id; `/api/connections` lists them",
        ));
    };
    let about = format!("{} of {}", ended.server, ended.principal);
    let answer = answer(&ConnectionEnded {
        connection: id,
        server: ended.server,
        done: "end",
    });
    Ok(About(about).attach_to(answer))
}
