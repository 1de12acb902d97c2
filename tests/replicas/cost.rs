//! The processor time of calls: with and without other replicas, under a shared limit, and
//! forwarded.
//!
//! The figures are ratios within one run, of shipped builds: `FANLIGHT_TEST_BINARY` names one.

use std::net::SocketAddr;
use std::time::Duration;

use fanlight_testkit::signing_in::ANN;
use fanlight_testkit::usage;
use futures_util::future::join_all;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::TcpStream;

use crate::forwarding::{backend, say};
use crate::harness::{Gateway, within};
use crate::linked::{Client, Linked, LinkedGroup};
use crate::load::figures;
use crate::raw_client::{JSON_HEADERS, NEWEST_LEGACY, modern_headers, modern_request};
use crate::valkey::Valkey;

/// Measurements of each kind, made in turn; the test compares their medians.
const ROUNDS: usize = 7;
/// Concurrent clients, as under load: simultaneous messages to Valkey or another replica are sent
/// together.
const CLIENTS: usize = 16;
/// Calls of each client in a measurement.
const CALLS: u32 = 100;

/// A client that repeats one request on its connection.
struct Caller {
    stream: BufReader<TcpStream>,
    request: Vec<u8>,
}

impl Caller {
    async fn new(at: SocketAddr, body: &str, fields: &[(&str, &str)]) -> Self {
        let stream = TcpStream::connect(at).await.unwrap();
        stream.set_nodelay(true).unwrap();
        let mut request =
            format!("POST /mcp HTTP/1.1\r\nHost: {at}\r\nAuthorization: Bearer {ANN}\r\n");
        for (name, value) in JSON_HEADERS.iter().chain(fields) {
            request.push_str(&format!("{name}: {value}\r\n"));
        }
        request.push_str(&format!("Content-Length: {}\r\n\r\n{body}", body.len()));
        Self {
            stream: BufReader::new(stream),
            request: request.into_bytes(),
        }
    }

    /// A client of 2026-07-28.
    async fn modern(at: SocketAddr) -> Self {
        let body = modern_request("1", "tools/call", r#""name":"say","arguments":{}"#, "");
        let fields = modern_headers(&body);
        let fields: Vec<_> = fields
            .iter()
            .map(|(name, value)| (name.as_str(), value.as_str()))
            .collect();
        Self::new(at, &body, &fields).await
    }

    /// A legacy client with this session.
    async fn legacy(at: SocketAddr, session: &str) -> Self {
        let fields = [
            ("Mcp-Session-Id", session),
            ("MCP-Protocol-Version", NEWEST_LEGACY),
        ];
        Self::new(at, &say("1"), &fields).await
    }

    async fn call(&mut self) {
        self.stream
            .get_mut()
            .write_all(&self.request)
            .await
            .unwrap();
        let (mut line, mut length) = (String::new(), 0);
        loop {
            line.clear();
            self.stream.read_line(&mut line).await.unwrap();
            match line.trim_end().split_once(": ") {
                Some((name, value)) if name.eq_ignore_ascii_case("content-length") => {
                    length = value.parse().unwrap();
                }
                None if line.trim_end().is_empty() => break,
                _ => {}
            }
        }
        let mut body = vec![0; length];
        self.stream.read_exact(&mut body).await.unwrap();
        assert!(
            String::from_utf8_lossy(&body).contains("said"),
            "{}",
            String::from_utf8_lossy(&body)
        );
    }
}

/// The processor time per call of these gateways.
async fn cost(callers: &mut [Caller], gateways: &[&Gateway]) -> Duration {
    let used = || {
        gateways
            .iter()
            .map(|gateway| usage::processor_time_of_threads(gateway.pid()))
            .sum::<Duration>()
    };
    let (before, count) = (used(), u32::try_from(callers.len()).unwrap());
    let calls = callers.iter_mut().map(async |caller| {
        for _ in 0..CALLS {
            caller.call().await;
        }
    });
    within("the calls", join_all(calls)).await;
    (used() - before) / (CALLS * count)
}

#[tokio::test]
#[ignore = "measures a release: use tests/replicas/figures"]
async fn cost_of_calls_with_replicas() {
    let (valkey, backend) = (Valkey::start().await, backend().await);
    let (plain, limited) = (LinkedGroup::new(backend.entry("only"), ""), {
        let limits = r#","limits":{"rates":[{"rate":"1000000/s","shared":"part"}]}"#;
        LinkedGroup::new(backend.entry("only"), limits)
    });
    let alone = Gateway::start(&plain.group.alone()).await;
    let (one, other) = plain.start_two(&valkey.url()).await;
    let third = plain.start(&valkey.url()).await;
    let elsewhere = Valkey::start().await;
    let Linked {
        gateway: common, ..
    } = limited.start(&elsewhere.url()).await;
    let session = Client::open(&one, ANN).await.session;
    let modern = |at| join_all((0..CLIENTS).map(move |_| Caller::modern(at)));
    let all = [&one.gateway, &other.gateway, &third.gateway];
    let spread = join_all(
        all.iter()
            .cycle()
            .take(CLIENTS)
            .map(|gateway| Caller::modern(gateway.mcp)),
    );
    let legacy = |at| join_all((0..CLIENTS).map(|_| Caller::legacy(at, &session)));
    let mut callers = [
        (modern(alone.mcp).await, vec![&alone]),
        (modern(one.gateway.mcp).await, vec![&one.gateway]),
        (spread.await, all.to_vec()),
        (modern(common.mcp).await, vec![&common]),
        (
            legacy(one.gateway.mcp).await,
            vec![&one.gateway, &other.gateway],
        ),
        (
            legacy(other.gateway.mcp).await,
            vec![&one.gateway, &other.gateway],
        ),
    ];
    let mut rounds: [Vec<Duration>; 6] = Default::default();
    for _ in 0..=ROUNDS {
        for ((callers, gateways), costs) in callers.iter_mut().zip(&mut rounds) {
            costs.push(cost(callers, gateways).await);
        }
    }
    let [alone, with, spread, common, kept, passed_on] = rounds.map(|costs| {
        // The first measurement is of a process that has just started.
        let mut costs = costs[1..].to_vec();
        costs.sort();
        costs[costs.len() / 2].as_secs_f64() * 1e6
    });
    let mut text =
        "\n| processor time of a call | us | of what | |\n|---|--:|---|--:|\n".to_owned();
    text.push_str(&format!("| modern, without replicas | {alone:.0} | | |\n"));
    text.push_str(&format!(
        "| modern, with replicas | {with:.0} | of that without | × {:.2} |\n",
        with / alone
    ));
    text.push_str(&format!(
        "| modern, spread over three replicas | {spread:.0} | of that without | × {:.2} |\n",
        spread / alone
    ));
    text.push_str(&format!(
        "| modern, under a common limit | {common:.0} | more than without | + {:.0} |\n",
        common - with
    ));
    text.push_str(&format!(
        "| in a session, at its replica | {kept:.0} | | |\n"
    ));
    text.push_str(&format!(
        "| in a session, passed on, at both | {passed_on:.0} | of that at its replica | × {:.2} |\n",
        passed_on / kept
    ));
    figures(&text);
}
