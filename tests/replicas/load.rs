//! Clients of both eras that call tools continuously, and the ledger of the servers' executed
//! calls.
//!
//! Each call has its own number, which its answer repeats. So a test can tell for each call whether
//! the answer belongs to it and how often it ran.

use std::collections::HashMap;
use std::fs::OpenOptions;
use std::io::Write as _;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use crate::harness::within;
use crate::raw_client::{
    INITIALIZED, JSON_HEADERS, NEWEST_LEGACY, initialize, legacy_request, modern_headers,
    modern_request,
};
use crate::scripted::{Backend, Era, Received, Reply, Transport};
use crate::signing_in::{ANN, BOB};

/// Clients of each era.
const OF_EACH_ERA: usize = 3;
/// The pause between two calls of a client, like a user's time to think.
const PAUSE: Duration = Duration::from_millis(15);
/// The number of calls that a failed test shows.
const SHOWN: usize = 20;
/// The time after a fault within which all clients must be served again.
pub(crate) const WHOLE_WITHIN: Duration = Duration::from_secs(5);

/// Two servers, one of each era, that count executed calls.
pub(crate) struct Ledger {
    old: Backend,
    new: Backend,
}

impl Ledger {
    /// A ledger with servers over HTTP.
    pub(crate) async fn start() -> Self {
        Self::with(Transport::Http).await
    }

    /// A ledger whose legacy server uses this transport.
    pub(crate) async fn with(transport: Transport) -> Self {
        let (old, new) = tokio::join!(
            Backend::start(Era::Legacy, transport),
            Backend::start(Era::Modern, Transport::Http)
        );
        for backend in [&old, &new] {
            backend.offers_tools(&["run"]);
        }
        let text = |call: &Received| {
            format!(
                r#""content":[{{"type":"text","text":"ran {}."}}]"#,
                number_of(call)
            )
        };
        old.on(
            "tools/call",
            Reply::compute(move |call| format!("{{{}}}", text(call))),
        );
        new.on(
            "tools/call",
            Reply::compute(move |call| Era::Modern.complete(&text(call))),
        );
        Self { old, new }
    }

    /// The servers' entries in a configuration.
    pub(crate) fn entries(&self) -> String {
        [self.old.entry("old"), self.new.entry("new")].join(",")
    }

    /// The number of executions of each call.
    fn runs(&self) -> HashMap<u64, usize> {
        let mut runs = HashMap::new();
        for call in [&self.old, &self.new]
            .iter()
            .flat_map(|backend| backend.received("tools/call"))
        {
            *runs.entry(number_of(&call)).or_default() += 1;
        }
        runs
    }
}

fn number_of(call: &Received) -> u64 {
    call.member("params.arguments.n")
        .and_then(|number| number.parse().ok())
        .expect("the number of a call")
}

/// The outcome of a call.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Outcome {
    Answered,
    /// The session is unknown, so the call has not run.
    NoSession,
    /// An error, or no answer in time: the client does not know whether the call has run.
    Failed(String),
}

/// A call that has ended.
struct Call {
    client: usize,
    number: u64,
    ended: Instant,
    outcome: Outcome,
}

/// Clients that call until they are stopped.
pub(crate) struct Load {
    stop: Arc<AtomicBool>,
    /// The number of answered calls of each client.
    answered: watch::Receiver<Vec<u64>>,
    clients: JoinSet<Vec<Call>>,
}

/// The outcomes of all calls.
pub(crate) struct Outcomes(Vec<Call>);

impl Load {
    /// Starts clients at this address that give up a call after a while, and waits until each has
    /// had an answer.
    pub(crate) async fn start(entrance: SocketAddr, gives_up_after: Duration) -> Self {
        let (sender, answered) = watch::channel(vec![0; 2 * OF_EACH_ERA]);
        let (stop, sender, next) = (
            Arc::<AtomicBool>::default(),
            Arc::new(sender),
            Arc::<AtomicU64>::default(),
        );
        let mut clients = JoinSet::new();
        for name in 0..2 * OF_EACH_ERA {
            let key = if name % 2 == 0 { ANN } else { BOB };
            let client = Client {
                name,
                key,
                entrance,
                gives_up_after,
                is_legacy: name >= OF_EACH_ERA,
                session: None,
            };
            let (stop, answered, next) =
                (Arc::clone(&stop), Arc::clone(&sender), Arc::clone(&next));
            clients.spawn(async move { client.run(&stop, &answered, &next).await });
        }
        let load = Self {
            stop,
            answered,
            clients,
        };
        load.is_served().await;
        load
    }

    /// Waits until all clients' calls that begin from now on are answered.
    pub(crate) async fn is_served(&self) {
        let mut answered = self.answered.clone();
        let before = answered.borrow().clone();
        // One call may have been in flight already.
        let are_served = |now: &Vec<u64>| {
            now.iter()
                .zip(&before)
                .all(|(now, before)| *now >= before + 2)
        };
        within("answers to all clients", answered.wait_for(are_served))
            .await
            .unwrap();
    }

    /// Ends the clients.
    pub(crate) async fn stop(self) -> Outcomes {
        self.stop.store(true, Ordering::Relaxed);
        let calls = within("the clients to end", self.clients.join_all()).await;
        Outcomes(calls.into_iter().flatten().collect())
    }
}

impl Outcomes {
    /// Checks that no call has run twice, and that each answered call has run.
    pub(crate) fn agree_with(&self, ledger: &Ledger) {
        let runs = ledger.runs();
        let of = |call: &Call| runs.get(&call.number).copied().unwrap_or(0);
        for call in &self.0 {
            match call.outcome {
                Outcome::Answered => assert_eq!(of(call), 1, "call {} was answered", call.number),
                Outcome::NoSession => {
                    assert_eq!(of(call), 0, "call {} had no session", call.number);
                }
                Outcome::Failed(_) => assert!(
                    of(call) <= 1,
                    "call {} has run {} times",
                    call.number,
                    of(call)
                ),
            }
        }
    }

    /// Checks that no modern call has failed and no legacy client has lost its session.
    pub(crate) fn all_answered(&self) {
        assert_eq!(self.text_of(|outcome| *outcome != Outcome::Answered), "");
    }

    /// The number of times that each legacy client lost its session.
    pub(crate) fn lost_sessions(&self) -> Vec<usize> {
        let lost = |client| {
            self.0
                .iter()
                .filter(|call| call.client == client && call.outcome == Outcome::NoSession)
                .count()
        };
        (OF_EACH_ERA..2 * OF_EACH_ERA).map(lost).collect()
    }

    /// Checks that no legacy client has lost its session.
    pub(crate) fn none_lost(&self) {
        assert_eq!(self.text_of_lost(), "");
    }

    /// The times of lost sessions, with their clients.
    pub(crate) fn text_of_lost(&self) -> String {
        self.text_of(|outcome| *outcome == Outcome::NoSession)
    }

    /// Checks that only lost sessions have failed.
    pub(crate) fn none_failed(&self) {
        assert_eq!(
            self.text_of(|outcome| matches!(outcome, Outcome::Failed(_))),
            ""
        );
    }

    /// The time from a fault to the end of its last unanswered call. Calls after `until` belong to
    /// a later fault.
    pub(crate) fn whole_after(&self, fault: Instant, until: Instant) -> Duration {
        let of_fault = self
            .calls(fault, until)
            .filter(|call| call.outcome != Outcome::Answered);
        of_fault
            .map(|call| call.ended - fault)
            .max()
            .unwrap_or_default()
    }

    /// Records the clients' outcomes of a fault. Fails if they were not all served again within
    /// `within`.
    pub(crate) fn record(&self, what: &str, fault: Instant, until: Instant, within: Duration) {
        let after = self.whole_after(fault, until);
        let lost = self
            .calls(fault, until)
            .filter(|call| call.outcome == Outcome::NoSession)
            .count();
        let failed = self
            .calls(fault, until)
            .filter(|call| matches!(call.outcome, Outcome::Failed(_)))
            .count();
        let line = format!(
            "| {what} | {} | {failed} | {lost} | {:.1} |\n",
            self.calls(fault, until).count(),
            after.as_secs_f64()
        );
        figures(&line);
        assert!(
            after <= within,
            "{what}: {after:?}\n{}",
            self.text_of(|outcome| *outcome != Outcome::Answered)
        );
    }

    /// Checks that a fault has cost no client more than `most` calls.
    pub(crate) fn failed_at_most(&self, most: usize, what: &str, fault: Instant, until: Instant) {
        let is_failed = |call: &&Call| matches!(call.outcome, Outcome::Failed(_));
        for client in 0..2 * OF_EACH_ERA {
            let failed = self
                .calls(fault, until)
                .filter(is_failed)
                .filter(|call| call.client == client)
                .count();
            let text = || self.text_of(|outcome| matches!(outcome, Outcome::Failed(_)));
            assert!(
                failed <= most,
                "{what}: client {client} has lost {failed} calls\n{}",
                text()
            );
        }
    }

    fn calls(&self, fault: Instant, until: Instant) -> impl Iterator<Item = &Call> {
        self.0
            .iter()
            .filter(move |call| call.ended >= fault && call.ended < until)
    }

    /// The first calls with an outcome that satisfies `is_such`.
    fn text_of(&self, is_such: impl Fn(&Outcome) -> bool) -> String {
        let Some(began) = self.0.iter().map(|call| call.ended).min() else {
            return String::new();
        };
        let mut calls: Vec<_> = self
            .0
            .iter()
            .filter(|call| is_such(&call.outcome))
            .collect();
        calls.sort_by_key(|call| call.ended);
        calls.iter().take(SHOWN).fold(
            String::new(),
            |text,
             Call {
                 client,
                 number,
                 ended,
                 outcome,
             }| {
                text + &format!(
                    "client {client}, call {number}, {:?}: {outcome:?}\n",
                    *ended - began
                )
            },
        )
    }
}

/// Prints figures, and writes them to the file that `FANLIGHT_FIGURES` names.
pub(crate) fn figures(text: &str) {
    print!("{text}");
    if let Some(file) = std::env::var_os("FANLIGHT_FIGURES") {
        OpenOptions::new()
            .append(true)
            .create(true)
            .open(file)
            .unwrap()
            .write_all(text.as_bytes())
            .unwrap();
    }
}

/// One client: a modern one, or a legacy one with a session.
struct Client {
    name: usize,
    key: &'static str,
    entrance: SocketAddr,
    gives_up_after: Duration,
    is_legacy: bool,
    session: Option<String>,
}

impl Client {
    async fn run(
        mut self,
        stop: &AtomicBool,
        answered: &watch::Sender<Vec<u64>>,
        next: &AtomicU64,
    ) -> Vec<Call> {
        let mut calls = Vec::new();
        while !stop.load(Ordering::Relaxed) {
            let number = next.fetch_add(1, Ordering::Relaxed);
            let outcome = match self.prepared().await {
                Ok(()) => self.call(number).await,
                Err(outcome) => outcome,
            };
            match outcome {
                Outcome::Answered => answered.send_modify(|counts| counts[self.name] += 1),
                // The client opens a new session (2025-11-25 basic/transports, Session Management).
                Outcome::NoSession => self.session = None,
                Outcome::Failed(_) => {}
            }
            calls.push(Call {
                client: self.name,
                number,
                ended: Instant::now(),
                outcome,
            });
            sleep(PAUSE).await;
        }
        calls
    }

    /// Opens a session if one is needed.
    async fn prepared(&mut self) -> Result<(), Outcome> {
        if !self.is_legacy || self.session.is_some() {
            return Ok(());
        }
        let (status, answer) = self
            .post(&initialize(NEWEST_LEGACY, "{}"))
            .await
            .map_err(Outcome::Failed)?;
        let session = answer.lines().find_map(|line| {
            let (name, value) = line.split_once(':')?;
            name.eq_ignore_ascii_case("mcp-session-id")
                .then(|| value.trim().to_owned())
        });
        self.session = Some(session.ok_or_else(|| Outcome::Failed(format!("{status}: {answer}")))?);
        match self.post(INITIALIZED).await.map_err(Outcome::Failed)? {
            (202, _) => Ok(()),
            (404, _) => Err(Outcome::NoSession),
            (_, answer) => Err(Outcome::Failed(answer)),
        }
    }

    async fn call(&self, number: u64) -> Outcome {
        let arguments = format!(r#""arguments":{{"n":{number}}}"#);
        let body = match self.is_legacy {
            true => legacy_request(
                &number.to_string(),
                "tools/call",
                &format!(r#""name":"old__run",{arguments}"#),
            ),
            false => modern_request(
                &number.to_string(),
                "tools/call",
                &format!(r#""name":"new__run",{arguments}"#),
                "",
            ),
        };
        match self.post(&body).await {
            Ok((404, _)) if self.is_legacy => Outcome::NoSession,
            Ok((200, answer)) if answer.contains("ran ") => {
                assert!(
                    answer.contains(&format!("ran {number}.")),
                    "the answer to another call than {number}: {answer}"
                );
                Outcome::Answered
            }
            Ok((status, answer)) => {
                let body = answer.split_once("\r\n\r\n").map_or("", |(_, body)| body);
                Outcome::Failed(format!(
                    "{status} {}",
                    body.split_whitespace().collect::<Vec<_>>().join(" ")
                ))
            }
            Err(error) => Outcome::Failed(error),
        }
    }

    /// The status and the whole text of the answer.
    async fn post(&self, body: &str) -> Result<(u16, String), String> {
        let mut head = format!(
            "POST /mcp HTTP/1.1\r\nHost: {}\r\nConnection: close\r\nAuthorization: Bearer {}\r\nContent-Length: {}\r\n",
            self.entrance,
            self.key,
            body.len()
        );
        let mut field = |name: &str, value: &str| head.push_str(&format!("{name}: {value}\r\n"));
        JSON_HEADERS
            .iter()
            .for_each(|(name, value)| field(name, value));
        match &self.session {
            Some(session) => {
                field("Mcp-Session-Id", session);
                field("MCP-Protocol-Version", NEWEST_LEGACY);
            }
            None if self.is_legacy => {}
            None => modern_headers(body)
                .iter()
                .for_each(|(name, value)| field(name, value)),
        }
        let exchange = async {
            let mut stream = TcpStream::connect(self.entrance).await?;
            stream
                .write_all(format!("{head}\r\n{body}").as_bytes())
                .await?;
            let mut answer = Vec::new();
            stream.read_to_end(&mut answer).await?;
            Ok::<_, std::io::Error>(String::from_utf8_lossy(&answer).into_owned())
        };
        let answer = timeout(self.gives_up_after, exchange).await;
        let answer = answer
            .map_err(|_| "no answer in time")?
            .map_err(|error| error.to_string())?;
        let status = answer
            .split(' ')
            .nth(1)
            .and_then(|status| status.parse().ok());
        Ok((
            status.ok_or_else(|| format!("no answer: `{answer}`"))?,
            answer,
        ))
    }
}
