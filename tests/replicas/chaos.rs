//! Faults while clients of both eras call tools through HAProxy: the clients' results, and that no
//! call runs twice.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use rustix::process::Signal;
use tokio::time::sleep;

use crate::balancer::Balancer;
use crate::fleet::{Fleet, Networks};
use crate::forwarding::signal;
use crate::group::{of_replicas, until};
use crate::harness::Gateway;
use crate::linked::LinkedGroup;
use crate::load::{Ledger, Load, Outcomes, WHOLE_WITHIN};
use crate::proxy::{Network, Proxy};
use crate::valkey::{Sentinel, Valkey};

/// The time after which clients give up a call: after HAProxy has noticed a stuck replica, and
/// before all clients must be served again.
const GIVES_UP: Duration = Duration::from_millis(3500);
/// The duration of faults that end by themselves: longer than the others need to notice.
const LASTS: Duration = Duration::from_secs(6);
/// A limit that all replicas share, so that each call asks Valkey.
const LIMITED: &str = r#","limits":{"rates":[{"rate":"1000000/s","shared":"part"}]}"#;
/// The fault during which one replica does not reach Valkey. It answers 503 to sessions that it
/// does not know.
const CUT_OFF: &str = "one replica cut off from Valkey";

/// Three replicas under load, with networks that can fail.
struct Scene {
    ledger: Ledger,
    fleet: Fleet,
    load: Load,
    /// The faults with their times.
    faults: Vec<(String, Instant)>,
    _balancer: Balancer,
}

impl Scene {
    /// Starts the replicas with these URLs of Valkey.
    async fn start(valkeys: [String; 3]) -> Self {
        let ledger = Ledger::start().await;
        let group = LinkedGroup::new(ledger.entries(), LIMITED);
        Self::with(ledger, Fleet::start(group, valkeys).await).await
    }

    async fn with(ledger: Ledger, fleet: Fleet) -> Self {
        let balancer = Balancer::haproxy(&fleet.places).await;
        let load = Load::start(balancer.address, GIVES_UP).await;
        for number in 0..3 {
            fleet.carries_requests(number).await;
        }
        Self {
            ledger,
            fleet,
            load,
            faults: Vec::new(),
            _balancer: balancer,
        }
    }

    /// Notes a fault that begins now.
    fn now(&mut self, what: &str) {
        self.faults.push((what.to_owned(), Instant::now()));
    }

    /// Waits while the fault lasts, and then until all clients are served.
    async fn lasts(&self) {
        sleep(LASTS).await;
        self.load.is_served().await;
    }

    /// Ends the clients, and checks their results: no fault may have cost a client more than `most`
    /// calls.
    async fn end(mut self, most: usize) -> Outcomes {
        self.load.is_served().await;
        self.now("");
        let outcomes = self.load.stop().await;
        outcomes.agree_with(&self.ledger);
        for pair in self.faults.windows(2) {
            let within = if pair[0].0 == CUT_OFF {
                Duration::MAX
            } else {
                WHOLE_WITHIN
            };
            outcomes.record(&pair[0].0, pair[0].1, pair[1].1, within);
            outcomes.failed_at_most(most, &pair[0].0, pair[0].1, pair[1].1);
        }
        outcomes
    }
}

#[tokio::test]
async fn killed_replicas_cost_their_calls_and_nothing_else() {
    let valkey = Valkey::start().await;
    let mut scene = Scene::start([(); 3].map(|()| valkey.url())).await;
    for number in 0..3 {
        scene.now(&format!("replica {} killed, and started again", number + 1));
        scene.fleet.kill(number).await;
        scene.load.is_served().await;
        scene.fleet.start_again(number).await;
        scene.fleet.carries_requests(number).await;
    }
    scene.end(1).await.none_lost();
}

/// The others regard the stopped replica as dead. It comes back as the former owner of sessions
/// that others have taken over.
#[tokio::test]
async fn stopped_replica_comes_back_without_what_others_have_taken_over() {
    let valkey = Valkey::start().await;
    let mut scene = Scene::start([(); 3].map(|()| valkey.url())).await;
    scene.now("a replica stopped (SIGSTOP)");
    signal(&scene.fleet.replica(0).gateway, Signal::STOP);
    scene.lasts().await;
    scene.now("the stopped replica goes on");
    signal(&scene.fleet.replica(0).gateway, Signal::CONT);
    scene
        .fleet
        .replica(0)
        .gateway
        .log
        .line_with("it has rejoined them")
        .await;
    scene.end(1).await.none_lost();
}

#[tokio::test]
async fn valkey_that_is_killed_and_started_again_costs_no_call() {
    let mut valkey = Valkey::start().await;
    let mut scene = Scene::start([(); 3].map(|()| valkey.url())).await;
    scene.now("Valkey killed");
    valkey.kill().await;
    scene.lasts().await;
    scene.now("Valkey started again");
    valkey.start_again(true).await;
    scene.load.is_served().await;
    scene.end(0).await.none_lost();
}

#[tokio::test]
async fn failover_of_valkey_costs_no_call() {
    let mut primary = Valkey::start().await;
    let replica = Valkey::replica_of(&primary).await;
    let sentinel = Sentinel::start(&primary).await;
    let mut scene = Scene::start([(); 3].map(|()| sentinel.url())).await;
    scene.now("the primary of Valkey killed, a replica of it takes over");
    primary.kill().await;
    until("the replica to be the primary", async || {
        replica.ask("ROLE").await.contains("master")
    })
    .await;
    scene.lasts().await;
    scene.end(0).await.none_lost();
}

#[tokio::test]
async fn slow_valkey_costs_no_call() {
    let valkey = Valkey::start().await;
    let proxy = Proxy::to(valkey.address).await;
    let mut scene = Scene::start([(); 3].map(|()| proxy.url())).await;
    for millis in [200, 2000] {
        scene.now(&format!("{millis} ms to Valkey and back"));
        proxy.set(Network::Takes(Duration::from_millis(millis / 2)));
        scene.lasts().await;
    }
    scene.now("Valkey as fast as before");
    proxy.set(Network::Takes(Duration::ZERO));
    scene.load.is_served().await;
    scene.end(0).await.none_lost();
}

/// All replicas reach Valkey, but not each other.
#[tokio::test]
async fn partition_between_replicas_leaves_all_clients_served() {
    let valkey = Valkey::start().await;
    let ledger = Ledger::start().await;
    let (group, places) = (LinkedGroup::new(ledger.entries(), LIMITED), Fleet::places());
    let networks = Networks::between(&places, &valkey).await;
    let fleet = Fleet::start_at(places, group, networks.valkeys(), <[_; 3]>::default()).await;
    let mut scene = Scene::with(ledger, fleet).await;
    scene.now("no network between replicas");
    networks.between_replicas(Network::Silent);
    scene.lasts().await;
    scene.now("the network between replicas is back");
    networks.between_replicas(Network::Takes(Duration::ZERO));
    scene.lasts().await;
    scene.now(CUT_OFF);
    networks.to_valkey(0, Network::Silent);
    scene.lasts().await;
    scene.now("the replica reaches Valkey again");
    networks.to_valkey(0, Network::Takes(Duration::ZERO));
    scene
        .fleet
        .replica(0)
        .gateway
        .log
        .line_with("it has rejoined them")
        .await;
    // Each broken link between two replicas may cost a client a call. A replica without Valkey does
    // not see that a session has moved, and no other replica knows the sessions opened there.
    scene.end(6).await;
}

/// The start time of a gateway by its own clock, in seconds since the Unix epoch.
async fn started_by_its_own_clock(gateway: &Gateway) -> i64 {
    let (own, members) = (
        of_replicas(gateway, &["own"]).await,
        of_replicas(gateway, &["members"]).await,
    );
    let (_, member) = members
        .split_once(&format!(r#""id":{own}"#))
        .unwrap_or_else(|| panic!("{own}: {members}"));
    let (_, since) = member.split_once(r#""sinceMs":"#).unwrap();
    since
        .split([',', '.', '}'])
        .next()
        .unwrap()
        .parse::<i64>()
        .unwrap()
        / 1000
}

fn seconds_of(time: SystemTime) -> i64 {
    time.duration_since(UNIX_EPOCH)
        .unwrap()
        .as_secs()
        .try_into()
        .unwrap()
}

/// Environment variables that offset a process's clock, by the library `faketime`.
pub(crate) fn clock_off_by(offset: &str) -> [(&'static str, String); 3] {
    let library = format!(
        "/usr/lib/{}-linux-gnu/faketime/libfaketimeMT.so.1",
        std::env::consts::ARCH
    );
    assert!(
        std::fs::exists(&library).unwrap(),
        "{library} is missing: use tests/replicas/run"
    );
    [
        ("FAKETIME", offset.to_owned()),
        ("FAKETIME_DONT_FAKE_MONOTONIC", "1".to_owned()),
        ("LD_PRELOAD", library),
    ]
}

/// Leases follow Valkey's clock. Forwarded requests tolerate an offset of a minute and a half.
#[tokio::test]
async fn replicas_whose_clocks_are_off_serve_as_others_do() {
    let valkey = Valkey::start().await;
    let ledger = Ledger::start().await;
    let group = LinkedGroup::new(ledger.entries(), LIMITED);
    // The offsets differ by less than a minute and a half.
    let offsets = [30, -30, 0];
    let variables = offsets.map(|seconds| clock_off_by(&format!("{seconds:+}s")).into());
    let began = SystemTime::now();
    let fleet = Fleet::start_with(group, [(); 3].map(|()| valkey.url()), variables).await;
    for (number, seconds) in offsets.into_iter().enumerate() {
        let started = started_by_its_own_clock(&fleet.replica(number).gateway).await - seconds;
        assert!(
            (seconds_of(began)..=seconds_of(SystemTime::now())).contains(&started),
            "{seconds}: {started}"
        );
    }
    let mut scene = Scene::with(ledger, fleet).await;
    scene.now("the clock of one replica 30 s ahead, of another 30 s behind");
    scene.lasts().await;
    scene.end(0).await.none_lost();
}
