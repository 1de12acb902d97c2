//! Three clients under a policy: each client uses each item, in both eras, over HTTP and stdio,
//! with one server and with several.

use std::fs;

use fanlight_testkit::signing_in::{ANN, BOB};
use fanlight_tests::slicer::member;

use crate::harness::{Gateway, TempFile, within};
use crate::raw_client::{
    Connection, INITIALIZED, JSON_HEADERS, LISTEN, NEWEST_LEGACY, Response, StdioClient,
    initialize, legacy_request, modern_headers, modern_request,
};
use crate::scripted::{Backend, Era, Reply, Transport};

const EVE: &str = "fanlight_22222222222222222222222222222222222222222220GCs6i";
/// The keys. Ann is in the group `lead`.
const KEYS: &str = "keys:\n  \
    - {name: ann, groups: [lead], sha256: \"319df4a3b61d5bb066d9f39d281dfaded068e99f7eb27b087b1377a9f9bd7fe1\"}\n  \
    - {name: bob, groups: [staff], sha256: \"c248b665096075b86cb84ea6f8a002fdafb7dfafee0aaa809a063ba852efe6b2\"}\n  \
    - {name: eve, groups: [staff, guests], sha256: \"f13749afc55278cffc8e92d9c3ba5041d2be4d803dd7c5d82a57f207d44223df\"}\n";

/// Everybody but Ann is restricted: things called `shut` on the server `a` do not exist, some
/// arguments are denied, and `ask` needs approval. Eve may neither complete nor subscribe. An
/// unauthenticated client, as over stdio, has Bob's rights.
const POLICIES: &str = r#"
    permit(principal, action, resource);
    forbid(principal, action, resource in Server::"a") when { resource.name like "*shut*" }
        unless { principal in Group::"lead" };
    forbid(principal, action in [Action::"call", Action::"get"], resource) when {
        resource.name == "args" && context.arguments has p && context.arguments.p == "no"
    } unless { principal in Group::"lead" };
    forbid(principal in Group::"guests", action in [Action::"complete", Action::"subscribe"], resource);
    forbid(principal, action, resource in Endpoint::"/mcp/lead") unless { principal in Group::"lead" };
    @ask("Sure?") permit(principal, action == Action::"call", resource == Tool::"a/ask") unless { principal in Group::"lead" };
"#;

/// The outcome of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outcome {
    Done,
    /// The item does not exist for the client.
    Unknown,
    /// The policy denies these arguments.
    Denied,
    /// The call needs approval.
    Asked,
}

use Outcome::{Asked, Denied, Done, Unknown};

impl Outcome {
    fn read(answer: &str) -> Self {
        match member(answer, "error.code") {
            None if member(answer, "result").is_some() => Done,
            Some("-31005") => Denied,
            Some("-31007") => Asked,
            Some("-32602" | "-32002" | "-32601") => Unknown,
            _ => panic!("{answer}"),
        }
    }
}

/// A request, and its outcome for Ann, Bob and Eve.
struct Use {
    method: &'static str,
    params: String,
    outcomes: [Outcome; 3],
}

/// The uses of all items of the servers. With several servers, clients know names with a prefix.
fn uses(servers: usize) -> Vec<Use> {
    let prefix = if servers > 1 { "a__" } else { "" };
    let row = |method, params: String, outcomes| Use {
        method,
        params,
        outcomes,
    };
    let named = |name: &str| format!(r#""name":"{prefix}{name}""#);
    let with =
        |name: &str, p: &str| format!(r#""name":"{prefix}{name}","arguments":{{"p":"{p}"}}"#);
    let reference = |name: &str| {
        format!(
            r#""ref":{{"type":"ref/prompt","name":"{prefix}{name}"}},"argument":{{"name":"p","value":""}}"#
        )
    };
    let template = |uri: &str| {
        format!(
            r#""ref":{{"type":"ref/resource","uri":"{uri}"}},"argument":{{"name":"p","value":""}}"#
        )
    };
    let uri = |uri: &str| format!(r#""uri":"{uri}""#);
    let mut all = vec![
        row("tools/call", named("open"), [Done; 3]),
        row("tools/call", named("shut"), [Done, Unknown, Unknown]),
        row("tools/call", named("ask"), [Done, Asked, Asked]),
        row("tools/call", with("args", "yes"), [Done; 3]),
        row("tools/call", with("args", "no"), [Done, Denied, Denied]),
        row("tools/call", named("solo"), [Done; 3]),
        row("prompts/get", named("open"), [Done; 3]),
        row("prompts/get", named("shut"), [Done, Unknown, Unknown]),
        row("prompts/get", with("args", "no"), [Done, Denied, Denied]),
        row("resources/read", uri("file:///open"), [Done; 3]),
        // The result of `open` links to this resource.
        row(
            "resources/read",
            uri("file:///shut"),
            [Done, Unknown, Unknown],
        ),
        row(
            "completion/complete",
            reference("open"),
            [Done, Done, Unknown],
        ),
        row(
            "completion/complete",
            reference("shut"),
            [Done, Unknown, Unknown],
        ),
        row(
            "completion/complete",
            template("file:///open/{p}"),
            [Done, Done, Unknown],
        ),
        row(
            "completion/complete",
            template("file:///shut/{p}"),
            [Done, Unknown, Unknown],
        ),
        row(
            "resources/subscribe",
            uri("file:///open"),
            [Done, Done, Unknown],
        ),
        row(
            "resources/subscribe",
            uri("file:///shut"),
            [Done, Unknown, Unknown],
        ),
        row("skills/get", uri("skill://open/SKILL.md"), [Done; 3]),
        row(
            "skills/get",
            uri("skill://shut/SKILL.md"),
            [Done, Unknown, Unknown],
        ),
        row("resources/read", uri("skill://open/SKILL.md"), [Done; 3]),
        row(
            "resources/read",
            uri("skill://shut/SKILL.md"),
            [Done, Unknown, Unknown],
        ),
    ];
    if servers > 1 {
        all.extend([
            // The policy is about the other server only.
            row("tools/call", r#""name":"b__shut""#.to_owned(), [Done; 3]),
            row("prompts/get", r#""name":"b__shut""#.to_owned(), [Done; 3]),
            row("resources/read", uri("file://fanlight--b//shut"), [Done; 3]),
            row("resources/read", uri("file://fanlight--b//open"), [Done; 3]),
            // Apps use names without a prefix.
            row("tools/call", r#""name":"solo""#.to_owned(), [Done; 3]),
            row(
                "tools/call",
                r#""name":"solo-shut""#.to_owned(),
                [Done, Unknown, Unknown],
            ),
        ]);
    }
    all
}

async fn server(era: Era, more: &[&str]) -> Backend {
    let backend = Backend::start(era, Transport::Http).await;
    backend.declares(
        r#"{"tools":{},"prompts":{},"resources":{"subscribe":true},"completions":{},"extensions":{"io.modelcontextprotocol/skills":{}}}"#,
    );
    backend.offers_tools(&[&["open", "shut", "ask", "args"], more].concat());
    let named = |name: &str| format!(r#"{{"name":"{name}"}}"#);
    backend.on(
        "prompts/list",
        backend.list("prompts", &["open", "shut", "args"].map(named).join(",")),
    );
    let resource = |name: &str| format!(r#"{{"uri":"file:///{name}","name":"{name}"}}"#);
    backend.on(
        "resources/list",
        backend.list("resources", &["open", "shut"].map(resource).join(",")),
    );
    let template =
        |name: &str| format!(r#"{{"uriTemplate":"file:///{name}/{{p}}","name":"{name}"}}"#);
    let templates = ["open", "shut"].map(template).join(",");
    backend.on(
        "resources/templates/list",
        backend.list("resourceTemplates", &templates),
    );
    let skill = |name: &str| {
        let file = format!(r#"{{"uri":"skill://{name}/SKILL.md"}}"#);
        format!(
            r#"{{"uri":"skill://{name}/SKILL.md","frontmatter":{{"name":"{name}"}},"resources":[{file}]}}"#
        )
    };
    backend.on(
        "skills/list",
        backend.list("skills", &["open", "shut"].map(skill).join(",")),
    );
    backend.on(
        "skills/get",
        Reply::result(era.complete(&format!(r#""skill":{}"#, skill("open")))),
    );
    let link = r#""content":[{"type":"resource_link","uri":"file:///shut","name":"shut"}]"#;
    backend.on("tools/call", Reply::result(era.complete(link)));
    backend.on(
        "prompts/get",
        Reply::result(era.complete(r#""messages":[]"#)),
    );
    // A modern server permits caching the contents and sharing them between clients.
    let contents = match era {
        Era::Legacy => r#"{"contents":[]}"#.to_owned(),
        Era::Modern => {
            r#"{"resultType":"complete","contents":[],"ttlMs":60000,"cacheScope":"public"}"#
                .to_owned()
        }
    };
    backend.on("resources/read", Reply::result(contents));
    backend.on("resources/subscribe", Reply::result(era.complete("")));
    backend.on(
        "completion/complete",
        Reply::result(era.complete(r#""completion":{"values":[]}"#)),
    );
    if era == Era::Modern {
        backend.on(LISTEN, Reply::listening());
    }
    backend
}

/// A gateway with the policies in front of one or two servers.
struct Scene {
    servers: Vec<Backend>,
    folder: TempFile,
}

impl Scene {
    async fn new(era: Era, servers: usize) -> Self {
        let folder = TempFile::folder();
        let mut all = vec![server(era, &["solo", "solo-shut"]).await];
        if servers > 1 {
            all.push(server(era, &[]).await);
        }
        fs::write(folder.path().join("keys.yaml"), KEYS).unwrap();
        fs::write(folder.path().join("p.cedar"), POLICIES).unwrap();
        Self {
            servers: all,
            folder,
        }
    }

    fn config(&self, auth: &str) -> String {
        let names = ["a", "b"].iter().zip(&self.servers);
        let entries: Vec<_> = names.map(|(name, server)| server.entry(name)).collect();
        let policies = self.folder.path().join("*.cedar");
        format!(
            r#"{{{auth}"timeouts":{{"approval":"10ms"}},"policy":{{"files":["{}"]}},"endpoints":{{"/mcp":{{}},"/mcp/lead":{{}},"/mcp/lean":{{"lean":{{"groups":{{"closed":["*shut*"]}}}}}}}},"mcpServers":{{{}}}}}"#,
            policies.display(),
            entries.join(",")
        )
    }

    async fn over_http(&self) -> Gateway {
        let path = self.folder.path().join("fanlight.json");
        fs::write(
            &path,
            self.config(r#""auth":{"keys":{"file":"keys.yaml"}},"#),
        )
        .unwrap();
        Gateway::start_at(path).await
    }
}

/// A client over HTTP; a legacy client has a session.
struct HttpClient<'a> {
    gateway: &'a Gateway,
    path: &'a str,
    key: &'a str,
    session: Option<String>,
}

impl<'a> HttpClient<'a> {
    async fn new(gateway: &'a Gateway, path: &'a str, key: &'a str, era: Era) -> Self {
        let mut client = Self {
            gateway,
            path,
            key,
            session: None,
        };
        if era == Era::Legacy {
            let mut opened = client.send(&[], &initialize(NEWEST_LEGACY, "{}")).await;
            client.session = Some(
                opened
                    .header("mcp-session-id")
                    .expect("a session")
                    .to_owned(),
            );
            opened.text().await;
            assert_eq!(client.send(&[], INITIALIZED).await.status, 202);
        }
        client
    }

    async fn send(&self, headers: &[(&str, &str)], body: &str) -> Response {
        let bearer = format!("Bearer {}", self.key);
        let mut all = [&JSON_HEADERS[..], headers, &[("Authorization", &bearer)]].concat();
        if let Some(session) = &self.session {
            all.extend([
                ("Mcp-Session-Id", session.as_str()),
                ("MCP-Protocol-Version", NEWEST_LEGACY),
            ]);
        }
        let mut connection = Connection::open(self.gateway.mcp).await;
        connection
            .request("POST", self.path, &all, body.as_bytes())
            .await;
        within("an answer", connection.response()).await
    }

    async fn modern(&self, method: &str, params: &str) -> Response {
        let body = modern_request("1", method, params, "");
        let headers = modern_headers(&body);
        let headers: Vec<_> = headers
            .iter()
            .map(|(name, value)| (name.as_str(), value.as_str()))
            .collect();
        self.send(&headers, &body).await
    }

    async fn ask(&self, method: &str, params: &str) -> String {
        match self.session {
            Some(_) => {
                self.send(&[], &legacy_request("1", method, params))
                    .await
                    .messages()
                    .await
                    .1
            }
            None => self.modern(method, params).await.messages().await.1,
        }
    }
}

/// Nothing that a client may not call is listed, found, described or counted, and calls through
/// `call_tool` have the outcomes of direct ones.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lean_list_gives_each_client_only_permitted_tools() {
    for (server, servers) in [(Era::Legacy, 1), (Era::Modern, 2)] {
        let scene = Scene::new(server, servers).await;
        let gateway = scene.over_http().await;
        for era in [Era::Legacy, Era::Modern] {
            for (at, key) in [ANN, BOB, EVE].into_iter().enumerate() {
                let client = HttpClient::new(&gateway, "/mcp/lean", key, era).await;
                let list = client.ask("tools/list", "").await;
                assert_eq!(list.contains(", 6 tools"), at == 0, "{list}");
                let named =
                    |arguments: &str| format!(r#""name":"find_tools","arguments":{arguments}"#);
                let mut answers = vec![list];
                for arguments in [
                    "{}",
                    r#"{"group":"nope"}"#,
                    r#"{"group":"a","limit":50}"#,
                    r#"{"query":"shut open ask","limit":50}"#,
                ] {
                    answers.push(client.ask("tools/call", &named(arguments)).await);
                }
                let shut = if servers == 1 { "shut" } else { "a__shut" };
                let closed = answers[3].contains(shut) && answers[4].contains(shut);
                assert_eq!(closed, at == 0, "{answers:?}");
                if at > 0 && servers == 1 {
                    let all = answers.concat();
                    assert!(!all.contains("shut") && !all.contains("closed"), "{all}");
                }
                for Use {
                    params, outcomes, ..
                } in uses(servers)
                    .into_iter()
                    .filter(|it| it.method == "tools/call")
                {
                    let through = format!(r#""name":"call_tool","arguments":{{{params}}}"#);
                    let through = client.ask("tools/call", &through).await;
                    assert_eq!(Outcome::read(&through), outcomes[at], "{params}: {through}");
                    if outcomes[at] == Unknown {
                        assert_eq!(client.ask("tools/call", &params).await, through);
                    }
                }
            }
        }
    }
}

/// Whether an era has a method.
fn has(era: Era, method: &str) -> bool {
    era == Era::Legacy || method != "resources/subscribe"
}

const LISTS: [&str; 5] = [
    "tools/list",
    "prompts/list",
    "resources/list",
    "resources/templates/list",
    "skills/list",
];

/// Checks a list; `is_shut_shown` says whether the client may see items called `shut` on the server
/// `a`.
fn assert_shows(list: &str, servers: usize, is_shut_shown: bool) {
    assert!(list.contains("open"), "{list}");
    let forms: &[&str] = match servers {
        1 => &["shut"],
        _ => &[
            r#""a__shut""#,
            r#""a__solo-shut""#,
            r#""file:///shut""#,
            r#""file:///shut/{p}""#,
            r#""skill://shut/SKILL.md""#,
        ],
    };
    assert_eq!(
        forms.iter().any(|form| list.contains(form)),
        is_shut_shown,
        "{list}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_client_can_use_and_list_only_permitted_items() {
    for (server, servers) in [
        (Era::Legacy, 1),
        (Era::Modern, 1),
        (Era::Legacy, 2),
        (Era::Modern, 2),
    ] {
        let scene = Scene::new(server, servers).await;
        let gateway = scene.over_http().await;
        for era in [Era::Legacy, Era::Modern] {
            let mut clients = Vec::new();
            for key in [ANN, BOB, EVE] {
                clients.push(HttpClient::new(&gateway, "/mcp", key, era).await);
            }
            // Two rounds: cached answers for a client must not reach one with fewer rights.
            for _ in 0..2 {
                for method in LISTS {
                    for (at, client) in clients.iter().enumerate() {
                        assert_shows(&client.ask(method, "").await, servers, at == 0);
                    }
                }
                for Use {
                    method,
                    params,
                    outcomes,
                } in uses(servers)
                {
                    for (client, expected) in
                        clients.iter().zip(outcomes).filter(|_| has(era, method))
                    {
                        let answer = client.ask(method, &params).await;
                        let who = client.key.get(9..10);
                        assert_eq!(
                            Outcome::read(&answer),
                            expected,
                            "{servers} {server:?} {era:?} {who:?} {method} {params}: {answer}"
                        );
                    }
                }
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn denied_item_is_answered_like_a_missing_one() {
    let scene = Scene::new(Era::Modern, 1).await;
    let gateway = scene.over_http().await;
    for era in [Era::Legacy, Era::Modern] {
        let bob = HttpClient::new(&gateway, "/mcp", BOB, era).await;
        for (method, params) in [
            ("tools/call", r#""name":"shut","arguments":{}"#),
            ("prompts/get", r#""name":"shut""#),
            ("resources/read", r#""uri":"file:///shut""#),
        ] {
            let denied = bob.ask(method, params).await;
            // No list has this one, which the policy forbids as well.
            let missing = "nope-shut";
            let unknown = bob.ask(method, &params.replace("shut", missing)).await;
            assert_eq!(denied.replace("shut", missing), unknown, "{era:?} {method}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn endpoint_and_stream_show_each_client_no_more_than_it_may_have() {
    for servers in [1, 2] {
        let scene = Scene::new(Era::Modern, servers).await;
        let gateway = scene.over_http().await;
        for (key, is_lead) in [(ANN, true), (BOB, false), (EVE, false)] {
            for era in [Era::Legacy, Era::Modern] {
                let client = HttpClient::new(&gateway, "/mcp/lead", key, era).await;
                for method in LISTS {
                    let list = client.ask(method, "").await;
                    assert_eq!(list.contains("open"), is_lead, "{list}");
                }
                let call = format!(
                    r#""name":"{}open","arguments":{{}}"#,
                    if servers > 1 { "a__" } else { "" }
                );
                let expected = if is_lead { Done } else { Unknown };
                assert_eq!(
                    Outcome::read(&client.ask("tools/call", &call).await),
                    expected
                );
            }
            // An unknown endpoint shows nothing to anybody.
            for path in ["/mcp/nope", "/", "/mcp/lead/x", "/MCP"] {
                let nowhere = HttpClient {
                    gateway: &gateway,
                    path,
                    key,
                    session: None,
                };
                let mut answer = nowhere.modern("tools/list", "").await;
                assert!(
                    answer.status == 404 && !answer.text().await.contains("open"),
                    "{path}"
                );
            }
            let client = HttpClient::new(&gateway, "/mcp", key, Era::Modern).await;
            let wanted = r#""notifications":{"resourceSubscriptions":["file:///open","file:///shut"],"toolsListChanged":true}"#;
            let mut stream = client.modern(LISTEN, wanted).await;
            let honoured = within("an acknowledgement", stream.event())
                .await
                .unwrap()
                .expect("an acknowledgement");
            assert_eq!(honoured.contains("file:///open"), key != EVE, "{honoured}");
            assert_eq!(honoured.contains("file:///shut"), is_lead, "{honoured}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn client_over_stdio_is_unauthenticated() {
    for (server, servers) in [(Era::Legacy, 1), (Era::Modern, 2)] {
        let scene = Scene::new(server, servers).await;
        for era in [Era::Legacy, Era::Modern] {
            let mut gateway = Gateway::stdio(&scene.config(""));
            let mut client = StdioClient::new(&mut gateway);
            if era == Era::Legacy {
                client.initialize(NEWEST_LEGACY).await;
            }
            let text = |method: &str, params: &str| match era {
                Era::Legacy => legacy_request("1", method, params),
                Era::Modern => modern_request("1", method, params, ""),
            };
            for method in LISTS {
                assert_shows(&client.call(&text(method, "")).await.1, servers, false);
            }
            for Use {
                method,
                params,
                outcomes: [_, expected, _],
            } in uses(servers)
            {
                if has(era, method) {
                    let answer = client.call(&text(method, &params)).await.1;
                    assert_eq!(
                        Outcome::read(&answer),
                        expected,
                        "{servers} {era:?} {method} {params}: {answer}"
                    );
                }
            }
        }
    }
}
