//! The cost of replicas in Valkey: measured with a few, and extrapolated to many (docs/scale.md).
//!
//! `tests/replicas/figures` writes the tables to the page.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::{Duration, Instant};

use fanlight_testkit::signing_in::{ANN, BOB};
use rustix::process::Signal;
use tokio::time::sleep;

use crate::forwarding::{say, signal};
use crate::group::{call, until};
use crate::harness::Gateway;
use crate::linked::{Client, Linked, LinkedGroup};
use crate::load;
use crate::proxy::Proxy;
use crate::valkey::Valkey;
use crate::{forwarding, tasks};

/// Repetitions of each operation.
const TIMES: u32 = 200;
/// The number of replicas in the computed group.
const REPLICAS: f64 = 1000.0;
/// Legacy sessions in that group. Each lasts an hour and calls every half minute.
const SESSIONS: f64 = 1e6;
const SESSION_SECONDS: f64 = 3600.0;
const CALL_SECONDS: f64 = 30.0;
/// A session's record is prolonged after a quarter of its life, which is twice
/// `timeouts.sessionIdle` and a minute.
const PROLONG_SECONDS: f64 = (2.0 * 1800.0 + 60.0) / 4.0;
/// Modern calls per second, each by another client, all under a shared limit.
const LIMITED_CALLS: f64 = 10_000.0;
/// The duration of tasks, and the number of new tasks per second.
const TASK_SECONDS: f64 = 600.0;
const TASKS_EACH_SECOND: f64 = 1000.0;
/// The time that a connection between replicas is kept without requests.
const LINK_SECONDS: f64 = 30.0;
/// The share of one processor that a Valkey server may use.
const BUSY: f64 = 0.5;

/// The cost of one operation.
#[derive(Clone, Copy)]
struct Cost {
    /// Scripts that Valkey runs.
    scripts: f64,
    /// Microseconds of Valkey's processor time.
    micros: f64,
    /// Bytes to Valkey and back.
    bytes: [f64; 2],
}

/// Valkey in use by a group of gateways.
struct Setting {
    valkey: Valkey,
    proxy: Proxy,
}

impl Setting {
    async fn counts(&self) -> (f64, f64) {
        let stats = self.valkey.ask("INFO commandstats").await;
        let line = stats
            .lines()
            .find_map(|line| line.strip_prefix("cmdstat_evalsha:"))
            .unwrap_or("calls=0,usec=0,");
        let number = |name: &str| {
            let (_, after) = line
                .split_once(&format!("{name}="))
                .expect("a member of the line");
            after
                .split(',')
                .next()
                .and_then(|number| number.parse().ok())
                .expect("a number")
        };
        (number("calls"), number("usec"))
    }

    /// The bytes and the number of the keys whose names contain `part`.
    async fn keys(&self, part: &str) -> (f64, usize) {
        let names = self.valkey.ask(&format!("KEYS *{part}*")).await;
        let names: Vec<_> = names
            .lines()
            .filter(|line| line.contains(part))
            .map(str::trim)
            .collect();
        let mut bytes = 0.0;
        for name in &names {
            let usage = self
                .valkey
                .ask(&format!("MEMORY USAGE {name} SAMPLES 0"))
                .await;
            let usage = usage
                .lines()
                .find_map(|line| line.strip_prefix(':')?.trim().parse::<f64>().ok());
            bytes += usage.unwrap_or_default();
        }
        (bytes, names.len())
    }

    /// The cost of one of `times` operations, without the gateways' constant load.
    async fn cost(&self, times: u32, idle: Cost, what: impl AsyncFnOnce()) -> Cost {
        let (counts, carried, began) = (self.counts().await, self.proxy.carried(), Instant::now());
        what().await;
        // Queued writes follow a moment later.
        sleep(Duration::from_millis(300)).await;
        let seconds = began.elapsed().as_secs_f64();
        let (counts, carried) = (minus(self.counts().await, counts), {
            let now = self.proxy.carried();
            [(now[0] - carried[0]) as f64, (now[1] - carried[1]) as f64]
        });
        let each = |all: f64, idle: f64| (all - idle * seconds).max(0.0) / f64::from(times);
        Cost {
            scripts: each(counts.0, idle.scripts),
            micros: each(counts.1, idle.micros),
            bytes: [
                each(carried[0], idle.bytes[0]),
                each(carried[1], idle.bytes[1]),
            ],
        }
    }

    /// The gateways' load per second without requests.
    async fn idle(&self) -> Cost {
        const SECONDS: u32 = 5;
        const NOTHING: Cost = Cost {
            scripts: 0.0,
            micros: 0.0,
            bytes: [0.0, 0.0],
        };
        self.cost(SECONDS, NOTHING, async || {
            sleep(Duration::from_secs(SECONDS.into())).await;
        })
        .await
    }
}

fn less(one: Cost, other: Cost) -> Cost {
    let bytes = [0, 1].map(|way| (one.bytes[way] - other.bytes[way]).max(0.0));
    Cost {
        scripts: (one.scripts - other.scripts).max(0.0),
        micros: (one.micros - other.micros).max(0.0),
        bytes,
    }
}

fn minus(one: (f64, f64), other: (f64, f64)) -> (f64, f64) {
    (one.0 - other.0, one.1 - other.1)
}

#[tokio::test]
#[ignore = "measures: use tests/replicas/figures"]
async fn cost_in_valkey_of_replicas() {
    let valkey = Valkey::start_with(&["--appendfsync", "everysec"]).await;
    let proxy = Proxy::to(valkey.address).await;
    let setting = Setting { valkey, proxy };
    let (old, made) = (forwarding::backend().await, tasks::backend().await);
    let limited = r#","limits":{"rates":[{"rate":"100000/h","burst":100000,"shared":"part"}]}"#;
    let group = LinkedGroup::new(old.entry("only"), "");
    let (one, other) = group.start_two(&setting.proxy.url()).await;
    let idle = setting.idle().await;
    let mut costs = BTreeMap::new();
    let mut clients = Vec::new();
    let opened = setting.cost(TIMES, idle, async || {
        for _ in 0..TIMES {
            clients.push(Client::open(&one, ANN).await);
        }
    });
    costs.insert("1 session opened", opened.await);
    let called = setting.cost(TIMES, idle, async || {
        for client in &clients {
            assert_eq!(client.post(&one, &say("1")).await.status, 200);
        }
    });
    costs.insert("2 call in a session, at its replica", called.await);
    let forwarded = setting.cost(TIMES, idle, async || {
        for client in &clients {
            assert_eq!(client.post(&other, &say("2")).await.status, 200);
        }
    });
    costs.insert("3 call in a session, at another replica", forwarded.await);
    let session = setting.keys(":session").await;
    // The replica ends: the cost covers its releases, and another replica's takeovers.
    let released = setting.cost(TIMES, idle, async || {
        signal(&one.gateway, Signal::TERM);
        one.gateway.log.line_with("sessions handed over").await;
        until("the end", async || {
            tokio::net::TcpStream::connect(one.gateway.admin)
                .await
                .is_err()
        })
        .await;
    });
    costs.insert("4 session handed over", released.await);
    let taken = setting.cost(TIMES, idle, async || {
        for client in &clients {
            assert_eq!(client.post(&other, &say("3")).await.status, 200);
        }
    });
    costs.insert("5 session taken over", taken.await);
    drop((one, other));

    let group = LinkedGroup::new([made.entry("made"), old.entry("old")].join(","), limited);
    let Linked { gateway, .. } = group.start(&setting.proxy.url()).await;
    let idle_of_one = setting.idle().await;
    let calls = setting.cost(TIMES, idle_of_one, async || {
        for _ in 0..TIMES {
            call(&gateway, "old__say", BOB).await;
        }
    });
    let calls = calls.await;
    costs.insert("6 call under a common limit", calls);
    let limit = setting.keys("{rates}").await;
    tasks::ask(
        &gateway,
        "tools/call",
        r#""name":"made__t","arguments":{}"#,
        ANN,
    )
    .await;
    until("the task", async || setting.keys(":task").await.1 == 1).await;
    let made = setting.cost(TIMES, idle_of_one, async || {
        for _ in 0..TIMES {
            tasks::ask(
                &gateway,
                "tools/call",
                r#""name":"made__t","arguments":{}"#,
                ANN,
            )
            .await;
        }
    });
    // The cost of a call under a shared limit is subtracted.
    costs.insert("7 call that makes a task, besides", less(made.await, calls));
    let task = setting.keys(":task").await;
    let (steady, changing) = members(&setting, &gateway).await;

    load::figures(&measured(
        &costs,
        idle,
        [
            ("session of a legacy client", session),
            ("limit of one client", limit),
            ("task", task),
        ],
        steady,
        changing,
    ));
    load::figures(&computed(
        &costs,
        idle,
        session.0 / session.1 as f64,
        limit.0 / limit.1 as f64,
        task.0,
        steady,
        changing,
    ));
}

/// The cost of one renewal among a thousand members: without changes, and while twenty members
/// change per second.
async fn members(setting: &Setting, gateway: &Gateway) -> (Cost, Cost) {
    tokio::select! {
        costs = members_that_renew(setting, gateway) => costs,
        () = renew(setting) => panic!("it ends never"),
    }
}

const LEASES: &str = "fanlight:{members}:leases";
/// Simulated replicas beside the real one, which only renew their leases.
const MADE_UP: usize = 999;

/// Renews the leases of the simulated replicas. The script has no name, since named scripts are
/// counted.
async fn renew(setting: &Setting) {
    let script = format!(
        "local time = redis.call('TIME'); for number = 0, {} do redis.call('ZADD', KEYS[1], \
         string.format('%.0f', time[1] * 1000 + 1900), string.format('id%014d', number)) end",
        MADE_UP - 1
    );
    loop {
        setting
            .valkey
            .ask(&format!("EVAL \"{script}\" 1 {LEASES}"))
            .await;
        sleep(Duration::from_millis(500)).await;
    }
}

async fn members_that_renew(setting: &Setting, gateway: &Gateway) -> (Cost, Cost) {
    let table = "fanlight:{members}:members";
    for number in 0..MADE_UP {
        let address = format!("10.1.{}.{}:8443", number / 250, number % 250);
        let text = format!(
            r#"1 {{\"name\":\"replica-{number:04}\",\"address\":\"{address}\",\"version\":\"0.2.0\",\"since\":1795766166}}"#
        );
        setting
            .valkey
            .ask(&format!("HSET {table} id{number:014} \"{text}\""))
            .await;
    }
    // The gateway receives the complete list.
    setting
        .valkey
        .ask(&format!("HSET {table} #since 99999999999999"))
        .await;
    setting
        .valkey
        .ask(&format!("HINCRBY {table} #version 1"))
        .await;
    until("the list", async || {
        crate::group::members(gateway).await > MADE_UP
    })
    .await;
    setting.valkey.ask(&format!("HSET {table} #since 0")).await;
    let steady = setting.idle().await;
    let changes = async {
        for number in (0..MADE_UP).cycle() {
            let version = setting
                .valkey
                .ask(&format!("HINCRBY {table} #version 1"))
                .await;
            let version = version
                .lines()
                .find_map(|line| line.strip_prefix(':'))
                .expect("a number")
                .trim()
                .to_owned();
            setting
                .valkey
                .ask(&format!(
                    "ZADD fanlight:{{members}}:changes {version} id{number:014}"
                ))
                .await;
            sleep(Duration::from_millis(50)).await;
        }
    };
    let changing = tokio::select! {
        cost = setting.idle() => cost,
        () = changes => panic!("it ends never"),
    };
    let each = |cost: Cost| Cost {
        scripts: 1.0,
        micros: cost.micros / cost.scripts,
        bytes: cost.bytes.map(|bytes| bytes / cost.scripts),
    };
    (each(steady), each(changing))
}

fn measured(
    costs: &BTreeMap<&str, Cost>,
    idle: Cost,
    keys: [(&str, (f64, usize)); 3],
    steady: Cost,
    changing: Cost,
) -> String {
    let mut text =
        "| what | scripts | processor of Valkey, us | bytes to Valkey | bytes back |\n|---|--:|--:|--:|--:|\n"
            .to_owned();
    let mut row = |what: &str,
                   Cost {
                       scripts,
                       micros,
                       bytes: [there, back],
                   }: Cost| {
        let _ = writeln!(
            text,
            "| {what} | {scripts:.1} | {micros:.0} | {there:.0} | {back:.0} |"
        );
    };
    costs.iter().for_each(|(what, cost)| row(&what[2..], *cost));
    let half = |cost: Cost| Cost {
        scripts: cost.scripts / 2.0,
        micros: cost.micros / 2.0,
        bytes: cost.bytes.map(|bytes| bytes / 2.0),
    };
    row("one replica, in a second", half(idle));
    row("one renewal among 1,000 replicas", steady);
    row(
        "the same while 20 replicas come or go in a second",
        changing,
    );
    text.push_str("\n| key | bytes of memory |\n|---|--:|\n");
    for (what, (bytes, count)) in keys {
        let _ = writeln!(text, "| {what} | {:.0} |", bytes / count as f64);
    }
    text
}

fn computed(
    costs: &BTreeMap<&str, Cost>,
    idle: Cost,
    session: f64,
    limit: f64,
    task: f64,
    steady: Cost,
    changing: Cost,
) -> String {
    let of = |number: &str| {
        *costs
            .iter()
            .find(|(what, _)| what.starts_with(number))
            .expect("a measured cost")
            .1
    };
    // The prolongation, the end and the release of a session are one script each.
    let small = Cost {
        scripts: 1.0,
        ..of("4")
    };
    let renewals = REPLICAS * idle.scripts / 2.0;
    let rates = [
        ("leases of 1,000 replicas", renewals, steady),
        ("sessions opened", SESSIONS / SESSION_SECONDS, of("1")),
        ("sessions prolonged", SESSIONS / PROLONG_SECONDS, small),
        ("sessions ended", SESSIONS / SESSION_SECONDS, small),
        (
            "calls in sessions, nearly all at another replica",
            SESSIONS / CALL_SECONDS,
            of("3"),
        ),
        ("tasks made", TASKS_EACH_SECOND, of("7")),
        (
            "calls of modern clients under a common limit",
            LIMITED_CALLS,
            of("6"),
        ),
    ];
    let mut text = "\n| load | in a second | scripts in a second | processors of Valkey | Mbit/s to Valkey | Mbit/s back |\n|---|--:|--:|--:|--:|--:|\n".to_owned();
    let mut all = [0.0; 4];
    for (what, rate, cost) in rates {
        let [there, back] = cost.bytes.map(|bytes| bytes * rate * 8.0 / 1e6);
        let row = [rate * cost.scripts, rate * cost.micros / 1e6, there, back];
        all.iter_mut().zip(row).for_each(|(all, one)| *all += one);
        let _ = writeln!(
            text,
            "| {what} | {rate:.0} | {:.0} | {:.2} | {:.1} | {:.1} |",
            row[0], row[1], row[2], row[3]
        );
    }
    let _ = writeln!(
        text,
        "| **all** | | {:.0} | {:.2} | {:.1} | {:.1} |",
        all[0], all[1], all[2], all[3]
    );
    let memory = [
        ("sessions", SESSIONS, session),
        ("limits of 10,000 clients", LIMITED_CALLS, limit),
        ("tasks", TASK_SECONDS * TASKS_EACH_SECOND, task),
    ];
    text.push_str("\n| keys | number | memory, MB |\n|---|--:|--:|\n");
    for (what, number, bytes) in memory {
        let _ = writeln!(
            text,
            "| {what} | {number:.0} | {:.0} |",
            number * bytes / 1e6
        );
    }
    let shards = (all[1] / BUSY).ceil().max(1.0);
    // Half of all sessions move within one calling interval of the clients.
    let moved = SESSIONS / 2.0;
    let moving = moved * (of("4").micros + of("5").micros) / 1e6;
    let listing = renewals * changing.micros / 1e6;
    text.push_str("\n| question | answer |\n|---|--:|\n");
    let _ = writeln!(
        text,
        "| servers of Valkey, each busy to {:.0}% of a processor | {shards:.0} |",
        BUSY * 100.0
    );
    // Each call goes to another replica, and the connection to it has been idle for longer than
    // connections are kept.
    let passed_on = SESSIONS / CALL_SECONDS / REPLICAS;
    let _ = writeln!(
        text,
        "| connections that a replica makes to others in a second | {passed_on:.0} |"
    );
    let _ = writeln!(
        text,
        "| … and has open, made by it or by others | {:.0} |",
        2.0 * passed_on * LINK_SECONDS
    );
    let _ = writeln!(
        text,
        "| half of the replicas restart: sessions that change hands | {moved:.0} |"
    );
    let _ = writeln!(
        text,
        "| … processor seconds of Valkey for them | {moving:.0} |"
    );
    let _ = writeln!(
        text,
        "| … processors of Valkey while clients come back within {CALL_SECONDS:.0} s | {:.2} |",
        moving / CALL_SECONDS
    );
    let _ = writeln!(
        text,
        "| … processors of Valkey for the list of replicas, while 20 come or go in a second | {listing:.2} |"
    );
    let _ = writeln!(
        text,
        "| … Mbit/s for that list meanwhile | {:.0} |",
        renewals * changing.bytes[1] * 8.0 / 1e6
    );
    text
}
