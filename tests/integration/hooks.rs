//! Guardrails of the operator's own, through the real binary.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use fanlight_tests::slicer::member;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;

use crate::clients::Client;
use crate::scripted::{Backend, Era, Reply, Transport, config};

/// A guardrail: what it answers, and what it was asked.
struct Guardrail {
    address: SocketAddr,
    asked: Arc<Mutex<Vec<String>>>,
}

impl Guardrail {
    /// One that answers each question with this HTTP response; never, if that is empty.
    async fn start(answer: impl Fn(&str) -> String + Send + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (address, asked) = (listener.local_addr().unwrap(), Arc::new(Mutex::new(Vec::new())));
        let questions = Arc::clone(&asked);
        tokio::spawn(async move {
            let mut open = Vec::new();
            while let Ok((mut socket, _)) = listener.accept().await {
                let mut text = String::new();
                let mut bytes = [0; 4096];
                loop {
                    let read = socket.read(&mut bytes).await.unwrap_or_default();
                    text.push_str(&String::from_utf8_lossy(&bytes[..read]));
                    let whole = text.split_once("\r\n\r\n").is_some_and(|(head, body)| {
                        let length = head
                            .to_lowercase()
                            .lines()
                            .find_map(|line| Some(line.strip_prefix("content-length: ")?.parse::<usize>().unwrap()));
                        length.is_some_and(|length| body.len() >= length)
                    });
                    if read == 0 || whole {
                        break;
                    }
                }
                questions.lock().unwrap().push(text.clone());
                let answer = answer(&text);
                if answer.is_empty() {
                    open.push(socket);
                    continue;
                }
                let _ = socket.write_all(answer.as_bytes()).await;
            }
        });
        Self { address, asked }
    }

    fn asked(&self) -> Vec<String> {
        self.asked.lock().unwrap().clone()
    }
}

fn says(body: &str) -> String {
    format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}", body.len())
}

async fn backend() -> Backend {
    let backend = Backend::start(Era::Modern, Transport::Http).await;
    backend.offers_tools(&["look", "leak"]);
    backend.on("tools/call", Reply::result(Era::Modern.complete(r#""content":[{"type":"text","text":"1.0e2"}]"#)));
    backend
}

fn hooked(backend: &Backend, guardrail: &Guardrail, more: &str) -> String {
    let servers = config(&[backend.entry("files")]);
    let servers = servers.trim_end().strip_suffix('}').unwrap();
    format!(
        r#"{servers},"testing":true,"hooks":[{{"url":"http://{}/judge","timeout":"10s"{more}}}]}}"#,
        guardrail.address
    )
}

const CALL: &str = r#""name":"look","arguments":{"path":"\/data","n":1.0}"#;

#[tokio::test]
async fn hook_is_asked_before_a_call_and_its_word_counts() {
    for (era, transport) in [(Era::Modern, Transport::Http), (Era::Legacy, Transport::Stdio)] {
        let backend = backend().await;
        let guardrail = Guardrail::start(|question| match question.contains(r#""tool":"leak""#) {
            true => says(r#"{"decision":"deny","text":"no leaks here"}"#),
            false => says(r#"{"decision":"allow"}"#),
        })
        .await;
        let mut client = Client::start(&hooked(&backend, &guardrail, ""), era, transport).await;
        let answer = client.request("1", "tools/call", CALL, "").await;
        assert_eq!(answer.member("result.content"), r#"[{"type":"text","text":"1.0e2"}]"#);
        let denied = client.call("leak").await;
        assert_eq!(denied.member("error.code"), "-31005");
        assert!(denied.member("error.message").contains("no leaks here"), "{}", denied.answer);
        assert_eq!(backend.received("tools/call").len(), 1);
        let asked = guardrail.asked();
        let (head, body) = asked[0].split_once("\r\n\r\n").unwrap();
        assert!(head.to_lowercase().contains("fanlight-event: call"), "{head}");
        assert_eq!(member(body, "arguments"), Some(r#"{"path":"\/data","n":1.0}"#), "{body}");
        assert_eq!((member(body, "server"), member(body, "tool")), (Some(r#""files""#), Some(r#""look""#)));
        // Lists are no calls.
        client.request("2", "tools/list", "", "").await.member("result.tools");
        assert_eq!(guardrail.asked().len(), 2);
    }
}

#[tokio::test]
async fn hook_that_fails_denies_unless_it_is_to_allow() {
    let answers: [fn(&str) -> String; 4] = [
        |_| says(r#"{"decision":"perhaps"}"#),
        |_| "HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:1/\r\nContent-Length: 0\r\n\r\n".to_owned(),
        |_| says(&"x".repeat(100_000)),
        |_| String::new(),
    ];
    for answer in answers {
        for (more, runs) in [(r#","timeout":"300ms""#, 0), (r#","timeout":"300ms","onFailure":"allow""#, 1)] {
            let backend = backend().await;
            let guardrail = Guardrail::start(answer).await;
            let config = hooked(&backend, &guardrail, more).replace(r#""timeout":"10s","#, "");
            let mut client = Client::start(&config, Era::Modern, Transport::Http).await;
            let outcome = client.request("1", "tools/call", CALL, "").await;
            assert_eq!(outcome.answer.contains("cannot be asked"), runs == 0, "{}", outcome.answer);
            assert!(!outcome.answer.contains("127.0.0.1"), "{}", outcome.answer);
            assert_eq!(backend.received("tools/call").len(), runs);
        }
    }
}

#[tokio::test]
async fn hook_judges_results_and_can_have_somebody_asked() {
    let backend = backend().await;
    let guardrail = Guardrail::start(|question| match question.contains(r#""result":"#) {
        true => says(r#"{"decision":"deny","text":"a secret"}"#),
        false => says(r#"{"decision":"allow"}"#),
    })
    .await;
    let mut client =
        Client::start(&hooked(&backend, &guardrail, r#","on":["call","result"]"#), Era::Modern, Transport::Http).await;
    let denied = client.request("1", "tools/call", CALL, "").await;
    assert!(
        denied.member("error.message").contains("a secret") && !denied.answer.contains("1.0e2"),
        "{}",
        denied.answer
    );
    assert_eq!(denied.member("error.data.mayHaveRun"), "true");
    assert!(guardrail.asked()[1].contains(r#""text":"1.0e2""#), "the result as the server gave it");

    let asking = Guardrail::start(|_| says(r#"{"decision":"ask","text":"Is this wise?"}"#)).await;
    let config =
        hooked(&backend, &asking, "").replace(r#""testing":true"#, r#""testing":true,"timeouts":{"approval":"10ms"}"#);
    let mut client = Client::start(&config, Era::Modern, Transport::Http).await;
    let waiting = client.request("1", "tools/call", CALL, "").await;
    assert_eq!((waiting.member("error.code"), waiting.member("error.data.status")), ("-31007", r#""open""#));
    assert_eq!(backend.received("tools/call").len(), 1);
}
