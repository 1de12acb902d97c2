//! A request on its way from the client edge to the core: first as the client sent it, then as the core has resolved it.

use std::borrow::Cow;
use std::sync::Arc;

use fanlight_protocol::{Json, Method};

use crate::call::CallContext;

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

/// One request as the core is going to carry it out. Only [`Core::resolve`](crate::Core::resolve) makes one, and
/// [`Core::run`](crate::Core::run) carries out nothing else: whoever decides about a request reads this value, so that
/// what was checked is what runs.
pub trait ResolvedOperation: std::fmt::Debug + Send + Sync + 'static {
    /// The method.
    fn method(&self) -> &Method;

    /// What the core and the edges know of the client, with its identity.
    fn context(&self) -> &Arc<CallContext>;

    /// The definition of the tool that it calls, as clients see it in lists; `None` if no list has the tool, or
    /// [`Detail::Tool`] was not asked for. While the list is unchanged, the same `Arc` is returned for each call.
    fn definition(&self) -> Option<&Arc<Json>>;

    /// The tool that the server gets; `None` if no list has it, so that only its server knows which tool it is, or
    /// [`Detail::Tool`] was not asked for.
    fn tool(&self) -> Option<Item<'_>>;

    /// Has the next run bring the client's answers, by key as written, and the server's state. Nothing else of it changes.
    fn answer(&mut self, answers: &[(Json, Json)], state: Option<&Json>);
}

/// Something that a server has: what rules are about. Names that clients see may depend on the other servers; this does
/// not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Item<'a> {
    /// The name that the configuration gives the server.
    pub server: &'a str,
    /// The server's own name for it.
    pub name: Cow<'a, str>,
}
