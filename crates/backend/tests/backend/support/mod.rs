//! Shared helpers: settings, calls, peers.

pub(crate) mod child;
pub(crate) mod log;
pub(crate) mod server;

use std::sync::Arc;
use std::time::Duration;

use std::collections::HashMap;
use std::sync::{LazyLock, Mutex};

use fanlight_backend::{
    Backend, BackendLimits, BackendSettings, BackendTimeouts, EraChoice, HealthPolicy,
    SessionPolicy, TransportSettings,
};
use fanlight_canonical::{
    BackendClient, BackendError, BackendState, Call, CallContext, Caller, HandleSeal, Interest,
    Listen, Listening, Principal, ServerMessage, ServerMessages, ServerRequest, SessionKey,
    StreamSignal,
};
use fanlight_protocol::capability::ClientCapability;
use fanlight_protocol::seal::Keys;
use fanlight_protocol::{Json, Method, Notification, Response};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

/// A time limit that only failing tests reach.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

pub(crate) fn settings(transport: TransportSettings) -> BackendSettings {
    log::install();
    BackendSettings {
        name: "tested".into(),
        transport,
        credentials: Default::default(),
        ca_file: None,
        forward_headers: Vec::new(),
        health: HealthPolicy::default(),
        processes: Default::default(),
        era: EraChoice::Auto,
        sessions: SessionPolicy::PerClient,
        catalogue: false,
        memory: Default::default(),
        timeouts: BackendTimeouts {
            connect: PATIENCE,
            start: PATIENCE,
            probe: PATIENCE,
            call: PATIENCE,
            question: PATIENCE,
            session_idle: PATIENCE,
            task: PATIENCE,
            ..BackendTimeouts::default()
        },
        limits: BackendLimits {
            concurrency: 8,
            sessions: 8,
            request_sessions: 0,
            subscriptions: 100,
            message_bytes: 1 << 20,
            tasks: 8,
            task_bytes: 1 << 20,
            task_state_bytes: 1 << 20,
            spare_bytes: 4 << 20,
        },
        telemetry: Default::default(),
        handles: Arc::new(HandleSeal::new(&Keys::default()).unwrap()),
        endpoints: Default::default(),
        repeats: None,
        is_asked_for_safe: false,
        names: Arc::new(fanlight_backend::SystemNames),
    }
}

pub(crate) fn start(settings: BackendSettings) -> Arc<Backend> {
    Backend::start(settings, CancellationToken::new())
}

pub(crate) fn json(text: &str) -> Json {
    Json::parse(text.to_owned().into(), 64).unwrap()
}

/// A call of some client.
pub(crate) fn call(method: &str, params: &str) -> Call {
    Call::new(
        Method::from_name(method),
        (!params.is_empty()).then(|| json(params)),
        CallContext::internal(),
    )
}

/// The server's messages before its answer to a call.
pub(crate) struct MessageReceiver(fanlight_canonical::MessageReceiver);

impl MessageReceiver {
    /// The next message. The start of a stream does not count as one.
    async fn next(&mut self) -> Option<ServerMessage> {
        loop {
            match self.0.recv().await {
                Some(ServerMessage::Stream(StreamSignal::Begun)) => {}
                other => return other,
            }
        }
    }

    pub(crate) async fn recv(&mut self) -> Option<Notification> {
        match tokio::time::timeout(PATIENCE, self.next())
            .await
            .expect("no message")?
        {
            ServerMessage::Notification(notification) => Some(notification),
            other => panic!("not a notification: {other:?}"),
        }
    }

    /// The text of the next notification.
    pub(crate) async fn text(&mut self) -> String {
        self.recv()
            .await
            .expect("the end")
            .text
            .as_text()
            .to_owned()
    }

    /// Whether no message is waiting.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The next message, which must be a pause: its time, and an earlier end.
    pub(crate) async fn pause(&mut self) -> (Option<Duration>, Arc<Notify>) {
        match tokio::time::timeout(PATIENCE, self.next())
            .await
            .expect("no pause")
        {
            Some(ServerMessage::Stream(StreamSignal::Paused { retry, resumed })) => {
                (retry, resumed)
            }
            other => panic!("not a pause: {other:?}"),
        }
    }

    pub(crate) async fn question(&mut self) -> ServerRequest {
        match tokio::time::timeout(PATIENCE, self.next())
            .await
            .expect("no question")
        {
            Some(ServerMessage::Request(request)) => request,
            other => panic!("not a question: {other:?}"),
        }
    }

    /// The missing client capability because of which a question was refused.
    pub(crate) async fn refused(&mut self) -> ClientCapability {
        match tokio::time::timeout(PATIENCE, self.next())
            .await
            .expect("no refusal")
        {
            Some(ServerMessage::Refused(missing)) => missing.capability,
            other => panic!("not a refusal: {other:?}"),
        }
    }
}

/// Makes the call's client one with a session and these capabilities.
pub(crate) fn of_session(session: u64, capabilities: &str) -> impl FnOnce(&mut CallContext) {
    let capabilities = json(capabilities);
    move |context| {
        context.caller = Caller::session_of(Principal::anonymous(), SessionKey(session));
        context.capabilities = capabilities;
    }
}

/// The same call with a channel for the server's messages, and the channel's receiver.
pub(crate) fn listening(
    mut call: Call,
    change: impl FnOnce(&mut CallContext),
) -> (Call, MessageReceiver) {
    let (notifications, inbox) = ServerMessages::channel(16);
    let mut context = (*call.context).clone();
    change(&mut context);
    call.context = Arc::new(context);
    call.messages = notifications;
    (call, MessageReceiver(inbox))
}

/// Listens as this client; also returns the receiver of its messages.
pub(crate) async fn listen(
    backend: &Backend,
    interest: Interest,
    change: impl FnOnce(&mut CallContext),
) -> Result<(Listening, MessageReceiver), BackendError> {
    listen_to(backend, interest, change).await
}

pub(crate) async fn listen_to(
    backend: &dyn BackendClient,
    interest: Interest,
    change: impl FnOnce(&mut CallContext),
) -> Result<(Listening, MessageReceiver), BackendError> {
    let (messages, inbox) = ServerMessages::channel(16);
    let mut context = (*CallContext::internal()).clone();
    change(&mut context);
    let listen = Listen {
        interest,
        context: Arc::new(context),
        messages,
    };
    let listening = tokio::time::timeout(PATIENCE, backend.listen(listen))
        .await
        .expect("no outcome")?;
    Ok((listening, MessageReceiver(inbox)))
}

/// A client without a session.
pub(crate) fn without_session(_context: &mut CallContext) {}

/// Sends a request; returns the text of its result or error.
pub(crate) async fn ask(
    backend: &Backend,
    method: &str,
    params: &str,
) -> Result<String, BackendError> {
    send(backend, call(method, params)).await
}

pub(crate) async fn send(backend: &Backend, call: Call) -> Result<String, BackendError> {
    send_to(backend, call).await
}

pub(crate) async fn send_to(
    backend: &dyn BackendClient,
    call: Call,
) -> Result<String, BackendError> {
    let answer = tokio::time::timeout(PATIENCE, backend.request(call))
        .await
        .expect("no outcome");
    answer.map(|response: Response| response.body().as_text().to_owned())
}

pub(crate) async fn revision(backend: &Backend) -> &'static str {
    backend.describe(&CallContext::internal()).await.unwrap();
    assert!(matches!(backend.status().state, BackendState::Ready));
    backend.status().revision.unwrap()
}

/// The client with this number, without a session; equal for equal numbers.
pub(crate) fn client(number: u64) -> Caller {
    static CLIENTS: LazyLock<Mutex<HashMap<u64, Caller>>> = LazyLock::new(Mutex::default);
    let mut clients = CLIENTS.lock().unwrap();
    clients
        .entry(number)
        .or_insert_with(|| Caller::request_of(Principal::anonymous()))
        .clone()
}
