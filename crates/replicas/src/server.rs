//! A connection to one Valkey server, or to a cluster.

use std::time::Duration;

use fanlight_config::settings::{Secret, ValkeyKind, ValkeyUrl};
use redis::aio::{AsyncPushSender, ConnectionLike, MultiplexedConnection};
use redis::cluster::ClusterClientBuilder;
use redis::cluster_async::ClusterConnection;
use redis::sentinel::{SentinelClientBuilder, SentinelServerType};
use redis::{
    AsyncConnectionConfig, Client, ClientTlsConfig, Cmd, ConnectionAddr, ConnectionInfo,
    IntoConnectionInfo as _, Pipeline, ProtocolVersion, RedisConnectionInfo, RedisFuture,
    RedisResult, TlsCertificates, TlsMode, Value,
};

/// The time limit for connecting to one server.
const CONNECT: Duration = Duration::from_secs(2);
/// The time limits for connecting to each server of a cluster, and to the cluster. A configured
/// server may not answer, and then a server of the cluster may not.
const CONNECT_CLUSTER: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(4));
/// The maximum number of concurrent requests; others wait as long as each may.
const CONCURRENCY: usize = 4096;
/// How often a cluster's client asks again at another server because slots have moved.
const REDIRECTS: u32 = 2;

/// The settings for reaching Valkey.
#[derive(Clone)]
pub struct Settings {
    /// The location of Valkey.
    pub url: ValkeyUrl,
    /// The prefix of all keys.
    pub group: String,
}

/// The certificates for connecting to Valkey, as PEM.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Certificates {
    /// The authorities that may have signed Valkey's certificate; `None` for the system's.
    pub ca: Option<Vec<u8>>,
    /// Fanlight's own certificate for Valkey, and its private key.
    pub own: Option<(Vec<u8>, Vec<u8>)>,
}

/// A connection that requests share.
#[derive(Clone)]
pub(crate) enum Link {
    One(MultiplexedConnection),
    Cluster(ClusterConnection),
}

impl Settings {
    /// Connects, and subscribes to a channel. `pushed` receives the server's unrequested messages.
    pub(crate) async fn connect(
        &self,
        certificates: &Certificates,
        within: Duration,
        pushed: impl AsyncPushSender,
        channel: &str,
    ) -> RedisResult<Link> {
        let mut link = self.connected(certificates, within, pushed).await?;
        match &mut link {
            Link::One(connection) => connection.subscribe(channel).await?,
            Link::Cluster(connection) => connection.subscribe(channel).await?,
        }
        Ok(link)
    }

    async fn connected(
        &self,
        certificates: &Certificates,
        within: Duration,
        pushed: impl AsyncPushSender,
    ) -> RedisResult<Link> {
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(CONNECT))
            .set_response_timeout(Some(within))
            .set_concurrency_limit(CONCURRENCY)
            .set_pipeline_buffer_size(CONCURRENCY);
        match &self.url.kind {
            ValkeyKind::Single => {
                let client = self.client(certificates)?;
                let config = config.set_push_sender(pushed);
                Ok(Link::One(
                    client
                        .get_multiplexed_async_connection_with_config(&config)
                        .await?,
                ))
            }
            ValkeyKind::Sentinel(name) => {
                let mut client = self.sentinels(name, certificates)?.build()?;
                let config = config.set_push_sender(pushed);
                Ok(Link::One(
                    client.get_async_connection_with_config(&config).await?,
                ))
            }
            ValkeyKind::Cluster => {
                let client = self
                    .cluster(certificates)?
                    .response_timeout(within)
                    .push_sender(pushed)
                    .build()?;
                Ok(Link::Cluster(client.get_async_connection().await?))
            }
        }
    }

    /// The time limit for connecting.
    pub(crate) fn longest_connect(&self) -> Duration {
        if self.url.kind == ValkeyKind::Cluster {
            CONNECT_CLUSTER.1
        } else {
            CONNECT
        }
    }

    /// Checks the settings as far as possible without a connection.
    pub(crate) fn check(&self, certificates: &Certificates) -> RedisResult<()> {
        self.client(certificates).map(drop)
    }

    fn client(&self, certificates: &Certificates) -> RedisResult<Client> {
        let info = self.info(self.addresses().next())?;
        match self.tls(certificates) {
            Some(certificates) => Client::build_with_tls(info, certificates),
            None => Client::open(info),
        }
    }

    fn cluster(&self, certificates: &Certificates) -> RedisResult<ClusterClientBuilder> {
        let nodes = self
            .addresses()
            .map(|address| self.info(Some(address)))
            .collect::<RedisResult<Vec<_>>>()?;
        let mut builder = ClusterClientBuilder::new(nodes)
            .connection_timeout(CONNECT_CLUSTER.0)
            .retries(REDIRECTS)
            .connection_concurrency_limit(CONCURRENCY)
            .use_protocol(ProtocolVersion::RESP3);
        if let Some(user) = &self.url.user {
            builder = builder.username(user);
        }
        if let Some(password) = &self.url.password {
            builder = builder.password(password.expose());
        }
        if self.url.is_tls {
            builder = builder.tls(TlsMode::Secure);
        }
        Ok(match self.tls(certificates) {
            Some(certificates) => builder.certs(certificates),
            None => builder,
        })
    }

    /// Connects to sentinels and the primary with the same user, password and certificates.
    fn sentinels(
        &self,
        name: &str,
        certificates: &Certificates,
    ) -> RedisResult<SentinelClientBuilder> {
        let mut builder =
            SentinelClientBuilder::new(self.addresses(), name, SentinelServerType::Master)?
                .set_client_to_redis_protocol(ProtocolVersion::RESP3);
        if let Some(user) = &self.url.user {
            builder = builder
                .set_client_to_redis_username(user)
                .set_client_to_sentinel_username(user);
        }
        if let Some(password) = self.url.password.as_ref().map(Secret::expose) {
            builder = builder
                .set_client_to_redis_password(password)
                .set_client_to_sentinel_password(password);
        }
        if self.url.is_tls {
            builder = builder
                .set_client_to_redis_tls_mode(TlsMode::Secure)
                .set_client_to_sentinel_tls_mode(TlsMode::Secure);
        }
        Ok(match self.tls(certificates) {
            Some(certificates) => builder
                .set_client_to_redis_certificates(certificates.clone())
                .set_client_to_sentinel_certificates(certificates),
            None => builder,
        })
    }

    fn addresses(&self) -> impl Iterator<Item = ConnectionAddr> {
        let is_tls = self.url.is_tls;
        self.url.hosts.iter().cloned().map(move |(host, port)| {
            if is_tls {
                ConnectionAddr::TcpTls {
                    host,
                    port,
                    insecure: false,
                    tls_params: None,
                }
            } else {
                ConnectionAddr::Tcp(host, port)
            }
        })
    }

    fn info(&self, address: Option<ConnectionAddr>) -> RedisResult<ConnectionInfo> {
        let mut redis = RedisConnectionInfo::default()
            .set_protocol(ProtocolVersion::RESP3)
            .set_db(i64::from(self.url.database));
        if let Some(user) = &self.url.user {
            redis = redis.set_username(user);
        }
        if let Some(password) = &self.url.password {
            redis = redis.set_password(password.expose());
        }
        // The address exists: a URL without one cannot be parsed.
        let address = address.unwrap_or_else(|| ConnectionAddr::Tcp(String::new(), 0));
        Ok(address.into_connection_info()?.set_redis_settings(redis))
    }

    fn tls(&self, Certificates { ca, own }: &Certificates) -> Option<TlsCertificates> {
        let client_tls = own
            .clone()
            .map(|(client_cert, client_key)| ClientTlsConfig {
                client_cert,
                client_key,
            });
        let is_needed = self.url.is_tls && (client_tls.is_some() || ca.is_some());
        is_needed.then(|| TlsCertificates {
            client_tls,
            root_cert: ca.clone(),
        })
    }
}

impl ConnectionLike for Link {
    fn req_packed_command<'a>(&'a mut self, cmd: &'a Cmd) -> RedisFuture<'a, Value> {
        match self {
            Self::One(connection) => connection.req_packed_command(cmd),
            Self::Cluster(connection) => connection.req_packed_command(cmd),
        }
    }

    fn req_packed_commands<'a>(
        &'a mut self,
        cmd: &'a Pipeline,
        offset: usize,
        count: usize,
    ) -> RedisFuture<'a, Vec<Value>> {
        match self {
            Self::One(connection) => connection.req_packed_commands(cmd, offset, count),
            Self::Cluster(connection) => connection.req_packed_commands(cmd, offset, count),
        }
    }

    fn get_db(&self) -> i64 {
        match self {
            Self::One(connection) => connection.get_db(),
            Self::Cluster(connection) => connection.get_db(),
        }
    }
}
