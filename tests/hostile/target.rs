//! The gateway under attack, and the permitted cost of an attack.

use std::time::{Duration, Instant};

use fanlight_testkit::usage;

use crate::bystander::Bystander;
use crate::harness::Gateway;
use crate::scripted::{Backend, Era, Reply, Transport};

/// The permitted cost of an attack.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bounds {
    /// Growth of the gateway's resident memory at its peak, in bytes.
    pub(crate) memory: u64,
    /// Processor time of the gateway, apart from the second client's calls.
    pub(crate) processor: Duration,
    /// Time from the attack's first byte until the gateway has dealt with it. Other tests run at
    /// the same time, so the gateway's and the tests' waits for a processor are added to this and
    /// the next bound.
    pub(crate) time: Duration,
    /// The second client's slowest call meanwhile.
    pub(crate) slowest_call: Duration,
}

impl Bounds {
    /// Bounds for attacks that the gateway should refuse at once. A debug build is some ten times
    /// slower than a release.
    pub(crate) const SMALL: Self = Self {
        memory: 16 << 20,
        processor: Duration::from_secs(2),
        time: Duration::from_secs(10),
        slowest_call: Duration::from_secs(2),
    };
}

/// Processor time of one call of the second client, which calls all the while: the more often, the
/// longer an attack takes. A debug build takes 3 to 5 ms.
const CALL: Duration = Duration::from_millis(5);

/// A modern server with a tool `t`.
pub(crate) async fn well_behaved() -> Backend {
    let backend = Backend::start(Era::Modern, Transport::Http).await;
    backend.offers_tools(&["t"]);
    backend.on(
        "tools/call",
        Reply::result(Era::Modern.complete(r#""content":[]"#)),
    );
    backend
}

/// A gateway in front of one modern server with a tool `t`, and a second client that calls all the
/// while.
pub(crate) struct Target {
    pub(crate) gateway: Gateway,
    pub(crate) backend: Backend,
    bystander: Bystander,
    memory: u64,
    processor: Duration,
    waited: Duration,
    started: Instant,
}

/// The time for which the gateway and this process have waited for a processor.
fn waited(gateway: &Gateway) -> Duration {
    usage::processor_wait(gateway.pid()) + usage::processor_wait(std::process::id())
}

impl Target {
    pub(crate) async fn start() -> Self {
        Self::with("").await
    }

    /// A target with more raw members of the configuration.
    pub(crate) async fn with(options: &str) -> Self {
        Self::serve(well_behaved().await, options).await
    }

    /// A target with a second server, given by its entry in `mcpServers`.
    pub(crate) async fn beside(entry: &str) -> Self {
        Self::beside_with(entry, r#""limits":{}"#).await
    }

    /// A target with a second server, given by its entry in `mcpServers`, and more members of the
    /// configuration.
    pub(crate) async fn beside_with(entry: &str, options: &str) -> Self {
        let backend = well_behaved().await;
        let good = backend.entry_with("good", r#""prefix":"""#);
        let config = format!(r#"{{"mcpServers":{{{good},{entry}}},{options}}}"#);
        Self::configured(backend, &config, &[], None).await
    }

    /// A target with more members of the configuration, and a second client with an access token.
    pub(crate) async fn authenticated(options: &str, token: &str) -> Self {
        let backend = well_behaved().await;
        let config = format!(
            r#"{{"mcpServers":{{{}}},{options}}}"#,
            backend.entry("only")
        );
        Self::configured(backend, &config, &[], Some(token)).await
    }

    /// A target in front of this server, which has a tool `t`.
    pub(crate) async fn serve(backend: Backend, options: &str) -> Self {
        Self::with_arguments(backend, options, &[]).await
    }

    /// [`Self::serve`] with more arguments of `fanlight run`.
    pub(crate) async fn with_arguments(backend: Backend, options: &str, more: &[&str]) -> Self {
        let comma = if options.is_empty() { "" } else { "," };
        let config = format!(
            r#"{{"mcpServers":{{{}}}{comma}{options}}}"#,
            backend.entry("only")
        );
        Self::configured(backend, &config, more, None).await
    }

    async fn configured(
        backend: Backend,
        config: &str,
        more: &[&str],
        token: Option<&str>,
    ) -> Self {
        let gateway = Gateway::start_with(config, more).await;
        let bystander = Bystander::start(gateway.mcp, token).await;
        let (memory, processor) = (
            usage::resident_memory(gateway.pid()),
            usage::processor_time(gateway.pid()),
        );
        let waited = waited(&gateway);
        Self {
            gateway,
            backend,
            bystander,
            memory,
            processor,
            waited,
            started: Instant::now(),
        }
    }

    /// Ends the attack, and checks that it stayed within the bounds and that the second client was
    /// served.
    pub(crate) async fn withstood(mut self, bounds: Bounds) -> Gateway {
        let time = self.started.elapsed();
        self.bystander.calls_on(1).await;
        let pid = self.gateway.pid();
        let memory = usage::peak_memory(pid).saturating_sub(self.memory);
        let processor = usage::processor_time(pid).saturating_sub(self.processor);
        let calls = self.bystander.finish().await;
        let waited = waited(&self.gateway).saturating_sub(self.waited);
        println!(
            "memory {} KiB, processor {processor:?}, time {time:?}, waited {waited:?}, {calls:?}",
            memory >> 10
        );
        assert!(
            calls.failures.is_empty(),
            "calls of the second client failed: {:?}",
            calls.failures
        );
        assert!(
            memory <= bounds.memory,
            "memory grew by {} KiB",
            memory >> 10
        );
        assert!(
            processor <= bounds.processor + CALL * u32::try_from(calls.count).unwrap(),
            "it took {processor:?} of processor time"
        );
        assert!(time <= bounds.time + waited, "it took {time:?}");
        assert!(
            calls.slowest <= bounds.slowest_call + waited,
            "a call of the second client took {:?}",
            calls.slowest
        );
        self.gateway
    }
}
