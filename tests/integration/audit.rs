//! The audit log, through the real binary.

use std::fs;
use std::path::Path;

use fanlight_tests::slicer::{member, plain_string};
use futures_util::future::join_all;

use crate::clients::Client;
use crate::harness::{Gateway, TempFile, fanlight};
use crate::http_recorder::{HttpRecorder, says};
use crate::raw_client::{Connection, JSON_HEADERS, Response, modern_headers, modern_request_with};
use crate::scripted::{Backend, Era, Fault, Reply, Transport};
use crate::server_lives::text_at;

/// The key of Ann, who belongs to `dev`.
const KEYS: &str = "keys:\n  \
    - {name: ann, groups: [dev], sha256: \"319df4a3b61d5bb066d9f39d281dfaded068e99f7eb27b087b1377a9f9bd7fe1\"}\n";
const ANN: &str = fanlight_testkit::signing_in::ANN;

/// A gateway whose audit log is in a folder of its own.
struct Scene {
    backend: Backend,
    gateway: Gateway,
    folder: TempFile,
}

impl Scene {
    /// Starts a gateway with these members of `audit` and more configuration.
    async fn start(audit: &str, more: &str) -> Self {
        let backend = Backend::start(Era::Modern, Transport::Http).await;
        backend.offers_tools(&["look", "break", "fail"]);
        backend.on(
            "tools/call",
            Reply::result(Era::Modern.complete(r#""content":[]"#)),
        );
        let failed = Era::Modern.complete(r#""content":[],"isError":true"#);
        backend.on_target("tools/call", "break", Reply::result(failed));
        backend.on_target(
            "tools/call",
            "fail",
            Reply::error(r#"{"code":-32000,"message":"no"}"#),
        );
        let folder = TempFile::folder();
        fs::write(folder.path().join("keys.yaml"), KEYS).unwrap();
        configure(&folder, &backend, audit, more);
        let gateway = Gateway::start_at(folder.path().join("fanlight.json")).await;
        Self {
            backend,
            gateway,
            folder,
        }
    }

    /// Reloads with these members of `audit` and more configuration. Returns whether the gateway
    /// accepted them.
    async fn reload(&self, audit: &str, more: &str) -> bool {
        configure(&self.folder, &self.backend, audit, more);
        self.gateway.reload().await.0 == 200
    }

    /// The lines of a file of the audit log.
    fn lines(&self, file: &str) -> Vec<String> {
        let text = fs::read_to_string(self.folder.path().join(file)).unwrap();
        text.lines().map(str::to_owned).collect()
    }

    async fn call(&self, key: &str, params: &str) -> String {
        self.ask(key, "tools/call", params).await
    }

    async fn ask(&self, key: &str, method: &str, params: &str) -> String {
        self.send(key, method, params).await.messages().await.1
    }

    async fn send(&self, key: &str, method: &str, params: &str) -> Response {
        let capabilities = r#"{"extensions":{"io.modelcontextprotocol/tasks":{}}}"#;
        let body = modern_request_with(capabilities, "1", method, params, "");
        let bearer = format!("Bearer {key}");
        let headers = modern_headers(&body);
        let own = headers
            .iter()
            .map(|(name, value)| (name.as_str(), value.as_str()));
        let headers: Vec<_> = JSON_HEADERS
            .into_iter()
            .chain(own)
            .chain([("Authorization", bearer.as_str())])
            .collect();
        let mut connection = Connection::open(self.gateway.mcp).await;
        connection
            .request("POST", "/mcp", &headers, body.as_bytes())
            .await;
        connection.response().await
    }

    /// The output of a `fanlight audit` command.
    async fn audit(&self, args: &[&str]) -> (bool, String) {
        audit(self.folder.path(), args).await
    }
}

fn configure(folder: &TempFile, backend: &Backend, audit: &str, more: &str) {
    let config = format!(
        r#"{{"stateDir":"state","audit":{{{audit}}},"auth":{{"keys":{{"file":"keys.yaml"}}}}{more},"mcpServers":{{{}}}}}"#,
        backend.entry("files")
    );
    fs::write(folder.path().join("fanlight.json"), config).unwrap();
}

async fn audit(folder: &Path, args: &[&str]) -> (bool, String) {
    let config = folder.join("fanlight.json");
    let output = fanlight()
        .arg("audit")
        .args(args)
        .arg("--config")
        .arg(config)
        .output()
        .await
        .unwrap();
    let text = [output.stdout, output.stderr].concat();
    (output.status.success(), String::from_utf8(text).unwrap())
}

fn call(tool: &str) -> String {
    format!(r#""name":"{tool}","arguments":{{"path":"/data","apiKey":"sesame-1"}}"#)
}

#[tokio::test]
async fn calls_are_on_record_by_default() {
    let scene = Scene::start("", "").await;
    for tool in ["look", "break", "fail", "unknown"] {
        scene.call(ANN, &call(tool)).await;
    }
    scene.call("fanlight_wrong", &call("look")).await;
    scene.gateway.terminate().await;
    let (is_ok, lines) = audit(
        scene.folder.path(),
        &["query", "--json", "--action", "tools/call"],
    )
    .await;
    assert!(is_ok, "{lines}");
    let lines: Vec<_> = lines.lines().collect();
    let outcomes: Vec<_> = lines
        .iter()
        .map(|line| plain_string(member(line, "outcome").unwrap()).unwrap())
        .collect();
    assert_eq!(outcomes, ["ok", "error", "tool_error", "ok"]);
    let look = lines[3];
    for (name, expected) in [
        ("principal", "key#ann"),
        ("who", "ann"),
        ("authentication", "key"),
        ("era", "modern"),
        ("endpoint", "/mcp"),
        ("server", "files"),
        ("item", "look"),
        ("decision", "allow"),
    ] {
        assert_eq!(
            member(look, name).and_then(plain_string),
            Some(expected),
            "{name}: {look}"
        );
    }
    assert!(
        member(look, "durationUs").is_some() && member(look, "responseBytes").is_some(),
        "{look}"
    );
    assert_eq!(member(lines[1], "code"), Some("-32000"));
    let (_, denied) = audit(scene.folder.path(), &["query", "--outcome", "refused"]).await;
    assert!(denied.contains("authentication"), "{denied}");
    // The audit log contains neither arguments nor keys.
    let files = scene.folder.path().join("state/audit");
    let text = fs::read_to_string(files.join("audit.jsonl")).unwrap();
    assert!(
        !text.contains("sesame") && !text.contains("/data") && !text.contains(ANN),
        "{text}"
    );
    let (is_ok, verified) = audit(scene.folder.path(), &["verify"]).await;
    assert!(is_ok && verified.contains("are unchanged"), "{verified}");
    let (_, used) = audit(scene.folder.path(), &["usage", "--tool", "files/*"]).await;
    let row = used
        .lines()
        .find(|line| line.contains("files/break"))
        .unwrap();
    assert!(
        row.contains("key#ann") && row.split_whitespace().nth(4) == Some("1"),
        "{used}"
    );
    // The test changes one line.
    fs::write(
        files.join("audit.jsonl"),
        text.replacen("\"item\":\"break\"", "\"item\":\"brake\"", 1),
    )
    .unwrap();
    let (is_ok, verified) = audit(scene.folder.path(), &["verify"]).await;
    assert!(!is_ok && verified.contains("was changed"), "{verified}");
}

#[tokio::test]
async fn calls_of_both_eras_over_every_transport_are_recorded() {
    for (era, transport) in [
        (Era::Legacy, Transport::Http),
        (Era::Modern, Transport::Stdio),
        (Era::Legacy, Transport::Stdio),
    ] {
        let backend = Backend::start(era, Transport::Http).await;
        backend.offers_tools(&["look"]);
        backend.on(
            "tools/call",
            Reply::result(if era == Era::Modern {
                era.complete(r#""content":[]"#)
            } else {
                r#"{"content":[]}"#.to_owned()
            }),
        );
        let folder = TempFile::folder();
        let file = folder.path().join("record.jsonl");
        let config = format!(
            r#"{{"audit":{{"file":{:?},"required":true}},"mcpServers":{{{}}}}}"#,
            file,
            backend.entry("files")
        );
        let mut client = Client::start(&config, era, transport).await;
        client.call("look").await.member("result.content");
        // The decision is on the disk before the call runs.
        let text = fs::read_to_string(&file).unwrap();
        let decided = text
            .lines()
            .find(|line| line.contains(r#""outcome":"decided""#))
            .unwrap_or_else(|| panic!("{text}"));
        assert!(
            decided.contains(r#""action":"tools/call""#)
                && decided.contains(&format!(
                    "{:?}",
                    if era == Era::Modern {
                        "modern"
                    } else {
                        "legacy"
                    }
                )),
            "{decided}"
        );
    }
}

/// Requests and their lines: method, params, server, item, decision, outcome, reason.
const ENDINGS: [(&str, &str, [Option<&str>; 5]); 12] = {
    const CALL: &str = "tools/call";
    const fn says<'a>(
        about: [Option<&'a str>; 2],
        decision: &'a str,
        outcome: &'a str,
        reason: Option<&'a str>,
    ) -> [Option<&'a str>; 5] {
        [about[0], about[1], Some(decision), Some(outcome), reason]
    }
    const FILES: Option<&str> = Some("files");
    let policy = Some("policy");
    [
        (
            CALL,
            r#""name":"files__look""#,
            says([FILES, Some("look")], "allow", "ok", None),
        ),
        (
            CALL,
            r#""name":"files__break""#,
            says([FILES, Some("break")], "allow", "tool_error", None),
        ),
        (
            CALL,
            r#""name":"files__fail""#,
            says([FILES, Some("fail")], "allow", "error", None),
        ),
        (
            CALL,
            r#""name":"files__late""#,
            says([FILES, Some("late")], "allow", "error", None),
        ),
        (
            CALL,
            r#""name":"files__none""#,
            says([FILES, Some("none")], "allow", "error", None),
        ),
        (
            CALL,
            r#""name":"none""#,
            says([None, Some("none")], "allow", "error", None),
        ),
        (
            CALL,
            r#""name":"files__secret""#,
            says([FILES, Some("secret")], "hide", "refused", policy),
        ),
        (
            CALL,
            r#""name":"files__look","arguments":{"path":"/etc"}"#,
            says([FILES, Some("look")], "deny", "refused", policy),
        ),
        (
            CALL,
            r#""name":"files__erase""#,
            says([FILES, Some("erase")], "ask", "not_run", Some("approval")),
        ),
        (
            CALL,
            r#""name":"hidden__look""#,
            says(
                [Some("hidden"), Some("look")],
                "allow",
                "error",
                Some("filter"),
            ),
        ),
        (
            "prompts/get",
            r#""name":"files__none""#,
            says([FILES, Some("none")], "allow", "error", None),
        ),
        (
            "resources/read",
            r#""uri":"note://gone""#,
            says([Some("notes"), Some("note://gone")], "allow", "error", None),
        ),
    ]
};

#[tokio::test]
async fn lines_have_the_same_content_in_every_era_and_transport() {
    let backend = Backend::start(Era::Modern, Transport::Http).await;
    backend.declares(r#"{"tools":{},"prompts":{}}"#);
    backend.offers_tools(&["look", "break", "fail", "late", "secret", "erase"]);
    backend.on("prompts/list", backend.list("prompts", ""));
    let done = |members: &str| Reply::result(Era::Modern.complete(members));
    backend.on("tools/call", done(r#""content":[]"#));
    let failed = done(r#""content":[],"isError":true"#);
    backend.on_target("tools/call", "break", failed);
    backend.on_target(
        "tools/call",
        "fail",
        Reply::error(r#"{"code":-32000,"message":"no"}"#),
    );
    backend.on_target("tools/call", "late", Reply::fault(Fault::Hang));
    let notes = Backend::start(Era::Legacy, Transport::Http).await;
    notes.declares(r#"{"resources":{}}"#);
    let resources = r#"{"uri":"note://gone","name":"gone"}"#;
    notes.on("resources/list", notes.list("resources", resources));
    notes.on(
        "resources/read",
        Reply::error(r#"{"code":-32002,"message":"gone"}"#),
    );
    let hidden = Backend::start(Era::Modern, Transport::Http).await;
    hidden.offers_tools(&["look"]);
    let folder = TempFile::folder();
    let policies = folder.path().join("rules.cedar");
    fs::write(
        &policies,
        r#"
        permit(principal, action, resource);
        @id("secret") forbid(principal, action, resource) when { resource.name == "secret" };
        @id("paths") forbid(principal, action == Action::"call", resource == Tool::"files/look")
            when { context.arguments has path && context.arguments.path like "/etc*" };
        @ask("May it be erased?") @by("operator")
        permit(principal, action == Action::"call", resource == Tool::"files/erase");
        "#,
    )
    .unwrap();
    let mut lines: Vec<Vec<String>> = Vec::new();
    for (era, transport) in [
        (Era::Modern, Transport::Http),
        (Era::Legacy, Transport::Http),
        (Era::Modern, Transport::Stdio),
        (Era::Legacy, Transport::Stdio),
    ] {
        let file = folder.path().join(format!("{era:?}-{transport:?}.jsonl"));
        let shown = r#""/mcp":{"tools":{"deny":["hidden/*"]}}"#;
        let config = format!(
            r#"{{"audit":{{"file":{file:?},"required":true,"arguments":"digest"}},"policy":{{"files":[{policies:?}]}},
            "endpoints":{{{shown}}},"timeouts":{{"approval":"10ms","call":"300ms"}},"mcpServers":{{{},{},{}}}}}"#,
            backend.entry("files"),
            notes.entry("notes"),
            hidden.entry("hidden"),
        );
        let mut client = Client::start(&config, era, transport).await;
        client.tool_names().await;
        let mut errors = Vec::new();
        for (method, params, _) in ENDINGS {
            let answer = client.request("1", method, params, "").await.answer;
            errors.push(
                ["error.code", "error.data.gate"]
                    .map(|name| member(&answer, name).map(str::to_owned)),
            );
        }
        // Its first line is written after all lines of the calls before.
        client.call("files__look").await;
        let text = fs::read_to_string(&file).unwrap();
        let ended: Vec<_> = text
            .lines()
            .filter(|line| {
                let action = member(line, "action").and_then(plain_string);
                member(line, "event") == Some(r#""request""#)
                    && member(line, "outcome") != Some(r#""decided""#)
                    && action.is_some_and(|action| action != "tools/list")
            })
            .collect();
        let mut contents = Vec::new();
        for ((line, [code, gate]), (_, params, says)) in ended.iter().zip(&errors).zip(ENDINGS) {
            let found = ["server", "item", "decision", "outcome", "reason"]
                .map(|name| member(line, name).and_then(plain_string));
            assert_eq!(found, says, "{era:?} {transport:?} {params}: {line}");
            assert_eq!(member(line, "code"), code.as_deref(), "{params}: {line}");
            // The client does not learn that an item is hidden from it.
            let is_hidden = says[2] == Some("hide") || says[4] == Some("filter");
            let named = says[4].filter(|_| !is_hidden);
            assert_eq!(gate.as_deref().and_then(plain_string), named, "{params}");
            // All other members are the same.
            let differing = [
                "seq",
                "time",
                "era",
                "trace",
                "approval",
                "durationUs",
                "code",
                "endpoint",
                "client",
                "requestBytes",
                "responseBytes",
            ];
            let all = fanlight_tests::slicer::members(line).unwrap();
            let content = all
                .iter()
                // Only the first of the lines that are written together has the hash.
                .filter(|(name, _)| *name != "prev")
                .map(|(name, value)| match differing.contains(name) {
                    true => format!("{name}, "),
                    false => format!("{name}: {value}, "),
                });
            contents.push(content.collect::<String>());
        }
        assert_eq!(contents.len(), ENDINGS.len(), "{text}");
        lines.push(contents);
    }
    for other in &lines[1..] {
        assert_eq!(&lines[0], other);
    }
}

#[tokio::test]
async fn request_that_cannot_be_recorded_is_not_carried_out() {
    let folder = TempFile::folder();
    let backend = Backend::start(Era::Modern, Transport::Http).await;
    backend.offers_tools(&["look"]);
    backend.on(
        "tools/call",
        Reply::result(Era::Modern.complete(r#""content":[]"#)),
    );
    let file = folder.path().join("audit.jsonl");
    let config = format!(
        r#"{{"audit":{{"file":{file:?},"required":true}},"mcpServers":{{{}}}}}"#,
        backend.entry("files")
    );
    let mut client = Client::start(&config, Era::Modern, Transport::Http).await;
    client.call("look").await.member("result.content");
    fill_disk(client.gateway(), true);
    let refused = client.call("look").await;
    assert_eq!(refused.member("error.code"), "-32603", "{}", refused.answer);
    assert!(
        refused
            .member("error.message")
            .contains("could not be recorded"),
        "{}",
        refused.answer
    );
    assert_eq!(backend.received("tools/call").len(), 1);
    client
        .gateway()
        .log
        .line_with("the audit log cannot be written")
        .await;
    fill_disk(client.gateway(), false);
    client.call("look").await.member("result.content");
    let text = fs::read_to_string(&file).unwrap();
    assert!(
        text.lines().any(|line| line.contains(r#""event":"lost""#)),
        "{text}"
    );
}

/// Simulates a full disk, or ends that, by a limit on the size of files.
fn fill_disk(gateway: &Gateway, is_full: bool) {
    let pid = rustix::process::Pid::from_raw(i32::try_from(gateway.pid()).unwrap());
    let limit = rustix::process::Rlimit {
        current: is_full.then_some(0),
        maximum: None,
    };
    rustix::process::prlimit(pid, rustix::process::Resource::Fsize, limit).unwrap();
}

#[tokio::test]
async fn record_verifies_after_its_next_file_could_not_be_begun() {
    let scene = Scene::start(r#""required":true,"arguments":"full","size":"1MiB""#, "").await;
    let params = format!(
        r#""name":"look","arguments":{{"text":"{}"}}"#,
        "x".repeat(15 << 10)
    );
    let current = scene.folder.path().join("state/audit/audit.jsonl");
    while fs::metadata(&current).unwrap().len() < 256 << 10 {
        scene.call(ANN, &params).await;
    }
    fill_disk(&scene.gateway, true);
    for _ in 0..2 {
        let refused = scene.call(ANN, &params).await;
        assert!(refused.contains("could not be recorded"), "{refused}");
    }
    fill_disk(&scene.gateway, false);
    assert!(member(&scene.call(ANN, &params).await, "result").is_some());
    assert!(scene.lines("state/audit/audit.jsonl")[0].contains(r#""event":"file""#));
    let (is_ok, verified) = scene.audit(&["verify"]).await;
    assert!(is_ok && verified.contains("lines 1 to "), "{verified}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn after_kill_every_acknowledged_call_is_in_a_record_that_verifies() {
    let mut scene = Scene::start(r#""required":true,"arguments":"full""#, "").await;
    let calls = (0..40).map(|number| {
        let scene = &scene;
        async move {
            let answer = scene
                .call(
                    ANN,
                    &format!(
                        r#""name":"look","arguments":{{"number":{number},"password":"sesame-2"}}"#
                    ),
                )
                .await;
            member(&answer, "result").is_some().then_some(number)
        }
    });
    let answered: Vec<_> = join_all(calls).await.into_iter().flatten().collect();
    scene.gateway.kill().await;
    assert_eq!(answered.len(), 40);
    let text = fs::read_to_string(scene.folder.path().join("state/audit/audit.jsonl")).unwrap();
    for number in answered {
        assert!(
            text.contains(&format!(
                r#""arguments":{{"number":{number},"password":"***"}}"#
            )),
            "{number}: {text}"
        );
    }
    assert!(!text.contains("sesame"), "{text}");
    let (is_ok, verified) = scene.audit(&["verify"]).await;
    assert!(is_ok, "{verified}");
    assert_eq!(scene.backend.received("tools/call").len(), 40);
}

/// The lines and the checkpoints that a collector received.
fn exported(collector: &HttpRecorder) -> (Vec<String>, Vec<String>) {
    let (mut lines, mut notes) = (Vec::new(), Vec::new());
    for request in collector
        .requests()
        .iter()
        .filter(|request| request.head.starts_with("post /v1/logs "))
    {
        // Protobuf contains texts verbatim.
        let text = request.text();
        lines.extend(text.split(r#"{"seq":"#).skip(1).map(|rest| {
            let line = format!(r#"{{"seq":{rest}"#);
            let mut read =
                serde_json::Deserializer::from_str(&line).into_iter::<serde_json::Value>();
            read.next().unwrap().unwrap();
            line[..read.byte_offset()].to_owned()
        }));
        let mut rest = text.as_str();
        while let Some(at) = rest.find("\n\n— fanlight-") {
            let start = rest[..at].rfind("fanlight-").unwrap();
            let end = at + 2 + rest[at + 2..].find('\n').unwrap() + 1;
            notes.push(rest[start..end].to_owned());
            rest = &rest[end..];
        }
    }
    (lines, notes)
}

#[tokio::test]
async fn listening_takes_from_limits_and_is_on_record_from_its_beginning_to_its_end() {
    let rates = r#","limits":{"rates":[{"for":"principal","rate":"1/h"}]}"#;
    let scene = Scene::start(r#""required":true"#, rates).await;
    let filter = r#""notifications":{"toolsListChanged":true}"#;
    let mut listening = scene.send(ANN, "subscriptions/listen", filter).await;
    assert!(
        listening
            .event()
            .await
            .unwrap()
            .unwrap()
            .contains("acknowledged")
    );
    assert_eq!(
        scene.send(ANN, "subscriptions/listen", filter).await.status,
        429
    );
    drop(listening);
    scene.gateway.terminate().await;
    let (_, lines) = audit(
        scene.folder.path(),
        &["query", "--json", "--action", "subscriptions/listen"],
    )
    .await;
    let outcomes: Vec<_> = lines
        .lines()
        .filter_map(|line| plain_string(member(line, "outcome")?))
        .collect();
    assert!(
        outcomes.contains(&"decided") && outcomes.contains(&"refused") && outcomes.len() == 3,
        "{lines}"
    );
}

#[tokio::test]
async fn clients_without_credentials_do_not_fill_the_record() {
    let scene = Scene::start(r#""required":true"#, "").await;
    for _ in 0..30 {
        scene.call("fanlight_wrong", &call("look")).await;
    }
    scene.call(ANN, &call("look")).await;
    let lines = scene.lines("state/audit/audit.jsonl");
    let refused = lines
        .iter()
        .filter(|line| line.contains(r#""event":"authentication""#))
        .count();
    // Failed authentications are sampled: a few lines in ten seconds.
    assert!((1..30).contains(&refused), "{lines:?}");
}

#[tokio::test]
async fn collector_gets_each_line_and_checkpoint_of_a_record_that_verifies() {
    let collector = HttpRecorder::start(|_| says("")).await;
    let telemetry = format!(
        r#","telemetry":{{"endpoint":"http://{}"}}"#,
        collector.address
    );
    let scene = Scene::start(r#""otlp":true,"arguments":"full""#, &telemetry).await;
    for tool in ["look", "break", "fail"] {
        scene.call(ANN, &call(tool)).await;
    }
    scene.gateway.terminate().await;
    let file = scene.folder.path().join("state/audit/audit.jsonl");
    let written: Vec<_> = fs::read_to_string(&file)
        .unwrap()
        .lines()
        .map(str::to_owned)
        .collect();
    let (lines, notes) = exported(&collector);
    assert_eq!(lines, written);
    assert!(
        lines.iter().any(|line| line.contains(r#""event":"stop""#))
            && !lines.concat().contains("sesame"),
        "{lines:?}"
    );
    let checkpoints =
        fs::read_to_string(scene.folder.path().join("state/audit/audit.checkpoints")).unwrap();
    assert!(
        !notes.is_empty() && notes.iter().all(|note| checkpoints.contains(note.as_str())),
        "{notes:?} {checkpoints}"
    );
    // The checkpoints at the collector suffice to detect a rewritten history.
    let saved = TempFile::new("checkpoints", &notes.concat());
    let saved = saved.path().to_str().unwrap();
    let (is_ok, verified) = audit(scene.folder.path(), &["verify", "--checkpoint", saved]).await;
    assert!(is_ok, "{verified}");
    fs::write(&file, written[..written.len() - 1].concat()).unwrap();
    let (is_ok, verified) = audit(scene.folder.path(), &["verify", "--checkpoint", saved]).await;
    assert!(!is_ok, "{verified}");
}

#[tokio::test]
async fn entries_that_the_collector_refuses_are_counted_and_calls_go_on() {
    let collector = HttpRecorder::start(|_| {
        "HTTP/1.1 400 No\r\nContent-Length: 0\r\nConnection: close\r\n\r\n".to_owned()
    })
    .await;
    let telemetry = format!(
        r#","telemetry":{{"endpoint":"http://{}"}}"#,
        collector.address
    );
    let scene = Scene::start(r#""otlp":true"#, &telemetry).await;
    scene
        .gateway
        .log
        .line_with_all(&["log records are lost", "HTTP status 400"])
        .await;
    let metrics = text_at(&scene.gateway, "/metrics").await;
    let lost = metrics
        .lines()
        .find_map(|line| line.strip_prefix(r#"fanlight_audit_exported_total{outcome="lost"} "#));
    assert!(lost.is_some_and(|lost| lost != "0"), "{metrics}");
    let shown = text_at(&scene.gateway, "/api/audit").await;
    assert_ne!(member(&shown, "notExported"), Some("0"), "{shown}");
    assert!(member(&scene.call(ANN, &call("look")).await, "result").is_some());
}

#[tokio::test]
async fn gateway_does_not_start_without_a_collector_for_its_record() {
    let config =
        r#"{"audit":{"otlp":true},"mcpServers":{"only":{"url":"http://127.0.0.1:1/mcp"}}}"#;
    let config = TempFile::new("yaml", config);
    let output = fanlight()
        .args(["run", "--config"])
        .arg(config.path())
        .output()
        .await
        .unwrap();
    let text = String::from_utf8(output.stderr).unwrap();
    assert!(
        !output.status.success() && text.contains("`audit.otlp` needs a collector"),
        "{text}"
    );
}

#[tokio::test]
async fn options_of_the_record_take_effect_at_a_reload_or_not_at_all() {
    let scene = Scene::start(r#""required":true"#, "").await;
    let first = "state/audit/audit.jsonl";
    let decided = |lines: &[String]| {
        lines
            .iter()
            .filter(|line| line.contains(r#""outcome":"decided""#))
            .count()
    };
    scene.call(ANN, &call("look")).await;
    assert_eq!(decided(&scene.lines(first)), 1);
    assert!(
        scene
            .reload(
                r#""required":true,"arguments":"full","redact":["path"]"#,
                ""
            )
            .await
    );
    scene.call(ANN, &call("look")).await;
    let line = scene.lines(first).pop().unwrap();
    assert!(
        line.contains(r#""arguments":{"path":"***","apiKey":"***"}"#),
        "{line}"
    );
    // After a change of the file, the earlier file is ended and verifies.
    assert!(
        scene
            .reload(r#""required":true,"file":"other.jsonl""#, "")
            .await
    );
    scene.call(ANN, &call("look")).await;
    assert!(
        scene
            .lines(first)
            .pop()
            .unwrap()
            .contains(r#""event":"stop""#)
    );
    assert_eq!(
        (
            decided(&scene.lines(first)),
            decided(&scene.lines("other.jsonl"))
        ),
        (2, 1)
    );
    // A reload with a file that cannot be written changes nothing.
    assert!(
        !scene
            .reload(r#""required":true,"file":"/dev/null/audit.jsonl""#, "")
            .await
    );
    scene.call(ANN, &call("look")).await;
    assert_eq!(decided(&scene.lines("other.jsonl")), 2);
    assert!(!scene.reload(r#""required":true,"otlp":true"#, "").await);
    // Without `audit`, nothing more is written.
    assert!(scene.reload(r#""keepFor":"off""#, "").await);
    assert!(member(&scene.call(ANN, &call("look")).await, "result").is_some());
    assert_eq!(decided(&scene.lines("other.jsonl")), 2);
    let shown = text_at(&scene.gateway, "/api/audit").await;
    assert_eq!(member(&shown, "recording"), Some("false"));
}

#[tokio::test]
async fn collector_gets_the_record_from_a_reload_on() {
    let collector = HttpRecorder::start(|_| says("")).await;
    let telemetry = format!(
        r#","telemetry":{{"endpoint":"http://{}"}}"#,
        collector.address
    );
    let scene = Scene::start(r#""required":true"#, &telemetry).await;
    scene.call(ANN, &call("look")).await;
    assert!(
        scene
            .reload(r#""required":true,"otlp":true"#, &telemetry)
            .await
    );
    scene.call(ANN, &call("break")).await;
    // Queued lines are delivered before the export ends.
    assert!(scene.reload(r#""required":true"#, &telemetry).await);
    let lines = exported(&collector).0.concat();
    // Lines from before the export began are not sent.
    assert!(
        lines.contains(r#""item":"break""#) && !lines.contains(r#""event":"file""#),
        "{lines}"
    );
}

#[tokio::test]
async fn arguments_that_the_schema_calls_secret_are_masked() {
    let scene = Scene::start(r#""required":true,"arguments":"full""#, "").await;
    let schema = r##"{"type":"object","properties":{"note":{"type":"string","writeOnly":true},"region":{"type":"string","x-mcp-header":"Region"},"list":{"items":{"$ref":"#/$defs/pass"}}},"$defs":{"pass":{"format":"password"}}}"##;
    let tool = format!(r#"{{"name":"look","inputSchema":{schema}}}"#);
    scene
        .backend
        .on("tools/list", scene.backend.list("tools", &tool));
    let arguments = r#""arguments":{"note":"n1","list":["p1"],"path":"/a"}"#;
    scene
        .call(ANN, &format!(r#""name":"look",{arguments}"#))
        .await;
    scene
        .call(ANN, &format!(r#""name":"unlisted",{arguments}"#))
        .await;
    let lines = scene.lines("state/audit/audit.jsonl");
    let look = lines
        .iter()
        .find(|line| line.contains(r#""arguments":"#))
        .unwrap_or_else(|| panic!("{lines:?}"));
    assert!(
        look.contains(r#""arguments":{"note":"***","list":["***"],"path":"/a"}"#),
        "{look}"
    );
    // No list has this tool, so its secret arguments are unknown and only a digest is recorded.
    assert!(
        lines.iter().any(|line| line.contains("argumentsDigest")),
        "{lines:?}"
    );
    assert!(
        !lines.concat().contains("n1") && !lines.concat().contains("p1"),
        "{lines:?}"
    );
}

#[tokio::test]
async fn call_that_began_a_task_is_found_with_the_requests_about_it() {
    let scene = Scene::start("", "").await;
    let state = r#""taskId":"job-7","status":"working","createdAt":"2025-11-25T10:30:00Z","lastUpdatedAt":"2025-11-25T10:30:00Z","ttlMs":600000"#;
    scene.backend.on("server/discover", Reply::result(r#"{"resultType":"complete","supportedVersions":["2026-07-28"],"capabilities":{"tools":{},"extensions":{"io.modelcontextprotocol/tasks":{}}},"_meta":{"io.modelcontextprotocol/serverInfo":{"name":"s","version":"1"}},"ttlMs":0,"cacheScope":"private"}"#));
    scene.backend.on(
        "tools/call",
        Reply::result(format!(r#"{{"resultType":"task",{state}}}"#)),
    );
    scene.backend.on(
        "tasks/get",
        Reply::result(format!(r#"{{"resultType":"complete",{state}}}"#)),
    );
    let begun = scene.call(ANN, &call("look")).await;
    let task = plain_string(member(&begun, "result.taskId").unwrap_or_else(|| panic!("{begun}")))
        .unwrap()
        .to_owned();
    scene
        .ask(ANN, "tasks/get", &format!(r#""taskId":"{task}""#))
        .await;
    scene.gateway.terminate().await;
    let (_, lines) = audit(scene.folder.path(), &["query", "--json", "--task", &task]).await;
    let lines: Vec<_> = lines.lines().collect();
    let shown: Vec<_> = lines
        .iter()
        .map(|line| [member(line, "action"), member(line, "principal")])
        .collect();
    let ann = Some(r#""key#ann""#);
    assert_eq!(
        shown,
        [
            [Some(r#""tasks/get""#), ann],
            [Some(r#""tools/call""#), ann]
        ],
        "{lines:?}"
    );
    assert!(lines[1].contains(r#""item":"look""#), "{lines:?}");
}

#[tokio::test]
async fn page_reads_the_records_of_all_processes_with_the_same_configuration() {
    let scene = Scene::start(r#""required":true"#, "").await;
    let other = Gateway::start_at(scene.folder.path().join("fanlight.json")).await;
    let second = Scene {
        backend: Backend::start(Era::Modern, Transport::Http).await,
        gateway: other,
        folder: TempFile::folder(),
    };
    second.call(ANN, &call("break")).await;
    assert!(
        scene
            .folder
            .path()
            .join("state/audit/audit-2.jsonl")
            .is_file()
    );
    let shown = text_at(
        &scene.gateway,
        "/api/audit?tool=files/break&outcome=decided",
    )
    .await;
    assert!(shown.contains(r#""item":"break""#), "{shown}");
}

#[tokio::test]
async fn lean_list_has_the_tools_that_clients_of_the_endpoint_have_called() {
    let endpoints = r#","endpoints":{"/mcp":{},"/mcp/other":{}}"#;
    let scene = Scene::start(r#""required":true"#, endpoints).await;
    let app = r#"{"name":"show","inputSchema":{"type":"object"},"_meta":{"ui":{"resourceUri":"ui://a/b"}}}"#;
    let tool = |name: &str| format!(r#"{{"name":"{name}","inputSchema":{{"type":"object"}}}}"#);
    let tools = ["look", "break", "fail"].map(tool).join(",");
    let list = scene.backend.list("tools", &format!("{tools},{app}"));
    scene.backend.on("tools/list", list);
    for tool in ["look", "look"] {
        scene.call(ANN, &call(tool)).await;
    }
    let suggest = async |endpoint: &str, more: &[&str]| {
        let mut command = fanlight();
        command
            .args(["lean", "suggest", "--endpoint", endpoint])
            .args(more);
        let admin = format!("http://{}", scene.gateway.admin);
        command.args(["--admin", &admin, "--config"]);
        command.arg(scene.folder.path().join("fanlight.json"));
        let output = command.output().await.unwrap();
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    let found: serde_json::Value =
        serde_json::from_str(&suggest("/mcp", &["--json"]).await).unwrap();
    let always = &found["configuration"]["endpoints"]["/mcp"]["lean"]["always"];
    assert_eq!(*always, serde_json::json!(["files/look"]), "{found}");
    assert_eq!(
        found["uncalled"],
        serde_json::json!(["files/break", "files/fail", "files/show"])
    );
    let saved = tool("break").len() + tool("fail").len();
    assert_eq!(found["savedBytes"], saved, "{found}");
    // At the other endpoint nobody has called anything.
    let text = suggest("/mcp/other", &[]).await;
    assert!(
        text.contains(r#""always": []"#) && text.contains("files/fail"),
        "{text}"
    );
    assert!(!text.contains("files/look"), "{text}");
    let table = suggest("/mcp", &[]).await;
    assert!(table.contains(&format!("{saved} of ")), "{table}");
}

#[tokio::test]
async fn calls_through_a_lean_list_are_counted_for_the_tool_that_ran() {
    let required = r#""required":true"#;
    let scene = Scene::start(required, "").await;
    let with_scopes = |scopes: &str| {
        let keys = KEYS.replace("[dev]", &format!("[dev], scopes: {scopes}"));
        fs::write(scene.folder.path().join("keys.yaml"), keys).unwrap();
    };
    let endpoint = |lean: &str| {
        let scopes = r#""scopes":{"read":["r"],"call":["c"]}"#;
        format!(r#","endpoints":{{"/mcp":{{"lean":{{{lean}}},{scopes}}}}}"#)
    };
    let search = r#""name":"find_tools","arguments":{"query":"look for zebras"}"#;
    // Whoever may not read lists learns nothing by a search either.
    with_scopes("[c]");
    assert!(scene.reload(required, &endpoint(r#""max":1"#)).await);
    assert_eq!(scene.send(ANN, "tools/list", "").await.status, 403);
    assert_eq!(scene.send(ANN, "tools/call", search).await.status, 403);
    with_scopes("[c, r]");
    assert!(scene.reload(required, &endpoint("")).await);
    let found = scene.call(ANN, search).await;
    assert!(found.contains(r#""name":"look""#), "{found}");
    let through = r#""name":"call_tool","arguments":{"name":"look","arguments":{}}"#;
    let called = scene.call(ANN, through).await;
    assert_eq!(called, scene.call(ANN, &call("look")).await);

    let entries = text_at(&scene.gateway, "/api/audit").await;
    let count = |text: &str| entries.matches(text).count();
    assert!(count(r#""item":"find_tools""#) > 0, "{entries}");
    assert_eq!(count("zebras") + count("call_tool"), 0, "{entries}");
    let suggested = fanlight()
        .args(["lean", "suggest", "--json", "--admin"])
        .arg(format!("http://{}", scene.gateway.admin))
        .arg("--config")
        .arg(scene.folder.path().join("fanlight.json"))
        .output()
        .await
        .unwrap();
    let suggested = String::from_utf8_lossy(&suggested.stdout);
    let suggested: serde_json::Value = serde_json::from_str(&suggested).unwrap();
    let always = &suggested["configuration"]["endpoints"]["/mcp"]["lean"]["always"];
    assert_eq!(*always, serde_json::json!(["files/look"]), "{suggested}");

    // The end writes what waits.
    assert!(scene.gateway.terminate().await.success());
    let (_, used) = audit(scene.folder.path(), &["usage"]).await;
    let row = used.lines().find(|line| line.contains("files/look"));
    let row = row.unwrap_or_else(|| panic!("{used}"));
    assert!(row.split_whitespace().any(|cell| cell == "2"), "{used}");
    assert!(!used.contains("call_tool"), "{used}");
}
