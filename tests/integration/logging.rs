//! Server log messages to clients, standard error of servers in the log, and client notifications
//! without effect.

use fanlight_testkit::ports::Refusing;
use fanlight_tests::slicer::{member, member_at};

use crate::clients::{Client, Exchange};
use crate::faults::backend;
use crate::harness::{Gateway, within};
use crate::raw_client::{MODERN, legacy_request, modern_request, post, post_modern};
use crate::scripted::{Backend, Era, Reply, Transport, config};
use crate::server_lives::text_at;

const ERAS: [Era; 2] = [Era::Legacy, Era::Modern];
const TRANSPORTS: [Transport; 2] = [Transport::Http, Transport::Stdio];
const LEVEL_KEY: &str = "io.modelcontextprotocol/logLevel";

/// A log message with unknown members, and lexemes that decoding would change.
fn message(level: &str) -> String {
    format!(
        r#"{{"jsonrpc":"2.0","method":"notifications/message","params":{{"x":1.0,"level":"{level}","logger":"l\u0041","data":{{"n":1E400}}}}}}"#
    )
}

/// A server that logs at four levels before it responds to a call.
async fn talkative(era: Era, transport: Transport) -> Backend {
    let talkative = backend(era, transport).await;
    let messages = ["debug", "info", "warning", "error"].map(message);
    let messages = messages.each_ref().map(String::as_str);
    talkative.on(
        "tools/call",
        Reply::result(era.complete(r#""content":[]"#)).after(&messages),
    );
    talkative.on("logging/setLevel", Reply::result("{}"));
    talkative
}

/// Calls a tool and requests log messages from `level` on, in the form of the client's era.
async fn call_with_level(client: &mut Client, tool: &str, level: &str) -> Exchange {
    let params = format!(r#""name":"{tool}","arguments":{{}}"#);
    match client.era {
        Era::Modern => {
            client
                .request(
                    "1",
                    "tools/call",
                    &params,
                    &format!(r#""{LEVEL_KEY}":"{level}""#),
                )
                .await
        }
        Era::Legacy => {
            let set = client
                .request(
                    "0",
                    "logging/setLevel",
                    &format!(r#""level":"{level}""#),
                    "",
                )
                .await;
            assert_eq!(set.member("result"), "{}");
            client.request("1", "tools/call", &params, "").await
        }
    }
}

#[tokio::test]
async fn log_messages_of_the_requested_level_precede_the_response() {
    for (front, back) in ERAS
        .iter()
        .flat_map(|front| ERAS.iter().map(move |back| (*front, *back)))
    {
        for (near, far) in TRANSPORTS
            .iter()
            .flat_map(|near| TRANSPORTS.iter().map(move |far| (*near, *far)))
        {
            let cell = format!("{front:?} client over {near:?}, {back:?} server over {far:?}");
            let only = talkative(back, far).await;
            let mut client = Client::start(&config(&[only.entry("only")]), front, near).await;
            let exchange = call_with_level(&mut client, "t", "warning").await;
            exchange.member("result");
            assert_eq!(
                exchange.before,
                [message("warning"), message("error")],
                "{cell}"
            );
            assert_level_reached(&only, back, r#""warning""#, &cell);
            if front == Era::Modern {
                // The level belongs to a request: a request without one gets no messages.
                assert_eq!(
                    client.call("t").await.before,
                    Vec::<String>::new(),
                    "{cell}"
                );
            }
        }
    }
}

/// Checks that the server has received the level in the form of its era.
fn assert_level_reached(server: &Backend, era: Era, level: &str, cell: &str) {
    let calls = server.received("tools/call");
    let with_call = calls[0].member_at(&["params", "_meta", LEVEL_KEY]);
    let set = server.received("logging/setLevel");
    let set: Vec<_> = set
        .iter()
        .map(|request| request.member("params.level").unwrap())
        .collect();
    match era {
        Era::Modern => assert_eq!((with_call, set), (Some(level), vec![]), "{cell}"),
        Era::Legacy => assert_eq!((with_call, set), (None, vec![level]), "{cell}"),
    }
}

#[tokio::test]
async fn legacy_client_without_a_level_gets_all_log_messages() {
    for (near, far) in TRANSPORTS
        .iter()
        .flat_map(|near| TRANSPORTS.iter().map(move |far| (*near, *far)))
    {
        let only = talkative(Era::Legacy, far).await;
        let mut client = Client::start(&config(&[only.entry("only")]), Era::Legacy, near).await;
        assert_eq!(client.call("t").await.before.len(), 4, "{near:?} {far:?}");
        assert!(only.received("logging/setLevel").is_empty());
    }
}

#[tokio::test]
async fn log_level_reaches_every_server_with_logging() {
    for near in TRANSPORTS {
        let (first, second) = (
            talkative(Era::Legacy, Transport::Stdio).await,
            talkative(Era::Legacy, Transport::Http).await,
        );
        let modern = talkative(Era::Modern, Transport::Http).await;
        let entries = [
            first.entry("first"),
            second.entry("second"),
            modern.entry("modern"),
        ];
        let mut client = Client::start(&config(&entries), Era::Legacy, near).await;
        for (name, server, era) in [
            ("first", &first, Era::Legacy),
            ("second", &second, Era::Legacy),
            ("modern", &modern, Era::Modern),
        ] {
            let exchange = call_with_level(&mut client, &format!("{name}__t"), "error").await;
            assert_eq!(exchange.before, [message("error")], "{name}");
            let with_call = server.received("tools/call")[0]
                .member_at(&["params", "_meta", LEVEL_KEY])
                .is_some();
            assert_eq!(with_call, era == Era::Modern, "{name}");
        }
        for server in [&first, &second] {
            let set = server.received("logging/setLevel");
            assert_eq!(set[0].member("params.level"), Some(r#""error""#));
        }
        assert!(modern.received("logging/setLevel").is_empty());
        let refused = client
            .request("9", "logging/setLevel", r#""level":"loud""#, "")
            .await;
        assert_eq!(refused.member("error.code"), "-32602");
    }
}

#[tokio::test]
async fn response_to_set_level_passes_and_so_does_an_error() {
    let only = backend(Era::Legacy, Transport::Http).await;
    only.on("logging/setLevel", Reply::result(r#"{"x":1.0}"#));
    let mut client =
        Client::start(&config(&[only.entry("only")]), Era::Legacy, Transport::Http).await;
    let set = client
        .request("1", "logging/setLevel", r#""level":"alert","y":2.0"#, "")
        .await;
    assert_eq!(set.member("result"), r#"{"x":1.0}"#);
    assert_eq!(
        only.received("logging/setLevel")[0].member("params.y"),
        Some("2.0")
    );
    only.on(
        "logging/setLevel",
        Reply::error(r#"{"code":-32601,"message":"no","data":1E2}"#),
    );
    let refused = client
        .request("2", "logging/setLevel", r#""level":"alert""#, "")
        .await;
    assert_eq!(
        refused.member("error"),
        r#"{"code":-32601,"message":"no","data":1E2}"#
    );
}

/// A session must not receive messages that another one requested, whether each has its own session
/// at the server or both share one level there.
#[tokio::test]
async fn sessions_have_their_own_log_levels() {
    for shared in [false, true] {
        let only = talkative(Era::Legacy, Transport::Http).await;
        let option = if shared {
            r#"{"session":"shared","#
        } else {
            "{"
        };
        let gateway = Gateway::start(&config(&[only.entry("only").replacen('{', option, 1)])).await;
        let quiet = crate::raw_client::LegacySession::open(gateway.mcp).await;
        let curious = crate::raw_client::LegacySession::open(gateway.mcp).await;
        for (session, level) in [(&quiet, "error"), (&curious, "debug"), (&quiet, "error")] {
            let set = legacy_request("1", "logging/setLevel", &format!(r#""level":"{level}""#));
            assert_eq!(session.post(&set).await.status, 200);
        }
        let call = legacy_request("2", "tools/call", r#""name":"t""#);
        let (for_curious, _) = curious.post(&call).await.messages().await;
        assert_eq!(for_curious.len(), 4);
        let (for_quiet, _) = quiet.post(&call).await.messages().await;
        assert_eq!(for_quiet, [message("error")]);
        let levels = only.received("logging/setLevel");
        let levels: Vec<_> = levels
            .iter()
            .map(|set| set.member("params.level").unwrap().trim_matches('"'))
            .collect();
        match shared {
            true => assert_eq!(
                levels.last(),
                Some(&"debug"),
                "the level is raised again for a call"
            ),
            false => assert_eq!(
                levels,
                ["error", "debug", "error"],
                "each level goes to its own session and stays"
            ),
        }
    }
}

#[tokio::test]
async fn stderr_of_a_child_is_logged_with_its_name_and_cannot_forge_log_lines() {
    let (noisy, quiet) = (
        backend(Era::Legacy, Transport::Stdio).await,
        backend(Era::Modern, Transport::Stdio).await,
    );
    let complaint = b"first \x1b[2J\x07\xffsecond\r\nthird\n";
    noisy.on(
        "tools/call",
        Reply::result("{\"content\":[]}").complaining(complaint),
    );
    let entries = [noisy.entry("noisy"), quiet.entry("quiet")];
    let gateway =
        Gateway::start_with(&config(&entries), &["--log", "info,fanlight::child=debug"]).await;
    let call = modern_request("1", "tools/call", r#""name":"noisy__t""#, "");
    assert!(
        post_modern(gateway.mcp, &call)
            .await
            .messages()
            .await
            .1
            .contains("result")
    );
    for part in ["second", "third"] {
        let line = gateway.log.line_with(part).await;
        let logged = line.strip_prefix("err| ").expect("on standard error");
        assert_eq!(
            member(logged, "fields.backend"),
            Some(r#""noisy""#),
            "{line}"
        );
        assert_eq!(
            member_at(logged, &["target"]),
            Some(r#""fanlight::child""#),
            "{line}"
        );
        // The log contains the secret neither verbatim nor in JSON's escapes.
        let message: String =
            serde_json::from_str(member(logged, "fields.message").unwrap()).unwrap();
        assert!(
            ![logged, &message]
                .iter()
                .any(|text| text.contains(char::is_control)),
            "{line}"
        );
    }
}

/// Each of the servers is tried many times.
#[tokio::test]
async fn servers_that_are_down_are_logged_once_and_not_with_each_attempt() {
    let refusing = Refusing::any();
    let path = "/nowhere/to/be/shown";
    let config = format!(
        r#"{{"mcpServers":{{
            "refusing":{{"url":"http://127.0.0.1:{}/mcp"}},
            "missing":{{"command":"no-such-program","env":{{"PATH":"{path}"}},"start":"eager"}},
            "ending":{{"command":"sh","args":["-c","echo one; echo two >&2; echo three >&2; exit 3"],"start":"eager"}}
        }},"x-limits":"startAttempts=0,reconnect=20ms,reconnectMax=20ms"}}"#,
        refusing.address.port()
    );
    let gateway = Gateway::start(&config).await;
    let failed = async |name: &str| {
        let metrics = text_at(&gateway, "/metrics").await;
        let head = format!(
            "fanlight_backend_failed_connections_total{{fanlight_backend_name=\"{name}\"}} "
        );
        let count = metrics
            .lines()
            .find_map(|line| line.strip_prefix(&head)?.parse::<u32>().ok());
        count.unwrap_or_default()
    };
    for name in ["refusing", "missing", "ending"] {
        within("attempts to connect", async {
            while failed(name).await < 10 {
                tokio::time::sleep(std::time::Duration::from_millis(20)).await;
            }
        })
        .await;
        let log = gateway.log.text();
        let about = |line: &&str| {
            line.contains("is down") && line.contains(&format!("\"backend\":\"{name}\""))
        };
        let lines: Vec<&str> = log.lines().filter(about).collect();
        let [line] = &lines[..] else {
            panic!("{name}: {} lines: {lines:#?}", lines.len())
        };
        assert!(
            line.contains(r#""retry_in":"0.0 s""#) && !line.contains(path),
            "{line}"
        );
    }
    assert!(gateway.terminate().await.success());
}

#[tokio::test]
async fn unknown_notifications_are_harmless() {
    const ODD: [&str; 4] = [
        r#"{"jsonrpc":"2.0","method":"notifications/unheard_of","params":{"x":1.0}}"#,
        r#"{"jsonrpc":"2.0","method":"notifications/cancelled"}"#,
        r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":{"a":1}}}"#,
        r#"{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":1,"progress":1}}"#,
    ];
    for (era, transport) in ERAS
        .iter()
        .flat_map(|era| TRANSPORTS.iter().map(move |transport| (*era, *transport)))
    {
        let only = backend(Era::Legacy, Transport::Stdio).await;
        let mut client = Client::start(&config(&[only.entry("only")]), era, transport).await;
        for odd in ODD {
            match (transport, era) {
                (Transport::Stdio, _) => client.stdio().send(odd).await,
                (Transport::Http, Era::Legacy) => {
                    assert_eq!(client.session().post(odd).await.status, 202, "{odd}");
                }
                (Transport::Http, Era::Modern) => {
                    let address = client.address();
                    let sent = post(address, &[("MCP-Protocol-Version", MODERN)], odd).await;
                    assert_eq!(sent.status, 202, "{odd}");
                }
            }
        }
        let exchange = client.call("t").await;
        exchange.member("result");
        assert!(
            exchange.before.is_empty(),
            "notifications are not answered: {:?}",
            exchange.before
        );
        assert!(
            only.received("notifications/unheard_of").len() <= 1,
            "it is kept for the connection of its session, and sent once"
        );
    }
}
