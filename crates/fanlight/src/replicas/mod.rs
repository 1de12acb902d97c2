//! Several processes of Fanlight that are one to their clients: the connection to Valkey, and who they are.

mod approvals;
mod grants;
mod limits;
mod linking;
mod once;
mod pins;
mod renewal;
mod sessions;
mod switches;
mod tasks;
mod view;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use aws_lc_rs::digest::{Context, SHA256};
use data_encoding::HEXLOWER;
use fanlight_approvals::Approvals;
use fanlight_canonical::ProcessRun;
use fanlight_config::{Config, MAX_FILE_SIZE, ReplicaOptions};
use fanlight_gateway::CommonTaskOwners;
use fanlight_grants::CommonEntries;
use fanlight_settings::read_bounded;
use fanlight_shared::{Certificates, Me, Membership, Settings, Shared};
use reqwest::{Certificate, Client, Identity};
use tokio::task::JoinHandle;
use tokio_util::sync::{CancellationToken, DropGuard};

use self::approvals::ApprovalsInCommon;
use self::grants::GrantsInCommon;
pub(crate) use self::linking::{LinkCertificates, Linking};
pub(crate) use self::pins::CommonPins;
pub(crate) use self::renewal::{Renewed, ReplicaCertificates};
use self::sessions::SessionsInValkey;
pub(crate) use self::switches::Switches;
use self::tasks::TasksInCommon;
use crate::failure::Failure;
use crate::wiring::keys;

/// Levels of arguments that are kept: they were checked when the call arrived.
const NESTING: usize = 1024;

/// How much the clocks of replicas may differ.
const CLOCKS: Duration = Duration::from_secs(90);

/// What this process shares with others.
#[derive(Clone, Debug)]
pub(crate) struct Replicas {
    pub(crate) shared: Shared,
    pub(crate) membership: Membership,
}

/// Keeps the connection and the lease.
pub(crate) struct Keeping {
    end: CancellationToken,
    membership: JoinHandle<()>,
    connection: (JoinHandle<()>, CancellationToken),
}

impl Replicas {
    /// As the configuration has them; `None` if there is this process alone. Nothing is connected yet.
    pub(crate) fn of(config: &Config) -> Result<Option<Self>, Failure> {
        let Some(options) = &config.replicas else {
            return Ok(None);
        };
        let url = options
            .valkey
            .clone()
            .ok_or_else(|| Failure::usage("`valkey` is missing in `replicas`"))?;
        let settings = Settings {
            url,
            group: options.group.clone(),
        };
        let certificates = certificates(options).map_err(Failure::usage)?;
        let shared = Shared::new(settings, certificates)
            .map_err(|error| Failure::usage(error.to_string()))?;
        let run = ProcessRun::current().map_err(|error| Failure::other(error.to_string()))?;
        let me = Me {
            id: run.to_string(),
            name: host_name(),
            address: options.listen,
            version: env!("CARGO_PKG_VERSION"),
        };
        Ok(Some(Self {
            membership: Membership::new(shared.clone(), me),
            shared,
        }))
    }

    /// What users have granted, as all replicas have it.
    pub(crate) fn grants(&self) -> Arc<dyn CommonEntries> {
        Arc::new(GrantsInCommon::new(self.shared.clone()))
    }

    /// Connects without joining the others, for a command that reads what they share: waits until it is connected, or cannot be.
    pub(crate) async fn connected(config: &Config) -> Result<Option<(Self, DropGuard)>, Failure> {
        let Some(replicas) = Self::of(config)? else {
            return Ok(None);
        };
        let end = CancellationToken::new();
        tokio::spawn(replicas.shared.clone().keep(end.clone()));
        replicas
            .shared
            .connected()
            .await
            .map_err(|error| Failure::other(error.to_string()))?;
        Ok(Some((replicas, end.drop_guard())))
    }

    /// What operators switch at all replicas.
    pub(crate) fn switches(&self) -> Switches {
        Switches::new(self)
    }

    /// What operators have approved of servers, at all replicas.
    pub(crate) fn pins(&self, config: &Config) -> Option<CommonPins> {
        CommonPins::new(self.shared.clone(), &keys(config))
    }

    /// The approvals that all replicas have in common.
    pub(crate) fn approvals(&self, config: &Config) -> Result<Approvals, Failure> {
        let common = ApprovalsInCommon::new(self.shared.clone(), &keys(config));
        let common = common.ok_or_else(|| {
            Failure::other("approvals cannot be sealed: a key of `keys` cannot be used")
        })?;
        Ok(Approvals::in_common(Arc::new(common)))
    }

    /// The tasks that all replicas know.
    pub(crate) fn tasks(&self, config: &Config) -> Result<Arc<dyn CommonTaskOwners>, Failure> {
        let common = TasksInCommon::new(self.shared.clone(), &keys(config));
        let common = common.ok_or_else(|| {
            Failure::other("owners of tasks cannot be sealed: a key of `keys` cannot be used")
        })?;
        Ok(Arc::new(common))
    }

    /// Connects and joins the others. The process goes on without them until then. They are told when it is `ending`.
    pub(crate) fn start(&self, ending: CancellationToken) -> Keeping {
        let (end, last) = (CancellationToken::new(), CancellationToken::new());
        let connection = tokio::spawn(self.shared.clone().keep(last.clone()));
        let membership = tokio::spawn(self.membership.clone().keep(ending, end.clone()));
        Keeping {
            end,
            membership,
            connection: (connection, last),
        }
    }
}

impl Replicas {
    /// Where sessions are on record for the others.
    pub(crate) fn session_records(&self, idle: Duration) -> Arc<SessionsInValkey> {
        // A session that is not used for longer has ended.
        let lifetime = 2 * idle + Duration::from_secs(60);
        let (records, writing) =
            SessionsInValkey::new(self.shared.clone(), self.membership.clone(), lifetime);
        // Ends with the records.
        tokio::spawn(writing);
        Arc::new(records)
    }
}

impl Keeping {
    /// Leaves the others.
    pub(crate) async fn stop(self) {
        self.end.cancel();
        // Neither task can fail, and each ends soon.
        let _ = self.membership.await;
        self.connection.1.cancel();
        let _ = self.connection.0.await;
    }
}

/// The certificates with which Valkey is reached.
fn certificates(options: &ReplicaOptions) -> Result<Certificates, String> {
    let own = options.tls.as_ref().map(|tls| {
        let (certificate, key) = (read(&tls.cert)?, read(&tls.key)?);
        // The client of Valkey notices only when it connects that the key is that of another certificate.
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

/// A digest of these parts, as text: the name of something in Valkey tells nobody what it is.
fn digest(parts: &[&[u8]]) -> String {
    let mut context = Context::new(&SHA256);
    for part in parts {
        context.update(&u64::try_from(part.len()).unwrap_or(u64::MAX).to_be_bytes());
        context.update(part);
    }
    HEXLOWER.encode(context.finish().as_ref())
}

/// A time as scripts take it.
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
