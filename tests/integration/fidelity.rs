//! Fidelity: random JSON passes through every method and is compared byte for byte in both
//! directions, for every {client era, client transport} × {server era, server transport}. A policy
//! that permits everything makes no difference.

use std::cell::Cell;
use std::net::SocketAddr;

use fanlight_testkit::recorder::Recorder;
use fanlight_tests::slicer::{compact, elements, member, member_at, members};

use crate::clients::{Client, Exchange};
use crate::generator::{Generator, for_seeds};
use crate::recordings::{assert_plays, start_recordable};
use crate::scripted::{Backend, Era, Reply, Transport, config};

/// Seeds per combination and method.
const SEEDS: u64 = 12;

/// Members that a gateway may add to a result for a modern client (2026-07-28 basic, ResultType;
/// utilities/caching).
const MAY_BE_ADDED: [&str; 3] = ["resultType", "ttlMs", "cacheScope"];

/// `_meta` keys of a single hop, which the gateway sets itself.
const PER_HOP: [&str; 8] = [
    "io.modelcontextprotocol/protocolVersion",
    "io.modelcontextprotocol/clientInfo",
    "io.modelcontextprotocol/clientCapabilities",
    "io.modelcontextprotocol/logLevel",
    "progressToken",
    "traceparent",
    "tracestate",
    "baggage",
];

macro_rules! fidelity {
    ($($(#[$nightly:meta])? $name:ident: $client:ident over $front:ident to $server:ident over $back:ident;)*) => {
        $(mod $name {
            use super::*;

            async fn pair() -> Pair {
                pair_under("").await
            }

            async fn pair_under(policy: &'static str) -> Pair {
                Pair::start((Era::$client, Transport::$front), (Era::$server, Transport::$back), policy).await
            }

            #[tokio::test]
            async fn results() {
                results_arrive_as_sent(&pair().await).await;
            }

            #[tokio::test]
            async fn errors() {
                errors_arrive_as_sent(&pair().await).await;
            }

            #[tokio::test]
            async fn requests() {
                requests_arrive_as_sent(&pair().await).await;
            }

            #[tokio::test]
            async fn notifications() {
                notifications_arrive_as_sent(&pair().await).await;
            }

            #[tokio::test]
            async fn lists() {
                lists_arrive_as_sent(&pair().await).await;
            }

            $(#[$nightly])?
            #[tokio::test]
            async fn recordings() {
                recordings_are_played_as_sent(&pair().await).await;
            }

            #[tokio::test]
            async fn everything_under_a_policy_that_permits_everything() {
                const POLICY: &str = r#""policy":{"default":"allow"},"#;
                requests_arrive_as_sent(&pair_under(POLICY).await).await;
                notifications_arrive_as_sent(&pair_under(POLICY).await).await;
                let pair = pair_under(POLICY).await;
                results_arrive_as_sent(&pair).await;
                errors_arrive_as_sent(&pair).await;
                lists_arrive_as_sent(&pair).await;
                unlisted_items_arrive_as_sent(&pair).await;
            }

            #[tokio::test]
            async fn everything_where_large_results_would_be_shortened() {
                const RESULTS: &str = r#""endpoints":{"/mcp":{"results":{"inline":"1GiB"}}},"#;
                let pair = pair_under(RESULTS).await;
                results_arrive_as_sent(&pair).await;
                errors_arrive_as_sent(&pair).await;
                unlisted_items_arrive_as_sent(&pair).await;
                requests_arrive_as_sent(&pair_under(RESULTS).await).await;
                notifications_arrive_as_sent(&pair_under(RESULTS).await).await;
            }
        })*
    };
}

for_all_combinations!(fidelity);

const ANY_JSON: &str = "any JSON, where revisions before 2026-07-28 have an object";

/// A client, a gateway, and one scripted server.
struct Pair {
    client: tokio::sync::Mutex<Client>,
    backend: Backend,
    client_era: Era,
    /// The admin listener of the gateway.
    admin: SocketAddr,
    /// The era of the server.
    era: Era,
    /// The transport of the client.
    front: Transport,
    /// The `policy` of the configuration, if any.
    policy: &'static str,
}

impl Pair {
    async fn start(front: (Era, Transport), back: (Era, Transport), policy: &'static str) -> Self {
        let backend = Backend::start(back.0, back.1).await;
        backend.offers_tools(&["t"]);
        backend.on("prompts/list", backend.list("prompts", r#"{"name":"p"}"#));
        backend.on(
            "resources/list",
            backend.list("resources", r#"{"uri":"test://r","name":"r"}"#),
        );
        let config = config_under(policy, &backend);
        let (client, admin) = start_recordable("{}", &config, front).await;
        backend.checks().excuse(
            "GetPromptRequest",
            "/params/arguments",
            "any JSON, where the schema has strings",
        );
        client
            .checks()
            .excuse("CallToolResult", "/structuredContent", ANY_JSON);
        Self {
            client: tokio::sync::Mutex::new(client),
            backend,
            client_era: front.0,
            admin,
            era: back.0,
            front: front.1,
            policy,
        }
    }

    fn config(&self) -> String {
        config_under(self.policy, &self.backend)
    }

    async fn request(&self, id: &str, method: &str, params: &str, meta: &str) -> Exchange {
        self.client
            .lock()
            .await
            .request(id, method, params, meta)
            .await
    }
}

fn config_under(policy: &str, backend: &Backend) -> String {
    config(&[backend.entry("only")]).replacen('{', &format!("{{{policy}"), 1)
}

/// A method whose result comes from one server, with the params that reach it.
struct Routed {
    method: &'static str,
    params: &'static str,
    /// The raw members that the schema requires of its result; `{}` marks places for unknown
    /// members.
    members: &'static str,
    cacheable: bool,
}

const ROUTED: [Routed; 4] = [
    Routed {
        method: "tools/call",
        params: r#""name":"t""#,
        members: r#""content":[{"type":"text","text":"x",{}}],"isError":false,{}"#,
        cacheable: false,
    },
    Routed {
        method: "resources/read",
        params: r#""uri":"test://r""#,
        members: r#""contents":[{"uri":"test://r","text":"x",{}}],{}"#,
        cacheable: true,
    },
    Routed {
        method: "prompts/get",
        params: r#""name":"p""#,
        members: r#""messages":[{"role":"user","content":{"type":"text","text":"x",{}}}],{}"#,
        cacheable: false,
    },
    Routed {
        method: "completion/complete",
        params: r#""ref":{"type":"ref/prompt","name":"p"},"argument":{"name":"a","value":"v"}"#,
        members: r#""completion":{"values":["x"],{}},{}"#,
        cacheable: false,
    },
];

impl Routed {
    /// A result of a server of `era`, full of lexemes that decoding would change.
    ///
    /// Structured content is any JSON, but an object if a modern server has a legacy client: other
    /// values are left out for such a client (docs/eras.md).
    fn result(&self, client: Era, era: Era, random: &mut Generator) -> String {
        let parts: Vec<&str> = self.members.split("{}").collect();
        let mut text = String::new();
        for part in &parts[..parts.len() - 1] {
            text.push_str(part);
            text.push_str(&random.members());
        }
        let meta = random.object();
        let is_any = (client, era) != (Era::Legacy, Era::Modern);
        let structured = if is_any {
            random.value()
        } else {
            random.object()
        };
        text.push_str(&format!(
            r#","_meta":{meta},"structuredContent":{structured},"deep":{}"#,
            random.deep()
        ));
        if self.cacheable {
            era.cacheable(&text)
        } else {
            era.complete(&text)
        }
    }
}

async fn results_arrive_as_sent(pair: &Pair) {
    for_seeds(SEEDS, async |seed| {
        let mut random = Generator::new(seed);
        for routed in &ROUTED {
            let sent = routed.result(pair.client_era, pair.era, &mut random);
            pair.backend.on(routed.method, Reply::result(&sent));
            let id = random.id();
            let exchange = pair.request(&id, routed.method, routed.params, "").await;
            assert_eq!(exchange.member("id"), id);
            assert_same_result(
                (pair.client_era, pair.era),
                exchange.member("result"),
                &sent,
            );
        }
    })
    .await;
}

/// The identity of the legacy server that has answered, for modern clients (2026-07-28 basic,
/// Per-response protocol fields).
const SERVER_INFO: &str =
    r#""io.modelcontextprotocol/serverInfo":{"name":"scripted","version":"1"}"#;

/// The result without [`SERVER_INFO`], which is at the front of `_meta` or is all of it.
fn without_server_info(received: &str) -> String {
    let added = [
        format!(r#""_meta":{{{SERVER_INFO}}},"#),
        format!("{SERVER_INFO},"),
        SERVER_INFO.to_owned(),
    ];
    let found = added.iter().find(|added| received.contains(added.as_str()));
    received.replacen(found.expect("the server that has answered"), "", 1)
}

/// Compares a server's result with the result that the client received, given both eras.
fn assert_same_result((client, server): (Era, Era), received: &str, sent: &str) {
    let received = match (client, server) {
        (Era::Modern, Era::Legacy) => &*without_server_info(received),
        _ => received,
    };
    if let Some(difference) = difference(received, sent) {
        panic!("{difference}\nsent:     {sent}\nreceived: {received}");
    }
}

/// The differences between `received` and `sent`: every member must have its bytes and its
/// position, and only members that a modern client requires may be added.
fn difference(received: &str, sent: &str) -> Option<String> {
    let sent = members(sent)?;
    let is_added =
        |name: &str| MAY_BE_ADDED.contains(&name) && !sent.iter().any(|(known, _)| *known == name);
    let Some(mut received) = members(received) else {
        return Some("not an object".to_owned());
    };
    received.retain(|(name, _)| !is_added(name));
    let pairs = sent.iter().zip(&received);
    let changed = pairs
        .filter(|(sent, received)| sent != received)
        .map(|pair| format!("{pair:?}"))
        .next();
    changed.or_else(|| {
        (sent.len() != received.len())
            .then(|| format!("{} members, not {}", received.len(), sent.len()))
    })
}

/// Guards the comparison itself: one that never finds a difference would prove nothing.
#[test]
fn fidelity_check_detects_every_kind_of_loss() {
    let sent = r#"{"a":1.0,"s":"\u0041","n":null,"o":{"y":1,"x":[1E400]}}"#;
    assert_eq!(difference(sent, sent), None);
    let added = r#"{"resultType":"complete","a":1.0,"s":"\u0041","n":null,"o":{"y":1,"x":[1E400]},"ttlMs":0}"#;
    assert_eq!(difference(added, sent), None);
    for (from, to) in [
        ("1.0", "1"),
        (r"\u0041", "A"),
        (r#","n":null"#, ""),
        ("null", "0"),
        (r#""y":1,"x":[1E400]"#, r#""x":[1E400],"y":1"#),
        ("1E400", "1e400"),
        (r#""a":1.0"#, r#""a":1.0,"made":"up""#),
        (r#""a":1.0,"s":"\u0041""#, r#""s":"\u0041","a":1.0"#),
    ] {
        assert!(
            difference(&sent.replace(from, to), sent).is_some(),
            "{from} → {to}"
        );
    }
    assert!(
        difference(sent, &added.replace("complete", "x")).is_some(),
        "an altered member is found"
    );
}

async fn errors_arrive_as_sent(pair: &Pair) {
    for_seeds(SEEDS, async |seed| {
        let mut random = Generator::new(seed);
        for routed in &ROUTED {
            let (message, data, unknown) = (random.string(), random.value(), random.members());
            let sent = format!(r#"{{"code":4711,"message":{message},"data":{data},{unknown}}}"#);
            pair.backend.on(routed.method, Reply::error(&sent));
            let id = random.id();
            let exchange = pair.request(&id, routed.method, routed.params, "").await;
            assert_eq!(exchange.member("id"), id);
            assert_eq!(exchange.member("error"), sent);
        }
    })
    .await;
}

async fn requests_arrive_as_sent(pair: &Pair) {
    let calls = Cell::new(0);
    for_seeds(SEEDS, async |seed| {
        let mut random = Generator::new(seed);
        for routed in &ROUTED {
            pair.backend.on(
                routed.method,
                Reply::result(routed.result(pair.client_era, pair.era, &mut random)),
            );
            let (arguments, unknown, meta) = (random.object(), random.members(), random.members());
            let params = format!(r#"{},"arguments":{arguments},{unknown}"#, routed.params);
            pair.request("1", routed.method, &params, &meta).await;
            let all = pair.backend.received(routed.method);
            if routed.method == "tools/call" {
                calls.set(calls.get() + 1);
                assert_eq!(all.len(), calls.get(), "one call, sent once");
            }
            let received = all.last().unwrap();
            let wrapped = [format!("{{{params}}}"), format!("{{{meta}}}")];
            for (name, value) in members(&wrapped[0]).unwrap() {
                assert_eq!(
                    received.member_at(&["params", name]),
                    Some(value),
                    "params.{name} in {}",
                    received.text
                );
            }
            for (name, value) in members(&wrapped[1]).unwrap() {
                let arrived = received.member_at(&["params", "_meta", name]);
                assert_eq!(
                    arrived,
                    Some(value),
                    "params._meta.{name} in {}",
                    received.text
                );
            }
            let known: Vec<&str> = members(&wrapped[1])
                .unwrap()
                .iter()
                .map(|(name, _)| *name)
                .collect();
            let arrived = received
                .member_at(&["params", "_meta"])
                .and_then(members)
                .unwrap_or_default();
            for (name, _) in arrived {
                assert!(
                    known.contains(&name) || PER_HOP.contains(&name),
                    "`{name}` was made up: {}",
                    received.text
                );
            }
        }
    })
    .await;
}

async fn notifications_arrive_as_sent(pair: &Pair) {
    let progress_token = r#""\u0074oken""#;
    pair.client.lock().await.progress_token = progress_token.to_owned();
    for_seeds(SEEDS, async |seed| {
        let mut random = Generator::new(seed);
        let progress_members = format!(r#""progress":1.0,"total":1e1,{}"#, random.members());
        let progress = format!(
            r#"{{"jsonrpc":"2.0","method":"notifications/progress","params":{{"progressToken":{{token}},{progress_members}}}}}"#
        );
        let result = ROUTED[0].result(pair.client_era, pair.era, &mut random);
        pair.backend.on("tools/call", Reply::result(&result).after(&[&progress]));
        let exchange = pair.request("1", "tools/call", r#""name":"t""#, "").await;
        assert_same_result((pair.client_era, pair.era), exchange.member("result"), &result);
        assert_eq!(exchange.before.len(), 1, "{:?}", exchange.before);
        let params = member(&exchange.before[0], "params").unwrap();
        assert_eq!(member(params, "progressToken"), Some(progress_token));
        for (name, value) in members(&format!("{{{progress_members}}}")).unwrap() {
            assert_eq!(member_at(params, &[name]), Some(value));
        }
    })
    .await;
}

const LISTS: [(&str, &str, &str); 4] = [
    (
        "tools/list",
        "tools",
        r#""name":"t","inputSchema":{"type":"object"}"#,
    ),
    (
        "resources/list",
        "resources",
        r#""uri":"test://r","name":"r""#,
    ),
    (
        "resources/templates/list",
        "resourceTemplates",
        r#""uriTemplate":"test://{x}","name":"r""#,
    ),
    ("prompts/list", "prompts", r#""name":"p""#),
];

async fn lists_arrive_as_sent(pair: &Pair) {
    let mut random = Generator::new(SEEDS);
    let era = pair.client.lock().await.era;
    for (method, list, required) in LISTS {
        let entry = format!("{{{required},{}}}", random.members());
        pair.backend.on(method, pair.backend.list(list, &entry));
        // A separate gateway for each list, since the catalogue may be cached.
        let mut fresh = Client::start(&pair.config(), era, pair.front).await;
        let exchange = fresh.request("1", method, "", "").await;
        let received = elements(exchange.member(&format!("result.{list}"))).unwrap();
        assert_eq!(received, [entry.as_str()], "{method}");
    }
}

/// A recording of all that is the same bytes in a mock, and nothing differs in a replay.
async fn recordings_are_played_as_sent(pair: &Pair) {
    let mut random = Generator::new(SEEDS);
    for (method, list, required) in LISTS {
        let entry = format!("{{{required},{}}}", random.members());
        pair.backend.on(method, pair.backend.list(list, &entry));
        // Lists that are read concurrently would have no order.
        pair.request("1", method, "", "").await;
    }
    let recorder = Recorder::start(pair.admin, &[]).await;
    for (method, ..) in LISTS {
        pair.request("1", method, "", "").await;
    }
    requests_arrive_as_sent(pair).await;
    results_arrive_as_sent(pair).await;
    errors_arrive_as_sent(pair).await;
    notifications_arrive_as_sent(pair).await;
    let text = recorder.finish().await;
    assert_plays(&text, (pair.client_era, pair.era), "{}").await;
}

/// Items that no list has reach the server, and its answers the client.
async fn unlisted_items_arrive_as_sent(pair: &Pair) {
    const ERROR: &str = r#"{"code":4711,"message":"x","data":{"k":1.0}}"#;
    for (method, params) in [
        ("tools/call", r#""name":"unlisted","arguments":{}"#),
        ("prompts/get", r#""name":"unlisted""#),
        ("resources/read", r#""uri":"made:x%41#y""#),
        ("example/unheard-of", r#""name":"t""#),
    ] {
        pair.backend.on(method, Reply::error(ERROR));
        let exchange = pair.request("1", method, params, "").await;
        let sent = pair.backend.received(method);
        let sent = sent.last().expect("the server gets it");
        for (name, value) in members(&format!("{{{params}}}")).unwrap() {
            assert_eq!(sent.member_at(&["params", name]), Some(value), "{method}");
        }
        let received = exchange.member("error.message");
        assert_eq!(received, r#""x""#, "{method}");
    }
}

/// With several servers only the identifying name of an entry changes; results stay unchanged.
#[tokio::test]
async fn several_backends_change_only_names() {
    let mut random = Generator::new(7);
    let legacy = Backend::start(Era::Legacy, Transport::Stdio).await;
    let modern = Backend::start(Era::Modern, Transport::Http).await;
    let mut entries = Vec::new();
    for backend in [&legacy, &modern] {
        let unknown = random.members();
        backend.on(
            "tools/list",
            backend.list(
                "tools",
                &format!(r#"{{"name":"t","inputSchema":{{"type":"object"}},{unknown}}}"#),
            ),
        );
        entries.push(unknown);
    }
    let config = config(&[legacy.entry("old"), modern.entry("new")]);
    for era in [Era::Legacy, Era::Modern] {
        let mut client = Client::start(&config, era, Transport::Http).await;
        client
            .checks()
            .excuse("CallToolResult", "/structuredContent", ANY_JSON);
        let exchange = client.request("1", "tools/list", "", "").await;
        let tools = elements(exchange.member("result.tools")).unwrap();
        let expected: Vec<String> = [("old__t", &entries[0]), ("new__t", &entries[1])]
            .iter()
            .map(|(name, unknown)| {
                format!(r#"{{"name":"{name}","inputSchema":{{"type":"object"}},{unknown}}}"#)
            })
            .collect();
        assert_eq!(tools, expected);
        for (backend, server_era, tool) in [
            (&legacy, Era::Legacy, "old__t"),
            (&modern, Era::Modern, "new__t"),
        ] {
            let sent = ROUTED[0].result(era, server_era, &mut random);
            backend.on("tools/call", Reply::result(&sent));
            let exchange = client.call(tool).await;
            assert_same_result((era, server_era), exchange.member("result"), &sent);
            assert_eq!(
                backend
                    .received("tools/call")
                    .last()
                    .unwrap()
                    .member("params.name"),
                Some(r#""t""#)
            );
        }
    }
}

/// White space changes only if a transport forbids it.
#[tokio::test]
async fn line_breaks_pass_on_transports_that_allow_them() {
    for transport in [Transport::Http, Transport::Stdio] {
        let pair = Pair::start((Era::Modern, Transport::Http), (Era::Modern, transport), "").await;
        for_seeds(SEEDS, async |seed| {
            let mut random = Generator::with_line_breaks(seed);
            let arguments = random.object();
            if transport == Transport::Http {
                let sent =
                    Era::Modern.complete(&format!("\"content\":[],\r\n\"x\":{}", random.value()));
                pair.backend.on("tools/call", Reply::result(&sent));
                let params = format!(r#""name":"t","arguments":{arguments}"#);
                let exchange = pair.request("1", "tools/call", &params, "").await;
                assert_eq!(exchange.member("result"), sent);
                let received = pair.backend.received("tools/call");
                assert_eq!(
                    received.last().unwrap().member("params.arguments"),
                    Some(arguments.as_str())
                );
            } else {
                pair.backend.on(
                    "tools/call",
                    Reply::result(Era::Modern.complete(r#""content":[]"#)),
                );
                let params = format!(r#""name":"t","arguments":{arguments}"#);
                pair.request("1", "tools/call", &params, "").await;
                let received = pair.backend.received("tools/call");
                let arrived = received.last().unwrap().member("params.arguments").unwrap();
                assert_eq!(compact(arrived), compact(&arguments));
            }
        })
        .await;
    }
}

/// An unknown method is forwarded if there is one server; with several it is refused (see
/// `http_rules`).
#[tokio::test]
async fn unknown_method_passes_with_one_backend() {
    let pair = Pair::start(
        (Era::Modern, Transport::Http),
        (Era::Modern, Transport::Http),
        "",
    )
    .await;
    for_seeds(SEEDS, async |seed| {
        let mut random = Generator::new(seed);
        let (params, members_sent) = (random.members(), random.members());
        let sent = Era::Modern.complete(&members_sent);
        pair.backend.on("example/unheard-of", Reply::result(&sent));
        let exchange = pair.request("1", "example/unheard-of", &params, "").await;
        assert_eq!(exchange.member("result"), sent);
        let received = pair.backend.received("example/unheard-of");
        for (name, value) in members(&format!("{{{params}}}")).unwrap() {
            assert_eq!(
                received.last().unwrap().member_at(&["params", name]),
                Some(value)
            );
        }
    })
    .await;
}
