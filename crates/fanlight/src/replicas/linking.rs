//! The link between replicas: they pass requests on to this one, and this one to them.

use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;

use fanlight_canonical::ProcessRun;
use fanlight_config::{Config, Tls};
use fanlight_frontend::{
    BindOptions, ListenAddress, ListeningSocket, LiveTls, ReplicaListener, sockets,
};
use fanlight_replicas::link::{Link, LinkTls, Members};
use fanlight_replicas::{LEASE, Member};
use tokio::time::Instant;
use tracing::info;

use super::Replicas;
use crate::failure::Failure;
use crate::listening::{LoadedTls, TlsMarks, tls_of_replicas};
use crate::wiring::keys;

/// The option with the listener's address.
const OPTION: &str = "replicas.listen";

/// The link, the listener for other replicas, and the certificates of both.
pub(crate) type Linking = (Arc<Link>, ReplicaListener, LinkCertificates);

/// The certificates of the link, which a reload reads again.
pub(crate) struct LinkCertificates {
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
    pub(crate) fn link(&self, config: &Config) -> Result<Option<Linking>, Failure> {
        let Some(options) = &config.replicas else {
            return Ok(None);
        };
        let Some((address, tls)) = options.listen.zip(options.tls.as_ref()) else {
            return Ok(None);
        };
        let socket = ListeningSocket::bind(&ListenAddress::Ip(address), BindOptions::default());
        let socket = socket.map_err(|error| {
            Failure::other(format!("cannot listen on {address} (`{OPTION}`): {error}"))
        })?;
        let (LoadedTls { server, marks }, tls) = tls_of_replicas(tls).map_err(Failure::usage)?;
        let (_, receiver) = sockets(Some(Arc::new(socket)));
        let listener = ReplicaListener {
            sockets: receiver,
            tls: LiveTls::new(Some(server)),
        };

        let link = Link::new(&keys(config), tls, Arc::new(self.clone()));
        let link = Arc::new(
            link.map_err(|error| Failure::usage(format!("`keys` cannot be used: {error}")))?,
        );
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

    fn settled<'a>(&'a self, run: ProcessRun) -> Pin<Box<dyn Future<Output = ()> + Send + 'a>> {
        Box::pin(async move {
            let _ = self
                .membership
                .is_living(&run.to_string(), Instant::now() + LEASE)
                .await;
        })
    }

    fn others(&self) -> Vec<ProcessRun> {
        let (members, own) = (self.membership.members(), self.membership.id());
        let is_there = |one: &&Member| one.id != own && !one.is_ending && one.address.is_some();
        members
            .iter()
            .filter(is_there)
            .filter_map(|one| ProcessRun::parse(&one.id))
            .collect()
    }
}
