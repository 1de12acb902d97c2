//! The fake server over HTTP in use by the load generator's own clients.

use std::net::SocketAddr;
use std::time::Duration;

use crate::access::Access;
use crate::era::Era;
use crate::error::BenchError;
use crate::fake::payload::Tool;
use crate::fake::{FakeArgs, listen, run};
use crate::load::connection::Connection;
use crate::load::events::Progress;
use crate::load::head::bare;
use crate::load::idle;
use crate::load::request::{Exchange, Id, Message};
use crate::load::session::{Client, close_session};

/// A server that ends with its test.
struct Server {
    address: SocketAddr,
    serving: tokio::task::JoinHandle<()>,
}

impl Drop for Server {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

async fn server(era: Era) -> Server {
    let args = FakeArgs {
        tools: 3,
        ..FakeArgs::plain(era, 1)
    };
    let (listeners, addresses) = listen(1).await.unwrap();
    let serving = tokio::spawn(async move { run(&args, listeners).await.map_or_else(drop, drop) });
    Server {
        address: addresses[0],
        serving,
    }
}

#[tokio::test]
async fn both_eras_answer_calls_and_lists_byte_for_byte() {
    for era in Era::ALL {
        let server = server(era).await;
        let mut client = Client::open(server.address, era).await.unwrap();
        for tool in [
            Tool::Text(200),
            Tool::Rows(100_000),
            Tool::Structured(10 << 10),
            Tool::Text(1 << 20),
        ] {
            client
                .once(&Message::call(era, &tool.name(), tool))
                .await
                .unwrap();
        }
        client.once(&Message::list(era, None, 3)).await.unwrap();
        let wrong = client.once(&Message::list(era, None, 4)).await;
        assert!(matches!(wrong, Err(BenchError::Wrong(_))), "{wrong:?}");
    }
}

#[tokio::test]
async fn legacy_request_needs_a_session() {
    let server = server(Era::Legacy).await;
    let mut connection = Connection::open(server.address, None).await.unwrap();
    let mut call = Exchange::post(
        &Message::call(Era::Legacy, "text_200", Tool::Text(200)),
        None,
    );
    assert_eq!(
        connection
            .send(call.with_id(Id::number(1)))
            .await
            .unwrap()
            .status,
        400
    );
    let mut client = Client::open(server.address, Era::Legacy).await.unwrap();
    let session = client.session.take().unwrap();
    close_session(&mut client.connection, &session, &Access::default())
        .await
        .unwrap();
}

#[tokio::test]
async fn progress_arrives_in_order_before_the_answer() {
    for era in Era::ALL {
        let server = server(era).await;
        for every_ms in [0, 1] {
            let tool = "progress".to_owned();
            let progress = Progress {
                address: server.address,
                era,
                tool,
                streams: 2,
                events: 20,
                every_ms,
            };
            assert_eq!(progress.run().await.unwrap().latencies.count(), 40);
        }
    }
}

#[tokio::test]
async fn every_open_stream_is_notified() {
    for era in Era::ALL {
        let server = server(era).await;
        let streams = idle::open(server.address, &Access::default(), era, 5)
            .await
            .unwrap();
        let mut control = Connection::open(server.address, None).await.unwrap();
        let stats = control
            .exchange(&bare("GET", "/stats", None, None))
            .await
            .unwrap();
        assert!(
            String::from_utf8_lossy(&stats).contains(r#""streams":5"#),
            "{stats:?}"
        );
        assert_eq!(
            control
                .send(&bare("POST", "/emit", None, None))
                .await
                .unwrap()
                .status,
            202
        );
        assert_eq!(idle::notified(streams, Duration::from_secs(10)).await.0, 5);
    }
}

#[tokio::test]
async fn modern_server_has_no_get_stream() {
    let server = server(Era::Modern).await;
    let opened = idle::open(server.address, &Access::default(), Era::Legacy, 1).await;
    assert!(opened.is_err());
    let mut connection = Connection::open(server.address, None).await.unwrap();
    assert_eq!(
        connection
            .send(&bare("GET", "/mcp", None, None))
            .await
            .unwrap()
            .status,
        405
    );
}
