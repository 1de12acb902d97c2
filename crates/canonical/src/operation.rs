//! What a client asks for on its way from the client edge to the core: first as the client sent it, then as the core has
//! resolved it.

use std::borrow::Cow;
use std::sync::Arc;

use fanlight_protocol::{Json, Method};

use crate::approval::{Item, NeededApproval};
use crate::call::CallContext;
use crate::listen::Interest;
use crate::policy::{PolicySubject, Verdict};

/// A request in canonical form, before the core has resolved it.
#[derive(Clone, Debug)]
pub struct Unresolved {
    /// The method.
    pub method: Method,
    /// `params` with the client's bytes.
    pub params: Option<Json>,
    /// What the core and the edges need to know of the client.
    pub context: Arc<CallContext>,
}

/// How much of an operation has to be known before it is decided whether it may run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Detail {
    /// What is known without asking a server.
    Known,
    /// Also the tool that it calls: lists are read for that if necessary.
    Tool,
}

/// What it is decided about whether it may run. Whoever decides reads this and the identity of the client.
pub trait Decidable: std::fmt::Debug + Send + Sync {
    /// The method: of a request or a notification, and of listening `subscriptions/listen` in every era.
    fn method(&self) -> &Method;

    /// The definition of the tool that it calls, as clients see it in lists; `None` if no list has the tool, or
    /// [`Detail::Tool`] was not asked for. While the list is unchanged, the same `Arc` is returned for each call.
    fn definition(&self) -> Option<&Arc<Json>> {
        None
    }

    /// The tool that the server gets; `None` if no list has it, so that only its server knows which tool it is, or
    /// [`Detail::Tool`] was not asked for.
    fn tool(&self) -> Option<Item<'_>> {
        None
    }

    /// The server that gets a call of a tool, whether or not a list has the tool; `None` if that is not known.
    fn server(&self) -> Option<&str> {
        None
    }

    /// What somebody has to agree to before it runs; `None` if nobody has to.
    fn approval(&self) -> Option<NeededApproval<'_>> {
        None
    }

    /// What the policy says of it; `None` if there is none, or it is about nothing that a server has.
    fn verdict(&self) -> Option<&Verdict> {
        None
    }

    /// What the client calls that which it is about: a name, a URI or the id of a task; `None` if it is about nothing.
    fn shown_name(&self) -> Option<Cow<'_, str>> {
        None
    }

    /// What is listened to; `None` if it is no listening.
    fn interest(&self) -> Option<&Interest> {
        None
    }
}

/// One request as the core is going to carry it out. Only [`Core::resolve`](crate::Core::resolve) makes one, and
/// [`Core::run`](crate::Core::run) carries out nothing else: whoever decides about a request reads this value, so that
/// what was checked is what runs.
pub trait ResolvedOperation: Decidable + 'static {
    /// What the core and the edges know of the client, with its identity.
    fn context(&self) -> &Arc<CallContext>;

    /// `params` with the client's bytes.
    fn params(&self) -> Option<&Json>;

    /// Has the next run bring the client's answers, by key as written, and the server's state. Nothing else of it changes.
    fn answer(&mut self, answers: &[(Json, Json)], state: Option<&Json>);

    /// The arguments of a call as the server gets them, as far as that is known.
    fn sent_arguments(&self) -> Option<Json> {
        self.params()?.get("arguments")
    }

    /// Whether it is certain that it is answered with an error, and reaches no server.
    fn is_refused(&self) -> bool {
        false
    }

    /// What a policy has decided about; `None` if there was none, or it was about nothing that a server has.
    fn policy_subject(&self) -> Option<PolicySubject> {
        None
    }

    /// What it was decided about, to be kept while the operation runs: it may have to be decided about again.
    fn decided(&self) -> Decided {
        Decided {
            method: self.method().clone(),
            definition: self.definition().cloned(),
            tool: self
                .tool()
                .map(|Item { server, name }| (server.into(), name.into())),
            verdict: self.verdict().cloned(),
            subject: self.policy_subject(),
        }
    }
}

/// What it was decided about when a request began that still runs.
#[derive(Clone, Debug)]
pub struct Decided {
    method: Method,
    definition: Option<Arc<Json>>,
    /// The server, and its own name of the tool.
    tool: Option<(Box<str>, Box<str>)>,
    verdict: Option<Verdict>,
    subject: Option<PolicySubject>,
}

impl Decided {
    /// What a policy has decided about; `None` if there was none, or it was about nothing that a server has.
    #[must_use]
    pub fn policy_subject(&self) -> Option<&PolicySubject> {
        self.subject.as_ref()
    }
}

impl Decidable for Decided {
    fn method(&self) -> &Method {
        &self.method
    }

    fn definition(&self) -> Option<&Arc<Json>> {
        self.definition.as_ref()
    }

    fn tool(&self) -> Option<Item<'_>> {
        self.tool.as_ref().map(|(server, name)| Item {
            server,
            name: Cow::Borrowed(name),
        })
    }

    fn verdict(&self) -> Option<&Verdict> {
        self.verdict.as_ref()
    }
}
