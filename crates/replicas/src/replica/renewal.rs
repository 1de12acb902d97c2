//! The certificates for connections between replicas and to Valkey, which a reload reads again.

use fanlight_config::{Config, ReplicaOptions};
use tracing::{info, warn};

use super::linking::{LinkCertificates, RenewedLink};
use super::{Replicas, certificates};
use crate::{Certificates, Shared};

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
