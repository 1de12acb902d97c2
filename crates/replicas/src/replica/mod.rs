//! Replicas: several Fanlight processes that act as one towards their clients. This module connects
//! them through Valkey.

mod approvals;
mod grants;
mod limits;
mod linking;
mod once;
mod pins;
mod sessions;
mod switches;
mod tasks;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use data_encoding::HEXLOWER;
use fanlight_admin::{ReplicaView, ReplicasView, ValkeyView};
use fanlight_canonical::ProcessRun;
use fanlight_config::settings::read_bounded;
use fanlight_config::{Config, MAX_FILE_SIZE, ReplicaOptions};
use fanlight_gateway::CommonTaskOwners;
use fanlight_gateway::approvals::Approvals;
use fanlight_grants::CommonEntries;
use fanlight_protocol::seal::Keys;
use fanlight_protocol::{epoch, sha256_of_parts};
use fanlight_telemetry::metrics::{Family, FamilyInfo};
use reqwest::{Certificate, Client, Identity};
use tokio::task::JoinHandle;
use tokio_util::sync::{CancellationToken, DropGuard};
use tracing::{info, warn};

use crate::{Certificates, Member, Membership, Settings, Shared};
use approvals::ApprovalsInCommon;
use grants::GrantsInCommon;
use linking::RenewedLink;
pub use linking::{LinkCertificates, Linking};
pub use pins::CommonPins;
use sessions::SessionsInValkey;
pub use switches::Switches;
use tasks::TasksInCommon;

/// The nesting limit for stored arguments, which were checked when the call arrived.
const NESTING: usize = 1024;

/// The allowed difference between the clocks of replicas.
const CLOCKS: Duration = Duration::from_secs(90);

/// Why this process cannot act as one with others.
#[derive(Debug, thiserror::Error)]
pub enum ReplicaError {
    /// The configuration or a file that it names is wrong.
    #[error("{0}")]
    Configuration(String),
    /// Something outside failed.
    #[error("{0}")]
    Other(String),
}

/// The common keys of all replicas: the option `keys`.
pub fn keys(config: &Config) -> Keys {
    Keys::new(config.keys.iter().map(|key| *key.expose()))
}

/// The connection to the other replicas, and this one's membership.
#[derive(Clone, Debug)]
pub struct Replicas {
    /// The connection to Valkey.
    pub shared: Shared,
    /// The members of the group of replicas.
    pub membership: Membership,
}

/// The tasks that maintain the connection and the lease.
pub struct ReplicaTasks {
    end: CancellationToken,
    membership: JoinHandle<()>,
    connection: (JoinHandle<()>, CancellationToken),
}

impl Replicas {
    /// The replicas in the configuration; `None` if this process is alone. Nothing is connected
    /// yet.
    pub fn from_config(config: &Config) -> Result<Option<Self>, ReplicaError> {
        let Some(options) = &config.replicas else {
            return Ok(None);
        };
        let url = options.valkey.clone().ok_or_else(|| {
            ReplicaError::Configuration("`valkey` is missing in `replicas`".into())
        })?;
        let settings = Settings {
            url,
            group: options.group.clone(),
        };
        let certificates = certificates(options).map_err(ReplicaError::Configuration)?;
        let shared = Shared::new(settings, certificates)
            .map_err(|error| ReplicaError::Configuration(error.to_string()))?;
        let run = ProcessRun::current().map_err(|error| ReplicaError::Other(error.to_string()))?;
        let me = Member {
            id: run.to_string(),
            name: host_name(),
            address: options.listen,
            version: env!("CARGO_PKG_VERSION").to_owned(),
            epoch: 0,
            since: epoch::seconds(),
            is_ending: false,
        };
        Ok(Some(Self {
            membership: Membership::new(shared.clone(), me),
            shared,
        }))
    }

    /// Users' grants in common with all replicas.
    pub fn grants(&self) -> Arc<dyn CommonEntries> {
        Arc::new(GrantsInCommon::new(self.shared.clone()))
    }

    /// Connects without joining the replicas, for a command that reads their common data. Waits
    /// until connected, or until the connection fails.
    pub async fn connect(config: &Config) -> Result<Option<(Self, DropGuard)>, ReplicaError> {
        let Some(replicas) = Self::from_config(config)? else {
            return Ok(None);
        };
        let end = CancellationToken::new();
        tokio::spawn(replicas.shared.clone().keep(end.clone()));
        replicas
            .shared
            .connected()
            .await
            .map_err(|error| ReplicaError::Other(error.to_string()))?;
        Ok(Some((replicas, end.drop_guard())))
    }

    /// Servers that operators switched, in common with all replicas.
    pub fn switches(&self, config: &Config) -> Option<Switches> {
        Switches::new(self.shared.clone(), &keys(config))
    }

    /// Definitions that operators approved, in common with all replicas.
    pub fn pins(&self, config: &Config) -> Option<CommonPins> {
        CommonPins::new(self.shared.clone(), &keys(config))
    }

    /// Approvals in common with all replicas.
    pub fn approvals(&self, config: &Config) -> Result<Approvals, ReplicaError> {
        let common = ApprovalsInCommon::new(self.shared.clone(), &keys(config));
        let common = common.ok_or_else(|| {
            ReplicaError::Other("approvals cannot be sealed: a key of `keys` cannot be used".into())
        })?;
        Ok(Approvals::in_common(Arc::new(common)))
    }

    /// Tasks in common with all replicas.
    pub fn tasks(&self, config: &Config) -> Result<Arc<dyn CommonTaskOwners>, ReplicaError> {
        let common = TasksInCommon::new(self.shared.clone(), &keys(config));
        let common = common.ok_or_else(|| {
            ReplicaError::Other(
                "owners of tasks cannot be sealed: a key of `keys` cannot be used".into(),
            )
        })?;
        Ok(Arc::new(common))
    }

    /// Connects and joins the other replicas; the process goes on without them until then.
    /// Cancelling `ending` announces to them that this one ends.
    pub fn start(&self, ending: CancellationToken) -> ReplicaTasks {
        let (end, last) = (CancellationToken::new(), CancellationToken::new());
        let connection = tokio::spawn(self.shared.clone().keep(last.clone()));
        let membership = tokio::spawn(self.membership.clone().keep(ending, end.clone()));
        ReplicaTasks {
            end,
            membership,
            connection: (connection, last),
        }
    }

    /// The records of sessions for other replicas.
    pub fn session_records(&self, idle: Duration) -> Arc<SessionsInValkey> {
        // A session that is unused for longer has ended.
        let lifetime = 2 * idle + Duration::from_secs(60);
        let (records, writing) =
            SessionsInValkey::new(self.shared.clone(), self.membership.clone(), lifetime);
        // The task ends when the records are dropped.
        tokio::spawn(writing);
        Arc::new(records)
    }
}

impl ReplicaTasks {
    /// Leaves the other replicas.
    pub async fn stop(self) {
        self.end.cancel();
        // Neither task can fail, and both end soon.
        let _ = self.membership.await;
        self.connection.1.cancel();
        let _ = self.connection.0.await;
    }
}

/// The certificates for connections to Valkey.
fn certificates(options: &ReplicaOptions) -> Result<Certificates, String> {
    let own = options.tls.as_ref().map(|tls| {
        let (certificate, key) = (read(&tls.cert)?, read(&tls.key)?);
        // Check here that the key belongs to the certificate: the Valkey client would notice a
        // mismatch only when it connects.
        let identity = Identity::from_pem(&[&certificate[..], b"\n", &key].concat());
        let usable = identity.and_then(|identity| Client::builder().tls_certs_only([]).identity(identity).build());
        let unusable = |_| {
            let files = format!("{} and {}", tls.cert, tls.key);
            format!("`replicas.tls` cannot be used: {files} are not a certificate and its private key in PEM form")
        };
        usable.map(|_| (certificate, key)).map_err(unusable)
    });
    let ca = options.ca_file.as_deref().map(|file| {
        let ca = read(file)?;
        let has_some = Certificate::from_pem_bundle(&ca).is_ok_and(|all| !all.is_empty());
        let none =
            || format!("`replicas.caFile` cannot be used: {file} has no certificate in PEM form");
        has_some.then_some(ca).ok_or_else(none)
    });
    Ok(Certificates {
        ca: ca.transpose()?,
        own: own.transpose()?,
    })
}

fn read(path: &str) -> Result<Vec<u8>, String> {
    let bytes = read_bounded(Path::new(path), MAX_FILE_SIZE);
    let bytes =
        bytes.map_err(|error| format!("cannot read {path}, which `replicas` names: {error}"))?;
    if bytes.len() > MAX_FILE_SIZE {
        return Err(format!(
            "{path}, which `replicas` names, is larger than {MAX_FILE_SIZE} bytes"
        ));
    }
    Ok(bytes)
}

/// A digest of these parts as text. As a name in Valkey, it does not reveal them.
fn digest(parts: &[&[u8]]) -> String {
    HEXLOWER.encode(&sha256_of_parts(parts))
}

/// A time in milliseconds, as scripts expect it.
fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

/// The name of this machine, or of this container.
#[cfg(unix)]
fn host_name() -> String {
    rustix::system::uname()
        .nodename()
        .to_string_lossy()
        .into_owned()
}

#[cfg(not(unix))]
fn host_name() -> String {
    std::env::var("COMPUTERNAME").unwrap_or_default()
}

/// The certificates in use.
pub struct ReplicaCertificates {
    options: ReplicaOptions,
    shared: Shared,
    /// The certificates of the link; `None` if others do not reach this replica.
    link: Option<LinkCertificates>,
}

/// New certificates, not yet in use.
#[derive(Default)]
pub struct Renewed {
    valkey: Option<Certificates>,
    link: Option<RenewedLink>,
}

impl Replicas {
    /// The replicas' certificates in this configuration, including the link's.
    pub fn certificates(
        &self,
        config: &Config,
        link: Option<LinkCertificates>,
    ) -> Option<ReplicaCertificates> {
        let options = config.replicas.clone()?;
        Some(ReplicaCertificates {
            options,
            shared: self.shared.clone(),
            link,
        })
    }
}

impl ReplicaCertificates {
    /// The new content of the certificate files in use, if it has changed. Changed options of
    /// `replicas` take effect only after a restart; the previous files may be gone until then.
    pub fn prepare(&self, config: &Config) -> Result<Renewed, String> {
        match self.read() {
            Err(reason) if config.replicas.as_ref() != Some(&self.options) => {
                warn!(
                    reason,
                    "certificates of `replicas` are renewed only after a restart, since its options have changed"
                );
                Ok(Renewed::default())
            }
            read => read,
        }
    }

    fn read(&self) -> Result<Renewed, String> {
        let options = &self.options;
        let link = self
            .link
            .as_ref()
            .zip(options.tls.as_ref())
            .map(|(link, tls)| link.prepare(tls))
            .transpose()?;
        let valkey = certificates(options)?;
        let is_other = self
            .shared
            .check(&valkey)
            .map_err(|error| error.to_string())?;
        Ok(Renewed {
            valkey: Some(valkey).filter(|_| is_other),
            link: link.flatten(),
        })
    }

    /// Uses these certificates for new connections.
    pub fn commit(&mut self, Renewed { valkey, link }: Renewed) {
        if let Some(certificates) = valkey {
            info!(
                "certificates for Valkey changed, since their files did; the next connection uses them"
            );
            self.shared.renew(certificates);
        }
        if let Some((own, renewed)) = self.link.as_mut().zip(link) {
            own.commit(renewed);
        }
    }
}

impl fanlight_admin::Replicas for Replicas {
    fn view(&self) -> ReplicasView {
        let report = self.shared.report();
        ReplicasView {
            own: self.membership.id().to_owned(),
            epoch: self.membership.epoch(),
            valkey: ValkeyView {
                url: report.url,
                since_ms: epoch::since(report.since).as_secs_f64() * 1000.0,
                trouble: report.trouble.as_deref().map(str::to_owned),
            },
            members: self.membership.members().iter().map(replica).collect(),
        }
    }

    fn metrics(&self) -> Vec<Family> {
        let report = self.shared.report();
        let requests = [("answered", report.answered), ("failed", report.failed)];
        vec![
            CONNECTED.with_value(report.trouble.is_none().into()),
            REQUESTS.with(requests.map(|(outcome, count)| ([outcome], count))),
            MEMBERS.with_value(self.membership.members().len() as u64),
        ]
    }
}

const CONNECTED: FamilyInfo = FamilyInfo::gauge(
    "fanlight.valkey.connected",
    "1",
    "Whether Valkey can be reached.",
);

const REQUESTS: FamilyInfo = FamilyInfo::counter(
    "fanlight.valkey.requests",
    "{request}",
    "Requests to Valkey.",
    &["outcome"],
);

const MEMBERS: FamilyInfo = FamilyInfo::gauge(
    "fanlight.replicas",
    "{replica}",
    "Live replicas, as last seen.",
);

fn replica(member: &Member) -> ReplicaView {
    ReplicaView {
        id: member.id.clone(),
        epoch: member.epoch,
        name: member.name.clone(),
        address: member.address.map(|address| address.to_string()),
        version: member.version.clone(),
        since_ms: member.since as f64 * 1000.0,
        is_ending: member.is_ending,
    }
}
