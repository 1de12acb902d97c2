//! The straight line of one message: read, decide the era, check by its rules, hand to the core,
//! answer.
//!
//! Must not know: what carries the messages.

use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use fanlight_canonical::{CallContext, Principal};
use fanlight_protocol::line::Line;
use fanlight_protocol::{Era, Json, Message, MessageError, Method, Notification, Request, Revision, RpcError, code};
use fanlight_telemetry::{ErrorType, Headers, Moment, Network, Outcome, ServerSpan};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::outlet::Outlet;
use super::{OutLine, Terms};
use crate::cancel::InFlight;
use crate::conversation::{self, Conversation, LegacyCall, ModernCall};
use crate::error::FrontendError;
use crate::event::Event;
use crate::params::{Meta, Params};
use crate::park::Parking;
use crate::render::Rendering;
use crate::running::{self, Ask, Running};
use crate::session::Session;
use crate::settings::FrontendSettings;
use crate::subscription::Subscriptions;
use crate::trace::{self, Came};
use crate::{era, fault, legacy, modern};
use fanlight_canonical::Core;

/// One client.
pub(crate) struct Connection<C> {
    pub(crate) core: Arc<C>,
    pub(crate) settings: Arc<FrontendSettings>,
    pub(crate) out: Outlet,
    /// What `initialize` settled, for requests without modern metadata.
    session: Mutex<Option<Arc<Session>>>,
    /// Running requests of both eras.
    in_flight: Arc<InFlight>,
    slots: Arc<Semaphore>,
    tasks: TaskTracker,
    pub(super) parking: Arc<Parking>,
    pub(super) subscriptions: Subscriptions,
    /// No more is read: what only listens is to end.
    pub(crate) closing: CancellationToken,
    cut: CancellationToken,
    legacy_only: bool,
}

/// A text that is no message, or not one that can be taken: what is wrong with it, and the id to
/// answer under, if it could be read.
pub(crate) type Refused = (RpcError, Option<Json>);

impl<C: Core> Connection<C> {
    /// A client whose messages go to `out`.
    pub(crate) fn new(
        core: Arc<C>,
        settings: Arc<FrontendSettings>,
        out: mpsc::Sender<OutLine>,
        terms: Terms,
    ) -> Result<Arc<Self>, FrontendError> {
        let Terms { legacy_only, patience, cut } = terms;
        let closing = CancellationToken::new();
        let (most, buffer) = (settings.max_subscriptions, settings.notification_buffer);
        Ok(Arc::new(Self {
            core,
            slots: Arc::new(Semaphore::new(settings.max_concurrent.clamp(1, Semaphore::MAX_PERMITS))),
            parking: Parking::new(&settings, &cut)?,
            settings,
            out: Outlet::new(out, patience, cut.clone()),
            session: Mutex::default(),
            in_flight: Arc::default(),
            tasks: TaskTracker::new(),
            subscriptions: Subscriptions::new(most, buffer, closing.clone()),
            closing,
            cut,
            legacy_only,
        }))
    }

    /// Takes one line. Returns once it is under way; waits only for room to answer a refusal.
    pub(crate) async fn line(self: &Arc<Self>, line: Line) {
        let text = match line {
            Line::Whole(text) => text,
            Line::TooLong { head, tail, len } => {
                let limit = self.settings.max_line;
                let message = format!("the message has {len} bytes; the limit here is {limit}");
                let id = fanlight_protocol::partial::id(&head, &tail);
                return self.out.refuse(id.as_ref(), &RpcError::new(code::INVALID_REQUEST, message)).await;
            }
        };
        let came = Came { received: Moment::now(), network: Network::Stdio, headers: Headers::default() };
        if let Err((error, id)) = self.take(text, &came).await {
            self.out.refuse(id.as_ref(), &error).await;
        }
    }

    /// Takes one text: a message, or a batch where the session's revision has them. Returns once it
    /// is under way; waits only for room to answer a refusal. What is no message at all is left to
    /// the caller to refuse.
    pub(crate) async fn take(self: &Arc<Self>, text: Bytes, came: &Came<'_>) -> Result<(), Refused> {
        match Message::parse(text, self.settings.nesting) {
            Ok(message) => self.message(message, false, came).await,
            Err(MessageError::Batch(text)) if self.speaks_batches() => return self.batch(text, came).await,
            Err(error) => return Err(fault::of_message(error, self.settings.nesting)),
        }
        Ok(())
    }

    /// Takes the messages of a batch, each as if it were alone (2025-03-26 basic/index, Batching).
    async fn batch(self: &Arc<Self>, text: Bytes, came: &Came<'_>) -> Result<(), Refused> {
        let messages = Message::parse_batch(text, self.settings.nesting).ok().flatten().unwrap_or_default();
        fault::check_batch(messages.len(), self.settings.max_batch).map_err(|error| (error, None))?;
        for message in messages {
            match message {
                Ok(message) => self.message(message, true, came).await,
                Err(error) => {
                    let (error, id) = fault::of_message(error, self.settings.nesting);
                    self.out.refuse(id.as_ref(), &error).await;
                }
            }
        }
        Ok(())
    }

    async fn message(self: &Arc<Self>, message: Message, in_batch: bool, came: &Came<'_>) {
        match message {
            Message::Request(request) => {
                let id = request.id.clone();
                let mut span = trace::begin(&self.settings, &request, came);
                if let Err(error) = self.request(request, in_batch, &mut span).await {
                    self.out.refuse_request(&id, &error, span).await;
                }
            }
            Message::Notification(notification) => self.notification(&notification),
            Message::Response(response) => match self.current_session() {
                Some(session) => session.questions.answer(response),
                None => tracing::debug!("ignoring a response of a client that is never asked"),
            },
        }
    }

    /// Waits until no request is running. New ones may still come.
    pub(crate) async fn finished(&self) {
        self.tasks.close();
        self.tasks.wait().await;
        // Nobody comes back for what is parked.
        self.parking.end().await;
    }

    /// Ends what only listens.
    pub(crate) fn close(&self) {
        self.closing.cancel();
    }

    /// Ends whatever is running, without answers.
    pub(crate) fn cut(&self) {
        self.cut.cancel();
    }

    /// Waits until it is cut off.
    pub(crate) async fn is_cut(&self) {
        self.cut.cancelled().await;
    }

    /// Ends the session, if there is one, and whatever is running.
    pub(crate) fn end(&self) {
        self.close();
        self.cut();
        if let Some(session) = self.replace_session(None) {
            session.end();
        }
    }

    async fn request(
        self: &Arc<Self>,
        request: Request,
        in_batch: bool,
        span: &mut ServerSpan,
    ) -> Result<(), RpcError> {
        let params = Params::read(request.params.as_ref())?;
        if in_batch {
            fault::check_in_batch(&request.method, era::of_request(&request.method, &params.meta, None))?;
        }
        let session = self.current_session();
        match era::of_line(&request.method, &params.meta, session.is_some()) {
            Some(Era::Modern) if self.legacy_only => Err(modern::not_served(&request.method, &params.meta)),
            Some(Era::Modern) => self.modern(request, params, span),
            Some(Era::Legacy) => match (&request.method, session) {
                (Method::Initialize, _) => self.initialize(request, &params, span),
                (Method::Ping, session) => {
                    let revision = session.map_or(Revision::NEWEST_LEGACY, |session| session.revision());
                    span.set_revision(revision);
                    self.out.answer(&rendering(&request, revision), &legacy::pong(), taken(span)).await;
                    Ok(())
                }
                (_, Some(session)) => self.legacy(request, params, session, span),
                (_, None) => Err(self.not_opened(&params.meta)),
            },
            // "A request missing any required field is malformed" (2026-07-28 basic/index,
            // Per-request protocol fields), and nothing has selected legacy semantics.
            None => Err(self.not_opened(&params.meta)),
        }
    }

    fn modern(self: &Arc<Self>, request: Request, params: Params, span: &mut ServerSpan) -> Result<(), RpcError> {
        let revision = modern::revision(&params.meta)?;
        span.set_revision(revision);
        let client = modern::client(&params.meta)?;
        modern::admit(&request.method, &client)?;
        let rendering = rendering(&request, revision);
        let stop = self.in_flight.begin(&request.id);
        let connection = Arc::clone(self);
        if request.method == Method::Listen {
            let subscribed = self.subscriptions.begin(&self.core, &request, client, Some(stop), span.parent())?;
            let span = taken(span);
            let conversation = Conversation::Listening(Box::new(subscribed));
            self.spawn(None, async move { connection.run(conversation, &rendering, span).await });
            return Ok(());
        }
        let slot = self.slot()?;
        let (trace, span) = (span.parent(), taken(span));
        self.spawn(Some(slot), async move {
            let Self { core, parking, settings, .. } = &*connection;
            let Request { method, params: whole, .. } = request;
            match conversation::resumed(parking, &method, whole.as_ref(), &params).await {
                Ok(resumed) => {
                    let call = ModernCall { method, params: whole, read: &params, client, stream: true, trace };
                    let conversation = Conversation::modern(core, parking, settings, call, resumed, Some(stop));
                    connection.run(conversation, &rendering, span).await;
                }
                Err(error) => connection.out.refuse_request(&rendering.id, &error, span).await,
            }
        });
        Ok(())
    }

    fn legacy(
        self: &Arc<Self>,
        request: Request,
        params: Params,
        session: Arc<Session>,
        span: &mut ServerSpan,
    ) -> Result<(), RpcError> {
        span.set_revision(session.revision());
        if legacy::is_unknown(&request.method) {
            return Err(fault::method_not_found(request.method.as_str()));
        }
        if request.method == Method::SetLogLevel {
            session.set_log_level(Some(legacy::log_level(&params)?));
        }
        let slot = self.slot()?;
        let subscribes = (request.method == Method::Subscribe).then(|| Arc::clone(&session));
        let rendering = rendering(&request, session.revision());
        let stop = self.in_flight.begin(&request.id);
        let Request { method, params: whole, .. } = request;
        let progress_token = params.meta.progress_token();
        let (trace, span) = (span.parent(), taken(span));
        let call = LegacyCall { method, params: whole, progress_token, session, stream: true, trace };
        let conversation = Conversation::legacy(&self.core, &self.settings, call, |running| running.stoppable(stop));
        let connection = Arc::clone(self);
        self.spawn(Some(slot), async move {
            if let Some(session) = subscribes {
                // What the server sends at once must find somebody who listens.
                connection.hear(&session).await;
            }
            connection.run(conversation, &rendering, span).await;
        });
        Ok(())
    }

    /// Opens the connection's legacy session at once, so that messages sent without waiting for
    /// the answer find it, and closes it again should the core have no answer.
    fn initialize(self: &Arc<Self>, request: Request, params: &Params, span: &mut ServerSpan) -> Result<(), RpcError> {
        let opening = legacy::opening(params, self.settings.max_description)?;
        let slot = self.slot()?;
        let in_flight = Arc::clone(&self.in_flight);
        let session = Session::new(Principal::anonymous(), opening, in_flight, self.settings.max_questions, &self.core);
        let session = Arc::new(session.counted(&self.settings.telemetry));
        let before = self.replace_session(Some(Arc::clone(&session)));
        let rendering = rendering(&request, session.revision());
        span.set_revision(session.revision());
        let context = CallContext { trace: span.parent(), ..session.context(false) };
        let span = taken(span);
        let ask = Ask { method: Method::Discover, params: None, context, messages: None, unroll: None };
        let mut running = Running::start(&self.core, ask);
        let connection = Arc::clone(self);
        self.spawn(Some(slot), async move {
            if let running::Event::Response(response) = running.next().await {
                if response.is_error() {
                    connection.replace_session(before);
                } else if let Some(before) = before {
                    before.streams.end(&before);
                }
                connection.out.answer(&rendering, &response, span).await;
            }
        });
        Ok(())
    }

    /// Sends what comes of a request. A cancelled one gets no response (cancellation, Behavior
    /// Requirements, in both eras).
    async fn run(&self, mut conversation: Conversation, rendering: &Rendering, span: ServerSpan) {
        let mut span = Some(span);
        loop {
            match conversation.next().await {
                Event::Message(text) => {
                    self.out.send(text.into_bytes()).await;
                    if let Some(span) = span.take_if(|_| conversation.is_listening()) {
                        span.finish(&Outcome::Finished);
                    }
                }
                Event::Response(response) => {
                    return self.out.answer(rendering, &response, span.unwrap_or_else(ServerSpan::off)).await;
                }
                Event::Pause(_) => {}
                Event::Cancelled => {
                    if let Some(span) = span {
                        span.finish(&Outcome::failed(ErrorType::Cancelled));
                    }
                    return;
                }
            }
        }
    }

    pub(crate) fn spawn(&self, slot: Option<OwnedSemaphorePermit>, work: impl Future<Output = ()> + Send + 'static) {
        let cut = self.cut.clone();
        // Boxed, as a future is copied several times on its way into a task.
        let mut work = Box::pin(work);
        self.tasks.spawn(async move {
            tokio::select! { () = &mut work => {} () = cut.cancelled() => {} }
            drop(work);
            drop(slot);
        });
    }

    fn slot(&self) -> Result<OwnedSemaphorePermit, RpcError> {
        Arc::clone(&self.slots).try_acquire_owned().map_err(|_| {
            let limit = self.settings.max_concurrent;
            RpcError::new(code::INTERNAL, format!("busy: {limit} requests are running; wait for one to finish"))
        })
    }

    fn notification(self: &Arc<Self>, notification: &Notification) {
        match notification.method {
            Method::Cancelled => {}
            // "The server SHOULD NOT send requests other than pings and logging before receiving the
            // initialized notification" (2025-11-25 basic/lifecycle, Initialization).
            Method::Initialized => return self.hear_from_now_on(),
            _ => return,
        }
        // A malformed cancellation is ignored (cancellation, Error Handling).
        if let Some(id) = Params::read(notification.params().as_ref()).ok().and_then(|params| params.request_id()) {
            self.in_flight.cancel(&id);
        }
    }

    fn not_opened(&self, meta: &Meta) -> RpcError {
        match modern::revision(meta) {
            Err(error) if !self.legacy_only => error,
            _ => RpcError::new(code::INVALID_REQUEST, "open a session with \"initialize\" first"),
        }
    }

    fn speaks_batches(&self) -> bool {
        self.current_session().is_some_and(|session| session.revision() == Revision::V2025_03_26)
    }

    pub(crate) fn current_session(&self) -> Option<Arc<Session>> {
        self.session.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn replace_session(&self, session: Option<Arc<Session>>) -> Option<Arc<Session>> {
        std::mem::replace(&mut *self.session.lock().unwrap_or_else(PoisonError::into_inner), session)
    }
}

fn taken(span: &mut ServerSpan) -> ServerSpan {
    std::mem::replace(span, ServerSpan::off())
}

fn rendering(request: &Request, revision: Revision) -> Rendering {
    Rendering { id: request.id.clone(), method: request.method.clone(), revision, mirrors_params: false }
}
