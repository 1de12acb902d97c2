//! A client of one revision that talks to one server.

use std::time::{Duration, Instant};

use fanlight_protocol::{Revision, meta};
use serde_json::{Map, Value, json};

use super::observed::Mask;
use crate::judge::Patience;
use crate::judge::observed::Observed;
use crate::judge::peer::{Answer, Broken, JudgedServer};

/// All capabilities that a client can declare, because servers may hide entries from clients that
/// cannot use them.
pub(crate) fn declared(revision: Revision) -> Value {
    serde_json::from_str(revision.capabilities).unwrap_or_default()
}

/// A client of one revision.
pub(crate) struct Client<'a> {
    pub(crate) peer: JudgedServer,
    pub(crate) revision: Revision,
    pub(crate) patience: Patience,
    mask: &'a Mask,
    next: i64,
}

impl<'a> Client<'a> {
    pub(crate) fn new(
        peer: JudgedServer,
        revision: Revision,
        patience: Patience,
        mask: &'a Mask,
    ) -> Self {
        Self {
            peer,
            revision,
            patience,
            mask,
            next: 0,
        }
    }

    /// Sends a request with these params. Also returns how long the answer took.
    pub(crate) async fn ask(
        &mut self,
        method: &str,
        params: Map<String, Value>,
        observed: &mut Observed,
    ) -> Result<(Answer, Duration), Broken> {
        self.ask_within(self.patience.answer, method, params, observed)
            .await
    }

    /// Like [`ask`](Self::ask), with its own time limit.
    pub(crate) async fn ask_within(
        &mut self,
        timeout: Duration,
        method: &str,
        mut params: Map<String, Value>,
        observed: &mut Observed,
    ) -> Result<(Answer, Duration), Broken> {
        if !self.revision.has_sessions {
            let own = json!({
                meta::PROTOCOL_VERSION: self.revision.name,
                meta::CLIENT_INFO: { "name": "fanlight check", "version": env!("CARGO_PKG_VERSION") },
                meta::CLIENT_CAPABILITIES: declared(self.revision),
            });
            params.insert("_meta".to_owned(), own);
        }
        let id = self.next;
        self.next += 1;
        let request = json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params });
        let start = Instant::now();
        let answer = self
            .peer
            .request(&request, timeout, self.mask, observed)
            .await?;
        Ok((answer, start.elapsed()))
    }
}
