//! The certificates with which replicas reach each other and Valkey, which are read again when the configuration is.

use fanlight_config::{Config, ReplicaOptions};
use fanlight_shared::{Certificates, Shared};
use tracing::{info, warn};

use super::linking::{LinkCertificates, RenewedLink};
use super::{Replicas, certificates};

/// The certificates in use.
pub(crate) struct ReplicaCertificates {
    options: ReplicaOptions,
    shared: Shared,
    /// `None` if others do not reach this replica.
    link: Option<LinkCertificates>,
}

/// Certificates that are not in use yet.
#[derive(Default)]
pub(crate) struct Renewed {
    valkey: Option<Certificates>,
    link: Option<RenewedLink>,
}

impl Replicas {
    /// The certificates of the replicas of this configuration, with those of the link.
    pub(crate) fn certificates(
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
    /// What the files in use have now, where they have changed. Other options of `replicas` take effect after a restart, with
    /// their files: until then the earlier ones may be gone.
    pub(crate) fn prepare(&self, config: &Config) -> Result<Renewed, String> {
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

    /// Has connections from now on use these.
    pub(crate) fn commit(&mut self, Renewed { valkey, link }: Renewed) {
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
