//! The load balancers of docs/replicas.md in front of three gateways.

use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::process::Stdio;

use tokio::net::TcpStream;
use tokio::process::{Child, Command};

use crate::fleet::Place;
use crate::group::until;
use crate::harness::{Log, ShownLog, TempFile};
use crate::ports;

/// A load balancer; dropping it kills the process.
pub(crate) struct Balancer {
    /// The address that clients connect to.
    pub(crate) address: SocketAddr,
    pub(crate) _log: ShownLog,
    _child: Child,
    _folder: TempFile,
}

impl Balancer {
    /// nginx as one process.
    pub(crate) async fn nginx(places: &[Place; 3]) -> Self {
        let (address, folder) = (ports::free(), TempFile::folder());
        let path = folder.path().display();
        let kinds = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"];
        let temporary: String = kinds
            .iter()
            .map(|kind| format!("{kind}_temp_path {path}/{kind};\n"))
            .collect();
        let server = block("nginx", places)
            .replace("listen 443 ssl;", &format!("listen {address};"))
            .lines()
            .filter(|line| !line.contains("ssl_certificate"))
            .fold(String::new(), |text, line| text + line + "\n");
        let text = format!(
            "daemon off;\nmaster_process off;\npid {path}/nginx.pid;\nevents {{}}\nhttp {{\naccess_log off;\n{temporary}{server}}}\n"
        );
        let file = folder.path().join("nginx.conf");
        fs::write(&file, text).unwrap();
        let mut command = Command::new("/usr/sbin/nginx");
        command.arg("-c").arg(&file).args(["-e", "stderr"]);
        Self::started(command, address, folder).await
    }

    /// HAProxy, which checks the gateways' readiness.
    pub(crate) async fn haproxy(places: &[Place; 3]) -> Self {
        let (address, folder) = (ports::free(), TempFile::folder());
        let text = block("haproxy", places);
        let text = text.replace(
            "bind :443 ssl crt /etc/haproxy/mcp.pem alpn h2,http/1.1",
            &format!("bind {address}"),
        );
        let file = folder.path().join("haproxy.cfg");
        fs::write(&file, text).unwrap();
        let mut command = Command::new("/usr/sbin/haproxy");
        command.args(["-db", "-f"]).arg(&file);
        Self::started(command, address, folder).await
    }

    async fn started(mut command: Command, address: SocketAddr, folder: TempFile) -> Self {
        command
            .kill_on_drop(true)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped());
        let mut child = command
            .spawn()
            .unwrap_or_else(|error| panic!("{command:?}: {error}; use tests/replicas/run"));
        let log = Log::print("balancer", child.stderr.take().unwrap());
        until("the load balancer", async || {
            TcpStream::connect(address).await.is_ok()
        })
        .await;
        Self {
            address,
            _log: log,
            _child: child,
            _folder: folder,
        }
    }
}

/// The text of docs/replicas.md.
pub(crate) fn page() -> String {
    fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/replicas.md")).unwrap()
}

/// The page's code block in this language, with these gateways' addresses.
fn block(language: &str, places: &[Place; 3]) -> String {
    let page = page();
    let (_, after) = page
        .split_once(&format!("```{language} "))
        .expect("a block of the page");
    let (_, text) = after.split_once('\n').unwrap();
    let mut text = text.split_once("\n```").unwrap().0.to_owned() + "\n";
    for (number, place) in (1..).zip(places) {
        let (clients, operators) = (format!("10.0.0.{number}:8080"), place.operators.port());
        assert!(text.contains(&clients), "{clients} is not in\n{text}");
        text = text.replace(
            &format!("{clients} port 8081"),
            &format!("{clients} port {operators}"),
        );
        text = text.replace(&clients, &place.clients.to_string());
    }
    text
}
