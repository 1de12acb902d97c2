//! One request to one backend, and what the core asks of a backend beside it.
//!
//! Must not know: which backend a request is for.

use std::future::Future;

use fanlight_canonical::{BackendError, Call, Pending};
use fanlight_protocol::{Json, Response, RpcError};
use tokio::time::timeout;

use crate::catalogue::Sources;
use crate::fault;

impl Sources {
    /// The name of a backend; empty for one that there is not.
    pub(crate) fn name(&self, backend: usize) -> &str {
        self.backends.get(backend).map_or("", |backend| backend.client.name())
    }

    /// Sends a request and waits for as long as a call may take.
    pub(crate) async fn send(&self, backend: usize, call: Call) -> Result<Response, RpcError> {
        let answer = self.request(backend, call).await;
        answer.map_err(|error| fault::no_answer(self.name(backend), &error))
    }

    /// Sends what goes to several, so that one which does not answer holds up nobody for longer
    /// than in a list.
    pub(crate) async fn send_briefly(&self, backend: usize, call: Call) -> Result<Response, RpcError> {
        let answer = self.briefly(self.request(backend, call)).await;
        answer.map_err(|error| fault::no_answer(self.name(backend), &error))
    }

    /// Sends a request; the error is the backend's own.
    pub(crate) fn request(&self, backend: usize, call: Call) -> Pending<'_, Response> {
        match self.backends.get(backend) {
            Some(backend) => backend.client.request(call),
            None => Box::pin(std::future::ready(Err(BackendError::ShuttingDown))),
        }
    }

    /// What a backend can do; connects first if needed.
    pub(crate) async fn capabilities(&self, backend: usize) -> Result<Json, BackendError> {
        let Some(backend) = self.backends.get(backend) else { return Err(BackendError::ShuttingDown) };
        Ok(backend.client.describe().await?.capabilities().unwrap_or_else(Json::empty_object))
    }

    /// Whether a backend says within the time for a list that it has `capability`.
    pub(crate) async fn have_capability(&self, backend: usize, capability: &str) -> bool {
        let capabilities = self.briefly(self.capabilities(backend)).await;
        capabilities.is_ok_and(|all| all.get(capability).is_some())
    }

    /// Waits for no longer than one backend may take for a list.
    pub(crate) async fn briefly<T>(
        &self,
        asked: impl Future<Output = Result<T, BackendError>>,
    ) -> Result<T, BackendError> {
        let limit = self.limits.timeout;
        timeout(limit, asked).await.unwrap_or(Err(BackendError::Timeout { after: limit, sent: true }))
    }
}
