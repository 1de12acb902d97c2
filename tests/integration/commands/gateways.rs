//! Commands that ask a running gateway find it by its configuration.

use std::fs;
use std::path::Path;
use std::process::Stdio;

use fanlight_testkit::tls::Authority;
use rcgen::{CertificateParams, KeyPair};
use tokio::io::AsyncWriteExt as _;
use tokio::process::Child;

use super::{Ran, run_in, run_with, shell};
use crate::harness::{Log, ShownLog, TempFile, fanlight, within};
use crate::scripted::{Backend, Era, Transport, config};

const SECRET: &str = "a-token-of-some-length";

/// A gateway started in a folder of its own, whose `fanlight.yaml` has these options.
struct Running {
    folder: TempFile,
    out: ShownLog,
    _err: ShownLog,
    _child: Child,
    _backend: Backend,
}

impl Running {
    async fn start(options: &str, arguments: &[&str]) -> Self {
        let (folder, backend) = (
            TempFile::folder(),
            Backend::start(Era::Modern, Transport::Http).await,
        );
        backend.offers_tools(&["t"]);
        let servers = config(&[backend.entry("only")]);
        fs::write(
            folder.path().join("fanlight.yaml"),
            format!("{{{options}{}", &servers[1..]),
        )
        .unwrap();
        let mut command = fanlight();
        command
            .arg("run")
            .args(arguments)
            .current_dir(folder.path())
            .env("OPERATOR", SECRET);
        command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let out = Log::print("out", child.stdout.take().unwrap());
        let err = Log::print("err", child.stderr.take().unwrap());
        out.line_with("admin on").await;
        err.line_with("server is connected").await;
        Self {
            folder,
            out,
            _err: err,
            _child: child,
            _backend: backend,
        }
    }

    fn path(&self) -> &Path {
        self.folder.path()
    }
}

fn assert_found(ran: &Ran) {
    assert!(
        ran.status == 0 && ran.out.contains("only"),
        "{}",
        ran.text()
    );
}

/// The token comes from a variable, which the operator's shell need not have.
const OVER_UNIX: &str = r#""listen":"127.0.0.1:0","admin":{"listen":"unix:admin.sock","token":"${OPERATOR}"},"ssePath":"/${PATH_OF:-sse}","#;

#[tokio::test]
async fn gateway_on_a_unix_socket_is_found_by_its_configuration() {
    let running = Running::start(OVER_UNIX, &[]).await;
    let file = running.path().join("fanlight.yaml");
    let file = file.to_str().unwrap();
    let operator = [("OPERATOR", SECRET)];
    assert_found(&run_with(running.path(), &["status"], &operator).await);
    assert_found(&run_with(Path::new("/"), &["status", "--config", file], &operator).await);
    // Without the variable, the command does not know the token.
    let refused = run_in(running.path(), &["status"]).await;
    assert!(
        refused.status == 1 && refused.err.contains("FANLIGHT_ADMIN_TOKEN"),
        "{}",
        refused.text()
    );
    let token = [("FANLIGHT_ADMIN_TOKEN", SECRET)];
    assert_found(&run_with(running.path(), &["status"], &token).await);
    let socket = format!("unix:{}", running.path().join("admin.sock").display());
    assert_found(&run_with(Path::new("/"), &["status", "--admin", &socket], &token).await);
    // If both name a gateway, the configuration wins.
    assert_found(
        &run_with(
            Path::new("/"),
            &["status", "--admin", &socket, "--config", file],
            &operator,
        )
        .await,
    );
    for command in [
        &["traces"][..],
        &["reload"],
        &["disable", "only"],
        &["enable", "only"],
        &["restart", "only"],
    ] {
        let ran = run_with(running.path(), command, &operator).await;
        assert_eq!(ran.status, 0, "{command:?}: {}", ran.text());
    }
    let ran = run_with(running.path(), &["enable", "onyl"], &operator).await;
    assert!(
        ran.status == 2 && ran.err.contains("did you mean only?"),
        "{}",
        ran.text()
    );
    let gone = run_in(
        Path::new("/"),
        &["status", "--admin", "unix:/nonexistent/admin.sock"],
    )
    .await;
    assert!(
        gone.status == 1 && gone.err.contains("unix:/nonexistent/admin.sock"),
        "{}",
        gone.text()
    );
}

/// A self-signed certificate is trusted because the configuration names it.
#[tokio::test]
async fn gateway_with_tls_is_found_by_its_configuration() {
    let port = fanlight_testkit::ports::free().port();
    let key = KeyPair::generate().unwrap();
    let certificate = CertificateParams::new(vec!["ops.example.com".to_owned()])
        .unwrap()
        .self_signed(&key)
        .unwrap();
    let files = TempFile::folder();
    let write = |name: &str, text: String| {
        let path = files.path().join(name);
        fs::write(&path, text).unwrap();
        path.display().to_string()
    };
    let (cert, key) = (
        write("cert.pem", certificate.pem()),
        write("key.pem", key.serialize_pem()),
    );
    let options = format!(
        r#""listen":"127.0.0.1:0","admin":{{"listen":"0.0.0.0:{port}","token":"{SECRET}","publicUrl":"https://ops.example.com","tls":{{"cert":"{cert}","key":"{key}"}}}},"#
    );
    let running = Running::start(&options, &[]).await;
    assert_found(&run_in(running.path(), &["status"]).await);
    // The certificate does not cover this other name.
    let other = format!("https://127.0.0.1:{port}");
    let refused = run_in(
        running.path(),
        &["status", "--admin", &other, "--config", "fanlight.yaml"],
    )
    .await;
    assert!(
        refused.status == 1 && refused.err.to_lowercase().contains("certificate"),
        "{}",
        refused.text()
    );
}

#[tokio::test]
async fn gateway_that_wants_a_client_certificate_is_shown_one() {
    let (authority, stranger, files) = (Authority::new(), Authority::new(), TempFile::folder());
    let write = |name: &str, text: String| {
        let path = files.path().join(name);
        fs::write(&path, text).unwrap();
        path.display().to_string()
    };
    let server = authority.server();
    let (cert, key) = (
        write("server.pem", server.pem()),
        write("server.key", server.key()),
    );
    let ca = write("ca.pem", authority.pem());
    let tls =
        format!(r#"{{"cert":"{cert}","key":"{key}","clientCa":"{ca}","clientAuth":"required"}}"#);
    let options = format!(
        r#""listen":"127.0.0.1:0","admin":{{"listen":"127.0.0.1:0","token":"{SECRET}","tls":{tls}}},"#
    );
    let running = Running::start(&options, &[]).await;
    let url = format!("https://{}", running.out.address("admin on http", "").await);
    let pair = |name: &str, of: &Authority| {
        let pair = of.client("spiffe://example.com/operator");
        [
            write(&format!("{name}.pem"), pair.pem()),
            write(&format!("{name}.key"), pair.key()),
        ]
    };
    let [own, own_key] = pair("own", &authority);
    let [other, other_key] = pair("other", &stranger);
    let run = async |command: &[&str], more: &[&str]| {
        let arguments = [command, &["--admin", &url], more].concat();
        run_with(
            Path::new("/"),
            &arguments,
            &[("FANLIGHT_ADMIN_TOKEN", SECRET)],
        )
        .await
    };
    let shown = [
        "--admin-ca",
        &ca,
        "--admin-cert",
        &own,
        "--admin-key",
        &own_key,
    ];
    assert_found(&run(&["status"], &shown).await);
    for command in [
        &["traces"][..],
        &["logs"],
        &["reload"],
        &["disable", "only"],
        &["enable", "only"],
    ] {
        let ran = run(command, &shown).await;
        assert_eq!(ran.status, 0, "{command:?}: {}", ran.text());
    }
    let refused = run(&["status"], &["--admin-ca", &ca]).await;
    assert!(
        refused.status == 1 && refused.err.contains("--admin-cert and --admin-key"),
        "{}",
        refused.text()
    );
    let refused = run(
        &["status"],
        &["--admin-cert", &own, "--admin-key", &own_key],
    )
    .await;
    assert!(
        refused.status == 1 && refused.err.contains("with --admin-ca"),
        "{}",
        refused.text()
    );
    let of_stranger = [
        "--admin-ca",
        &ca,
        "--admin-cert",
        &other,
        "--admin-key",
        &other_key,
    ];
    let refused = run(&["status"], &of_stranger).await;
    assert!(
        refused.status == 1 && refused.err.contains("cannot be reached"),
        "{}",
        refused.text()
    );

    for wrong in [
        &["--admin-cert", &own][..],
        &["--admin-cert", &own, "--admin-key", &ca],
        &["--admin-cert", &own, "--admin-key", &other_key],
        &["--admin-cert", "/nonexistent.pem", "--admin-key", &own_key],
        &["--admin-ca", &own_key],
    ] {
        let ran = run(&["status"], wrong).await;
        assert_eq!(ran.status, 2, "{wrong:?}: {}", ran.text());
        assert!(!ran.err.contains("PRIVATE"), "{}", ran.text());
    }
    let plain = run_in(
        Path::new("/"),
        &["status", "--admin", "8081", "--admin-ca", &ca],
    )
    .await;
    assert!(
        plain.status == 2 && plain.err.contains("--admin-ca needs TLS"),
        "{}",
        plain.text()
    );
}

#[tokio::test]
async fn logs_say_why_there_are_none() {
    let options = r#""listen":"127.0.0.1:0","admin":{"listen":"unix:admin.sock"},"#;
    let running = Running::start(options, &[]).await;
    let logs = async |server: &str| run_in(running.path(), &["logs", server]).await;
    let silent = logs("only").await;
    assert!(
        silent.status == 0 && silent.out.is_empty() && silent.err.contains("no lines yet"),
        "{}",
        silent.text()
    );
    let unknown = logs("onyl").await;
    assert!(
        unknown.status == 2 && unknown.err.contains("did you mean only?"),
        "{}",
        unknown.text()
    );
    assert_eq!(run_in(running.path(), &["disable", "only"]).await.status, 0);
    let off = logs("only").await;
    assert!(
        off.status == 2 && off.err.contains("`fanlight enable only` switches it on"),
        "{}",
        off.text()
    );
}

/// A configuration's token is only sent to that configuration's gateway and to this machine.
#[tokio::test]
async fn gateway_that_is_named_gets_no_token_of_the_folder() {
    let running = Running::start(OVER_UNIX, &[]).await;
    let socket = format!("unix:{}", running.path().join("admin.sock").display());
    let ran = run_with(
        running.path(),
        &["status", "--admin", &socket],
        &[("OPERATOR", SECRET)],
    )
    .await;
    assert!(
        ran.status == 1 && ran.err.contains("FANLIGHT_ADMIN_TOKEN"),
        "{}",
        ran.text()
    );
}

#[tokio::test]
async fn disabled_listener_is_reported() {
    let folder = TempFile::folder();
    fs::write(
        folder.path().join("fanlight.yaml"),
        "admin: {listen: off}\nmcpServers: {a: {command: x}}\n",
    )
    .unwrap();
    let ran = run_in(folder.path(), &["status"]).await;
    assert!(
        ran.status == 2 && ran.err.contains("`admin.listen` of fanlight.yaml is `off`"),
        "{}",
        ran.text()
    );
}

/// `script` provides a terminal, since the banner is only for terminals.
#[tokio::test]
async fn commands_of_the_banner_work_as_printed() {
    let folder = TempFile::folder();
    let backend = Backend::start(Era::Modern, Transport::Http).await;
    backend.offers_tools(&["t"]);
    fs::write(
        folder.path().join("a name.yaml"),
        config(&[backend.entry("only")]),
    )
    .unwrap();
    let program = fanlight_testkit::programs::fanlight();
    let line = format!(
        "stty cols 80; exec {} run --config 'a name.yaml' --listen 0 --admin localhost:0 --no-watch",
        program.display()
    );
    let mut command = tokio::process::Command::new("script");
    command
        .kill_on_drop(true)
        .args(["-qfec", &line, "/dev/null"])
        .current_dir(folder.path());
    command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null());
    let mut child = command.spawn().unwrap();
    let out = Log::print("out", child.stdout.take().unwrap());
    out.line_with(" traces ").await;
    let printed = out.text();
    let commands: Vec<&str> = printed
        .lines()
        .filter_map(|line| {
            line.split_once(program.to_str().unwrap())
                .map(|(_, rest)| rest.trim())
        })
        .filter(|rest| {
            ["list", "status", "traces"]
                .iter()
                .any(|name| rest.starts_with(name))
        })
        .collect();
    assert_eq!(commands.len(), 3, "{printed}");
    for rest in commands {
        let ran = shell(folder.path(), format!("{} {rest}", program.display())).await;
        assert_eq!(ran.status, 0, "{rest}: {}", ran.text());
        assert!(rest.contains("--config 'a name.yaml'"), "{rest}");
    }
    assert!(
        printed.contains(r#""stdio","--config","/"#),
        "an absolute path for clients: {printed}"
    );
    // Ctrl-C on the terminal. Without it the gateway would outlive the terminal, since SIGHUP only
    // reloads.
    child
        .stdin
        .take()
        .unwrap()
        .write_all(b"\x03")
        .await
        .unwrap();
    assert!(
        within("the end of the gateway", child.wait())
            .await
            .unwrap()
            .success()
    );
}

#[tokio::test]
async fn banner_of_the_demo_is_loud_and_its_commands_work() {
    let folder = TempFile::folder();
    // An explicitly requested demo takes precedence over the folder's configuration.
    fs::write(
        folder.path().join("fanlight.yaml"),
        "mcpServers: {a: {command: /nonexistent}}\n",
    )
    .unwrap();
    let mut command = fanlight();
    command
        .args(["demo", "--listen", ":0", "--admin", "0"])
        .current_dir(folder.path());
    command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null());
    let mut child = command.spawn().unwrap();
    let out = Log::print("out", child.stdout.take().unwrap());
    out.line_with(" traces ").await;
    let printed = out.text();
    assert!(
        printed.contains("DEMO: these are not your servers."),
        "{printed}"
    );
    let program = fanlight_testkit::programs::fanlight();
    for name in ["list", "status", "traces"] {
        let start = format!("{} {name}", program.display());
        let line = printed
            .lines()
            .find_map(|line| line.find(&start).map(|at| &line[at..]))
            .unwrap();
        let ran = shell(folder.path(), line).await;
        assert_eq!(ran.status, 0, "{line}: {}", ran.text());
    }
    child.kill().await.unwrap();
}

#[tokio::test]
async fn reload_and_changes_have_json() {
    let running = Running::start(OVER_UNIX, &[]).await;
    let operator = [("OPERATOR", SECRET)];
    let ran = run_with(running.path(), &["reload", "--json"], &operator).await;
    assert_eq!(ran.json()["result"], "unchanged", "{}", ran.text());
    let ran = run_with(running.path(), &["disable", "only", "--json"], &operator).await;
    assert_eq!(
        ran.json(),
        serde_json::json!({ "action": "disable", "server": "only" })
    );
    fs::write(running.path().join("fanlight.yaml"), "{").unwrap();
    let socket = format!("unix:{}", running.path().join("admin.sock").display());
    let ran = run_with(
        Path::new("/"),
        &["reload", "--json", "--admin", &socket],
        &[("FANLIGHT_ADMIN_TOKEN", SECRET)],
    )
    .await;
    assert!(
        ran.status == 1 && ran.json().is_object() && !ran.err.is_empty(),
        "{}",
        ran.text()
    );
    assert!(running.out.text().contains("admin on unix:"));
}
