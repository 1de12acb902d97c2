//! A server's entry as settings for OAuth: its address, and Fanlight's client at its authorization
//! server. They are the same for its users and for Fanlight itself.

use std::path::Path;

use fanlight_config::settings::read_bounded;
use fanlight_config::{Secret, Server, ServerAuth, Transport};
use fanlight_grants::fetch::{self, Trust};
use fanlight_grants::oauth::{ClientCredentials, ConfiguredClient, SigningKey};
use reqwest::Certificate;

/// The size limit of a file with certificates, in bytes.
const LONGEST_AUTHORITIES: usize = 1 << 20;

/// A server's address.
pub(crate) struct Place {
    pub(crate) name: String,
    pub(crate) url: String,
    /// The file with certificate authorities for it.
    pub(crate) ca_file: Option<String>,
}

impl Place {
    /// The address of a server over HTTP.
    pub(crate) fn from_server(server: &Server) -> Option<Self> {
        let (Transport::Http { url, .. } | Transport::Sse { url, .. }) = &server.transport else {
            return None;
        };
        Some(Self {
            name: server.name.clone(),
            url: url.clone(),
            ca_file: server.ca_file.clone(),
        })
    }
}

/// Fanlight's client at an authorization server.
pub(crate) fn client(
    id: Option<&String>,
    secret: Option<&Secret>,
    key: Option<&Secret>,
) -> Result<ConfiguredClient, String> {
    let credentials = match (key, secret) {
        (Some(key), _) => {
            let key = SigningKey::from_pem(key);
            ClientCredentials::Key(
                key.map_err(|error| format!("the `key` of its `auth` cannot be used: {error}"))?,
            )
        }
        (None, Some(secret)) => ClientCredentials::Secret(secret.clone()),
        (None, None) => ClientCredentials::None,
    };
    Ok(ConfiguredClient {
        id: id.cloned().unwrap_or_default(),
        credentials,
    })
}

/// The hosts to trust: the server's, and others that its entry names.
pub(crate) fn trust(place: &Place, auth: Option<&ServerAuth>) -> Result<Trust, String> {
    let named = auth.into_iter().flat_map(|auth| {
        let idp = auth.idp.as_ref().map(|idp| &idp.issuer);
        [auth.issuer.as_ref(), auth.token_endpoint.as_ref(), idp]
    });
    Ok(Trust {
        server: place
            .url
            .parse()
            .map_err(|error| format!("its URL is not valid: {error}"))?,
        configured: named.flatten().filter_map(|url| url.parse().ok()).collect(),
        authorities: authorities(place.ca_file.as_deref())?,
    })
}

/// The certificates in the file of further authorities, if there is one.
///
/// # Errors
///
/// If they cannot be used.
pub fn certificates(file: Option<&str>) -> Result<Vec<Certificate>, String> {
    let pem = authorities(file)?;
    let found = pem.map(|pem| fetch::authorities(&pem)).transpose();
    let found = found.map_err(|error| format!("its `caFile`: {error}"))?;
    Ok(found.unwrap_or_default())
}

/// The text of the file of further authorities, if there is one.
///
/// # Errors
///
/// If it cannot be read.
pub fn authorities(file: Option<&str>) -> Result<Option<Vec<u8>>, String> {
    let Some(file) = file else { return Ok(None) };
    let pem = read_bounded(Path::new(file), LONGEST_AUTHORITIES)
        .map_err(|error| format!("its `caFile` cannot be read: {error}"))?;
    if pem.len() > LONGEST_AUTHORITIES {
        Err("its `caFile` is too large".to_owned())
    } else {
        Ok(Some(pem))
    }
}
