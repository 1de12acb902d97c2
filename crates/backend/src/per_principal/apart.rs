//! A server over stdio with authenticated clients. A modern server has no sessions, so what its
//! process keeps for one principal could reach another. So each principal has a process of its own,
//! started by its first request.
//!
//! Beside these there is the process of the *base*. It serves what is the same for all: the
//! description, lists that are not private, and announcements of their changes. A client that only
//! listens starts no process. A server that turns out to be legacy uses only the base, which
//! separates its sessions.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use fanlight_canonical::{
    BackendClient, BackendError, BackendStatus, Call, CallContext, Interest, Listen, Listening,
    Pending, Principal, ProcessOutput, RunningProcess, ServerMessage, ServerMessages, SessionKey,
};
use fanlight_protocol::result::{ServerDescription, is_private};
use fanlight_protocol::{Method, Notification, Response, RpcError, code};
use futures_util::future::BoxFuture;
use parking_lot::Mutex;
use tokio::time::Instant;
use tokio_util::sync::{CancellationToken, DropGuard};

use super::members::{Lease, Members, Own};
use crate::backend::{Backend, BackendLife};
use crate::sessions::is_for_all;
use crate::settings::{BackendSettings, KnownServer, Serves};
use crate::tasks::UNKNOWN_TASK;

/// An MCP server over stdio with one process per principal.
pub struct BackendApart {
    base: Arc<Backend>,
    members: Members,
    waiting: Arc<Waiting>,
    private: Arc<PrivateLists>,
}

/// The lists that the server declared private, by the methods that read them. A private list stays
/// private.
#[derive(Default)]
struct PrivateLists(Mutex<HashSet<Method>>);

/// Clients that listen at the base, and also at their principal's process while there is one.
#[derive(Default)]
struct Waiting(Mutex<Table>);

#[derive(Default)]
struct Table {
    listeners: HashMap<Principal, Vec<Waiter>>,
    last: u64,
}

struct Waiter {
    id: u64,
    listen: Listen,
    /// The number of the member at which it listens; 0 for none so far.
    at: u64,
    end: CancellationToken,
}

/// Ends the listening of one client when dropped.
struct WaiterGuard {
    waiting: Arc<Waiting>,
    principal: Principal,
    id: u64,
    _end: DropGuard,
}

impl BackendApart {
    /// Begins to start the base, as [`Backend::resume`] does. At most `settings.limits.sessions`
    /// principals have a process at the same time. `shutdown` ends all of them.
    ///
    /// Needs a tokio runtime around it.
    pub fn start(
        settings: BackendSettings,
        known: Option<KnownServer>,
        shutdown: &CancellationToken,
    ) -> Arc<Self> {
        let (shutdown, longest) = (shutdown.child_token(), settings.timeouts.session_idle);
        let idle = settings.processes.idle.unwrap_or(longest).min(longest);
        let base = Backend::resume(settings.clone(), known, shutdown.clone());
        let mut of_one = settings;
        let processes = &mut of_one.processes;
        processes.serves = Serves::One;
        // It starts on demand, for a request.
        (
            processes.starts_on_demand,
            processes.keeps_lists,
            processes.rests_while_known,
        ) = (false, false, false);
        let members = Members::new(of_one, Arc::clone(base.process_log()), shutdown.clone());
        let (life, life_of_base) = (members.life.clone(), base.life());
        let itself = Arc::new(Self {
            base,
            members,
            waiting: Arc::default(),
            private: Arc::default(),
        });
        let of = Arc::downgrade(&itself);
        life.spawn(async move {
            shutdown
                .run_until_cancelled(Members::tend(of, idle, |of: &Self| &of.members))
                .await;
            life_of_base.stop().await;
        });
        itself
    }

    /// The base, which serves lists.
    pub fn base(&self) -> &Arc<Backend> {
        &self.base
    }

    /// A handle that can end the server but does not keep it alive.
    pub fn life(&self) -> BackendLife {
        self.members.life.clone()
    }

    /// The process of a client's principal; `None` if the base has a connection of its own for the
    /// client.
    async fn of(&self, client: &CallContext) -> Result<Option<Lease>, BackendError> {
        if client.caller.is_gateway() || self.base.has_own_connection(client).await? {
            return Ok(None);
        }
        let principal = client.caller.principal();
        let lease = self.members.lease(
            principal,
            Own {
                source: None,
                environment: Vec::new(),
            },
        )?;
        self.base.wake();
        self.waiting
            .with(principal, |waiter| self.attach(waiter, &lease));
        Ok(Some(lease))
    }

    /// Sends a request to its principal's process.
    async fn ask(&self, call: Call) -> Result<Response, BackendError> {
        let CallContext { caller, .. } = &*call.context;
        let is_about_task = matches!(
            call.method,
            Method::GetTask | Method::TaskResult | Method::UpdateTask | Method::CancelTask
        );
        // Without a process there is no task, so none is started just to be asked.
        if is_about_task
            && !caller.is_gateway()
            && self.members.existing(caller.principal()).is_none()
            && !self.base.has_own_connection(&call.context).await?
        {
            return Ok(Response::from_error(&RpcError::new(
                code::INVALID_PARAMS,
                UNKNOWN_TASK,
            )));
        }
        match self.of(&call.context).await? {
            Some(lease) => lease.backend.request(call).await,
            None => self.base.request(call).await,
        }
    }

    /// Reads a list, from the principal's process if the list is private.
    async fn list(&self, call: Call) -> Result<Response, BackendError> {
        if self.private.has(&call.method) && !call.context.caller.is_gateway() {
            return self.ask(call).await;
        }
        let answer = self.base.request(call.clone()).await;
        if !answer
            .as_ref()
            .is_ok_and(|answer| answer.result().is_some_and(|result| is_private(&result)))
        {
            return answer;
        }
        self.private.add(&call.method);
        if call.context.caller.is_gateway() {
            answer
        } else {
            self.ask(call).await
        }
    }

    /// Lets a client listen at its principal's process, too, unless it already does.
    fn attach(&self, waiter: &mut Waiter, lease: &Lease) {
        if std::mem::replace(&mut waiter.at, lease.number) == lease.number {
            return;
        }
        let listen = Listen {
            messages: self.private.tell(&waiter.listen.messages),
            ..waiter.listen.clone()
        };
        let (listening, life, end) = (
            self.members.listen(lease, listen),
            lease.life.clone(),
            waiter.end.clone(),
        );
        self.members.life.spawn(async move {
            tokio::select! {
                () = listening => {}
                () = life.unused() => {}
                () = end.cancelled() => {}
            }
        });
    }

    /// Listens for a client whose interests do not need its principal's process.
    async fn listen_to_base(&self, listen: Listen) -> Result<Listening, BackendError> {
        let mut listening = self.base.listen(listen.clone()).await?;
        let (principal, end) = (
            listen.context.caller.principal().clone(),
            CancellationToken::new(),
        );
        let id = self.waiting.add(Waiter {
            id: 0,
            listen,
            at: 0,
            end: end.clone(),
        });
        let honoured = std::mem::take(&mut listening.honoured);
        let guard = WaiterGuard {
            waiting: Arc::clone(&self.waiting),
            principal,
            id,
            _end: end.drop_guard(),
        };
        if let Some(lease) = self.members.existing(&guard.principal) {
            self.waiting
                .with(&guard.principal, |waiter| self.attach(waiter, &lease));
        }
        Ok(Listening::new(honoured, (listening, guard)))
    }

    /// Listens for a client that named resources, tasks, or filter members that Fanlight does not
    /// know.
    async fn listen_apart(&self, listen: Listen) -> Result<Listening, BackendError> {
        let Some(lease) = self.of(&listen.context).await? else {
            return self.base.listen(listen).await;
        };
        let told = Listen {
            messages: self.private.tell(&listen.messages),
            ..listen.clone()
        };
        let own = lease.backend.listen(told).await?;
        let lists = Interest {
            lists: listen.interest.lists,
            session: listen.interest.session,
            ..Interest::default()
        };
        let of_base = match lists.is_empty() {
            true => None,
            false => Some(
                self.base
                    .listen(Listen {
                        interest: lists,
                        ..listen
                    })
                    .await?,
            ),
        };
        let honoured = Interest {
            lists: of_base
                .as_ref()
                .map_or_else(Default::default, |base| base.honoured.lists),
            ..own.honoured.clone()
        };
        Ok(Listening::new(honoured, (own, of_base, lease)))
    }
}

impl Drop for BackendApart {
    fn drop(&mut self) {
        self.members.life.end();
    }
}

impl BackendClient for BackendApart {
    fn name(&self) -> &str {
        self.base.name()
    }

    fn describe(&self) -> Pending<'_, ServerDescription> {
        self.base.describe()
    }

    fn describe_to<'a>(&'a self, client: &'a CallContext) -> Pending<'a, ServerDescription> {
        self.base.describe_to(client)
    }

    fn request(&self, call: Call) -> Pending<'_, Response> {
        match is_for_all(&call.method) {
            true => Box::pin(self.list(call)),
            false => Box::pin(self.ask(call)),
        }
    }

    /// Decides by the shared tool list.
    fn is_safe<'a>(&'a self, call: &'a Call) -> BoxFuture<'a, bool> {
        let is_told = call.method != Method::CallTool || !self.private.has(&Method::ListTools);
        Box::pin(async move { is_told && self.base.is_safe(call).await })
    }

    fn listen(&self, listen: Listen) -> Pending<'_, Listening> {
        if listen.context.caller.is_gateway() {
            // Fanlight listens to changes of everybody's lists.
            self.members
                .watchers
                .add(self.private.tell(&listen.messages));
            return self.base.listen(listen);
        }
        match listen.interest.is_about_lists_and_session() {
            true => Box::pin(self.listen_to_base(listen)),
            false => Box::pin(self.listen_apart(listen)),
        }
    }

    fn notify<'a>(
        &'a self,
        notification: &'a Notification,
        client: &'a CallContext,
    ) -> Pending<'a, ()> {
        self.base.notify(notification, client)
    }

    fn end_session(&self, session: SessionKey) {
        self.base.end_session(session);
        self.members
            .servers()
            .iter()
            .for_each(|server| server.client().end_session(session));
    }

    fn connection_made(&self, since: Option<Instant>) -> BoxFuture<'_, Instant> {
        self.base.connection_made(since)
    }

    fn session_choice(&self) -> Pending<'_, Option<String>> {
        self.base.session_choice()
    }

    fn may_rest(&self) -> bool {
        self.base.may_rest()
    }

    fn processes(&self) -> Vec<RunningProcess> {
        self.base.processes()
    }

    /// The output of all processes, which share a log.
    fn process_output(&self) -> ProcessOutput {
        self.base.process_output()
    }

    fn status(&self) -> BackendStatus {
        self.base.status()
    }
}

impl PrivateLists {
    fn has(&self, method: &Method) -> bool {
        self.0.lock().contains(method)
    }

    fn add(&self, method: &Method) {
        self.0.lock().insert(method.clone());
    }

    /// A sender for announcements of a principal's process. It drops changes of shared lists: those
    /// lists come from the base, which announces their changes.
    fn tell(self: &Arc<Self>, messages: &ServerMessages) -> ServerMessages {
        let private = Arc::clone(self);
        messages.mapped(move |message| {
            let is_told = match &message {
                ServerMessage::Notification(notification) => match notification.method {
                    Method::ToolsChanged => private.has(&Method::ListTools),
                    Method::PromptsChanged => private.has(&Method::ListPrompts),
                    Method::ResourcesChanged => {
                        private.has(&Method::ListResources)
                            || private.has(&Method::ListResourceTemplates)
                    }
                    _ => true,
                },
                _ => true,
            };
            is_told.then_some(message)
        })
    }
}

impl Waiting {
    /// Adds a client; returns its id.
    fn add(&self, waiter: Waiter) -> u64 {
        let mut table = self.0.lock();
        table.last += 1;
        let id = table.last;
        let principal = waiter.listen.context.caller.principal().clone();
        table
            .listeners
            .entry(principal)
            .or_default()
            .push(Waiter { id, ..waiter });
        id
    }

    /// Applies `act` to each client of a principal.
    fn with(&self, principal: &Principal, act: impl FnMut(&mut Waiter)) {
        self.0
            .lock()
            .listeners
            .get_mut(principal)
            .into_iter()
            .flatten()
            .for_each(act);
    }
}

impl Drop for WaiterGuard {
    fn drop(&mut self) {
        let mut table = self.waiting.0.lock();
        if let Some(listeners) = table.listeners.get_mut(&self.principal) {
            listeners.retain(|waiter| waiter.id != self.id);
            if listeners.is_empty() {
                table.listeners.remove(&self.principal);
            }
        }
    }
}
