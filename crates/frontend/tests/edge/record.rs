//! The audit log records decisions before anything runs.

use std::sync::{Arc, Mutex};

use fanlight_frontend::FrontendSettings;
use fanlight_record::{AuditEvent, NotRecorded, Record};

use crate::client::{Server, legacy_call, modern_call, modern_headers, modern_request};
use crate::core::Happened;

/// Accepts the method of each decision until it is full.
#[derive(Debug, Default)]
struct Bounded {
    most: usize,
    taken: Mutex<Vec<String>>,
}

impl Record for Bounded {
    fn record(&self, event: &AuditEvent<'_>) -> Result<(), NotRecorded> {
        let AuditEvent::Decided {
            client,
            subject,
            refused: None,
            ..
        } = event
        else {
            return Ok(());
        };
        let mut taken = self.taken.lock().unwrap();
        if taken.len() >= self.most {
            return Err(NotRecorded);
        }
        let tool = subject
            .tool()
            .map(|tool| format!(" {}/{}", tool.server, tool.name))
            .unwrap_or_default();
        taken.push(format!("{} {}{tool}", client.name, subject.method()));
        Ok(())
    }
}

async fn server(most: usize) -> (Server, Arc<Bounded>) {
    let record = Arc::new(Bounded {
        most,
        ..Bounded::default()
    });
    let settings = FrontendSettings {
        record: Arc::<Bounded>::clone(&record),
        ..FrontendSettings::default()
    };
    (Server::with(settings).await, record)
}

#[tokio::test]
async fn call_that_cannot_be_put_on_record_is_not_carried_out() {
    let (mut server, record) = server(1).await;
    let headers = modern_headers("tools/call", Some("echo"));
    let mut client = server.connect().await;
    let first = client.post(&headers, &modern_call("1", "echo", "")).await;
    assert_eq!(first.status, 200, "{}", first.body);
    assert_eq!(
        record.taken.lock().unwrap().as_slice(),
        ["anonymous tools/call one/echo"]
    );
    server.log.began().await;
    server.log.pending();
    let listen = modern_request("2", "subscriptions/listen", r#""notifications":{}"#, "");
    for (headers, body) in [
        (headers.clone(), modern_call("2", "echo", "")),
        (modern_headers("subscriptions/listen", None), listen),
        (
            modern_headers("tools/list", None),
            modern_request("2", "tools/list", "", ""),
        ),
    ] {
        let refused = server.connect().await.post(&headers, &body).await;
        assert_eq!(
            (refused.status, refused.json()["id"].as_i64()),
            (503, Some(2)),
            "{}",
            refused.body
        );
        assert!(
            refused
                .body
                .contains("could not be recorded, so it was not carried out"),
            "{}",
            refused.body
        );
    }
    let session = server.session(&mut client).await;
    server.log.pending();
    let in_session = [("Mcp-Session-Id", session.as_str())];
    assert_eq!(
        client
            .post(&in_session, &legacy_call("2", "echo", ""))
            .await
            .status,
        503
    );
    let ran = |happened: &Happened| matches!(happened, Happened::Began(_) | Happened::Listens(_));
    assert!(!server.log.pending().iter().any(ran));
}
