//! The locations of a server's endpoints: the configured URLs, or all addresses of their hosts,
//! which are looked up periodically.

use std::collections::BTreeSet;
use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use reqwest::Url;
use tokio::sync::watch;
use tokio::time::sleep;

use crate::settings::{BackendSettings, Endpoints, LookUp, origin_of};

/// The maximum number of addresses per host. A constant: a name with more addresses does not name
/// replicas.
const MOST: usize = 64;

/// The location of one endpoint.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) url: Arc<str>,
    /// The fixed address; `None` resolves the host on connect.
    pub(super) address: Option<SocketAddr>,
}

/// The form for operators, without path and query, which may contain secrets.
impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.address {
            Some(address) => write!(f, "{} at {address}", origin_of(&self.url)),
            None => f.write_str(&origin_of(&self.url)),
        }
    }
}

/// The current locations of a server's endpoints; empty while unknown.
#[derive(Clone)]
pub(super) struct Places(pub(super) watch::Receiver<Arc<[Place]>>);

/// Looks up hosts.
struct Watching {
    backend: Arc<str>,
    urls: Vec<Place>,
    names: Arc<dyn LookUp>,
    interval: Duration,
    places: watch::Sender<Arc<[Place]>>,
}

impl Places {
    /// The locations for a server with several endpoints; `None` for a single one. Lookups go on
    /// while anybody has this.
    ///
    /// Needs a tokio runtime around it.
    pub(super) fn from_settings(settings: &BackendSettings) -> Option<Self> {
        let Endpoints { urls, resolve } = &settings.endpoints;
        let place = |url: &String| Place {
            url: url.as_str().into(),
            address: None,
        };
        if urls.is_empty() {
            return None;
        }
        let urls: Vec<Place> = urls.iter().map(place).collect();
        let Some(interval) = *resolve else {
            return Some(Self(watch::channel(urls.into()).1));
        };
        let (places, watched) = watch::channel(Arc::from([]));
        let watching = Watching {
            backend: settings.name.as_str().into(),
            urls,
            names: Arc::clone(&settings.names),
            interval,
            places,
        };
        tokio::spawn(async move {
            tokio::select! {
                () = watching.places.closed() => {}
                () = watching.run() => {}
            }
        });
        Some(Self(watched))
    }
}

impl Watching {
    async fn run(&self) {
        // While no address is found, each attempt to connect to the URL reports the reason.
        let mut known: Vec<Vec<Place>> = self.urls.iter().map(|url| vec![url.clone()]).collect();
        loop {
            let found = join_all(self.urls.iter().map(|url| self.addresses(url))).await;
            for (known, found) in known.iter_mut().zip(found) {
                // Without a result, the last addresses stay: a failed name server takes no endpoint
                // away.
                if let Some(found) = found.filter(|found| !found.is_empty()) {
                    *known = found;
                }
            }
            let next = known.concat();
            self.places.send_if_modified(|places| {
                let is_changed = **places != *next;
                if is_changed {
                    let endpoints = next.len();
                    tracing::info!(
                        backend = &*self.backend,
                        endpoints,
                        "endpoints of server have changed"
                    );
                    *places = next.into();
                }
                is_changed
            });
            // Jitter, so that gateways started together do not stay in step.
            sleep(self.interval.mul_f64(0.9 + fastrand::f64() / 5.0)).await;
        }
    }

    /// The addresses of one URL; `None` if the lookup fails.
    async fn addresses(&self, place: &Place) -> Option<Vec<Place>> {
        let url = Url::parse(&place.url).ok()?;
        let host = url.host_str()?.trim_matches(['[', ']']).to_owned();
        // One lookup at a time: an unresponsive name server blocks at most one thread.
        let found = self.names.look_up(host, url.port_or_known_default()?).await;
        let found = found.inspect_err(|error| {
            tracing::debug!(backend = &*self.backend, %error, "addresses of endpoint not found");
        });
        // Sorted, so that the same addresses give the same endpoints.
        let addresses: BTreeSet<SocketAddr> = found.ok()?.into_iter().collect();
        if addresses.len() > MOST {
            let (used, found) = (MOST, addresses.len());
            tracing::warn!(
                backend = &*self.backend,
                found,
                used,
                "endpoint has too many addresses"
            );
        }
        let at = |address| Place {
            address: Some(address),
            ..place.clone()
        };
        Some(addresses.into_iter().take(MOST).map(at).collect())
    }
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::sync::Mutex;

    use futures_util::FutureExt as _;
    use futures_util::future::BoxFuture;

    use super::*;

    /// For the host `mcp.internal`, answers with these in turn, the last one again and again; for
    /// other hosts, with nothing.
    #[derive(Debug)]
    struct Scripted(Mutex<Vec<Option<&'static [&'static str]>>>);

    impl LookUp for Scripted {
        fn look_up(
            &self,
            host: String,
            port: u16,
        ) -> BoxFuture<'static, io::Result<Vec<SocketAddr>>> {
            let mut answers = self.0.lock().unwrap();
            let answer = match answers.len() {
                _ if host != "mcp.internal" => None,
                1 => answers[0],
                _ => answers.remove(0),
            };
            let found = answer.map(|found| {
                found
                    .iter()
                    .map(|ip| SocketAddr::new(ip.parse().unwrap(), port))
                    .collect()
            });
            async move { found.ok_or_else(|| io::Error::other("no such host")) }.boxed()
        }
    }

    #[tokio::test(start_paused = true)]
    async fn addresses_are_looked_up_again_and_outlast_failures() {
        let (places, mut seen) = watch::channel(Arc::from([]));
        let place = |url: &str| Place {
            url: url.into(),
            address: None,
        };
        let urls = vec![
            place("http://mcp.internal:81/s3cret"),
            place("http://gone.internal:82"),
        ];
        let answers = [
            None,
            Some(&["10.0.0.2", "10.0.0.1", "10.0.0.2"][..]),
            None,
            Some(&[]),
            Some(&["10.0.0.3"]),
        ];
        let names = Arc::new(Scripted(Mutex::new(answers.to_vec())));
        let interval = Duration::from_secs(5);
        let watching = Watching {
            backend: "b".into(),
            urls,
            names,
            interval,
            places,
        };
        let running = tokio::spawn(async move { watching.run().await });
        let mut next = async || {
            seen.changed().await.unwrap();
            seen.borrow_and_update()
                .iter()
                .map(ToString::to_string)
                .collect::<Vec<_>>()
        };
        const GONE: &str = "http://gone.internal:82";
        assert_eq!(next().await, ["http://mcp.internal:81", GONE]);
        let both = [
            "http://mcp.internal:81 at 10.0.0.1:81",
            "http://mcp.internal:81 at 10.0.0.2:81",
            GONE,
        ];
        assert_eq!(next().await, both);
        assert_eq!(
            next().await,
            ["http://mcp.internal:81 at 10.0.0.3:81", GONE]
        );
        running.abort();
    }
}
