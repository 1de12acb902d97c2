//! Requests to one backend of a topology, and what the core asks a backend itself.

use std::future::Future;

use fanlight_canonical::{BackendError, Call, Pending};
use fanlight_protocol::{Json, Response, RpcError};
use tokio::time::timeout;

use super::{BackendId, Topology};
use crate::fault;

impl Topology {
    /// Sends a request and waits for as long as a call may take.
    pub(crate) async fn send(&self, backend: BackendId, call: Call) -> Result<Response, RpcError> {
        let answer = self.request(backend, call).await;
        answer.map_err(|error| fault::no_answer(self.name(backend), &error))
    }

    /// Sends a request; the error is the backend's own.
    pub(crate) fn request(&self, backend: BackendId, call: Call) -> Pending<'_, Response> {
        match self.get(backend) {
            Some(backend) => backend.client.request(call),
            None => Box::pin(std::future::ready(Err(BackendError::ShuttingDown))),
        }
    }

    /// What a backend can do; connects first if needed.
    pub(crate) async fn capabilities(&self, backend: BackendId) -> Result<Json, BackendError> {
        let Some(backend) = self.get(backend) else { return Err(BackendError::ShuttingDown) };
        Ok(backend.client.describe().await?.capabilities().unwrap_or_else(Json::empty_object))
    }

    /// Whether a backend says within the time for a list that it has `capability`.
    pub(crate) async fn has_capability(&self, backend: BackendId, capability: &str) -> bool {
        let capabilities = self.briefly(self.capabilities(backend)).await;
        capabilities.is_ok_and(|all| all.get(capability).is_some())
    }

    /// Waits for no longer than one backend may take for a list.
    pub(crate) async fn briefly<T>(
        &self,
        answer: impl Future<Output = Result<T, BackendError>>,
    ) -> Result<T, BackendError> {
        let limit = self.limits.timeout;
        timeout(limit, answer).await.unwrap_or(Err(BackendError::Timeout { after: limit, sent: true }))
    }
}
