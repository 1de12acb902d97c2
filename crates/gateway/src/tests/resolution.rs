//! A server gets exactly the request that was decided about, whatever is reloaded meanwhile.

use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use fanlight_canonical::{Call, CallContext, Decidable as _, Detail, ServerMessages};
use fanlight_protocol::{Json, Method};
use futures_util::poll;
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;

use super::fake::*;
use crate::{BackendEntry, BackendId, NamingPolicy};

const TOOLS: &str = r#""result":{"tools":[{"name":"read"},{"name":"delete"},{"name":"b__read"}]}"#;
const DONE: &str = r#""result":{"content":[]}"#;
const SERVERS: [&str; 3] = ["a", "b", "c"];

/// The servers of a configuration, by position in [`SERVERS`].
type Configuration = Vec<Configured>;

#[derive(Clone, Debug)]
struct Configured {
    server: usize,
    prefix: Option<&'static str>,
    hides_delete: bool,
}

fn configuration() -> impl Strategy<Value = Configuration> {
    let prefix = select(vec![None, None, Some(""), Some("a__"), Some("b__")]);
    let one = (0..SERVERS.len(), prefix, any::<bool>());
    let one = one.prop_map(|(server, prefix, hides_delete)| Configured {
        server,
        prefix,
        hides_delete,
    });
    vec(one, 1..=3).prop_map(|mut all| {
        let mut seen = [false; SERVERS.len()];
        all.retain(|one| !std::mem::replace(&mut seen[one.server], true));
        all
    })
}

/// The servers, and the configurations that take effect one after the other.
struct Reloading {
    scene: Scene,
    next: std::vec::IntoIter<Configuration>,
}

impl Reloading {
    fn new(configurations: Vec<Configuration>) -> Self {
        let servers = SERVERS.map(|name| {
            let server = fake(name, &[]);
            server.set("tools/list", Scripted::Yields(TOOLS));
            server.set("tools/call", Scripted::Yields(DONE));
            (server, None)
        });
        Self {
            scene: scene_with(servers.into(), 1000),
            next: configurations.into_iter(),
        }
    }

    async fn reload(&mut self) {
        let Some(configuration) = self.next.next() else {
            return;
        };
        let entries = configuration.into_iter().map(
            |Configured {
                 server,
                 prefix,
                 hides_delete,
             }| {
                let entry = entry(BackendId::generate(), &self.scene.backends[server], prefix);
                let tools = hides_delete
                    .then(|| offering(entry.client.name(), None, &["delete"]))
                    .flatten();
                BackendEntry { tools, ..entry }
            },
        );
        self.scene
            .gateway
            .replace(
                entries.collect(),
                &NamingPolicy::default(),
                limits(1000),
                no_endpoints(),
                None,
            )
            .await;
    }

    /// Waits for `future`, reloading between each two polls.
    async fn during<T>(&mut self, future: impl Future<Output = T>) -> T {
        let mut future = pin!(future);
        loop {
            if let Poll::Ready(output) = poll!(&mut future) {
                self.reload().await;
                return output;
            }
            self.reload().await;
            // Lets time pass if nothing else can be done.
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }

    /// The calls that servers received since the last time: the server, and its own name of the
    /// tool.
    fn called(&self) -> Vec<(String, String)> {
        let of = |(name, server): (&str, &Arc<Fake>)| {
            let calls = server.received().into_iter().filter_map(|request| {
                let params = request.strip_prefix("tools/call ")?;
                let params = Json::parse(params.to_owned().into(), 8).unwrap();
                Some((name.to_owned(), params.text_at("name")?))
            });
            calls.collect::<Vec<_>>()
        };
        SERVERS
            .into_iter()
            .zip(&self.scene.backends)
            .flat_map(of)
            .collect()
    }
}

async fn what_runs_is_what_was_resolved(name: &str, configurations: Vec<Configuration>) {
    let mut reloading = Reloading::new(configurations);
    reloading.reload().await;
    let gateway = Arc::clone(&reloading.scene.gateway);
    let params =
        Some(Json::parse(format!(r#"{{"name":"{name}","arguments":{{}}}}"#).into(), 8).unwrap());
    let request = Call::new(Method::CallTool, params, CallContext::internal());
    let mut operation = reloading
        .during(gateway.resolve(request, Detail::Tool))
        .await;
    assert_eq!(
        reloading.called(),
        [],
        "nothing but lists is asked for before it is decided"
    );
    let decided = operation
        .tool()
        .map(|tool| (tool.server.to_owned(), tool.name.into_owned()));
    // The second round belongs to a server that has asked for input.
    for round in 0..2 {
        let response = reloading
            .during(gateway.run(&mut operation, ServerMessages::discard()))
            .await;
        match (&decided, reloading.called().as_slice()) {
            (Some(decided), [called]) => assert_eq!(called, decided, "round {round}"),
            (Some(decided), called) => panic!(
                "{decided:?} was to run, and {called:?} ran: {}",
                response.body()
            ),
            // The tool was unknown, so the decision was about any tool.
            (None, called) => assert!(called.len() <= 1, "{called:?}"),
        }
        operation.answer(&[], Some(&Json::literal("\"s\"")));
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn reload_at_any_await_point_runs_nothing_that_was_not_decided_about(
        name in select(vec!["read", "delete", "a__read", "a__delete", "b__read", "b__delete", "c__delete", "b__b__read", "x"]),
        configurations in vec(configuration(), 1..12),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
        runtime.block_on(what_runs_is_what_was_resolved(name, configurations));
    }
}
