//! Attacks on the TLS handshake.

use std::fs;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use fanlight_testkit::tls::{Authority, TlsClient};
use fanlight_testkit::usage;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpSocket, TcpStream};

use crate::harness::{Gateway, TempFile, within};
use crate::raw_client::{Connection, modern_request, post_modern_on};
use crate::scripted::{Backend, Era, Reply, Transport, config};

const ANY: &str = "127.0.0.1:0";

/// A gateway with TLS.
struct Attacked {
    gateway: Gateway,
    client: TlsClient,
    _folder: TempFile,
    _backend: Backend,
}

impl Attacked {
    async fn start(options: &str) -> Self {
        let (folder, authority) = (TempFile::folder(), Authority::new());
        let backend = Backend::start(Era::Modern, Transport::Http).await;
        backend.offers_tools(&["t"]);
        backend.on(
            "tools/call",
            Reply::result(Era::Modern.complete(r#""content":[]"#)),
        );
        let pair = authority.server();
        let file = |name: &str| folder.path().join(name);
        fs::write(file("c"), pair.pem()).unwrap();
        fs::write(file("k"), pair.key()).unwrap();
        let servers = config(&[backend.entry("only")]);
        let text = format!(
            r#"{{"listen":"{ANY}","tls":{{"cert":"c","key":"k"}},"admin":{{"listen":"{ANY}"}},{options}{}"#,
            &servers[1..]
        );
        fs::write(file("fanlight.yaml"), text).unwrap();
        let gateway = Gateway::start_at_addresses_of(file("fanlight.yaml")).await;
        Self {
            gateway,
            client: TlsClient::new(&authority),
            _folder: folder,
            _backend: backend,
        }
    }

    /// A call on a new connection.
    async fn call(&self) -> String {
        let stream = self.client.connect(self.gateway.mcp).await.unwrap();
        let request = modern_request("1", "tools/call", r#""name":"t""#, "");
        post_modern_on(Connection::on(stream, self.gateway.mcp), &request)
            .await
            .messages()
            .await
            .1
    }
}

/// A connection from another peer than the good client's.
async fn attacker(gateway: SocketAddr) -> TcpStream {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind("127.0.0.66:0".parse().unwrap()).unwrap();
    within("a connection", socket.connect(gateway))
        .await
        .unwrap()
}

/// Whether the gateway closes the connection.
async fn is_closed(mut stream: TcpStream) -> bool {
    let mut rest = Vec::new();
    // A reset is an end, too.
    let _ = within("the end of the connection", stream.read_to_end(&mut rest)).await;
    true
}

/// The beginning of a handshake: a record of 512 bytes that never comes.
const BEGINNING: &[u8] = &[22, 3, 1, 2, 0, 1, 0, 1, 252, 3, 3];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn slow_handshakes_take_no_connection_from_others() {
    let attacked = Attacked::start(r#""limits":{"connections":16},"#).await;
    let mut slow = Vec::new();
    for at in 0..64_usize {
        let mut stream = attacker(attacked.gateway.mcp).await;
        let _ = stream.write_all(&BEGINNING[..at % BEGINNING.len()]).await;
        slow.push(stream);
    }
    for _ in 0..8 {
        let started = Instant::now();
        assert!(attacked.call().await.contains("result"));
        assert!(
            started.elapsed() < Duration::from_secs(5),
            "{:?}",
            started.elapsed()
        );
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn handshake_has_the_time_of_a_first_head() {
    let attacked = Attacked::start(r#""x-limits":"header=1s","#).await;
    let mut stream = attacker(attacked.gateway.mcp).await;
    let silent = attacker(attacked.gateway.mcp).await;
    // Occasional bytes do not extend the time.
    let (mut reader, mut writer) = stream.split();
    let dripping = async {
        let mut pace = tokio::time::interval(Duration::from_millis(100));
        for byte in BEGINNING.iter().chain(std::iter::repeat(&0)) {
            pace.tick().await;
            if writer.write_all(&[*byte]).await.is_err() {
                break;
            }
        }
        std::future::pending::<()>().await;
    };
    let mut rest = Vec::new();
    let closed = async { drop(reader.read_to_end(&mut rest).await) };
    within("the end of the handshake", async {
        tokio::select! { () = dripping => {}, () = closed => {} }
    })
    .await;
    assert!(is_closed(silent).await);
    assert!(attacked.call().await.contains("result"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn garbage_ends_its_own_connection_alone() {
    let attacked = Attacked::start(r#""x-limits":"header=2s","#).await;
    assert!(attacked.call().await.contains("result"));
    let before = usage::resident_memory(attacked.gateway.pid());
    let mut long = BEGINNING.to_vec();
    long.extend(vec![0xff; 1 << 20]);
    let kinds: [&[u8]; 8] = [
        &[0; 4096],
        &[0xff; 4096],
        b"\x16\x03\x01\xff\xff",
        b"\x16\x03\x01\x00\x00",
        b"\x15\x03\x01\x00\x02\x02\x28",
        b"\x80\x2e\x01\x03\x01",
        b"SSH-2.0-x\r\n",
        &long,
    ];
    for round in 0..32 {
        let mut all = Vec::new();
        for garbage in kinds {
            let mut stream = attacker(attacked.gateway.mcp).await;
            let mut bytes = garbage.to_vec();
            if let Some(byte) = bytes.get_mut(round % 5) {
                *byte ^= u8::try_from(round).unwrap();
            }
            // The gateway may close the connection before everything is written.
            let _ = tokio::time::timeout(Duration::from_secs(1), stream.write_all(&bytes)).await;
            all.push(stream);
        }
        if round % 8 == 0 {
            assert!(attacked.call().await.contains("result"));
        }
    }
    assert!(attacked.call().await.contains("result"));
    let grown = usage::resident_memory(attacked.gateway.pid()).saturating_sub(before);
    assert!(grown < 32 << 20, "{grown}");
    let log = attacked.gateway.log.text();
    assert!(
        !log.contains("WARN") && !log.contains("ERROR") && !log.contains("panicked"),
        "{log}"
    );
}

/// TLS buffers for a client that reads nothing; the gateway closes it like any other.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn client_that_takes_nothing_over_tls_is_closed() {
    let attacked = Attacked::start(r#""x-limits":"header=1s,write=2s,idleConnection=2s","#).await;
    let text = "x".repeat(8 << 20);
    let result = Era::Modern.complete(&format!(r#""content":[{{"type":"text","text":"{text}"}}]"#));
    attacked._backend.on("tools/call", Reply::result(result));
    let mut stream = attacked.client.connect(attacked.gateway.mcp).await.unwrap();
    let body = modern_request("1", "tools/call", r#""name":"t""#, "");
    let mut head = "POST /mcp HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n\
                    Accept: application/json, text/event-stream\r\n"
        .to_owned();
    let own = crate::raw_client::modern_headers(&body);
    own.iter()
        .for_each(|(name, value)| head += &format!("{name}: {value}\r\n"));
    stream
        .write_all(format!("{head}Content-Length: {}\r\n\r\n{body}", body.len()).as_bytes())
        .await
        .unwrap();
    let closed = async {
        let mut pace = tokio::time::interval(Duration::from_millis(50));
        while usage::connections(attacked.gateway.mcp.port()) > 0 {
            pace.tick().await;
        }
    };
    within("the gateway to close the connection", closed).await;
    drop(stream);
}
