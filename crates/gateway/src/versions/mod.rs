//! A server with other versions: a canary that serves a share of its clients, and a mirror that
//! gets copies of its requests.
//!
//! Each version is a server of its own, with its own connections, processes, credentials and limits.
//! The core sees only one server, under the name that clients know: rights, limits, pins and the
//! audit log use this name.
//!
//! | from | to the canary | to the mirror |
//! |---|---|---|
//! | a client that the canary serves ([`CanaryRule`]) | everything | nothing |
//! | any other client | nothing | copies of a share of the safe requests, once they are answered (`copies`) |
//! | Fanlight itself | nothing: the core listens to it and reads its lists itself | copies, as of clients |
//!
//! If a canary is down, calls of its clients fail. A call that may have run must not be sent to
//! another server, and lists of one version do not fit calls of the other. The configuration can
//! take the share back, and so can an operator who switches the canary off.
//!
//! The modules `balance`, `load` and `steer` of `tower` choose among equal services, by load or by
//! the request. They are not used: here a client stays at its version with its sessions, tasks,
//! subscriptions and lists. A copy has no caller, and its answer is not used.

mod copies;
use std::sync::Arc;

use copies::Copies;
use fanlight_canonical::{
    BackendClient, BackendParts, BackendStatus, BackendTraits, Call, CallContext, Caller,
    CanaryRule, CanaryStatus, Listen, Listening, Pending, ProcessOutput, SessionKey,
};
use fanlight_protocol::result::ServerDescription;
use fanlight_protocol::{Notification, Response};
use futures_util::future::BoxFuture;
use tokio::time::Instant;

use crate::topology::{BackendId, Canary};
pub use copies::MirrorSettings;

/// The parts of a server with canary and mirror.
#[derive(Clone)]
pub struct VersionSettings {
    /// The server itself.
    pub id: BackendId,
    /// The connection.
    pub server: Arc<dyn BackendClient>,
    /// The canary, if it has one.
    pub canary: Option<Canary>,
    /// The mirror, if it has one.
    pub mirror: Option<MirrorSettings>,
}

/// A server with other versions.
pub struct Versions {
    settings: VersionSettings,
    copies: Option<Copies>,
}

impl VersionSettings {
    /// Whether these are the same servers with the same shares.
    fn is_same(&self, other: &Self) -> bool {
        self.id == other.id && self.canary == other.canary && self.mirror == other.mirror
    }
}

impl Versions {
    /// Returns `earlier` if its settings are the same.
    pub fn new(settings: VersionSettings, earlier: Option<&Arc<Self>>) -> Arc<Self> {
        match earlier.filter(|earlier| earlier.settings.is_same(&settings)) {
            Some(earlier) => Arc::clone(earlier),
            None => {
                let copies = settings
                    .mirror
                    .clone()
                    .map(|mirror| Copies::new(Arc::clone(&settings.server), mirror));
                Arc::new(Self { settings, copies })
            }
        }
    }

    /// The server's canary.
    pub fn canary(&self) -> Option<&Canary> {
        self.settings.canary.as_ref()
    }

    /// The canary, if it serves this caller.
    fn find_canary(&self, caller: &Caller) -> Option<&Arc<dyn BackendClient>> {
        let canary = self
            .settings
            .canary
            .as_ref()
            .filter(|canary| canary.rule.takes(caller))?;
        Some(&canary.client)
    }

    fn serving(&self, caller: &Caller) -> &Arc<dyn BackendClient> {
        self.find_canary(caller).unwrap_or(&self.settings.server)
    }

    fn all(&self) -> impl Iterator<Item = &Arc<dyn BackendClient>> {
        std::iter::once(&self.settings.server)
            .chain(self.settings.canary.as_ref().map(|canary| &canary.client))
    }
}

impl BackendClient for Versions {
    fn name(&self) -> &str {
        self.settings.server.name()
    }

    fn describe<'a>(&'a self, client: &'a CallContext) -> Pending<'a, ServerDescription> {
        self.serving(&client.caller).describe(client)
    }

    fn request(&self, call: Call) -> Pending<'_, Response> {
        if let Some(canary) = self.find_canary(&call.context.caller) {
            return canary.request(call);
        }
        match self.copies.as_ref().filter(|copies| copies.wants(&call)) {
            Some(copies) => Box::pin(copies.request(call)),
            None => self.settings.server.request(call),
        }
    }

    fn is_safe<'a>(&'a self, call: &'a Call) -> BoxFuture<'a, bool> {
        self.serving(&call.context.caller).is_safe(call)
    }

    fn listen(&self, listen: Listen) -> Pending<'_, Listening> {
        self.serving(&listen.context.caller).listen(listen)
    }

    fn notify<'a>(
        &'a self,
        notification: &'a Notification,
        client: &'a CallContext,
    ) -> Pending<'a, ()> {
        self.serving(&client.caller).notify(notification, client)
    }

    fn continue_session(&self, client: &Arc<CallContext>) {
        // The core tells the canary itself.
        self.settings.server.continue_session(client);
    }

    fn end_session(&self, session: SessionKey) {
        // The core tells the canary itself, which may have served others before.
        self.settings.server.end_session(session);
    }

    fn status(&self) -> BackendStatus {
        self.settings.server.status()
    }

    fn connection_made(&self, since: Option<Instant>) -> BoxFuture<'_, Instant> {
        self.settings.server.connection_made(since)
    }

    fn session_choice(&self) -> Pending<'_, Option<String>> {
        self.settings.server.session_choice()
    }

    fn traits(&self) -> BackendTraits {
        let all = || self.all().map(|version| version.traits());
        BackendTraits {
            may_rest: self.settings.server.traits().may_rest,
            knows_principals: all().any(|version| version.knows_principals),
            stand_in: all().find_map(|version| version.stand_in),
        }
    }

    fn parts(&self) -> BackendParts {
        let canary = self.settings.canary.as_ref();
        BackendParts {
            canary: canary.map(|Canary { client, rule, .. }| CanaryStatus {
                server: client.name().into(),
                rule: Arc::<CanaryRule>::clone(rule),
                status: client.status(),
            }),
            mirror: self.copies.as_ref().map(Copies::status),
            ..self.settings.server.parts()
        }
    }

    fn process_output(&self) -> ProcessOutput {
        self.settings.server.process_output()
    }
}
