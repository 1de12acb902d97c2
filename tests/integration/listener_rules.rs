//! Permitted addresses of a listener for clients: beyond this machine only if the configuration
//! says how clients are authenticated.

use std::net::TcpListener;
use std::os::fd::AsRawFd as _;
use std::process::Stdio;

use tokio::process::Command;

use crate::harness::{Gateway, TempFile, fanlight, within};
use crate::raw_client::{modern_request, post_modern};
use crate::scripted::{Backend, Era, Reply, Transport, config};

/// Whether a refusal to serve names both ways to go on.
fn names_both_ways(text: &str) -> bool {
    text.contains("configure `auth`") && text.contains("`auth: none`")
}

async fn server() -> Backend {
    let backend = Backend::start(Era::Modern, Transport::Http).await;
    backend.offers_tools(&["t"]);
    backend.on(
        "tools/call",
        Reply::result(Era::Modern.complete(r#""content":[]"#)),
    );
    backend
}

fn with(options: &str, backend: &Backend) -> String {
    format!("{{{options}{}", &config(&[backend.entry("only")])[1..])
}

/// The exit status and the log of a process that refuses to start.
async fn refused(mut command: Command) -> (Option<i32>, String) {
    let output = within("the end", command.stdin(Stdio::null()).output())
        .await
        .unwrap();
    (
        output.status.code(),
        String::from_utf8_lossy(&output.stderr).into_owned(),
    )
}

#[tokio::test]
async fn listener_beyond_loopback_needs_a_choice_of_authentication() {
    let backend = server().await;
    for (listen, flag) in [
        ("0.0.0.0:0", None),
        ("[::]:0", None),
        ("127.0.0.1:0", Some("0.0.0.0:0")),
        ("192.0.2.1:1", None),
    ] {
        let file = TempFile::new("yaml", &with(&format!(r#""listen":"{listen}","#), &backend));
        let mut command = fanlight();
        command
            .args(["run", "--admin", "off", "--config"])
            .arg(file.path());
        command.args(flag.iter().flat_map(|address| ["--listen", address]));
        let (code, text) = refused(command).await;
        assert_eq!(code, Some(2), "{text}");
        assert!(names_both_ways(&text), "{text}");
    }
}

#[tokio::test]
async fn public_url_without_authentication_is_served_with_a_warning() {
    let backend = server().await;
    let options = r#""publicUrl":"https://mcp.example.com","#;
    let gateway = Gateway::start(&with(options, &backend)).await;
    gateway.log.line_with("no authentication").await;
}

#[tokio::test]
async fn auth_none_is_served_with_a_warning() {
    let backend = server().await;
    let mut gateway = Gateway::start_at_configured_addresses(&with(
        r#""listen":"0.0.0.0:0","auth":"none","admin":{"listen":"127.0.0.1:0"},"#,
        &backend,
    ))
    .await;
    gateway.mcp.set_ip([127, 0, 0, 1].into());
    gateway.log.line_with("no authentication").await;
    let request = modern_request("1", "tools/call", r#""name":"t""#, "");
    assert!(
        post_modern(gateway.mcp, &request)
            .await
            .messages()
            .await
            .1
            .contains("result")
    );
}

#[tokio::test]
async fn demo_is_not_shown_to_other_machines() {
    let folder = TempFile::folder();
    let mut command = fanlight();
    command
        .current_dir(folder.path())
        .args(["--listen", "0.0.0.0:0", "--admin", "off"]);
    let (code, text) = refused(command).await;
    assert_eq!(code, Some(2), "{text}");
    assert!(names_both_ways(&text), "{text}");
}

#[tokio::test]
async fn socket_of_the_service_manager_is_no_exception() {
    let backend = server().await;
    let file = TempFile::new("yaml", &with("", &backend));
    let socket = TcpListener::bind("0.0.0.0:0").unwrap();
    rustix::io::fcntl_setfd(&socket, rustix::io::FdFlags::empty()).unwrap();
    let mut command = Command::new("bash");
    let script = format!(
        "LISTEN_PID=$$ LISTEN_FDS=1; export LISTEN_PID LISTEN_FDS; exec \"$0\" \"$@\" 3<&{}",
        socket.as_raw_fd()
    );
    command
        .kill_on_drop(true)
        .args(["-c", &script])
        .arg(fanlight_testkit::programs::fanlight());
    command
        .args(["run", "--admin", "off", "--config"])
        .arg(file.path());
    let (code, text) = refused(command).await;
    assert_eq!(code, Some(2), "{text}");
    assert!(names_both_ways(&text), "{text}");
}

#[tokio::test]
async fn reload_does_not_open_what_a_start_would_not() {
    let backend = server().await;
    let local = r#""listen":"127.0.0.1:0","admin":{"listen":"127.0.0.1:0"},"#;
    let gateway = Gateway::start_at_configured_addresses(&with(local, &backend)).await;
    let request = modern_request("1", "tools/call", r#""name":"t""#, "");
    let remote = local.replacen("127.0.0.1", "0.0.0.0", 1);
    gateway.configure(&with(&remote, &backend));
    let (status, report) = gateway.reload().await;
    assert_eq!(status, 422, "{report}");
    assert!(names_both_ways(&report), "{report}");
    assert!(
        post_modern(gateway.mcp, &request)
            .await
            .messages()
            .await
            .1
            .contains("result")
    );
    gateway.configure(&with(&format!(r#""auth":"none",{remote}"#), &backend));
    let (status, report) = gateway.reload().await;
    assert_eq!(status, 200, "{report}");
    assert!(report.contains("0.0.0.0"), "{report}");
    // `auth: none` cannot be removed while the listener is there.
    gateway.configure(&with(&remote, &backend));
    let (status, report) = gateway.reload().await;
    assert_eq!(status, 422, "{report}");
}

#[tokio::test]
async fn issuers_need_a_public_url_beyond_loopback() {
    let backend = server().await;
    let auth = r#""auth":{"oauth":[{"issuer":"https://id.example.com","audience":["https://mcp.example.com/mcp"]}]},"#;
    for listen in ["0.0.0.0:0", "unix:s.sock"] {
        let file = TempFile::new(
            "yaml",
            &with(&format!(r#""listen":"{listen}",{auth}"#), &backend),
        );
        let mut command = fanlight();
        command
            .args(["run", "--admin", "off", "--config"])
            .arg(file.path());
        let (code, text) = refused(command).await;
        assert_eq!(code, Some(2), "{text}");
        assert!(text.contains("`auth.oauth` needs `publicUrl`"), "{text}");
    }
}
