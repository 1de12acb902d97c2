//! The link between replicas: they pass requests on to this one, and this one to them.

use std::net::SocketAddr;
use std::sync::Arc;

use fanlight_canonical::ProcessRun;
use fanlight_config::{Config, Tls};
use fanlight_frontend::{ListenAddress, ListeningSocket, LiveTls, ReplicaListener, sockets};
use fanlight_http::{HttpVersions, LoadedTls, TlsMarks, TlsOption};
use futures_util::future::BoxFuture;
use tokio::time::Instant;
use tracing::info;

use super::{ReplicaError, Replicas, keys};
use crate::link::{Link, LinkFiles, LinkTls, Members};
use crate::{LEASE, Member};

/// The option with the listener's address.
const OPTION: &str = "replicas.listen";

/// The link, the listener for other replicas, and the certificates of both.
pub type Linking = (Arc<Link>, ReplicaListener, LinkCertificates);

/// The certificates of the link, which a reload reads again.
pub struct LinkCertificates {
    link: Arc<Link>,
    listener: LiveTls,
    marks: TlsMarks,
}

/// New certificates of the link, not yet in use.
pub(super) struct RenewedLink {
    listener: LoadedTls,
    link: LinkTls,
}

impl Replicas {
    /// Creates the link, if the configuration has an address for it. Others learn the address when
    /// this replica joins them.
    pub fn link(&self, config: &Config) -> Result<Option<Linking>, ReplicaError> {
        let Some(options) = &config.replicas else {
            return Ok(None);
        };
        let Some((address, tls)) = options.listen.zip(options.tls.as_ref()) else {
            return Ok(None);
        };
        let socket = ListeningSocket::bind(&ListenAddress::Ip(address));
        let socket = socket.map_err(|error| {
            ReplicaError::Other(format!("cannot listen on {address} (`{OPTION}`): {error}"))
        })?;
        let (LoadedTls { server, marks }, tls) =
            tls_of_replicas(tls).map_err(ReplicaError::Configuration)?;
        let (_, receiver) = sockets(Some(Arc::new(socket)));
        let listener = ReplicaListener {
            sockets: receiver,
            tls: LiveTls::new(Some(server)),
        };

        let link = Link::new(&keys(config), tls, Arc::new(self.clone()));
        let link = Arc::new(link.map_err(|error| {
            ReplicaError::Configuration(format!("`keys` cannot be used: {error}"))
        })?);
        let certificates = LinkCertificates {
            link: Arc::clone(&link),
            listener: listener.tls.clone(),
            marks,
        };
        Ok(Some((link, listener, certificates)))
    }
}

impl LinkCertificates {
    /// The files' new certificates, if they have changed.
    pub(super) fn prepare(&self, tls: &Tls) -> Result<Option<RenewedLink>, String> {
        let (listener, link) = tls_of_replicas(tls)?;
        Ok((listener.marks != self.marks).then_some(RenewedLink { listener, link }))
    }

    /// Uses these certificates for new connections in both directions. Existing connections stay:
    /// forwarded requests are sealed with `keys`, so a certificate that is no longer accepted is
    /// useless on its own.
    pub(super) fn commit(&mut self, RenewedLink { listener, link }: RenewedLink) {
        info!(
            option = "replicas.tls",
            "certificates of the link to other replicas changed, since their files did"
        );
        self.marks = listener.marks;
        self.listener.replace(Some(listener.server));
        self.link.renew(link);
    }
}

impl Members for Replicas {
    fn address(&self, run: ProcessRun) -> Option<SocketAddr> {
        self.membership.find(&run.to_string())?.address
    }

    fn wait_for_address<'a>(&'a self, run: ProcessRun) -> BoxFuture<'a, ()> {
        Box::pin(async move {
            let _ = self
                .membership
                .is_living(&run.to_string(), Instant::now() + LEASE)
                .await;
        })
    }

    fn list(&self) -> Vec<ProcessRun> {
        let (members, own) = (self.membership.members(), self.membership.id());
        let is_there = |one: &&Member| one.id != own && !one.is_ending && one.address.is_some();
        members
            .iter()
            .filter(is_there)
            .filter_map(|one| ProcessRun::parse(&one.id))
            .collect()
    }
}

/// TLS between replicas, which all have to show a certificate. It covers the listener for the
/// others, and the link to them.
fn tls_of_replicas(tls: &Tls) -> Result<(LoadedTls, LinkTls), String> {
    let read = TlsOption::read(tls, "replicas.tls")?;
    let authority = read.ca.as_ref().filter(|(_, is_optional)| !is_optional);
    let (authority, _) = authority
        .ok_or("`replicas.tls` has no `clientCa`, or does not require certificates of it")?;
    let link = LinkTls::new(LinkFiles {
        certificate: &read.certificate,
        key: &read.key,
        authority,
    });
    Ok((
        read.listener(HttpVersions::OneAndTwo)?,
        link.map_err(|error| read.unusable(&error))?,
    ))
}
