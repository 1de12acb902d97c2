//! Links to the page on which a user signs in. A link contains, encrypted, the user, the server and
//! its requirements.

use std::sync::OnceLock;
use std::time::{Duration, SystemTime};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use fanlight_protocol::epoch;
use fanlight_protocol::seal::Seal;
use serde::{Deserialize, Serialize};
use url::Url;

use crate::server::Wanted;
use crate::store::{Owner, Store, StoreError, seconds};

/// The prefix of the sign-in pages' paths.
pub(crate) const CONNECT: &str = "/connect/";
/// The lifetime of a link.
const LINK_TIME: Duration = Duration::from_secs(3600);
/// The length limit of a link.
const LONGEST: usize = 16 << 10;

/// Creates and reads links.
pub struct Links {
    seal: Seal,
    /// Returns the base URL of the pages.
    public_url: OnceLock<PublicUrl>,
}

type PublicUrl = Box<dyn Fn() -> Option<Url> + Send + Sync>;

/// The content of a link.
#[derive(Clone, Debug)]
pub(crate) struct Link {
    pub(crate) owner: Owner,
    /// The server's requirements; `None` if the server has not stated any.
    pub(crate) wanted: Option<Wanted>,
}

#[derive(Serialize, Deserialize)]
struct Text {
    principal: String,
    server: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    wanted: Option<Wanted>,
    expires: u64,
}

fanlight_protocol::opaque!(Links);

impl Links {
    /// Links without a target yet.
    ///
    /// # Errors
    ///
    /// If the store's keys cannot be used.
    pub fn new(store: &Store) -> Result<Self, StoreError> {
        Ok(Self {
            seal: store.seal(b"link to sign in: ")?,
            public_url: OnceLock::new(),
        })
    }

    /// Sets the function that returns the base URL of the pages, or `None` while there are no
    /// pages. Only the first call has an effect.
    pub fn lead_to(&self, public_url: impl Fn() -> Option<Url> + Send + Sync + 'static) {
        let _ = self.public_url.set(Box::new(public_url));
    }

    /// A link for a user of a server; `None` if there are no pages.
    pub fn link(&self, principal: &[u8], server: &str, wanted: &Wanted) -> Option<Url> {
        let public_url = self.public_url.get()?()?;
        // Without stated requirements, opening the page asks the server for them.
        let wanted = Some(wanted).filter(|wanted| **wanted != Wanted::default());
        let handle = self.handle(&Owner::new(principal, server), wanted)?;
        join_path(&public_url, &format!("{CONNECT}{handle}"))
    }

    pub(crate) fn handle(&self, owner: &Owner, wanted: Option<&Wanted>) -> Option<String> {
        let text = Text {
            principal: URL_SAFE_NO_PAD.encode(owner.principal()),
            server: owner.server().to_owned(),
            wanted: wanted.cloned(),
            expires: seconds(SystemTime::now() + LINK_TIME),
        };
        self.seal.seal(&serde_json::to_vec(&text).ok()?)
    }

    pub(crate) fn open(&self, handle: &str) -> Option<Link> {
        let sealed = Some(handle).filter(|handle| handle.len() <= LONGEST)?;
        let Text {
            principal,
            server,
            wanted,
            expires,
        } = serde_json::from_slice(&self.seal.open(sealed)?).ok()?;
        let principal = URL_SAFE_NO_PAD.decode(principal).ok()?;
        (epoch::seconds() < expires).then(|| Link {
            owner: Owner::new(&principal, &server),
            wanted,
        })
    }
}

/// The URL of a path below another URL.
pub(crate) fn join_path(url: &Url, path: &str) -> Option<Url> {
    Url::parse(&format!("{}{path}", url.as_str().trim_end_matches('/'))).ok()
}
