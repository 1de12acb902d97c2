//! Clients restricted by a policy try every way around it: lists, names with and without prefix,
//! aliases, completion, subscriptions, unknown methods, arguments in other spellings, other
//! clients' tasks.

use std::fs;

use fanlight_testkit::signing_in::{ANN, BOB};
use fanlight_testkit::slicer::{member, plain_string};

use crate::harness::{Gateway, TempFile, within};
use crate::raw_client::{
    Connection, INITIALIZED, JSON_HEADERS, NEWEST_LEGACY, Response, initialize, legacy_request,
    modern_headers, modern_request_with,
};
use crate::scripted::{Backend, Era, Reply, Transport};

/// Both users are in `dev`; Ann is also in `lead`.
const KEYS: &str = "keys:\n  \
    - {name: ann, groups: [dev, lead], sha256: \"319df4a3b61d5bb066d9f39d281dfaded068e99f7eb27b087b1377a9f9bd7fe1\"}\n  \
    - {name: bob, groups: [dev], sha256: \"c248b665096075b86cb84ea6f8a002fdafb7dfafee0aaa809a063ba852efe6b2\"}\n";

/// Things that only `lead` may do, which are all that Bob may not do.
const POLICIES: &str = r#"
    permit(principal in Group::"dev", action, resource);
    @id("leaders alone")
    forbid(principal, action, resource) when {
        resource.server == "files"
            && (resource.name == "write_file" || resource.name == "hidden" || resource.name like "file:///private/*"
                || resource.name like "file:///{*")
    } unless { principal in Group::"lead" };
    @id("no subscriptions")
    forbid(principal == User::"key#bob", action == Action::"subscribe", resource);
    @id("paths")
    forbid(principal, action == Action::"call", resource == Tool::"files/look") when {
        context.arguments has path && context.arguments.path like "/etc/*"
    };
    @ask("May it really be erased?") @by("caller")
    permit(principal, action == Action::"call", resource == Tool::"files/erase");
"#;

pub(crate) async fn server(era: Era) -> Backend {
    let backend = Backend::start(era, Transport::Http).await;
    let declared = r#"{"tools":{"listChanged":true},"prompts":{},"resources":{"subscribe":true},"completions":{}}"#;
    backend.declares(declared);
    backend.offers_tools(&["read_file", "write_file", "look", "erase"]);
    backend.on(
        "prompts/list",
        backend.list("prompts", r#"{"name":"hidden"},{"name":"open"}"#),
    );
    let resources =
        r#"{"uri":"file:///public/a","name":"a"},{"uri":"file:///private/key","name":"key"}"#;
    backend.on("resources/list", backend.list("resources", resources));
    let templates = r#"{"uriTemplate":"file:///{+path}","name":"all"}"#;
    backend.on(
        "resources/templates/list",
        backend.list("resourceTemplates", templates),
    );
    let complete = |members: &str| Reply::result(era.complete(members));
    backend.on("tools/call", complete(r#""content":[]"#));
    backend.on("prompts/get", complete(r#""messages":[]"#));
    backend.on(
        "resources/read",
        complete(r#""contents":[{"uri":"file:///public/a","text":"x"}]"#),
    );
    backend.on("resources/subscribe", complete(""));
    backend.on(
        "completion/complete",
        complete(r#""completion":{"values":["leaked"]}"#),
    );
    backend.on("x/do", complete(r#""done":true"#));
    backend
}

/// A gateway with these policies in front of the server `files`, and perhaps another one.
pub(crate) struct Scene {
    pub(crate) servers: Vec<Backend>,
    pub(crate) gateway: Gateway,
    folder: TempFile,
    /// The number of policy changes so far.
    changes: usize,
}

impl Scene {
    pub(crate) async fn start(era: Era, servers: usize, policies: &str, more: &str) -> Self {
        let mut backends = vec![server(era).await];
        if servers > 1 {
            backends.push(server(Era::Legacy).await);
        }
        Self::start_with(backends, policies, more).await
    }

    /// Starts the gateway in front of these servers. The gateway connects at once, so what a server
    /// declares is set before.
    pub(crate) async fn start_with(servers: Vec<Backend>, policies: &str, more: &str) -> Self {
        let folder = TempFile::folder();
        let entries: Vec<String> = servers
            .iter()
            .zip(["files", "other"])
            .map(|(server, name)| server.entry(name))
            .collect();
        fs::write(folder.path().join("keys.yaml"), KEYS).unwrap();
        fs::write(folder.path().join("a.cedar"), policies).unwrap();
        let config = format!(
            r#"{{"auth":{{"keys":{{"file":"keys.yaml"}}}},"policy":{{"files":["*.cedar"]}}{more},"mcpServers":{{{}}}}}"#,
            entries.join(",")
        );
        fs::write(folder.path().join("fanlight.json"), config).unwrap();
        let gateway = Gateway::start_at(folder.path().join("fanlight.json")).await;
        Self {
            servers,
            gateway,
            folder,
            changes: 0,
        }
    }

    /// Applies other policies.
    pub(crate) async fn change(&mut self, policies: &str) {
        fs::write(self.folder.path().join("a.cedar"), policies).unwrap();
        self.reload().await;
    }

    /// Replaces `from` by `to` in the configuration.
    pub(crate) async fn configure(&mut self, from: &str, to: &str) {
        let config = self.folder.path().join("fanlight.json");
        let text = fs::read_to_string(&config).unwrap();
        assert!(text.contains(from), "{text}");
        fs::write(&config, text.replacen(from, to, 1)).unwrap();
        self.reload().await;
    }

    async fn reload(&mut self) {
        self.changes += 1;
        self.gateway.hang_up();
        let generation = format!(r#""generation":{}"#, self.changes + 1);
        self.gateway
            .log
            .line_with_all(&["configuration reloaded", &generation])
            .await;
    }

    fn reached(&self, methods: &[&str]) -> usize {
        let of = |server: &Backend| {
            methods
                .iter()
                .map(|method| server.received(method).len())
                .sum::<usize>()
        };
        self.servers.iter().map(of).sum()
    }

    pub(crate) async fn send(&self, key: &str, headers: &[(&str, &str)], body: &str) -> Response {
        let mut connection = Connection::open(self.gateway.mcp).await;
        let bearer = format!("Bearer {key}");
        let all = [&JSON_HEADERS[..], headers, &[("Authorization", &bearer)]].concat();
        connection
            .request("POST", "/mcp", &all, body.as_bytes())
            .await;
        within("an answer", connection.response()).await
    }

    pub(crate) async fn modern(&self, key: &str, method: &str, params: &str) -> String {
        self.modern_with("{}", key, method, params).await
    }

    /// A request of a modern client with these capabilities.
    pub(crate) async fn modern_with(
        &self,
        capabilities: &str,
        key: &str,
        method: &str,
        params: &str,
    ) -> String {
        let body = modern_request_with(capabilities, "1", method, params, "");
        let headers = modern_headers(&body);
        let headers: Vec<_> = headers
            .iter()
            .map(|(name, value)| (name.as_str(), value.as_str()))
            .collect();
        self.send(key, &headers, &body).await.messages().await.1
    }

    async fn open(&self, key: &str) -> String {
        self.open_with("{}", key).await
    }

    /// Opens a session of a client with these capabilities.
    pub(crate) async fn open_with(&self, capabilities: &str, key: &str) -> String {
        let mut opened = self
            .send(key, &[], &initialize(NEWEST_LEGACY, capabilities))
            .await;
        let id = opened
            .header("mcp-session-id")
            .expect("a session")
            .to_owned();
        opened.text().await;
        assert_eq!(self.send(key, &session(&id), INITIALIZED).await.status, 202);
        id
    }

    pub(crate) async fn legacy(&self, key: &str, id: &str, method: &str, params: &str) -> String {
        self.send(key, &session(id), &legacy_request("1", method, params))
            .await
            .messages()
            .await
            .1
    }
}

pub(crate) fn session(id: &str) -> [(&'static str, &str); 2] {
    [
        ("Mcp-Session-Id", id),
        ("MCP-Protocol-Version", NEWEST_LEGACY),
    ]
}

/// The message of an error without the requested name.
fn error(answer: &str, name: &str) -> String {
    let message = member(answer, "error.message").unwrap_or_else(|| panic!("no error: {answer}"));
    format!(
        "{} {}",
        member(answer, "error.code").unwrap(),
        message.replace(name, "…")
    )
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn denied_items_are_unreachable_and_look_like_missing_ones() {
    for (era, servers) in [
        (Era::Legacy, 2),
        (Era::Modern, 2),
        (Era::Modern, 1),
        (Era::Legacy, 1),
    ] {
        let scene = Scene::start(era, servers, POLICIES, "").await;
        let prefix = if servers > 1 { "files__" } else { "" };
        let id = scene.open(BOB).await;
        // A client that may see everything has just been served.
        for method in [
            "tools/list",
            "prompts/list",
            "resources/list",
            "resources/templates/list",
        ] {
            let all = scene.modern(ANN, method, "").await;
            assert!(
                ["write_file", "hidden", "file:///private", "{+path}"]
                    .iter()
                    .any(|hidden| all.contains(hidden)),
                "{method}: {all}"
            );
            for list in [
                scene.legacy(BOB, &id, method, "").await,
                scene.modern(BOB, method, "").await,
            ] {
                // The other server has the same names, which Bob may use there.
                let hidden = [
                    format!(r#""{prefix}write_file""#),
                    format!(r#""{prefix}hidden""#),
                ];
                assert!(
                    hidden.iter().all(|name| !list.contains(name.as_str())),
                    "{method}: {list}"
                );
                if servers == 1 {
                    assert!(
                        !list.contains("file:///private") && !list.contains("{+path}"),
                        "{method}: {list}"
                    );
                }
                assert!(member(&list, "result").is_some(), "{list}");
            }
        }
        let name = |name: &str| format!(r#""name":"{prefix}{name}","arguments":{{}}"#);
        let mut requests = vec![
            ("tools/call", name("write_file")),
            ("tools/call", name("WRITE_FILE")),
            ("tools/call", name("write_file ")),
            ("prompts/get", format!(r#""name":"{prefix}hidden""#)),
            (
                "completion/complete",
                format!(
                    r#""ref":{{"type":"ref/prompt","name":"{prefix}hidden"}},"argument":{{"name":"a","value":""}}"#
                ),
            ),
            ("x/do", format!(r#""name":"{prefix}write_file""#)),
            ("x/do", String::new()),
        ];
        if servers == 1 {
            let uris = [
                "file:///private/key",
                "file:///private/other",
                "file:///public/../private/key",
                "file:///public/%2e%2e/private/key",
                "file:///%70rivate/key",
                "FILE:///private/key",
                "file://localhost/private/key",
            ];
            requests.extend(uris.map(|uri| ("resources/read", format!(r#""uri":"{uri}""#))));
            requests.push((
                "completion/complete",
                r#""ref":{"type":"ref/resource","uri":"file:///{+path}"},"argument":{"name":"path","value":"p"}"#
                    .to_owned(),
            ));
        }
        for (method, params) in &requests {
            for answer in [
                scene.legacy(BOB, &id, method, params).await,
                scene.modern(BOB, method, params).await,
            ] {
                assert!(
                    member(&answer, "error").is_some(),
                    "{method} {params}: {answer}"
                );
            }
        }
        for uri in ["file:///private/key", "file:///public/a"] {
            let answer = scene
                .legacy(
                    BOB,
                    &id,
                    "resources/subscribe",
                    &format!(r#""uri":"{uri}""#),
                )
                .await;
            assert!(
                servers > 1 || member(&answer, "error").is_some(),
                "{uri}: {answer}"
            );
        }
        let methods = ["tools/call", "prompts/get", "completion/complete", "x/do"];
        assert_eq!(scene.reached(&methods), 0);
        if servers == 1 {
            assert_eq!(scene.reached(&["resources/read", "resources/subscribe"]), 0);
        }

        // A denied item and a missing one have the same error.
        for (method, denied, unknown) in [
            ("tools/call", "write_file", "no_such_tool"),
            ("prompts/get", "hidden", "no_such_prompt"),
        ] {
            let (denied, unknown) = (format!("{prefix}{denied}"), format!("{prefix}{unknown}"));
            let of = |name: &str| format!(r#""name":"{name}","arguments":{{}}"#);
            assert_eq!(
                error(&scene.modern(BOB, method, &of(&denied)).await, &denied),
                error(&scene.modern(BOB, method, &of(&unknown)).await, &unknown)
            );
        }

        // Permitted requests work in both eras.
        let ann = scene.open(ANN).await;
        for (method, params) in [
            ("tools/call", name("write_file")),
            ("prompts/get", format!(r#""name":"{prefix}hidden""#)),
        ] {
            for answer in [
                scene.legacy(ANN, &ann, method, &params).await,
                scene.modern(ANN, method, &params).await,
            ] {
                assert!(
                    member(&answer, "result").is_some(),
                    "{method} {params}: {answer}"
                );
            }
        }
        for answer in [
            scene
                .legacy(BOB, &id, "tools/call", &name("read_file"))
                .await,
            scene.modern(BOB, "tools/call", &name("read_file")).await,
            scene
                .modern(BOB, "resources/read", r#""uri":"file:///public/a""#)
                .await,
            scene
                .modern(BOB, "prompts/get", &format!(r#""name":"{prefix}open""#))
                .await,
        ] {
            assert!(member(&answer, "result").is_some(), "{answer}");
        }
    }
}

/// A client that may use nothing of a server does not see the server's name, instructions and
/// capabilities.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn server_of_which_a_client_may_use_nothing_does_not_exist_for_it() {
    let policies = r#"
        permit(principal in Group::"dev", action, resource);
        forbid(principal, action, resource in Server::"files") unless { principal in Group::"lead" };
    "#;
    for (era, servers) in [
        (Era::Legacy, 2),
        (Era::Modern, 2),
        (Era::Modern, 1),
        (Era::Legacy, 1),
    ] {
        let scene = Scene::start(era, servers, policies, "").await;
        let asked = |key| {
            let scene = &scene;
            async move {
                let mut opened = scene.send(key, &[], &initialize(NEWEST_LEGACY, "{}")).await;
                let id = opened
                    .header("mcp-session-id")
                    .expect("a session")
                    .to_owned();
                let mut answers = vec![
                    opened.text().await,
                    scene.modern(key, "server/discover", "").await,
                ];
                for list in [
                    "tools/list",
                    "prompts/list",
                    "resources/list",
                    "resources/templates/list",
                ] {
                    answers.extend([
                        scene.modern(key, list, "").await,
                        scene.legacy(key, &id, list, "").await,
                    ]);
                }
                answers
            }
        };
        let (ann, bob) = (asked(ANN).await, asked(BOB).await);
        assert!(
            ann.iter()
                .take(2)
                .all(|description| description.contains("tools")),
            "{ann:?}"
        );
        for (of_ann, of_bob) in ann.iter().zip(&bob) {
            assert!(member(of_bob, "result").is_some(), "{of_bob}");
            assert!(!of_bob.contains("files"), "{of_bob}");
            assert_ne!(of_ann, of_bob);
        }
        if servers == 1 {
            // The description declares the permitted items, of which there are none.
            assert!(
                bob.iter()
                    .take(2)
                    .all(|description| !description.contains("completions")),
                "{bob:?}"
            );
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rule_about_arguments_is_about_what_the_server_gets() {
    let scene = Scene::start(Era::Modern, 1, POLICIES, "").await;
    let id = scene.open(BOB).await;
    assert!(
        scene
            .modern(BOB, "tools/list", "")
            .await
            .contains(r#""look""#),
        "the call decides"
    );
    let call = |arguments: &str| format!(r#""name":"look","arguments":{arguments}"#);
    for arguments in [
        r#"{"path":"/etc/passwd"}"#,
        r#"{"path":"\/etc\/passwd"}"#,
        r#"{"path":"\u002fetc/passwd"}"#,
        r#"{"p\u0061th":"/etc/passwd"}"#,
        r#"{"path":"/data","path":"/etc/passwd"}"#,
        r#"{"path":"/etc/passwd","path":"/data"}"#,
        r#"{"path":"/data","Path":"/etc/passwd"}"#,
        r#"{"PATH":"/etc/passwd"}"#,
        r#"{"ｐａｔｈ":"/etc/passwd"}"#,
        r#"{"path":["/etc/passwd"]}"#,
        r#"{"path":{"path":"/etc/passwd"}}"#,
        r#"["/etc/passwd"]"#,
    ] {
        let params = call(arguments);
        for answer in [
            scene.legacy(BOB, &id, "tools/call", &params).await,
            scene.modern(BOB, "tools/call", &params).await,
        ] {
            assert!(member(&answer, "error").is_some(), "{arguments}: {answer}");
        }
    }
    let twice = r#""name":"look","arguments":{"path":"/data"},"arguments":{"path":"/etc/passwd"}"#;
    assert!(member(&scene.modern(BOB, "tools/call", twice).await, "error").is_some());
    assert_eq!(scene.reached(&["tools/call"]), 0);
    let answer = scene
        .modern(BOB, "tools/call", &call(r#"{"path":"/etc/passwd"}"#))
        .await;
    assert!(
        answer.contains("-31005") && answer.contains("does not permit these arguments"),
        "{answer}"
    );
    assert!(
        !answer.contains("paths"),
        "which policy it was is for operators: {answer}"
    );
    scene
        .gateway
        .log
        .line_with_all(&[
            r#""target":"audit""#,
            "not allowed to a client: policy",
            r#""policies":"paths""#,
        ])
        .await;
    for arguments in [
        r#"{"path":"/data"}"#,
        "{}",
        r#"{"path":null}"#,
        r#"{"note":"/etc/passwd"}"#,
    ] {
        let answer = scene.modern(BOB, "tools/call", &call(arguments)).await;
        assert!(member(&answer, "result").is_some(), "{arguments}: {answer}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn call_that_a_policy_asks_about_does_not_run_unasked() {
    let scene = Scene::start(
        Era::Modern,
        1,
        POLICIES,
        r#","timeouts":{"approval":"10ms"}"#,
    )
    .await;
    let answer = scene
        .modern(BOB, "tools/call", r#""name":"erase","arguments":{}"#)
        .await;
    assert_eq!(member(&answer, "error.code"), Some("-31007"), "{answer}");
    assert_eq!(scene.reached(&["tools/call"]), 0);
    let mut connection = Connection::open(scene.gateway.admin).await;
    connection.request("GET", "/api/approvals", &[], b"").await;
    let asked = connection.response().await.text().await;
    assert!(asked.contains("May it really be erased?"), "{asked}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn completion_is_decided_about_what_its_reference_means() {
    let policies = r#"permit(principal, action, resource);
        forbid(principal, action == Action::"complete", resource) when { resource.name like "file:*" };"#;
    let scene = Scene::start(Era::Modern, 1, policies, "").await;
    let (name, uri) = (r#","name":"open""#, r#","uri":"file:///{+path}""#);
    let denied = [
        ("resource", "", uri),
        ("resource", name, uri),
        ("resource", uri, name),
        ("prompt", name, uri),
    ];
    for (kind, one, other) in denied.into_iter().chain([("prompt", name, "")]) {
        let params = format!(
            r#""ref":{{"type":"ref/{kind}"{one}{other}}},"argument":{{"name":"path","value":"p"}}"#
        );
        let answer = scene.modern(BOB, "completion/complete", &params).await;
        assert_eq!(
            member(&answer, "result").is_some(),
            other.is_empty(),
            "{params}: {answer}"
        );
    }
    assert_eq!(scene.reached(&["completion/complete"]), 1);
}

/// The server's own rule asks the caller, whose client could agree to anything.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stricter_of_the_rules_of_a_server_and_a_policy_counts() {
    let policies = POLICIES.replace(r#"@by("caller")"#, r#"@by("other")"#);
    let more = r#","timeouts":{"approval":"10ms"}"#;
    let mut scene = Scene::start(Era::Modern, 1, &policies, more).await;
    scene
        .configure(
            r#""files":{"#,
            r#""files":{"approval":{"tools":["erase"],"by":"caller"},"#,
        )
        .await;
    let erase = r#""name":"erase","arguments":{}"#;
    let answer = scene
        .modern_with(r#"{"elicitation":{}}"#, BOB, "tools/call", erase)
        .await;
    assert_eq!(member(&answer, "error.code"), Some("-31007"), "{answer}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn wrong_policy_leaves_the_last_good_ones_in_force() {
    let scene = Scene::start(Era::Modern, 1, POLICIES, "").await;
    let write = r#""name":"write_file","arguments":{}"#;
    assert!(member(&scene.modern(BOB, "tools/call", write).await, "error").is_some());
    let file = scene.folder.path().join("a.cedar");
    fs::write(
        &file,
        "permit(principal, action, resource);\npermit(principal, acton, resource);",
    )
    .unwrap();
    scene.gateway.hang_up();
    let line = scene
        .gateway
        .log
        .line_with("configuration not reloaded")
        .await;
    assert!(line.contains("a.cedar:2"), "{line}");
    assert!(member(&scene.modern(BOB, "tools/call", write).await, "error").is_some());
    fs::write(&file, "permit(principal, action, resource);").unwrap();
    scene.gateway.hang_up();
    scene.gateway.log.line_with("configuration reloaded").await;
    assert!(member(&scene.modern(BOB, "tools/call", write).await, "result").is_some());
    assert!(
        scene
            .modern(BOB, "tools/list", "")
            .await
            .contains("write_file")
    );
    // The policy now permits nothing.
    fs::write(&file, "").unwrap();
    scene.gateway.hang_up();
    scene
        .gateway
        .log
        .line_with_all(&["configuration reloaded", r#""generation":3"#])
        .await;
    let list = scene.modern(BOB, "tools/list", "").await;
    assert_eq!(member(&list, "result.tools"), Some("[]"), "{list}");
    let name = plain_string(member(&list, "result.resultType").unwrap());
    assert_eq!(name, Some("complete"));
}

/// A rule and its server must read the same: other types, members that are there twice, and
/// definitions that say two things.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_server_could_read_differently_than_a_rule_does_not_reach_it() {
    let policies = r#"
        permit(principal, action, resource);
        forbid(principal, action == Action::"call", resource == Tool::"files/look")
            when { context.arguments has force && context.arguments.force == true };
        forbid(principal, action == Action::"call", resource == Tool::"files/erase")
            when { !(resource has readOnlyHint && resource.readOnlyHint) };
    "#;
    for era in [Era::Modern, Era::Legacy] {
        let backend = server(era).await;
        let erase = |annotations: &str| {
            format!(r#"{{"name":"erase","inputSchema":{{"type":"object"}},{annotations}}}"#)
        };
        let two = r#""annotations":{"readOnlyHint":true},"annotations":{"readOnlyHint":false}"#;
        let tools = format!(
            r#"{{"name":"look","inputSchema":{{"type":"object"}}}},{}"#,
            erase(two)
        );
        backend.on("tools/list", backend.list("tools", &tools));
        let scene = Scene::start_with(vec![backend], policies, "").await;
        let session = scene.open(BOB).await;
        let call =
            |name: &str, arguments: &str| format!(r#""name":"{name}","arguments":{arguments}"#);
        let listed = scene.modern(BOB, "tools/list", "").await;
        assert!(
            !listed.contains("erase") && listed.contains("look"),
            "{listed}"
        );
        let mut calls = vec![(call("erase", "{}"), None)];
        for value in [r#""true""#, "1", r#""on""#, "[true]", "true"] {
            let denied = Some("-31005");
            calls.push((call("look", &format!(r#"{{"force":{value}}}"#)), denied));
        }
        for arguments in [
            r#"{"force":false,"force":true}"#,
            r#"{"force":false,"x":{"a":1,"a":2}}"#,
            r#"{"force":false,"x":[{"a":1,"\u0061":2}]}"#,
            r#"{"force":false,"x":1e999}"#,
            r#"{"force":false,"x":"\ud800"}"#,
        ] {
            calls.push((call("look", arguments), Some("-32602")));
        }
        for (params, code) in calls {
            for answer in [
                scene.modern(BOB, "tools/call", &params).await,
                scene.legacy(BOB, &session, "tools/call", &params).await,
            ] {
                let found = member(&answer, "error.code");
                assert!(
                    found.is_some() && code.is_none_or(|code| found == Some(code)),
                    "{params}: {answer}"
                );
            }
        }
        assert_eq!(scene.reached(&["tools/call"]), 0);
        let allowed = call("look", r#"{"force":false}"#);
        let answer = scene.modern(BOB, "tools/call", &allowed).await;
        assert!(member(&answer, "result").is_some(), "{answer}");
    }
}
