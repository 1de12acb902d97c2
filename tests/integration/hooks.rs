//! The operator's own guardrails, through the real binary.

use fanlight_testkit::tls::Authority;
use fanlight_tests::slicer::member;

use crate::clients::Client;
use crate::harness::{Gateway, TempFile, fanlight, within};
use crate::http_recorder::{HttpRecorder, Recorded, says};
use crate::not_run_over_tls::TlsDoor;
use crate::raw_client::{modern_request, modern_request_with, post_modern};
use crate::scripted::{Backend, Era, Reply, Task, Transport, config};
use crate::server_lives::text_at;

async fn backend() -> Backend {
    let backend = Backend::start(Era::Modern, Transport::Http).await;
    backend.offers_tools(&["look", "leak"]);
    backend.on(
        "tools/call",
        Reply::result(Era::Modern.complete(r#""content":[{"type":"text","text":"1.0e2"}]"#)),
    );
    backend
}

fn hooked(backend: &Backend, guardrail: &HttpRecorder, more: &str) -> String {
    let servers = config(&[backend.entry("files")]);
    let servers = servers.trim_end().strip_suffix('}').unwrap();
    format!(
        r#"{servers},"hooks":[{{"url":"http://{}/judge","timeout":"10s"{more}}}]}}"#,
        guardrail.address
    )
}

const CALL: &str = r#""name":"look","arguments":{"path":"\/data","n":1.0}"#;

#[tokio::test]
async fn hook_decides_about_a_call_before_it_runs() {
    for (era, transport) in [
        (Era::Modern, Transport::Http),
        (Era::Legacy, Transport::Stdio),
    ] {
        let backend = backend().await;
        let guardrail =
            HttpRecorder::start(
                |question| match question.text().contains(r#""tool":"leak""#) {
                    true => says(r#"{"decision":"deny","text":"no leaks here"}"#),
                    false => says(r#"{"decision":"allow"}"#),
                },
            )
            .await;
        let mut client = Client::start(&hooked(&backend, &guardrail, ""), era, transport).await;
        let answer = client.request("1", "tools/call", CALL, "").await;
        assert_eq!(
            answer.member("result.content"),
            r#"[{"type":"text","text":"1.0e2"}]"#
        );
        let denied = client.call("leak").await;
        assert_eq!(denied.member("error.code"), "-31005");
        assert!(
            denied.member("error.message").contains("no leaks here"),
            "{}",
            denied.answer
        );
        assert_eq!(backend.received("tools/call").len(), 1);
        // Its server may know a method that calls a tool.
        let unknown = client.request("2", "tools/run", CALL, "").await;
        assert_eq!(unknown.member("error.code"), "-32601");
        assert!(backend.received("tools/run").is_empty());
        let asked = guardrail.requests();
        let (head, body) = (&asked[0].head, &asked[0].text());
        assert!(head.contains("fanlight-event: call"), "{head}");
        assert_eq!(
            member(body, "arguments"),
            Some(r#"{"path":"\/data","n":1.0}"#),
            "{body}"
        );
        assert_eq!(
            (member(body, "server"), member(body, "tool")),
            (Some(r#""files""#), Some(r#""look""#))
        );
        // Lists do not pass through the guardrail for calls.
        client
            .request("2", "tools/list", "", "")
            .await
            .member("result.tools");
        assert_eq!(guardrail.requests().len(), 2);
    }
}

#[tokio::test]
async fn hook_judges_the_arguments_that_are_sent() {
    for more in ["", r#","other":{"command":"false"}"#] {
        let backend = backend().await;
        let guardrail = HttpRecorder::start(|_| says(r#"{"decision":"allow"}"#)).await;
        let rules = r#""arguments":{"*":{"root":{"value":"/etc"},"n":{"default":2}}}"#;
        let entry = backend.entry_with("files", &rules.replace('*', "look"));
        let servers = format!("{entry}{more}");
        let config = config(&[servers]);
        let hooks = format!(
            r#","hooks":[{{"url":"http://{}/judge","timeout":"10s"}}]}}"#,
            guardrail.address
        );
        let config = config.trim_end().strip_suffix('}').unwrap().to_owned() + &hooks;
        let gateway = Gateway::start(&config).await;
        let name = if more.is_empty() {
            "look"
        } else {
            "files__look"
        };
        let params = format!(r#""name":"{name}","arguments":{{"path":"/data"}}"#);
        post_modern(gateway.mcp, &modern_request("1", "tools/call", &params, ""))
            .await
            .text()
            .await;
        let sent = backend.received("tools/call")[0].text.clone();
        let asked = guardrail.requests()[0].text().to_owned();
        assert_eq!(
            member(&asked, "arguments"),
            member(&sent, "params.arguments"),
            "{asked}"
        );
        assert!(
            asked.contains(r#""root":"/etc""#) && asked.contains(r#""n":2"#),
            "{asked}"
        );
    }
}

#[tokio::test]
async fn hooks_of_a_reload_are_asked_about_the_next_call() {
    let backend = backend().await;
    let guardrail = HttpRecorder::start(|_| says(r#"{"decision":"deny","text":"no"}"#)).await;
    let folder = TempFile::folder();
    let path = folder.path().join("fanlight.json");
    std::fs::write(&path, config(&[backend.entry("files")])).unwrap();
    let gateway = Gateway::start_at(path.clone()).await;
    let runs = async || {
        let request = modern_request("1", "tools/call", CALL, "");
        member(
            &post_modern(gateway.mcp, &request).await.text().await,
            "result",
        )
        .is_some()
    };
    assert!(runs().await);
    for (text, is_run) in [
        (hooked(&backend, &guardrail, ""), false),
        (config(&[backend.entry("files")]), true),
    ] {
        std::fs::write(&path, text).unwrap();
        assert_eq!(gateway.reload().await.0, 200);
        assert_eq!(runs().await, is_run);
    }
    assert_eq!(
        (
            guardrail.requests().len(),
            backend.received("tools/call").len()
        ),
        (1, 2)
    );
}

#[tokio::test]
async fn hook_that_fails_denies_unless_it_is_to_allow() {
    let answers: [fn(&Recorded) -> String; 4] = [
        |_| says(r#"{"decision":"perhaps"}"#),
        |_| {
            "HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:1/\r\nContent-Length: 0\r\n\r\n"
                .to_owned()
        },
        |_| says(&"x".repeat(100_000)),
        |_| String::new(),
    ];
    for answer in answers {
        for (more, runs) in [
            (r#","timeout":"300ms""#, 0),
            (r#","timeout":"300ms","onFailure":"allow""#, 1),
        ] {
            let backend = backend().await;
            let guardrail = HttpRecorder::start(answer).await;
            let config = hooked(&backend, &guardrail, more).replace(r#""timeout":"10s","#, "");
            let mut client = Client::start(&config, Era::Modern, Transport::Http).await;
            let outcome = client.request("1", "tools/call", CALL, "").await;
            assert_eq!(
                outcome.answer.contains("the hook is unavailable"),
                runs == 0,
                "{}",
                outcome.answer
            );
            assert!(!outcome.answer.contains("127.0.0.1"), "{}", outcome.answer);
            assert_eq!(backend.received("tools/call").len(), runs);
        }
    }
}

#[tokio::test]
async fn hook_judges_results_and_can_require_an_approval() {
    let backend = backend().await;
    let guardrail =
        HttpRecorder::start(|question| match question.text().contains(r#""result":"#) {
            true => says(r#"{"decision":"deny","text":"a secret"}"#),
            false => says(r#"{"decision":"allow"}"#),
        })
        .await;
    let mut client = Client::start(
        &hooked(&backend, &guardrail, r#","when":["call","result"]"#),
        Era::Modern,
        Transport::Http,
    )
    .await;
    let denied = client.request("1", "tools/call", CALL, "").await;
    assert!(
        denied.member("error.message").contains("a secret") && !denied.answer.contains("1.0e2"),
        "{}",
        denied.answer
    );
    assert_eq!(denied.member("error.data.mayHaveRun"), "true");
    assert_eq!(denied.member("error.data.gate"), r#""hooks""#);
    assert!(
        guardrail.requests()[1].text().contains(r#""text":"1.0e2""#),
        "the result as the server gave it"
    );

    let asking =
        HttpRecorder::start(|_| says(r#"{"decision":"ask","text":"Is this wise?"}"#)).await;
    let config = hooked(&backend, &asking, "")
        .replace(r#","hooks""#, r#","timeouts":{"approval":"10ms"},"hooks""#);
    let mut client = Client::start(&config, Era::Modern, Transport::Http).await;
    let waiting = client.request("1", "tools/call", CALL, "").await;
    assert_eq!(
        (
            waiting.member("error.code"),
            waiting.member("error.data.status")
        ),
        ("-31007", r#""open""#)
    );
    assert_eq!(backend.received("tools/call").len(), 1);
}

#[tokio::test]
async fn result_of_a_task_is_judged_whichever_way_it_comes() {
    const TASKS: &str = r#"{"extensions":{"io.modelcontextprotocol/tasks":{}}}"#;
    const LEAK: &str = r#""result":{"content":[{"type":"text","text":"1.0e2"}]}"#;
    let backend = backend().await;
    let task = |status| Task {
        id: "job-7",
        status,
        ttl: 600_000,
        poll: 60_000,
    };
    backend.declares(r#"{"tools":{},"extensions":{"io.modelcontextprotocol/tasks":{}}}"#);
    backend.on(
        "tools/call",
        Reply::result(task("working").created(Era::Modern)),
    );
    backend.on(
        "tasks/get",
        Reply::result(task("completed").got(Era::Modern, LEAK)),
    );
    backend.once(
        "tasks/get",
        Reply::result(task("working").got(Era::Modern, "")),
    );
    backend.on("subscriptions/listen", Reply::listening());
    let guardrail = HttpRecorder::start(|question| match question.text().contains("1.0e2") {
        true => says(r#"{"decision":"deny","text":"a secret"}"#),
        false => says(r#"{"decision":"allow"}"#),
    })
    .await;
    let config = hooked(&backend, &guardrail, r#","when":["result"]"#);
    let mut client = Client::start_with(TASKS, &config, Era::Modern, Transport::Http).await;
    let begun = client.request("1", "tools/call", CALL, "").await;
    let about = format!(r#""taskId":{}"#, begun.member("result.taskId"));
    let asked = guardrail.requests().len();
    client
        .request("2", "tasks/get", &about, "")
        .await
        .member("result.status");
    assert_eq!(guardrail.requests().len(), asked, "there is no result yet");
    let denied = client.request("3", "tasks/get", &about, "").await;
    assert!(
        denied.member("error.message").contains("a secret"),
        "{}",
        denied.answer
    );
    let question = guardrail.requests().pop().unwrap().text();
    assert_eq!(
        (member(&question, "task"), member(&question, "tool")),
        (Some(r#""job-7""#), None),
        "{question}"
    );
    assert!(question.contains(LEAK), "{question}");

    let listen = modern_request_with(
        TASKS,
        "4",
        "subscriptions/listen",
        r#""notifications":{"taskIds":["job-7"]}"#,
        "",
    );
    let mut listening = post_modern(client.gateway().mcp, &listen).await;
    listening.event().await.unwrap();
    let server = backend.stream(0).await;
    for (status, more) in [
        ("completed", format!(",{LEAK}")),
        ("cancelled", String::new()),
    ] {
        server
            .notify(
                "notifications/tasks",
                &format!("{}{more}", task(status).members(Era::Modern)),
            )
            .await;
    }
    let told = listening.event().await.unwrap().unwrap();
    assert!(told.contains("cancelled"), "{told}");
}

#[tokio::test]
async fn denied_call_gets_its_own_error_at_once_whatever_others_wait_for() {
    let backend = backend().await;
    let guardrail = HttpRecorder::start(|_| says(r#"{"decision":"allow"}"#)).await;
    let folder = TempFile::folder();
    let policies = r#"permit(principal, action, resource);
        forbid(principal, action, resource == Tool::"files/leak");"#;
    std::fs::write(folder.path().join("a.cedar"), policies).unwrap();
    let more = r#""policy":{"files":["a.cedar"]},"limits":{"rates":[{"rate":"1/m","burst":1,"queue":"60s"}]}"#;
    let config = hooked(&backend, &guardrail, "").replacen('{', &format!("{{{more},"), 1);
    std::fs::write(folder.path().join("fanlight.json"), config).unwrap();
    let gateway = Gateway::start_at(folder.path().join("fanlight.json")).await;
    // The rate allows the second call only after a minute.
    for _ in 0..2 {
        let request = modern_request("1", "tools/call", r#""name":"leak","arguments":{}"#, "");
        let answer = within("an answer", post_modern(gateway.mcp, &request))
            .await
            .text()
            .await;
        assert_eq!(member(&answer, "error.code"), Some("-32602"), "{answer}");
    }
    assert!(guardrail.requests().is_empty());
}

#[tokio::test]
async fn hook_replaces_a_result_only_if_it_may() {
    let answer =
        r#"{"decision":"allow","result":{"content":[{"type":"text","text":"[1.0e2]"}],"x":1.50}}"#;
    for (era, transport) in [
        (Era::Modern, Transport::Http),
        (Era::Legacy, Transport::Http),
    ] {
        for (may, when) in [("true", "result"), ("false", "result"), ("true", "call")] {
            let backend = backend().await;
            let guardrail = HttpRecorder::start(move |_| says(answer)).await;
            let more = format!(r#","when":["{when}"],"mayReplace":{may}"#);
            let config = hooked(&backend, &guardrail, &more);
            let mut client = Client::start(&config, era, transport).await;
            let got = client.request("1", "tools/call", CALL, "").await;
            if (may, when) == ("true", "result") {
                let content = r#"[{"type":"text","text":"[1.0e2]"}]"#;
                assert_eq!(got.member("result.content"), content);
                assert_eq!(got.member("result.x"), "1.50");
                let traces = text_at(client.gateway(), "/api/traces?tool=look&limit=1").await;
                let (_, id) = traces.split_once(r#""traceId":"#).unwrap();
                let id = &id.trim_start().trim_start_matches('"')[..32];
                let trace = text_at(client.gateway(), &format!("/api/traces/{id}")).await;
                assert!(trace.contains("fanlight.rewritten"), "{trace}");
            } else {
                assert!(
                    got.answer.contains("the hook is unavailable"),
                    "{}",
                    got.answer
                );
            }
        }
    }
}

#[tokio::test]
async fn hook_is_asked_about_matching_calls_with_its_headers_and_at_most_its_size() {
    let backend = backend().await;
    let guardrail = HttpRecorder::start(|_| says(r#"{"decision":"allow"}"#)).await;
    let more = r#","match":{"server":"files","tool":"files/lo*"},"headers":{"X-Key":"s3cret"}"#;
    let config = hooked(&backend, &guardrail, more);
    let config = config.replacen('{', r#"{"x-limits":"question=1024","#, 1);
    let mut client = Client::start(&config, Era::Modern, Transport::Http).await;
    client.call("leak").await.member("result.content");
    assert!(guardrail.requests().is_empty());
    client.call("look").await.member("result.content");
    let [asked] = &guardrail.requests()[..] else {
        panic!("asked once")
    };
    assert!(asked.head.contains("x-key: s3cret"), "{}", asked.head);
    let long = format!(
        r#""name":"look","arguments":{{"path":"{}"}}"#,
        "a".repeat(1024)
    );
    let denied = client.request("3", "tools/call", &long, "").await;
    assert!(
        denied.answer.contains("the hook is unavailable"),
        "{}",
        denied.answer
    );
    assert_eq!(guardrail.requests().len(), 1);
    client.gateway().log.line_with("more than 1024").await;
    let log = client.gateway().log.text();
    assert!(!log.contains("s3cret"), "{log}");
    let shown = text_at(client.gateway(), "/api/config").await;
    assert!(
        shown.contains("x-key") && !shown.contains("s3cret"),
        "{shown}"
    );
}

#[tokio::test]
async fn hook_is_reached_over_tls_only_with_its_authority() {
    let backend = backend().await;
    let guardrail = HttpRecorder::start(|_| says(r#"{"decision":"allow"}"#)).await;
    let authority = Authority::new();
    let ca = TempFile::new("pem", &authority.pem());
    let acceptor = authority.server().acceptor(&[]);
    let door = TlsDoor::before(&format!("http://{}", guardrail.address), acceptor).await;
    let plain = hooked(&backend, &guardrail, "");
    let secure = plain.replace(
        &format!("http://{}", guardrail.address),
        &format!("https://{}", door.address),
    );
    let trusting = format!(r#""caFile":{:?},"timeout":"10s""#, ca.path());
    for (config, is_reached) in [
        (secure.replace(r#""timeout":"10s""#, &trusting), true),
        (secure.clone(), false),
    ] {
        let mut client = Client::start(&config, Era::Modern, Transport::Http).await;
        let answer = client.call("look").await.answer;
        assert_eq!(answer.contains(r#""result""#), is_reached, "{answer}");
    }
    let broken = TempFile::new("pem", "no certificate");
    let trusting = format!(r#""caFile":{:?},"timeout":"10s""#, broken.path());
    let file = TempFile::new("json", &secure.replace(r#""timeout":"10s""#, &trusting));
    let run = fanlight()
        .arg("run")
        .arg(file.path())
        .output()
        .await
        .unwrap();
    let error = String::from_utf8_lossy(&run.stderr);
    assert!(!run.status.success() && error.contains("caFile"), "{error}");
}
