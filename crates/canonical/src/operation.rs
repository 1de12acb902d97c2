//! A client's request between the client edge and the core: first as the client sent it, then as
//! the core has resolved it.

use std::borrow::Cow;
use std::sync::Arc;

use fanlight_protocol::{Json, Method};

use crate::approval::Item;
use crate::call::CallContext;
use crate::listen::Interest;
use crate::policy::Verdict;

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
    /// The called tool as well, for which lists are read if necessary.
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

    /// Whether the client called the tool through a tool of Fanlight, whose definition it followed.
    fn is_indirect(&self) -> bool {
        false
    }

    /// Whether Fanlight answers the tool call itself, so that no tool of a server is concerned.
    fn is_own(&self) -> bool {
        false
    }

    /// The server that gets a tool call, even if no list has the tool; `None` if it is unknown.
    fn server(&self) -> Option<&str> {
        None
    }

    /// Whether the request is certain to be refused, by the policy or because it names nothing.
    fn is_refused(&self) -> bool {
        false
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

    /// The context of the request, and its parameters; `None` without a context.
    fn request(&self) -> Option<(&CallContext, Option<&Json>)> {
        None
    }

    /// The interest of a listener; `None` if this is not a request to listen.
    fn interest(&self) -> Option<&Interest> {
        None
    }
}
