//! Servers that answer from a script, and a gateway in front of them.

use std::collections::HashMap;
use std::sync::{Arc, LazyLock, Mutex};
use std::time::Duration;

use bytes::Bytes;

use fanlight_canonical::rights::{ItemFilter, ItemKind, NameForm, ServerNames, Servers};
use fanlight_canonical::{
    BackendClient, BackendError, BackendState, BackendStatus, BackendTraits, Call, CallContext,
    Caller, Decidable as _, Detail, Endpoint, Holder, Interest, Listen, Listening, MessageReceiver,
    Names, Parent, Pending, Principal, ServerMessage, ServerMessages, SessionKey, SignInWish,
};
use fanlight_protocol::{
    Json, Message, Method, Notification, ObjectBuilder, Response, ServerDescription,
};
use tokio::sync::Semaphore;

use crate::{
    BackendEntry, BackendId, ByteLimits, CacheLimits, CommonTaskOwners, EndpointEntry, Gateway,
    GatewaySettings, ListLimits, NamingPolicy, Rewriting,
};

/// Answers each `method` or `method params` from a script, and records the requests.
pub(super) struct Fake {
    name: &'static str,
    description: Mutex<Result<&'static str, BackendError>>,
    script: Mutex<HashMap<String, Scripted>>,
    received: Mutex<Vec<String>>,
    /// The failure of listening, if it fails.
    listen_failure: Mutex<Option<Scripted>>,
    listeners: Arc<Mutex<Listeners>>,
    down: Mutex<bool>,
    /// Whether each call is interrupted by a server request.
    asks: Mutex<bool>,
    /// The principals that have signed in, if the server requires a sign-in.
    signed_in: Mutex<Option<Vec<&'static str>>>,
}

#[derive(Default)]
struct Listeners {
    open: HashMap<usize, Listen>,
    begun: usize,
}

#[derive(Clone)]
pub(super) enum Scripted {
    Body(&'static str),
    /// Answers after half the time that a list may take.
    Late(&'static str),
    Fails(BackendError),
    Hangs,
    /// Lets others run first.
    Yields(&'static str),
    /// Answers once there is a permit.
    Waits(Arc<Semaphore>, &'static str),
    /// Writes the principal's subject in place of `{who}`; `-` for Fanlight itself.
    Personal(&'static str),
}

/// The subjects of the principals that servers tell apart.
const SUBJECTS: [&str; 2] = ["ann", "bob"];

pub(super) const ALL: &str = r#"{"capabilities":{"tools":{},"resources":{},"prompts":{},"logging":{}},"serverInfo":{"name":"x"}}"#;

/// A server that announces changes of every list, and takes subscriptions.
pub(super) const ANNOUNCING: &str = r#"{"capabilities":{"tools":{"listChanged":true},"resources":{"listChanged":true,"subscribe":true},"prompts":{"listChanged":true}}}"#;

pub(super) fn fake(name: &'static str, script: &[(&str, &'static str)]) -> Fake {
    let script = script
        .iter()
        .map(|(key, body)| ((*key).to_owned(), Scripted::Body(body)))
        .collect();
    Fake {
        name,
        description: Mutex::new(Ok(ALL)),
        script: Mutex::new(script),
        received: Mutex::default(),
        listen_failure: Mutex::default(),
        listeners: Arc::default(),
        down: Mutex::default(),
        asks: Mutex::default(),
        signed_in: Mutex::default(),
    }
}

/// A fake that announces changes.
pub(super) fn announcing(name: &'static str, script: &[(&str, &'static str)]) -> Fake {
    let fake = fake(name, script);
    fake.describe_as(Ok(ANNOUNCING));
    fake
}

pub(super) fn unreachable() -> BackendError {
    BackendError::Unreachable {
        reason: "connection refused".into(),
    }
}

impl Fake {
    pub(super) fn set(&self, request: &str, scripted: Scripted) {
        self.script
            .lock()
            .unwrap()
            .insert(request.to_owned(), scripted);
    }

    pub(super) fn answer(&self, request: &str, body: &'static str) {
        self.set(request, Scripted::Body(body));
    }

    pub(super) fn describe_as(&self, description: Result<&'static str, BackendError>) {
        *self.description.lock().unwrap() = description;
    }

    pub(super) fn fail_to_listen(&self, how: Option<Scripted>) {
        *self.listen_failure.lock().unwrap() = how;
    }

    /// Requires each principal to sign in; these have done so.
    pub(super) fn sign_in(&self, names: &[&'static str]) {
        *self.signed_in.lock().unwrap() = Some(names.to_vec());
    }

    fn sign_in_wanted_of(&self, caller: &Caller) -> Option<BackendError> {
        let who = subject(caller);
        let missing = self
            .signed_in
            .lock()
            .unwrap()
            .as_ref()
            .is_some_and(|all| !all.contains(&who));
        let wish = || SignInWish {
            url: Some(format!("https://gateway.example/connect/{who}")),
            message: format!("sign in to {}", self.name),
            id: who.into(),
        };
        missing.then(|| BackendError::SignInWanted(Arc::new(wish())))
    }

    pub(super) fn ask_during_calls(&self) {
        *self.asks.lock().unwrap() = true;
    }

    /// Makes the server fail or recover. A recovered one announces possible changes, as backends
    /// do.
    pub(super) fn set_down(&self, down: bool) {
        *self.down.lock().unwrap() = down;
        if !down {
            Change::ALL
                .into_iter()
                .for_each(|change| self.announce(change.method(), None));
        }
    }

    /// Returns the requests received so far, and forgets them.
    pub(super) fn received(&self) -> Vec<String> {
        std::mem::take(&mut *self.received.lock().unwrap())
    }

    /// The number of current listeners, and of all listeners so far.
    pub(super) fn listeners(&self) -> (usize, usize) {
        let listeners = self.listeners.lock().unwrap();
        (listeners.open.len(), listeners.begun)
    }

    /// The interest of the latest listener.
    pub(super) fn interest(&self) -> Interest {
        let listeners = self.listeners.lock().unwrap();
        listeners
            .open
            .values()
            .find(|listen| listen.context.caller == client())
            .unwrap()
            .interest
            .clone()
    }

    /// Sends a notification to all listeners that want it.
    pub(super) fn announce(&self, method: Method, params: Option<&'static str>) {
        self.announce_as(false, method, params);
    }

    /// [`Self::announce`]; `is_own` if Fanlight's connection makes it, and not the server.
    pub(super) fn announce_as(&self, is_own: bool, method: Method, params: Option<&'static str>) {
        let params = params.map(Json::literal);
        let uri = params.as_ref().and_then(|params| params.text_at("uri"));
        let mut message = Notification::new(method.clone(), params.as_ref());
        message.is_own = is_own;
        for listen in self.listeners.lock().unwrap().open.values() {
            let interest = &listen.interest;
            let wanted = match (Change::from_method(&method), &uri) {
                (Some(change), _) => interest.lists.has(change),
                (None, Some(uri)) => interest.uris.iter().any(|one| uri.starts_with(&**one)),
                (None, None) => false,
            };
            // An unknown member may ask for any notification.
            if wanted || interest.session || interest.unknown.is_some() {
                let _ = listen
                    .messages
                    .try_send(ServerMessage::Notification(message.clone()));
            }
        }
    }

    /// Sends a server request to the listeners of sessions.
    pub(super) fn ask_sessions(&self) {
        for listen in self
            .listeners
            .lock()
            .unwrap()
            .open
            .values()
            .filter(|listen| listen.interest.session)
        {
            let _ = listen.messages.try_send(server_request());
        }
    }

    fn honours(&self, interest: &Interest) -> Interest {
        let description = self
            .description
            .lock()
            .unwrap()
            .clone()
            .map(Json::literal)
            .unwrap();
        let capabilities = description.get("capabilities").unwrap();
        let flag = |name: &str, flag: &str| {
            capabilities
                .get(name)
                .and_then(|one| one.get(flag))
                .is_some_and(|flag| flag.is_true())
        };
        Interest {
            lists: interest
                .lists
                .changes()
                .filter(|change| flag(change.capability(), "listChanged"))
                .collect(),
            uris: if flag("resources", "subscribe") {
                interest.uris.clone()
            } else {
                Names::new()
            },
            tasks: interest
                .tasks
                .iter()
                .filter(|id| id.starts_with(self.name))
                .cloned()
                .collect(),
            session: interest.session,
            unknown: capabilities
                .get("unknown")
                .filter(|_| interest.unknown.is_some()),
        }
    }
}

fn server_request() -> ServerMessage {
    let (answer, _) = tokio::sync::oneshot::channel();
    let (method, trace) = (Method::Elicit, Default::default());
    let deadline = tokio::time::Instant::now() + Duration::from_secs(600);
    ServerMessage::Request(fanlight_canonical::ServerRequest {
        method,
        params: None,
        trace,
        answer,
        notices: None,
        deadline,
    })
}

impl BackendClient for Fake {
    fn name(&self) -> &str {
        self.name
    }

    fn describe<'a>(&'a self, _: &'a CallContext) -> Pending<'a, ServerDescription> {
        let description = match *self.down.lock().unwrap() {
            true => Err(unreachable()),
            false => self
                .description
                .lock()
                .unwrap()
                .clone()
                .map(|text| Json::literal(text).into()),
        };
        Box::pin(async move { description })
    }

    fn request(&self, call: Call) -> Pending<'_, Response> {
        let params = call
            .params
            .as_ref()
            .map(|params| format!(" {params}"))
            .unwrap_or_default();
        let request = format!("{}{params}", call.method);
        self.received.lock().unwrap().push(request.clone());
        let script = self.script.lock().unwrap();
        let scripted = script
            .get(&request)
            .or_else(|| script.get(call.method.as_str()))
            .cloned();
        let asks = *self.asks.lock().unwrap();
        let missing = self.sign_in_wanted_of(&call.context.caller);
        Box::pin(async move {
            if let Some(error) = missing {
                return Err(error);
            }
            if asks {
                call.messages.send(server_request()).await;
            }
            let body = match scripted {
                Some(Scripted::Body(body)) => body,
                Some(Scripted::Late(body)) => {
                    tokio::time::sleep(Duration::from_millis(500)).await;
                    body
                }
                Some(Scripted::Yields(body)) => {
                    tokio::task::yield_now().await;
                    body
                }
                Some(Scripted::Fails(error)) => return Err(error),
                Some(Scripted::Hangs) => std::future::pending().await,
                Some(Scripted::Waits(permits, body)) => {
                    permits.acquire().await.unwrap().forget();
                    body
                }
                Some(Scripted::Personal(body)) => {
                    body.replace("{who}", subject(&call.context.caller)).leak()
                }
                None => r#""error":{"code":-32601,"message":"no"}"#,
            };
            let text = format!(r#"{{"jsonrpc":"2.0","id":1,{body}}}"#);
            let Ok(Message::Response(response)) =
                Message::parse_for_forwarding(Bytes::from(text), 64)
            else {
                panic!("script")
            };
            Ok(response)
        })
    }

    fn listen(&self, listen: Listen) -> Pending<'_, Listening> {
        let failure = self.listen_failure.lock().unwrap().clone();
        Box::pin(async move {
            match failure {
                Some(Scripted::Hangs) => std::future::pending().await,
                Some(_) => return Err(unreachable()),
                None => {}
            }
            self.describe(&CallContext::internal()).await?;
            let honoured = self.honours(&listen.interest);
            let mut listeners = self.listeners.lock().unwrap();
            let number = listeners.begun;
            listeners.begun += 1;
            listeners.open.insert(
                number,
                Listen {
                    interest: honoured.clone(),
                    ..listen
                },
            );
            Ok(Listening::new(
                honoured,
                Open(Arc::clone(&self.listeners), number),
            ))
        })
    }

    fn end_session(&self, _: SessionKey) {}

    fn traits(&self) -> BackendTraits {
        BackendTraits {
            knows_principals: self.signed_in.lock().unwrap().is_some(),
            ..BackendTraits::default()
        }
    }

    fn status(&self) -> BackendStatus {
        let state = match *self.down.lock().unwrap() {
            true => BackendState::Down {
                error: unreachable(),
                retry_in: Duration::ZERO,
            },
            false => BackendState::Ready,
        };
        BackendStatus {
            attempted: true,
            state,
            era: None,
            revision: None,
            transport: "stdio",
            starting: None,
            failure: None,
        }
    }
}

/// The subject of a caller; `-` for any other caller.
fn subject(caller: &Caller) -> &'static str {
    let who = caller.principal().to_bytes();
    SUBJECTS
        .into_iter()
        .find(|subject| who.ends_with(subject.as_bytes()))
        .unwrap_or("-")
}

struct Open(Arc<Mutex<Listeners>>, usize);

impl Drop for Open {
    fn drop(&mut self) {
        let gone = self.0.lock().unwrap().open.remove(&self.1);
        drop(gone);
    }
}

pub(super) struct Scene {
    pub(super) gateway: Arc<Gateway>,
    pub(super) backends: Vec<Arc<Fake>>,
    pub(super) ids: Vec<BackendId>,
}

/// How long apps count as open.
pub(super) fn scene(backends: Vec<Fake>) -> Scene {
    scene_with(
        backends
            .into_iter()
            .map(|backend| (backend, None))
            .collect(),
        1000,
    )
}

pub(super) fn scene_with(backends: Vec<(Fake, Option<&str>)>, page_size: usize) -> Scene {
    scene_of(
        backends,
        page_size,
        CacheLimits {
            entries: 4,
            bytes: 4096,
        },
    )
}

pub(super) fn scene_of(
    backends: Vec<(Fake, Option<&str>)>,
    page_size: usize,
    cache: CacheLimits,
) -> Scene {
    scene_at(backends, page_size, cache, no_endpoints())
}

/// Only the default endpoint, which shows everything.
pub(super) fn no_endpoints() -> Vec<EndpointEntry> {
    Vec::new()
}

pub(super) fn scene_at(
    backends: Vec<(Fake, Option<&str>)>,
    page_size: usize,
    cache: CacheLimits,
    endpoints: Vec<EndpointEntry>,
) -> Scene {
    let entries = backends.into_iter().map(|(fake, prefix)| {
        let fake = Arc::new(fake);
        (entry(BackendId::generate(), &fake, prefix), fake)
    });
    scene_from(
        entries.collect(),
        NamingPolicy::default(),
        page_size,
        cache,
        endpoints,
        None,
    )
}

/// A scene that shares its knowledge of tasks with other replicas.
pub(super) fn scene_sharing(backends: Vec<Fake>, common: Arc<dyn CommonTaskOwners>) -> Scene {
    let entries = backends.into_iter().map(|fake| {
        let fake = Arc::new(fake);
        (entry(BackendId::generate(), &fake, None), fake)
    });
    let cache = CacheLimits {
        entries: 0,
        bytes: 0,
    };
    scene_from(
        entries.collect(),
        NamingPolicy::default(),
        1000,
        cache,
        no_endpoints(),
        Some(common),
    )
}

/// A server with a rewriting.
pub(super) fn rewritten(fake: Fake, rewriting: Rewriting) -> (BackendEntry, Arc<Fake>) {
    let fake = Arc::new(fake);
    (
        BackendEntry {
            rewriting,
            ..entry(BackendId::generate(), &fake, None)
        },
        fake,
    )
}

pub(super) fn scene_rewriting(
    backends: Vec<(BackendEntry, Arc<Fake>)>,
    naming: NamingPolicy,
) -> Scene {
    let cache = CacheLimits {
        entries: 0,
        bytes: 0,
    };
    scene_from(backends, naming, 1000, cache, no_endpoints(), None)
}

fn scene_from(
    backends: Vec<(BackendEntry, Arc<Fake>)>,
    naming: NamingPolicy,
    page_size: usize,
    cache: CacheLimits,
    endpoints: Vec<EndpointEntry>,
    common_tasks: Option<Arc<dyn CommonTaskOwners>>,
) -> Scene {
    let (entries, backends): (Vec<_>, Vec<_>) = backends.into_iter().unzip();
    let ids = entries.iter().map(|entry| entry.id).collect();
    let settings = GatewaySettings {
        policy: None,
        backends: entries,
        endpoints,
        naming,
        lists: limits(page_size),
        cache,
        common_tasks,
        result_files: None,
        keys: fanlight_protocol::seal::Keys::default(),
        identity: Json::literal(r#"{"name":"fanlight","version":"0"}"#),
    };
    Scene {
        gateway: Arc::new(Gateway::new(settings).unwrap()),
        backends,
        ids,
    }
}

pub(super) fn entry(id: BackendId, fake: &Arc<Fake>, prefix: Option<&str>) -> BackendEntry {
    let (prefix, rewriting) = (prefix.map(str::to_owned), Rewriting::default());
    BackendEntry {
        guard: None,
        approval: None,
        place: 0,
        id,
        client: Arc::<Fake>::clone(fake),
        prefix,
        tools: None,
        rewriting,
        store: None,
        canary: None,
        mirror: None,
        results: None,
        is_hidden: false,
    }
}

/// The filter of a server's tools.
pub(super) fn offering(server: &str, allow: Option<&[&str]>, deny: &[&str]) -> Option<ItemFilter> {
    let texts = |patterns: &[&str]| {
        patterns
            .iter()
            .map(|&pattern| pattern.to_owned())
            .collect::<Vec<_>>()
    };
    let names = ServerNames {
        name: server.to_owned(),
        ..ServerNames::default()
    };
    let servers = Arc::new(Servers::new(&[names], "__", NameForm::Any));
    Some(
        ItemFilter::new(
            &servers,
            ItemKind::Names,
            allow.map(texts).as_deref(),
            &texts(deny),
        )
        .limit_to_server(server),
    )
}

pub(super) fn limits(page_size: usize) -> ListLimits {
    ListLimits {
        unknown_tasks: 4,
        timeout: Duration::from_secs(1),
        pages: 5,
        entries: 100,
        page_size,
        spares_streams: false,
        bytes: ByteLimits {
            one: 1 << 20,
            all: 4 << 20,
        },
        leaves_out_invalid: false,
        client_notifications: 4,
    }
}

pub(super) fn call(method: &str, params: Option<&str>) -> Call {
    Call::new(
        Method::from_name(method),
        params.map(|text| Json::parse(Bytes::copy_from_slice(text.as_bytes()), 64).unwrap()),
        CallContext::internal(),
    )
}

/// A listening client.
pub(super) struct Client {
    pub(super) listening: Listening,
    receiver: MessageReceiver,
}

impl Client {
    pub(super) fn new(listening: Listening, receiver: MessageReceiver) -> Self {
        Self {
            listening,
            receiver,
        }
    }

    /// The received messages: the texts of notifications, and the methods of server requests.
    pub(super) fn received(&mut self) -> Vec<String> {
        let messages = std::iter::from_fn(|| self.receiver.try_recv());
        let texts = messages.map(|message| match message {
            ServerMessage::Notification(notification) => {
                format!(
                    "{} {}",
                    notification.method,
                    notification.params().unwrap_or_else(Json::null)
                )
            }
            ServerMessage::Request(request) => request.method.to_string(),
            ServerMessage::TaskProgress(_) => "progress of a task".into(),
            ServerMessage::Stream(signal) => format!("stream {signal:?}"),
            ServerMessage::Refused(_) => "refused".into(),
        });
        texts
            .map(|text| {
                text.trim_end_matches(" null")
                    .trim_start_matches("notifications/")
                    .to_owned()
            })
            .collect()
    }
}

impl Scene {
    pub(super) async fn ask(&self, method: &str, params: Option<&str>) -> String {
        self.gateway
            .handle(call(method, params))
            .await
            .body()
            .as_text()
            .to_owned()
    }

    pub(super) fn received(&self, backend: usize) -> Vec<String> {
        std::mem::take(&mut *self.backends[backend].received.lock().unwrap())
    }

    /// Forgets the requests that all servers received.
    pub(super) fn forget(&self) {
        (0..self.backends.len()).for_each(|backend| drop(self.received(backend)));
    }

    pub(super) async fn listen(&self, interest: Interest) -> Client {
        self.listen_as(client(), interest).await
    }

    pub(super) async fn listen_as(&self, caller: Caller, interest: Interest) -> Client {
        let (messages, receiver) = ServerMessages::channel(64);
        let context = Arc::new(CallContext {
            caller,
            ..(*CallContext::internal()).clone()
        });
        let operation = self.gateway.resolve_listen(interest, context);
        let listening = self.gateway.listen(operation, messages).await.unwrap();
        Client {
            listening,
            receiver,
        }
    }
}

/// Waits until all tasks are idle. Time is virtual, and passes only then.
pub(super) async fn rest() {
    tokio::time::sleep(Duration::from_millis(999)).await;
}

pub(super) fn error_of(body: &str) -> (i64, String) {
    let error = Json::parse(Bytes::copy_from_slice(body.as_bytes()), 64).unwrap();
    (
        error.get("code").unwrap().as_i64().unwrap(),
        error.get("message").unwrap().as_str().unwrap().into_owned(),
    )
}

pub(super) use crate::catalogue::Change;

/// The client of the tests, which has no session.
fn client() -> Caller {
    static CLIENT: LazyLock<Caller> = LazyLock::new(|| Caller::request_of(Principal::anonymous()));
    CLIENT.clone()
}

impl Gateway {
    /// Resolves a request and runs it at once.
    pub(super) async fn handle(&self, call: Call) -> Response {
        let Call {
            method,
            params,
            context,
            messages,
        } = call;
        let mut operation = self
            .resolve(Call::new(method, params, context), Detail::Known)
            .await;
        self.run(&mut operation, messages).await
    }

    /// The definition of the tool that a call of `name` at an endpoint is resolved to.
    pub(super) async fn tool(
        &self,
        name: &str,
        endpoint: &Endpoint,
        trace: &Parent,
    ) -> Option<Arc<Json>> {
        let caller = Caller::request_of(Holder::new(Principal::anonymous(), endpoint.clone()));
        let context = CallContext {
            caller,
            trace: trace.clone(),
            ..(*CallContext::internal()).clone()
        };
        let mut params = ObjectBuilder::new();
        params.string("name", name);
        let (method, params, context) =
            (Method::CallTool, Some(params.finish()), Arc::new(context));
        let operation = self
            .resolve(Call::new(method, params, context), Detail::Tool)
            .await;
        operation.definition().map(Arc::clone)
    }
}
