//! Child processes that misbehave.

use std::sync::Arc;
use std::time::Duration;

use fanlight_backend::{Backend, Secret, TransportSettings};
use fanlight_canonical::{BackendClient, BackendError, BackendState, CallContext};
use fanlight_testkit::scripted::{Fault, Gate, Habit, Received, Reply};
use tokio::task::JoinHandle;

use crate::support::child::{Child, exists};
use crate::support::log::Log;
use crate::support::{PATIENCE, ask, call, revision, settings, start};

type Outcome = JoinHandle<Result<String, BackendError>>;

/// A call that runs while the test continues.
fn spawned(backend: &Arc<Backend>, method: &'static str) -> Outcome {
    let backend = Arc::clone(backend);
    tokio::spawn(async move { ask(&backend, method, "").await })
}

#[tokio::test]
async fn exited_process_fails_its_calls_and_is_restarted() {
    let child = Child::legacy().await;
    child.on("test/wait", Reply::fault(Fault::Hang));
    child.on("test/die", Reply::fault(Fault::Die(3)));
    child.on("test/live", Reply::result("{}"));
    let backend = start(settings(child.transport()));
    revision(&backend).await;
    let waiting = spawned(&backend, "test/wait");
    let dying = spawned(&backend, "test/die");
    let error = BackendError::Exited {
        status: Some("exit status: 3".into()),
    };
    assert_eq!(dying.await.unwrap(), Err(error.clone()));
    assert_eq!(waiting.await.unwrap(), Err(error.clone()));
    assert!(error.may_have_run());
    assert_eq!(ask(&backend, "test/live", "").await.unwrap(), "{}");
    let starts = child.started();
    assert_eq!(starts.len(), 2);
    assert!(!exists(starts[0]), "a zombie");
    backend.stop().await;
    assert!(!exists(starts[1]));
}

#[tokio::test]
async fn killed_process_is_reported_with_its_signal() {
    let child = Child::modern().await;
    child.on("test/die", Reply::fault(Fault::Kill));
    let backend = start(settings(child.transport()));
    let error = ask(&backend, "test/die", "").await.unwrap_err();
    assert_eq!(
        error,
        BackendError::Exited {
            status: Some("signal: 9 (SIGKILL)".into())
        }
    );
    backend.stop().await;
}

#[tokio::test]
async fn answer_before_an_exit_is_delivered() {
    let child = Child::modern().await;
    child.on("test/last", Reply::result(r#"{"n":1.0}"#).exiting(0));
    let backend = start(settings(child.transport()));
    assert_eq!(
        ask(&backend, "test/last", "").await.unwrap(),
        r#"{"n":1.0}"#
    );
    backend.stop().await;
}

#[tokio::test]
async fn process_that_keeps_exiting_is_restarted_with_delays() {
    let child = Child::modern().await;
    child.on("test/die", Reply::fault(Fault::Die(1)));
    let backend = start(settings(child.transport()));
    for _ in 0..2 {
        assert!(matches!(
            ask(&backend, "test/die", "").await,
            Err(BackendError::Exited { .. })
        ));
    }
    let error = ask(&backend, "test/die", "").await.unwrap_err();
    assert!(error.is_unreachable(), "{error:?}");
    assert!(matches!(backend.status().state, BackendState::Down { .. }));
    assert_eq!(child.started().len(), 2);
    backend.stop().await;
}

#[tokio::test]
async fn start_error_names_what_is_missing_and_neither_arguments_nor_variables() {
    let transport = |command: &str, cwd: Option<&str>| TransportSettings::Stdio {
        command: command.into(),
        args: vec!["--key=s3cret".into()],
        env: vec![("TOKEN".into(), Secret::new("s3cret"))],
        cwd: cwd.map(Into::into),
    };
    for (transport, reason) in [
        (
            transport("/nowhere/no-such-thing", None),
            r#"cannot be reached: cannot start "no-such-thing": no such command; there is no file /nowhere/no-such-thing"#,
        ),
        (
            transport("sh", Some("/no/such")),
            r#"cannot be reached: cannot start "sh": its working directory does not exist"#,
        ),
    ] {
        let log = Log::catch();
        let backend = start(settings(transport));
        let error = backend
            .describe(&CallContext::internal())
            .await
            .unwrap_err()
            .to_string();
        assert!(error.starts_with(reason), "{error}");
        backend.stop().await;
        assert!(!log.text().contains("s3cret"), "{}", log.text());
    }
}

#[tokio::test]
async fn invalid_lines_are_logged_once_and_affect_no_call() {
    let log = Log::catch();
    let child = Child::modern().await;
    let noise = b"loading \x1b[2Jplugins\n\n[1,2\nid: 3\n{\"jsonrpc\":\"2.0\"}\n\xff\n";
    // The server numbers its own requests.
    let requests = (0..9).map(|id| {
        format!("{{\"jsonrpc\":\"2.0\",\"id\":{id},\"method\":\"x\",\"params\":[]}}\n").into_bytes()
    });
    let noise = std::iter::once(noise.to_vec()).chain(requests);
    child.on(
        "test/noise",
        Reply::fault(Fault::Garbage(
            noise.flatten().collect(),
            r#"{"n":1.0}"#.to_owned(),
        )),
    );
    let backend = start(settings(child.transport()));
    assert_eq!(
        ask(&backend, "test/noise", "").await.unwrap(),
        r#"{"n":1.0}"#
    );
    backend.stop().await;
    let text = log.text();
    let warnings: Vec<_> = text.lines().filter(|line| line.contains("WARN")).collect();
    assert_eq!(warnings.len(), 2, "{warnings:?}");
    assert!(warnings[0].contains("u001b[2Jplugins"), "{}", warnings[0]);
    assert!(warnings[1].contains("lines=14"), "{}", warnings[1]);
}

#[tokio::test]
async fn invalid_answer_fails_its_call() {
    let deep = format!("{}{}", "[".repeat(180), "]".repeat(180));
    let child = Child::modern().await;
    child.on("test/odd", Reply::result("7"));
    child.on("test/deep", Reply::result(format!(r#"{{"a":{deep}}}"#)));
    child.on("test/broken", Reply::result(r#"{"a":}"#));
    let backend = start(settings(child.transport()));
    for method in ["test/odd", "test/deep", "test/broken"] {
        let error = ask(&backend, method, "").await.unwrap_err();
        assert!(
            matches!(error, BackendError::Malformed { .. }),
            "{method}: {error:?}"
        );
    }
    backend.stop().await;
}

#[tokio::test]
async fn id_may_be_returned_in_another_form() {
    let child = Child::modern().await;
    let written = |write: fn(&str) -> String| {
        Reply::written(move |request| write(request.member("id").unwrap()))
    };
    child.on(
        "test/string",
        written(|id| format!(r#"{{"jsonrpc":"2.0","id":"{id}","result":{{"n":1.0}}}}"#)),
    );
    child.on(
        "test/fraction",
        written(|id| format!(r#"{{"jsonrpc":"2.0","id":{id}.0,"result":{{"n":2.0}}}}"#)),
    );
    child.on(
        "test/odd",
        written(|id| format!(r#"{{"jsonrpc":"2.0","id":"{id}","result":7}}"#)),
    );
    let backend = start(settings(child.transport()));
    assert_eq!(
        ask(&backend, "test/string", "").await.unwrap(),
        r#"{"n":1.0}"#
    );
    assert_eq!(
        ask(&backend, "test/fraction", "").await.unwrap(),
        r#"{"n":2.0}"#
    );
    let error = ask(&backend, "test/odd", "").await.unwrap_err();
    assert!(matches!(error, BackendError::Malformed { .. }), "{error:?}");
    backend.stop().await;
}

#[tokio::test]
async fn line_over_the_limit_fails_its_call_only() {
    let child = Child::modern().await;
    let gate = Gate::new();
    child.on("test/wait", Reply::result("{}").gated(&gate));
    child.on("test/large", Reply::fault(Fault::Huge(200_000)));
    child.on("test/unknown", Reply::driven());
    // The id comes last.
    let unknown_line = |request: &Received| {
        let text = "x".repeat(200_000);
        format!(
            r#"{{"result":{{"a":"{text}"}},"id":{}}}"#,
            request.member("id").unwrap()
        )
    };
    let mut settings = settings(child.transport());
    settings.limits.message_bytes = 100_000;
    let backend = start(settings);
    revision(&backend).await;
    let too_large = BackendError::ResponseTooLarge { limit: 100_000 };
    // Found by its id, though another call waits.
    let waiting = spawned(&backend, "test/wait");
    assert_eq!(
        spawned(&backend, "test/large").await.unwrap(),
        Err(too_large.clone())
    );
    // The id comes too late to be seen, and two calls are possible.
    let unknown = spawned(&backend, "test/unknown");
    let stream = child.stream(0).await;
    stream.message(&unknown_line(&stream.request)).await;
    gate.open();
    assert_eq!(waiting.await.unwrap().unwrap(), "{}");
    // Now only one call is possible.
    assert_eq!(
        ask(&backend, "test/large", "").await,
        Err(too_large.clone())
    );
    unknown.abort();
    let _ = unknown.await;
    let answered = async {
        let stream = child.stream(1).await;
        stream.message(&unknown_line(&stream.request)).await;
    };
    let (outcome, ()) = tokio::join!(ask(&backend, "test/unknown", ""), answered);
    assert_eq!(outcome, Err(too_large));
    backend.stop().await;
}

#[tokio::test]
async fn call_has_a_deadline_and_is_cancelled() {
    let child = Child::legacy().await;
    child.on("test/slow", Reply::fault(Fault::Hang));
    let mut settings = settings(child.transport());
    settings.timeouts.call = Duration::from_millis(500);
    let after = settings.timeouts.call;
    let backend = start(settings);
    revision(&backend).await;
    assert_eq!(
        ask(&backend, "test/slow", "").await,
        Err(BackendError::Timeout { after, sent: true })
    );
    let (slow, cancelled) = (
        child.received("test/slow"),
        child.wait_for("notifications/cancelled", 1).await,
    );
    assert_eq!(
        cancelled[0].member("params.requestId"),
        slow[0].member("id")
    );
    backend.stop().await;
}

#[tokio::test]
async fn process_group_that_does_not_exit_is_killed() {
    let child = Child::modern().await;
    let transport = child.transport_with(&[Habit::Stubborn, Habit::Immune, Habit::Parent]);
    let backend = start(settings(transport));
    revision(&backend).await;
    let starts = child.children(2).await;
    backend.stop().await;
    for id in starts {
        assert!(gone(id).await, "{id} is still there");
    }
}

#[tokio::test]
async fn stopping_does_not_wait_for_a_handshake() {
    let child = Child::modern().await;
    child.on("server/discover", Reply::fault(Fault::Hang));
    let backend = start(settings(child.transport()));
    child.wait_for("server/discover", 1).await;
    tokio::time::timeout(PATIENCE / 4, backend.stop())
        .await
        .unwrap();
    assert!(!exists(child.started()[0]));
}

#[tokio::test]
async fn processes_left_behind_are_ended() {
    let child = Child::modern().await;
    child.on("test/leave", Reply::result("{}").exiting(0));
    let backend = start(settings(child.transport_with(&[Habit::Parent])));
    child.children(2).await;
    ask(&backend, "test/leave", "").await.unwrap();
    backend.stop().await;
    for id in child.started() {
        assert!(gone(id).await, "{id} is still there");
    }
}

/// Whether a process that is not a child of this one has ended. Its new parent may need a moment to
/// notice.
async fn gone(id: u32) -> bool {
    let ended = async {
        while exists(id) && !is_zombie(id) {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(PATIENCE, ended).await.is_ok()
}

fn is_zombie(id: u32) -> bool {
    std::fs::read_to_string(format!("/proc/{id}/stat")).is_ok_and(|stat| stat.contains(") Z "))
}

#[tokio::test]
async fn dropping_a_backend_ends_its_process() {
    let child = Child::modern().await;
    let backend = start(settings(child.transport()));
    revision(&backend).await;
    drop(backend);
    assert!(gone(child.started()[0]).await);
}

#[tokio::test]
async fn running_call_ends_with_the_backend() {
    let child = Child::modern().await;
    child.on("test/wait", Reply::fault(Fault::Hang));
    let backend = start(settings(child.transport()));
    revision(&backend).await;
    let mut waiting = backend.request(call("test/wait", ""));
    assert!(futures_util::FutureExt::now_or_never(&mut waiting).is_none());
    let (outcome, ()) = tokio::join!(waiting, backend.stop());
    assert!(outcome.unwrap_err().may_have_run());
    assert_eq!(
        ask(&backend, "test/wait", "").await,
        Err(BackendError::ShuttingDown)
    );
}
