//! Several processes of Fanlight that are one to their clients: the connection to Valkey, and who they are.

mod linking;
mod sessions;
mod view;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use fanlight_canonical::HandleSeal;
use fanlight_config::{Config, MAX_FILE_SIZE, ReplicaOptions};
use fanlight_settings::read_bounded;
use fanlight_shared::{Me, Membership, Settings, Shared};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use self::sessions::SessionsInValkey;
use crate::failure::Failure;
use crate::wiring::keys;

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
        let Some(options) = &config.replicas else { return Ok(None) };
        let settings = settings(options).map_err(Failure::usage)?;
        let shared = Shared::new(settings).map_err(|error| Failure::usage(error.to_string()))?;
        let seal = HandleSeal::new(&keys(config)).map_err(|error| Failure::other(error.to_string()))?;
        let me = Me { id: seal.run(), name: host_name(), address: options.listen, version: env!("CARGO_PKG_VERSION") };
        Ok(Some(Self { membership: Membership::new(shared.clone(), me), shared }))
    }

    /// Connects and joins the others. The process goes on without them until then.
    pub(crate) fn start(&self) -> Keeping {
        let (end, last) = (CancellationToken::new(), CancellationToken::new());
        let connection = tokio::spawn(self.shared.clone().keep(last.clone()));
        let membership = tokio::spawn(self.membership.clone().keep(end.clone()));
        Keeping { end, membership, connection: (connection, last) }
    }
}

impl Replicas {
    /// Where sessions are on record for the others.
    pub(crate) fn session_records(&self, idle: Duration) -> Arc<SessionsInValkey> {
        // A session that is not used for longer has ended.
        let lifetime = 2 * idle + Duration::from_secs(60);
        let (records, writing) = SessionsInValkey::new(self.shared.clone(), self.membership.clone(), lifetime);
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

fn settings(options: &ReplicaOptions) -> Result<Settings, String> {
    let url = options.valkey.clone().ok_or("`valkey` is missing in `replicas`")?;
    let certificate = options.tls.as_ref().map(|tls| Ok::<_, String>((read(&tls.cert)?, read(&tls.key)?)));
    Ok(Settings {
        url,
        group: options.group.clone(),
        ca: options.ca_file.as_deref().map(read).transpose()?,
        certificate: certificate.transpose()?,
    })
}

fn read(path: &str) -> Result<Vec<u8>, String> {
    let bytes = read_bounded(Path::new(path), MAX_FILE_SIZE);
    let bytes = bytes.map_err(|error| format!("cannot read {path}, which `replicas` names: {error}"))?;
    if bytes.len() > MAX_FILE_SIZE {
        return Err(format!("{path}, which `replicas` names, is larger than {MAX_FILE_SIZE} bytes"));
    }
    Ok(bytes)
}

/// The name of this machine, or of this container.
#[cfg(unix)]
fn host_name() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

#[cfg(not(unix))]
fn host_name() -> String {
    std::env::var("COMPUTERNAME").unwrap_or_default()
}
