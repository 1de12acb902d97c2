//! Requests that name nothing of one server: for all servers, or for the first that answers.

use std::sync::Arc;
use std::time::Duration;

use fanlight_canonical::{Call, PolicyAction};
use fanlight_protocol::json::Json;
use fanlight_protocol::{Method, Response, RpcError, code};
use futures_util::StreamExt as _;
use futures_util::future::join_all;
use futures_util::stream::FuturesUnordered;
use tokio::time::timeout;

use super::{Gateway, describe, operation, sent};
use crate::catalogue::{ListKind, describe_all};
use crate::tasks::Tasks;
use crate::topology::{BackendId, Member, View};
use crate::{extensions, fault};

impl Gateway {
    /// Answers requests that name neither a list nor an entry of one.
    pub(super) async fn answer_unnamed(
        &self,
        view: &View,
        call: Call,
    ) -> Result<Response, RpcError> {
        let whole = view.topology().backends();
        match (&call.method, whole, view.only_server()) {
            (Method::Discover, [only], _) if view.shows(only.id) => {
                describe(view, only, &call.context).await
            }
            (Method::Discover, ..) => {
                let described = describe_all(view, &self.identity, &call.context).await;
                Ok(Response::from_result(&described))
            }
            (method, [_], Some(only))
                if !matches!(method, Method::Other(_))
                    && !Tasks::guard(&call.context, method, only) =>
            {
                sent(&call.context, method, None, Some(only));
                view.send(only.id, call).await
            }
            (method, ..) if method.is_about_tasks() => {
                let (context, method) = (Arc::clone(&call.context), method.clone());
                let (owner, response) = self.directory.tasks.handle(view, call, &self.seal).await?;
                let Some(backend) = owner else {
                    return Ok(response);
                };
                sent(&context, &method, None, view.get(backend));
                Ok(self
                    .translate_answer(view, &context, backend, &method, response, None)
                    .await)
            }
            (Method::SetLogLevel, ..) => send_to_all_with(view, "logging", &call).await,
            _ => self.forward_unknown(view, call).await,
        }
    }

    /// Sends a method that Fanlight does not know to the server that owns a name in its parameters.
    /// Without such a name, tries the servers that may have the method, until one does.
    async fn forward_unknown(&self, view: &View, call: Call) -> Result<Response, RpcError> {
        let unknown = fault::unknown_method(call.method.as_str());
        let Method::Other(method) = &call.method else {
            return Err(unknown);
        };
        let takes = |backend: &Member| view.passes_unknown(backend, method);
        if !view.backends().any(takes) {
            return Err(unknown);
        }
        let lookup = self.directory.lookup(view, &call.context);
        let tasks = &self.directory.tasks;
        if let Some(params) = &call.params {
            let routed = lookup.target_of_unknown(params).await;
            // A hidden method must look like one that the server does not have.
            let routed = routed.map_err(|error| {
                if view.backends().all(takes) {
                    error
                } else {
                    unknown.clone()
                }
            })?;
            if let Some(routed) = routed {
                let backend = view
                    .get(routed.backend)
                    .filter(|backend| takes(backend))
                    .ok_or(unknown)?
                    .id;
                let context = Arc::clone(&call.context);
                let response = self.send(view, &routed, call).await?;
                let noted = tasks.note(view, &context, backend, response, None);
                return Ok(noted.await);
            }
        }
        if let [only] = view.topology().backends()
            && view.shows(only.id)
        {
            sent(&call.context, &call.method, None, Some(only));
            return view.send(only.id, call).await;
        }
        let taking = view
            .backends()
            .filter(|backend| takes(backend))
            .map(|backend| backend.id);
        let described = join_all(taking.map(async |backend| {
            let capabilities = view.wait_briefly(view.capabilities(backend)).await.ok()?;
            Some((backend, capabilities))
        }));
        let described: Vec<_> = described.await.into_iter().flatten().collect();
        for backend in extensions::find_candidates(method, &described) {
            let response = view.send(backend, call.clone()).await?;
            // A method that the server does not know certainly did not run.
            if response.error_code() != Some(code::METHOD_NOT_FOUND) {
                sent(&call.context, &call.method, None, view.get(backend));
                let noted = tasks.note(view, &call.context, backend, response, None);
                return Ok(noted.await);
            }
        }
        Err(unknown)
    }

    /// Asks servers in turn for a resource that none of them lists. The first result counts.
    /// Without a result the resource is not found, unless a server could not be asked. A server
    /// that is slower than a list may be is still waited for, but the next one is asked meanwhile.
    pub(super) async fn find_resource(
        &self,
        view: &View,
        uri: &str,
        call: Call,
    ) -> Result<(BackendId, Response), RpcError> {
        let (mut not_asked, mut refusal) = (None, None);
        let mut left = view.backends().peekable();
        let mut asked = FuturesUnordered::new();
        loop {
            if let Some(next) = left.next() {
                asked.push(self.read_if_capable(view, next, call.clone()));
            }
            let patience = if left.peek().is_some() {
                view.limits().timeout
            } else {
                Duration::MAX
            };
            match timeout(patience, asked.next()).await {
                Ok(Some(Some((backend, Ok(response))))) if !response.is_error() => {
                    return Ok((backend, response));
                }
                Ok(Some(Some((backend, Ok(response))))) => {
                    refusal.get_or_insert((backend, response));
                }
                Ok(Some(Some((_, Err(error))))) => {
                    not_asked.get_or_insert(error);
                }
                Ok(Some(None)) | Err(_) => {}
                Ok(None) => break,
            }
        }
        match (not_asked, refusal) {
            (Some(error), _) => Err(error),
            (None, Some(refusal)) => Ok(refusal),
            (None, None) if call.method != Method::ReadResource => {
                Err(fault::invalid_params(format!("nothing is served at {uri}")))
            }
            (None, None) => Err(fault::unknown_resource(uri)),
        }
    }

    /// Sends a read to a server that has resources or skills.
    async fn read_if_capable(
        &self,
        view: &View,
        backend: &Member,
        call: Call,
    ) -> Option<(BackendId, Result<Response, RpcError>)> {
        if !permits_unlisted(view, &call, backend.id)
            || !self
                .directory
                .lookup(view, &call.context)
                .may_have_unlisted(backend.id)
                .await
        {
            return None;
        }
        let capabilities = view
            .wait_briefly(view.capabilities(backend.id))
            .await
            .ok()?;
        let is_capable = match call.method {
            Method::GetSkill => ListKind::Skills.is_offered_by(&capabilities),
            Method::ReadDirectory => extensions::reads_directories(&capabilities),
            _ => capabilities.get("resources").is_some(),
        };
        if !is_capable {
            return None;
        }
        let answer = self.ask(backend, call).await;
        Some((
            backend.id,
            answer.map_err(|error| view.no_answer(backend.id, &error)),
        ))
    }
}

/// Whether a server may get a request for an unlisted resource.
fn permits_unlisted(view: &View, call: &Call, backend: BackendId) -> bool {
    operation::find_item(&call.method, call.params.as_ref()).is_none_or(|(_, uri)| {
        let action = operation::action(&call.method).unwrap_or(PolicyAction::Read);
        view.permits_unlisted(action, backend, &uri)
    })
}

/// Sends to every server with the capability; succeeds if any of them does.
pub(super) async fn send_to_all_with(
    view: &View,
    capability: &str,
    call: &Call,
) -> Result<Response, RpcError> {
    let asked = view
        .ids()
        .filter(|backend| permits_unlisted(view, call, *backend));
    let answers = join_all(asked.map(|backend| async move {
        if view.has_capability(backend, capability).await {
            let answer = view.wait_briefly(view.request(backend, call.clone())).await;
            Some(answer.map_err(|error| view.no_answer(backend, &error)))
        } else {
            None
        }
    }))
    .await;
    let is_done = |answer: &Result<Response, RpcError>| {
        answer.as_ref().is_ok_and(|answer| !answer.is_error())
    };
    let (done, mut failed): (Vec<_>, Vec<_>) = answers.into_iter().flatten().partition(is_done);
    if !done.is_empty() {
        call.context.trace.partial_failures(failed.len());
        return Ok(Response::from_result(&Json::empty_object()));
    }
    let first_error = (!failed.is_empty()).then(|| failed.swap_remove(0));
    first_error.unwrap_or_else(|| Err(fault::unknown_method(call.method.as_str())))
}
