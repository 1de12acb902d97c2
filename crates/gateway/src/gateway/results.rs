//! Large results: shortened after everything else has seen them, and read in parts, as resources
//! or with Fanlight's own tool `read_result`.

use std::sync::Arc;
use std::time::SystemTime;

use fanlight_canonical::{Call, Keeper, PolicySubject, ProcessRun};
use fanlight_protocol::json::{Edits, Json, Kind, ObjectBuilder, Value};
use fanlight_protocol::uri::{KEPT_RESULT, kept_result};
use fanlight_protocol::{Method, Response, RpcError, code};
use tokio::time::Instant;

use super::Gateway;
use super::lean::{refuse, tell};
use super::operation::{Operation, OwnCall, note_item};
use crate::catalogue::{ListKind, ListView, OWN_PREFIX, READ_RESULT, own_name, own_tool};
use crate::fit::find_misfit;
use crate::results::{KeptRead, NoPiece, Part, PartUri, Piece, Shortener, off_worker};
use crate::topology::{BackendId, View};
use crate::{fault, tasks};

/// Shortens the answer to a request after the gates have seen it.
#[derive(Debug)]
pub struct Shortening {
    core: Arc<Gateway>,
    view: View,
    request: Call,
    backend: Option<BackendId>,
    /// The call, as the policy decided about it.
    made_by: Option<Arc<PolicySubject>>,
}

impl Operation {
    /// The step that shortens the answer, if the configuration says so.
    pub fn shortening(&self, core: &Arc<Gateway>) -> Option<Box<Shortening>> {
        let is_shortened = matches!(self.request.method, Method::CallTool | Method::TaskResult);
        let is_concerned = is_shortened && self.own.is_none() && self.view.has_results();
        is_concerned.then(|| {
            Box::new(Shortening {
                core: Arc::clone(core),
                view: self.view.clone(),
                request: self.request.clone(),
                backend: self.sent_request().map(|(backend, _)| backend),
                made_by: self.policy_subject().map(tasks::reduce),
            })
        })
    }

    /// Whether the request reads a kept result.
    pub fn reads_result(&self) -> bool {
        matches!(self.own, Some(OwnCall::Read(_)))
    }

    /// Another run, which keeps the result that the request reads.
    pub fn result_keeper(&self, core: &Gateway) -> Option<ProcessRun> {
        let Some(OwnCall::Read(read)) = &self.own else {
            return None;
        };
        match core
            .results
            .keeper(&read.part.handle, &self.request.context.caller)
        {
            Keeper::Another(run) => Some(run),
            Keeper::ThisRun | Keeper::Nobody => None,
        }
    }
}

impl Shortening {
    /// Whether the response certainly stays whole, because it is short.
    pub fn leaves(&self, response: &Response) -> bool {
        self.backend.is_some()
            && self
                .view
                .results(self.backend)
                .is_none_or(|rules| response.size() <= rules.inline)
    }

    /// The response for the client. If the result cannot be kept, it is not shortened either.
    pub async fn after(&self, response: Response) -> Response {
        let Self {
            core,
            view,
            request,
            ..
        } = self;
        let Call {
            params, context, ..
        } = request;
        let Some(result) = response.result() else {
            return response;
        };
        let (backend, made_by) = match self.backend {
            None => {
                let known = core.directory.tasks.known(view, context, params.as_ref());
                known
                    .await
                    .map_or((None, None), |known| (Some(known.backend), known.made_by))
            }
            known => (known, self.made_by.clone()),
        };
        let size = result.bytes().len();
        let rules = view.results(backend).filter(|rules| {
            // Without the whole arguments, a rule about them could keep the client from its result.
            size > rules.inline && view.permits_again(made_by.as_deref())
        });
        let Some(rules) = rules else {
            return response;
        };
        let is_error = result.peek("isError").is_some_and(Value::is_true);
        if is_error || !response.is_complete() {
            return response;
        }
        let keeps_structured =
            result.peek("structuredContent").is_some() && self.promises_structure().await;
        let Some(handle) = core.results.handle(&context.caller) else {
            return response;
        };
        let shortener = Shortener {
            inline: rules.inline,
            keeps_structured,
            uri: format!("{KEPT_RESULT}{handle}"),
            until: humantime::format_rfc3339_seconds(SystemTime::now() + rules.keep_for)
                .to_string(),
            tool: own_name(&core.tools_of(view, &context.trace).await, READ_RESULT),
        };
        let until = Instant::now() + rules.keep_for;
        let shortened = off_worker(size, move || shortener.shorten(&result))
            .await
            .flatten();
        let Some(shortened) = shortened else {
            return response;
        };
        let short = shortened.result.clone();
        let paths: Vec<_> = shortened.parts.iter().map(|part| &*part.path).collect();
        let what = format!(
            "{size} bytes to {}: {}",
            short.bytes().len(),
            paths.join(", ")
        );
        let of = (&context.caller, &context.peer);
        if !core
            .results
            .keep(&handle, of, rules, until, made_by, shortened)
            .await
        {
            return response;
        }
        context.trace.record_shortening(what);
        response.with_shorter_result(&short)
    }

    /// Whether the called tool has an output schema; of a task, whether any tool may have one.
    async fn promises_structure(&self) -> bool {
        let Self {
            core,
            view,
            request,
            ..
        } = self;
        let trace = &request.context.trace;
        let has_schema = |tool: &Json| tool.peek("outputSchema").is_some();
        let name = request
            .params
            .as_ref()
            .and_then(|params| params.text_at("name"));
        match name.filter(|_| request.method == Method::CallTool) {
            Some(name) => {
                let tool = core.listed_tool(view, &name, trace).await;
                tool.is_some_and(|tool| has_schema(&tool.definition))
            }
            None => {
                let tools = core.tools_of(view, trace).await;
                tools.entries().any(|tool| has_schema(&tool.visible))
            }
        }
    }
}

impl Gateway {
    /// The newest list of tools; reads it if there is none.
    pub(super) async fn tools_of(
        &self,
        view: &View,
        trace: &fanlight_telemetry::Parent,
    ) -> ListView {
        let tools = self.lists.catalogue(ListKind::Tools, view);
        tools.newest_view(view, trace).await
    }

    /// Resolves a request that reads a kept result, or that names one otherwise: no server gets it.
    /// Nothing records which result it is. `subject` is its name or URI.
    pub(super) async fn resolve_kept(&self, operation: &mut Operation, subject: String) {
        let Call {
            method,
            params,
            context,
            ..
        } = &operation.request;
        let Some(params) = params else { return };
        let is_call = *method == Method::CallTool;
        let (own, shown) = if is_call {
            let tools = self.tools_of(&operation.view, &context.trace).await;
            if subject != own_name(&tools, READ_RESULT) {
                return;
            }
            let arguments = params.get("arguments").unwrap_or_else(Json::empty_object);
            (
                self.called(&operation.view, &arguments),
                params.without_members(&["arguments"]),
            )
        } else {
            let Some(rest) = kept_result(&subject) else {
                return;
            };
            let shown = params.without_members(&["ref"]);
            let shown = shown.with_member("uri", &Json::string(KEPT_RESULT));
            let own = match PartUri::parse(rest) {
                _ if *method != Method::ReadResource => {
                    OwnCall::Answer(Response::from_error(&fault::unknown_resource(&subject)))
                }
                Ok(part) => OwnCall::Read(KeptRead {
                    uri: subject,
                    part,
                    most: None,
                }),
                Err(why) => OwnCall::Answer(Response::from_error(&fault::invalid_params(why))),
            };
            (own, shown)
        };
        note_item(
            context,
            None,
            if is_call { READ_RESULT } else { KEPT_RESULT },
        );
        operation.own = Some(own);
        operation.request.params = Some(shown);
    }

    /// A call of `read_result`.
    fn called(&self, view: &View, arguments: &Json) -> OwnCall {
        let schema = read_result(READ_RESULT).get("inputSchema");
        if let Some(misfit) = schema.and_then(|schema| find_misfit(&schema, arguments)) {
            return OwnCall::Answer(refuse(&misfit));
        }
        let uri = arguments.text_at("uri").unwrap_or_default();
        let rest = kept_result(&uri);
        let part = PartUri::parse(rest.unwrap_or_default()).and_then(|mut part| {
            for key in ["pointer", "lines", "bytes"] {
                if let Some(value) = arguments.text_at(key) {
                    part.query.set(key, &value)?;
                }
            }
            Ok(part)
        });
        let of_servers = view
            .backends()
            .filter_map(|backend| view.results(Some(backend.id)));
        let most = of_servers.map(|rules| rules.inline).min();
        match part {
            Ok(part) if rest.is_some() => OwnCall::Read(KeptRead { uri, part, most }),
            Ok(_) => OwnCall::Answer(tell(&fault::unknown_resource(&uri).message)),
            Err(why) => OwnCall::Answer(tell(&why)),
        }
    }

    /// Answers a request that reads a kept result.
    pub(super) async fn answer_read(&self, operation: &Operation, read: &KeptRead) -> Response {
        let KeptRead {
            uri,
            part:
                PartUri {
                    handle,
                    path,
                    query,
                },
            most,
        } = read;
        let (caller, peer) = (
            &operation.request.context.caller,
            &operation.request.context.peer,
        );
        let found = self.results.find(handle, caller);
        let found = found.filter(|kept| operation.view.permits_again(kept.made_by.as_deref()));
        let is_gone = || matches!(self.results.keeper(handle, caller), Keeper::Another(_));
        let (shown, most) = (uri.clone(), *most);
        let answer = move |piece: &Piece, part: &Part| match most {
            Some(most) => in_call(piece, &shown, most, part),
            None => {
                let contents = Json::array([piece.contents(&shown, part)]);
                Response::from_result(&ObjectBuilder::new().member("contents", &contents).finish())
            }
        };
        let read = match &found {
            Some(kept) => {
                let reader = self.results.reader(peer);
                kept.read(path, query, reader, answer).await
            }
            None => Err(NoPiece::Unknown),
        };
        let refusal = match read {
            Ok(response) => return response,
            Err(NoPiece::Invalid(why)) => fault::invalid_params(why),
            Err(NoPiece::Lost(error)) => {
                tracing::error!(%error, "a kept result cannot be read below stateDir");
                let message = "the gateway cannot read the kept result; its log has the reason";
                return Response::from_error(&RpcError::new(code::INTERNAL, message));
            }
            Err(NoPiece::Unknown) => {
                let mut error = fault::unknown_resource(uri);
                if found.is_none() && is_gone() {
                    error.message += ": the gateway's process that kept it has ended";
                }
                error
            }
        };
        match most {
            Some(_) => tell(&refusal.message),
            None => Response::from_error(&refusal),
        }
    }

    /// Adds what clients of large results need to the answer to a request about lists: the tool
    /// `read_result` at the end of the list of tools, and the capability to read resources.
    pub(super) fn with_results(&self, operation: &Operation, response: Response) -> Response {
        let Operation { view, request, .. } = operation;
        let Some(result) = response.result() else {
            let list = match request.method {
                Method::ListResources => "resources",
                Method::ListResourceTemplates => "resourceTemplates",
                _ => return response,
            };
            if response.error_code() != Some(code::METHOD_NOT_FOUND) {
                return response;
            }
            // The server has no resources at all.
            let empty = Json::array([]);
            return Response::from_result(&ObjectBuilder::new().member(list, &empty).finish());
        };
        let changed = match request.method {
            Method::Discover => with_capability(&result),
            Method::ListTools => self.with_tool(view, &result),
            _ => None,
        };
        changed.map_or(response.clone(), |changed| response.with_body(&changed))
    }

    /// The last page of a list of tools with `read_result`.
    fn with_tool(&self, view: &View, list: &Json) -> Option<Json> {
        let is = |value: Option<Value<'_>>, kind| value.is_some_and(|it| it.kind() == kind);
        let place = list
            .place("tools")
            .filter(|at| is(list.value_at(at.clone()), Kind::Array))?;
        if is(list.peek("nextCursor"), Kind::String) {
            return None;
        }
        let tools = list.slice(place.clone());
        let known = self.lists.catalogue(ListKind::Tools, view).newest_in(view);
        let known = known.unwrap_or_default();
        let mut name = own_name(&known, READ_RESULT);
        while tools.items().any(|tool| tool.says("name", &name)) {
            name.insert_str(0, OWN_PREFIX);
        }
        let own = read_result(&name);
        let comma: &[u8] = if tools.elements().next().is_some() {
            b","
        } else {
            b""
        };
        let mut edits = Edits::new(list.bytes().clone());
        edits.replace(
            place.end - 1..place.end,
            [comma, own.bytes(), b"]"].concat(),
        );
        Some(edits.finish_json())
    }
}

/// The description with the capability to read resources, if it has the capability to call tools.
fn with_capability(description: &Json) -> Option<Json> {
    let all = description.get("capabilities")?;
    all.peek("tools")?;
    Some(description.with_nested("capabilities", "resources", &Json::empty_object()))
}

/// The result of `read_result`.
fn in_call(piece: &Piece, uri: &str, most: usize, part: &Part) -> Response {
    let answer = || {
        let mut block = ObjectBuilder::new();
        match piece.member() {
            ("text", text) => block.string("type", "text").member("text", &text),
            _ => block
                .string("type", "resource")
                .member("resource", &piece.contents(uri, part)),
        };
        let content = Json::array([block.finish()]);
        ObjectBuilder::new().member("content", &content).finish()
    };
    // A text is never shorter as JSON.
    let result = (piece.bytes.len() <= most).then(answer);
    if let Some(result) = result.filter(|result| result.bytes().len() <= most) {
        return Response::from_result(&result);
    }
    tell(&format!(
        "{uri} has {} bytes here, more than an answer may have ({most}): ask for less, such as bytes 0-{}",
        piece.bytes.len(),
        most / 2
    ))
}

/// The definition of the tool that reads kept results.
fn read_result(name: &str) -> Json {
    own_tool(
        name,
        "Read a shortened result",
        "Reads a result that was too large and was shortened, whole or in parts: the value at pointer, of that some \
         lines, of these some bytes. The shortened result has the uri.",
        r#"{"inputSchema":{"type":"object","properties":{"uri":{"type":"string","description":"The URI in the shortened result"},"pointer":{"type":"string","description":"JSON Pointer of a value, such as /rows/10"},"lines":{"type":"string","description":"Lines from 1, inclusive, such as 1-200"},"bytes":{"type":"string","description":"Bytes from 0, inclusive, such as 0-9999"}},"required":["uri"]},"annotations":{"readOnlyHint":true,"openWorldHint":false}}"#,
    )
}
