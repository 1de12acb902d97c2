//! Child processes that do not behave.

use std::sync::Arc;
use std::time::Duration;

use fanlight_backend::{Backend, EraChoice, Secret, TransportSettings};
use fanlight_canonical::{BackendClient, BackendError, BackendState};
use tokio::task::JoinHandle;

use crate::support::child::{Child, exists};
use crate::support::log::Log;
use crate::support::{PATIENCE, ask, call, revision, settings, start};

type Outcome = JoinHandle<Result<String, BackendError>>;

/// A call on its way while the test goes on.
fn spawned(backend: &Arc<Backend>, method: &'static str) -> Outcome {
    let backend = Arc::clone(backend);
    tokio::spawn(async move { ask(&backend, method, "").await })
}

#[tokio::test]
async fn exited_process_fails_its_calls_and_is_restarted() {
    let child = Child::legacy(
        r#"*'"method":"test/wait"'*) ;;
        *'"method":"test/die"'*) exit 3;;
        *'"method":"test/live"'*) result '{}';;"#,
    );
    let backend = start(settings(child.transport()));
    revision(&backend).await;
    let waiting = spawned(&backend, "test/wait");
    let dying = spawned(&backend, "test/die");
    let error = BackendError::Exited { status: Some("exit status: 3".into()) };
    assert_eq!(dying.await.unwrap(), Err(error.clone()));
    assert_eq!(waiting.await.unwrap(), Err(error.clone()));
    assert!(error.may_have_run());
    assert_eq!(ask(&backend, "test/live", "").await.unwrap(), "{}");
    let starts = child.starts();
    assert_eq!(starts.len(), 2);
    assert!(!exists(starts[0]), "a zombie");
    backend.stop().await;
    assert!(!exists(starts[1]));
}

#[tokio::test]
async fn killed_process_is_reported_with_its_signal() {
    let child = Child::modern(r#"*'"method":"test/die"'*) kill -9 $$;;"#);
    let backend = start(settings(child.transport()));
    let error = ask(&backend, "test/die", "").await.unwrap_err();
    assert_eq!(error, BackendError::Exited { status: Some("signal: 9 (SIGKILL)".into()) });
    backend.stop().await;
}

#[tokio::test]
async fn answer_before_an_exit_is_delivered() {
    let child = Child::modern(r#"*'"method":"test/last"'*) result '{"n":1.0}'; exit 0;;"#);
    let backend = start(settings(child.transport()));
    assert_eq!(ask(&backend, "test/last", "").await.unwrap(), r#"{"n":1.0}"#);
    backend.stop().await;
}

#[tokio::test]
async fn process_that_keeps_exiting_is_restarted_with_delays() {
    let child = Child::modern(r#"*'"method":"test/die"'*) exit 1;;"#);
    let backend = start(settings(child.transport()));
    for _ in 0..2 {
        assert!(matches!(ask(&backend, "test/die", "").await, Err(BackendError::Exited { .. })));
    }
    let error = ask(&backend, "test/die", "").await.unwrap_err();
    assert!(matches!(error, BackendError::Unreachable { .. }), "{error:?}");
    assert!(matches!(backend.status().state, BackendState::Down { .. }));
    assert_eq!(child.starts().len(), 2);
    backend.stop().await;
}

#[tokio::test]
async fn start_error_names_the_command_only() {
    let transport = |command: &str, cwd: Option<&str>| TransportSettings::Stdio {
        command: command.into(),
        args: vec!["--key=s3cret".into()],
        env: vec![("TOKEN".into(), Secret::new("s3cret"))],
        cwd: cwd.map(Into::into),
    };
    for (transport, reason) in [
        (
            transport("/s3cret/no-such-thing", None),
            r#"cannot be reached: cannot start "no-such-thing": no such command"#,
        ),
        (
            transport("sh", Some("/no/such")),
            r#"cannot be reached: cannot start "sh": its working directory does not exist"#,
        ),
    ] {
        let log = Log::catch();
        let backend = start(settings(transport));
        assert_eq!(backend.describe().await.unwrap_err().to_string(), reason);
        backend.stop().await;
        assert!(!log.text().contains("s3cret"), "{}", log.text());
    }
}

#[tokio::test]
async fn invalid_lines_are_logged_once_and_affect_no_call() {
    let log = Log::catch();
    let child = Child::modern(
        r#"*'"method":"test/noise"'*)
          printf 'loading \033[2Jplugins\n\n[1,2\nid: 3\n{"jsonrpc":"2.0"}\n'; printf '\377\n'
          result '{"n":1.0}';;"#,
    );
    let backend = start(settings(child.transport()));
    assert_eq!(ask(&backend, "test/noise", "").await.unwrap(), r#"{"n":1.0}"#);
    backend.stop().await;
    let text = log.text();
    let warnings: Vec<_> = text.lines().filter(|line| line.contains("WARN")).collect();
    assert_eq!(warnings.len(), 2, "{warnings:?}");
    assert!(warnings[0].contains("loading \\u001b[2Jplugins"), "{}", warnings[0]);
    assert!(warnings[1].contains("lines=5"), "{}", warnings[1]);
}

#[tokio::test]
async fn invalid_answer_fails_its_call() {
    let deep = format!("{}{}", "[".repeat(80), "]".repeat(80));
    let child = Child::modern(&format!(
        r#"*'"method":"test/odd"'*) result 7;;
        *'"method":"test/deep"'*) result '{{"a":{deep}}}';;
        *'"method":"test/broken"'*) result '{{"a":}}';;"#
    ));
    let backend = start(settings(child.transport()));
    for method in ["test/odd", "test/deep", "test/broken"] {
        let error = ask(&backend, method, "").await.unwrap_err();
        assert!(matches!(error, BackendError::Malformed { .. }), "{method}: {error:?}");
    }
    backend.stop().await;
}

#[tokio::test]
async fn id_may_be_returned_in_another_form() {
    let child = Child::modern(
        r#"*'"method":"test/string"'*) id="\"$id\""; result '{"n":1.0}';;
        *'"method":"test/fraction"'*) id="$id.0"; result '{"n":2.0}';;
        *'"method":"test/odd"'*) id="\"$id\""; result 7;;"#,
    );
    let backend = start(settings(child.transport()));
    assert_eq!(ask(&backend, "test/string", "").await.unwrap(), r#"{"n":1.0}"#);
    assert_eq!(ask(&backend, "test/fraction", "").await.unwrap(), r#"{"n":2.0}"#);
    let error = ask(&backend, "test/odd", "").await.unwrap_err();
    assert!(matches!(error, BackendError::Malformed { .. }), "{error:?}");
    backend.stop().await;
}

#[tokio::test]
async fn line_over_the_limit_fails_its_call_only() {
    let child = Child::modern(
        r#"*'"method":"test/wait"'*) waiting=$id;;
        *'"method":"test/large"'*) printf '{"jsonrpc":"2.0","id":%s,"result":{"a":"' "$id"; printf '%0200000d"}}\n' 7;;
        *'"method":"test/unknown"'*) printf '{"result":{"a":"%0200000d"},"id":%s}\n' 7 "$id"
          id=$waiting; [ -z "$id" ] || result '{}';;"#,
    );
    let mut settings = settings(child.transport());
    settings.limits.message_bytes = 100_000;
    let backend = start(settings);
    revision(&backend).await;
    let too_large = BackendError::ResponseTooLarge { limit: 100_000 };
    // Found by its id, though another waits.
    let waiting = spawned(&backend, "test/wait");
    assert_eq!(spawned(&backend, "test/large").await.unwrap(), Err(too_large.clone()));
    // The id comes too late to be seen, and two calls could be meant.
    let unknown = spawned(&backend, "test/unknown");
    assert_eq!(waiting.await.unwrap().unwrap(), "{}");
    // Now it is the only one.
    assert_eq!(ask(&backend, "test/large", "").await, Err(too_large.clone()));
    unknown.abort();
    let _ = unknown.await;
    assert_eq!(ask(&backend, "test/unknown", "").await, Err(too_large));
    backend.stop().await;
}

#[tokio::test]
async fn call_has_a_deadline_and_is_cancelled() {
    let child = Child::legacy(
        r#"*'"method":"test/slow"'*) ;;
        *'"method":"notifications/cancelled"'*) cancelled=yes;;
        *'"method":"test/seen"'*) result "{\"cancelled\":\"$cancelled\"}";;"#,
    );
    let mut settings = settings(child.transport());
    settings.timeouts.call = Duration::from_millis(500);
    let after = settings.timeouts.call;
    let backend = start(settings);
    revision(&backend).await;
    assert_eq!(ask(&backend, "test/slow", "").await, Err(BackendError::Timeout { after, sent: true }));
    assert_eq!(ask(&backend, "test/seen", "").await.unwrap(), r#"{"cancelled":"yes"}"#);
    backend.stop().await;
}

#[tokio::test]
async fn process_group_that_does_not_exit_is_killed() {
    let child = Child::running(
        r#"trap '' TERM
        sh -c 'trap "" TERM; echo $$ >> "$STATE/starts"; while :; do sleep 1; done' &
        echo $$ >> "$STATE/starts"
        IFS= read -r line; id=${line#*\"id\":}; id=${id%%,*}
        printf '{"jsonrpc":"2.0","id":%s,"result":{"supportedVersions":["2026-07-28"]}}\n' "$id"
        while :; do sleep 1; done"#,
    );
    let mut settings = settings(child.transport());
    settings.era = EraChoice::Modern;
    let backend = start(settings);
    revision(&backend).await;
    backend.stop().await;
    let starts = child.starts();
    assert_eq!(starts.len(), 2);
    for id in starts {
        assert!(gone(id).await, "{id} is still there");
    }
}

#[tokio::test]
async fn stopping_does_not_wait_for_a_handshake() {
    let child = Child::new(r#"*'"method":"server/discover"'*) echo >> "$STATE/asked";;"#);
    let backend = start(settings(child.transport()));
    let asked = async {
        while child.file("asked").is_empty() {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(PATIENCE, asked).await.unwrap();
    tokio::time::timeout(PATIENCE / 4, backend.stop()).await.unwrap();
    assert!(!exists(child.starts()[0]));
}

#[tokio::test]
async fn processes_left_behind_are_ended() {
    let child =
        Child::modern(r#"*'"method":"test/leave"'*) sleep 1000 & echo $! >> "$STATE/left"; result '{}'; exit 0;;"#);
    let backend = start(settings(child.transport()));
    ask(&backend, "test/leave", "").await.unwrap();
    backend.stop().await;
    let left: i32 = child.file("left").trim().parse().unwrap();
    assert!(gone(left).await);
}

/// Whether a process that is nobody's child here ends; whoever inherited it may need a moment to
/// take note.
async fn gone(id: i32) -> bool {
    let ended = async {
        while exists(id) && !is_zombie(id) {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(PATIENCE, ended).await.is_ok()
}

fn is_zombie(id: i32) -> bool {
    std::fs::read_to_string(format!("/proc/{id}/stat")).is_ok_and(|stat| stat.contains(") Z "))
}

#[tokio::test]
async fn dropping_a_backend_ends_its_process() {
    let child = Child::modern("");
    let backend = start(settings(child.transport()));
    revision(&backend).await;
    drop(backend);
    assert!(gone(child.starts()[0]).await);
}

#[tokio::test]
async fn running_call_ends_with_the_backend() {
    let child = Child::modern(r#"*'"method":"test/wait"'*) ;;"#);
    let backend = start(settings(child.transport()));
    revision(&backend).await;
    let mut waiting = backend.request(call("test/wait", ""));
    assert!(futures_util::FutureExt::now_or_never(&mut waiting).is_none());
    let (outcome, ()) = tokio::join!(waiting, backend.stop());
    assert!(outcome.unwrap_err().may_have_run());
    assert_eq!(ask(&backend, "test/wait", "").await, Err(BackendError::ShuttingDown));
}
