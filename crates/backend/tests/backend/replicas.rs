//! A server with several endpoints: tasks, and changing addresses.

use std::collections::BTreeSet;
use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use fanlight_backend::{Backend, BackendSettings, Endpoints, LookUp, TransportSettings};
use fanlight_canonical::{BackendClient, BackendState, Caller, Interest, Principal, TaskDialect};
use fanlight_protocol::subscription::Change;
use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::listening_legacy::telling;
use crate::support::server::{Feed, Feeds, Reply, Seen, Server, feeds, legacy, modern};
use crate::support::{
    PATIENCE, call, listen_to, listening, of_session, send_to, settings, without_session,
};

/// A server at these URLs.
fn several(urls: &[&str]) -> BackendSettings {
    let endpoints = Endpoints {
        urls: urls.iter().map(|url| (*url).to_owned()).collect(),
        resolve: None,
    };
    let transport = TransportSettings::Http {
        url: urls[0].to_owned(),
        headers: Vec::new(),
    };
    BackendSettings {
        endpoints,
        ..settings(transport)
    }
}

async fn connected(settings: BackendSettings, endpoints: usize) -> Arc<dyn BackendClient> {
    let server: Arc<dyn BackendClient> = Backend::start(settings, CancellationToken::new());
    wait_for(&*server, |places| places.len() == endpoints).await;
    server
}

/// Waits until the ready endpoints are as wanted.
async fn wait_for(server: &dyn BackendClient, is_it: impl Fn(&[String]) -> bool) {
    let waiting = async {
        loop {
            let ready = server
                .parts()
                .endpoints
                .into_iter()
                .filter(|it| matches!(it.state, BackendState::Ready) && !it.is_leaving);
            let places: Vec<String> = ready.map(|it| it.place).collect();
            if is_it(&places) {
                return;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(PATIENCE, waiting)
        .await
        .expect("the endpoints are others");
}

/// A server with the tasks extension that makes a task with this id and knows no other.
fn task_server(id: &'static str) -> impl Fn(&Seen) -> Reply + Send + Sync + 'static {
    move |seen| {
        let discovered = r#"{"resultType":"complete","supportedVersions":["2026-07-28"],"capabilities":{"tools":{},"extensions":{"io.modelcontextprotocol/tasks":{}}}}"#;
        match seen.method().as_str() {
            "server/discover" => seen.result(discovered),
            "tools/list" => seen.result(r#"{"resultType":"complete","tools":[{"name":"t","inputSchema":{"type":"object"}}]}"#),
            "tools/call" => seen.result(&format!(
                r#"{{"resultType":"task","taskId":"{id}","status":"working","createdAt":"2026-01-01T00:00:00Z","lastUpdatedAt":"2026-01-01T00:00:00Z","ttlMs":60000}}"#
            )),
            _ if seen.params().get("taskId").is_some_and(|task| task.as_str().as_deref() == Some(id)) => {
                seen.result(&format!(
                    r#"{{"resultType":"complete","taskId":"{id}","status":"completed","createdAt":"2026-01-01T00:00:00Z","lastUpdatedAt":"2026-01-01T00:00:00Z","ttlMs":60000,"result":{{"content":[]}}}}"#
                ))
            }
            _ => seen.error(400, r#"{"code":-32602,"message":"no such task"}"#),
        }
    }
}

/// Sends a request of a principal without a session that has the tasks extension.
async fn ask_as(server: &dyn BackendClient, name: &str, method: &str, params: &str) -> String {
    let (call, _) = listening(call(method, params), |context| {
        context.caller = Caller::request_of(Principal::new("issuer", name));
        context.tasks = Some(TaskDialect::Extension);
    });
    send_to(server, call)
        .await
        .unwrap_or_else(|error| format!("{error:?}"))
}

#[tokio::test]
async fn task_is_asked_for_at_the_endpoint_that_has_made_it() {
    let (mut one, mut two) = (
        Server::start(task_server("one")).await,
        Server::start(task_server("two")).await,
    );
    let server = connected(several(&[&one.url, &two.url]), 2).await;
    let mut made = Vec::new();
    while !["one", "two"].iter().all(|id| made.contains(id)) {
        let answer = ask_as(&*server, "ann", "tools/call", r#"{"name":"t"}"#).await;
        made.extend(["one", "two"].into_iter().filter(|id| answer.contains(id)));
    }
    for id in ["one", "two", "one", "two"] {
        let answer = ask_as(
            &*server,
            "ann",
            "tasks/get",
            &format!(r#"{{"taskId":"{id}"}}"#),
        )
        .await;
        assert!(answer.contains("completed"), "{answer}");
    }
    assert_eq!((one.count("tasks/get"), two.count("tasks/get")), (2, 2));
    // The task belongs to nobody else, so no endpoint is asked.
    let refused = ask_as(&*server, "bob", "tasks/get", r#"{"taskId":"one"}"#).await;
    assert!(refused.contains("not found"), "{refused}");
    assert_eq!((one.count("tasks/get"), two.count("tasks/get")), (0, 0));
    // Every endpoint is asked about an unknown task.
    let answer = ask_as(&*server, "ann", "tasks/get", r#"{"taskId":"none"}"#).await;
    assert!(answer.contains("-32602"), "{answer}");
    assert_eq!((one.count("tasks/get"), two.count("tasks/get")), (1, 1));
}

#[tokio::test]
async fn task_of_an_endpoint_that_has_gone_is_asked_for_at_the_others() {
    let one = Server::start(task_server("shared")).await;
    let server = connected(several(&[&one.url, "http://127.0.0.1:9/mcp"]), 1).await;
    let made = ask_as(&*server, "ann", "tools/call", r#"{"name":"t"}"#).await;
    assert!(made.contains("shared"), "{made}");
    drop(one);
    let answer = ask_as(&*server, "ann", "tasks/get", r#"{"taskId":"shared"}"#).await;
    assert!(
        answer.contains("Unreachable") || answer.contains("ClosedEarly"),
        "{answer}"
    );
    let answer = ask_as(&*server, "ann", "tasks/get", r#"{"taskId":"shared"}"#).await;
    assert!(answer.contains("cannot connect"), "{answer}");
}

/// Both endpoints open their sessions under the same id.
#[tokio::test]
async fn endpoint_that_gives_another_ones_session_id_gets_none_of_its_calls() {
    let answer =
        |seen: &Seen| legacy(seen, "same").unwrap_or_else(|| seen.result(r#"{"content":[]}"#));
    let (mut one, mut two) = (Server::start(answer).await, Server::start(answer).await);
    let server = connected(several(&[&one.url, &two.url]), 2).await;
    for session in 0..12 {
        for _ in 0..3 {
            let params = format!(r#"{{"name":"t","arguments":{{"session":{session}}}}}"#);
            let (call, _) = listening(call("tools/call", &params), of_session(session, "{}"));
            send_to(&*server, call).await.unwrap();
        }
    }
    let of = |server: &mut Server| {
        let calls =
            std::iter::from_fn(|| server.try_next()).filter(|seen| seen.method() == "tools/call");
        let session = |seen: Seen| {
            seen.params()
                .get("arguments")
                .unwrap()
                .get("session")
                .unwrap()
                .as_text()
                .to_owned()
        };
        calls.map(session).collect::<BTreeSet<_>>()
    };
    let (at_one, at_two) = (of(&mut one), of(&mut two));
    assert!(
        at_one.is_disjoint(&at_two) && at_one.len() + at_two.len() == 12,
        "{at_one:?} {at_two:?}"
    );
    assert!(!at_one.is_empty() && !at_two.is_empty());
}

#[tokio::test]
async fn subscriptions_of_a_session_go_with_it_to_another_endpoint() {
    let sessions = AtomicUsize::new(0);
    let answer =
        Arc::new(move |seen: &Seen| telling(seen, &sessions).unwrap_or_else(|| seen.result("{}")));
    let start = || {
        let answer = Arc::clone(&answer);
        Server::start(move |seen| answer(seen))
    };
    let (mut one, two) = (start().await, start().await);
    let server = connected(several(&[&one.url, &two.url]), 2).await;
    let ask = async |method: &str, params: &str| {
        let (call, _inbox) = listening(call(method, params), of_session(1, "{}"));
        send_to(&*server, call).await
    };
    ask("resources/subscribe", r#"{"uri":"a:1"}"#)
        .await
        .unwrap();
    let (gone, mut left) = if one.count("resources/subscribe") == 1 {
        (one, two)
    } else {
        (two, one)
    };
    drop(gone);
    // A connection that breaks during a request leaves open whether it ran; the next one goes
    // elsewhere.
    while ask("prompts/get", r#"{"name":"p"}"#).await.is_err() {}
    let again = left.next_of("resources/subscribe").await;
    assert_eq!(
        again.params().get("uri").unwrap().as_str().as_deref(),
        Some("a:1")
    );
}

/// A server whose subscriptions the test answers.
async fn subscribing() -> (Server, Feeds) {
    let (open, feeds) = feeds();
    let server = Server::start(move |seen| match seen.method().as_str() {
        "subscriptions/listen" => open(seen),
        _ => modern(seen).unwrap_or_else(|| seen.result("{}")),
    });
    (server.await, feeds)
}

#[tokio::test]
async fn listening_goes_on_at_another_endpoint_when_its_own_has_gone() {
    let ((one, mut at_one), (two, mut at_two)) = (subscribing().await, subscribing().await);
    let mut settings = several(&[&one.url, &two.url]);
    settings.health.interval = Some(Duration::from_millis(50));
    let server = connected(settings, 2).await;
    let agree = |feed: &Feed| feed.acknowledge(r#"{"toolsListChanged":true}"#);
    let interest = Interest {
        lists: Change::Tools.into(),
        ..Interest::default()
    };
    let (listening, (first_is_one, first)) = tokio::join!(
        listen_to(&*server, interest.clone(), without_session),
        async {
            let found = tokio::select! { feed = at_one.next() => (true, feed), feed = at_two.next() => (false, feed) };
            agree(&found.1);
            found
        }
    );
    let (listening, mut inbox) = listening.unwrap();
    assert_eq!(listening.honoured, interest);
    const CHANGED: &str = r#"{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}"#;
    first.send(CHANGED);
    assert_eq!(inbox.text().await, CHANGED);
    let (gone, _stays, mut elsewhere) = if first_is_one {
        (one, two, at_two)
    } else {
        (two, one, at_one)
    };
    drop((gone, first));
    let second = elsewhere.next().await;
    agree(&second);
    // Changes may have been missed.
    assert_eq!(inbox.text().await, CHANGED);
    second.send(CHANGED);
    assert_eq!(inbox.text().await, CHANGED);
    drop(listening);
    second.closed().await;
}

/// Addresses that a test changes.
#[derive(Debug)]
struct Names {
    addresses: Mutex<Vec<SocketAddr>>,
    asked: watch::Sender<usize>,
}

impl Names {
    async fn answer(&self, addresses: &[SocketAddr]) {
        *self.addresses.lock().unwrap() = addresses.to_vec();
        // After two more lookups, the answer to the second one had these addresses.
        let mut asked = self.asked.subscribe();
        let before = *asked.borrow_and_update();
        asked.wait_for(|asked| *asked >= before + 2).await.unwrap();
    }
}

impl LookUp for Names {
    fn look_up(
        &self,
        _host: String,
        _port: u16,
    ) -> BoxFuture<'static, io::Result<Vec<SocketAddr>>> {
        self.asked.send_modify(|asked| *asked += 1);
        let found = self.addresses.lock().unwrap().clone();
        async move { Ok(found) }.boxed()
    }
}

#[tokio::test]
async fn addresses_of_a_host_are_endpoints_that_come_and_go() {
    let calls = Arc::new([const { AtomicUsize::new(0) }; 2]);
    let start = |number: usize| {
        let calls = Arc::clone(&calls);
        Server::start(move |seen| {
            assert_eq!(seen.header("host"), Some("pay.internal:81"));
            modern(seen).unwrap_or_else(|| {
                calls[number].fetch_add(1, Ordering::SeqCst);
                seen.result(r#"{"resultType":"complete","content":[]}"#)
            })
        })
    };
    let (one, two) = (start(0).await, start(1).await);
    let address = |server: &Server| -> SocketAddr {
        server
            .url
            .trim_start_matches("http://")
            .trim_end_matches("/mcp")
            .parse()
            .unwrap()
    };
    let names = Arc::new(Names {
        addresses: Mutex::new(vec![address(&one)]),
        asked: watch::Sender::default(),
    });
    let mut settings = several(&["http://pay.internal:81/mcp"]);
    settings.endpoints.resolve = Some(Duration::from_millis(20));
    settings.names = Arc::clone(&names) as _;
    let server = connected(settings, 1).await;
    let ask = async |times: usize| {
        for _ in 0..times {
            let answer = send_to(&*server, call("prompts/get", r#"{"name":"p"}"#))
                .await
                .unwrap();
            assert!(answer.contains("complete"), "{answer}");
        }
        calls
            .each_ref()
            .map(|calls| calls.swap(0, Ordering::SeqCst))
    };
    assert_eq!(ask(4).await, [4, 0]);
    names.answer(&[address(&one), address(&two)]).await;
    wait_for(&*server, |places| places.len() == 2).await;
    let mut shares = [0, 0];
    let both = async {
        while shares.contains(&0) {
            let more = ask(4).await;
            shares = [shares[0] + more[0], shares[1] + more[1]];
        }
    };
    tokio::time::timeout(PATIENCE, both)
        .await
        .expect("an endpoint gets no call");
    names.answer(&[address(&two)]).await;
    let of_two = address(&two).to_string();
    wait_for(&*server, |places| {
        places.len() == 1 && places[0].ends_with(&of_two)
    })
    .await;
    assert_eq!(ask(4).await, [0, 4]);
    // An unavailable name server takes no address away.
    names.answer(&[]).await;
    assert_eq!(ask(4).await, [0, 4]);
    // Lists never come from an endpoint that has left, even if no other is reachable.
    send_to(&*server, call("tools/list", "")).await.unwrap();
    names.answer(&["127.0.0.1:9".parse().unwrap()]).await;
    wait_for(&*server, <[String]>::is_empty).await;
    let refused = send_to(&*server, call("tools/list", "")).await.unwrap_err();
    assert!(refused.is_unreachable(), "{refused}");
}
