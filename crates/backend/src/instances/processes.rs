//! A server over stdio with authenticated clients. A modern server has no sessions, so what its
//! process keeps for one principal could reach another. So each principal has a process of its own,
//! started by its first request.
//!
//! Beside these there is the process of the *base*. It serves what is the same for all: the
//! description, lists that are not private, and announcements of their changes. A client that only
//! listens starts no process. A server that turns out to be legacy uses only the base, which
//! separates its sessions.

use std::collections::HashSet;
use std::sync::Arc;

use fanlight_canonical::{
    BackendError, Call, CallContext, Interest, Listen, Listening, ServerMessage, ServerMessages,
};
use fanlight_protocol::result::is_private;
use fanlight_protocol::{Method, Response};
use parking_lot::Mutex;

use super::group::Group;
use super::members::{Lease, Members, Own};
use super::{ServerParts, idle_limit};
use crate::sessions::is_for_all;
use crate::settings::{BackendSettings, KnownServer, Serves};
use crate::tasks::unknown_task;

/// The processes of a server over stdio: one per principal, and a shared one (the base).
pub(super) struct Processes {
    pub(super) base: Arc<Group>,
    pub(super) members: Arc<Members>,
    private: Arc<PrivateLists>,
    server: Arc<ServerParts>,
}

/// The lists that the server declared private, by the methods that read them. A private list stays
/// private.
#[derive(Default)]
struct PrivateLists(Mutex<HashSet<Method>>);

impl Processes {
    /// Begins to start the base. At most `settings.limits.sessions` principals have a process at
    /// the same time.
    pub(super) fn start(
        settings: BackendSettings,
        known: Option<KnownServer>,
        server: &Arc<ServerParts>,
    ) -> Self {
        let idle = idle_limit(&settings);
        let base = Group::start(settings.clone(), known, None, server);
        let mut of_one = settings;
        let processes = &mut of_one.processes;
        processes.serves = Serves::One;
        // It starts on demand, for a request.
        (
            processes.starts_on_demand,
            processes.keeps_lists,
            processes.rests_while_known,
        ) = (false, false, false);
        Self {
            base,
            members: Members::new(of_one, server, idle),
            private: Arc::default(),
            server: Arc::clone(server),
        }
    }

    /// The process of a client's principal; `None` if the base has a connection of its own for the
    /// client.
    async fn lease(&self, client: &CallContext) -> Result<Option<Lease>, BackendError> {
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
        Ok(Some(lease))
    }

    /// Sends a request to its principal's process.
    async fn ask(&self, call: Call) -> Result<Response, BackendError> {
        let CallContext { caller, .. } = &*call.context;
        // Without a process there is no task, so none is started just to be asked.
        if call.method.is_about_task()
            && !caller.is_gateway()
            && self.members.find_group(caller.principal()).is_none()
            && !self.base.has_own_connection(&call.context).await?
        {
            return Ok(unknown_task());
        }
        match self.lease(&call.context).await? {
            Some(lease) => lease.group.request(call).await,
            None => self.base.request(call).await,
        }
    }

    /// Sends a request to its principal's process, or to the base if the answer is for all.
    pub(super) async fn request(&self, call: Call) -> Result<Response, BackendError> {
        if !is_for_all(&call.method) {
            return self.ask(call).await;
        }
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

    /// Whether a repetition of the call does no harm, by the shared tool list.
    pub(super) async fn is_safe(&self, call: &Call) -> bool {
        let is_told = call.method != Method::CallTool || !self.private.has(&Method::ListTools);
        is_told && self.base.is_safe(call).await
    }

    /// Begins to listen. Lists and messages to the session come from the base, and also from the
    /// process of the client's principal while there is one; Fanlight listens to changes of
    /// everybody's lists. Only what a client names needs its principal's process.
    pub(super) async fn listen(&self, listen: Listen) -> Result<Listening, BackendError> {
        let told = Listen {
            messages: self.private.tell(&listen.messages),
            ..listen.clone()
        };
        if listen.interest.is_about_lists_and_session() {
            let caller = &listen.context.caller;
            let principal = (!caller.is_gateway()).then(|| caller.principal().clone());
            let mut listening = self.base.listen(listen).await?;
            let honoured = std::mem::take(&mut listening.honoured);
            let following = Arc::clone(&self.members).follow(told, principal);
            return Ok(Listening::new(
                honoured,
                (listening, self.server.run(following)),
            ));
        }
        let Some(lease) = self.lease(&listen.context).await? else {
            return self.base.listen(listen).await;
        };
        let own = lease.group.listen(told).await?;
        let interest = Interest {
            lists: listen.interest.lists,
            session: listen.interest.session,
            ..Interest::default()
        };
        let mut honoured = own.honoured.clone();
        let base = self.base.listen(Listen { interest, ..listen }).await?;
        honoured.lists = base.honoured.lists;
        Ok(Listening::new(honoured, (own, base, lease)))
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
        messages.with_map(move |message| {
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
