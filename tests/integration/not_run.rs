//! Errors of failed calls: only calls that certainly did not run say so.

use std::net::SocketAddr;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::task::JoinSet;

use crate::faults::backend;
use crate::harness::{Gateway, within};
use crate::raw_client::{modern_request, post_modern};
use crate::scripted::{Backend, Era, Fault, Reply, Task, Transport, config};

const ERAS: [Era; 2] = [Era::Legacy, Era::Modern];

pub(crate) async fn call(gateway: &Gateway, tool: &str, arguments: &str) -> Value {
    let request = modern_request(
        "1",
        "tools/call",
        &format!(r#""name":"{tool}","arguments":{arguments}"#),
        "",
    );
    serde_json::from_str(&post_modern(gateway.mcp, &request).await.messages().await.1).unwrap()
}

/// Checks the data and the message of an error.
pub(crate) fn assert_error(answer: &Value, may_have_run: bool) {
    assert_eq!(
        answer["error"]["data"]["mayHaveRun"], may_have_run,
        "{answer}"
    );
    let words = if may_have_run {
        "may have been carried out"
    } else {
        "was not carried out and can be sent again"
    };
    assert!(
        answer["error"]["message"].as_str().unwrap().contains(words),
        "{answer}"
    );
}

/// A relay in front of a server that can be shut.
struct Door {
    address: SocketAddr,
    /// The running relays.
    open: JoinSet<()>,
    /// A listener that accepts nothing, and the connections that fill its queue.
    closed: Option<(TcpListener, Vec<TcpStream>)>,
}

impl Door {
    async fn before(server: &Backend) -> Self {
        let socket = TcpSocket::new_v4().unwrap();
        // The connections inherit the option, so that the address can be bound again while they
        // end.
        socket.set_reuseaddr(true).unwrap();
        socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let listener = socket.listen(1).unwrap();
        let address = listener.local_addr().unwrap();
        let inner: SocketAddr = server
            .url()
            .trim_start_matches("http://")
            .trim_end_matches("/mcp")
            .parse()
            .unwrap();
        let mut open = JoinSet::new();
        open.spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((mut outer, _)) = listener.accept().await {
                connections.spawn(async move {
                    let mut inner = TcpStream::connect(inner).await.unwrap();
                    let _ = copy_bidirectional(&mut outer, &mut inner).await;
                });
            }
        });
        Self {
            address,
            open,
            closed: None,
        }
    }

    fn url(&self) -> String {
        format!("http://{}/mcp", self.address)
    }

    /// Ends all connections and refuses further ones.
    async fn shut(&mut self) {
        self.open.shutdown().await;
    }

    /// Ends all connections and leaves further attempts unanswered.
    async fn wall_up(&mut self) {
        self.shut().await;
        let socket = TcpSocket::new_v4().unwrap();
        socket.set_reuseaddr(true).unwrap();
        socket.bind(self.address).unwrap();
        let listener = socket.listen(1).unwrap();
        let mut waiting = Vec::new();
        // Once the accept queue is full, the system drops further attempts.
        while let Ok(next) =
            tokio::time::timeout(Duration::from_millis(200), TcpStream::connect(self.address)).await
        {
            waiting.push(next.unwrap());
        }
        self.closed = Some((listener, waiting));
    }
}

#[tokio::test]
async fn call_without_a_connection_was_not_carried_out() {
    for era in ERAS {
        for is_walled_up in [false, true] {
            let server = backend(era, Transport::Http).await;
            let mut door = Door::before(&server).await;
            let entry = json!({ "url": door.url(), "timeout": "1s" });
            let gateway =
                Gateway::start(&json!({ "mcpServers": { "only": entry } }).to_string()).await;
            assert!(call(&gateway, "t", "{}").await["result"].is_object());
            match is_walled_up {
                true => door.wall_up().await,
                false => door.shut().await,
            }
            // The first call may use a connection that has ended without the gateway's knowledge.
            call(&gateway, "t", "{}").await;
            let before = server.received("tools/call").len();
            assert_error(&call(&gateway, "t", "{}").await, false);
            assert_eq!(server.received("tools/call").len(), before);
        }
    }
}

#[tokio::test]
async fn call_that_was_not_written_to_the_process_is_sent_to_the_next() {
    for era in ERAS {
        let (server, other) = (
            backend(era, Transport::Stdio).await,
            backend(Era::Modern, Transport::Http).await,
        );
        let gateway = Gateway::start(&config(&[server.entry("only"), other.entry("other")])).await;
        assert!(call(&gateway, "only__t", "{}").await["result"].is_object());
        let before = server.received("tools/call").len();
        let processes: Vec<Pid> = server
            .started()
            .iter()
            .map(|pid| Pid::from_raw((*pid).try_into().unwrap()).unwrap())
            .collect();
        processes
            .iter()
            .for_each(|pid| kill_process(*pid, Signal::STOP).unwrap());
        // The call exceeds the pipe's capacity, so the process may have read part of it.
        let long = format!(r#"{{"x":"{}"}}"#, "x".repeat(1 << 20));
        let first = call(&gateway, "only__t", &long);
        let second = async {
            // Fifty calls take longer than the first call needs to fill the pipe.
            for _ in 0..50 {
                assert!(call(&gateway, "other__t", "{}").await["result"].is_object());
            }
            let killed = async {
                for _ in 0..50 {
                    assert!(call(&gateway, "other__t", "{}").await["result"].is_object());
                }
                processes
                    .iter()
                    .for_each(|pid| kill_process(*pid, Signal::KILL).unwrap());
            };
            tokio::join!(call(&gateway, "only__t", "{}"), killed).0
        };
        let (first, second) = within(
            "both calls",
            Box::pin(async { tokio::join!(first, second) }),
        )
        .await;
        assert_error(&first, true);
        assert!(second["result"].is_object(), "{era:?}: {second}");
        assert_eq!(server.received("tools/call").len(), before + 1, "{era:?}");
        assert!(gateway.terminate().await.success());
    }
}

#[tokio::test]
async fn call_to_a_server_that_rejects_everything_or_the_credentials_was_not_carried_out() {
    for era in ERAS {
        for status in [401, 403, 404, 405] {
            let server = backend(era, Transport::Http).await;
            let gateway = Gateway::start(&config(&[server.entry("only")])).await;
            assert!(call(&gateway, "t", "{}").await["result"].is_object());
            for method in [
                "server/discover",
                "initialize",
                "ping",
                "tools/list",
                "tools/call",
            ] {
                server.on(
                    method,
                    Reply::fault(Fault::Status(status, "text/plain", "no")),
                );
            }
            assert_error(&call(&gateway, "t", "{}").await, false);
        }
    }
}

/// The call has begun, so it may have run even if requests for its task fail.
#[tokio::test]
async fn call_whose_task_cannot_be_followed_may_have_been_carried_out() {
    let server = Backend::start(Era::Modern, Transport::Http).await;
    server.declares(r#"{"tools":{},"extensions":{"io.modelcontextprotocol/tasks":{}}}"#);
    server.offers_tools(&["t"]);
    let task = Task {
        id: "1",
        status: "working",
        ttl: 600_000,
        poll: 50,
    };
    server.on("tools/call", Reply::result(task.created(Era::Modern)));
    server.on("tasks/get", Reply::result(task.got(Era::Modern, "")));
    let mut door = Door::before(&server).await;
    let config = json!({
        "mcpServers": { "only": { "url": door.url() } },
                "x-limits": "taskPollFailures=1,taskPollMin=50ms,taskPollMax=100ms",
    });
    let gateway = Gateway::start(&config.to_string()).await;
    let lost = async {
        server.wait_for("tasks/get", 1).await;
        door.shut().await;
    };
    let (answer, ()) = within("the call", async {
        tokio::join!(call(&gateway, "t", "{}"), lost)
    })
    .await;
    assert_error(&answer, true);
}
