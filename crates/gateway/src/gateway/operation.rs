//! A client's request as the gateway carries it out, resolved once by one topology.

use std::borrow::Cow;
use std::pin::pin;
use std::sync::Arc;

use fanlight_canonical::{
    About, ApprovalRule, ApprovedBy, Call, CallContext, Decidable, Detail, Interest, Item, Parent,
    PolicyAction, PolicyKind, PolicyOutcome, PolicySubject, Verdict,
};
use fanlight_protocol::input::{INPUT_RESPONSES, REQUEST_STATE};
use fanlight_protocol::json::{Json, Member, rewrite_object};
use fanlight_protocol::meta::PER_HOP;
use fanlight_protocol::uri::kept_result;
use fanlight_protocol::{Method, Notification, Response, input};

use super::{FoundTarget, Gateway, note_target};
use crate::approvals::CallToApprove;
use crate::catalogue::{Entry, ListKind, ListView, READ_RESULT, is_starting};
use crate::results::KeptRead;
use crate::routing::{Target, find_by_prefix};
use crate::topology::{BackendId, Filtered, View};

/// The name of the gate that holds definitions which differ from the pinned ones.
const PINS: &str = "pins";
/// The name of the gate of filters: the client's endpoint does not show the item.
const FILTER: &str = "filter";

/// A request as the gateway carries it out. Its fields are private and only [`Gateway::resolve`]
/// makes one, so the request that runs is the one that was decided about.
pub struct Operation {
    /// The client's view of the topology that the operation keeps.
    pub(super) view: View,
    pub(super) request: Call,
    /// The target; `None` until it is needed. Once found it stays, even for further rounds of
    /// input.
    pub(super) target: FoundTarget,
    /// The listed tool with the name that the client gave.
    pub(super) listed: Option<ListedTool>,
    /// The policy's verdict.
    pub(super) verdict: Option<Verdict>,
    /// The call, if Fanlight answers it itself.
    pub(super) own: Option<OwnCall>,
    /// Whether the client called the tool with `call_tool`.
    pub(super) is_indirect: bool,
}

/// A call that Fanlight answers itself.
pub(super) enum OwnCall {
    /// `find_tools` in this list, with these arguments.
    Find(ListView, Json),
    /// A request whose answer is known: arguments do not fit, or a kept result is named where
    /// nobody knows it.
    Answer(Response),
    /// A request for a kept result.
    Read(KeptRead),
}

/// A request to listen as the gateway carries it out. Only [`Gateway::resolve_listen`] makes one.
#[derive(Debug)]
pub struct ListenOperation {
    pub(super) view: View,
    pub(super) interest: Interest,
    pub(super) context: Arc<CallContext>,
}

/// A notification as the gateway forwards it. Only [`Gateway::resolve_notice`] makes one.
#[derive(Debug)]
pub struct Notice {
    pub(super) view: View,
    pub(super) notification: Notification,
    pub(super) context: Arc<CallContext>,
}

impl Gateway {
    /// Resolves a request to listen by the names that the client knows. Asks no server.
    pub fn resolve_listen(&self, interest: Interest, context: Arc<CallContext>) -> ListenOperation {
        ListenOperation {
            view: self.view_of(&context),
            interest,
            context,
        }
    }

    /// Resolves a notification that the client edge does not know. Asks no server.
    pub fn resolve_notice(&self, notification: Notification, context: Arc<CallContext>) -> Notice {
        Notice {
            view: self.view_of(&context),
            notification,
            context,
        }
    }

    /// Resolves a request by the current topology, which the operation keeps until the request has
    /// ended. So a replacement meanwhile does not change what [`Self::run`] does.
    ///
    /// Servers get only requests for lists, and those only for [`Detail::Tool`] or a policy. A
    /// request that cannot be carried out gets an error when it runs.
    pub async fn resolve(&self, request: Call, detail: Detail) -> Operation {
        let view = self.view_of(&request.context);
        let mut operation = Operation {
            view,
            request,
            target: None,
            listed: None,
            verdict: None,
            own: None,
            is_indirect: false,
        };
        if operation.request.method == Method::CallTool && operation.view.lean_rules().is_some() {
            // Boxed: most endpoints have no lean list.
            Box::pin(self.resolve_own_tool(&mut operation)).await;
        }
        let has_results = operation.view.has_results();
        if has_results
            && operation.own.is_none()
            && let Some(subject) = kept_subject(&operation.request)
        {
            // Boxed: few requests are about kept results.
            Box::pin(self.resolve_kept(&mut operation, subject)).await;
        }
        if operation.own.is_some() {
            return operation;
        }
        let is_governed = operation.view.rights().is_some();
        let needs_tool =
            detail == Detail::Tool || is_governed || operation.view.topology().has_approvals;
        // The server may have its own bounds for results.
        let is_server_needed = has_results && operation.view.results(None).is_none();
        // Lean lists leave tools out, whose names still belong in metrics.
        let needs_tool = needs_tool || is_server_needed || operation.view.lean_rules().is_some();
        if needs_tool && operation.request.method == Method::CallTool {
            self.find_tool(&mut operation).await;
        }
        if is_governed && let Some(action) = action(&operation.request.method) {
            // Boxed: most gateways have no policy.
            Box::pin(self.apply_policy(&mut operation, action)).await;
        }
        let permits_all = operation.view.all_rights().is_some();
        let is_noted = operation.request.context.noted.is_some();
        if (permits_all || is_noted)
            && operation.view.transparent_server().is_none()
            && operation.target.is_none()
        {
            let lookup = self
                .directory
                .lookup(&operation.view, &operation.request.context);
            let (method, params) = (&operation.request.method, &operation.request.params);
            let known = lookup.known_target(method, params.as_ref());
            operation.target = known.map(Box::new);
        }
        if permits_all {
            operation.judge_all_permitted();
        }
        if is_noted {
            self.note_subject(&operation);
        }
        if operation.is_indirect {
            operation.check_arguments();
        }
        operation
    }

    /// Notes the subject of a request for the audit log, as far as no server has to be asked.
    fn note_subject(&self, operation: &Operation) {
        let Call {
            method,
            params,
            context,
            ..
        } = &operation.request;
        let sent = operation.sent_request();
        match sent.and_then(|(backend, params)| Some((operation.view.get(backend)?, params))) {
            Some((member, params)) => note_target(context, method, params, member),
            None if operation.is_refused() => {
                self.note_unreached(&operation.view, context, method, params.as_ref());
            }
            None => {}
        }
    }

    /// Notes the subject of a request that reaches no single server, and the gate that hides the
    /// item from the client. The operator may know both.
    pub(super) fn note_unreached(
        &self,
        view: &View,
        context: &CallContext,
        method: &Method,
        params: Option<&Json>,
    ) {
        let Some((kind, name)) = find_item(method, params) else {
            return;
        };
        let everything = view.without_filters();
        let listed = self.find_entry_owner(&everything, kind, &name);
        let is_hidden = listed.is_some() && self.find_entry_owner(view, kind, &name).is_none();
        let prefixed = || {
            let (member, original) = find_by_prefix(&everything, &name)?;
            Some((member.id, original.to_owned()))
        };
        let aliased = || {
            let (member, original) = view.topology().unalias(&name)?;
            Some((member.id, original))
        };
        let only = || {
            let only = everything.only_server()?;
            Some((only.id, only.naming.original_name(&name)?.to_owned()))
        };
        let list = self.newest_list(&everything, kind);
        let whole = list.as_ref().map(ListView::whole);
        let found = aliased().or(listed).or_else(prefixed).or_else(only);
        // A withheld entry has no name for clients, which is its own one unless it has a prefix.
        let found = found.or_else(|| whole?.find_withheld(&name));
        let is_held = |(backend, original): &(BackendId, String)| {
            whole.is_some_and(|whole| whole.withholds(*backend, original))
        };
        match context.gate.get() {
            None if is_hidden => context.refused_by(FILTER),
            None if found.as_ref().is_some_and(is_held) => context.refused_by(PINS),
            _ => {}
        }
        let (server, item) = match found {
            Some((backend, original)) => (Some(everything.name(backend)), original),
            None => (None, name),
        };
        note_item(context, server, &item);
    }

    /// The server of an entry that clients know by this name or URI, and the server's own name for
    /// it, by the newest list.
    fn find_entry_owner(
        &self,
        view: &View,
        kind: PolicyKind,
        name: &str,
    ) -> Option<(BackendId, String)> {
        let list = self.newest_list(view, kind)?;
        let entry = list.find(name).or_else(|| list.find_bare(name).next())?;
        Some((entry.backend, entry.own_name()?))
    }

    /// The newest list of the entries of a kind, as `view` shows it.
    pub(super) fn newest_list(&self, view: &View, kind: PolicyKind) -> Option<ListView> {
        let list = match kind {
            PolicyKind::Tool => ListKind::Tools,
            PolicyKind::Prompt => ListKind::Prompts,
            PolicyKind::Skill => ListKind::Skills,
            PolicyKind::Resource | PolicyKind::Template => ListKind::Resources,
            PolicyKind::Method | PolicyKind::Server => return None,
        };
        self.lists.catalogue(list, view).newest_in(view)
    }

    /// Finds the target of the call, and the tool in the lists.
    async fn find_tool(&self, operation: &mut Operation) {
        let Operation {
            view,
            request,
            target,
            listed,
            ..
        } = operation;
        let (params, context) = (request.params.as_ref(), &request.context);
        let name = params.and_then(|params| params.text_at("name"));
        let trusted = self.trusted_tools(view);
        let known = trusted
            .as_ref()
            .zip(name.as_ref())
            .and_then(|(tools, name)| tools.find(name));
        if view.transparent_server().is_none() {
            let lookup = self.directory.lookup(view, context);
            let found = match known {
                Some(tool) => Some(lookup.target_of_tool(params, tool)),
                None => lookup.known_target(&request.method, params),
            };
            let found = match found {
                Some(found) => Some(found),
                None => Box::pin(lookup.target(&request.method, params)).await,
            };
            *target = found.map(Box::new);
        }
        // The target may have been found by reading the list.
        *listed = match (known, name) {
            (Some(tool), _) => to_listed_tool(tool),
            (None, Some(name)) => self.listed_tool(view, &name, &context.trace).await,
            (None, None) => None,
        };
    }
}

impl Gateway {
    /// The newest list of tools, if it is trusted.
    pub(super) fn trusted_tools(&self, view: &View) -> Option<ListView> {
        if view.transparent_server().is_none() {
            self.lists.begin();
        }
        self.lists
            .catalogue(ListKind::Tools, view)
            .trusted_view(view)
    }

    /// The tool that clients know as `name`. Lists are read unless the newest one is trusted and
    /// has it.
    pub(super) async fn listed_tool(
        &self,
        view: &View,
        name: &str,
        trace: &Parent,
    ) -> Option<ListedTool> {
        let trusted = self.trusted_tools(view);
        let known = trusted
            .as_ref()
            .and_then(|tools| tools.find(name).or_else(|| only_bare(view, tools, name)));
        match known {
            Some(tool) => to_listed_tool(tool),
            // Boxed: calls of known tools do not need the large future of reading lists.
            None => Box::pin(self.read_tool(view, name, trace)).await,
        }
    }

    /// The tool that clients know as `name`, after reading lists.
    async fn read_tool(&self, view: &View, name: &str, trace: &Parent) -> Option<ListedTool> {
        let tools = self.lists.catalogue(ListKind::Tools, view);
        let from_all = async {
            let known = tools.newest_view(view, trace).await;
            if let Some(tool) = known.find(name) {
                return to_listed_tool(tool);
            }
            let fresh = tools.recheck(view, trace).await?;
            fresh.find(name).and_then(to_listed_tool)
        };
        match find_by_prefix(view, name) {
            // Slow servers must not delay a call of this server's tool.
            Some((backend, original)) if backend.permits_tool(original) => {
                let mut from_one = pin!(self.lists.tool_of(view, backend, original, trace));
                let found = tokio::select! {
                    biased;
                    found = from_all => match found {
                        // The server may be the one that the merged list still lacks.
                        None if is_starting(&*backend.client) => from_one.await,
                        found => return found,
                    },
                    found = from_one.as_mut() => found,
                };
                let definition = found?;
                let kind = Filtered::Tools;
                view.permits_name(kind, backend.id, original, Some(&definition))
                    .then(|| ListedTool {
                        backend: backend.id,
                        original: Json::string(original),
                        definition,
                    })
            }
            _ => from_all.await,
        }
    }
}

/// A tool that a list has.
#[derive(Clone, Debug)]
pub(super) struct ListedTool {
    pub(super) backend: BackendId,
    /// The server's own name for the tool: a JSON string.
    pub(super) original: Json,
    /// The definition, as clients see it.
    pub(super) definition: Arc<Json>,
}

pub(super) fn to_listed_tool(tool: &Entry) -> Option<ListedTool> {
    Some(ListedTool {
        backend: tool.backend,
        original: tool.original.clone()?,
        definition: Arc::clone(&tool.visible),
    })
}

/// The only tool with the original name `name`. `None` if the name has a prefix.
fn only_bare<'a>(view: &View, tools: &'a ListView, name: &str) -> Option<&'a Entry> {
    let mut all = tools.find_bare(name);
    let only = all
        .next()
        .filter(|_| find_by_prefix(view, name).is_none())?;
    all.next().is_none().then_some(only)
}

/// Notes the item that a request is about for the audit log, and its server if it has one.
pub(super) fn note_item(context: &CallContext, server: Option<&str>, item: &str) {
    if let Some(noted) = &context.noted {
        noted.about.get_or_init(|| About {
            server: server.map(Into::into),
            item: Some(item.into()),
            canary: None,
        });
    }
}

/// The definition of the tool that a server calls `original`, if `listed` is that tool.
pub(super) fn definition_of<'a>(
    listed: Option<&'a ListedTool>,
    backend: BackendId,
    original: &str,
) -> Option<&'a Arc<Json>> {
    let listed = listed.filter(|tool| tool.backend == backend && tool.original.is_str(original));
    listed.map(|tool| &tool.definition)
}

/// The action of a request, as policies name it.
pub(super) fn action(method: &Method) -> Option<PolicyAction> {
    Some(match method {
        Method::CallTool => PolicyAction::Call,
        Method::GetPrompt => PolicyAction::Get,
        Method::ReadResource | Method::ReadDirectory => PolicyAction::Read,
        Method::GetSkill => PolicyAction::GetSkill,
        Method::Complete => PolicyAction::Complete,
        Method::Subscribe => PolicyAction::Subscribe,
        _ => return None,
    })
}

/// The kind and the name or URI of the entry that a request names.
pub(super) fn find_item(method: &Method, params: Option<&Json>) -> Option<(PolicyKind, String)> {
    let (params, text) = (params?, Json::text_at);
    let of_uri = |uri: String| (PolicyKind::from_uri(&uri), uri);
    match method {
        Method::CallTool => Some((PolicyKind::Tool, text(params, "name")?)),
        Method::GetPrompt => Some((PolicyKind::Prompt, text(params, "name")?)),
        Method::GetSkill => Some((PolicyKind::Skill, text(params, "uri")?)),
        Method::Complete => {
            // The `type` that is sent decides.
            let reference = params.get("ref")?;
            match text(&reference, "type")?.as_str() {
                "ref/prompt" => Some((PolicyKind::Prompt, text(&reference, "name")?)),
                "ref/resource" => Some(of_uri(text(&reference, "uri")?)),
                _ => None,
            }
        }
        Method::ReadResource | Method::ReadDirectory | Method::Subscribe | Method::Unsubscribe => {
            Some(of_uri(text(params, "uri")?))
        }
        _ => None,
    }
}

/// The name or URI in a request that may be about a kept result.
fn kept_subject(request: &Call) -> Option<String> {
    let params = request.params.as_ref();
    if request.method == Method::CallTool {
        let name = params?.peek("name")?.as_str()?;
        return name.ends_with(READ_RESULT).then(|| name.into_owned());
    }
    let (_, uri) = find_item(&request.method, params)?;
    kept_result(&uri).is_some().then_some(uri)
}

impl Operation {
    /// The server of a call, and the parameters that it gets.
    pub(super) fn sent_request(&self) -> Option<(BackendId, Option<&Json>)> {
        Some(
            match (self.view.transparent_server(), self.target.as_deref()) {
                (Some(only), _) => (only.id, self.request.params.as_ref()),
                (None, Some(Ok(Target::One(routed)))) => (routed.backend, Some(&routed.params)),
                _ => return None,
            },
        )
    }
}

impl Decidable for Operation {
    fn method(&self) -> &Method {
        &self.request.method
    }

    fn definition(&self) -> Option<&Arc<Json>> {
        self.listed.as_ref().map(|listed| &listed.definition)
    }

    fn tool(&self) -> Option<Item<'_>> {
        let listed = self.listed.as_ref()?;
        let (backend, params) = self.sent_request()?;
        let name = params.and_then(|params| params.get("name"));
        let original = listed.original.as_str()?;
        let is_listed =
            backend == listed.backend && name.as_ref().and_then(Json::as_str)? == original;
        is_listed.then(|| Item {
            server: self.view.name(backend),
            name: original,
        })
    }

    fn server(&self) -> Option<&str> {
        self.sent_request()
            .map(|(backend, _)| self.view.name(backend))
    }

    fn is_indirect(&self) -> bool {
        self.is_indirect
    }

    fn is_own(&self) -> bool {
        self.own.is_some() && self.listed.is_none()
    }

    fn shown_name(&self) -> Option<Cow<'_, str>> {
        match find_item(&self.request.method, self.params()) {
            Some((_, name)) => Some(name.into()),
            None => Some(self.params()?.text_at("taskId")?.into()),
        }
    }

    fn is_refused(&self) -> bool {
        Self::is_refused(self)
    }

    fn request(&self) -> Option<(&CallContext, Option<&Json>)> {
        Some((&self.request.context, self.request.params.as_ref()))
    }

    fn verdict(&self) -> Option<&Verdict> {
        self.verdict.as_ref()
    }
}

/// The members of a call's `params` that a server gets and an approver would not see: all but the
/// name, the arguments, the members of later rounds, and the keys of `_meta` that Fanlight replaces.
fn further_members(params: &Json) -> Option<Json> {
    const APART: [&str; 5] = ["name", "arguments", "_meta", INPUT_RESPONSES, REQUEST_STATE];
    let meta = params.get("_meta").filter(Json::is_object).map(|meta| {
        rewrite_object(
            &meta,
            |member| !PER_HOP.iter().any(|key| member.is(&meta, key)) && !is_trace(&meta, member),
            b"",
        )
    });
    let meta = meta.filter(|meta| meta.has_members());
    let mut more = params.without_members(&APART);
    if let Some(meta) = meta {
        more = more.with_member("_meta", &meta);
    }
    (more.has_members()).then_some(more)
}

/// Whether a member of `_meta` is trace context (SEP-414), which differs each time.
fn is_trace(meta: &Json, member: &Member) -> bool {
    ["traceparent", "tracestate"]
        .iter()
        .any(|key| member.is(meta, key))
}

impl Operation {
    /// The listed tool of a call at an endpoint with lean lists, by the client's name.
    pub fn lean_tool(&self) -> Option<Cow<'_, str>> {
        let is_lean = self.view.lean_rules().is_some() && self.request.method == Method::CallTool;
        let is_listed = self.listed.is_some() || self.own.is_some();
        self.shown_name().filter(|_| is_lean && is_listed)
    }

    /// The client's context, with its identity.
    pub fn context(&self) -> &Arc<CallContext> {
        &self.request.context
    }

    /// The definition of the called tool, if a list has it and the server gets the call.
    pub(super) fn listed_definition(&self) -> Option<&Json> {
        let listed = self.listed.as_ref()?;
        self.tool().map(|_| &*listed.definition)
    }

    /// `params` with the client's bytes.
    pub fn params(&self) -> Option<&Json> {
        self.request.params.as_ref()
    }

    /// Whether the request is certain to get an error without reaching a server.
    pub fn is_refused(&self) -> bool {
        self.view.transparent_server().is_none() && matches!(self.target.as_deref(), Some(Err(_)))
    }

    /// The approver of the call, the operator's text for the question, and the call; `None` if it
    /// needs no approval.
    pub fn approval(&self) -> Option<(ApprovedBy, Option<Arc<str>>, CallToApprove)> {
        if self.request.method != Method::CallTool || self.own.is_some() {
            return None;
        }
        let member = self.view.get(self.sent_request()?.0)?;
        let configured = if member.has_approvals() {
            member.approval(self.tool().as_ref().map(|tool| &*tool.name))
        } else {
            None
        };
        let asked = match self.verdict.as_ref().map(|verdict| &verdict.outcome) {
            Some(PolicyOutcome::Asked { by, text, number }) => Some((
                ApprovalRule {
                    by: *by,
                    number: *number,
                },
                Some(Arc::clone(text)),
            )),
            _ => None,
        };
        // The stricter rule counts. If both are equally strict, the policy's does, because it has a
        // text of its own.
        let rules = configured.map(|rule| (rule, None)).into_iter().chain(asked);
        let (rule, text) = rules.max_by_key(|(rule, _)| rule.by)?;
        Some((rule.by, text, self.to_approve(rule.number)?))
    }

    /// The call as somebody has to approve it under the rule `rules`; `None` if its server is
    /// unknown.
    pub fn to_approve(&self, rules: u64) -> Option<CallToApprove> {
        let (backend, params) = self.sent_request()?;
        let caller = &self.request.context.caller;
        // A name that cannot be read needs approval too, because only the server knows its meaning.
        let name = params.and_then(|params| params.text_at("name"));
        let arguments = |params: &Json| params.get("arguments");
        Some(CallToApprove {
            principal: caller.principal().clone(),
            endpoint: caller.endpoint().full_path().into(),
            server: self.view.name(backend).into(),
            tool: name.unwrap_or_default().into(),
            arguments: params.and_then(arguments),
            own: self.request.params.as_ref().and_then(arguments),
            more: params.and_then(further_members),
            rules: rules ^ self.view.get(backend)?.place,
        })
    }

    /// The arguments of a call as the server gets them, if they are known.
    pub fn sent_arguments(&self) -> Option<Json> {
        let sent = self.sent_request().and_then(|(_, params)| params);
        sent.or(self.request.params.as_ref())?.get("arguments")
    }

    /// The subject of the policy's decision; `None` without a policy, or if no item of a server is
    /// concerned.
    pub fn policy_subject(&self) -> Option<PolicySubject> {
        self.view.rights().or(self.view.all_rights())?;
        let (backend, sent) = self.sent_request()?;
        let (method, params) = (&self.request.method, self.request.params.as_ref());
        let (kind, name) = find_item(method, sent)?;
        let (_, visible) = find_item(method, params).unwrap_or((kind, String::new()));
        Some(PolicySubject {
            action: action(method)?,
            kind,
            server: self.view.name(backend).into(),
            definition: definition_of(self.listed.as_ref(), backend, &name).cloned(),
            name: name.into(),
            visible: visible.into(),
            arguments: sent?.get("arguments"),
        })
    }

    /// Sets the client's answers, by key as written, and the server's state for the next run.
    /// Nothing else changes.
    pub fn answer(&mut self, answers: &[(Json, Json)], state: Option<&Json>) {
        let next = |params: Option<&Json>| input::next_params(params, answers, state);
        if let Some(Ok(Target::One(routed))) = self.target.as_deref_mut() {
            routed.params = next(Some(&routed.params));
        }
        self.request.params = Some(next(self.request.params.as_ref()));
    }

    /// The facts that the decision was based on. A running operation keeps them, because it may
    /// need another decision.
    pub fn decided(&self) -> Decided {
        Decided {
            method: self.method().clone(),
            definition: self.definition().cloned(),
            tool: self
                .tool()
                .map(|Item { server, name }| (server.into(), name.into())),
            verdict: self.verdict.clone(),
            subject: self.policy_subject(),
            is_indirect: self.is_indirect,
        }
    }
}

/// The facts that the decision about a running request was based on.
#[derive(Clone, Debug)]
pub struct Decided {
    pub(super) method: Method,
    definition: Option<Arc<Json>>,
    /// The server, and the server's own name of the tool.
    tool: Option<(Box<str>, Box<str>)>,
    pub(super) verdict: Option<Verdict>,
    pub(super) subject: Option<PolicySubject>,
    is_indirect: bool,
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

    fn is_indirect(&self) -> bool {
        self.is_indirect
    }

    fn verdict(&self) -> Option<&Verdict> {
        self.verdict.as_ref()
    }
}

impl Decidable for ListenOperation {
    fn method(&self) -> &Method {
        &Method::Listen
    }

    fn interest(&self) -> Option<&Interest> {
        Some(&self.interest)
    }

    fn request(&self) -> Option<(&CallContext, Option<&Json>)> {
        Some((&self.context, None))
    }
}

impl Decidable for Notice {
    fn method(&self) -> &Method {
        &self.notification.method
    }

    fn request(&self) -> Option<(&CallContext, Option<&Json>)> {
        Some((&self.context, None))
    }
}

fanlight_protocol::opaque!(Operation);
