//! The link to the other replicas: where they pass requests on to this one, and how this one does to them.

use std::net::SocketAddr;
use std::sync::Arc;

use fanlight_canonical::ProcessRun;
use fanlight_config::Config;
use fanlight_frontend::{BindOptions, ListenAddress, ListeningSocket, LiveTls, ReplicaListener, sockets};
use fanlight_link::{Link, LinkFiles, Members};
use fanlight_shared::Member;

use super::{Replicas, read};
use crate::failure::Failure;
use crate::listening;
use crate::wiring::keys;

/// The option with the address.
const OPTION: &str = "replicas.listen";

impl Replicas {
    /// The link, if the configuration has an address for it. Others know the address as soon as this replica has joined them.
    pub(crate) fn link(&self, config: &Config) -> Result<Option<(Arc<Link>, ReplicaListener)>, Failure> {
        let options = config.replicas.as_ref();
        let Some((address, tls)) = options.and_then(|options| options.listen.zip(options.tls.as_ref())) else {
            return Ok(None);
        };
        let socket = ListeningSocket::bind(&ListenAddress::Ip(address), BindOptions::default());
        let socket =
            socket.map_err(|error| Failure::other(format!("cannot listen on {address} (`{OPTION}`): {error}")))?;
        let server = listening::tls_of_replicas(tls).map_err(Failure::usage)?;
        let (_, receiver) = sockets(Some(Arc::new(socket)));
        let listener = ReplicaListener { sockets: receiver, tls: LiveTls::new(Some(server.server)) };

        let file = |path| read(path).map_err(Failure::usage);
        let authority = tls.client_ca().map_or("", |(file, _)| file);
        let (certificate, key, authority) = (file(&tls.cert)?, file(&tls.key)?, file(authority)?);
        let files = LinkFiles { certificate: &certificate, key: &key, authority: &authority };
        let link = Link::new(&keys(config), files, Arc::new(self.clone()));
        let link = link.map_err(|error| Failure::usage(format!("`replicas.tls` cannot be used: {error}")))?;
        Ok(Some((Arc::new(link), listener)))
    }
}

impl Members for Replicas {
    fn address(&self, run: ProcessRun) -> Option<SocketAddr> {
        self.membership.find(&run.to_string())?.address
    }

    fn another(&self) -> Option<ProcessRun> {
        let (members, own) = (self.membership.members(), self.membership.id());
        let is_there = |one: &&Member| one.id != own && !one.is_ending && one.address.is_some();
        let others: Vec<_> = members.iter().filter(is_there).collect();
        fastrand::choice(others).and_then(|one| ProcessRun::parse(&one.id))
    }
}
