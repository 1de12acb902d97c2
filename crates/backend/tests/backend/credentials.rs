//! Credentials are requested for each message, renewed once after a refusal, and separate for each
//! principal.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

use fanlight_backend::credentials::{
    CredentialSource, Credentials, MessageTarget, NoCredentials, PendingCredentials,
    PrincipalCredentials, Refusal,
};
use fanlight_backend::{Backend, BackendSettings, Repeats};
use fanlight_canonical::{
    BackendClient, BackendError, CallContext, Caller, Interest, Listen, Outcome, Principal,
    ServerMessages, ServerSessions, SessionKey, SignInWish,
};
use fanlight_protocol::subscription::Change;
use http::{HeaderMap, HeaderValue};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::sessions::numbering;
use crate::support::server::{Reply, Seen, Server, modern};
use crate::support::{PATIENCE, ask, call, listening, send_to, settings, start};

/// Numbered tokens; each refusal leads to the next, up to the last.
struct Numbered {
    name: String,
    next: AtomicUsize,
    last: usize,
    /// The number of requests for another token.
    replaced: AtomicUsize,
    waits: bool,
}

impl Numbered {
    fn new(name: &str, last: usize) -> Self {
        Self {
            name: name.into(),
            next: AtomicUsize::new(1),
            last,
            replaced: AtomicUsize::new(0),
            waits: false,
        }
    }

    fn current(&self) -> HeaderMap {
        let token = format!("Bearer {}-{}", self.name, self.next.load(Ordering::SeqCst));
        HeaderMap::from_iter([(
            http::header::AUTHORIZATION,
            HeaderValue::try_from(token).unwrap(),
        )])
    }
}

impl CredentialSource for Numbered {
    fn credentials(&self, message: &MessageTarget<'_>) -> Credentials {
        assert!(message.url.path() == "/mcp");
        let current = self.current();
        if !self.waits {
            return Credentials::Ready(current);
        }
        Credentials::Wait(Box::pin(async move {
            tokio::task::yield_now().await;
            Ok(current)
        }))
    }

    fn replace(&self, refusal: Refusal) -> Option<PendingCredentials> {
        assert_eq!(refusal.shown, self.current());
        self.replaced.fetch_add(1, Ordering::SeqCst);
        let next = self.next.fetch_add(1, Ordering::SeqCst) + 1;
        if next > self.last {
            let reason = format!("no more after {:?}", refusal.challenges);
            return Some(Box::pin(async move {
                Err(NoCredentials::Unavailable { reason })
            }));
        }
        let current = self.current();
        Some(Box::pin(async move { Ok(current) }))
    }
}

fn with(server: &Server, source: Arc<dyn CredentialSource>) -> BackendSettings {
    BackendSettings {
        credentials: Some(source),
        ..settings(server.transport())
    }
}

fn challenge(status: u16) -> Reply {
    Reply::Whole(
        status,
        "WWW-Authenticate: Bearer error=\"invalid_token\"\r\n".into(),
        "text/plain",
        "no".into(),
    )
}

/// A modern server that accepts only these tokens, and reports the token of each call.
fn accepting(tokens: &'static [&'static str]) -> impl Fn(&Seen) -> Reply + Send + Sync + 'static {
    move |seen| {
        let token = seen
            .header("authorization")
            .and_then(|value| value.strip_prefix("Bearer "))
            .unwrap_or_default();
        if !tokens.contains(&token) {
            return challenge(401);
        }
        let whose = format!(r#"{{"resultType":"complete","content":[],"whose":"{token}"}}"#);
        modern(seen).unwrap_or_else(|| seen.result(&whose))
    }
}

#[tokio::test]
async fn refused_credentials_are_replaced_and_the_call_sent_once_more() {
    let mut server = Server::start(accepting(&["a-1", "a-3"])).await;
    let source = Arc::new(Numbered::new("a", 9));
    let backend = start(with(&server, Arc::clone(&source) as _));
    assert!(
        ask(&backend, "tools/call", r#"{"name":"t"}"#)
            .await
            .unwrap()
            .contains("a-1")
    );
    // The first token has expired. The second is refused, so the call fails; the next call runs
    // with the third.
    source.next.store(2, Ordering::SeqCst);
    let answer = ask(&backend, "tools/call", r#"{"name":"t"}"#)
        .await
        .unwrap();
    assert!(answer.contains("a-3"), "{answer}");
    assert_eq!(source.replaced.load(Ordering::SeqCst), 1);
    assert_eq!(
        server.count("tools/call"),
        3,
        "one that ran, one that was refused, one that ran"
    );
}

#[tokio::test]
async fn call_is_sent_twice_at_most_and_the_refusal_is_told() {
    let mut server = Server::start(accepting(&["a-1"])).await;
    let source = Arc::new(Numbered::new("a", 9));
    let backend = start(with(&server, Arc::clone(&source) as _));
    ask(&backend, "tools/call", r#"{"name":"t"}"#)
        .await
        .unwrap();
    server.count("");
    source.next.store(2, Ordering::SeqCst);
    let refused = ask(&backend, "tools/call", r#"{"name":"t"}"#).await;
    assert_eq!(refused, Err(BackendError::Unauthorized { status: 401 }));
    assert_eq!(
        (
            source.replaced.load(Ordering::SeqCst),
            server.count("tools/call")
        ),
        (1, 2)
    );
}

#[tokio::test]
async fn without_other_credentials_nothing_more_is_sent() {
    let mut server = Server::start(accepting(&["a-1"])).await;
    let source = Arc::new(Numbered {
        waits: true,
        ..Numbered::new("a", 2)
    });
    let backend = start(with(&server, Arc::clone(&source) as _));
    ask(&backend, "tools/call", r#"{"name":"t"}"#)
        .await
        .unwrap();
    server.count("");
    source.next.store(2, Ordering::SeqCst);
    let error = ask(&backend, "tools/call", r#"{"name":"t"}"#)
        .await
        .unwrap_err();
    assert!(error.to_string().contains("no more after"), "{error}");
    assert!(
        !error.for_clients().to_string().contains("no more"),
        "clients learn what the provider says"
    );
    assert!(
        !error.may_have_run() && error.outcome() == Outcome::Unauthorized,
        "{error}"
    );
    assert_eq!(server.count("tools/call"), 1);
}

#[tokio::test]
async fn refusal_of_what_is_requested_replaces_no_credentials() {
    let mut server =
        Server::start(|seen| modern(seen).unwrap_or_else(|| crate::support::server::status(403)))
            .await;
    let source = Arc::new(Numbered::new("a", 9));
    let backend = start(with(&server, Arc::clone(&source) as _));
    assert_eq!(
        ask(&backend, "tools/call", r#"{"name":"t"}"#).await,
        Err(BackendError::Unauthorized { status: 403 })
    );
    assert_eq!(
        (
            source.replaced.load(Ordering::SeqCst),
            server.count("tools/call")
        ),
        (0, 1)
    );
}

/// Users that sign in when a test adds them here.
struct Users {
    signed_in: Mutex<HashMap<Principal, Arc<User>>>,
    changed: watch::Sender<()>,
}

struct User {
    name: String,
    is_signed_in: Mutex<bool>,
}

impl Users {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            signed_in: Mutex::default(),
            changed: watch::Sender::default(),
        })
    }

    fn user(&self, principal: &Principal) -> Arc<User> {
        let name = String::from_utf8_lossy(&principal.to_bytes())
            .chars()
            .filter(char::is_ascii_alphanumeric)
            .collect();
        let new = || {
            Arc::new(User {
                name,
                is_signed_in: Mutex::new(false),
            })
        };
        Arc::clone(
            self.signed_in
                .lock()
                .unwrap()
                .entry(principal.clone())
                .or_insert_with(new),
        )
    }

    fn set(&self, name: &str, is_signed_in: bool) {
        *self
            .user(&Principal::new("", name))
            .is_signed_in
            .lock()
            .unwrap() = is_signed_in;
        self.changed.send_replace(());
    }
}

impl PrincipalCredentials for Users {
    fn source(&self, principal: &Principal) -> Arc<dyn CredentialSource> {
        self.user(principal)
    }

    fn changed(&self) -> std::pin::Pin<Box<dyn Future<Output = ()> + Send>> {
        let mut changed = self.changed.subscribe();
        Box::pin(async move { drop(changed.changed().await) })
    }
}

impl User {
    fn wish(&self) -> Arc<SignInWish> {
        let url = format!("https://gateway.example/connect/{}", self.name);
        Arc::new(SignInWish {
            url: Some(url),
            message: "Sign in".into(),
            id: "1".into(),
        })
    }
}

impl CredentialSource for User {
    fn credentials(&self, _: &MessageTarget<'_>) -> Credentials {
        Credentials::Ready(Numbered::new(&self.name, 1).current())
    }

    fn replace(&self, _: Refusal) -> Option<PendingCredentials> {
        *self.is_signed_in.lock().unwrap() = false;
        let wish = self.wish();
        Some(Box::pin(async move { Err(NoCredentials::SignIn(wish)) }))
    }

    fn are_there(&self) -> std::pin::Pin<Box<dyn Future<Output = bool> + Send>> {
        Box::pin(std::future::ready(*self.is_signed_in.lock().unwrap()))
    }

    fn sign_in(&self) -> Option<Arc<SignInWish>> {
        (!*self.is_signed_in.lock().unwrap()).then(|| self.wish())
    }
}

/// A server whose principals have these users' credentials.
fn start_for(server: &Server, users: &Arc<Users>) -> Arc<Backend> {
    Backend::start_per_principal(
        settings(server.transport()),
        Arc::clone(users) as _,
        &CancellationToken::new(),
    )
}

fn set_principal(name: &str) -> impl FnOnce(&mut CallContext) {
    let principal = Principal::new("", name);
    move |context| context.caller = Caller::request_of(principal)
}

async fn call_as(backend: &Backend, name: &str) -> Result<String, BackendError> {
    let (call, _inbox) = listening(call("tools/call", r#"{"name":"t"}"#), set_principal(name));
    send_to(backend, call).await
}

fn wished(error: &BackendError) -> &str {
    error
        .sign_in()
        .and_then(|wish| wish.url.as_deref())
        .unwrap_or_else(|| panic!("{error}"))
}

#[tokio::test]
async fn each_principal_calls_with_its_own_credentials_or_is_told_to_sign_in() {
    let mut server = Server::start(accepting(&["ann-1", "bob-1"])).await;
    let users = Users::new();
    let backend = start_for(&server, &users);
    let error = call_as(&backend, "ann").await.unwrap_err();
    assert!(wished(&error).ends_with("/ann") && !error.may_have_run());
    assert_eq!(error.outcome(), Outcome::SignInNeeded);
    users.set("ann", true);
    assert!(call_as(&backend, "ann").await.unwrap().contains("ann-1"));
    assert!(
        wished(&call_as(&backend, "bob").await.unwrap_err()).ends_with("/bob"),
        "bob calls as ann"
    );
    // Fanlight's own requests use nobody's credentials.
    assert!(
        send_to(&*backend, call("tools/list", ""))
            .await
            .unwrap_err()
            .sign_in()
            .is_some()
    );
    users.set("bob", true);
    assert!(call_as(&backend, "bob").await.unwrap().contains("bob-1"));
    users.set("ann", false);
    assert!(wished(&call_as(&backend, "ann").await.unwrap_err()).ends_with("/ann"));
    assert!(call_as(&backend, "bob").await.is_ok());
    assert_eq!(server.count("tools/call"), 3);
}

#[tokio::test]
async fn call_with_an_accepted_link_waits_for_its_user_if_only_the_server_knows_that_it_must() {
    let is_valid = Arc::new(AtomicBool::new(false));
    let (accept, accepts) = (accepting(&["ann-1"]), Arc::clone(&is_valid));
    let server = Server::start(move |seen| {
        if accepts.load(Ordering::SeqCst) {
            accept(seen)
        } else {
            challenge(401)
        }
    })
    .await;
    let users = Users::new();
    let backend = start_for(&server, &users);
    users.set("ann", true);
    let (call, _inbox) = listening(call("tools/call", r#"{"name":"t"}"#), |context| {
        set_principal("ann")(context);
        context.has_accepted_link = OnceLock::from(());
    });
    let signing_in = async {
        let ann = users.user(&Principal::new("", "ann"));
        while *ann.is_signed_in.lock().unwrap() {
            tokio::task::yield_now().await;
        }
        is_valid.store(true, Ordering::SeqCst);
        users.set("ann", true);
    };
    let (answer, ()) = tokio::join!(send_to(&*backend, call), signing_in);
    assert!(answer.unwrap().contains("ann-1"));
}

/// A user's session continues with the user's current credentials, and not without.
#[tokio::test]
async fn session_of_another_process_goes_on_with_the_live_credentials_of_its_user() {
    let mut server = numbering(|seen| seen.result("{}")).await;
    let users = [Users::new(), Users::new()];
    let backends = users.each_ref().map(|users| {
        Backend::start_per_principal(
            settings(server.transport()),
            Arc::clone(users) as _,
            &CancellationToken::new(),
        )
    });
    let request = |key, sessions: &Arc<ServerSessions>| {
        let caller = Caller::session_of(Principal::new("", "ann"), SessionKey(key));
        let caller = caller.with_server_sessions(Some(Arc::clone(sessions)));
        listening(call("x/y", ""), |context| context.caller = caller).0
    };
    let sessions = Arc::new(ServerSessions::default());
    users[0].set("ann", true);
    send_to(&*backends[0], request(1, &sessions)).await.unwrap();
    let session = server
        .next_of("x/y")
        .await
        .header("mcp-session-id")
        .unwrap()
        .to_owned();
    let found = Arc::new(ServerSessions::continuing(sessions.entries()));
    backends[1].continue_session(&request(9, &found).context);
    assert!(
        send_to(&*backends[1], request(9, &found))
            .await
            .unwrap_err()
            .sign_in()
            .is_some()
    );
    users[1].set("ann", true);
    send_to(&*backends[1], request(9, &found)).await.unwrap();
    let seen = server.next_of("x/y").await;
    assert_eq!(seen.header("mcp-session-id"), Some(&*session));
    assert_eq!(seen.header("authorization"), Some("Bearer ann-1"));
    // The other process hears only of its end.
    let found = Arc::new(ServerSessions::continuing(found.entries()));
    let (third, (is_ours, told)) = (Users::new(), watch::channel(None));
    third.set("ann", true);
    let third = Backend::start_per_principal(
        settings(server.transport()),
        third as _,
        &CancellationToken::new(),
    );
    third.continue_session(&request(11, &found).context);
    found.end(told);
    third.end_session(SessionKey(11));
    is_ours.send_replace(Some(true));
    let ended = server.next_of("DELETE").await;
    assert_eq!(ended.header("mcp-session-id"), Some(&*session));
    assert_eq!(ended.header("authorization"), Some("Bearer ann-1"));
}

#[tokio::test]
async fn principal_whose_credentials_are_refused_is_told_to_sign_in() {
    let server = Server::start(accepting(&["ann-1"])).await;
    let users = Users::new();
    let backend = start_for(&server, &users);
    users.set("eve", true);
    assert!(wished(&call_as(&backend, "eve").await.unwrap_err()).ends_with("/eve"));
    assert!(wished(&call_as(&backend, "eve").await.unwrap_err()).ends_with("/eve"));
}

#[tokio::test]
async fn server_that_wants_credentials_is_asked_nothing_else_without_them() {
    // Another answer to `initialize` without credentials does not make it a legacy server.
    let mut server = Server::start(|seen| match seen.method().as_str() {
        "server/discover" => challenge(401),
        _ => seen.error(400, r#"{"code":-32020,"message":"no"}"#),
    })
    .await;
    let users = Users::new();
    let backend = start_for(&server, &users);
    users.set("eve", true);
    assert!(wished(&call_as(&backend, "eve").await.unwrap_err()).ends_with("/eve"));
    assert_eq!(server.count("initialize"), 0);
}

#[tokio::test]
async fn signing_in_is_announced_as_a_change_of_lists() {
    let server = Server::start(accepting(&[])).await;
    let users = Users::new();
    let backend = start_for(&server, &users);
    let (messages, mut told) = ServerMessages::channel(16);
    let interest = Interest {
        lists: Change::Tools.into(),
        ..Interest::default()
    };
    let listen = Listen {
        interest,
        context: CallContext::internal(),
        messages,
    };
    let listening = backend.listen(listen).await.unwrap();
    assert!(listening.honoured.lists.has(Change::Tools));
    // Its task may not be waiting for changes yet.
    tokio::time::timeout(PATIENCE, async {
        loop {
            users.set("ann", true);
            tokio::task::yield_now().await;
            if let Some(fanlight_canonical::ServerMessage::Notification(told)) = told.try_recv() {
                assert_eq!(told.method.as_str(), "notifications/tools/list_changed");
                return;
            }
        }
    })
    .await
    .expect("nobody is told");
}

#[tokio::test]
async fn only_the_sessions_of_a_user_who_has_signed_in_are_told_that_it_is_complete() {
    let server = Server::start(accepting(&["ann-1", "bob-1"])).await;
    let users = Users::new();
    let backend = start_for(&server, &users);
    let session = async |name: &str, key: u64| {
        let (mut call, told) = listening(call("tools/call", r#"{"name":"t"}"#), |context| {
            context.caller = Caller::session_of(Principal::new("", name), SessionKey(key));
            context.capabilities = crate::support::json(r#"{"elicitation":{"url":{}}}"#);
        });
        let messages = std::mem::replace(&mut call.messages, ServerMessages::discard());
        let interest = Interest {
            session: true,
            ..Interest::default()
        };
        let listen = Listen {
            interest,
            context: Arc::clone(&call.context),
            messages,
        };
        let listening = backend.listen(listen).await.unwrap();
        assert!(wished(&send_to(&*backend, call).await.unwrap_err()).ends_with(name));
        (listening, told)
    };
    let ((_ann, mut anns), (_bob, mut bobs)) = (session("ann", 1).await, session("bob", 2).await);
    // Its task may not be waiting for changes yet.
    while bobs.is_empty() {
        users.set("bob", true);
        tokio::task::yield_now().await;
    }
    assert_eq!(
        bobs.recv().await.unwrap().method.as_str(),
        "notifications/elicitation/complete"
    );
    assert!(anns.is_empty(), "ann has not signed in");
    while anns.is_empty() {
        users.set("ann", true);
        tokio::task::yield_now().await;
    }
    assert!(anns.text().await.contains(r#""elicitationId":"1""#));
    // Each client is told once.
    users.set("ann", true);
    assert!(bobs.is_empty() && anns.is_empty());
}

#[tokio::test]
async fn description_promises_all_lists_before_anybody_has_signed_in() {
    let server = Server::start(accepting(&[])).await;
    let backend = Backend::start_per_principal(
        settings(server.transport()),
        Users::new() as _,
        &CancellationToken::new(),
    );
    let description = backend.describe(&CallContext::internal()).await.unwrap();
    let capabilities = description.capabilities().unwrap();
    assert!(
        ["tools", "prompts", "resources"]
            .iter()
            .all(|list| capabilities.get(list).is_some())
    );
}

#[tokio::test]
async fn only_so_many_principals_have_connections_and_the_one_used_longest_ago_gives_way() {
    let server = Server::start(accepting(&["ann-1", "bob-1", "cat-1"])).await;
    let users = Users::new();
    let mut settings = settings(server.transport());
    settings.limits.sessions = 2;
    let backend =
        Backend::start_per_principal(settings, Arc::clone(&users) as _, &CancellationToken::new());
    for name in ["ann", "bob", "cat", "ann"] {
        users.set(name, true);
        assert!(
            call_as(&backend, name).await.unwrap().contains(name),
            "{name}"
        );
    }
}

#[tokio::test]
async fn all_principals_together_have_the_repetitions_of_one_server() {
    let mut server = Server::start(|seen| modern(seen).unwrap_or(Reply::Close)).await;
    let users = Users::new();
    let settings = BackendSettings {
        repeats: Some(Repeats::default()),
        ..settings(server.transport())
    };
    let backend =
        Backend::start_per_principal(settings, Arc::clone(&users) as _, &CancellationToken::new());
    for name in ["ann", "bob", "cid", "dan", "eve", "fay"] {
        users.set(name, true);
        for _ in 0..5 {
            let (call, _inbox) = listening(
                call("resources/read", r#"{"uri":"a:b"}"#),
                set_principal(name),
            );
            assert_eq!(
                send_to(&*backend, call).await,
                Err(BackendError::ClosedEarly)
            );
        }
    }
    // Ten repetitions are saved, and thirty requests earn six more.
    let sent = server.count("resources/read");
    assert!((40..=46).contains(&sent), "{sent}");
}
