//! Modern servers over stdio have no sessions: each authenticated principal has its own process.

use std::collections::HashSet;
use std::fs;
use std::sync::Arc;

use fanlight_testkit::signing_in::{ANN, BOB, KEYS, WITH_KEYS};
use fanlight_testkit::slicer::member;

use crate::harness::{Gateway, TempFile, within};
use crate::raw_client::{
    Connection, INITIALIZED, LISTEN, Response, StdioClient, initialize, legacy_request,
    modern_headers, modern_request, post,
};
use crate::scripted::{Backend, Era, Fault, Gate, Reply, Stream, Transport};

const TOOLS_CHANGED: &str = "notifications/tools/list_changed";

/// A server over stdio with one tool, one resource, and announcements of changes.
async fn server() -> Backend {
    let server = Backend::start(Era::Modern, Transport::Stdio).await;
    server.declares(
        r#"{"tools":{"listChanged":true},"resources":{"subscribe":true,"listChanged":true}}"#,
    );
    offer(&server, &["t"]);
    server.on("resources/list", Reply::result(public(r#""resources":[]"#)));
    server.on(
        "tools/call",
        Reply::result(Era::Modern.complete(r#""content":[]"#)),
    );
    server.on(LISTEN, Reply::listening());
    server
}

/// Makes the server list these tools for everybody.
fn offer(server: &Backend, names: &[&str]) {
    let tools: Vec<_> = names
        .iter()
        .map(|name| format!(r#"{{"name":"{name}","inputSchema":{{"type":"object"}}}}"#))
        .collect();
    server.on(
        "tools/list",
        Reply::result(public(&format!(r#""tools":[{}]"#, tools.join(",")))),
    );
}

fn public(members: &str) -> String {
    format!(r#"{{"resultType":"complete",{members},"ttlMs":600000,"cacheScope":"public"}}"#)
}

/// A gateway with client keys, these servers and more configuration.
struct World {
    gateway: Gateway,
    folder: TempFile,
}

impl World {
    async fn start(more: &str, entries: &[String]) -> Self {
        let folder = TempFile::folder();
        fs::write(folder.path().join("keys.yaml"), KEYS).unwrap();
        configure(&folder, more, entries);
        Self {
            gateway: Gateway::start_at(folder.path().join("fanlight.yaml")).await,
            folder,
        }
    }

    async fn ask(&self, key: Option<&str>, method: &str, params: &str) -> String {
        self.post(key, &modern_request("1", method, params, ""))
            .await
            .messages()
            .await
            .1
    }

    /// Posts a modern request, possibly a subscription.
    async fn post(&self, key: Option<&str>, body: &str) -> Response {
        let bearer = key.map(|key| format!("Bearer {key}"));
        let own = modern_headers(body);
        let mut headers: Vec<(&str, &str)> = own
            .iter()
            .map(|(name, value)| (&**name, &**value))
            .collect();
        headers.extend(
            bearer
                .iter()
                .map(|bearer| ("Authorization", bearer.as_str())),
        );
        post(self.gateway.mcp, &headers, body).await
    }

    async fn listen(&self, key: &str, filter: &str) -> Response {
        let params = format!(r#""notifications":{filter}"#);
        let mut stream = self
            .post(Some(key), &modern_request("1", LISTEN, &params, ""))
            .await;
        let first = within("the acknowledgement", stream.event())
            .await
            .unwrap()
            .unwrap();
        assert!(first.contains("acknowledged"), "{first}");
        stream
    }
}

fn configure(folder: &TempFile, more: &str, entries: &[String]) {
    let config = format!("{more}\nmcpServers: {{{}}}\n", entries.join(", "));
    fs::write(folder.path().join("fanlight.yaml"), config).unwrap();
}

/// A legacy client's session with a key.
struct Session<'a> {
    world: &'a World,
    bearer: String,
    id: String,
}

impl<'a> Session<'a> {
    async fn open(world: &'a World, key: &str) -> Self {
        Self::open_with(world, key, "{}").await
    }

    /// Opens a session whose client has these raw capabilities.
    async fn open_with(world: &'a World, key: &str, capabilities: &str) -> Self {
        let bearer = format!("Bearer {key}");
        let body = initialize("2025-11-25", capabilities);
        let opened = post(world.gateway.mcp, &[("Authorization", &bearer)], &body).await;
        let id = opened.header("mcp-session-id").unwrap().to_owned();
        let session = Self { world, bearer, id };
        assert_eq!(session.post(INITIALIZED).await.status, 202);
        session
    }

    fn headers(&self) -> [(&str, &str); 3] {
        [
            ("Authorization", &self.bearer),
            ("Mcp-Session-Id", &self.id),
            ("MCP-Protocol-Version", "2025-11-25"),
        ]
    }

    async fn post(&self, body: &str) -> Response {
        post(self.world.gateway.mcp, &self.headers(), body).await
    }

    async fn ask(&self, method: &str, params: &str) -> String {
        self.post(&legacy_request("\"of a session\"", method, params))
            .await
            .messages()
            .await
            .1
    }

    async fn stream(&self) -> Response {
        let mut connection = Connection::open(self.world.gateway.mcp).await;
        let headers: Vec<_> = self
            .headers()
            .into_iter()
            .chain([("Accept", "text/event-stream")])
            .collect();
        connection.request("GET", "/mcp", &headers, b"").await;
        connection.response().await
    }
}

/// The processes that received a request, in order.
fn processes(server: &Backend, method: &str) -> Vec<u32> {
    server
        .received(method)
        .iter()
        .map(|received| received.process.unwrap())
        .collect()
}

/// The first stream that satisfies `is_wanted`, once it is open.
async fn stream_where(server: &Backend, is_wanted: impl Fn(&Stream) -> bool) -> Stream {
    for number in 0.. {
        let stream = server.stream(number).await;
        if is_wanted(&stream) {
            return stream;
        }
    }
    unreachable!("there is no last number")
}

fn is_result(answer: &str) -> bool {
    answer.contains("\"result\"") && !answer.contains("\"isError\":true")
}

#[tokio::test]
async fn each_principal_has_a_process_whatever_its_connections_and_era() {
    for others in [0, 1] {
        let (server, other) = (
            server().await,
            Backend::start(Era::Modern, Transport::Http).await,
        );
        let entries = [server.entry("s"), other.entry("other")];
        let world = World::start(WITH_KEYS, &entries[..=others]).await;
        let name = if others == 0 {
            r#""name":"t""#
        } else {
            r#""name":"s__t""#
        };
        for key in [ANN, BOB, ANN, BOB] {
            let answer = world.ask(Some(key), "tools/call", name).await;
            assert!(is_result(&answer), "{answer}\n{}", world.gateway.log.text());
        }
        let session = Session::open(&world, ANN).await;
        assert!(is_result(&session.ask("tools/call", name).await));
        let [ann, bob, again, also, in_session] = processes(&server, "tools/call")[..] else {
            panic!("calls are lost")
        };
        assert_eq!((ann, bob), (again, also));
        assert_eq!(ann, in_session, "a legacy client of a modern server");
        assert_ne!(ann, bob);
        let lists: HashSet<u32> = processes(&server, "tools/list").into_iter().collect();
        assert!(
            lists.iter().all(|process| ![ann, bob].contains(process)),
            "lists are read from the base"
        );
        assert_eq!(server.started().len(), 3);
        assert_eq!(
            world
                .post(None, &modern_request("1", "tools/call", name, ""))
                .await
                .status,
            401
        );
        assert_eq!(
            server.started().len(),
            3,
            "a client without a key has a process started"
        );
    }
}

#[tokio::test]
async fn clients_that_merely_listen_have_no_process_started() {
    for others in [0, 1] {
        let (server, other) = (
            server().await,
            Backend::start(Era::Modern, Transport::Http).await,
        );
        let entries = [server.entry("s"), other.entry("other")];
        let world = World::start(WITH_KEYS, &entries[..=others]).await;
        let mut modern = world.listen(ANN, r#"{"toolsListChanged":true}"#).await;
        let session = Session::open(&world, BOB).await;
        let mut legacy = session.stream().await;
        for (method, params) in [("ping", ""), ("tools/list", ""), ("resources/list", "")] {
            assert!(is_result(&session.ask(method, params).await), "{method}");
        }
        assert!(is_result(&world.ask(Some(ANN), "tools/list", "").await));
        offer(&server, &["t", "u"]);
        // The session wants resource list changes.
        stream_where(&server, |stream| {
            stream.filter().unwrap().contains("resourcesListChanged")
        })
        .await;
        for stream in server.streams() {
            stream.notify(TOOLS_CHANGED, "").await;
        }
        for stream in [&mut modern, &mut legacy] {
            let told = within("the change", stream.event()).await.unwrap().unwrap();
            assert!(told.contains(TOOLS_CHANGED), "{told}");
        }
        assert_eq!(server.started().len(), 1);
    }
}

#[tokio::test]
async fn one_process_serves_everybody_if_configured_or_with_one_user() {
    for (auth, session, keys) in [
        (WITH_KEYS, r#""session":"shared""#, [Some(ANN), Some(BOB)]),
        ("", r#""idle":"1h""#, [None, None]),
    ] {
        let server = server().await;
        let world = World::start(auth, &[server.entry_with("s", session)]).await;
        for key in keys {
            assert!(is_result(
                &world.ask(key, "tools/call", r#""name":"t""#).await
            ));
        }
        assert_eq!(server.started().len(), 1, "{auth}");
    }
    // The user who starts the gateway is its only user.
    let server = server().await;
    let folder = TempFile::folder();
    fs::write(folder.path().join("keys.yaml"), KEYS).unwrap();
    let auth = format!(
        "auth: {{keys: {{file: '{}'}}}}",
        folder.path().join("keys.yaml").display()
    );
    configure(&folder, &auth, &[server.entry("s")]);
    let mut gateway =
        Gateway::stdio(&fs::read_to_string(folder.path().join("fanlight.yaml")).unwrap());
    let mut client = StdioClient::new(&mut gateway);
    let (_, answer) = client
        .call(&modern_request("1", "tools/call", r#""name":"t""#, ""))
        .await;
    assert!(is_result(&answer), "{answer}");
    assert_eq!(server.started().len(), 1);
}

#[tokio::test]
async fn process_of_a_principal_ends_when_it_is_idle() {
    let server = server().await;
    let world = World::start(WITH_KEYS, &[server.entry_with("s", r#""idle":"20ms""#)]).await;
    assert!(is_result(
        &world.ask(Some(ANN), "tools/call", r#""name":"t""#).await
    ));
    let ended = processes(&server, "tools/call")[0];
    server.ended(ended).await;
    assert!(is_result(
        &world.ask(Some(ANN), "tools/call", r#""name":"t""#).await
    ));
    assert_ne!(processes(&server, "tools/call")[1], ended);
}

#[tokio::test]
async fn process_with_a_subscription_is_not_idle_and_tells_its_principal_alone() {
    let server = server().await;
    let config = format!("{WITH_KEYS}x-limits: backendSessionIdle=20ms");
    let world = World::start(&config, &[server.entry("s")]).await;
    let filter = r#"{"resourceSubscriptions":["a://r"],"toolsListChanged":true}"#;
    let mut ann = world.listen(ANN, filter).await;
    // A legacy session subscribes by a request, and hears of all lists.
    let session = Session::open(&world, BOB).await;
    let mut bob = session.stream().await;
    assert!(is_result(
        &session.ask("resources/subscribe", r#""uri":"a://r""#).await
    ));
    // The same subscription covers the lists of each process.
    let whole = |stream: &Stream| {
        ["a://r", "toolsListChanged"]
            .iter()
            .all(|part| stream.filter().unwrap().contains(part))
    };
    let started = server.started();
    let [_, of_ann, of_bob] = started[..] else {
        panic!("{started:?}")
    };
    let of = async |process| {
        stream_where(&server, |stream| {
            whole(stream) && stream.request.process == Some(process)
        })
        .await
    };
    let (of_ann, of_bob) = (&of(of_ann).await, &of(of_bob).await);
    assert_ne!(of_ann.request.process, of_bob.request.process);
    for (number, is_of_ann) in [(1, true), (2, false), (3, true)] {
        let (stream, listener) = if is_of_ann {
            (of_ann, &mut ann)
        } else {
            (of_bob, &mut bob)
        };
        stream
            .notify(
                "notifications/resources/updated",
                &format!(r#""uri":"a://r","n":{number}"#),
            )
            .await;
        let told = within("the update", listener.event())
            .await
            .unwrap()
            .unwrap();
        assert_eq!(
            member(&told, "params.n"),
            Some(number.to_string().as_str()),
            "{told}"
        );
    }
    for key in [ANN, BOB] {
        assert!(is_result(
            &world.ask(Some(key), "tools/call", r#""name":"t""#).await
        ));
    }
    let expected = [
        of_ann.request.process.unwrap(),
        of_bob.request.process.unwrap(),
    ];
    assert_eq!(
        processes(&server, "tools/call"),
        expected,
        "a process with a subscription was ended"
    );
}

#[tokio::test]
async fn private_list_is_read_from_the_process_of_its_principal() {
    for others in [0, 1] {
        let (server, other) = (
            server().await,
            Backend::start(Era::Modern, Transport::Http).await,
        );
        server.on(
            "tools/list",
            Reply::compute(|request| {
                let tool = format!(r#"{{"name":"of-{}","inputSchema":{{"type":"object"}}}}"#, request.process.unwrap());
                format!(r#"{{"resultType":"complete","tools":[{tool}],"ttlMs":600000,"cacheScope":"private"}}"#)
            }),
        );
        let entries = [server.entry("s"), other.entry("other")];
        let world = World::start(WITH_KEYS, &entries[..=others]).await;
        let mut seen = Vec::new();
        for key in [ANN, BOB, ANN] {
            let list = world.ask(Some(key), "tools/list", "").await;
            let process = server
                .started()
                .into_iter()
                .find(|process| list.contains(&format!("of-{process}\"")));
            seen.push(process.unwrap_or_else(|| panic!("{list}")));
        }
        let base = server.started()[0];
        assert!(
            seen[0] == seen[2] && seen[0] != seen[1] && !seen.contains(&base),
            "{seen:?} {base}"
        );
        let mut ann = world.listen(ANN, r#"{"toolsListChanged":true}"#).await;
        let name = format!(
            "\"name\":\"{}of-{}\"",
            if others == 0 { "" } else { "s__" },
            seen[0]
        );
        assert!(is_result(&world.ask(Some(ANN), "tools/call", &name).await));
        assert_eq!(processes(&server, "tools/call"), [seen[0]]);
        // Ann gets the announcements of her process.
        let stream = stream_where(&server, |stream| stream.request.process == Some(seen[0])).await;
        stream.notify(TOOLS_CHANGED, "").await;
        let told = within("the change", ann.event()).await.unwrap().unwrap();
        assert!(told.contains(TOOLS_CHANGED), "{told}");
    }
}

#[tokio::test]
async fn principal_beyond_the_limit_is_refused_until_a_process_is_free() {
    let server = server().await;
    let config = format!("{WITH_KEYS}limits: {{processes: 1}}");
    let world = Arc::new(World::start(&config, &[server.entry("s")]).await);
    let gate = Gate::new();
    server.once(
        "tools/call",
        Reply::result(Era::Modern.complete(r#""content":[]"#)).gated(&gate),
    );
    let running = tokio::spawn({
        let world = Arc::clone(&world);
        async move { world.ask(Some(ANN), "tools/call", r#""name":"t""#).await }
    });
    gate.reached(1).await;
    let refused = world.ask(Some(BOB), "tools/call", r#""name":"t""#).await;
    assert!(
        refused.contains("is busy") && refused.contains(r#""mayHaveRun":false"#),
        "{refused}"
    );
    // A principal that has a process keeps it.
    assert!(is_result(
        &world.ask(Some(ANN), "tools/call", r#""name":"t""#).await
    ));
    gate.open();
    assert!(is_result(&running.await.unwrap()));
    assert!(is_result(
        &world.ask(Some(BOB), "tools/call", r#""name":"t""#).await
    ));
    server.ended(processes(&server, "tools/call")[0]).await;
}

#[tokio::test]
async fn process_that_dies_is_replaced_for_its_principal_alone() {
    let server = server().await;
    let world = World::start(WITH_KEYS, &[server.entry("s")]).await;
    for key in [ANN, BOB] {
        assert!(is_result(
            &world.ask(Some(key), "tools/call", r#""name":"t""#).await
        ));
    }
    server.once("tools/call", Reply::fault(Fault::Die(1)));
    assert!(!is_result(
        &world.ask(Some(ANN), "tools/call", r#""name":"t""#).await
    ));
    for key in [ANN, BOB] {
        assert!(is_result(
            &world.ask(Some(key), "tools/call", r#""name":"t""#).await
        ));
    }
    let [ann, bob, dead, new, still] = processes(&server, "tools/call")[..] else {
        panic!("calls are lost")
    };
    assert_eq!((ann, bob), (dead, still));
    assert_ne!(ann, new);
}

#[tokio::test]
async fn authentication_that_is_configured_later_keeps_principals_apart_from_then_on() {
    let server = server().await;
    let world = World::start("auth: none", &[server.entry("s")]).await;
    assert!(is_result(
        &world.ask(None, "tools/call", r#""name":"t""#).await
    ));
    configure(&world.folder, WITH_KEYS, &[server.entry("s")]);
    assert_eq!(world.gateway.reload().await.0, 200);
    for key in [ANN, BOB] {
        assert!(is_result(
            &world.ask(Some(key), "tools/call", r#""name":"t""#).await
        ));
    }
    let used: HashSet<u32> = processes(&server, "tools/call").into_iter().collect();
    assert_eq!(used.len(), 3);
}

#[tokio::test]
async fn processes_of_principals_end_with_the_gateway() {
    let server = server().await;
    let world = World::start(WITH_KEYS, &[server.entry("s")]).await;
    for key in [ANN, BOB] {
        assert!(is_result(
            &world.ask(Some(key), "tools/call", r#""name":"t""#).await
        ));
    }
    assert!(world.gateway.terminate().await.success());
    for process in server.started() {
        server.ended(process).await;
    }
}

#[tokio::test]
async fn legacy_client_that_can_be_asked_is_served_by_the_process_of_its_principal() {
    let server = server().await;
    let world = World::start(WITH_KEYS, &[server.entry("s")]).await;
    // The server is modern only, so it cannot serve the legacy session in that era.
    let session = Session::open_with(&world, ANN, r#"{"elicitation":{}}"#).await;
    assert!(is_result(&session.ask("tools/call", r#""name":"t""#).await));
    assert!(is_result(
        &world.ask(Some(ANN), "tools/call", r#""name":"t""#).await
    ));
    let [one, other] = processes(&server, "tools/call")[..] else {
        panic!("calls are lost")
    };
    assert_eq!(one, other);
    assert_ne!(one, server.started()[0], "the base serves a client");
}

#[tokio::test]
async fn call_after_a_restart_has_the_lists_that_were_kept_compared() {
    let (server, other) = (
        server().await,
        Backend::start(Era::Modern, Transport::Http).await,
    );
    let state = TempFile::folder();
    let config = format!(
        "{WITH_KEYS}stateDir: {}\nx-limits: listSettle=20ms",
        state.path().join("s").display()
    );
    let world = World::start(&config, &[server.entry("s"), other.entry("other")]).await;
    assert!(
        !world
            .ask(Some(ANN), "tools/list", "")
            .await
            .contains("s__new")
    );
    let World { gateway, folder } = world;
    assert!(gateway.terminate().await.success());

    // The server now lists another tool, as a new version of the program would.
    offer(&server, &["t", "new"]);
    let world = World {
        gateway: Gateway::start_at(folder.path().join("fanlight.yaml")).await,
        folder,
    };
    let mut stream = world.listen(ANN, r#"{"toolsListChanged":true}"#).await;
    assert!(
        !world
            .ask(Some(ANN), "tools/list", "")
            .await
            .contains("s__new")
    );
    assert!(is_result(
        &world.ask(Some(ANN), "tools/call", r#""name":"s__t""#).await
    ));
    let changed = within("the change", stream.event()).await.unwrap().unwrap();
    assert!(changed.contains(TOOLS_CHANGED), "{changed}");
    assert!(
        world
            .ask(Some(BOB), "tools/list", "")
            .await
            .contains("s__new")
    );
}
