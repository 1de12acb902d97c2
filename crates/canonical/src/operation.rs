//! A client's request between the client edge and the core: first as the client sent it, then as
//! the core has resolved it.

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
    /// The properties of the client that the core and the edges need.
    pub context: Arc<CallContext>,
}

/// How much of an operation has to be known for the decision whether it may run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Detail {
    /// Everything that is known without asking a server.
    Known,
    /// The called tool too. Lists are read for it if necessary.
    Tool,
}

/// The input of a decision whether a request, notification or listening may run, together with the
/// client's identity.
pub trait Decidable: std::fmt::Debug + Send + Sync {
    /// The method of the request or notification. For listening, `subscriptions/listen` in every
    /// era.
    fn method(&self) -> &Method;

    /// The called tool's definition, as clients see it in lists. `None` if no list has the tool, or
    /// [`Detail::Tool`] was not requested. While the list is unchanged, each call returns the same
    /// `Arc`.
    fn definition(&self) -> Option<&Arc<Json>> {
        None
    }

    /// The tool that the server gets. `None` if no list has it, so that only its server knows it,
    /// or if [`Detail::Tool`] was not requested.
    fn tool(&self) -> Option<Item<'_>> {
        None
    }

    /// The server that gets a tool call, even if no list has the tool; `None` if it is unknown.
    fn server(&self) -> Option<&str> {
        None
    }

    /// The approval that the call needs; `None` if it needs none.
    fn approval(&self) -> Option<NeededApproval<'_>> {
        None
    }

    /// The policy's verdict; `None` without a policy, or if no item of a server is concerned.
    fn verdict(&self) -> Option<&Verdict> {
        None
    }

    /// The client's name of the subject: a name, a URI or the id of a task. `None` without a
    /// subject.
    fn shown_name(&self) -> Option<Cow<'_, str>> {
        None
    }

    /// The interest of a listener; `None` if this is not a request to listen.
    fn interest(&self) -> Option<&Interest> {
        None
    }
}

/// One request as the core is going to carry it out. Only [`Core::resolve`](crate::Core::resolve)
/// makes one, and [`Core::run`](crate::Core::run) carries out nothing else. Decisions are based on
/// this value, so exactly the checked request runs.
pub trait ResolvedOperation: Decidable + 'static {
    /// The client's context, with its identity.
    fn context(&self) -> &Arc<CallContext>;

    /// `params` with the client's bytes.
    fn params(&self) -> Option<&Json>;

    /// Sets the client's answers, by key as written, and the server's state for the next run.
    /// Nothing else changes.
    fn answer(&mut self, answers: &[(Json, Json)], state: Option<&Json>);

    /// The arguments of a call as the server gets them, if they are known.
    fn sent_arguments(&self) -> Option<Json> {
        self.params()?.get("arguments")
    }

    /// Whether the request is certain to get an error without reaching a server.
    fn is_refused(&self) -> bool {
        false
    }

    /// The subject of the policy's decision; `None` without a policy, or if no item of a server is
    /// concerned.
    fn policy_subject(&self) -> Option<PolicySubject> {
        None
    }

    /// The facts that the decision was based on. A running operation keeps them, because it may
    /// need another decision.
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

/// The facts that the decision about a running request was based on.
#[derive(Clone, Debug)]
pub struct Decided {
    method: Method,
    definition: Option<Arc<Json>>,
    /// The server, and the server's own name of the tool.
    tool: Option<(Box<str>, Box<str>)>,
    verdict: Option<Verdict>,
    subject: Option<PolicySubject>,
}

impl Decided {
    /// The subject of the policy's decision; `None` without a policy, or if no item of a server is
    /// concerned.
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
